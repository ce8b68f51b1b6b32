//! Rounding with feedback against GPTQ as its authors write it, and against rounding alone.

use quant::{Codec, Feedback, Gram, Levels, Matrix};

use crate::{Noise, Planes};

/// Whole words of zero points of any width.
const ROWS: usize = 32;
const K: usize = 512;
const DAMPING: f64 = 0.01;

/// Every scheme whose codes can be chosen one by one.
fn recoded() -> Vec<&'static dyn Codec> {
    let all = quant::names().filter_map(|name| quant::codec(&name));
    let found: Vec<_> = all.filter(|codec| codec.recoder().is_some()).collect();
    let names: Vec<&str> = found.iter().map(|codec| codec.name()).collect();
    for wanted in [
        "q4_0",
        "q8_0",
        "q2_k",
        "q3_k",
        "q4_k",
        "q5_k",
        "q6_k",
        "iq4_xs",
        "mlx-affine:b3,g64,bf16",
        "squish-int8:row",
        "gptq:b4,g128,f16",
        "gptq:b3,g128,f16",
        "gptq-v2:b4,row,f16",
        "awq:g64,f16",
    ] {
        assert!(names.contains(&wanted), "`{wanted}` in {names:?}");
    }
    found
}

fn decode(codec: &dyn Codec, planes: &Planes, rows: usize, k: usize) -> Vec<f32> {
    let mut values = vec![f32::NAN; rows * k];
    codec.decode(Matrix { planes: &planes.get(), rows, k }, 0..rows, &mut values);
    values
}

fn encode(codec: &dyn Codec, values: &[f32], k: usize, importance: Option<&[f32]>) -> Planes {
    let mut planes = Planes::of(&codec.scheme(), values.len() / k, k, 0xA5);
    codec.encoder().unwrap().encode(values, k, importance, &mut planes.get_mut());
    planes
}

fn fed(codec: &dyn Codec, feedback: &Feedback, values: &[f32]) -> Planes {
    let k = feedback.k();
    let mut planes = Planes::of(&codec.scheme(), values.len() / k, k, 0xA5);
    assert!(feedback.encode(codec, values, &mut vec![0.0; values.len()], &mut planes.get_mut()));
    planes
}

/// Inputs whose columns go together: each is a mixture of a few causes, of its own strength.
fn inputs(noise: &mut Noise, rows: usize) -> Vec<f32> {
    let causes = 40;
    let mixture: Vec<f32> = noise.floats(causes * K);
    let strength: Vec<f32> = (0..K).map(|_| noise.float().powi(3).abs() + 0.05).collect();
    let mut all = vec![];
    for _ in 0..rows {
        let cause = noise.floats(causes);
        for j in 0..K {
            let mixed: f32 = (0..causes).map(|c| cause[c] * mixture[c * K + j]).sum();
            // Few bits, so that sums of products are exact in f32.
            all.push((strength[j] * (mixed + noise.float()) * 16.0).round().clamp(-64.0, 64.0) / 16.0);
        }
    }
    all
}

/// `Σ x xᵀ`, in f64.
fn products(inputs: &[f32]) -> Vec<f64> {
    let mut sums = vec![0.0; K * K];
    for x in inputs.chunks_exact(K) {
        for i in 0..K {
            for j in 0..K {
                sums[i * K + j] += f64::from(x[i]) * f64::from(x[j]);
            }
        }
    }
    sums
}

/// `tr(E H Eᵀ)`.
fn lost(h: &[f64], values: &[f32], found: &[f32]) -> f64 {
    let mut sum = 0.0;
    for (values, found) in values.chunks_exact(K).zip(found.chunks_exact(K)) {
        let error: Vec<f64> = values.iter().zip(found).map(|(a, b)| f64::from(a - b)).collect();
        for i in 0..K {
            sum += error[i] * (0..K).map(|j| h[i * K + j] * error[j]).sum::<f64>();
        }
    }
    sum
}

