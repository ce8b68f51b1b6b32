//! Attention against its definition in f64, and what a cache stores against what it was given.

use std::ops::Range;
use std::slice::from_ref;

use quant::Isa;
use quant::attention::{
    Attention, Block, Coded, Partial, Ranges, Room, Stored, attend, code_bytes, encode_channels,
    encode_tokens, token_groups, widen,
};

use crate::Noise;

/// Attention over spans of `span` positions in blocks of `block`, put together.
struct Case<'a> {
    how: Attention,
    sinks: Option<&'a [f32]>,
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    /// Elements of a key, of what a value is a part of, and of a value.
    sizes: (usize, usize, usize),
}

impl<'a> Case<'a> {
    fn run(&self, isa: Isa, visible: &[Range<usize>], span: usize, block: usize) -> Vec<f32> {
        let (d, stride, e) = self.sizes;
        let n = self.k.len() / d;
        let queries = visible.len() * self.how.heads;
        let mut room = Room::new(queries, n, block, d.max(stride));
        let mut all = vec![f32::NAN; Partial::room(queries, e)];
        let mut all = Partial::empty(&mut all, queries);
        for start in (0..n).step_by(span) {
            let end = n.min(start + span);
            let within = |at: usize| at.clamp(start, end) - start;
            let seen: Vec<_> = visible.iter().map(|v| within(v.start)..within(v.end)).collect();
            let blocks = (start..end).step_by(block).map(|first| {
                let positions = block.min(end - first);
                let rows = |all: &'a [f32], width: usize| Stored::F32(&all[first * width..]);
                let values = (stride == e).then(|| rows(self.v, stride));
                Block { positions, keys: rows(self.k, d), values }
            });
            let mut part = vec![f32::NAN; Partial::room(queries, e)];
            let mut part = Partial::within(&mut part, queries);
            attend(isa, self.how, self.q, &blocks.collect::<Vec<_>>(), &seen, &mut room, &mut part);
            all.merge(isa, part.found());
        }
        let mut out = vec![f32::NAN; queries * e];
        let sinks = self.sinks.map(|sinks| sinks.repeat(visible.len()));
        all.found().finish(isa, sinks.as_deref(), &mut out);
        out
    }

