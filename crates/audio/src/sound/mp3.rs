//! MPEG audio, decoded by nanomp3. Its reader needs a source that seeks, so this file has a buffer of its own, reads the
//! encoder's tag, and cuts the delay and padding that the tag names. Source of the tag: <http://gabriel.mp3-tech.org/mp3infotag.html>.

use std::io::Read;

use nanomp3::{DecodeError, Decoder, FrameInfo, MAX_SAMPLES_PER_FRAME, VbrTag, frames, strip_trailing_tags};

use crate::error::{Fault, malformed};

use super::{Decode, Header, Input, push_mean};

/// The bytes of the buffer.
const BUFFER: usize = 1 << 16;
/// The bytes that a decoder wants to see, so that it knows a frame by those that follow.
const WANTED: usize = 1 << 14;
/// The bytes to keep of a buffer without a frame: more than the longest frame has.
const KEPT: usize = 1 << 12;
/// The samples that a decoder adds at the start, beyond those of the encoder.
const DECODER_DELAY: u64 = 529;

struct Mp3 {
    input: Input,
    decoder: Decoder,
    buffer: Vec<u8>,
    /// The bytes of the buffer that were decoded, and those that were read.
    at: usize,
    filled: usize,
    ended: bool,
    rate: u32,
    /// The number of frames that the encoder wrote, if it says so.
    frames: Option<u64>,
    /// The number of frames so far, damaged ones included.
    seen: u64,
    /// Samples to leave out before the next.
    skip: u64,
    /// The latest samples, which are dropped at the end: the encoder's padding.
    held: Vec<f32>,
    padding: usize,
    damaged: u64,
}

/// Finds the first frame. If it has the encoder's tag instead of sound, it is not decoded.
pub(super) fn open(input: Input) -> Result<(Header, Box<dyn Decode>), Fault> {
    let mut mp3 = Mp3 {
        input,
        decoder: Decoder::new(),
        buffer: vec![0; BUFFER],
        at: 0,
        filled: 0,
        ended: false,
        rate: 0,
        frames: None,
        seen: 0,
        skip: 0,
        held: Vec::new(),
        padding: 0,
        damaged: 0,
    };
    mp3.fill()?;
    let Some(first) = frames(mp3.buffer.get(..mp3.filled).unwrap_or_default()).next() else {
        return malformed(format!("no frame in the first {} bytes", mp3.filled));
    };
    let mut header =
        Header { rate: first.sample_rate, channels: first.channels.num().into(), samples: None }.checked()?;
    mp3.rate = first.sample_rate;
    if let Some(tag) = VbrTag::parse(first.data) {
        let (delay, padding) = tag.encoder_delay_padding.map_or((0, 0), |(delay, padding)| {
            (u64::from(delay) + DECODER_DELAY, u64::from(padding).saturating_sub(DECODER_DELAY))
        });
        mp3.frames = tag.frames.map(u64::from).filter(|&frames| frames != 0);
        mp3.skip = delay;
        mp3.padding = usize::try_from(padding).unwrap_or(0);
        header.samples =
            mp3.frames.map(|frames| (frames * first.samples as u64).saturating_sub(delay + padding));
        mp3.at = first.offset + first.data.len();
    }
    Ok((header, Box::new(mp3)))
}

impl Mp3 {
    /// Reads until the buffer is full, or the file ends.
    fn fill(&mut self) -> Result<(), Fault> {
        self.buffer.copy_within(self.at..self.filled, 0);
        self.filled -= self.at;
        self.at = 0;
        while !self.ended && self.filled < BUFFER {
            match self.input.read(self.buffer.get_mut(self.filled..).unwrap_or_default())? {
                0 => {
                    self.ended = true;
                    // A frame that is not followed by another, but by a tag, would not be taken for one.
                    self.filled =
                        strip_trailing_tags(self.buffer.get(..self.filled).unwrap_or_default()).len();
                }
                bytes => self.filled += bytes,
            }
        }
        Ok(())
    }

