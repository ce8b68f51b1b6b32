//! An encoding of one's own: planned, sharded, encoded and decoded as any other.
//!
//! `cargo run -p weighbridge --example own_scheme -- PATH`

#![allow(clippy::print_stdout, reason = "examples print what they show")]

use std::ops::Range;
use std::sync::Arc;

use weighbridge::quant::{self, Codec, Encoder, Matrix};
use weighbridge::{LayoutKind, Mesh, PlanBuilder, Pool, Scheme};

/// Values of a block.
const PER: usize = 32;
/// A scale (f32), and a signed byte for each value.
const BYTES: usize = 4 + PER;

/// Blocks of 32 values `d · q`, `q` from −127 to 127.
struct Block32;

impl Codec for Block32 {
    fn name(&self) -> &'static str {
        "acme-b32"
    }

    fn scheme(&self) -> Arc<Scheme> {
        Scheme::blocks("acme-b32", PER as u64, BYTES as u64)
    }

    fn decode(&self, matrix: Matrix<'_>, rows: Range<usize>, out: &mut [f32]) {
        let [blocks] = matrix.planes();
        let row = matrix.k / PER * BYTES;
        let blocks = blocks[rows.start * row..rows.end * row].chunks_exact(BYTES);
        for (block, values) in blocks.zip(out.chunks_exact_mut(PER)) {
            let (d, codes) = block.split_at(4);
            let d = f32::from_le_bytes([d[0], d[1], d[2], d[3]]);
            for (value, code) in values.iter_mut().zip(codes) {
                *value = d * f32::from(code.cast_signed());
            }
        }
    }

    fn encoder(&self) -> Option<&dyn Encoder> {
        Some(self)
    }
}

impl Encoder for Block32 {
    fn encode(&self, values: &[f32], _k: usize, _importance: Option<&[f32]>, planes: &mut [&mut [u8]]) {
        for (values, block) in values.chunks_exact(PER).zip(planes[0].chunks_exact_mut(BYTES)) {
            let d = values.iter().fold(0f32, |most, x| most.max(x.abs())) / 127.0;
            block[..4].copy_from_slice(&d.to_le_bytes());
            for (value, code) in values.iter().zip(&mut block[4..]) {
                #[expect(clippy::cast_possible_truncation, reason = "it is rounded, and at most 127")]
                let q = if d > 0.0 { (value / d).round() as i8 } else { 0 };
                *code = q.cast_unsigned();
            }
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("wanted a checkpoint")?;
    // From now on it is found by its name, in rules too.
    quant::register(&Block32)?;
    let checkpoint = weighbridge::open(path)?;
    let rule = "layers.*.ffn.gate.weight=acme-b32";
    let mesh = Mesh { tp: 2, ..Mesh::default() };
    let plan = PlanBuilder::new(&checkpoint).layout(LayoutKind::Canonical).encode([rule.parse()?]).mesh(mesh);
    let plan = plan.rank(1).build()?;
    let loaded = plan.load(&mut Pool::new(2))?;
    let gate = loaded.get("layers.0.ffn.gate.weight").ok_or("the model has no gate")?;
    println!("{} {}: {} bytes on rank 1 of 2", gate.shape(), gate.scheme(), gate.bytes().len());
    if let Some(lost) = loaded.report().differences.get("layers.0.ffn.gate.weight") {
        println!("encoding lost {:.2} % of its values' size", 100.0 * lost.relative());
    }
    Ok(())
}
