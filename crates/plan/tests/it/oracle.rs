//! An oracle that knows nothing of parts or pieces: it walks each target element back to its source element,
//! and asks which cell of each plane holds it there and here. Every lowering is compared with it.

use std::sync::Arc;

use plan::{PlannedPlane, Refusal, Sources, lower, prove};
use tensor::{Expr, FileId, Hold, PlaneAxis, PlaneData, PlaneSpec, Scheme, Shape, TensorEntry};
pub(crate) use testkit::Rng;

/// The bytes of one tensor, plane by plane.
pub(crate) type Planes = Vec<Vec<u8>>;

/// Entries `t0`, `t1`, … one after another in one file.
pub(crate) fn tensors(scheme: &Arc<Scheme>, shapes: &[&[u64]]) -> Vec<TensorEntry> {
    let mut out = vec![];
    for shape in shapes {
        add(&mut out, scheme, shape);
    }
    out
}

pub(crate) fn add(entries: &mut Vec<TensorEntry>, scheme: &Arc<Scheme>, shape: &[u64]) {
    let name = format!("t{}", entries.len());
    entries.push(entry(&name, scheme, shape, entries.last()));
}

/// An entry whose planes start where `after` ends.
pub(crate) fn entry(
    name: &str,
    scheme: &Arc<Scheme>,
    shape: &[u64],
    after: Option<&TensorEntry>,
) -> TensorEntry {
    let shape = Shape::from(shape.to_vec());
    let mut at = after.and_then(|e| e.planes.last()).map_or(0, |p| p.bytes.end);
    let planes = scheme.planes.iter().map(|p| {
        let start = at;
        at += scheme.plane_bytes(p, &shape).unwrap();
        PlaneData { file: FileId(0), bytes: start..at }
    });
    let planes = planes.collect();
    TensorEntry { name: name.into(), planes, shape, scheme: Arc::clone(scheme), strides: None }
}

fn index(name: &str) -> usize {
    name[1..].parse().unwrap()
}

pub(crate) fn shape_of(e: &Expr, src: &[TensorEntry]) -> Vec<u64> {
    match e {
        Expr::Source(n) => src[index(n)].shape.to_vec(),
        Expr::Zero(s) => s.to_vec(),
        Expr::Concat { axis, parts } => {
            let mut s = shape_of(&parts[0], src);
            s[*axis] = parts.iter().map(|p| shape_of(p, src)[*axis]).sum();
            s
        }
        Expr::Stack(parts) => {
            let mut s = shape_of(&parts[0], src);
            s.insert(0, parts.len() as u64);
            s
        }
        Expr::Slice { axis, range, of } => {
            let mut s = shape_of(of, src);
            s[*axis] = range.end - range.start;
            s
        }
        Expr::Split { axis, inner, of } => {
            let mut s = shape_of(of, src);
            s[*axis] /= inner;
            s.insert(axis + 1, *inner);
            s
        }
        Expr::Merge { axis, of } => {
            let mut s = shape_of(of, src);
            let n = s.remove(axis + 1);
            s[*axis] *= n;
            s
        }
        Expr::Permute { axes, of } => {
            let s = shape_of(of, src);
            axes.iter().map(|&a| s[a]).collect()
        }
        Expr::Encode { of, .. } => shape_of(of, src),
    }
}

/// Where one element comes from; `None` is padding.
fn origin(e: &Expr, src: &[TensorEntry], mut at: Vec<u64>) -> Option<(usize, Vec<u64>)> {
    match e {
        Expr::Source(n) => Some((index(n), at)),
        Expr::Zero(_) => None,
        Expr::Concat { axis, parts } => {
            for p in parts {
                let n = shape_of(p, src)[*axis];
                if at[*axis] < n {
                    return origin(p, src, at);
                }
                at[*axis] -= n;
            }
            unreachable!()
        }
        Expr::Stack(parts) => {
            let i = at.remove(0);
            origin(&parts[i as usize], src, at)
        }
        Expr::Slice { axis, range, of } => {
            at[*axis] += range.start;
            origin(of, src, at)
        }
        Expr::Split { axis, inner, of } => {
            let low = at.remove(axis + 1);
            at[*axis] = at[*axis] * inner + low;
            origin(of, src, at)
        }
        Expr::Merge { axis, of } => {
            let n = shape_of(of, src)[axis + 1];
            let x = at[*axis];
            at[*axis] = x / n;
            at.insert(axis + 1, x % n);
            origin(of, src, at)
        }
        Expr::Permute { axes, of } => {
            let mut b = vec![0; at.len()];
            for (k, &a) in axes.iter().enumerate() {
                b[a] = at[k];
            }
            origin(of, src, b)
        }
        Expr::Encode { of, .. } => origin(of, src, at),
    }
}

