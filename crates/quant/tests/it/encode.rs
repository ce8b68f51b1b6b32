//! Encoding against what the reference implementation made and lost: `golden/encode.py`.

use quant::{Difference, Matrix};

use crate::Noise;
use crate::golden::golden;

/// Schemes whose bytes are the reference's where there is no importance.
const EXACT: [&str; 5] = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0"];

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

fn halves(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|b| half::f16::from_le_bytes(*b).to_f32()).collect()
}

fn encode(name: &str, values: &[f32], k: usize, importance: Option<&[f32]>) -> Vec<u8> {
    let codec = quant::codec(name).unwrap();
    let mut blocks = vec![0xA5; values.len() / codec.per() * codec.cell_bytes()];
    codec.encoder().unwrap().encode(values, k, importance, &mut [&mut blocks]);
    blocks
}

fn decode(name: &str, blocks: &[u8], k: usize) -> Vec<f32> {
    let codec = quant::codec(name).unwrap();
    let mut values = vec![f32::NAN; blocks.len() / codec.cell_bytes() * codec.per()];
    let rows = values.len() / k;
    codec.decode(Matrix { planes: &[blocks], rows, k }, 0..rows, &mut values);
    values
}

/// All schemes of blocks that can be encoded.
fn encoded() -> Vec<String> {
    let blocks = |name: &String| {
        let codec = quant::codec(name).unwrap();
        codec.per() > 1 && codec.encoder().is_some() && codec.scheme().planes.len() == 1
    };
    quant::names().filter(blocks).collect()
}

#[test]
fn simple_types_have_the_bytes_of_the_reference() {
    let inputs = floats(&golden("encode", "inputs.bin"));
    for name in EXACT {
        let codec = quant::codec(name).unwrap();
        let (found, wanted) = (encode(name, &inputs, 256, None), golden(name, "encoded.bin"));
        assert_eq!(found.len(), wanted.len());
        let size = codec.cell_bytes();
        for (i, (found, wanted)) in found.chunks(size).zip(wanted.chunks(size)).enumerate() {
            let values = &inputs[i * codec.per()..][..codec.per()];
            assert_eq!(found, wanted, "`{name}`, block {i}: {values:?}");
        }
    }
}

#[test]
fn nothing_loses_more_than_the_reference() {
    let errors: serde_json::Value = serde_json::from_slice(&golden("encode", "errors.json")).unwrap();
    let importance = floats(&golden("encode", "importance.bin"));
    for name in encoded() {
        for (sample, k) in [("embedding", 512), ("down", 1536)] {
            let values = halves(&golden("encode", &format!("{sample}.bin")));
            for weights in [None, Some(&importance[..k])] {
                let found = decode(&name, &encode(&name, &values, k, weights), k);
                let weight = |i: usize| weights.map_or(1.0, |w| f64::from(w[i % k]));
                let lost: f64 = (0..values.len())
                    .map(|i| weight(i) * (f64::from(found[i]) - f64::from(values[i])).powi(2))
                    .sum();
                let key = if weights.is_some() { format!("{sample}, weighted") } else { sample.to_owned() };
                let theirs =
                    errors[&name][&key]["squares"].as_f64().unwrap_or_else(|| panic!("`{name}`, {key}"));
                println!("{name:8} {key:20} {lost:12.6} {theirs:12.6} {:6.3}", lost / theirs);
                // Only the order in which squares are added may differ.
                assert!(lost <= theirs * (1.0 + 1e-6), "`{name}`, {key}: {lost} lost, {theirs} by ggml");
            }
        }
    }
}

