//! Behaviour of the crate: golden vectors, repacking, activations, products and vector operations.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    clippy::cast_lossless,
    clippy::float_cmp,
    clippy::unwrap_used,
    reason = "tests compare bits, make their numbers up, and may panic"
)]

extern crate weighbridge_quant as quant;

mod encode;
mod golden;
mod planes;
mod packed_planes;
mod products;
mod repack;
mod vector;

/// The block schemes that have interleaved forms.
const BLOCKS: [&str; 13] = [
    "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs",
    "mxfp4",
];

/// Where the binary16 scales of a block are.
fn scales(name: &str) -> &'static [usize] {
    match name {
        "q4_0" | "q5_0" | "q8_0" | "iq4_nl" | "iq4_xs" => &[0],
        "q2_k" => &[80, 82],
        "q3_k" => &[108],
        "q6_k" => &[208],
        "mxfp4" => &[],
        _ => &[0, 2],
    }
}

/// xorshift64*: repeatable noise.
struct Noise(u64);

impl Noise {
    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Uniform in [-1, 1).
    fn float(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }

    /// `n` blocks of a scheme: random codes, scales of ordinary size with either sign.
    fn blocks(&mut self, name: &str, n: usize) -> Vec<u8> {
        let codec = quant::codec(name).unwrap();
        let mut bytes = self.bytes(n * codec.cell_bytes());
        for block in bytes.chunks_exact_mut(codec.cell_bytes()) {
            for &at in scales(name) {
                let scale = half::f16::from_f32(self.float() * 0.01);
                block[at..at + 2].copy_from_slice(&scale.to_le_bytes());
            }
            if name == "mxfp4" {
                block[0] = 112 + block[0] % 16;
            }
        }
        bytes
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| (self.bits() >> 32) as u8).collect()
    }
}
