//! Compares the encoders' loss on real weights with ggml's: prints docs/quality.md.
//!
//!     cargo run --release -p weighbridge-quant --example quality > docs/quality.md
//!     cargo run --release -p weighbridge-quant --example quality -- --times
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

const INTRODUCTION: &str = "\
# What encoding loses

Printed by `cargo run --release -p weighbridge-quant --example quality` (with `-- --times` it also says how long a value
takes). The weights are rows of smollm2, kept in `golden/encode/`; ggml's figures come from its own C library and are in
`golden/encode/errors.json`, made by `golden/encode.py`. The tests ask that no scheme loses more than ggml
(`crates/quant/tests/it/encode.rs`).

Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 without importance are ggml's bytes, bit for bit. Everything else is searched for the
least squared error, weighted with the importance of the columns if that is given: scales, minima and their common
factors are fitted to each other, and every candidate is judged by the values that it decodes to. ggml fits most groups
with heavier weights for larger values and rounds the scales afterwards.

RMSE and the largest error (max) are in units of the weights, whose root mean square is given. With importance,
the RMSE is the weighted one, max and cosine are not: what matters little may then be far off.
";

const SAMPLES: [(&str, usize, &str); 2] = [
    ("embedding", 512, "Token embedding: 64 rows, stored in 8 bits"),
    (
        "down",
        1536,
        "`ffn_down` of a middle layer: 24 rows, stored as Q4_1, whose grid some schemes can find again",
    ),
];

fn main() {
    let times = std::env::args().any(|a| a == "--times");
    let errors: serde_json::Value = serde_json::from_slice(&golden("errors.json")).unwrap();
    let importance = floats(&golden("importance.bin"));
    println!("{INTRODUCTION}");
    let mut tables = Vec::new();
    for (sample, k, title) in SAMPLES {
        let rows = halves(&golden(&format!("{sample}.bin")));
        let size = (rows.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / rows.len() as f64).sqrt();
        for weighted in [false, true] {
            let importance = weighted.then_some(&importance[..k]);
            let (key, how) = if weighted {
                (format!("{sample}, weighted"), ", with importance")
            } else {
                (sample.to_owned(), "")
            };
            let mut table = format!("## {title}{how}\n\nRoot mean square of the weights: {size:.4}.\n\n");
            table += "| scheme | bits | RMSE | ggml | max | ggml | cosine | ggml |";
            table += if times { " ns |\n" } else { "\n" };
            table += "|---|--:|--:|--:|--:|--:|--:|--:|";
            table += if times { "--:|\n" } else { "\n" };
            for name in SCHEMES {
                let (line, nanoseconds) =
                    row(quant::codec(name).unwrap(), &rows, k, importance, &errors[name][&key]);
                table += &line;
                let time = format!(" {nanoseconds:.0} |");
                table += if times { &time } else { "" };
                table += "\n";
            }
            tables.push(table);
        }
    }
    print!("{}", tables.join("\n"));
}

/// The row of a scheme, which encodes the values, decodes them and compares, and nanoseconds per value.
fn row(
    codec: &dyn Codec,
    values: &[f32],
    k: usize,
    importance: Option<&[f32]>,
    ggml: &serde_json::Value,
) -> (String, f64) {
    let encoder = codec.encoder().unwrap();
    let rows = values.len() / k;
    let mut blocks = vec![0; values.len() / codec.per() * codec.cell_bytes()];
    let row_bytes = blocks.len() / rows;
    let mut found = vec![0.0; values.len()];
    // Each row by itself and the best of some times, so that it does not matter much what else is running.
    let mut seconds = 0.0;
    for (values, blocks) in values.chunks_exact(k).zip(blocks.chunks_exact_mut(row_bytes)) {
        let mut time = || {
            let start = Instant::now();
            encoder.encode(values, k, importance, &mut [&mut *blocks]);
            start.elapsed().as_secs_f64()
        };
        seconds += (0..7).map(|_| time()).fold(f64::INFINITY, f64::min);
    }
    codec.decode(Matrix { planes: &[&blocks], rows, k }, 0..rows, &mut found);

    let plain = Difference::of(values, &found);
    let weight = |i: usize| importance.map_or(1.0, |w| f64::from(w[i % k]));
    let squares: f64 =
        values.iter().zip(&found).enumerate().map(|(i, (x, y))| weight(i) * f64::from(y - x).powi(2)).sum();
    let total: f64 = (0..values.len()).map(weight).sum();
    let theirs = |of: &str| ggml[of].as_f64().unwrap();
    let cosine = theirs("product") / (theirs("wanted") * theirs("found")).sqrt();
    let line = format!(
        "| {} | {} | {:.6} | {:.6} | {:.4} | {:.4} | {:.6} | {cosine:.6} |",
        codec.name().to_uppercase(),
        codec.cell_bytes() as f64 * 8.0 / codec.per() as f64,
        (squares / total).sqrt(),
        (theirs("squares") / total).sqrt(),
        plain.max,
        theirs("max"),
        plain.cosine(),
    );
    (line, seconds * 1e9 / values.len() as f64)
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
