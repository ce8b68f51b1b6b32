//! Schemes of `quant` with several planes: moved values arrive unchanged, and impossible moves are rejected by name.

use plan::Problems;
use quant::Matrix;
use tensor::{Expr, Scheme, TensorEntry};

use crate::blame::{NoCodecs, plan_of};
use crate::moves::{rope, s, shard};
use crate::oracle::{Planes, Rng, agrees, load, random_bytes, tensors};

fn scheme(name: &str) -> std::sync::Arc<Scheme> {
    quant::scheme(name).unwrap_or_else(|| panic!("`{name}`"))
}

/// Bytes of a tensor: all random, but that scales are finite and groups are there.
fn bytes(r: &mut Rng, t: &TensorEntry) -> Planes {
    let mut planes = random_bytes(r, t);
    for (spec, plane) in t.scheme.planes.iter().zip(&mut planes) {
        match (spec.role, spec.cell_bytes) {
            ("g_idx", 4) => {
                for (i, cell) in plane.chunks_exact_mut(4).enumerate() {
                    cell.copy_from_slice(&[(i * 7 % 4) as u8, 0, 0, 0]);
                }
            }
            // An exponent in the middle, of f16 and of f32.
            ("scales" | "weight_scale", 1 | 2) | ("absmax" | "SCB", 4) => {
                plane.chunks_exact_mut(spec.cell_bytes as usize).for_each(|c| *c.last_mut().unwrap() = 0x3C);
            }
            _ => {}
        }
    }
    planes
}

fn values(scheme: &Scheme, planes: &Planes, shape: &[u64]) -> Vec<f32> {
    let (rows, k) = (shape[0] as usize, shape[1] as usize);
    let planes: Vec<&[u8]> = planes.iter().map(Vec::as_slice).collect();
    let (codec, matrix) = (quant::codec(&scheme.name).unwrap(), Matrix { planes: &planes, rows, k });
    assert_eq!(codec.check(matrix), Ok(()), "`{scheme}`");
    let mut out = vec![0.0; rows * k];
    codec.decode(matrix, 0..rows, &mut out);
    out
}

/// Compiles `e`, runs it, and decodes both what it gives and its sources: the values must be the same movement.
fn moves(name: &str, shapes: &[&[u64]], e: &Expr, wanted: impl Fn(&[Vec<f32>]) -> Vec<f32>) {
    let scheme = scheme(name);
    let src = tensors(&scheme, shapes);
    let mut r = Rng(0x2545_F491_4F6C_DD1D);
    let data: Vec<Planes> = src.iter().map(|t| bytes(&mut r, t)).collect();
    let plan = plan_of(e, &src, None, &NoCodecs).unwrap_or_else(|p| panic!("`{name}`: {p}"));
    let param = &plan.params[0];
    let got = load(&param.planes, &data);
    assert!(agrees(&param.planes, &got, &data), "`{name}`");
    let sources: Vec<_> = data.iter().zip(shapes).map(|(d, shape)| values(&scheme, d, shape)).collect();
    assert!(values(&scheme, &got, &param.shape) == wanted(&sources), "`{name}`: {e:?}");
}

fn refusal(name: &str, shapes: &[&[u64]], e: &Expr) -> String {
    let src = tensors(&scheme(name), shapes);
    plan_of(e, &src, None, &NoCodecs).map(|_| ()).map_err(|p: Problems| format!("{p:?}")).unwrap_err()
}

/// Columns `from..to` of rows of `k`.
fn columns(values: &[f32], k: usize, from: usize, to: usize) -> Vec<f32> {
    values.chunks(k).flat_map(|row| row[from..to].to_vec()).collect()
}

#[test]
fn grouped_schemes_fuse_and_shard() {
    for name in [
        "gptq:b4,g32,f16",
        "gptq:b3,g32,f16",
        "gptq:b2,g64,f16",
        "gptq:b8,g32,f16",
        "gptq-v2:b4,g32,bf16",
        "awq:g32,f16",
        "bnb-nf4:b64,bf16",
        "bnb-fp4:b64,f32",
        "bnb-int8",
        "ct-pack:b4,g32,bf16",
        "ct-pack:b3,g64,z,f16",
        "ct-pack:b4,row,bf16",
        "ct-int8:g32,z,bf16",
        "ct-mxfp4",
    ] {
        let fused = Expr::concat(0, vec![s(0), s(1), s(2)]);
        moves(name, &[&[64, 128], &[32, 128], &[32, 128]], &fused, <[Vec<f32>]>::concat);
        moves(name, &[&[64, 128]], &shard(0, 64, 2, 1, s(0)), |v| v[0][32 * 128..].to_vec());
        moves(name, &[&[64, 256]], &shard(1, 256, 2, 1, s(0)), |v| columns(&v[0], 256, 128, 256));
    }
}

#[test]
fn whole_rows_keep_their_inputs_together() {
    for name in ["gptq:b4,row,f16", "awq:row,f16"] {
        let fused = Expr::concat(0, vec![s(0), s(1)]);
        moves(name, &[&[32, 96], &[64, 96]], &fused, <[Vec<f32>]>::concat);
        // A part of a row has the same scale.
        moves(name, &[&[32, 96]], &s(0).slice(1, 32..64), |v| columns(&v[0], 96, 32, 64));
    }
}

