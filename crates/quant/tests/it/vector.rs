//! Vector operations against f64 written out naively, on every instruction set, at lengths with and without tails.

use std::slice::from_ref;

use quant::{Attention, Isa, attend, vector};

use crate::Noise;

const LENGTHS: [usize; 9] = [1, 2, 7, 16, 31, 64, 100, 576, 1003];

/// Runs `f` for every instruction set and length.
fn each(mut f: impl FnMut(Isa, usize, &mut Noise)) {
    for isa in Isa::available() {
        for n in LENGTHS {
            f(isa, n, &mut Noise(n as u64 + 1));
        }
    }
}

fn close(what: &str, found: &[f32], want: impl IntoIterator<Item = f64>, tolerance: f64) {
    let want: Vec<f64> = want.into_iter().collect();
    assert_eq!(found.len(), want.len());
    for (i, (found, want)) in found.iter().zip(want).enumerate() {
        let error = (f64::from(*found) - want).abs();
        assert!(error <= tolerance * want.abs().max(1e-3), "{what}: value {i} is {found}, not {want}");
    }
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|x| f64::from(*x)).collect()
}

#[test]
fn sums() {
    each(|isa, n, noise| {
        let (a, b) = (noise.floats(n), noise.floats(n));
        let (wa, wb) = (wide(&a), wide(&b));
        let size: f64 = wa.iter().zip(&wb).map(|(a, b)| (a * b).abs()).sum();
        let want: f64 = wa.iter().zip(&wb).map(|(a, b)| a * b).sum();
        assert!((f64::from(vector::dot(isa, &a, &b)) - want).abs() <= 2e-7 * size, "dot of {n}");

        let mut y = b.clone();
        vector::add(isa, &mut y, &a);
        close("add", &y, wa.iter().zip(&wb).map(|(a, b)| a + b), 1e-4);
        let mut y = b.clone();
        vector::axpy(isa, 0.37, &a, &mut y);
        close("axpy", &y, wa.iter().zip(&wb).map(|(a, b)| f64::from(0.37f32) * a + b), 1e-4);
    });
}

#[test]
fn norms() {
    each(|isa, n, noise| {
        let (x, w, b) = (noise.floats(n), noise.floats(n), noise.floats(n));
        // A mean far from zero, which a variance by squares would not survive.
        let shifted: Vec<f32> = x.iter().map(|x| x + 50.0).collect();
        let mut out = vec![f32::NAN; n];

        vector::rms_norm(isa, &x, &w, 1e-5, &mut out);
        let scale = (wide(&x).iter().map(|x| x * x).sum::<f64>() / n as f64 + f64::from(1e-5f32)).sqrt();
        close("rms_norm", &out, wide(&x).iter().zip(wide(&w)).map(|(x, w)| x / scale * w), 1e-5);

        vector::layer_norm(isa, &shifted, &w, &b, 1e-5, &mut out);
        let x = wide(&shifted);
        let mean = x.iter().sum::<f64>() / n as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
        let scale = (variance + f64::from(1e-5f32)).sqrt();
        let want = x.iter().zip(wide(&w)).zip(wide(&b)).map(|((x, w), b)| (x - mean) / scale * w + b);
        for (found, want) in out.iter().zip(want) {
            assert!((f64::from(*found) - want).abs() < 1e-4, "layer_norm: {found}, not {want}");
        }
    });
}

#[test]
fn activation_functions() {
    each(|isa, n, noise| {
        let x: Vec<f32> = noise.floats(n).iter().map(|x| 12.0 * x).collect();
        let up = noise.floats(n);
        let mut out = vec![f32::NAN; n];
        let silu = |x: f64| x / (1.0 + (-x).exp());
        let gelu = |x: f64| {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
        };

        vector::silu_mul(isa, &x, &up, &mut out);
        close("silu_mul", &out, wide(&x).iter().zip(wide(&up)).map(|(x, u)| silu(*x) * u), 2e-6);
        vector::gelu_tanh_mul(isa, &x, &up, &mut out);
        close("gelu_tanh_mul", &out, wide(&x).iter().zip(wide(&up)).map(|(x, u)| gelu(*x) * u), 4e-6);
        vector::gelu_tanh(isa, &x, &mut out);
        close("gelu_tanh", &out, wide(&x).iter().map(|x| gelu(*x)), 4e-6);
    });
    // Far out, where the exponential leaves the floats.
    for isa in Isa::available() {
        let (mut out, ends) = ([0.0; 4], [-500.0, 500.0, f32::NEG_INFINITY, f32::INFINITY]);
        vector::gelu_tanh(isa, &ends[..2], &mut out[..2]);
        assert_eq!(out[..2], [0.0, 500.0]);
        vector::silu_mul(isa, &ends[..2], &[1.0, 1.0], &mut out[2..]);
        assert_eq!(out[2..], [0.0, 500.0]);
    }
}