/// The upper triangular `V` with `VᵀV` the inverse of `h` and a little: what GPTQ calls `cholesky(inverse(h), upper=True)`.
fn upper(h: &[f64], rows: usize) -> Vec<f64> {
    let scale = 1.0 / rows as f64;
    let mean = (0..K).map(|i| h[i * K + i] * scale).sum::<f64>() / K as f64;
    let kept = rows as f64 / (rows + K) as f64;
    let h = |i: usize, j: usize| {
        if i == j { h[i * K + j] * scale + DAMPING * mean } else { h[i * K + j] * scale * kept }
    };
    // The inverse by elimination.
    let mut all: Vec<Vec<f64>> = (0..K)
        .map(|i| (0..2 * K).map(|j| if j < K { h(i, j) } else { f64::from(u8::from(j - K == i)) }).collect())
        .collect();
    for p in 0..K {
        let pivot = all[p][p];
        all[p].iter_mut().for_each(|x| *x /= pivot);
        let row = all[p].clone();
        for (i, other) in all.iter_mut().enumerate().filter(|(i, _)| *i != p) {
            let by = other[p];
            assert!(i != p);
            other.iter_mut().zip(&row).for_each(|(x, y)| *x -= by * y);
        }
    }
    let inverse = |i: usize, j: usize| all[i][K + j];
    let mut v = vec![0.0; K * K];
    for i in 0..K {
        let sum: f64 = (0..i).map(|m| v[m * K + i] * v[m * K + i]).sum();
        v[i * K + i] = (inverse(i, i) - sum).sqrt();
        for j in i + 1..K {
            let sum: f64 = (0..i).map(|m| v[m * K + i] * v[m * K + j]).sum();
            v[i * K + j] = (inverse(i, j) - sum) / v[i * K + i];
        }
    }
    v
}

/// GPTQ as its authors write it (gptq.py, `fasterquant`): each column is rounded, and its error, over the diagonal of `v`, is taken from
/// all columns after it. Scales are found when the first column of a group is reached.
fn textbook(codec: &dyn Codec, v: &[f64], weights: &[f32], values: &[f32]) -> Vec<f32> {
    let recoder = codec.recoder().unwrap();
    let (unit, rows) = (recoder.columns(K), values.len() / K);
    let places: Vec<f64> = match recoder.levels() {
        Levels::Even(n) => (0..n).map(|i| f64::from(i) / f64::from(n - 1)).collect(),
        Levels::Listed(all) => {
            let (low, high) = (f64::from(all[0]), f64::from(all[all.len() - 1]));
            all.iter().map(|x| (f64::from(*x) - low) / (high - low)).collect()
        }
    };
    let mut w: Vec<f64> = values.iter().map(|x| f64::from(*x)).collect();
    let mut found = vec![0.0; values.len()];
    for first in (0..K).step_by(unit) {
        let group: Vec<f32> = (0..rows * unit).map(|i| w[i / unit * K + first + i % unit] as f32).collect();
        let mut planes = encode(codec, &group, unit, Some(&weights[first..][..unit]));
        let mut end = |code: u8| {
            recoder.put(&vec![code; rows * unit], unit, &mut planes.get_mut());
            decode(codec, &planes, rows, unit)
        };
        let (low, high) = (end(0), end((places.len() - 1) as u8));
        for r in 0..rows {
            for j in 0..unit {
                let (low, high) = (f64::from(low[r * unit + j]), f64::from(high[r * unit + j]));
                let x = w[r * K + first + j];
                let values = places.iter().map(|place| low + (high - low) * place);
                let q = values.min_by(|a, b| (a - x).abs().total_cmp(&(b - x).abs())).unwrap();
                found[r * K + first + j] = q as f32;
                let at = first + j;
                let error = (x - q) / v[at * K + at];
                for l in at + 1..K {
                    w[r * K + l] -= error * v[at * K + l];
                }
            }
        }
    }
    found
}

#[test]
fn it_is_gptq() {
    let mut noise = Noise(0x6B7);
    let x = inputs(&mut noise, 700);
    let h = products(&x);
    let mut gram = Gram::new(K).unwrap();
    gram.add(&x[..300 * K], 2);
    gram.add(&x[300 * K..], 1);
    let feedback = Feedback::of(&gram, DAMPING, 0.0, 2).unwrap();
    let v = upper(&h, 700);
    for (j, weight) in feedback.weights().iter().enumerate() {
        let wanted = 1.0 / (v[j * K + j] * v[j * K + j]);
        assert!((f64::from(*weight) / wanted - 1.0).abs() < 1e-3, "weight {j}: {weight} and {wanted}");
    }
    let values: Vec<f32> = noise.floats(ROWS * K).iter().map(|x| x.powi(3)).collect();
    for name in ["q4_0", "iq4_nl", "q3_k", "q4_k", "mlx-affine:b4,g64,f32", "gptq:b4,g64,f32"] {
        let codec = quant::codec(name).unwrap();
        let found = decode(codec, &fed(codec, &feedback, &values), ROWS, K);
        let wanted = textbook(codec, &v, feedback.weights(), &values);
        // A tie that falls the other way changes all that follows in its row.
        let rows = found.chunks_exact(K).zip(wanted.chunks_exact(K));
        let same = rows.filter(|(a, b)| a.iter().zip(*b).all(|(a, b)| (a - b).abs() < 1e-4)).count();
        let (ours, theirs) = (lost(&h, &values, &found), lost(&h, &values, &wanted));
        assert!(same * 4 > ROWS, "`{name}`: {same} of {ROWS} rows are the same");
        assert!((ours / theirs - 1.0).abs() < 0.02, "`{name}`: {ours} and {theirs}");
    }
}

