//! Pages of Ogg. Source: RFC 3533, section 6.
//!
//! Not the crate ogg: it wants a source that seeks, and a packet there may be as long as the file.

use std::io::{BufRead, Read};

use crate::error::{Fault, malformed};

use super::Input;

/// The bytes of a page before its segments.
const HEADER: usize = 27;

/// A page: parts of packets of one stream.
#[derive(Default)]
pub(super) struct Page {
    /// The first packet began on the page before.
    pub(super) continued: bool,
    /// The first page of its stream.
    pub(super) first: bool,
    /// The last page of its stream.
    pub(super) last: bool,
    /// The number of samples up to the last packet that ends on this page; `None` if none ends here.
    pub(super) granule: Option<u64>,
    /// The number of the stream.
    pub(super) serial: u32,
    /// The number of the page in its stream.
    pub(super) sequence: u32,
    /// The lengths of the segments. A packet ends with a segment shorter than 255 bytes.
    segments: Vec<u8>,
    body: Vec<u8>,
}

impl Page {
    /// A first page of one short packet.
    #[cfg(test)]
    pub(super) fn of(packet: &[u8]) -> Page {
        let segments = vec![u8::try_from(packet.len()).unwrap()];
        Page { first: true, segments, body: packet.to_vec(), ..Page::default() }
    }

    /// Returns the parts of packets on this page, and of each whether its packet ends here.
    pub(super) fn parts(&self) -> Vec<(&[u8], bool)> {
        let (mut parts, mut from, mut to) = (Vec::new(), 0, 0);
        for &length in &self.segments {
            to += usize::from(length);
            if length < 255 {
                parts.push((self.body.get(from..to).unwrap_or_default(), true));
                from = to;
            }
        }
        if self.segments.last() == Some(&255) {
            parts.push((self.body.get(from..to).unwrap_or_default(), false));
        }
        parts
    }
}

/// Reads pages.
pub(super) struct Pages {
    input: Input,
    /// The number of bytes that were read.
    at: u64,
    /// The checksum of each byte.
    checksums: [u32; 256],
}

impl Pages {
    pub(super) fn new(input: Input) -> Pages {
        let mut checksums = [0; 256];
        for (byte, checksum) in (0_u32..).zip(&mut checksums) {
            *checksum = (0..8).fold(byte << 24, |crc, _| {
                if crc & 0x8000_0000 != 0 { crc << 1 ^ 0x04c1_1db7 } else { crc << 1 }
            });
        }
        Pages { input, at: 0, checksums }
    }

    /// Returns the next page, or `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<Page>, Fault> {
        if self.input.fill_buf()?.is_empty() {
            return Ok(None);
        }
        let mut header = [0; HEADER];
        self.input.read_exact(&mut header)?;
        let [_, _, _, _, _, flags, .., count] = header;
        let halves = header.as_chunks::<2>().0;
        let half = |at: usize| halves.get(at).map_or(0, |&half| u32::from(u16::from_le_bytes(half)));
        let word = |at: usize| half(at) | half(at + 1) << 16;
        let granule = u64::from(word(3)) | u64::from(word(5)) << 32;
        let (serial, sequence, checksum) = (word(7), word(9), word(11));
        if !header.starts_with(b"OggS") {
            return malformed(format!("no page at byte {}", self.at));
        }
        let mut segments = vec![0; usize::from(count)];
        self.input.read_exact(&mut segments)?;
        let bytes = segments.iter().map(|&length| usize::from(length)).sum();
        // 255 * 255 bytes at most.
        let mut body = vec![0; bytes];
        self.input.read_exact(&mut body)?;

        let (before, after) = header.split_at(22);
        let zeros = [0; 4];
        let rest = after.get(4..).unwrap_or_default();
        let whole = before.iter().chain(&zeros).chain(rest).chain(&segments).chain(&body);
        if whole.fold(0, |crc, &byte| self.step(crc, byte)) != checksum {
            return malformed(format!("the page at byte {} has the wrong checksum", self.at));
        }
        self.at += (HEADER + segments.len() + body.len()) as u64;
        Ok(Some(Page {
            continued: flags & 1 != 0,
            first: flags & 2 != 0,
            last: flags & 4 != 0,
            granule: (granule != u64::MAX).then_some(granule),
            serial,
            sequence,
            segments,
            body,
        }))
    }

    fn step(&self, crc: u32, byte: u8) -> u32 {
        let [top, ..] = crc.to_be_bytes();
        crc << 8 ^ self.checksums.get(usize::from(top ^ byte)).copied().unwrap_or(0)
    }
}
