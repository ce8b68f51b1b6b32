//! Sound for speech models: files to samples, samples to 16 kHz, and 16 kHz to the log-mel spectrogram that Whisper reads.
//!
//! ```no_run
//! # use weighbridge_audio as audio;
//! use audio::{FrontEnd, LogMel, Resampler, Sound};
//!
//! # fn main() -> Result<(), audio::Error> {
//! let mut sound = Sound::open(Box::new(std::io::stdin()))?;
//! let front = FrontEnd::whisper(80);
//! let mut resampler = Resampler::new(sound.rate(), front.rate)?;
//! let mut mel = LogMel::new(front)?;
//!
//! let (mut block, mut samples, mut frames) = (Vec::new(), Vec::new(), Vec::new());
//! while sound.read(&mut block)? {
//!     resampler.push(&block, &mut samples);
//!     mel.push(&samples, &mut frames);
//!     block.clear();
//!     samples.clear();
//! }
//! resampler.finish(&mut samples);
//! mel.push(&samples, &mut frames);
//! let maximum = mel.finish(30 * 16_000, &mut frames);
//! audio::scale(&mut frames, maximum);
//! # Ok(())
//! # }
//! ```
//!
//! Each step works on blocks: memory does not grow with the length of the sound.
//!
//! What does not happen here: nothing is written, no file is opened by name, no thread is started, and no number of a file's
//! header decides how much memory is allocated.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

mod error;
mod mel;
mod resample;
mod sound;

pub use error::Error;
pub use mel::{FrontEnd, LogMel, scale};
pub use resample::Resampler;
pub use sound::{Format, Sound};

/// Rounds to `f32`.
#[expect(clippy::cast_possible_truncation, reason = "rounding is what it is for")]
fn narrow(x: f64) -> f32 {
    x as f32
}
