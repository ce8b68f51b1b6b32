//! Sound files to blocks of mono samples.

mod flac;
mod mp3;
mod ogg;
mod sniff;
mod vorbis;
mod wav;

use std::fmt;
use std::io::{self, BufReader, Chain, Cursor, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, Fault};
use crate::narrow;

/// A format of sound files that is read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// RIFF WAVE, RF64 included: PCM of 8, 16, 24 and 32 bits, and floats of 32 and 64 bits.
    Wav,
    /// FLAC.
    Flac,
    /// Vorbis in Ogg.
    Vorbis,
    /// MPEG audio: MP3, MP2 and MP1.
    Mp3,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Wav => "wav",
            Format::Flac => "flac",
            Format::Vorbis => "ogg vorbis",
            Format::Mp3 => "mp3",
        })
    }
}

/// The bytes of a file: the first ones, which told the format, then the rest.
type Input = BufReader<Chain<Cursor<Vec<u8>>, Steady>>;

/// A source that is read again after a signal interrupted it, since not every decoder does that.
struct Steady(Box<dyn Read + Send>);

impl Read for Steady {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

/// The most channels of a sound. Common microphone arrays have fewer.
const MAX_CHANNELS: u32 = 64;
/// The rates of a sound, in Hz.
const RATES: std::ops::RangeInclusive<u32> = 1_000..=768_000;

/// The header of a file.
#[derive(Clone, Copy, Debug)]
struct Header {
    /// Samples of a channel per second.
    rate: u32,
    /// The number of channels.
    channels: u32,
    /// The number of samples of a channel, if the header says.
    samples: Option<u64>,
}

impl Header {
    /// Checks that rate and channels are those of a sound.
    fn checked(self) -> Result<Header, Fault> {
        if !RATES.contains(&self.rate) {
            let (low, high) = RATES.into_inner();
            let what = format!("a rate of {} Hz: wanted {low} to {high} Hz", self.rate);
            return Err(Fault::Malformed(what));
        }
        if !(1..=MAX_CHANNELS).contains(&self.channels) {
            let what = format!("{} channels: wanted 1 to {MAX_CHANNELS}", self.channels);
            return Err(Fault::Malformed(what));
        }
        Ok(self)
    }
}

/// Decodes one format.
trait Decode: Send {
    /// Appends the mono samples of the next block, or returns `false` at the end.
    ///
    /// A block that has no samples is fine: it is not the end.
    fn next(&mut self, out: &mut Vec<f32>) -> Result<bool, Fault>;

    /// The number of samples that were lost to damage, and replaced by silence.
    fn damaged(&self) -> u64 {
        0
    }
}

/// A sound file that is being read, from its start to its end.
///
/// Channels are mixed to one by their mean. Samples are in `[-1, 1]`: louder ones, which floats, MP3 and Vorbis can hold, are
/// clipped, as a sound card does.
///
/// Files may be hostile. No number in them decides how much memory is allocated. If a file makes a decoder panic, the panic is caught
/// and returned as an error; the panic hook still runs. A small file can hold a long sound: a dozen bytes of FLAC are a second of
/// silence. If you read files of strangers, set a limit on [`Sound::read_seconds`].
pub struct Sound {
    format: Format,
    header: Header,
    /// `None` after the end and after an error.
    decoder: Option<Box<dyn Decode>>,
    /// The number of samples that were returned.
    read: u64,
    /// The number of samples that were lost to damage.
    damaged: u64,
}

impl fmt::Debug for Sound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sound")
            .field("format", &self.format)
            .field("header", &self.header)
            .field("read", &self.read)
            .finish_non_exhaustive()
    }
}