#[test]
fn act_order_goes_by_table() {
    let name = "gptq:b4,act4,f16";
    moves(name, &[&[32, 128]], &shard(1, 128, 2, 0, s(0)), |v| columns(&v[0], 128, 0, 64));
    moves(name, &[&[32, 128]], &shard(0, 32, 2, 1, s(0)), |v| v[0][16 * 128..].to_vec());
    let fused = Expr::concat(0, vec![s(0), s(1)]);
    moves(name, &[&[32, 128], &[16, 128]], &fused, <[Vec<f32>]>::concat);
}

#[test]
fn what_would_cut_a_word_is_refused_by_name() {
    let one: &[&[u64]] = &[&[64, 512]];
    insta::assert_snapshot!(refusal("gptq:b4,g128,f16", one, &s(0).slice(1, 192..384)), @"
    `w`: slice 192..384 of axis 1 needs several values in a `qzeros` cell of `gptq:b4,g128,f16`, which spans 128 elements of axis 1
    hint: the nearest slice is 128..384 (multiples of 128)
    ");
    insta::assert_snapshot!(refusal("gptq:b4,g128,f16", one, &s(0).slice(0, 4..12)), @"
    `w`: slice 4..12 of axis 0 cuts a `qzeros` cell of `gptq:b4,g128,f16`, which packs 8 elements along axis 0
    hint: the nearest slice is 0..8 (multiples of 8)
    ");
    insta::assert_snapshot!(refusal("gptq:b3,g128,f16", one, &s(0).slice(1, 0..16)), @"
    `w`: slice 0..16 of axis 1 leaves 16 elements along axis 1, not a multiple of the 32 that a `qweight` cell of `gptq:b3,g128,f16` packs
    hint: the nearest slice is 0..128 (multiples of 128)
    ");
    insta::assert_snapshot!(refusal("gptq:b4,g128,f16", one, &rope(s(0), 16)), @"`w`: permute [0, 2, 1, 3] cuts a `qzeros` cell of `gptq:b4,g128,f16`, which packs 8 elements along axis 2");
    insta::assert_snapshot!(refusal("awq:g128,f16", one, &s(0).slice(0, 4..12)), @"
    `w`: slice 4..12 of axis 0 cuts a `qweight` cell of `awq:g128,f16`, which packs 8 elements along axis 0
    hint: the nearest slice is 0..8 (multiples of 8)
    ");
    insta::assert_snapshot!(refusal("awq:g128,f16", one, &s(0).slice(1, 64..192)), @"
    `w`: slice 64..192 of axis 1 needs several values in a `qzeros` cell of `awq:g128,f16`, which spans 128 elements of axis 1
    hint: the nearest slice is 0..128 (multiples of 128)
    ");
    insta::assert_snapshot!(refusal("awq:g128,f16", one, &rope(s(0), 16)), @"`w`: permute [0, 2, 1, 3] cuts a `qweight` cell of `awq:g128,f16`, which packs 8 elements along axis 2");
    let two: &[&[u64]] = &[&[64, 512], &[64, 512]];
    let wide = Expr::concat(1, vec![s(0), s(1)]);
    insta::assert_snapshot!(refusal("gptq:b4,act4,f16", two, &wide), @"
    `w`: concat of 2 parts along axis 1 needs several values in a `qzeros` cell of `gptq:b4,act4,f16`, which spans the whole of axis 1
    hint: the parts can be stacked
    hint: keep the parts apart
    ");
    insta::assert_snapshot!(refusal("bnb-nf4:b64,bf16", one, &s(0).slice(1, 32..96)), @"
    `w`: slice 32..96 of axis 1 needs several values in a `absmax` cell of `bnb-nf4:b64,bf16`, which spans 64 elements of axis 1
    hint: the nearest slice is 0..64 (multiples of 64)
    ");
    insta::assert_snapshot!(refusal("bnb-nf4:b64,bf16,r32,o3d4ccccd", one, &s(0).slice(0, 16..48)), @"
    `w`: slice 16..48 of axis 0 needs several values in a `nested_absmax` cell of `bnb-nf4:b64,bf16,r32,o3d4ccccd`, which spans 32 elements of axis 0
    hint: the nearest slice is 0..32 (multiples of 32)
    ");
    insta::assert_snapshot!(refusal("bnb-nf4:b64,bf16,7x9", &[&[7, 9]], &s(0).slice(0, 0..3)), @"
    `w`: slice 0..3 of axis 0 leaves 3 elements along axis 0, not a multiple of the 7 that a `weight` cell of `bnb-nf4:b64,bf16,7x9` packs
    hint: the nearest slice is 0..7 (multiples of 7)
    ");
    let padded = Expr::concat(0, vec![s(0), Expr::Zero([64, 512].into())]);
    insta::assert_snapshot!(refusal("bnb-nf4:b64,bf16,r32,o3d4ccccd", one, &padded), @"
    `w`: concat of 2 parts along axis 0 lets padding share a `nested_quant_map` cell of `bnb-nf4:b64,bf16,r32,o3d4ccccd`, where it would not stay 0
    hint: the parts can be stacked
    hint: keep the parts apart
    ");
}