/// The plane's shape in cells, as the file would state it.
pub(crate) fn cells(s: &Scheme, p: &PlaneSpec, shape: &[u64]) -> Vec<u64> {
    let lead = shape.len() - s.trailing;
    let along = p.axes.iter().map(|a| match *a {
        PlaneAxis::Table(n) => n,
        PlaneAxis::Cells { axis, per, .. } => shape[shape.len() - 1 - axis].div_ceil(per),
    });
    shape[..lead].iter().copied().chain(along).collect()
}

/// Byte offsets of the cell (of each table row) that holds the element, and its place along packed axes.
fn cell_of(s: &Scheme, p: &PlaneSpec, dims: &[u64], at: &[u64]) -> (Vec<u64>, Vec<(usize, u64)>) {
    let (lead, trailing) = at.split_at(at.len() - s.trailing);
    let first = lead.iter().zip(dims).fold(0, |i, (x, n)| i * n + x);
    let (mut cells, mut place) = (vec![first], vec![]);
    for (a, dim) in p.axes.iter().zip(&dims[lead.len()..]) {
        match *a {
            PlaneAxis::Table(n) => {
                cells = cells.into_iter().flat_map(|c| (0..n).map(move |i| c * n + i)).collect();
            }
            PlaneAxis::Cells { axis, per, hold } => {
                let x = trailing[trailing.len() - 1 - axis];
                for c in &mut cells {
                    *c = *c * dim + x / per;
                }
                if hold == Hold::Packed && per > 1 {
                    place.push((axis, x % per));
                }
            }
        }
    }
    place.sort_unstable();
    for c in &mut cells {
        *c *= p.cell_bytes;
    }
    (cells, place)
}

fn indices(shape: &[u64]) -> Vec<Vec<u64>> {
    shape.iter().fold(vec![vec![]], |out, &n| {
        out.into_iter().flat_map(|p: Vec<u64>| (0..n).map(move |i| [&p[..], &[i]].concat())).collect()
    })
}

fn plane_like(entry: &TensorEntry, p: &PlaneSpec) -> usize {
    entry.scheme.planes.iter().position(|q| q.role == p.role).unwrap()
}

/// For each target cell: the source cells that feed it, and whether padding shares it.
pub(crate) type Feed = Vec<(Vec<(usize, u64)>, bool)>;

/// Returns the source of each cell of each plane; `None` if no byte movement can make them.
pub(crate) fn oracle(e: &Expr, src: &[TensorEntry], target: &Scheme) -> Option<Vec<Feed>> {
    let shape = shape_of(e, src);
    if shape.len() < target.trailing {
        return None;
    }
    let at: Vec<_> = indices(&shape).into_iter().map(|i| (origin(e, src, i.clone()), i)).collect();
    target.planes.iter().map(|p| feed(&at, src, &shape, target, p)).collect()
}

type Element = (Option<(usize, Vec<u64>)>, Vec<u64>);

fn feed(at: &[Element], src: &[TensorEntry], shape: &[u64], target: &Scheme, p: &PlaneSpec) -> Option<Feed> {
    for a in p.axes.iter() {
        if let PlaneAxis::Cells { axis, per, hold: Hold::Packed } = *a
            && !shape[shape.len() - 1 - axis].is_multiple_of(per)
        {
            return None;
        }
    }
    let here = cells(target, p, shape);
    let there = |t: &TensorEntry| {
        let k = &t.scheme.planes[plane_like(t, p)];
        (k.clone(), cells(&t.scheme, k, &t.shape))
    };
    let there: Vec<_> = src.iter().map(there).collect();
    let mut feed = vec![(vec![], false); here.iter().product::<u64>() as usize];
    for (from, i) in at {
        let (cells, place) = cell_of(target, p, &here, i);
        let stored = |s: usize, at: &[u64]| match &src[s].strides {
            Some(strides) => {
                let element: u64 = at.iter().zip(strides).map(|(x, stride)| x * stride).sum();
                (vec![element * p.cell_bytes], vec![])
            }
            None => cell_of(&src[s].scheme, &there[s].0, &there[s].1, at),
        };
        let source = from.as_ref().map(|(s, at)| (*s, stored(*s, at)));
        if source.as_ref().is_some_and(|(_, (_, there))| *there != place) {
            return None;
        }
        for (n, c) in cells.into_iter().enumerate() {
            let f = &mut feed[(c / p.cell_bytes) as usize];
            match &source {
                None => f.1 = true,
                Some((s, (from, _))) if !f.0.contains(&(*s, from[n])) => f.0.push((*s, from[n])),
                Some(_) => {}
            }
        }
    }
    let legal = |(from, padded): &(Vec<_>, bool)| {
        (from.len() <= 1 || p.must_agree) && (from.is_empty() || !padded || p.spans_padding)
    };
    feed.iter().all(legal).then_some(feed)
}

