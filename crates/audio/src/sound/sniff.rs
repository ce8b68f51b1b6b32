//! The format of a file, by its first bytes.

use std::io::{self, BufReader, Cursor, Read};

use crate::error::Error;

use super::{Format, Input, Steady};

/// The bytes that tell a format.
const FIRST: usize = 16;

/// Formats that are recognised and refused: an offset, the bytes there, and the name.
const REFUSED: &[(usize, &[u8], &str)] = &[
    (4, b"ftyp", "MP4 or m4a (AAC or ALAC)"),
    (0, b"\x1a\x45\xdf\xa3", "Matroska or WebM"),
    (0, b"FORM", "AIFF"),
    (0, b"caff", "Core Audio Format (caf)"),
    (0, b"RIFX", "big-endian wav (RIFX)"),
    (0, b".snd", "Sun audio (au)"),
    (0, b"#!AMR", "AMR"),
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "Windows Media (wma or asf)"),
    (0, b"ADIF", "AAC (ADIF)"),
    (0, b"wvpk", "WavPack"),
    (0, b"MAC ", "Monkey's Audio (ape)"),
    (0, b"MThd", "MIDI"),
    (0, b"DSD ", "DSD (dsf)"),
    (0, b"riff\x2e\x91\xcf\x11", "Wave64 (w64)"),
];

/// Reads the first bytes. Returns the format, and the source with those bytes put back.
///
/// An ID3v2 tag before the sound is skipped: MP3 files have one, and some FLAC files.
pub(super) fn sniff(mut source: Steady) -> Result<(Format, Input), Error> {
    let io = |source| Error::Io { seconds: 0.0, source };
    let mut first = start(&mut source).map_err(io)?;
    let tag = id3v2_bytes(&first);
    if let Some(bytes) = tag {
        // The tag is at least as long as its header, which is shorter than what was read.
        let mut rest = Cursor::new(first).chain(source);
        io::copy(&mut rest.by_ref().take(bytes), &mut io::sink()).map_err(io)?;
        let (unread, inner) = rest.into_inner();
        let at = usize::try_from(unread.position()).unwrap_or(usize::MAX);
        let mut left = unread.into_inner().split_off(at.min(FIRST));
        source = inner;
        left.extend(start(&mut source).map_err(io)?);
        first = left;
    }
    let format = format(&first, tag.is_some())?;
    Ok((format, BufReader::with_capacity(1 << 16, Cursor::new(first).chain(source))))
}

/// Returns up to [`FIRST`] bytes.
fn start(source: &mut Steady) -> io::Result<Vec<u8>> {
    let mut first = Vec::with_capacity(FIRST);
    source.take(FIRST as u64).read_to_end(&mut first)?;
    Ok(first)
}

/// Returns the length of a tag with header and footer, in bytes. Source: id3v2.4.0-structure, section 3.1.
fn id3v2_bytes(first: &[u8]) -> Option<u64> {
    let [b'I', b'D', b'3', _, _, flags, size @ ..] = first else { return None };
    let size = size.first_chunk::<4>()?;
    if size.iter().any(|byte| byte & 0x80 != 0) {
        return None;
    }
    let body = size.iter().fold(0, |sum, &byte| sum << 7 | u64::from(byte));
    Some(body + if flags & 0x10 != 0 { 20 } else { 10 })
}

fn format(first: &[u8], tagged: bool) -> Result<Format, Error> {
    let at = |offset: usize, what: &[u8]| first.get(offset..).is_some_and(|rest| rest.starts_with(what));
    if (at(0, b"RIFF") || at(0, b"RF64") || at(0, b"BW64")) && at(8, b"WAVE") {
        return Ok(Format::Wav);
    }
    if at(0, b"fLaC") {
        return Ok(Format::Flac);
    }
    if at(0, b"OggS") {
        return Ok(Format::Vorbis);
    }
    if let Some((_, _, name)) = REFUSED.iter().find(|(offset, bytes, _)| at(*offset, bytes)) {
        return Err(Error::Unsupported { what: (*name).to_owned() });
    }
    // A frame of MPEG audio begins with 11 bits that are set, then two of version and two of layer. Layer 0 is AAC.
    match first {
        [0xff, second, ..] if second & 0xf6 == 0xf0 => {
            Err(Error::Unsupported { what: "AAC (ADTS)".to_owned() })
        }
        [0xff, second, third, ..]
            if second & 0xe0 == 0xe0 && second & 0x18 != 0x08 && third & 0xf0 != 0xf0 =>
        {
            Ok(Format::Mp3)
        }
        // Zeros and other fillings come between a tag and the first frame.
        _ if tagged => Ok(Format::Mp3),
        _ => Err(Error::Unknown { first: first.to_vec() }),
    }
}
