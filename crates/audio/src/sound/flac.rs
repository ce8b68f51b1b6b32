//! FLAC, decoded by claxon. Source of the header's layout: RFC 9639, section 8.

use std::io::{self, Read};

use claxon::frame::{Block, FrameReader};
use claxon::input::BufferedReader;

use crate::error::{Fault, malformed};

use super::{Decode, Header, Input, push_mean};

struct Flac {
    frames: FrameReader<BufferedReader<Input>>,
    channels: u32,
    /// The value of a sample at full scale.
    scale: f64,
    /// The samples of a channel that are left; `None` if only the end of the file tells.
    left: Option<u64>,
    /// The memory of the last block.
    buffer: Vec<i32>,
}

/// Reads STREAMINFO, and skips other metadata, which may hold pictures of any size.
pub(super) fn open(mut input: Input) -> Result<(Header, Box<dyn Decode>), Fault> {
    let mut start = [0; 8 + 34];
    input.read_exact(&mut start)?;
    let Some((&[b'f', b'L', b'a', b'C', kind, 0, 0, 34], info)) = start.split_first_chunk::<8>() else {
        return malformed("it does not begin with STREAMINFO");
    };
    if kind & 0x7f != 0 {
        return malformed("it does not begin with STREAMINFO");
    }
    let mut last = kind & 0x80 != 0;
    while !last {
        let mut block = [0; 4];
        input.read_exact(&mut block)?;
        let [kind, a, b, c] = block;
        last = kind & 0x80 != 0;
        let bytes = u64::from(u32::from_be_bytes([0, a, b, c]));
        if io::copy(&mut input.by_ref().take(bytes), &mut io::sink())? != bytes {
            return Err(Fault::Truncated);
        }
    }
    // Bits from byte 10: 20 of the rate, 3 of the channels less one, 5 of the bits less one, 36 of the length.
    let word =
        info.get(10..).and_then(|rest| rest.first_chunk::<8>()).map_or(0, |&bytes| u64::from_be_bytes(bytes));
    let field = |shift: u32, bits: u32| u32::try_from(word >> shift & ((1 << bits) - 1)).unwrap_or(u32::MAX);
    let (rate, channels, bits) = (field(44, 20), field(41, 3) + 1, field(36, 5) + 1);
    let samples = Some(word & ((1 << 36) - 1)).filter(|&samples| samples != 0);
    if bits > 24 {
        return Err(Fault::Unsupported(format!("FLAC of {bits} bits")));
    }
    let header = Header { rate, channels, samples }.checked()?;
    let flac = Flac {
        frames: FrameReader::new(BufferedReader::new(input)),
        channels,
        scale: f64::from(bits - 1).exp2(),
        left: samples,
        buffer: Vec::new(),
    };
    Ok((header, Box::new(flac)))
}

fn fault(error: claxon::Error) -> Fault {
    match error {
        claxon::Error::IoError(error) => error.into(),
        claxon::Error::FormatError(what) => Fault::Malformed(what.to_owned()),
        claxon::Error::Unsupported(what) => Fault::Unsupported(format!("FLAC with this feature: {what}")),
    }
}

impl Flac {
    fn push(&mut self, block: &Block, out: &mut Vec<f32>) -> Result<(), Fault> {
        if block.channels() != self.channels {
            let (was, is) = (self.channels, block.channels());
            return malformed(format!("the number of channels changes from {was} to {is}"));
        }
        let count = u64::from(block.duration());
        for at in 0..block.duration() {
            let sum: f64 = (0..self.channels).map(|channel| f64::from(block.sample(channel, at))).sum();
            push_mean(sum / self.scale, f64::from(self.channels), out)?;
        }
        if let Some(left) = &mut self.left {
            let Some(rest) = left.checked_sub(count) else {
                return malformed("it has more samples than its header says");
            };
            *left = rest;
        }
        Ok(())
    }
}

impl Decode for Flac {
    fn next(&mut self, out: &mut Vec<f32>) -> Result<bool, Fault> {
        // Tags may follow.
        if self.left == Some(0) {
            return Ok(false);
        }
        match self.frames.read_next_or_eof(std::mem::take(&mut self.buffer)).map_err(fault)? {
            Some(block) => {
                self.push(&block, out)?;
                self.buffer = block.into_buffer();
                Ok(true)
            }
            None if self.left.is_some() => Err(Fault::Truncated),
            None => Ok(false),
        }
    }
}
