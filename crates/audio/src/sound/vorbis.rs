//! Vorbis in Ogg, decoded by lewton. Source: "Vorbis I specification" (Xiph.Org, 2020).

use lewton::audio::{PreviousWindowRight, read_audio_packet_generic};
use lewton::header::{IdentHeader, SetupHeader, read_header_ident, read_header_setup};

use crate::error::{Fault, malformed};

use super::ogg::{Page, Pages};
use super::{Decode, Header, Input, push_planes};

/// The most bytes of a packet. Encoders write some thousand.
const MAX_PACKET: usize = 1 << 20;
/// The most channels: those whose places the specification names.
const MAX_CHANNELS: u8 = 8;
/// The most entries of all codebooks together. libvorbis has some ten thousand.
const MAX_ENTRIES: u64 = 1 << 17;
/// The most values of all codebooks together: entries, each with its dimensions.
const MAX_VALUES: u64 = 1 << 21;

/// Other codecs in Ogg, by the start of their first packet.
const REFUSED: &[(&[u8], &str)] = &[
    (b"OpusHead", "Opus in ogg"),
    (b"\x7fFLAC", "FLAC in ogg"),
    (b"Speex   ", "Speex in ogg"),
    (b"\x80theora", "Theora (a video without Vorbis) in ogg"),
];

/// The part of the stream that is read now.
enum Stage {
    /// The comment packet, which is skipped.
    Comments,
    /// The setup packet: codebooks, floors, residues.
    Setup,
    Audio {
        setup: Box<SetupHeader>,
        window: PreviousWindowRight,
    },
    /// After the last page of the stream.
    Ended,
}

/// One stream of Vorbis. Others may follow it in the file.
struct Stream {
    serial: u32,
    /// The number of the next page.
    sequence: u32,
    ident: IdentHeader,
    stage: Stage,
    /// The part of the next packet that was read.
    packet: Vec<u8>,
    /// True if the next packet began on a page before.
    open: bool,
    /// The number of samples so far.
    decoded: u64,
    /// The position of the first sample: 0, unless the stream was cut out of a longer one. The first page of sound tells.
    offset: Option<u64>,
}

struct Vorbis {
    pages: Pages,
    stream: Stream,
    /// Samples of the page.
    block: Vec<f32>,
}

pub(super) fn open(input: Input) -> Result<(Header, Box<dyn Decode>), Fault> {
    let mut pages = Pages::new(input);
    let mut other = None;
    let mut stream = loop {
        let Some(page) = pages.next()? else { return Err(refusal(other)) };
        if !page.first {
            return Err(refusal(other));
        }
        match Stream::start(&page)? {
            Some(stream) => break stream,
            None => other = other.or_else(|| named(&page)),
        }
    };
    let channels = u32::from(stream.ident.audio_channels);
    let header = Header { rate: stream.ident.audio_sample_rate, channels, samples: None }.checked()?;
    let mut block = Vec::new();
    while !matches!(stream.stage, Stage::Audio { .. }) {
        let Some(page) = pages.next()? else { return Err(Fault::Truncated) };
        // All streams of a file begin together. Other codecs are skipped.
        if page.serial == stream.serial {
            stream.page(&page, &mut block)?;
        }
        if matches!(stream.stage, Stage::Ended) {
            return Err(Fault::Truncated);
        }
    }
    Ok((header, Box::new(Vorbis { pages, stream, block })))
}

/// Returns the name of a stream that is not Vorbis.
fn named(page: &Page) -> Option<&'static str> {
    let parts = page.parts();
    let (packet, _) = parts.first()?;
    REFUSED.iter().find(|(start, _)| packet.starts_with(start)).map(|(_, name)| *name)
}

fn refusal(other: Option<&'static str>) -> Fault {
    match other {
        Some(name) => Fault::Unsupported(name.to_owned()),
        None => Fault::Malformed("no stream of Vorbis".to_owned()),
    }
}

impl Stream {
    /// Begins with the first page, if it is one of Vorbis.
    fn start(page: &Page) -> Result<Option<Stream>, Fault> {
        let parts = page.parts();
        let Some((packet, true)) = parts.first() else { return Ok(None) };
        if !packet.starts_with(b"\x01vorbis") {
            return Ok(None);
        }
        let ident = read_header_ident(packet).map_err(|error| Fault::Malformed(error.to_string()))?;
        if ident.audio_channels > MAX_CHANNELS {
            return malformed(format!("{} channels: wanted 1 to {MAX_CHANNELS}", ident.audio_channels));
        }
        Ok(Some(Stream {
            serial: page.serial,
            sequence: page.sequence.wrapping_add(1),
            ident,
            stage: Stage::Comments,
            packet: Vec::new(),
            open: false,
            decoded: 0,
            offset: None,
        }))
    }

