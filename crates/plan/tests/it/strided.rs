//! Sources whose elements do not lie in row-major order: views as PyTorch saves them.

use plan::{Dim, Why};
use tensor::{Expr, TensorEntry};

use crate::moves::s;
use crate::oracle::{Planes, Rng, add, lowered, random_bytes, tensors, verify};
use crate::schemes::{gguf, plain};

/// `t0` of `shape`, two bytes an element, with `strides`.
fn view(shape: &[u64], strides: &[u64]) -> Vec<TensorEntry> {
    let mut src = tensors(&plain(2), &[shape]);
    src[0].strides = Some(strides.to_vec());
    src
}

/// The elements of `e` over `src`, where each stored element holds its index.
fn elements(e: &Expr, src: &[TensorEntry]) -> Vec<u16> {
    let count = |t: &TensorEntry| random_bytes(&mut Rng(1), t)[0].len() as u16 / 2;
    let data: Vec<Planes> =
        src.iter().map(|t| vec![(0..count(t)).flat_map(u16::to_le_bytes).collect()]).collect();
    let (_, got) = verify(e, src, &data, &plain(2));
    got[0].chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect()
}

#[test]
fn a_view_is_read_in_its_own_order() {
    // torch.arange(6).view(2, 3).t()
    assert_eq!(elements(&s(0), &view(&[3, 2], &[1, 3])), [0, 3, 1, 4, 2, 5]);
    // torch.arange(8).view(2, 4)[:, :3]
    assert_eq!(elements(&s(0), &view(&[2, 3], &[4, 1])), [0, 1, 2, 4, 5, 6]);
    // torch.arange(2).view(2, 1).expand(2, 3)
    assert_eq!(elements(&s(0), &view(&[2, 3], &[1, 0])), [0, 0, 0, 1, 1, 1]);
    // torch.arange(4).as_strided((3, 2), (1, 1))
    assert_eq!(elements(&s(0), &view(&[3, 2], &[1, 1])), [0, 1, 1, 2, 2, 3]);
    assert_eq!(elements(&s(0), &view(&[], &[])), [0]);
    assert_eq!(elements(&s(0), &view(&[1, 2], &[77, 1])[..]), [0, 1]);
}

#[test]
fn a_transposed_view_transposed_back_is_one_run() {
    let src = view(&[6, 4], &[1, 6]);
    let low = lowered(&s(0).transpose(), &src, &plain(2)).unwrap();
    assert_eq!(low[0].borrowable(), Some((0, 0, 0)));
    let low = lowered(&s(0), &src, &plain(2)).unwrap();
    assert_eq!(low[0].borrowable(), None);
    assert_eq!(low[0].copy.len(), 1);
    let dims = [(6, 2, 8), (4, 12, 2)].map(|(extent, source_stride, target_stride)| Dim {
        extent,
        source_stride,
        target_stride,
    });
    assert_eq!((low[0].copy[0].run, &low[0].copy[0].dims[..]), (2, &dims[..]));
}

#[test]
fn strides_that_cannot_be_are_refused() {
    let why = |src: &[TensorEntry]| lowered(&s(0), src, &src[0].scheme).unwrap_err().why;
    assert!(matches!(why(&view(&[2, 3], &[1])), Why::Shape(_)));
    assert_eq!(why(&view(&[2, 3], &[u64::MAX, 1])), Why::Overflow);
    assert_eq!(why(&view(&[3, 3], &[u64::MAX / 2, 1])), Why::Overflow);
    let mut blocks = tensors(&gguf("q4_k", 256, 144), &[&[2, 256]]);
    blocks[0].strides = Some(vec![256, 1]);
    assert!(matches!(why(&blocks), Why::Shape(_)));
}

#[test]
fn random_views_move_as_the_oracle_says() {
    let rng = &mut Rng(0x5EED_57A1_DE00_0001);
    for _ in 0..3000 {
        // A dense storage, its axes shuffled, some elements of each axis, some axes repeated.
        let rank = 1 + rng.below(4) as usize;
        let mut axes: Vec<(u64, u64)> = vec![];
        let mut step = 1;
        for _ in 0..rank {
            let n = 1 + rng.below(5);
            let every = 1 + rng.below(2);
            let kept = (1 + rng.below(n)).div_ceil(every);
            axes.push(if rng.below(6) == 0 { (n, 0) } else { (kept, step * every) });
            step *= n;
        }
        for i in (1..rank).rev() {
            axes.swap(i, rng.below(i as u64 + 1) as usize);
        }
        let (mut shape, strides): (Vec<u64>, Vec<u64>) = axes.into_iter().unzip();
        let mut src = view(&shape, &strides);
        let mut e = s(0);
        let axis = rng.below(rank as u64) as usize;
        match rng.below(6) {
            0 => {
                let mut order: Vec<usize> = (0..rank).collect();
                order.rotate_left(axis);
                e = e.permute(&order);
            }
            1 => {
                let from = rng.below(shape[axis]);
                e = e.slice(axis, from..from + 1 + rng.below(shape[axis] - from));
            }
            2 if axis + 1 < rank => e = e.merge(axis),
            3 => e = e.split(axis, shape[axis]),
            4 => {
                shape[axis] = 1 + rng.below(3);
                add(&mut src, &plain(2), &shape);
                e = Expr::concat(axis, vec![e, s(1)]);
            }
            _ => {}
        }
        let data: Vec<Planes> = src.iter().map(|t| random_bytes(rng, t)).collect();
        verify(&e, &src, &data, &plain(2));
    }
}
