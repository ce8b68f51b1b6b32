//! RIFF WAVE. Source: "Multimedia Programming Interface and Data Specifications 1.0" (Microsoft and IBM, 1991), and for RF64 and
//! BW64, EBU Tech 3306 and ITU-R BS.2088.
//!
//! It is read here rather than by a library: hound 3.5 refuses the length that ffmpeg writes into pipes, 64-bit floats and RF64.

use std::io::{self, Read};

use crate::error::{Fault, malformed};

use super::{Decode, Header, Input, push_mean};

/// Lengths of data that mean "unknown": ffmpeg, sox, arecord and others write them into pipes.
const UNKNOWN: [u32; 4] = [u32::MAX, 0x7fff_f000, 0x8000_0000, i32::MAX.unsigned_abs()];

/// From here on, the length of a file may be such a length plus the header.
const PLAUSIBLE: u32 = 0x7fff_0000;

/// The bytes of a block.
const BLOCK: usize = 1 << 15;

/// How a sample is stored. Little-endian.
#[derive(Clone, Copy)]
enum Sample {
    U8,
    I16,
    I24,
    I32,
    F32,
    F64,
}

impl Sample {
    fn bytes(self) -> usize {
        match self {
            Sample::U8 => 1,
            Sample::I16 => 2,
            Sample::I24 => 3,
            Sample::I32 | Sample::F32 => 4,
            Sample::F64 => 8,
        }
    }

    /// Returns the sum of the channels of a frame, where full scale is 1.
    fn sum(self, frame: &[u8]) -> f64 {
        match self {
            Sample::U8 => frame.iter().map(|&x| (f64::from(x) - 128.0) / 128.0).sum(),
            Sample::I16 => {
                frame.as_chunks().0.iter().map(|&x| f64::from(i16::from_le_bytes(x)) / 32_768.0).sum()
            }
            Sample::I24 => {
                let whole =
                    |&[a, b, c]: &[u8; 3]| f64::from(i32::from_le_bytes([0, a, b, c])) / 2_147_483_648.0;
                frame.as_chunks().0.iter().map(whole).sum()
            }
            Sample::I32 => {
                frame.as_chunks().0.iter().map(|&x| f64::from(i32::from_le_bytes(x)) / 2_147_483_648.0).sum()
            }
            Sample::F32 => frame.as_chunks().0.iter().map(|&x| f64::from(f32::from_le_bytes(x))).sum(),
            Sample::F64 => frame.as_chunks().0.iter().map(|&x| f64::from_le_bytes(x)).sum(),
        }
    }
}

/// The chunk `fmt `.
#[derive(Clone, Copy)]
struct Layout {
    rate: u32,
    channels: u16,
    sample: Sample,
}

struct Wav {
    input: Input,
    sample: Sample,
    channels: f64,
    /// The bytes of a frame: a sample of each channel.
    frame: usize,
    /// The bytes that are left; `None` if only the end of the file tells.
    left: Option<u64>,
    block: Vec<u8>,
}

/// Reads all chunks before the samples.
pub(super) fn open(mut input: Input) -> Result<(Header, Box<dyn Decode>), Fault> {
    let [a, b, c, d, riff @ .., _, _, _, _] = array::<12>(&mut input)?;
    let wide = [a, b, c, d] != *b"RIFF";
    let riff = u32::from_le_bytes(riff);
    // The bytes of the file before the chunk.
    let mut at = 12_u64;
    let (mut layout, mut wide_data) = (None, None);
    loop {
        let [a, b, c, d, length @ ..] = array::<8>(&mut input)?;
        let length = u32::from_le_bytes(length);
        let mut unread = u64::from(length) + u64::from(length & 1);
        at = at.saturating_add(8).saturating_add(unread);
        match &[a, b, c, d] {
            b"fmt " => layout = Some(read_format(&mut input, length, &mut unread)?),
            b"ds64" if wide && length >= 16 => {
                let sizes = array::<16>(&mut input)?;
                wide_data = sizes.last_chunk::<8>().map(|&size| u64::from_le_bytes(size));
                unread -= 16;
            }
            b"data" => {
                let Some(layout) = layout else { return malformed("samples come before the chunk `fmt `") };
                let left = match length {
                    u32::MAX if wide => wide_data.filter(|&size| size != 0 && size != u64::MAX),
                    // Other chunks follow, so there are no samples.
                    0 if riff < PLAUSIBLE && u64::from(riff) + 8 > at => Some(0),
                    0 => None,
                    length if UNKNOWN.contains(&length) => None,
                    length => Some(u64::from(length)),
                };
                return start(input, layout, left);
            }
            _ => {}
        }
        let skipped = io::copy(&mut input.by_ref().take(unread), &mut io::sink())?;
        if skipped != unread {
            return Err(Fault::Truncated);
        }
    }
}

