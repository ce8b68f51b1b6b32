//! The moves that matter, over the real geometries.

use std::sync::Arc;

use plan::{Dim, Piece, PieceSource};
use tensor::{Expr, Hold, IN, OUT, PlaneAxis, Scheme, Shape};

use crate::oracle::{
    Planes, Rng, agrees, cells, load, lowered, oracle, random_bytes, restores, tensors, verify,
};
use crate::schemes::{self, each, factor, fp8_block, gguf, new, packed, plane, real, shared};

pub(crate) fn s(i: usize) -> Expr {
    Expr::source(format!("t{i}"))
}
pub(crate) fn shard(axis: usize, n: u64, tp: u64, rank: u64, of: Expr) -> Expr {
    of.slice(axis, n / tp * rank..n / tp * (rank + 1))
}
fn zero<const N: usize>(shape: [u64; N]) -> Expr {
    Expr::Zero(Shape::from(shape))
}
/// Returns the compiler's error for an expression that the oracle rejects too.
fn refused(e: &Expr, src: &[tensor::TensorEntry], target: &Scheme) -> String {
    assert!(oracle(e, src, target).is_none());
    lowered(e, src, target).unwrap_err().to_string()
}
/// Per-tensor factors: two tensors have two, and one fused tensor has place for one.
fn has_tensor_factor(scheme: &Scheme) -> bool {
    ["int8-tensor", "nvfp4"].contains(&&*scheme.name)
}