#[test]
fn rotations() {
    each(|isa, half, noise| {
        let x = noise.floats(2 * half);
        let angles = noise.floats(half);
        let cos: Vec<f32> = angles.iter().map(|a| a.cos()).collect();
        let sin: Vec<f32> = angles.iter().map(|a| a.sin()).collect();
        let turn = |a: f32, b: f32, i: usize| {
            let (a, b, c, s) = (f64::from(a), f64::from(b), f64::from(cos[i]), f64::from(sin[i]));
            (a * c - b * s, a * s + b * c)
        };
        let mut y = x.clone();
        vector::rope_half(isa, &mut y, &cos, &sin);
        let low = (0..half).map(|i| turn(x[i], x[i + half], i).0);
        let high = (0..half).map(|i| turn(x[i], x[i + half], i).1);
        close("rope_half", &y, low.chain(high), 1e-4);

        let mut y = x.clone();
        vector::rope_interleaved(isa, &mut y, &cos, &sin);
        let want = (0..half).flat_map(|i| <[f64; 2]>::from(turn(x[2 * i], x[2 * i + 1], i)));
        close("rope_interleaved", &y, want, 1e-4);
    });
}

fn softmax(z: &[f64]) -> Vec<f64> {
    let max = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let e: Vec<f64> = z.iter().map(|z| (z - max).exp()).collect();
    let sum: f64 = e.iter().sum();
    e.into_iter().map(|e| e / sum).collect()
}

#[test]
fn softmax_with_and_without_a_cap() {
    each(|isa, n, noise| {
        let x: Vec<f32> = noise.floats(n).iter().map(|x| 40.0 * x).collect();
        for (cap, sink) in
            [(None, f32::NEG_INFINITY), (Some(5.0f32), f32::NEG_INFINITY), (None, 7.5), (None, 50.0)]
        {
            let z: Vec<f64> = wide(&x)
                .iter()
                .map(|x| 0.5 * x)
                .map(|z| cap.map_or(z, |c| f64::from(c) * (z / f64::from(c)).tanh()))
                .collect();
            let mut y = x.clone();
            vector::softmax_in_place(isa, &mut y, 0.5, cap, sink);
            let with_sink: Vec<f64> = z.iter().copied().chain([f64::from(sink)]).collect();
            close("softmax", &y, softmax(&with_sink)[..n].to_vec(), 1e-5);
        }
        let mut masked = x.clone();
        masked.push(f32::NEG_INFINITY);
        vector::softmax_in_place(isa, &mut masked, 1.0, None, f32::NEG_INFINITY);
        assert_eq!(masked[n], 0.0);
        vector::softmax_in_place(isa, &mut [], 1.0, None, f32::NEG_INFINITY);
    });
}

#[test]
fn argmax_takes_the_first_of_equals_wherever_it_stands() {
    each(|isa, n, noise| {
        let mut x = noise.floats(n);
        for i in [0, n / 2, n - 1] {
            let mut y = x.clone();
            y[i] = 3.0;
            y[n - 1] = 3.0;
            assert_eq!(vector::argmax(isa, &y), Some(i), "of {n}");
        }
        x.fill(-2.5);
        assert_eq!(vector::argmax(isa, &x), Some(0));
        x.fill(f32::NEG_INFINITY);
        assert_eq!(vector::argmax(isa, &x), None);
        x.fill(f32::NAN);
        assert_eq!(vector::argmax(isa, &x), None);
        assert_eq!(vector::argmax(isa, &[]), None);
    });
}