/// Blocks that no encoder may panic on; the results do not matter.
fn nasty(noise: &mut Noise) -> Vec<Vec<f32>> {
    let mut rows = vec![
        vec![0.0; 256],
        vec![-0.0; 256],
        vec![1.0; 256],
        vec![-3.5e-3; 256],
        vec![f32::MAX; 256],
        vec![f32::MIN; 256],
        vec![f32::from_bits(1); 256],
        vec![f32::MIN_POSITIVE; 256],
    ];
    for scale in [1e-45, 1e-40, 1e-38, 1e-20, 1e-7, 1e-5, 1e-4, 1.0, 65504.0, 1e6, 1e20, f32::MAX] {
        rows.push(noise.floats(256).iter().map(|x| x * scale).collect());
        let mut one = vec![0.0; 256];
        one[77] = scale;
        one[78] = -scale;
        rows.push(one);
    }
    let mut both = noise.floats(256);
    both[3] = f32::MAX;
    both[130] = -f32::MAX;
    rows.push(both);
    rows
}

#[test]
fn no_values_and_no_importance_make_an_encoder_panic() {
    let mut noise = Noise(5);
    let importances = [
        vec![0.0; 256],
        vec![f32::MAX; 256],
        vec![f32::from_bits(1); 256],
        vec![f32::NAN; 256],
        vec![-1.0; 256],
        (0..256).map(|i| if i % 32 < 16 { 0.0 } else { 1e-30 }).collect(),
        (0..256).map(|i| if i == 9 { f32::INFINITY } else { 1.0 }).collect(),
    ];
    for name in encoded() {
        for values in nasty(&mut noise) {
            for importance in [None].into_iter().chain(importances.iter().map(|w| Some(&w[..]))) {
                let found = decode(&name, &encode(&name, &values, 256, importance), 256);
                let most = values.iter().fold(0.0f32, |m, x| m.max(x.abs()));
                let d = Difference::of(&values, &found);
                if most <= 1e4 {
                    // The last term is what binary16 leaves of a minimum near zero.
                    let bound = most * 1.1 + f32::from(half::f16::MIN_POSITIVE_SUBNORMAL) * 4.0;
                    assert!(d.overflowed == 0 && d.max <= bound, "`{name}`: {d:?} of {most}");
                }
                if most == 0.0 {
                    assert!(found.iter().all(|x| *x == 0.0), "`{name}`");
                }
            }
        }
        for bad in [f32::NAN, f32::INFINITY] {
            let mut values = noise.floats(256);
            values[100] = bad;
            encode(&name, &values, 256, None);
        }
    }
}

/// Where a scheme can hold the values exactly, the search finds them.
#[test]
fn what_was_decoded_is_encoded_again_with_hardly_a_loss() {
    let rows = halves(&golden("encode", "embedding.bin"));
    for name in encoded() {
        let once = decode(&name, &encode(&name, &rows, 512, None), 512);
        let twice = decode(&name, &encode(&name, &once, 512, None), 512);
        let (first, second) = (Difference::of(&rows, &once), Difference::of(&once, &twice));
        println!("{name:8} {:.3e} {:.3e}", first.rmse(), second.rmse());
        assert!(second.squares <= 0.25 * first.squares, "`{name}`: {first:?}, then {second:?}");
    }
}

/// Importance means something: a column that matters gets nearer to its values at the cost of the others.
#[test]
fn important_columns_lose_less() {
    let rows = halves(&golden("encode", "embedding.bin"));
    let weights: Vec<f32> = (0..512).map(|i| if i % 7 == 0 { 100.0 } else { 1.0 }).collect();
    let lost = |found: &[f32]| -> f64 {
        (0..rows.len())
            .step_by(512)
            .flat_map(|row| (0..512).step_by(7).map(move |i| row + i))
            .map(|i| f64::from(found[i] - rows[i]).powi(2))
            .sum()
    };
    for name in encoded() {
        let plain = lost(&decode(&name, &encode(&name, &rows, 512, None), 512));
        let weighted = lost(&decode(&name, &encode(&name, &rows, 512, Some(&weights)), 512));
        println!("{name:8} {:.3}", weighted / plain);
        let few_choices = matches!(name.as_str(), "q8_0" | "q1_0" | "tq1_0" | "tq2_0" | "mxfp4");
        let bound = if few_choices { 1.0 } else { 0.8 };
        assert!(weighted <= bound * plain, "`{name}`: {weighted} with importance, {plain} without");
    }
}
