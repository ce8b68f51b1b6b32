//! Attention against its definition in f64, and what a cache stores against what it was given.

use std::ops::Range;
use std::slice::from_ref;

use quant::Isa;
use quant::attention::{
    Attention, Block, Coded, GROUP, POSITIONS, Partial, Relative, Room, Stored, attend, encode_keys,
    encode_values, keys, narrow, padded, value_place, values,
};

use crate::Noise;

/// Attention over spans of some pages, put together.
struct Case<'a> {
    how: Attention<'a>,
    sinks: Option<&'a [f32]>,
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    /// Elements of a key, of what a value is a part of, and of a value.
    sizes: (usize, usize, usize),
}

/// A page of keys or values as a cache has it.
#[derive(Clone)]
enum Page {
    F32(Vec<f32>),
    F16(Vec<u16>),
    Coded(u32, Vec<u8>, Vec<f32>),
}

impl Page {
    fn stored(&self) -> Stored<'_> {
        match self {
            Page::F32(x) => Stored::F32(x),
            Page::F16(x) => Stored::F16(x),
            Page::Coded(bits, codes, ranges) => Stored::Coded(Coded { bits: *bits, codes, ranges }),
        }
    }
}

/// The forms that a cache has.
const KINDS: [&str; 4] = ["f32", "f16", "int8", "int4"];

/// A page of keys, `[positions, d]`, of which those that are missing are no numbers unless they have to have codes.
fn page_of_keys(kind: &str, k: &[f32], d: usize) -> Page {
    let mut x = vec![if kind.starts_with("int") { 1.0 } else { f32::NAN }; d * POSITIONS];
    for (position, k) in k.chunks_exact(d).enumerate() {
        k.iter().enumerate().for_each(|(c, k)| x[c * POSITIONS + position] = *k);
    }
    page(kind, x, 2 * d, encode_keys)
}

/// A page of values, `[positions, e]`, likewise.
fn page_of_values(kind: &str, v: &[f32], e: usize) -> Page {
    let mut x = vec![if kind.starts_with("int") { 1.0 } else { f32::NAN }; POSITIONS * padded(e)];
    for (position, v) in v.chunks_exact(e).enumerate() {
        v.iter().enumerate().for_each(|(i, v)| x[value_place(e, position, i)] = *v);
    }
    let ranges = e.div_ceil(GROUP) * 2 * POSITIONS;
    page(kind, x, ranges, |bits, x, codes, ranges| encode_values(bits, x, e, codes, ranges))
}

fn page(kind: &str, x: Vec<f32>, ranges: usize, encode: impl Fn(u32, &[f32], &mut [u8], &mut [f32])) -> Page {
    match kind {
        "f32" => Page::F32(x),
        "f16" => {
            let mut halves = vec![0; x.len()];
            narrow(Isa::Scalar, &x, &mut halves);
            Page::F16(halves)
        }
        _ => {
            let bits = if kind == "int8" { 8 } else { 4 };
            let (mut codes, mut ranges) = (vec![0xFF; x.len() * bits as usize / 8], vec![f32::NAN; ranges]);
            encode(bits, &x, &mut codes, &mut ranges);
            Page::Coded(bits, codes, ranges)
        }
    }
}