#[test]
fn results_lose_less_than_by_rounding_alone() {
    let mut noise = Noise(0xFEED);
    let x = inputs(&mut noise, 600);
    let h = products(&x);
    let mut gram = Gram::new(K).unwrap();
    gram.add(&x, 2);
    let feedback = Feedback::of(&gram, DAMPING, 0.0, 2).unwrap();
    let importance: Vec<f32> = (0..K).map(|j| h[j * K + j] as f32).collect();
    let values: Vec<f32> = noise.floats(ROWS * K).iter().map(|x| x.powi(3)).collect();
    for codec in recoded() {
        let alone = decode(codec, &encode(codec, &values, K, Some(&importance)), ROWS, K);
        let found = decode(codec, &fed(codec, &feedback, &values), ROWS, K);
        let (alone, found) = (lost(&h, &values, &alone), lost(&h, &values, &found));
        // A code of one bit per value leaves little to be made good.
        assert!(found < 0.8 * alone, "`{}`: {found} and {alone}", codec.name());
    }
}

#[test]
fn codes_are_replaced_and_nothing_else() {
    let mut noise = Noise(7);
    let values = noise.floats(ROWS * K);
    for codec in recoded() {
        let (recoder, name) = (codec.recoder().unwrap(), codec.name());
        let places: Vec<f32> = match recoder.levels() {
            Levels::Even(n) => (0..n).map(|i| i as f32 / (n - 1) as f32).collect(),
            Levels::Listed(all) => all.iter().map(|x| (f32::from(*x) + 127.0) / 240.0).collect(),
        };
        let mut planes = encode(codec, &values, K, None);
        let encoded = decode(codec, &planes, ROWS, K);
        let mut all = vec![];
        for code in 0..places.len() {
            recoder.put(&vec![code as u8; ROWS * K], K, &mut planes.get_mut());
            all.push(decode(codec, &planes, ROWS, K));
        }
        let (low, high) = (&all[0], &all[all.len() - 1]);
        let mut codes = vec![];
        for i in 0..ROWS * K {
            let span = high[i] - low[i];
            for (values, place) in all.iter().zip(&places) {
                let wanted = low[i] + span * place;
                assert!(
                    (values[i] - wanted).abs() <= span.abs() * 0.02,
                    "`{name}`: {} and {wanted}",
                    values[i]
                );
            }
            // Each value is that of a code: codes in any order are put where they belong.
            let code = all.iter().position(|values| values[i] == encoded[i]);
            codes.push(code.unwrap_or_else(|| panic!("`{name}`: no code for {}", encoded[i])) as u8);
        }
        recoder.put(&codes, K, &mut planes.get_mut());
        assert_eq!(decode(codec, &planes, ROWS, K), encoded, "`{name}`");
    }
}

#[test]
fn every_number_of_threads_gives_the_same_sums() {
    let mut noise = Noise(3);
    let x = inputs(&mut noise, 130);
    let weights = |threads| {
        let mut gram = Gram::new(K).unwrap();
        gram.add(&x, threads);
        Feedback::of(&gram, DAMPING, 0.0, threads).unwrap().weights().to_vec()
    };
    assert_eq!(weights(1), weights(3));
}

#[test]
fn inputs_that_are_no_numbers_have_no_feedback() {
    let mut gram = Gram::new(4).unwrap();
    gram.add(&[1.0, f32::NAN, 0.0, 0.0], 1);
    assert!(Feedback::of(&gram, DAMPING, 0.0, 1).is_none());
    // A column without inputs is like any other.
    let mut gram = Gram::new(4).unwrap();
    gram.add(&[1.0, 2.0, 0.0, 0.0], 1);
    assert!(Feedback::of(&gram, DAMPING, 0.0, 1).is_some());
    assert!(Feedback::of(&Gram::new(4).unwrap(), DAMPING, 0.0, 1).is_some());
}
