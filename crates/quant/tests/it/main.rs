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

mod attention;
mod encode;
mod feedback;
mod golden;
mod merge;
mod packed_planes;
mod planes;
mod products;
mod register;
mod repack;
mod revisions;
mod vector;

/// All schemes that have interleaved forms.
fn packable() -> Vec<String> {
    let names: Vec<_> = quant::names().filter(|name| quant::interleaved(name, 8).is_some()).collect();
    for wanted in ["q4_0", "iq4_xs", "mlx-affine:b4,g64,bf16", "mlx-mxfp4", "squish-int8:row"] {
        assert!(names.iter().any(|name| name == wanted), "`{wanted}` in {names:?}");
    }
    names
}

/// A matrix `[rows, k]`, as its planes.
#[derive(Clone, Debug, PartialEq)]
struct Planes(Vec<Vec<u8>>);

impl Planes {
    /// Filled with one byte.
    fn of(scheme: &tensor::Scheme, rows: usize, k: usize, fill: u8) -> Planes {
        let shape = tensor::Shape::from([rows as u64, k as u64]);
        let bytes = |plane| scheme.plane_bytes(plane, &shape).unwrap() as usize;
        Planes(scheme.planes.iter().map(|plane| vec![fill; bytes(plane)]).collect())
    }

    fn get(&self) -> Vec<&[u8]> {
        self.0.iter().map(Vec::as_slice).collect()
    }

    fn get_mut(&mut self) -> Vec<&mut [u8]> {
        self.0.iter_mut().map(Vec::as_mut_slice).collect()
    }
}

/// Columns of a row in one unit of a scheme's interleaved forms.
fn unit(name: &str) -> usize {
    let fits = |k: &usize| {
        let form = quant::interleaved(name, 8).unwrap();
        form.byte_len(&tensor::Shape::from([8, *k as u64])).is_ok()
    };
    (32..).step_by(32).find(fits).unwrap()
}

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

    /// A matrix: as [`Noise::blocks`], or random codes and ordinary scales and minima in planes of their own.
    fn matrix(&mut self, name: &str, rows: usize, k: usize) -> Planes {
        let scheme = quant::scheme(name).unwrap();
        let mut planes = Planes::of(&scheme, rows, k, 0);
        if let [blocks] = &mut *planes.0 {
            let n = blocks.len() / scheme.planes[0].cell_bytes as usize;
            *blocks = self.blocks(name, n);
            return planes;
        }
        planes.0[0] = self.bytes(planes.0[0].len());
        for plane in &mut planes.0[1..] {
            *plane = match name.rsplit_once(',') {
                _ if name.contains("mxfp4") => self.bytes(plane.len()).iter().map(|e| 112 + e % 16).collect(),
                Some((_, "f16")) => self.reals(plane.len() / 2, |x| half::f16::from_f32(x).to_le_bytes()),
                Some((_, "bf16")) => self.reals(plane.len() / 2, |x| half::bf16::from_f32(x).to_le_bytes()),
                _ => self.reals(plane.len() / 4, f32::to_le_bytes),
            };
        }
        planes
    }

    fn reals<const N: usize>(&mut self, n: usize, bytes: impl Fn(f32) -> [u8; N]) -> Vec<u8> {
        (0..n).flat_map(|_| bytes(self.float() * 0.01)).collect()
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| (self.bits() >> 32) as u8).collect()
    }
}
