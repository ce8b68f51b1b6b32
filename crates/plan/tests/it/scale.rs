//! Large and ragged plans: few pieces, in little time, with the proof.

use std::time::{Duration, Instant};

use plan::{Sources, lower, prove};
use tensor::Expr;

use crate::moves::{s, shard};
use crate::oracle::{entry, lowered, tensors};
use crate::schemes::{self, fp8_block, plain};

/// Generous, for a dev build on a busy machine. The measured time is printed.
const LIMIT: Duration = Duration::from_mins(2);

/// Kimi-K2 shapes: 384 experts a layer, hidden 7168, ffn 2048; one rank of TP 8 x EP 16, 6 of 61 layers.
#[test]
fn a_rank_of_a_large_mixture_of_experts() {
    let (layers, experts, hidden, ffn, tp, ep) = (6usize, 384usize, 7168, 2048, 8, 16);
    let (tp_rank, ep_rank) = (3, 5);
    let q4k = schemes::gguf("q4_k", 256, 144);
    for scheme in [fp8_block(128, 128), plain(2), schemes::mlx(4, 64), schemes::awq(128), q4k] {
        let mut src = vec![];
        for i in 0..layers * experts * 3 {
            let shape = if i % 3 == 2 { [hidden, ffn] } else { [ffn, hidden] };
            src.push(entry(&format!("t{i}"), &scheme, &shape, src.last()));
        }
        let started = Instant::now();
        let sources = Sources::new(&src);
        let (mut pieces, mut runs, mut proving) = (0, 0, Duration::ZERO);
        for layer in 0..layers {
            let part = |x, k, axis| shard(axis, ffn, tp, tp_rank, s((layer * experts + x) * 3 + k));
            let w13 = |x| Expr::concat(0, vec![part(x, 0, 0), part(x, 1, 0)]);
            let stacks = [
                Expr::Stack((0..experts).map(w13).collect()),
                Expr::Stack((0..experts).map(|x| part(x, 2, 1)).collect()),
            ];
            for stack in stacks {
                let mine = shard(0, experts as u64, ep, ep_rank, stack);
                for plane in lower(&mine, &sources, &scheme).unwrap() {
                    let t = Instant::now();
                    prove(&plane).unwrap();
                    proving += t.elapsed();
                    pieces += plane.copy.len();
                    runs += plane.copy.iter().map(plan::Piece::run_count).sum::<u64>();
                }
            }
        }
        let took = started.elapsed();
        println!(
            "{:>18}: {} tensors, {pieces} pieces, {runs} runs, {took:.1?}, of which proof {proving:.1?}",
            scheme.name,
            src.len()
        );
        // One piece for each expert, matrix and plane: runs are never spelled out.
        assert_eq!(pieces, layers * (experts / 16) * 3 * scheme.planes.len());
        assert!(took < LIMIT, "{took:?}");
    }
}

#[test]
fn ragged_moves_cost_rows_not_elements() {
    let started = Instant::now();
    // 4099 rows of 4096 regrouped as 4096 rows of 4099, transposed.
    let plain = plain(2);
    let src = tensors(&plain, &[&[4096, 4096], &[3, 4096]]);
    let e = Expr::concat(0, vec![s(0), s(1)]).merge(0).split(0, 4099).transpose();
    let low = lowered(&e, &src, &plain).unwrap();
    prove(&low[0]).unwrap();
    println!("ragged regroup: {} pieces, {:.1?} with proof", low[0].copy.len(), started.elapsed());
    assert!(low[0].copy.len() <= 2 * 4099);

    // A shared whole-row scale under a concat of two halves of the same source: one piece.
    let rows = schemes::int8_rows();
    let src = tensors(&rows, &[&[65536, 4096]]);
    let halves = Expr::concat(1, vec![s(0).slice(1, 0..1000), s(0).slice(1, 1000..4096)]);
    let low = lowered(&halves, &src, &rows).unwrap();
    assert_eq!(low[1].copy.len(), 1);
    assert_eq!(low[0].borrowable(), Some((0, 0, 0)));

    // A 129280 x 7168 vocabulary in FP8 blocks, cut and joined again off the block.
    let block = fp8_block(128, 128);
    let src = tensors(&block, &[&[129_280, 7168]]);
    let halves = Expr::concat(0, vec![s(0).slice(0, 0..1000), s(0).slice(0, 1000..129_280)]);
    let low = lowered(&halves, &src, &block).unwrap();
    println!(
        "off the block: {:?} pieces, {:.1?}",
        low.iter().map(|p| p.copy.len()).collect::<Vec<_>>(),
        started.elapsed()
    );
    assert!(low.iter().all(|p| p.borrowable().is_some()));
    assert!(started.elapsed() < LIMIT);
}
