//! The log-mel spectrogram that Whisper reads.
//!
//! Source: `log_mel_spectrogram` of openai/whisper, whisper/audio.py, and `WhisperFeatureExtractor` of transformers 5.24.0.

use std::collections::VecDeque;
use std::f64::consts::PI;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};

use crate::{Error, narrow};

/// The least power of a band: `-10` as a logarithm.
const FLOOR: f64 = 1e-10;
/// The longest transform, in samples.
const MAX_FFT: usize = 1 << 16;
/// The most bands.
const MAX_MELS: usize = 1024;

/// The parameters of a log-mel spectrogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrontEnd {
    /// Samples per second, in Hz.
    pub rate: u32,
    /// The number of bands: 80, or 128 since Whisper large-v3.
    pub mels: usize,
    /// The length of the transform and of its window, in samples.
    pub fft: usize,
    /// The distance between two frames, in samples.
    pub hop: usize,
}

impl FrontEnd {
    /// Returns Whisper's parameters: 16 kHz, windows of 25 ms every 10 ms.
    pub fn whisper(mels: usize) -> FrontEnd {
        FrontEnd { rate: 16_000, mels, fft: 400, hop: 160 }
    }
}

/// A band: its weights for some bins of the transform.
struct Band {
    bins: Range<usize>,
    weights: Vec<f64>,
}

/// Computes the frames of a sound, block by block.
///
/// Windows are centred on their frames, and the sound is mirrored at its start and end. A frame has the power in each band as a logarithm
/// to base 10; a power is `1e-10` at least. Whisper scales the frames by their maximum: see [`scale`].
pub struct LogMel {
    front: FrontEnd,
    window: Vec<f64>,
    bands: Vec<Band>,
    fft: Arc<dyn RealToComplex<f64>>,
    /// The buffers of the transform.
    input: Vec<f64>,
    output: Vec<Complex<f64>>,
    scratch: Vec<Complex<f64>>,
    power: Vec<f64>,
    /// Samples from the start of the next frame's window, the mirrored ones at the start included.
    pending: VecDeque<f32>,
    /// The first samples, until there are enough to mirror them.
    start: Option<Vec<f32>>,
    /// The number of samples so far.
    samples: u64,
    /// The number of frames so far.
    frames: u64,
    maximum: f32,
}

impl fmt::Debug for LogMel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogMel")
            .field("front", &self.front)
            .field("samples", &self.samples)
            .field("frames", &self.frames)
            .finish_non_exhaustive()
    }
}

impl LogMel {
    /// Makes the window and the bands.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if a parameter is 0 or too large, the transform's length is odd, or the hop is longer than the transform.
    pub fn new(front: FrontEnd) -> Result<LogMel, Error> {
        let FrontEnd { rate, mels, fft, hop } = front;
        let sound = rate > 1 && (1..=MAX_MELS).contains(&mels) && (2..=MAX_FFT).contains(&fft);
        if !sound || fft % 2 != 0 || !(1..=fft).contains(&hop) {
            return Err(Error::Misuse { what: format!("no log-mel spectrogram has {front:?}") });
        }
        let transform = RealFftPlanner::new().plan_fft_forward(fft);
        let window = (0..fft).map(|n| 0.5 - 0.5 * (2.0 * PI * n as f64 / fft as f64).cos()).collect();
        Ok(LogMel {
            front,
            window,
            bands: bands(&front),
            input: transform.make_input_vec(),
            output: transform.make_output_vec(),
            scratch: transform.make_scratch_vec(),
            fft: transform,
            power: vec![0.0; fft / 2 + 1],
            pending: VecDeque::new(),
            start: Some(Vec::new()),
            samples: 0,
            frames: 0,
            maximum: f32::NEG_INFINITY,
        })
    }

    /// The parameters.
    pub fn front(&self) -> FrontEnd {
        self.front
    }

    /// The factor of bin `bin` of the transform in band `band`.
    pub fn factor(&self, band: usize, bin: usize) -> f64 {
        let weights =
            self.bands.get(band).and_then(|band| band.weights.get(bin.checked_sub(band.bins.start)?));
        weights.copied().unwrap_or(0.0)
    }

    /// The greatest value of all frames so far; negative infinity if there is none.
    pub fn maximum(&self) -> f32 {
        self.maximum
    }

    /// Appends the frames that the next samples complete: `[frames, mels]`, each value a logarithm to base 10.
    pub fn push(&mut self, samples: &[f32], frames: &mut Vec<f32>) {
        self.samples += samples.len() as u64;
        let half = self.front.fft / 2;
        if let Some(start) = &mut self.start {
            start.extend_from_slice(samples);
            if start.len() <= half {
                return;
            }
            self.begin();
        } else {
            self.pending.extend(samples);
        }
        self.complete(u64::MAX, frames);
    }

    /// Ends the sound after `padding` zeros, appends its last frames, and returns the maximum of all frames. The next push begins
    /// another sound.
    ///
    /// There are `(samples + padding) / hop` frames: as the reference does, the last one, in the middle of the sound's end, is left out.
    /// The reference pads a sound of less than 30 s to 30 s (transformers), or any sound by 30 s (openai/whisper). No frames at all
    /// have a maximum of negative infinity.
    pub fn finish(&mut self, padding: usize, frames: &mut Vec<f32>) -> f32 {
        // In blocks: the padding may be longer than the sound.
        let zeros = [0.0; 4096];
        let mut left = padding;
        while left > 0 {
            let block = zeros.get(..left).unwrap_or(&zeros);
            self.push(block, frames);
            left -= block.len();
        }
        if self.start.is_some() {
            self.begin();
        }
        let total = self.samples / self.front.hop as u64;
        if self.frames < total {
            self.mirror_end();
            self.complete(total, frames);
        }
        let maximum = self.maximum;
        self.pending.clear();
        self.start = Some(Vec::new());
        (self.samples, self.frames, self.maximum) = (0, 0, f32::NEG_INFINITY);
        maximum
    }