impl Case<'_> {
    fn run(&self, isa: Isa, visible: &[Range<usize>], span: usize) -> Vec<f32> {
        self.run_stored(isa, visible, span, "f32")
    }

    fn run_stored(&self, isa: Isa, visible: &[Range<usize>], span: usize, kind: &str) -> Vec<f32> {
        let (d, stride, e) = self.sizes;
        let queries = visible.len() * self.how.heads;
        let mut room = Room::new(queries, span, d, e);
        let mut all = vec![f32::NAN; Partial::room(queries, e)];
        let mut all = Partial::empty(&mut all, queries);
        let keys: Vec<_> = self.k.chunks(POSITIONS * d).map(|k| page_of_keys(kind, k, d)).collect();
        let values: Vec<_> =
            self.v.chunks(POSITIONS * stride).map(|v| page_of_values(kind, v, stride)).collect();
        let block =
            |i: usize| Block { keys: keys[i].stored(), values: (stride == e).then(|| values[i].stored()) };
        for first in (0..keys.len()).step_by(span) {
            let (start, end) = (first * POSITIONS, (first + span).min(keys.len()) * POSITIONS);
            let within = |at: usize| at.clamp(start, end) - start;
            let seen: Vec<_> = visible.iter().map(|v| within(v.start)..within(v.end)).collect();
            let blocks: Vec<_> = (first..keys.len().min(first + span)).map(block).collect();
            let next = (first + span < keys.len()).then(|| block(first + span));
            let mut part = vec![f32::NAN; Partial::room(queries, e)];
            let mut part = Partial::within(&mut part, queries);
            // Counted from the first position of the span.
            let relative = self.how.relative;
            let relative = relative.map(|r| Relative { first: r.first - start.cast_signed(), ..r });
            let how = Attention { relative, next, ..self.how };
            attend(isa, how, self.q, &blocks, &seen, &mut room, &mut part);
            all.merge(isa, part.found());
        }
        let mut out = vec![f32::NAN; queries * e];
        let sinks = self.sinks.map(|sinks| sinks.repeat(visible.len()));
        all.found().finish(isa, sinks.as_deref(), &mut out);
        out
    }

    fn want(&self, visible: &[Range<usize>]) -> Vec<f64> {
        let (d, stride, e) = self.sizes;
        let rows = self.q.chunks(self.how.heads * d).zip(visible).enumerate();
        let queries = rows
            .flat_map(|(row, (q, seen))| q.chunks(d).enumerate().map(move |(head, q)| (row, head, q, seen)));
        let added = |row: usize, head: usize, position: usize| {
            let Some(Relative { table, first }) = self.how.relative else { return 0.0 };
            let width = (table.len() / self.how.heads).cast_signed();
            let place = position.cast_signed() - first - row.cast_signed() + width / 2;
            f64::from(table[head * width.cast_unsigned() + place.clamp(0, width - 1).cast_unsigned()])
        };
        queries
            .flat_map(|(row, head, q, seen)| {
                let score = |(position, k): (usize, &[f32])| {
                    let z: f64 = q.iter().zip(k).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
                    let z = (z + added(row, head, position)) * f64::from(self.how.scale);
                    self.how.soft_cap.map_or(z, |c| f64::from(c) * (z / f64::from(c)).tanh())
                };
                let keys = self.k.chunks(d).enumerate().skip(seen.start).take(seen.len());
                let sink = self.sinks.map(|sinks| f64::from(sinks[head]));
                let scores: Vec<f64> = keys.map(score).chain(sink).collect();
                let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let total: f64 = scores.iter().map(|z| (z - most).exp()).sum();
                let values = self.v.chunks(stride).skip(seen.start).take(seen.len());
                let weighed: Vec<_> = scores.iter().map(|z| (z - most).exp() / total).zip(values).collect();
                (0..e).map(|i| weighed.iter().map(|(w, v)| w * f64::from(v[i])).sum()).collect::<Vec<f64>>()
            })
            .collect()
    }
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn it_equals_its_definition() {
    let mut noise = Noise(99);
    for (heads, d, n) in [
        (1, 64, 1),
        (3, 64, 200),
        (4, 128, 137),
        (1, 256, 9),
        (5, 80, 66),
        (2, 24, 3),
        (7, 7, 5),
        (2, 96, 70),
    ] {
        let q = noise.floats(heads * d);
        let k = noise.floats(n * d);
        let own = noise.floats(n * d);
        let sinks = noise.floats(heads);
        // Values of their own, and values that are the starts of keys.
        for (soft_cap, sinks, e) in
            [(None, None, d), (Some(2.0), None, d), (None, Some(&sinks[..]), d - d / 3)]
        {
            let how =
                Attention { heads, scale: 1.0 / (d as f32).sqrt(), soft_cap, relative: None, next: None };
            let v = if e == d { &own } else { &k };
            let case = Case { how, sinks, q: &q, k: &k, v, sizes: (d, d, e) };
            let want = case.want(from_ref(&(0..n)));
            let mut vectors: Option<Vec<u32>> = None;
            for isa in Isa::available() {
                let out = case.run(isa, from_ref(&(0..n)), 2);
                for (found, want) in out.iter().zip(&want) {
                    let what = format!("{heads} heads of {d} at {n}, {}", isa.name());
                    assert!((f64::from(*found) - want).abs() < 2e-6, "{what}: {found}, not {want}");
                }
                if isa != Isa::Scalar {
                    let bits = bits(&out);
                    assert_eq!(*vectors.get_or_insert(bits.clone()), bits, "{heads} heads, {}", isa.name());
                }
            }
        }
    }
}