impl Sound {
    /// Reads the header of a sound file. Its first bytes tell the format; the source need not seek, so a pipe will do.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] and [`Error::Unsupported`] if the format is not read here, [`Error::Malformed`] and
    /// [`Error::Truncated`] if the header is damaged, and [`Error::Io`].
    pub fn open(source: Box<dyn Read + Send>) -> Result<Sound, Error> {
        let (format, input) = sniff::sniff(Steady(source))?;
        let opened = guarded(|| match format {
            Format::Wav => wav::open(input),
            Format::Flac => flac::open(input),
            Format::Vorbis => vorbis::open(input),
            Format::Mp3 => mp3::open(input),
        });
        let (header, decoder) = opened.map_err(|fault| fault.at(format, 0.0))?;
        Ok(Sound { format, header, decoder: Some(decoder), read: 0, damaged: 0 })
    }

    /// The format of the file.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Samples per second of each channel, in Hz.
    pub fn rate(&self) -> u32 {
        self.header.rate
    }

    /// The number of channels in the file, before they are mixed.
    pub fn channels(&self) -> u32 {
        self.header.channels
    }

    /// The length in seconds, if the header says. Do not trust it: a damaged header says anything.
    pub fn seconds(&self) -> Option<f64> {
        self.header.samples.map(|samples| samples as f64 / f64::from(self.header.rate))
    }

    /// The length in seconds of what was read so far.
    pub fn read_seconds(&self) -> f64 {
        self.read as f64 / f64::from(self.header.rate)
    }

    /// The length in seconds of what was read so far and is silence because the file is damaged there.
    ///
    /// Only MP3 has it: its frames have no checksums, and its players go on after a damaged one. Other formats end with an error.
    pub fn damaged_seconds(&self) -> f64 {
        self.damaged as f64 / f64::from(self.header.rate)
    }

    /// Appends the mono samples of the next block to `out`. Returns whether more may follow: `false` at the end.
    ///
    /// A block usually has some thousand samples, and at most two million.
    ///
    /// # Errors
    ///
    /// [`Error::Truncated`], [`Error::Malformed`], [`Error::NotFinite`] and [`Error::Io`]. The samples before the fault are in
    /// `out`, and good. The next call returns `false`.
    pub fn read(&mut self, out: &mut Vec<f32>) -> Result<bool, Error> {
        let Some(decoder) = &mut self.decoder else { return Ok(false) };
        let before = out.len();
        let result = guarded(|| decoder.next(out));
        self.damaged = decoder.damaged();
        self.read += (out.len() - before) as u64;
        if !matches!(result, Ok(true)) {
            self.decoder = None;
        }
        result.map_err(|fault| fault.at(self.format, self.read_seconds()))
    }
}

/// Runs a decoder, and turns its panic into a fault.
///
/// The decoders of Vorbis, FLAC and MP3 are not ours, and they index by what a file says: lewton multiplies channels by the length of
/// a block in 16 bits (`residue_packet_decode`), which 8 channels and blocks of 8192 overflow. A server must survive such a file.
/// Nothing broken is seen after a panic: the decoder is dropped, and `out` has whole samples only.
fn guarded<T>(run: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|_| Err(Fault::Malformed("the decoder cannot make sense of it".to_owned())))
}

/// Appends the mean of the channels of a frame: `sum / channels`, clipped to `[-1, 1]`.
fn push_mean(sum: f64, channels: f64, out: &mut Vec<f32>) -> Result<(), Fault> {
    // Finite `f32`s cannot sum to more than an `f64` holds, and no sum brings an infinity back.
    if !sum.is_finite() {
        return Err(Fault::NotFinite);
    }
    out.push(narrow((sum / channels).clamp(-1.0, 1.0)));
    Ok(())
}

/// Appends the mean of channels that are stored one after the other. The shortest ends the block.
fn push_planes(planes: &[Vec<f32>], out: &mut Vec<f32>) -> Result<(), Fault> {
    let samples = planes.iter().map(Vec::len).min().unwrap_or(0);
    let channels = planes.len() as f64;
    for at in 0..samples {
        let sum = planes.iter().filter_map(|plane| plane.get(at)).map(|&x| f64::from(x)).sum();
        push_mean(sum, channels, out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error() {
        let result = guarded::<()>(|| panic!("as lewton may"));
        assert!(
            matches!(result, Err(Fault::Malformed(what)) if what == "the decoder cannot make sense of it")
        );
    }
}
