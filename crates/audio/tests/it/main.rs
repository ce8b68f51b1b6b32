//! Sound files as encoders write them and as they should not be, rates, and the spectrograms of the reference.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test may stop where it stands")]
#![allow(clippy::print_stdout, reason = "what was measured")]
#![allow(clippy::float_cmp, reason = "times that are whole numbers, and samples that are exact")]

mod files;
mod hostile;
mod mel;
mod resample;
mod wav;

/// Knuth's MMIX generator.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0
    }

    /// The upper bits, in `0..n`.
    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % n
    }

    /// In `[-0.5, 0.5)`.
    #[expect(clippy::cast_precision_loss, reason = "24 bits")]
    fn sample(&mut self) -> f64 {
        (self.next() >> 40) as f64 / f64::from(1 << 24) - 0.5
    }
}

/// Rounds to `f32`.
#[expect(clippy::cast_possible_truncation, reason = "rounding is what it is for")]
fn narrow(x: f64) -> f32 {
    x as f32
}