/// Tables that reach less far than positions, and farther; rows in the middle, and before and after all positions.
#[test]
fn addends_go_by_distance() {
    let mut noise = Noise(12);
    let (d, n, visible) = (16, 200, [0..150, 3..160, 70..200]);
    for (heads, reach, first) in [(1, 0, 0), (2, 7, 90), (3, 150, 20), (1, 3, -5), (2, 300, 198), (2, 4, 230)]
    {
        let q = noise.floats(visible.len() * heads * d);
        let (k, v) = (noise.floats(n * d), noise.floats(n * d));
        let table = noise.floats(heads * (2 * reach + 1));
        let relative = Some(Relative { table: &table, first });
        let how = Attention { heads, scale: 0.3, soft_cap: None, relative, next: None };
        let case = Case { how, sinks: None, q: &q, k: &k, v: &v, sizes: (d, d, d) };
        let want = case.want(&visible);
        for isa in Isa::available() {
            let out = case.run(isa, &visible, 2);
            for (found, want) in out.iter().zip(&want) {
                let what = format!("{heads} heads, {reach} far, {first}, {}", isa.name());
                assert!((f64::from(*found) - want).abs() < 2e-6, "{what}: {found}, not {want}");
            }
        }
    }
}

#[test]
fn what_is_stored_is_read_as_what_it_stands_for() {
    let mut noise = Noise(5);
    for (heads, d, n) in [(1, 64, 70), (3, 64, 128), (8, 64, 100), (2, 80, 40), (6, 96, 65), (3, 7, 10)] {
        let q = noise.floats(heads * d);
        let (k, v) = (noise.floats(n * d), noise.floats(n * d));
        let how = Attention { heads, scale: 1.0, soft_cap: None, relative: None, next: None };
        for kind in KINDS {
            // Attention over what each page stands for.
            let (mut k_read, mut v_read) = (vec![], vec![]);
            for (k, v) in k.chunks(POSITIONS * d).zip(v.chunks(POSITIONS * d)) {
                let mut room = vec![f32::NAN; POSITIONS * padded(d)];
                keys(Isa::Scalar, &page_of_keys(kind, k, d).stored(), d, &mut room);
                let count = k.len() / d;
                k_read.extend(
                    (0..count)
                        .flat_map(|t| (0..d).map(move |c| (t, c)))
                        .map(|(t, c)| room[c * POSITIONS + t]),
                );
                values(Isa::Scalar, &page_of_values(kind, v, d).stored(), d, &mut room);
                v_read.extend(
                    (0..count)
                        .flat_map(|t| (0..d).map(move |i| (t, i)))
                        .map(|(t, i)| room[value_place(d, t, i)]),
                );
            }
            let case = Case { how, sinks: None, q: &q, k: &k, v: &v, sizes: (d, d, d) };
            let read = Case { k: &k_read, v: &v_read, ..case };
            let want = read.want(from_ref(&(0..n)));
            let mut vectors: Option<Vec<u32>> = None;
            for isa in Isa::available() {
                let found = case.run_stored(isa, from_ref(&(0..n)), 1, kind);
                for (found, want) in found.iter().zip(&want) {
                    assert!(
                        (f64::from(*found) - want).abs() < 1e-5,
                        "{kind}, {heads} of {d}: {found}, not {want}"
                    );
                }
                if isa != Isa::Scalar {
                    let bits = bits(&found);
                    assert_eq!(*vectors.get_or_insert(bits.clone()), bits, "{kind}, {}", isa.name());
                }
            }
        }
    }
}

