//! What the encoders lose on real weights, beside what ggml loses: the tables of docs/quality.md.
//!
//!     cargo run --release -p weighbridge-quant --example quality
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program that prints tables")]

extern crate weighbridge_quant as quant;

use std::path::Path;
use std::time::Instant;

use quant::{Codec, Difference, Matrix};

/// The schemes in the order of their size.
const SCHEMES: [&str; 18] = [
    "q1_0", "tq1_0", "tq2_0", "q2_0", "q2_k", "q3_k", "mxfp4", "iq4_xs", "nvfp4", "iq4_nl", "q4_0", "q4_k",
    "q4_1", "q5_0", "q5_k", "q5_1", "q6_k", "q8_0",
];

fn main() {
    let errors: serde_json::Value = serde_json::from_slice(&golden("errors.json")).unwrap();
    let importance = floats(&golden("importance.bin"));
    for (sample, k) in [("embedding", 512), ("down", 1536)] {
        let rows = halves(&golden(&format!("{sample}.bin")));
        for weighted in [false, true] {
            let importance = weighted.then_some(&importance[..k]);
            let key = if weighted { format!("{sample}, weighted") } else { sample.to_owned() };
            println!("\n{key}\n");
            println!("| scheme | bits | RMSE | ggml | max | ggml | cosine | ggml | ns |");
            println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|");
            for name in SCHEMES {
                let Some(codec) = quant::codec(name) else { continue };
                if let Some(row) = row(codec, &rows, k, importance, &errors[name][&key]) {
                    println!("{row}");
                }
            }
        }
    }
}

/// The row of a scheme: encodes the values, decodes them, compares.
fn row(
    codec: &dyn Codec,
    values: &[f32],
    k: usize,
    importance: Option<&[f32]>,
    ggml: &serde_json::Value,
) -> Option<String> {
    let encoder = codec.encoder()?;
    let rows = values.len() / k;
    let mut blocks = vec![0; values.len() / codec.per() * codec.cell_bytes()];
    let mut found = vec![0.0; values.len()];
    let mut seconds = f64::INFINITY;
    for _ in 0..5 {
        let start = Instant::now();
        encoder.encode(values, k, importance, &mut [&mut blocks]);
        seconds = seconds.min(start.elapsed().as_secs_f64());
    }
    codec.decode(Matrix { planes: &[&blocks], rows, k }, 0..rows, &mut found);

    let plain = Difference::of(values, &found);
    let weight = |i: usize| importance.map_or(1.0, |w| f64::from(w[i % k]));
    let squares: f64 =
        values.iter().zip(&found).enumerate().map(|(i, (x, y))| weight(i) * f64::from(y - x).powi(2)).sum();
    let total: f64 = (0..values.len()).map(weight).sum();
    let theirs = |of: &str| ggml[of].as_f64().unwrap();
    let cosine = theirs("product") / (theirs("wanted") * theirs("found")).sqrt();
    Some(format!(
        "| {} | {:.4} | {:.6} | {:.6} | {:.4} | {:.4} | {:.6} | {cosine:.6} | {:.0} |",
        codec.name().to_uppercase(),
        codec.cell_bytes() as f64 * 8.0 / codec.per() as f64,
        (squares / total).sqrt(),
        (theirs("squares") / total).sqrt(),
        plain.max,
        theirs("max"),
        plain.cosine(),
        seconds * 1e9 / values.len() as f64,
    ))
}

fn golden(file: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/encode").join(file)).unwrap()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

fn halves(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|b| half::f16::from_le_bytes(*b).to_f32()).collect()
}