#[test]
fn attention_equals_its_definition() {
    let mut noise = Noise(99);
    for (heads, d, n) in
        [(1, 64, 1), (3, 64, 100), (4, 128, 37), (1, 256, 9), (5, 80, 66), (2, 24, 3), (7, 7, 5)]
    {
        let (q, k, v) = (noise.floats(heads * d), noise.floats(n * d), noise.floats(n * d));
        let sinks = noise.floats(heads);
        // Values as long as keys, and shorter ones at the starts of longer rows.
        for (soft_cap, sinks, e) in
            [(None, None, d), (Some(2.0), None, d), (None, Some(&sinks[..]), d - d / 3)]
        {
            let how = Attention { heads, scale: 1.0 / (d as f32).sqrt(), soft_cap, sinks };
            let want: Vec<f64> = q
                .chunks(d)
                .enumerate()
                .flat_map(|(head, q)| {
                    let score = |k: &[f32]| {
                        let z: f64 = q.iter().zip(k).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
                        let z = z * f64::from(how.scale);
                        soft_cap.map_or(z, |c| f64::from(c) * (z / f64::from(c)).tanh())
                    };
                    let sink = sinks.map_or(f64::NEG_INFINITY, |sinks| f64::from(sinks[head]));
                    let weights = softmax(&k.chunks(d).map(score).chain([sink]).collect::<Vec<_>>());
                    (0..e)
                        .map(|i| {
                            weights.iter().zip(v.chunks(d)).map(|(w, v)| w * f64::from(v[i])).sum::<f64>()
                        })
                        .collect::<Vec<_>>()
                })
                .collect();
            let mut vectors: Option<Vec<u32>> = None;
            for isa in Isa::available() {
                let (mut scores, mut out) = (vec![f32::NAN; heads * n], vec![f32::NAN; heads * e]);
                attend(isa, how, &q, &k, &v, from_ref(&(0..n)), &mut scores, &mut out);
                assert_eq!(out.len(), want.len());
                for (found, want) in out.iter().zip(&want) {
                    let what = format!("{heads} heads of {d} at {n}, {}", isa.name());
                    assert!((f64::from(*found) - want).abs() < 2e-6, "{what}: {found}, not {want}");
                }
                if isa != Isa::Scalar {
                    let bits: Vec<u32> = out.iter().map(|x| x.to_bits()).collect();
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
        let rows = visible.len();
        let (q, k, v) = (noise.floats(rows * heads * d), noise.floats(n * d), noise.floats(n * d));
        for (isa, soft_cap) in Isa::available().into_iter().flat_map(|isa| [(isa, None), (isa, Some(2.0))]) {
            let how = Attention { heads, scale: 0.3, soft_cap, sinks: None };
            let (mut scores, mut out) = (vec![f32::NAN; rows * heads * n], vec![f32::NAN; rows * heads * d]);
            attend(isa, how, &q, &k, &v, &visible, &mut scores, &mut out);
            for ((seen, q), found) in visible.iter().zip(q.chunks(heads * d)).zip(out.chunks(heads * d)) {
                let (mut scores, mut alone) = (vec![0.0; heads * seen.len()], vec![0.0; heads * d]);
                let [k, v] = [&k, &v].map(|all| &all[seen.start * d..seen.end * d]);
                attend(isa, how, q, k, v, from_ref(&(0..seen.len())), &mut scores, &mut alone);
                assert_eq!(
                    bits(found),
                    bits(&alone),
                    "{heads} heads of {d}, {seen:?} of {visible:?}, {}",
                    isa.name()
                );
            }
        }
    }
}

#[test]
#[should_panic(expected = "of 4 positions")]
fn a_row_that_sees_what_is_not_there_is_refused() {
    let how = Attention { heads: 1, scale: 1.0, soft_cap: None, sinks: None };
    attend(
        Isa::Scalar,
        how,
        &[0.0; 8],
        &[0.0; 32],
        &[0.0; 32],
        from_ref(&(1..5)),
        &mut [0.0; 4],
        &mut [0.0; 8],
    );
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

#[test]
#[should_panic(expected = "have different lengths")]
fn lengths_that_differ_are_refused() {
    vector::add(Isa::Scalar, &mut [0.0; 3], &[0.0; 4]);
}