#[test]
fn rows_of_queries_give_what_each_gives_alone() {
    let mut noise = Noise(101);
    for (heads, d, n, visible) in [
        (3, 64, 70, vec![0..67, 0..68, 0..69, 0..70]),
        (1, 128, 140, vec![1..134, 2..135, 3..136, 64..137, 65..138]),
        (5, 80, 9, vec![0..1, 0..2, 0..3]),
        (2, 24, 60, vec![0..20, 10..30, 25..60]),
        (1, 7, 12, vec![0..3, 3..6, 6..12, 6..12]),
        (3, 96, 200, vec![0..100, 120..130, 125..200]),
    ] {
        let q = noise.floats(visible.len() * heads * d);
        let (k, v) = (noise.floats(n * d), noise.floats(n * d));
        for (isa, soft_cap) in Isa::available().into_iter().flat_map(|isa| [(isa, None), (isa, Some(2.0))]) {
            let how = Attention { heads, scale: 0.3, soft_cap, relative: None, next: None };
            let case = |q| Case { how, sinks: None, q, k: &k, v: &v, sizes: (d, d, d) };
            for kind in KINDS {
                let together = case(&q).run_stored(isa, &visible, 2, kind);
                let rows = visible.iter().zip(q.chunks(heads * d)).zip(together.chunks(heads * d));
                for ((seen, q), found) in rows {
                    // By itself, and each head by itself.
                    let alone = case(q).run_stored(isa, from_ref(seen), 2, kind);
                    let what = format!("{kind}, heads of {d}, {seen:?}, {}", isa.name());
                    assert_eq!(bits(found), bits(&alone), "{what}");
                    let one = Attention { heads: 1, ..how };
                    for (q, found) in q.chunks(d).zip(found.chunks(d)) {
                        let alone = Case { how: one, ..case(q) }.run_stored(isa, from_ref(seen), 2, kind);
                        assert_eq!(bits(found), bits(&alone), "one of {what}");
                    }
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "of 64 positions")]
fn a_row_that_sees_what_is_not_there_is_refused() {
    let keys = [0.0; 8 * POSITIONS];
    let block = Block { keys: Stored::F32(&keys), values: None };
    let how = Attention { heads: 1, scale: 1.0, soft_cap: None, relative: None, next: None };
    let mut out = [0.0; 10];
    let mut out = Partial::within(&mut out, 1);
    attend(Isa::Scalar, how, &[0.0; 8], &[block], from_ref(&(1..65)), &mut Room::new(1, 1, 8, 8), &mut out);
}

#[test]
fn halves_are_widened_exactly() {
    let mut noise = Noise(5);
    for d in [1, 7, 16, 64] {
        let x: Vec<half::f16> = noise.floats(d * POSITIONS).into_iter().map(half::f16::from_f32).collect();
        let stored: Vec<u16> = x.iter().map(|x| x.to_bits()).collect();
        for isa in Isa::available() {
            let mut room = vec![f32::NAN; d * POSITIONS];
            keys(isa, &Stored::F16(&stored), d, &mut room);
            assert_eq!(room, x.iter().map(|x| x.to_f32()).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_code_is_half_a_step_from_what_it_stands_for() {
    let mut noise = Noise(7);
    for (bits, width) in
        [8, 4].into_iter().flat_map(|b| [1, 7, 16, 24, 32, 48, 64, 80, 100, 192].map(|w| (b, w)))
    {
        let kind = if bits == 8 { "int8" } else { "int4" };
        let levels = ((1 << bits) - 1) as f32;
        // Channels, and positions, have ranges of their own; one is constant.
        let spreads = noise.floats(width.max(POSITIONS));
        let spread_of = |i: usize, x: f32| if i == 0 { 3.5 } else { 100.0 * spreads[i] + x * spreads[i] };
        let noise = noise.floats(POSITIONS * width);
        let near = |found: f32, x: f32, step: f32, what: &str| {
            assert!(
                (found - x).abs() <= 0.501 * step + 1e-5 * x.abs(),
                "{what}, {bits} bits of {width}: {found}, {x}"
            );
        };

        let k: Vec<f32> = noise.iter().enumerate().map(|(i, x)| spread_of(i % width, *x)).collect();
        let found = read(&page_of_keys(kind, &k, width), POSITIONS * width, |isa, stored, to| {
            keys(isa, stored, width, to);
        });
        for c in 0..width {
            let channel: Vec<f32> = k.iter().copied().skip(c).step_by(width).collect();
            let step = spread(&channel) / levels;
            for (found, x) in found[c * POSITIONS..].iter().zip(channel) {
                near(*found, x, step, "channel");
            }
        }

        let v: Vec<f32> = noise.iter().enumerate().map(|(i, x)| spread_of(i / width, *x)).collect();
        let found = read(&page_of_values(kind, &v, width), POSITIONS * padded(width), |isa, stored, to| {
            values(isa, stored, width, to);
        });
        for (position, row) in v.chunks(width).enumerate() {
            for (group, x) in row.chunks(GROUP).enumerate() {
                let step = spread(x) / levels;
                for (i, x) in x.iter().enumerate() {
                    near(found[value_place(width, position, group * GROUP + i)], *x, step, "position");
                }
            }
        }
    }
}

/// The difference of the largest and the least.
fn spread(x: &[f32]) -> f32 {
    x.iter().copied().fold(f32::MIN, f32::max) - x.iter().copied().fold(f32::MAX, f32::min)
}

/// What a page stands for, which is the same on every instruction set.
fn read(page: &Page, len: usize, of: impl Fn(Isa, &Stored<'_>, &mut [f32])) -> Vec<f32> {
    let read = |isa| {
        let mut room = vec![f32::NAN; len];
        of(isa, &page.stored(), &mut room);
        room
    };
    let all: Vec<Vec<f32>> = Isa::available().into_iter().map(read).collect();
    assert!(all.iter().all(|found| bits(found) == bits(&all[0])));
    all[0].clone()
}

#[test]
fn numbers_that_are_none_are_coded_without_a_panic() {
    let numbers = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, 0.0, -0.0, 1.0];
    for (kind, width) in [("int8", 4), ("int4", 8), ("int4", 70)] {
        let x: Vec<f32> = numbers.iter().copied().cycle().take(POSITIONS * width).collect();
        page_of_keys(kind, &x, width);
        page_of_values(kind, &x, width);
        page_of_values(kind, &vec![f32::NAN; POSITIONS * width], width);
    }
}
