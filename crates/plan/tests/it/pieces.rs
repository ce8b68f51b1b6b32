//! Pieces by themselves: runs, clips, reversal, and what the proof sees.

use plan::{Dim, Piece, PieceSource, PlannedPlane, Unproven, prove};

fn piece(target_offset: u64, run: u64, dims: &[(u64, u64, u64)]) -> Piece {
    let dim = |&(extent, source_stride, target_stride)| Dim { extent, source_stride, target_stride };
    Piece {
        source: Some(PieceSource { entry: 0, plane: 0 }),
        source_offset: 100,
        target_offset,
        run,
        dims: dims.iter().map(dim).collect(),
    }
}

fn plane(bytes: u64, copy: Vec<Piece>) -> PlannedPlane {
    PlannedPlane { role: "data", bytes, copy, equal: vec![] }
}

fn runs(p: &Piece) -> Vec<(u64, u64, u64)> {
    let mut out = vec![];
    p.runs(|s, t| out.push((s, t, p.run)));
    out
}

#[test]
fn runs_step_through_all_dimensions() {
    let p = piece(10, 2, &[(2, 40, 8), (3, 4, 2)]);
    assert_eq!(
        runs(&p),
        [(100, 10, 2), (104, 12, 2), (108, 14, 2), (140, 18, 2), (144, 20, 2), (148, 22, 2)]
    );
    assert_eq!((p.run_count(), p.bytes()), (6, 12));
}

#[test]
fn a_clip_keeps_just_the_bytes_of_its_range() {
    let pieces = [
        piece(10, 2, &[(2, 40, 8), (3, 4, 2)]),
        piece(0, 64, &[]),
        // Interleaved: strides do not nest.
        piece(3, 1, &[(2, 9, 3), (2, 5, 2)]),
        // Zeros, and a repeated source cell.
        Piece { source: None, source_offset: 0, ..piece(4, 4, &[(5, 10, 10)]) },
        piece(4, 4, &[(5, 0, 10)]),
    ];
    for p in &pieces {
        let mut whole: Vec<(u64, u64)> = vec![];
        p.runs(|s, t| whole.extend((0..p.run).map(|i| (if p.source.is_some() { s + i } else { 0 }, t + i))));
        for start in 0..66 {
            for end in start..66 {
                let mut clipped = vec![];
                p.clip(start..end, &mut clipped);
                let mut got = vec![];
                for c in &clipped {
                    assert_eq!(c.source, p.source);
                    c.runs(|s, t| {
                        got.extend((0..c.run).map(|i| (if c.source.is_some() { s + i } else { 0 }, t + i)));
                    });
                }
                got.sort_by_key(|g| g.1);
                let mut want: Vec<_> =
                    whole.iter().copied().filter(|w| (start..end).contains(&w.1)).collect();
                want.sort_by_key(|w| w.1);
                assert_eq!(got, want, "{p:?} {start}..{end}");
            }
        }
    }
}

#[test]
fn a_clip_by_rows_of_a_transposition_is_one_piece() {
    // [768, 2304] f32 to [2304, 768], 64 rows of it.
    let p = piece(0, 4, &[(2304, 4, 3072), (768, 9216, 4)]);
    let mut out = vec![];
    p.clip(64 * 3072..128 * 3072, &mut out);
    assert_eq!(
        out,
        [Piece { source_offset: 100 + 256, ..piece(64 * 3072, 4, &[(64, 4, 3072), (768, 9216, 4)]) }]
    );
}

#[test]
fn a_reversed_piece_writes_what_it_read() {
    let p = piece(10, 2, &[(2, 4, 80), (3, 40, 2)]);
    let back = p.reversed().unwrap();
    assert_eq!(back.source, p.source);
    let mut there: Vec<_> = runs(&p).iter().map(|r| (r.1, r.0, r.2)).collect();
    let mut here = runs(&back);
    there.sort_unstable();
    here.sort_unstable();
    assert_eq!(here, there);
    // Widest target stride first, as in every piece.
    assert!(back.dims.is_sorted_by_key(|d| std::cmp::Reverse(d.target_stride)));
    assert_eq!(Piece { source: None, ..p }.reversed(), None);
}

#[test]
fn only_one_run_over_all_is_borrowable() {
    let whole = plane(64, vec![piece(0, 64, &[])]);
    assert_eq!(whole.borrowable(), Some((0, 0, 100)));
    assert_eq!(plane(65, vec![piece(0, 64, &[])]).borrowable(), None);
    assert_eq!(plane(64, vec![Piece { source: None, ..piece(0, 64, &[]) }]).borrowable(), None);
    assert_eq!(plane(64, vec![piece(0, 2, &[(32, 4, 2)])]).borrowable(), None);
    assert_eq!(plane(64, vec![piece(0, 32, &[]), piece(32, 32, &[])]).borrowable(), None);
    let compared = PlannedPlane { equal: vec![piece(0, 64, &[])], ..whole };
    assert_eq!(compared.borrowable(), None);
}

#[test]
fn the_proof_accepts_interleaved_pieces() {
    // Two columns of a matrix, and rows of another between them.
    prove(&plane(24, vec![piece(0, 2, &[(4, 8, 6)]), piece(2, 4, &[(4, 8, 6)])])).unwrap();
    prove(&plane(0, vec![])).unwrap();
    // Strides that do not nest: 0, 2, 3, 5 and 1, 4.
    prove(&plane(6, vec![piece(0, 1, &[(2, 1, 3), (2, 1, 2)]), piece(1, 1, &[(2, 1, 3)])])).unwrap();
}

#[test]
fn the_proof_finds_a_hole_an_overlap_and_an_overrun() {
    let uncovered =
        |bytes, copy| assert!(matches!(prove(&plane(bytes, copy)), Err(Unproven::Uncovered { .. })));
    uncovered(1, vec![]);
    uncovered(0, vec![piece(0, 1, &[])]);
    uncovered(24, vec![piece(0, 2, &[(4, 8, 6)]), piece(2, 4, &[(3, 8, 6)])]);
    uncovered(24, vec![piece(0, 2, &[(4, 8, 6)]), piece(1, 4, &[(4, 8, 6)])]);
    uncovered(24, vec![piece(0, 2, &[(4, 8, 6)]), piece(2, 5, &[(4, 8, 6)])]);
    uncovered(24, vec![piece(0, 2, &[(5, 8, 6)]), piece(2, 4, &[(4, 8, 6)])]);
    uncovered(23, vec![piece(0, 2, &[(4, 8, 6)]), piece(2, 4, &[(4, 8, 6)])]);
    uncovered(8, vec![piece(0, 4, &[]), piece(0, 4, &[])]);
    uncovered(8, vec![piece(0, 4, &[(2, 4, 0)])]);
    uncovered(8, vec![piece(0, 0, &[]), piece(0, 8, &[])]);
    uncovered(8, vec![piece(u64::MAX, 8, &[])]);
    uncovered(8, vec![piece(0, 8, &[(u64::MAX, 8, 8)])]);
    uncovered(8, vec![piece(0, 8, &[(0, 8, 8)])]);
}
