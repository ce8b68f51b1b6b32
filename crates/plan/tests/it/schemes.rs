//! The geometries of the ecosystem's schemes, as data: `[out, in]` (or `[in]`) with any leading axes.

use std::sync::Arc;

use tensor::{Hold, IN, OUT, PlaneAxis, PlaneSpec, Scheme};

pub(crate) fn packed(axis: usize, per: u64) -> PlaneAxis {
    PlaneAxis::Cells { axis, per, hold: Hold::Packed }
}
pub(crate) fn shared(axis: usize, per: u64) -> PlaneAxis {
    PlaneAxis::Cells { axis, per, hold: Hold::Shared }
}
pub(crate) fn each(axis: usize) -> PlaneAxis {
    packed(axis, 1)
}
pub(crate) fn plane(role: &'static str, cell_bytes: u64, axes: &[PlaneAxis]) -> PlaneSpec {
    PlaneSpec { axes: axes.to_vec().into(), ..PlaneSpec::new(role, cell_bytes, &[]) }
}
/// A plane that only multiplies.
pub(crate) fn factor(role: &'static str, cell_bytes: u64, axes: &[PlaneAxis]) -> PlaneSpec {
    PlaneSpec { spans_padding: true, ..plane(role, cell_bytes, axes) }
}
pub(crate) fn new(name: impl Into<String>, trailing: usize, planes: Vec<PlaneSpec>) -> Arc<Scheme> {
    Arc::new(Scheme { name: name.into().into(), trailing, planes: planes.into() })
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

pub(crate) fn plain(bytes: u64) -> Arc<Scheme> {
    new(format!("plain{}", bytes * 8), 0, vec![plane("data", bytes, &[])])
}
/// Any GGUF block type: `gguf("q4_k", 256, 144)`.
pub(crate) fn gguf(name: &'static str, per: u64, bytes: u64) -> Arc<Scheme> {
    Scheme::blocks(name, per, bytes)
}
/// Rows are one bit stream of u32 words; 3, 5 and 6 bits cross words, so a cell is the shortest whole run.
pub(crate) fn mlx(bits: u64, group: u64) -> Arc<Scheme> {
    let per = 32 / gcd(32, bits);
    new(
        format!("mlx-{bits}bit-g{group}"),
        2,
        vec![
            plane("weight", per * bits / 8, &[each(OUT), packed(IN, per)]),
            plane("scales", 2, &[each(OUT), shared(IN, group)]),
            plane("biases", 2, &[each(OUT), shared(IN, group)]),
        ],
    )
}
/// Stored transposed: `qweight [in/8, out]`; zeros pack along `out` and are shared along `in`.
pub(crate) fn gptq(bits: u64, group: u64) -> Arc<Scheme> {
    let per = 32 / gcd(32, bits);
    let word = per * bits / 8;
    new(
        format!("gptq-{bits}bit-g{group}"),
        2,
        vec![
            plane("qweight", word, &[packed(IN, per), each(OUT)]),
            plane("qzeros", word, &[shared(IN, group), packed(OUT, per)]),
            plane("scales", 2, &[shared(IN, group), each(OUT)]),
        ],
    )
}
/// `desc_act`: row `i` belongs to group `g_idx[i]`, so zeros and scales are tables, kept whole by `in`.
pub(crate) fn gptq_act_order(groups: u64) -> Arc<Scheme> {
    new(
        format!("gptq-4bit-act-order-{groups}"),
        2,
        vec![
            plane("qweight", 4, &[packed(IN, 8), each(OUT)]),
            plane("qzeros", 4, &[PlaneAxis::Table(groups), packed(OUT, 8)]),
            plane("scales", 2, &[PlaneAxis::Table(groups), each(OUT)]),
            // It names a group but no value: padded outputs stay zero because their own scales are zero.
            PlaneSpec { must_agree: true, ..factor("g_idx", 4, &[each(IN)]) },
        ],
    )
}
pub(crate) fn awq(group: u64) -> Arc<Scheme> {
    new(
        format!("awq-g{group}"),
        2,
        vec![
            plane("qweight", 4, &[each(IN), packed(OUT, 8)]),
            plane("qzeros", 4, &[shared(IN, group), packed(OUT, 8)]),
            plane("scales", 2, &[shared(IN, group), each(OUT)]),
        ],
    )
}
/// compressed-tensors `pack-quantized`: the zero points pack along dim 0.
pub(crate) fn pack_quantized(group: u64) -> Arc<Scheme> {
    new(
        format!("pack-quantized-g{group}"),
        2,
        vec![
            plane("weight_packed", 4, &[each(OUT), packed(IN, 8)]),
            plane("weight_scale", 2, &[each(OUT), shared(IN, group)]),
            plane("weight_zero_point", 4, &[packed(OUT, 8), shared(IN, group)]),
        ],
    )
}
/// Scales per `rows` x `cols` block, partial at the edges. DeepSeek: 128 x 128.
pub(crate) fn fp8_block(rows: u64, cols: u64) -> Arc<Scheme> {
    new(
        format!("fp8-block-{rows}x{cols}"),
        2,
        vec![
            plane("weight", 1, &[each(OUT), each(IN)]),
            factor("weight_scale_inv", 4, &[shared(OUT, rows), shared(IN, cols)]),
        ],
    )
}
/// Squish int8, compressed-tensors `channel`: one scale a row.
pub(crate) fn int8_rows() -> Arc<Scheme> {
    new("int8-rows", 2, vec![plane("weight", 1, &[each(OUT), each(IN)]), factor("scale", 4, &[each(OUT)])])
}
pub(crate) fn int8_tensor() -> Arc<Scheme> {
    new("int8-tensor", 2, vec![plane("weight", 1, &[each(OUT), each(IN)]), factor("scale", 4, &[])])
}
/// gpt-oss experts: `_blocks [.., rows, in/32, 16]`, `_scales [.., rows, in/32]`.
pub(crate) fn mxfp4() -> Arc<Scheme> {
    new(
        "mxfp4-split",
        2,
        vec![
            plane("blocks", 16, &[each(OUT), packed(IN, 32)]),
            factor("scales", 1, &[each(OUT), shared(IN, 32)]),
        ],
    )
}
/// modelopt: a second, per-tensor factor.
pub(crate) fn nvfp4() -> Arc<Scheme> {
    new(
        "nvfp4",
        2,
        vec![
            plane("weight", 1, &[each(OUT), packed(IN, 2)]),
            factor("weight_scale", 1, &[each(OUT), shared(IN, 16)]),
            factor("weight_scale_2", 4, &[]),
        ],
    )
}
/// bitsandbytes 4-bit is flat: its one logical axis is `out * in`; a dialect splits it by `in`.
pub(crate) fn bnb4() -> Arc<Scheme> {
    new("bnb-4bit", 1, vec![plane("weight", 1, &[packed(IN, 2)]), plane("absmax", 4, &[shared(IN, 64)])])
}

/// 27 real geometries, with groups small enough that 256 x 512 shards to TP 8 on either axis.
pub(crate) fn real() -> Vec<Arc<Scheme>> {
    let mut v = vec![
        plain(2),
        gguf("q8_0", 32, 34),
        gguf("q4_0", 32, 18),
        gguf("mxfp4", 32, 17),
        gptq(4, 32),
        gptq(3, 32),
        gptq(8, 64),
        gptq_act_order(16),
        awq(64),
        pack_quantized(32),
        fp8_block(8, 64),
        int8_rows(),
        int8_tensor(),
        mxfp4(),
        nvfp4(),
    ];
    for bits in [2, 3, 4, 5, 6, 8] {
        v.push(mlx(bits, 32));
        v.push(mlx(bits, 64));
    }
    v
}

/// Small cells, so that random moves meet many edges: stored as, wanted as.
pub(crate) fn toys() -> Vec<(Arc<Scheme>, Arc<Scheme>)> {
    let same = |s: Arc<Scheme>| (Arc::clone(&s), s);
    let fp8 = |r, c| {
        new(
            format!("fp8-{r}x{c}"),
            2,
            vec![plane("w", 1, &[each(OUT), each(IN)]), factor("s", 4, &[shared(OUT, r), shared(IN, c)])],
        )
    };
    let words = plane("w", 5, &[each(OUT), packed(IN, 2)]);
    let scales = |role| plane(role, 3, &[each(OUT), shared(IN, 4)]);
    let gptq = vec![
        plane("w", 4, &[packed(IN, 2), each(OUT)]),
        plane("z", 4, &[shared(IN, 4), packed(OUT, 2)]),
        plane("s", 4, &[shared(IN, 4), each(OUT)]),
    ];
    let awq =
        vec![plane("w", 4, &[each(IN), packed(OUT, 2)]), plane("z", 4, &[shared(IN, 4), packed(OUT, 2)])];
    let order = vec![
        plane("w", 4, &[packed(IN, 2), each(OUT)]),
        plane("s", 4, &[PlaneAxis::Table(3), each(OUT)]),
        PlaneSpec { must_agree: true, ..plane("g", 4, &[each(IN)]) },
    ];
    vec![
        same(plain(3)),
        same(new("block", 1, vec![plane("b", 5, &[packed(IN, 4)])])),
        same(new("mlx", 2, vec![words, scales("s"), scales("z")])),
        same(new("gptq", 2, gptq)),
        same(new("awq", 2, awq)),
        same(new("order", 2, order)),
        same(new("square", 2, vec![plane("w", 4, &[packed(OUT, 2), packed(IN, 2)])])),
        same(fp8(4, 4)),
        same(fp8(3, 2)),
        (fp8(4, 4), fp8(2, 4)),
        (fp8(4, 4), fp8(3, 4)),
        (fp8(2, 2), fp8(4, 4)),
        same(int8_rows()),
        same(int8_tensor()),
        (int8_tensor(), int8_rows()),
        same(new("flat", 1, vec![plane("w", 4, &[packed(IN, 2)]), factor("s", 4, &[shared(IN, 8)])])),
    ]
}