    /// Checks a frame's rate. Channels may change: they are mixed.
    fn check(&mut self, info: &FrameInfo) -> Result<(), Fault> {
        self.seen += 1;
        // Free format: encoders do not write it, and four bytes of noise can be one of its frames.
        if info.bitrate == 0 {
            return Err(Fault::Unsupported("MP3 of free format, which has no bitrate".to_owned()));
        }
        if info.sample_rate != self.rate {
            return malformed(format!("the rate changes from {} to {} Hz", self.rate, info.sample_rate));
        }
        Ok(())
    }

    /// Appends samples, without the encoder's delay, and holds its padding back.
    fn push(&mut self, samples: &[f32], out: &mut Vec<f32>) {
        let skipped = samples.len().min(usize::try_from(self.skip).unwrap_or(usize::MAX));
        self.skip -= skipped as u64;
        self.held.extend_from_slice(samples.get(skipped..).unwrap_or_default());
        let ready = self.held.len().saturating_sub(self.padding);
        out.extend(self.held.drain(..ready));
    }

    /// Appends silence for a frame that cannot be decoded, so that what follows keeps its time.
    fn push_silence(&mut self, info: &FrameInfo, out: &mut Vec<f32>) {
        let samples = match info.layer {
            1 => 384,
            3 if info.sample_rate < 32_000 => 576,
            _ => 1_152,
        };
        self.damaged += samples as u64;
        self.push(&vec![0.0; samples], out);
    }

    /// Ends the sound: drops the padding of the encoder if all its frames were there.
    fn end(&mut self, left: usize, out: &mut Vec<f32>) -> Result<bool, Fault> {
        // Encoders disagree whether the frame of the tag counts.
        let missing = self.frames.is_some_and(|frames| self.seen + 1 < frames);
        let tail = self.buffer.get(self.filled - left..self.filled).unwrap_or_default();
        // The start of a frame, where the one before ended.
        let cut = matches!(tail, [0xff, second, third, ..] if second & 0xe0 == 0xe0 && second & 6 != 0 && third & 0xf0 != 0xf0);
        if missing || cut {
            out.append(&mut self.held);
            return Err(Fault::Truncated);
        }
        Ok(false)
    }
}

impl Decode for Mp3 {
    fn next(&mut self, out: &mut Vec<f32>) -> Result<bool, Fault> {
        if self.filled - self.at < WANTED && !self.ended {
            self.fill()?;
        }
        let left = self.filled - self.at;
        if left == 0 {
            return self.end(0, out);
        }
        let mut samples = [0.0_f32; MAX_SAMPLES_PER_FRAME];
        let unread = self.buffer.get(self.at..self.filled).unwrap_or_default();
        let (consumed, result) = self.decoder.decode(unread, &mut samples);
        let consumed = consumed.min(left);
        match result {
            Ok(info) => {
                self.at += consumed;
                self.check(&info)?;
                let channels = usize::from(info.channels.num());
                let mut mono = Vec::with_capacity(info.samples_produced);
                for frame in samples.chunks_exact(channels).take(info.samples_produced) {
                    let sum = frame.iter().map(|&x| f64::from(x)).sum();
                    push_mean(sum, channels as f64, &mut mono)?;
                }
                self.push(&mono, out);
                Ok(true)
            }
            // No sound yet: the file was cut out of a longer one, and its first frames need bits that are not there.
            Err(DecodeError::ReservoirUnavailable(info)) if self.seen == 0 => {
                self.at += consumed;
                self.check(&info)?;
                self.seen = 0;
                Ok(true)
            }
            Err(DecodeError::ReservoirUnavailable(info) | DecodeError::Corrupt(info)) => {
                self.at += consumed;
                self.check(&info)?;
                self.push_silence(&info, out);
                Ok(true)
            }
            Err(_) if self.ended => self.end(left, out),
            Err(_) => {
                // A tag or other bytes between frames. The last of them may be the start of a frame.
                self.at += left.saturating_sub(KEPT);
                self.fill()?;
                Ok(true)
            }
        }
    }

    fn damaged(&self) -> u64 {
        self.damaged
    }
}