    /// Reads a page of this stream, and appends its samples.
    fn page(&mut self, page: &Page, out: &mut Vec<f32>) -> Result<(), Fault> {
        if page.sequence != self.sequence {
            return malformed(format!("page {} comes where {} should", page.sequence, self.sequence));
        }
        self.sequence = self.sequence.wrapping_add(1);
        if page.continued != self.open {
            return malformed(format!("page {} does not continue the one before", page.sequence));
        }
        let before = out.len();
        for (part, ends) in page.parts() {
            // Comments may hold pictures of any size.
            let keeps = !matches!(self.stage, Stage::Comments);
            if keeps && self.packet.len() + part.len() > MAX_PACKET {
                return malformed(format!("a packet of more than {MAX_PACKET} bytes"));
            }
            if keeps {
                self.packet.extend_from_slice(part);
            }
            self.open = !ends;
            if ends {
                let packet = std::mem::take(&mut self.packet);
                self.packet(&packet, out)?;
                self.packet = packet;
                self.packet.clear();
            }
        }
        self.place(page, before, out);
        if page.last {
            self.stage = Stage::Ended;
        }
        Ok(())
    }

    /// Cuts samples outside the sound, as the pages' positions say: the last block mostly reaches past the end, and the first may begin
    /// before the start. Section A.2 of the specification.
    fn place(&mut self, page: &Page, before: usize, out: &mut Vec<f32>) {
        let decoded = (out.len() - before) as u64;
        self.decoded += decoded;
        let Some(granule) = page.granule.filter(|_| decoded > 0) else { return };
        // Positions count to the middle of a block; lewton returns a long block further if a short one follows.
        let ahead = ((1 << self.ident.blocksize_1) - (1 << self.ident.blocksize_0)) / 4;
        let offset = match self.offset {
            Some(offset) => offset,
            None if page.last || granule.abs_diff(self.decoded) <= ahead => 0,
            None => {
                // Positions that begin below zero: samples before zero are cut.
                let early = self.decoded.saturating_sub(granule);
                out.drain(before..before + usize::try_from(early.min(decoded)).unwrap_or(0));
                self.decoded -= early.min(decoded);
                granule.saturating_sub(self.decoded)
            }
        };
        self.offset = Some(offset);
        if page.last {
            let excess = offset.saturating_add(self.decoded).saturating_sub(granule);
            let room = out.len() - before;
            out.truncate(out.len() - usize::try_from(excess).unwrap_or(room).min(room));
        }
    }

    fn packet(&mut self, packet: &[u8], out: &mut Vec<f32>) -> Result<(), Fault> {
        match &mut self.stage {
            Stage::Comments => self.stage = Stage::Setup,
            Stage::Setup => {
                check_setup(packet)?;
                let sizes = (self.ident.blocksize_0, self.ident.blocksize_1);
                let setup = read_header_setup(packet, self.ident.audio_channels, sizes)
                    .map_err(|error| Fault::Malformed(error.to_string()))?;
                self.stage = Stage::Audio { setup: Box::new(setup), window: PreviousWindowRight::new() };
            }
            // Some encoders write empty packets. They have no samples.
            Stage::Audio { .. } if packet.is_empty() => {}
            Stage::Audio { setup, window } => {
                let planes: Vec<Vec<f32>> = read_audio_packet_generic(&self.ident, setup, packet, window)
                    .map_err(|error| Fault::Malformed(error.to_string()))?;
                push_planes(&planes, out)?;
            }
            Stage::Ended => {}
        }
        Ok(())
    }
}

impl Decode for Vorbis {
    fn next(&mut self, out: &mut Vec<f32>) -> Result<bool, Fault> {
        out.append(&mut self.block);
        let Some(page) = self.pages.next()? else {
            return match self.stream.stage {
                Stage::Ended => Ok(false),
                _ => Err(Fault::Truncated),
            };
        };
        if matches!(self.stream.stage, Stage::Ended) {
            // Another sound may follow, with other codebooks.
            if page.first
                && let Some(next) = Stream::start(&page)?
            {
                let (was, is) = (self.stream.ident.audio_sample_rate, next.ident.audio_sample_rate);
                if is != was {
                    return malformed(format!("the rate changes from {was} to {is} Hz"));
                }
                self.stream = next;
            }
        } else if page.serial == self.stream.serial {
            self.stream.page(&page, out)?;
        }
        Ok(true)
    }
}

/// Checks the sizes of the codebooks before lewton reads them: lewton allocates as much as they say, which may be terabytes.
///
/// Source: section 3.2.1 of the specification.
fn check_setup(packet: &[u8]) -> Result<(), Fault> {
    let mut bits = Bits { bytes: packet, at: 0 };
    let (entries, values) =
        codebooks(&mut bits).ok_or(Fault::Malformed("it has broken codebooks".to_owned()))?;
    if entries > MAX_ENTRIES || values > MAX_VALUES {
        return malformed(format!(
            "codebooks of {entries} entries and {values} values: wanted {MAX_ENTRIES} and {MAX_VALUES} at most"
        ));
    }
    Ok(())
}