    /// Mirrors the first samples. A sound that is shorter than half a window is mirrored again and again, as NumPy does.
    fn begin(&mut self) {
        let start = self.start.take().unwrap_or_default();
        let half = self.front.fft / 2;
        let mirrored = (1..=half).rev().filter_map(|back| start.get(mirror(back, start.len()))).copied();
        self.pending.extend(mirrored);
        self.pending.extend(&start);
    }

    /// Appends the mirrored end, as far as a frame may need it.
    fn mirror_end(&mut self) {
        let half = self.front.fft / 2;
        // `pending` has the mirrored start too while the sound is shorter than half a window: both ends mirror the same samples.
        let known = usize::try_from(self.samples).unwrap_or(usize::MAX).min(self.pending.len());
        let sound = self.pending.len() - known;
        let tail: Vec<f32> = (1..=half)
            .filter_map(|past| {
                let from_end = mirror(past, known);
                self.pending.get(sound + known.checked_sub(1 + from_end)?).copied()
            })
            .collect();
        self.pending.extend(tail);
    }

    /// Appends frames until one needs more samples than there are, and `total` at most.
    fn complete(&mut self, total: u64, frames: &mut Vec<f32>) {
        while self.frames < total && self.pending.len() >= self.front.fft {
            let mut silent = true;
            for ((input, window), &sample) in self.input.iter_mut().zip(&self.window).zip(&self.pending) {
                *input = window * f64::from(sample);
                silent &= sample == 0.0;
            }
            if silent {
                // Padding is most of a short sound.
                self.power.fill(0.0);
            } else {
                self.transform();
            }
            for band in &self.bands {
                let power = self.power.get(band.bins.clone()).unwrap_or_default();
                let sum: f64 = power.iter().zip(&band.weights).map(|(power, weight)| power * weight).sum();
                let value = narrow(sum.max(FLOOR).log10());
                self.maximum = self.maximum.max(value);
                frames.push(value);
            }
            self.frames += 1;
            self.pending.drain(..self.front.hop);
        }
    }

    fn transform(&mut self) {
        // It fails on buffers of other lengths only, and they are its own.
        let done = self.fft.process_with_scratch(&mut self.input, &mut self.output, &mut self.scratch);
        debug_assert!(done.is_ok());
        for (power, bin) in self.power.iter_mut().zip(&self.output) {
            *power = bin.norm_sqr();
        }
    }
}

/// Scales frames as Whisper reads them: values that are more than 8 below `maximum` are raised to that, then `(x + 4) / 4`.
///
/// `maximum` is that of all frames of the sound, which [`LogMel::finish`] returns, though `frames` may be some of them.
pub fn scale(frames: &mut [f32], maximum: f32) {
    for value in frames {
        *value = (value.max(maximum - 8.0) + 4.0) / 4.0;
    }
}

/// Returns the index of the sample that is `back` before the first of `len`, mirrored: 1 is the second sample.
fn mirror(back: usize, len: usize) -> usize {
    let period = 2 * len.saturating_sub(1);
    if period == 0 {
        return 0;
    }
    let at = back % period;
    at.min(period - at)
}

/// Returns the bands: triangles that are of equal width on the mel scale of Slaney, and of equal area.
///
/// Source: `mel_filter_bank` with `norm="slaney"` and `mel_scale="slaney"` of transformers 5.24.0, which is that of librosa.
fn bands(front: &FrontEnd) -> Vec<Band> {
    let half_rate = f64::from(front.rate) / 2.0;
    let top = mel(half_rate);
    let edge = |n: usize| hertz(top * n as f64 / (front.mels + 1) as f64);
    let bins = front.fft / 2 + 1;
    // The reference divides the rate as a whole number.
    let bin = |n: usize| f64::from(front.rate / 2) * n as f64 / (bins - 1) as f64;
    let band = |n: usize| {
        let (low, middle, high) = (edge(n), edge(n + 1), edge(n + 2));
        let height = 2.0 / (high - low);
        let weight = |n: usize| {
            let up = (bin(n) - low) / (middle - low);
            let down = (high - bin(n)) / (high - middle);
            up.min(down).max(0.0) * height
        };
        let first = (0..bins).find(|&n| weight(n) > 0.0).unwrap_or(0);
        let weights: Vec<f64> = (first..bins).map(weight).take_while(|&weight| weight > 0.0).collect();
        Band { bins: first..first + weights.len(), weights }
    };
    (0..front.mels).map(band).collect()
}

/// Returns the mel of a frequency in Hz: linear up to 1 kHz, logarithmic above.
fn mel(hertz: f64) -> f64 {
    if hertz < 1000.0 { 3.0 * hertz / 200.0 } else { 15.0 + (hertz / 1000.0).ln() * 27.0 / 6.4_f64.ln() }
}

/// Returns the frequency of a mel, in Hz.
fn hertz(mel: f64) -> f64 {
    if mel < 15.0 { 200.0 * mel / 3.0 } else { 1000.0 * ((mel - 15.0) * 6.4_f64.ln() / 27.0).exp() }
}
