//! zstd frames, written.
//!
//! The encoder is that of `ruzstd`, at its fastest level, in blocks of 128 KiB: memory does not grow with the data. It leaves out the
//! length of the content, without which some readers (Python's `zstandard.decompress`) refuse a frame, so the header is replaced.

use std::cell::Cell;
use std::io::{self, Read, Write};

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use ruzstd::encoding::{CompressionLevel, compress};

/// The header that the encoder writes: magic, descriptor, window.
const HEADER: usize = 6;
/// A descriptor: a content size of 8 bytes, and a checksum (RFC 8878, 3.1.1.1.1).
const DESCRIPTOR: u8 = 0b1100_0100;

/// Writes `parts`, one after the other, to `out` as one frame of fewer than `limit` bytes. Returns the length of the frame; `None` if it
/// would be longer: then `out` has a part of it.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_frame(parts: &[&[u8]], out: impl Write, limit: u64) -> io::Result<Option<u64>> {
    let content = parts.iter().map(|part| part.len() as u64).sum();
    let is_ended = Cell::new(false);
    let source = Parts { now: &[], later: parts, is_ended: &is_ended };
    let mut drain =
        Drain { out, content, limit, written: 0, is_begun: false, is_ended: &is_ended, failed: None };
    compress(source, &mut drain, CompressionLevel::Fastest);
    match drain {
        Drain { failed: Some(error), .. } => Err(error),
        Drain { written, .. } => Ok((written < limit).then_some(written)),
    }
}

/// The content of the frame that `frame` begins with, block by block.
///
/// # Errors
/// If it begins with none.
pub fn read_frame<R: Read>(frame: R) -> io::Result<impl Read + use<R>> {
    StreamingDecoder::<R, FrameDecoder>::new(frame).map_err(io::Error::other)
}

/// Some slices of bytes, one after the other.
struct Parts<'a> {
    now: &'a [u8],
    later: &'a [&'a [u8]],
    /// The rest is not wanted.
    is_ended: &'a Cell<bool>,
}

impl Read for Parts<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.is_ended.get() {
            return Ok(0);
        }
        while self.now.is_empty()
            && let Some((first, others)) = self.later.split_first()
        {
            (self.now, self.later) = (first, others);
        }
        self.now.read(to)
    }
}

/// Where the encoder's output goes. It takes all: the encoder panics where a write fails.
struct Drain<'a, W> {
    out: W,
    content: u64,
    limit: u64,
    written: u64,
    is_begun: bool,
    is_ended: &'a Cell<bool>,
    failed: Option<io::Error>,
}

impl<W: Write> Drain<'_, W> {
    fn put(&mut self, bytes: &[u8]) {
        self.written += bytes.len() as u64;
        if self.failed.is_none() && self.written < self.limit {
            self.failed = self.out.write_all(bytes).err();
        }
        self.is_ended.set(self.failed.is_some() || self.written >= self.limit);
    }
}

impl<W: Write> Write for Drain<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let rest = match bytes.split_at_checked(HEADER) {
            // The first bytes come with the first block.
            Some((header, rest)) if !self.is_begun => {
                self.is_begun = true;
                let (magic, window) =
                    (header.get(..4).unwrap_or_default(), header.get(5..).unwrap_or_default());
                self.put(&[magic, &[DESCRIPTOR], window, &self.content.to_le_bytes()].concat());
                rest
            }
            _ => bytes,
        };
        self.put(rest);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `n` bytes of few values, which compress; or of many, which do not.
    fn bytes(n: usize, values: u64) -> Vec<u8> {
        let mut state = 7u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % values
        };
        (0..n).map(|_| next().to_le_bytes()[0]).collect()
    }

    #[test]
    fn a_frame_is_read_as_it_was_written() {
        for n in [0, 1, 5, 1000, 128 << 10, (128 << 10) + 1, 1_000_003] {
            for values in [1, 2, 20, 256] {
                let data = bytes(n, values);
                let (head, tail) = data.split_at(n / 3);
                let mut frame = vec![];
                let written = write_frame(&[head, &[], tail], &mut frame, u64::MAX).unwrap();
                assert_eq!(written, Some(frame.len() as u64));
                let mut found = vec![];
                read_frame(&frame[..]).unwrap().read_to_end(&mut found).unwrap();
                assert!(found == data, "{n} bytes of {values} values");
                // The length of the content is said (RFC 8878, 3.1.1.1.1).
                assert_eq!(frame[4] >> 6, 3);
                assert_eq!(frame[6..14], (n as u64).to_le_bytes());
                assert!(frame.len() <= n + 14 + 4 + 3 * (n / (128 << 10) + 1), "{n}: {}", frame.len());
            }
        }
    }

    #[test]
    fn a_frame_that_is_too_long_is_given_up() {
        let data = bytes(1_000_000, 256);
        let mut frame = vec![];
        assert_eq!(write_frame(&[&data], &mut frame, 1_000_000).unwrap(), None);
        assert!(frame.len() < 1_000_000);
        let mut frame = vec![];
        assert_eq!(write_frame(&[&data], &mut frame, 1000).unwrap(), None);
        assert!(frame.len() < 1000);
    }

    /// A disk that is full.
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_error_of_the_disk_is_an_error() {
        for room in [0, 100, 200_000] {
            let error = write_frame(&[&bytes(1_000_000, 256)], Full(room), u64::MAX).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        }
    }
}