fn start(input: Input, layout: Layout, left: Option<u64>) -> Result<(Header, Box<dyn Decode>), Fault> {
    let Layout { rate, channels, sample } = layout;
    let frame = sample.bytes() * usize::from(channels);
    let samples = left.map(|bytes| bytes / (frame.max(1) as u64));
    let header = Header { rate, channels: channels.into(), samples }.checked()?;
    // Whole frames, so that a block begins where a frame does. A frame has at most 64 channels of 8 bytes.
    let left = samples.map(|samples| samples * frame as u64);
    let block = vec![0; (BLOCK / frame).max(1) * frame];
    Ok((header, Box::new(Wav { input, sample, channels: channels.into(), frame, left, block })))
}

/// Reads the chunk `fmt `, and subtracts what it read from `unread`.
fn read_format(input: &mut Input, length: u32, unread: &mut u64) -> Result<Layout, Fault> {
    if length < 16 {
        return malformed(format!("a chunk `fmt ` of {length} bytes: wanted 16 or more"));
    }
    let mut fields = Vec::with_capacity(40);
    *unread -= input.by_ref().take(u64::from(length.min(40))).read_to_end(&mut fields)? as u64;
    let at = |at: usize| {
        let bytes = fields.get(at..).and_then(|rest| rest.first_chunk::<2>());
        bytes.map(|&bytes| u16::from_le_bytes(bytes)).ok_or(Fault::Truncated)
    };
    let (mut tag, channels, frame, bits) = (at(0)?, at(2)?, at(12)?, at(14)?);
    let rate = u32::from(at(4)?) | u32::from(at(6)?) << 16;
    // WAVEFORMATEXTENSIBLE: the tag is the start of a GUID.
    if tag == 0xfffe {
        tag = at(24)?;
    }
    if channels == 0 || frame == 0 || frame % channels != 0 {
        return malformed(format!("frames of {frame} bytes for {channels} channels"));
    }
    // A sample of fewer bits than its bytes hold is in their upper bits.
    let sample = match (tag, frame / channels, bits) {
        (1, 1, 1..=8) => Sample::U8,
        (1, 2, 1..=16) => Sample::I16,
        (1, 3, 1..=24) => Sample::I24,
        (1, 4, 1..=32) => Sample::I32,
        (3, 4, 32) => Sample::F32,
        (3, 8, 64) => Sample::F64,
        (1, bytes, _) => return refused(&format!("PCM of {bits} bits in {bytes} bytes")),
        (3, bytes, _) => return refused(&format!("floats of {bits} bits in {bytes} bytes")),
        (2 | 0x11, ..) => return refused("ADPCM"),
        (6, ..) => return refused("A-law"),
        (7, ..) => return refused("mu-law"),
        (0x31, ..) => return refused("GSM 6.10"),
        (0x55, ..) => return refused("MP3"),
        (0xff | 0x1600 | 0x1610, ..) => return refused("AAC"),
        (tag, ..) => return refused(&format!("the encoding {tag:#06x}")),
    };
    Ok(Layout { rate, channels, sample })
}

fn refused<T>(what: &str) -> Result<T, Fault> {
    Err(Fault::Unsupported(format!("{what} in wav")))
}

fn array<const N: usize>(input: &mut Input) -> Result<[u8; N], Fault> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl Decode for Wav {
    fn next(&mut self, out: &mut Vec<f32>) -> Result<bool, Fault> {
        let size = self.block.len() as u64;
        let wanted = self.left.map_or(size, |left| left.min(size));
        let mut found = 0;
        while (found as u64) < wanted {
            let room = usize::try_from(wanted).ok().and_then(|wanted| self.block.get_mut(found..wanted));
            match self.input.read(room.unwrap_or_default())? {
                0 => break,
                bytes => found += bytes,
            }
        }
        // With no known end, a partial frame is dropped: the recorder was stopped there.
        for frame in self.block.get(..found).unwrap_or_default().chunks_exact(self.frame) {
            push_mean(self.sample.sum(frame), self.channels, out)?;
        }
        let short = (found as u64) < wanted;
        match &mut self.left {
            Some(_) if short => Err(Fault::Truncated),
            Some(left) => {
                *left -= found as u64;
                Ok(*left > 0)
            }
            None => Ok(!short),
        }
    }
}