/// Returns the number of entries and values. Stops early once they are too many.
fn codebooks(bits: &mut Bits) -> Option<(u64, u64)> {
    bits.skip(7 * 8)?;
    let (mut all_entries, mut all_values) = (0, 0);
    for _ in 0..=bits.read(8)? {
        if bits.read(24)? != 0x56_4342 {
            return None;
        }
        let dimensions = bits.read(16)?;
        let entries = bits.read(24)?;
        // A book without dimensions has no values, and a loop that counts by them would not end.
        if dimensions == 0 {
            return None;
        }
        all_entries += entries;
        all_values += entries * dimensions;
        if all_entries > MAX_ENTRIES || all_values > MAX_VALUES {
            break;
        }
        if bits.read(1)? == 1 {
            bits.skip(5)?;
            let mut entry = 0;
            while entry < entries {
                entry += bits.read(u64::BITS - (entries - entry).leading_zeros())?;
            }
            if entry > entries {
                return None;
            }
        } else {
            let sparse = bits.read(1)? == 1;
            for _ in 0..entries {
                if !sparse || bits.read(1)? == 1 {
                    bits.skip(5)?;
                }
            }
        }
        let lookup = bits.read(4)?;
        if lookup > 2 {
            return None;
        }
        if lookup > 0 {
            bits.skip(64)?;
            let width = bits.read(4)? + 1;
            bits.skip(1)?;
            let count = if lookup == 1 { root(entries, dimensions) } else { entries * dimensions };
            bits.skip(usize::try_from(count * width).ok()?)?;
        }
    }
    Some((all_entries, all_values))
}

/// Returns the greatest number whose power of `dimensions` is at most `entries`. Section 9.2.3 of the specification.
fn root(entries: u64, dimensions: u64) -> u64 {
    let exponent = u32::try_from(dimensions).unwrap_or(u32::MAX);
    let fits = |root: &u64| root.checked_pow(exponent).is_some_and(|power| power <= entries);
    (1..=entries).take_while(fits).last().unwrap_or(0)
}

/// Reads numbers of some bits, the lowest first.
struct Bits<'a> {
    bytes: &'a [u8],
    /// The number of bits that were read.
    at: usize,
}

impl Bits<'_> {
    fn skip(&mut self, bits: usize) -> Option<()> {
        self.at = self.at.checked_add(bits).filter(|&at| at <= self.bytes.len() * 8)?;
        Some(())
    }

    fn read(&mut self, bits: u32) -> Option<u64> {
        let mut value = 0;
        for shift in 0..bits {
            let byte = self.bytes.get(self.at / 8)?;
            value |= u64::from(byte >> (self.at % 8) & 1) << shift;
            self.at += 1;
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Version 0, 2 channels, 48 kHz, no bit rates, blocks of 256 and 2048.
    const IDENT: &[u8] = b"\x01vorbis\0\0\0\0\x02\x80\xbb\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xb8\x01";

    /// Pages of as many samples as given, with the position that they claim. Returns the number of samples that are left.
    fn left(pages: &[(usize, u64)]) -> (usize, f32) {
        let mut stream = Stream::start(&Page::of(IDENT)).unwrap().unwrap();
        let mut out = Vec::new();
        for (n, &(samples, granule)) in pages.iter().enumerate() {
            let before = out.len();
            // A sample is its number on the page.
            out.extend((0..samples).map(|n| n as f32));
            let mut page = Page::default();
            (page.granule, page.last) = (Some(granule), n + 1 == pages.len());
            stream.place(&page, before, &mut out);
        }
        (out.len(), out[0])
    }

    #[test]
    fn the_end_is_cut_where_the_last_page_says() {
        assert_eq!(left(&[(5_120, 5_120), (3_584, 8_640)]), (8_640, 0.0));
        // One page is the first and the last.
        assert_eq!(left(&[(2_048, 1_000)]), (1_000, 0.0));
        // More than the page has cannot be cut.
        assert_eq!(left(&[(5_120, 5_120), (100, 0)]), (5_120, 0.0));
    }

    /// lewton returns up to 448 samples more than a page counts, and fewer on the next.
    #[test]
    fn positions_that_lag() {
        assert_eq!(left(&[(5_568, 5_120), (5_568, 10_688), (3_136, 14_208)]), (14_208, 0.0));
    }

    #[test]
    fn the_start_is_cut_where_positions_begin_below_zero() {
        assert_eq!(left(&[(5_120, 4_120), (1_024, 5_144)]), (5_144, 1_000.0));
    }

    /// Positions of a stream that was cut out of a longer one begin anywhere.
    #[test]
    fn positions_that_begin_later() {
        assert_eq!(left(&[(5_120, 1_005_120), (1_024, 1_006_044)]), (6_044, 0.0));
        assert_eq!(left(&[(5_120, u64::MAX - 1), (1_024, u64::MAX - 1)]), (6_143, 0.0));
    }
}