#[test]
fn plane_shapes_are_the_ecosystems() {
    let show = |s: Arc<Scheme>, shape: &[u64]| {
        let plane = |p: &tensor::PlaneSpec| {
            let cells = cells(&s, p, shape);
            assert_eq!(s.cells(p, &Shape::from(shape.to_vec())), Ok(cells.iter().product()));
            format!("{} {cells:?} x{}", p.role, p.cell_bytes)
        };
        s.planes.iter().map(plane).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(show(gguf("q4_k", 256, 144), &[4096, 14336]), "blocks [4096, 56] x144");
    assert_eq!(
        show(schemes::mlx(4, 64), &[4096, 14336]),
        "weight [4096, 1792] x4, scales [4096, 224] x2, biases [4096, 224] x2"
    );
    assert_eq!(
        show(schemes::mlx(3, 64), &[8, 4096]),
        "weight [8, 128] x12, scales [8, 64] x2, biases [8, 64] x2"
    );
    assert_eq!(
        show(schemes::gptq(4, 128), &[4096, 11008]),
        "qweight [1376, 4096] x4, qzeros [86, 512] x4, scales [86, 4096] x2"
    );
    assert_eq!(
        show(schemes::awq(128), &[4096, 11008]),
        "qweight [11008, 512] x4, qzeros [86, 512] x4, scales [86, 4096] x2"
    );
    assert_eq!(show(fp8_block(128, 128), &[576, 7168]), "weight [576, 7168] x1, weight_scale_inv [5, 56] x4");
    assert_eq!(
        show(schemes::gptq(4, 128), &[8, 4096, 11008]),
        "qweight [8, 1376, 4096] x4, qzeros [8, 86, 512] x4, scales [8, 86, 4096] x2"
    );
}

#[test]
fn column_and_row_parallel() {
    for scheme in &real() {
        for (axis, shape) in [(0, [256, 64]), (1, [32, 512])] {
            let src = tensors(scheme, &[&shape]);
            let ranks: Vec<_> = (0..8).map(|r| shard(axis, shape[axis], 8, r, s(0))).collect();
            restores(&ranks, &src, scheme);
        }
    }
}

#[test]
fn qkv_with_replicated_kv_heads() {
    for scheme in &real() {
        // 8 query heads and 2 kv heads of 32 rows; at TP 8 each kv head goes to four ranks.
        let src = tensors(scheme, &[&[256, 64], &[64, 64], &[64, 64]]);
        let heads = |i, n: u64, r: u64| {
            let first = r * n / 8;
            s(i).slice(0, first * 32..(first + (n / 8).max(1)) * 32)
        };
        let rank = |r| Expr::concat(0, vec![heads(0, 8, r), heads(1, 2, r), heads(2, 2, r)]);
        let ranks: Vec<_> = (0..8).map(rank).collect();
        if has_tensor_factor(scheme) {
            assert!(refused(&ranks[0], &src, scheme).contains("Mixed"));
        } else {
            restores(&ranks, &src, scheme);
        }
    }
}

#[test]
fn gate_up_fusion_sharded() {
    for scheme in real().iter().filter(|s| !has_tensor_factor(s)) {
        let src = tensors(scheme, &[&[256, 64], &[256, 64]]);
        let both = |r| vec![shard(0, 256, 8, r, s(0)), shard(0, 256, 8, r, s(1))];
        restores(&(0..8).map(|r| Expr::concat(0, both(r))).collect::<Vec<_>>(), &src, scheme);
        // vLLM's shape for per-tensor factors: [2, out, in] keeps one each.
        restores(&(0..8).map(|r| Expr::Stack(both(r))).collect::<Vec<_>>(), &src, scheme);
    }
}

#[test]
fn mlx_triples_fuse_to_all_weights_all_scales_all_biases() {
    let scheme = schemes::mlx(4, 64);
    let src = tensors(&scheme, &[&[64, 128], &[16, 128], &[16, 128]]);
    let mut r = Rng(7);
    let data: Vec<Planes> = src.iter().map(|t| random_bytes(&mut r, t)).collect();
    let (_, got) = verify(&Expr::concat(0, vec![s(0), s(1), s(2)]), &src, &data, &scheme);
    for (k, plane) in got.iter().enumerate() {
        assert_eq!(*plane, [&data[0][k][..], &data[1][k], &data[2][k]].concat());
    }
}

/// GGUF llama: rows of each head go from interleaved to halves.
pub(crate) fn rope(e: Expr, head: u64) -> Expr {
    e.split(0, head).split(1, 2).permute(&[0, 2, 1, 3]).merge(0).merge(0)
}

#[test]
fn rope_row_permutation_on_blocks() {
    let mut all = real();
    all.push(gguf("q4_k", 256, 144));
    for scheme in &all {
        let src = tensors(scheme, &[&[64, 512]]);
        // Cells that span rows: packed zeros, and FP8 blocks of 8 rows, less than a head.
        let spans_rows = |a: &PlaneAxis| matches!(a, PlaneAxis::Cells { axis: OUT, per: 2.., .. });
        if scheme.planes.iter().any(|p| p.axes.iter().any(spans_rows)) {
            refused(&rope(s(0), 16), &src, scheme);
        } else {
            restores(&[rope(s(0), 16)], &src, scheme);
        }
    }
    // FP8 blocks of 16 rows, a whole head: the scales stand still.
    let fp8 = fp8_block(16, 16);
    let src = tensors(&fp8, &[&[64, 64]]);
    restores(&[rope(s(0), 16)], &src, &fp8);
    assert!(lowered(&rope(s(0), 16), &src, &fp8).unwrap()[1].copy[0].dims.is_empty());
}

#[test]
fn a_rope_permutation_of_quantised_rows_is_one_piece() {
    let q4k = gguf("q4_k", 256, 144);
    let low = lowered(&rope(s(0), 16), &tensors(&q4k, &[&[64, 512]]), &q4k).unwrap();
    let dim = |extent, source_stride, target_stride| Dim { extent, source_stride, target_stride };
    assert_eq!(
        low[0].copy,
        [Piece {
            source: Some(PieceSource { entry: 0, plane: 0 }),
            source_offset: 0,
            target_offset: 0,
            run: 288,
            dims: vec![dim(4, 4608, 4608), dim(2, 288, 2304), dim(8, 576, 288)]
        }]
    );
    assert_eq!(low[0].borrowable(), None);
}

#[test]
fn conv1d_transposes_as_one_piece() {
    // GPT-2 keeps `[in, out]`: 3 x 4 stands for 768 x 2304.
    let f32 = Scheme::plain(tensor::Dtype::F32);
    let src = tensors(&f32, &[&[3, 4]]);
    let data: Vec<Planes> = vec![vec![(0..48).collect()]];
    let (low, got) = verify(&s(0).transpose(), &src, &data, &f32);
    assert_eq!((low[0].copy.len(), low[0].copy[0].run), (1, 4));
    assert_eq!(got[0][4..8], [16, 17, 18, 19]);
    restores(&[s(0).transpose()], &src, &f32);
}

#[test]
fn three_slices_of_one_fused_tensor_join_back_to_one_run() {
    for scheme in real().iter().filter(|s| s.planes.len() == 1) {
        let src = tensors(scheme, &[&[96, 64], &[96, 64]]);
        let cut = |r: std::ops::Range<u64>| s(1).slice(0, r);
        let fused = Expr::concat(0, vec![cut(0..64), cut(64..80), cut(80..96)]);
        let low = lowered(&fused, &src, scheme).unwrap();
        assert_eq!(low[0].borrowable(), Some((1, 0, 0)));
        let one = lowered(&cut(64..80), &src, scheme).unwrap();
        let row = low[0].bytes / 96;
        assert_eq!(one[0].borrowable(), Some((1, 0, 64 * row)));
        // In another order they do not.
        let other = Expr::concat(0, vec![cut(64..80), cut(0..64), cut(80..96)]);
        assert_eq!(lowered(&other, &src, scheme).unwrap()[0].borrowable(), None);
    }
    // Slices of a middle axis are strided each, and join all the same.
    let plain = schemes::plain(2);
    let src = tensors(&plain, &[&[5, 12, 8]]);
    let cut = |r: std::ops::Range<u64>| s(0).slice(1, r);
    let joined = Expr::concat(1, vec![cut(0..6), cut(6..8), cut(8..12)]);
    assert_eq!(lowered(&joined, &src, &plain).unwrap()[0].borrowable(), Some((0, 0, 0)));
}

#[test]
fn experts_stack_and_spread() {
    let expert =
        |i: usize, r| Expr::concat(0, vec![shard(0, 64, 2, r, s(2 * i)), shard(0, 64, 2, r, s(2 * i + 1))]);
    for scheme in real().iter().filter(|s| !has_tensor_factor(s)) {
        let shapes: Vec<&[u64]> = vec![&[64, 64]; 8];
        let src = tensors(scheme, &shapes);
        let rank = |ep, tp| shard(0, 4, 4, ep, Expr::Stack((0..4).map(|i| expert(i, tp)).collect()));
        let ranks: Vec<_> =
            (0..4).flat_map(|ep| (0..2).map(move |tp| (ep, tp))).map(|(e, t)| rank(e, t)).collect();
        restores(&ranks, &src, scheme);
        // Stored stacked, wanted apart.
        let src = tensors(scheme, &[&[8, 32, 64]]);
        restores(&(0..8).map(|i| s(0).slice(0, i..i + 1).merge(0)).collect::<Vec<_>>(), &src, scheme);
    }
}

#[test]
fn gpt_oss_experts_deinterleave() {
    let scheme = schemes::mxfp4();
    let src = tensors(&scheme, &[&[4, 32, 64]]);
    let halves = |e: Expr| e.split(1, 2).permute(&[0, 2, 1, 3]).merge(1);
    restores(&(0..2).map(|r| shard(1, 32, 2, r, halves(s(0)))).collect::<Vec<_>>(), &src, &scheme);
}

#[test]
fn vocabulary_padding() {
    for scheme in &real() {
        let src = tensors(scheme, &[&[224, 64]]);
        let padded = Expr::concat(0, vec![s(0), zero([32, 64])]);
        restores(&(0..4).map(|r| shard(0, 256, 4, r, padded.clone())).collect::<Vec<_>>(), &src, scheme);
    }
    // Padding may share an FP8 block with the last real rows: its scale is theirs, its weights are zero.
    let fp8 = fp8_block(128, 128);
    restores(&[Expr::concat(0, vec![s(0), zero([56, 128])])], &tensors(&fp8, &[&[200, 128]]), &fp8);
}

#[test]
fn rows_of_blocks_are_padded_to_a_multiple_of_16() {
    for scheme in [gguf("q8_0", 32, 34), gguf("q4_k", 256, 144), gguf("q6_k", 256, 210)] {
        let src = tensors(&scheme, &[&[35, 512]]);
        let padded = Expr::concat(0, vec![s(0), zero([13, 512])]);
        let low = lowered(&padded, &src, &scheme).unwrap();
        let row = low[0].bytes / 48;
        assert_eq!(low[0].copy.iter().map(|c| c.run).collect::<Vec<_>>(), [35 * row, 13 * row]);
        assert_eq!(low[0].borrowable(), None);
        restores(&[padded], &src, &scheme);
    }
}

#[test]
fn bitsandbytes_is_flat() {
    let scheme = schemes::bnb4();
    // 96 = 1.5 blocks of 64: blocks straddle rows.
    let src = tensors(&scheme, &[&[32 * 96]]);
    let matrix = || s(0).split(0, 96);
    restores(&(0..4).map(|r| shard(0, 32, 4, r, matrix()).merge(0)).collect::<Vec<_>>(), &src, &scheme);
    let other = lowered(&matrix().slice(0, 0..3).merge(0), &src, &gguf("bnb", 1, 1)).unwrap_err();
    assert!(other.to_string().contains("Planes"));
    // 3 rows = 288 elements end inside block 4: a partial last block is still one scale; starting inside one
    // is not.
    verify(&matrix().slice(0, 0..3).merge(0), &src, &[random_bytes(&mut Rng(1), &src[0])], &scheme);
    assert!(refused(&matrix().slice(0, 3..7).merge(0), &src, &scheme).contains("absmax"));
}

#[test]
fn coarse_scales_repeat_into_finer_ones() {
    let (tensor, rows) = (schemes::int8_tensor(), schemes::int8_rows());
    let src = tensors(&tensor, &[&[16, 8], &[8, 8], &[8, 8]]);
    restores(&[Expr::concat(0, vec![s(0), s(1), s(2)])], &src, &rows);
    // 192-row parts: refused with 128-row blocks, exact with 64-row ones.
    let (block, fine) = (fp8_block(128, 128), fp8_block(64, 128));
    let src = tensors(&block, &[&[192, 128], &[192, 128]]);
    restores(&[Expr::concat(0, vec![s(0), s(1)])], &src, &fine);
    refused(&Expr::concat(0, vec![s(0), s(1)]), &src, &block);
}

#[test]
fn transposing_is_legal_where_no_cell_packs() {
    let block = fp8_block(16, 16);
    restores(&[s(0).transpose()], &tensors(&block, &[&[40, 64]]), &block);
    let rows = schemes::int8_rows();
    let columns = new(
        "int8-columns",
        2,
        vec![plane("weight", 1, &[each(OUT), each(IN)]), factor("scale", 4, &[each(IN)])],
    );
    let src = tensors(&rows, &[&[8, 16]]);
    restores(&[s(0).transpose()], &src, &columns);
    assert!(refused(&s(0).transpose(), &src, &rows).contains("`scale`: Mixed"));
}

#[test]
fn plane_order_is_free() {
    // GPTQ words hold 8 consecutive inputs, as MLX words do: [in/8, out] to [out, in/8] transposes whole words.
    let gptq = schemes::gptq(4, 32);
    let upright = new(
        "gptq-upright",
        2,
        vec![
            plane("qweight", 4, &[each(OUT), packed(IN, 8)]),
            plane("qzeros", 4, &[packed(OUT, 8), shared(IN, 32)]),
            plane("scales", 2, &[each(OUT), shared(IN, 32)]),
        ],
    );
    restores(&[Expr::concat(0, vec![s(0), s(1)])], &tensors(&gptq, &[&[16, 64], &[8, 64]]), &upright);
}

#[test]
fn bitnet_packs_four_quarters_of_the_rows() {
    // Byte (r, c) holds rows r, r + out/4, ..: logically [4, out/4, in] with the first axis packed.
    let bitnet = new(
        "bitnet",
        3,
        vec![plane("weight", 1, &[packed(2, 4), each(OUT), each(IN)]), factor("weight_scale", 2, &[])],
    );
    let src = tensors(&bitnet, &[&[4, 8, 16]]);
    restores(&(0..2).map(|r| shard(2, 16, 2, r, s(0))).collect::<Vec<_>>(), &src, &bitnet);
    // A rank's quarter-rows move; its contiguous rows do not.
    restores(&(0..2).map(|r| shard(1, 8, 2, r, s(0))).collect::<Vec<_>>(), &src, &bitnet);
    let rows = shard(0, 32, 2, 0, s(0).merge(0)).split(0, 4);
    assert!(refused(&rows, &src, &bitnet).contains("`weight`: Cut"));
}

#[test]
fn a_slice_inside_a_shared_block_is_legal() {
    let scheme = fp8_block(128, 128);
    let src = tensors(&scheme, &[&[256, 128]]);
    restores(&(0..4).map(|r| shard(0, 256, 4, r, s(0))).collect::<Vec<_>>(), &src, &scheme);
}

#[test]
fn act_order_fuses_if_the_orders_agree() {
    let (grouped, order) = (schemes::gptq(4, 64), schemes::gptq_act_order(4));
    let src = tensors(&order, &[&[16, 256], &[16, 256]]);
    // Row-parallel: g_idx is cut, the tables go whole to each rank.
    let ranks: Vec<_> = (0..4).map(|r| shard(1, 256, 4, r, s(0))).chain([s(1)]).collect();
    let out = restores(&ranks, &src, &order);
    assert_eq!((out[0][1].len(), out[0][2].len(), out[0][3].len()), (4 * 2 * 4, 4 * 16 * 2, 64 * 4));
    let other = lowered(&shard(1, 256, 4, 0, s(0)), &src, &grouped).unwrap_err();
    assert!(other.to_string().contains("Planes"));
    // Fused: allowed if the orders are equal, which the plan makes the loader compare.
    let e = Expr::concat(0, vec![s(0), s(1)]);
    let mut data: Vec<Planes> = src.iter().map(|t| random_bytes(&mut Rng(3), t)).collect();
    let (low, got) = verify(&e, &src, &data, &order);
    assert!(!low[3].equal.is_empty() && agrees(&low, &got, &data));
    assert_eq!(low[3].borrowable(), None);
    data[1][3][5] ^= 1;
    assert!(!agrees(&low, &load(&low, &data), &data));
    // Joining along `in` would need two tables.
    assert!(refused(&Expr::concat(1, vec![s(0), s(1)]), &src, &order).contains("`qzeros`: Mixed"));
}

#[test]
fn a_shared_axis_is_told_from_a_packed_one_of_the_same_size() {
    // The same words, wanted with another packing: never movement.
    let wide = new("wide", 1, vec![plane("w", 4, &[packed(IN, 8)])]);
    let narrow = new("narrow", 1, vec![plane("w", 4, &[packed(IN, 4)])]);
    let shared_words =
        new("shared", 1, vec![plane("w", 4, &[PlaneAxis::Cells { axis: IN, per: 8, hold: Hold::Shared }])]);
    let src = tensors(&wide, &[&[16]]);
    for other in [narrow, shared_words] {
        assert!(lowered(&s(0), &src, &other).unwrap_err().to_string().contains("Planes"));
    }
}