    fn want(&self, visible: &[Range<usize>]) -> Vec<f64> {
        let (d, stride, e) = self.sizes;
        let rows = self.q.chunks(self.how.heads * d).zip(visible);
        let queries =
            rows.flat_map(|(q, seen)| q.chunks(d).enumerate().map(move |(head, q)| (head, q, seen)));
        queries
            .flat_map(|(head, q, seen)| {
                let score = |k: &[f32]| {
                    let z: f64 = q.iter().zip(k).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
                    let z = z * f64::from(self.how.scale);
                    self.how.soft_cap.map_or(z, |c| f64::from(c) * (z / f64::from(c)).tanh())
                };
                let keys = self.k.chunks(d).skip(seen.start).take(seen.len());
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
    for (heads, d, n) in
        [(1, 64, 1), (3, 64, 100), (4, 128, 37), (1, 256, 9), (5, 80, 66), (2, 24, 3), (7, 7, 5)]
    {
        let q = noise.floats(heads * d);
        let k = noise.floats(n * d);
        let own = noise.floats(n * d);
        let sinks = noise.floats(heads);
        // Values of their own, and values that are the starts of keys.
        for (soft_cap, sinks, e) in
            [(None, None, d), (Some(2.0), None, d), (None, Some(&sinks[..]), d - d / 3)]
        {
            let how = Attention { heads, scale: 1.0 / (d as f32).sqrt(), soft_cap };
            let v = if e == d { &own } else { &k };
            let case = Case { how, sinks, q: &q, k: &k, v, sizes: (d, d, e) };
            let want = case.want(from_ref(&(0..n)));
            let mut vectors: Option<Vec<u32>> = None;
            for isa in Isa::available() {
                let out = case.run(isa, from_ref(&(0..n)), 32, 8);
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

#[test]
fn rows_of_queries_give_what_each_gives_alone() {
    let mut noise = Noise(101);
    for (heads, d, n, visible) in [
        (3, 64, 70, vec![0..67, 0..68, 0..69, 0..70]),
        (1, 128, 40, vec![1..34, 2..35, 3..36, 4..37, 5..38]),
        (5, 80, 9, vec![0..1, 0..2, 0..3]),
        (2, 24, 60, vec![0..20, 10..30, 25..60]),
        (1, 7, 12, vec![0..3, 3..6, 6..12, 6..12]),
    ] {
        let q = noise.floats(visible.len() * heads * d);
        let (k, v) = (noise.floats(n * d), noise.floats(n * d));
        for (isa, soft_cap) in Isa::available().into_iter().flat_map(|isa| [(isa, None), (isa, Some(2.0))]) {
            let how = Attention { heads, scale: 0.3, soft_cap };
            let case = |q| Case { how, sinks: None, q, k: &k, v: &v, sizes: (d, d, d) };
            let together = case(&q).run(isa, &visible, 16, 8);
            for ((seen, q), found) in visible.iter().zip(q.chunks(heads * d)).zip(together.chunks(heads * d))
            {
                // In other blocks, and each head by itself.
                let alone = case(q).run(isa, from_ref(seen), 16, 16);
                assert_eq!(bits(found), bits(&alone), "{heads} heads of {d}, {seen:?}, {}", isa.name());
                let one = Attention { heads: 1, ..how };
                for (q, found) in q.chunks(d).zip(found.chunks(d)) {
                    let alone = Case { how: one, ..case(q) }.run(isa, from_ref(seen), 16, 4);
                    assert_eq!(bits(found), bits(&alone), "a head of {d}, {seen:?}, {}", isa.name());
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "of 4 positions")]
fn a_row_that_sees_what_is_not_there_is_refused() {
    let keys = [0.0; 32];
    let block = Block { positions: 4, keys: Stored::F32(&keys), values: None };
    let how = Attention { heads: 1, scale: 1.0, soft_cap: None };
    let mut out = [0.0; 10];
    let mut out = Partial::within(&mut out, 1);
    attend(Isa::Scalar, how, &[0.0; 8], &[block], from_ref(&(1..5)), &mut Room::new(1, 4, 4, 8), &mut out);
}

#[test]
fn halves_are_widened_exactly() {
    let mut noise = Noise(5);
    for width in [1, 7, 16, 24, 64, 100] {
        let x: Vec<half::f16> = noise.floats(3 * width).into_iter().map(half::f16::from_f32).collect();
        let stored: Vec<u16> = x.iter().map(|x| x.to_bits()).collect();
        for isa in Isa::available() {
            let mut room = vec![f32::NAN; 3 * width];
            let wide = widen(isa, &Stored::F16(&stored), 3, width, None, &mut room);
            assert_eq!(wide, x.iter().map(|x| x.to_f32()).collect::<Vec<_>>());
        }
    }
}

/// Rows whose channels have ranges of their own, one of them constant.
fn rows(noise: &mut Noise, n: usize, width: usize) -> Vec<f32> {
    let (x, channels) = (noise.floats(n * width), noise.floats(width));
    let spread = |(i, x): (usize, &f32)| match i % width {
        0 => 3.5,
        c => 100.0 * channels[c] + x * channels[c],
    };
    x.iter().enumerate().map(spread).collect()
}

#[test]
fn a_code_is_half_a_step_from_what_it_stands_for() {
    let mut noise = Noise(7);
    for (bits, width) in
        [8, 4].into_iter().flat_map(|b| [1, 7, 16, 24, 32, 48, 64, 80, 100, 192].map(|w| (b, w)))
    {
        let n = 5;
        let x = rows(&mut noise, n, width);
        let levels = ((1 << bits) - 1) as f32;
        let mut codes = vec![0xFF; n * code_bytes(bits, width)];

        let mut by_channel = vec![f32::NAN; 2 * width];
        encode_channels(bits, &x, width, &mut codes, &mut by_channel);
        let ranges = Ranges::Channels(&by_channel);
        let found = decoded(Coded { bits, codes: &codes, ranges }, n, width);
        for c in 0..width {
            let column: Vec<f32> = x.iter().copied().skip(c).step_by(width).collect();
            let step = spread(&column) / levels;
            for (found, x) in found.iter().skip(c).step_by(width).zip(column) {
                assert!(
                    (found - x).abs() <= 0.501 * step + 1e-5 * x.abs(),
                    "{bits} bits, channel {c} of {width}"
                );
            }
        }

        let mut by_token = vec![f32::NAN; n * 2 * token_groups(width)];
        encode_tokens(bits, &x, width, &mut codes, &mut by_token);
        let found = decoded(Coded { bits, codes: &codes, ranges: Ranges::Tokens(&by_token) }, n, width);
        for (x, found) in x.chunks(width).zip(found.chunks(width)) {
            for (x, found) in x.chunks(64).zip(found.chunks(64)) {
                let step = spread(x) / levels;
                for (found, x) in found.iter().zip(x) {
                    assert!((found - x).abs() <= 0.501 * step + 1e-5 * x.abs(), "{bits} bits of {width}");
                }
            }
        }
    }
}

/// The difference of the largest and the least.
fn spread(x: &[f32]) -> f32 {
    x.iter().copied().fold(f32::MIN, f32::max) - x.iter().copied().fold(f32::MAX, f32::min)
}

/// The rows, which are the same on every instruction set.
fn decoded(coded: Coded<'_>, n: usize, width: usize) -> Vec<f32> {
    let all: Vec<Vec<f32>> = Isa::available()
        .into_iter()
        .map(|isa| widen(isa, &Stored::Coded(coded), n, width, None, &mut vec![f32::NAN; n * width]).to_vec())
        .collect();
    assert!(all.iter().all(|rows| bits(rows) == bits(&all[0])), "{} bits of {width}", coded.bits);
    all[0].clone()
}

#[test]
fn numbers_that_are_none_are_coded_without_a_panic() {
    let x = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, 0.0, -0.0, 1.0];
    for bits in [8, 4] {
        let mut codes = vec![0; 2 * code_bytes(bits, 4)];
        encode_channels(bits, &x, 4, &mut codes, &mut [0.0; 8]);
        encode_tokens(bits, &x, 4, &mut codes, &mut [0.0; 4]);
        encode_tokens(bits, &[f32::NAN; 8], 4, &mut codes, &mut [0.0; 4]);
    }
}