pub(crate) fn random_bytes(r: &mut Rng, t: &TensorEntry) -> Planes {
    let bytes = |p: &PlaneSpec| {
        let dense = || cells(&t.scheme, p, &t.shape).iter().product::<u64>();
        let reach = |strides: &[u64]| 1 + t.shape.iter().zip(strides).map(|(n, s)| (n - 1) * s).sum::<u64>();
        let n = t.strides.as_deref().map_or_else(dense, reach) * p.cell_bytes;
        // Planes that must agree are a function of the place, as a shared activation order is.
        (0..n).map(|i| if p.must_agree { (i * 7 % 251) as u8 } else { r.next() as u8 }).collect()
    };
    t.scheme.planes.iter().map(bytes).collect()
}

/// Does the work of an executor.
pub(crate) fn load(low: &[PlannedPlane], data: &[Planes]) -> Planes {
    let fill = |p: &PlannedPlane| {
        let mut out = vec![0xEE; p.bytes as usize];
        for c in &p.copy {
            c.runs(|s, t| {
                let (s, t, n) = (s as usize, t as usize, c.run as usize);
                match c.source {
                    None => out[t..t + n].fill(0),
                    Some(f) => out[t..t + n].copy_from_slice(&data[f.entry][f.plane][s..s + n]),
                }
            });
        }
        out
    };
    low.iter().map(fill).collect()
}

/// The pieces right to left.
pub(crate) fn export(low: &[PlannedPlane], got: &Planes, back: &mut [Planes]) {
    for (p, got) in low.iter().zip(got) {
        for c in p.copy.iter().chain(&p.equal) {
            let Some(c) = c.reversed() else { continue };
            let to = c.source.unwrap();
            c.runs(|from, at| {
                let (from, at, n) = (from as usize, at as usize, c.run as usize);
                back[to.entry][to.plane][at..at + n].copy_from_slice(&got[from..from + n]);
            });
        }
    }
}

pub(crate) fn agrees(low: &[PlannedPlane], got: &Planes, data: &[Planes]) -> bool {
    low.iter().zip(got).all(|(p, got)| {
        p.equal.iter().all(|c| {
            let (mut ok, from) = (true, c.source.unwrap());
            c.runs(|s, t| {
                let (s, t, n) = (s as usize, t as usize, c.run as usize);
                ok &= got[t..t + n] == data[from.entry][from.plane][s..s + n];
            });
            ok
        })
    })
}

fn written_once(p: &PlannedPlane) -> bool {
    let mut hits = vec![0u8; p.bytes as usize];
    for c in &p.copy {
        c.runs(|_, t| {
            hits[t as usize..(t + c.run) as usize].iter_mut().for_each(|h| *h = h.saturating_add(1));
        });
    }
    hits.iter().all(|h| *h == 1)
}

pub(crate) fn lowered(e: &Expr, src: &[TensorEntry], target: &Scheme) -> Result<Vec<PlannedPlane>, Refusal> {
    lower(e, &Sources::new(src), target)
}

/// Lowers, runs and compares every cell with the oracle; returns what was loaded.
pub(crate) fn verify(
    e: &Expr,
    src: &[TensorEntry],
    data: &[Planes],
    target: &Scheme,
) -> (Vec<PlannedPlane>, Planes) {
    let low = lowered(e, src, target).unwrap_or_else(|r| panic!("{r}: {e:?}"));
    let feeds = oracle(e, src, target).expect("the oracle refuses what lowering accepts");
    let got = load(&low, data);
    let mut agree = true;
    for ((p, feed), (low, got)) in target.planes.iter().zip(&feeds).zip(low.iter().zip(&got)) {
        prove(low).unwrap();
        assert!(written_once(low));
        assert_eq!(feed.len() as u64 * p.cell_bytes, low.bytes);
        for (cell, (from, _)) in feed.iter().enumerate() {
            let cell = cell * p.cell_bytes as usize;
            let here = &got[cell..cell + p.cell_bytes as usize];
            let there = |(s, at): &(usize, u64)| {
                &data[*s][plane_like(&src[*s], p)][*at as usize..(at + p.cell_bytes) as usize]
            };
            match from.len() {
                0 => assert!(here.iter().all(|b| *b == 0)),
                _ => assert!(from.iter().any(|f| there(f) == here)),
            }
            agree &= from.iter().all(|f| there(f) == there(&from[0]));
        }
    }
    assert_eq!(agrees(&low, &got, data), agree);
    (low, got)
}

/// The ranks' expressions together restore every source byte.
pub(crate) fn restores(ranks: &[Expr], src: &[TensorEntry], target: &Scheme) -> Vec<Planes> {
    let mut r = Rng(0x9E37_79B9_7F4A_7C15);
    let data: Vec<Planes> = src.iter().map(|t| random_bytes(&mut r, t)).collect();
    let flip = |d: &Planes| d.iter().map(|p| p.iter().map(|b| !b).collect()).collect();
    let mut back: Vec<Planes> = data.iter().map(flip).collect();
    let one = |e| {
        let (low, got) = verify(e, src, &data, target);
        export(&low, &got, &mut back);
        got
    };
    let out = ranks.iter().map(one).collect();
    assert!(back == data, "export differs");
    out
}
