//! Vector operations against f64 written out naively, on every instruction set, at lengths with and without tails.

use quant::{Isa, vector};

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

        let x = wide(&shifted);
        let mean = x.iter().sum::<f64>() / n as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
        let scale = (variance + f64::from(1e-5f32)).sqrt();
        for b in [Some(&b), None] {
            vector::layer_norm(isa, &shifted, &w, b.map(Vec::as_slice), 1e-5, &mut out);
            let b = b.map_or_else(|| vec![0.0; n], |b| wide(b));
            let want = x.iter().zip(wide(&w)).zip(b).map(|((x, w), b)| (x - mean) / scale * w + b);
            for (found, want) in out.iter().zip(want) {
                assert!((f64::from(*found) - want).abs() < 1e-4, "layer_norm: {found}, not {want}");
            }
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
        vector::gelu_erf(isa, &x, &mut out);
        let by_erf = |x: f64| 0.5 * x * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2));
        close("gelu_erf", &out, wide(&x).iter().map(|x| by_erf(*x)), 1e-4);
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

/// What codes leave out is at most half a step, and a value that no code stands for leaves nothing.
#[test]
fn linear_attention() {
    each(|isa, n, noise| {
        let x = noise.floats(n);
        let mut out = x.clone();
        vector::silu(isa, &mut out);
        close("silu", &out, wide(&x).iter().map(|x| x / (1.0 + (-x).exp())), 1e-4);
        let (gate, mut out) = (noise.floats(n), x.clone());
        vector::sigmoid_mul(isa, &gate, &mut out);
        let want = wide(&x).into_iter().zip(wide(&gate)).map(|(x, gate)| x / (1.0 + (-gate).exp()));
        close("sigmoid_mul", &out, want, 1e-4);

        for kernel in [1, 2, 4] {
            let (weights, rows) = (noise.floats(kernel * n), noise.floats(kernel * n));
            let (before, now) = rows.split_at((kernel - 1) * n);
            vector::convolve(isa, &weights, before, now, &mut out);
            for (i, out) in out.iter().enumerate() {
                let products =
                    (0..kernel).map(|j| f64::from(weights[j * n + i]) * f64::from(rows[j * n + i]));
                assert!(
                    (f64::from(*out) - products.sum::<f64>()).abs() < 1e-5,
                    "convolve, {kernel} rows, {n}"
                );
            }
        }

        let keys = 24;
        let (q, k, v) = (noise.floats(keys), noise.floats(keys), noise.floats(n));
        let mut memory = noise.floats(keys * n);
        let (keep, write) = (0.75f32, 0.375f32);
        let mut want = wide(&memory);
        let mut read = vec![0.0; n];
        for i in 0..n {
            let known: f64 = (0..keys).map(|j| 0.75 * want[j * n + i] * f64::from(k[j])).sum();
            for j in 0..keys {
                want[j * n + i] =
                    0.75 * want[j * n + i] + 0.375 * (f64::from(v[i]) - known) * f64::from(k[j]);
                read[i] += want[j * n + i] * f64::from(q[j]);
            }
        }
        vector::delta_step(isa, &mut memory, &q, &k, &v, [keep, write], &mut out);
        let near = |found: &[f32], want: &[f64]| {
            found.iter().zip(want).all(|(found, want)| (f64::from(*found) - want).abs() < 1e-4)
        };
        assert!(near(&memory, &want) && near(&out, &read), "delta_step of {n}");
    });
}

#[test]
fn what_codes_leave_out() {
    for isa in Isa::available() {
        let mut x: Vec<f32> = (0..96).map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.173).collect();
        x[40] = f32::NAN;
        let mut out = vec![f32::NAN; 96];
        vector::beyond_codes(isa, &x, &mut out);
        assert!(out[32..64].iter().all(|x| x.to_bits() == 0));
        for block in [0..32, 64..96] {
            let step = x[block.clone()].iter().fold(0f32, |max, x| max.max(x.abs())) / 127.0;
            for (x, out) in x[block.clone()].iter().zip(&out[block.clone()]) {
                let codes = (f64::from(*x) - f64::from(*out)) / f64::from(step);
                assert!(out.abs() <= 0.5001 * step && (codes - codes.round()).abs() < 1e-3, "{x}: {out}");
            }
        }
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

#[test]
fn weights_with_and_without_a_cap() {
    each(|isa, n, noise| {
        let x: Vec<f32> = noise.floats(n).iter().map(|x| 40.0 * x).collect();
        for cap in [None, Some(5.0f32)] {
            let z = wide(&x).into_iter().map(|x| 0.5 * x);
            let z: Vec<f64> =
                z.map(|z| cap.map_or(z, |c| f64::from(c) * (z / f64::from(c)).tanh())).collect();
            let most = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let want: Vec<f64> = z.iter().map(|z| (z - most).exp()).collect();
            let mut y = x.clone();
            let (found, sum) = vector::weigh(isa, &mut y, 0.5, cap);
            close("largest", &[found], [most], 1e-5);
            close("sum", &[sum], [want.iter().sum::<f64>()], 1e-5);
            close("weights", &y, want, 1e-5);
        }
        assert_eq!(vector::weigh(isa, &mut [], 1.0, None), (f32::NEG_INFINITY, 0.0));
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
#[should_panic(expected = "have different lengths")]
fn lengths_that_differ_are_refused() {
    vector::add(Isa::Scalar, &mut [0.0; 3], &[0.0; 4]);
}
