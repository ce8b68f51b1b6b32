//! Samples of one rate to samples of another.

use std::f64::consts::PI;

use crate::{Error, narrow};

/// The zero crossings of the filter on each side of its middle.
const CROSSINGS: u64 = 64;
/// The shape of the Kaiser window: what is stopped is 100 dB down.
const BETA: f64 = 10.06;
/// The middle of the filter's edge, where 1 is half of the lower rate. The edge ends at 1: nothing folds back.
const EDGE: f64 = 0.95;
/// The most phases of the filter. Rates that want more get their phases between two of these.
const MAX_PHASES: u64 = 1024;
/// The highest rate, in Hz.
const MAX_RATE: u32 = 1_000_000;
/// The most that one rate may be of the other: it bounds the length of the filter.
const MAX_RATIO: u32 = 1_000;

/// Changes the rate of samples by a windowed sinc. Blocks may have any lengths: the result is that of one block.
///
/// The sound is neither shifted in time nor made longer: sample `n` of the output is at the time `n / to`, and there are
/// `ceil(samples * to / from)` of them. Before and after the sound is silence. The passband reaches to 0.9 of half the lower rate;
/// frequencies above that half are 100 dB down.
///
/// Source: J. O. Smith, "Digital Audio Resampling", <https://ccrma.stanford.edu/~jos/resample/>.
#[derive(Debug)]
pub struct Resampler {
    /// The rates, divided by what they share.
    from: u64,
    to: u64,
    /// The filter: `phases + 1` rows of `taps`. Row `p` is for a time that is `p / phases` after a sample.
    filter: Vec<f32>,
    phases: u64,
    taps: usize,
    /// Input that is still needed. It begins with `taps / 2 - 1` zeros.
    pending: Vec<f32>,
    /// The place of the next output's first tap in `pending`.
    start: usize,
    /// The time of the next output after an input sample, where `to` is the next one.
    part: u64,
    /// The number of samples that were pushed.
    read: u64,
    /// The number of samples that were returned.
    written: u64,
}

impl Resampler {
    /// Makes the filter for a change from one rate to another, in Hz.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if a rate is 0 or over a million, or one is more than a thousand times the other.
    pub fn new(from: u32, to: u32) -> Result<Resampler, Error> {
        let (low, high) = (from.min(to), from.max(to));
        if low == 0 || high > MAX_RATE || high / low > MAX_RATIO {
            return Err(Error::Misuse { what: format!("cannot change a rate of {from} Hz to {to} Hz") });
        }
        let shared = u64::from(divisor(from, to));
        let (from, to) = (u64::from(from) / shared, u64::from(to) / shared);
        let phases = to.min(MAX_PHASES);
        // A filter for a lower rate is as much longer.
        let width = (from as f64 / to as f64).max(1.0);
        let half = usize::try_from((CROSSINGS * from.max(to)).div_ceil(to)).unwrap_or(usize::MAX);
        let taps = if from == to { 2 } else { 2 * half };
        let mut filter = Vec::new();
        if from != to {
            for phase in 0..=phases {
                push_phase(phase as f64 / phases as f64, taps, width, &mut filter);
            }
        }
        let pending = vec![0.0; taps / 2 - 1];
        Ok(Resampler { from, to, filter, phases, taps, pending, start: 0, part: 0, read: 0, written: 0 })
    }

    /// Appends the samples that the next ones complete to `out`.
    pub fn push(&mut self, samples: &[f32], out: &mut Vec<f32>) {
        self.read += samples.len() as u64;
        if self.from == self.to {
            self.written += samples.len() as u64;
            out.extend_from_slice(samples);
            return;
        }
        self.pending.extend_from_slice(samples);
        self.drain(u64::MAX, out);
    }

    /// Ends the sound, and appends its last samples. The next push begins another sound.
    pub fn finish(&mut self, out: &mut Vec<f32>) {
        if self.from != self.to {
            let total = (u128::from(self.read) * u128::from(self.to)).div_ceil(u128::from(self.from));
            let zeros = self.taps / 2 + 1;
            self.pending.extend(std::iter::repeat_n(0.0, zeros));
            self.drain(u64::try_from(total).unwrap_or(u64::MAX), out);
        }
        self.pending.clear();
        self.pending.resize(self.taps / 2 - 1, 0.0);
        (self.start, self.part, self.read, self.written) = (0, 0, 0, 0);
    }

    /// Appends samples until one needs more input than there is, and `total` at most.
    fn drain(&mut self, total: u64, out: &mut Vec<f32>) {
        while self.written < total {
            let Some(input) = self.pending.get(self.start..).and_then(|rest| rest.get(..self.taps)) else {
                break;
            };
            let (row, between) = (self.part * self.phases / self.to, self.part * self.phases % self.to);
            let sample = self.row(row).map_or(0.0, |filter| dot(filter, input));
            let sample = match between {
                0 => sample,
                // Between two rows: the error of a line through them is 1e-6 of full scale.
                _ => {
                    let next = self.row(row + 1).map_or(0.0, |filter| dot(filter, input));
                    sample + (next - sample) * narrow(between as f64 / self.to as f64)
                }
            };
            out.push(sample);
            self.written += 1;
            self.part += self.from;
            // `from` is at most a million.
            self.start += usize::try_from(self.part / self.to).unwrap_or(0);
            self.part %= self.to;
        }
        // The place may lie behind what was pushed so far.
        let needless = self.start.min(self.pending.len());
        self.pending.drain(..needless);
        self.start -= needless;
    }

    fn row(&self, row: u64) -> Option<&[f32]> {
        let start = usize::try_from(row).ok()?.checked_mul(self.taps)?;
        self.filter.get(start..)?.get(..self.taps)
    }
}

/// Returns the greatest common divisor. Both are above 0.
fn divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { divisor(b, a % b) }
}

/// Appends the taps for a time that is `part` of a sample after the tap `taps / 2 - 1`. Their sum is 1, so that silence and constants
/// stay what they are.
fn push_phase(part: f64, taps: usize, width: f64, filter: &mut Vec<f32>) {
    let edge = EDGE / width;
    let top = bessel(BETA);
    let row: Vec<f64> = (0..taps)
        .map(|tap| {
            let t = tap as f64 - (taps as f64 / 2.0 - 1.0) - part;
            let x = t / (CROSSINGS as f64 * width);
            let window = if x.abs() < 1.0 { bessel(BETA * (1.0 - x * x).sqrt()) / top } else { 0.0 };
            let angle = PI * edge * t;
            window * if angle.abs() < 1e-9 { 1.0 } else { angle.sin() / angle }
        })
        .collect();
    let sum: f64 = row.iter().sum();
    filter.extend(row.iter().map(|&tap| narrow(tap / sum)));
}

/// Returns the modified Bessel function of the first kind, of order 0.
fn bessel(x: f64) -> f64 {
    let (mut sum, mut term) = (1.0, 1.0);
    for n in 1..64 {
        let factor = x / 2.0 / f64::from(n);
        term *= factor * factor;
        sum += term;
        if term < 1e-17 * sum {
            break;
        }
    }
    sum
}

/// Returns the sum of the products. Eight sums at a time, which the compiler turns into vectors.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (a, a_rest) = a.as_chunks::<8>();
    let (b, b_rest) = b.as_chunks::<8>();
    let mut sums = [0.0_f32; 8];
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}
