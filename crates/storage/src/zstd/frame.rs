//! The header of a zstd frame, and of its blocks.
//!
//! Source: RFC 8878, sections 3.1.1 and 3.1.2.

use super::ZstdFault;
use crate::ByteSource;

const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The longest header: magic, descriptor, window, dictionary, content size.
const LONGEST: usize = 4 + 1 + 1 + 4 + 8;
/// The longest window that is read, which zstd itself reads without being told to (`ZSTD_WINDOWLOG_LIMIT_DEFAULT`,
/// lib/zstd.h of zstd 1.5.7).
pub(super) const MAX_WINDOW: u64 = 128 << 20;

/// The longest block, before and after (RFC 8878, 3.1.1.2.4).
const MAX_BLOCK: u64 = 128 << 10;

/// The item at a place where a frame may begin.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FrameOrSkip {
    Frame(Frame),
    /// A skippable frame, with its length in bytes, header included.
    Skip(u64),
}

/// The header of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// The header as it stands.
    pub(super) header: Vec<u8>,
    /// Bytes of the content, where that is said.
    pub(super) content: Option<u64>,
    /// Whether a checksum follows the last block.
    pub(super) checksum: bool,
}

/// A block: its header, and how many bytes follow that.
pub(super) struct Block {
    pub(super) header: [u8; 3],
    pub(super) bytes: u64,
    pub(super) last: bool,
}

/// Bit of the first byte of a block's header: it is the last of its frame.
pub(super) const LAST: u8 = 1;
/// Bit of a frame's descriptor: a checksum follows the last block.
pub(super) const CHECKSUM: u8 = 1 << 2;

/// Whether a file that starts with `head` is compressed with zstd.
pub fn is_zstd(head: &[u8]) -> bool {
    head.starts_with(&MAGIC) || head.first_chunk().is_some_and(|magic| is_skippable(*magic))
}

fn is_skippable(magic: [u8; 4]) -> bool {
    u32::from_le_bytes(magic) & 0xffff_fff0 == 0x184d_2a50
}

impl FrameOrSkip {
    /// What begins at byte `at` of `source`, which is not its end.
    pub(super) fn read(source: &dyn ByteSource, at: u64) -> Result<FrameOrSkip, ZstdFault> {
        let left = source.len().saturating_sub(at);
        let mut head = vec![0; usize::try_from(left).map_or(LONGEST, |left| left.min(LONGEST))];
        source.read_at(at, &mut head).map_err(|e| broken(e.to_string()))?;
        let ends = |wants: usize| ZstdFault::Ends {
            what: "the header of a zstd frame",
            wants: wants as u64,
            found: left,
        };
        let magic = *head.first_chunk().ok_or_else(|| ends(4))?;
        if is_skippable(magic) {
            let bytes = head.get(4..).and_then(|h| h.first_chunk()).ok_or_else(|| ends(8))?;
            let bytes = 8 + u64::from(u32::from_le_bytes(*bytes));
            let fault = ZstdFault::Ends { what: "a skippable zstd frame", wants: bytes, found: left };
            return if bytes > left { Err(fault) } else { Ok(FrameOrSkip::Skip(bytes)) };
        }
        if magic != MAGIC {
            let found = format!("{magic:02x?}");
            return Err(ZstdFault::Value { wants: "a zstd frame, or the end of the file", found });
        }
        let flags = *head.get(4).ok_or_else(|| ends(5))?;
        let single = flags & 1 << 5 != 0;
        let window = usize::from(!single);
        let dictionary = [0, 1, 2, 4].get(usize::from(flags & 3)).copied().unwrap_or(0);
        let content = [usize::from(single), 2, 4, 8].get(usize::from(flags >> 6)).copied().unwrap_or(0);
        let end = 5 + window + dictionary + content;
        if head.len() < end {
            return Err(ends(end));
        }
        head.truncate(end);
        let number = |from: usize, bytes: usize| {
            let digits = head.iter().skip(from).take(bytes).rev();
            digits.fold(0u64, |n, digit| n << 8 | u64::from(*digit))
        };
        if flags & 1 << 3 != 0 {
            return Err(broken("its reserved bit is set".to_owned()));
        }
        if dictionary > 0 && number(5 + window, dictionary) != 0 {
            let id = number(5 + window, dictionary);
            let what = format!("is compressed with the zstd dictionary {id}, which is not here");
            return Err(ZstdFault::Unsupported { what });
        }
        let size = (content > 0).then(|| number(end - content, content) + if content == 2 { 256 } else { 0 });
        let window = match size {
            Some(size) if single => size,
            _ => {
                let descriptor = number(5, 1);
                let base = 1u64 << (10 + (descriptor >> 3));
                base + base / 8 * (descriptor & 7)
            }
        };
        if window > MAX_WINDOW {
            return Err(ZstdFault::Limit { what: "zstd window in bytes", found: window, limit: MAX_WINDOW });
        }
        Ok(FrameOrSkip::Frame(Frame { header: head, content: size, checksum: flags & CHECKSUM != 0 }))
    }
}

impl Block {
    /// The header of the block at byte `at` of `source`.
    pub(super) fn read(source: &dyn ByteSource, at: u64) -> Result<Block, ZstdFault> {
        let found = source.len().saturating_sub(at);
        let mut header = [0; 3];
        let ends = |what, wants| ZstdFault::Ends { what, wants, found };
        source.read_at(at, &mut header).map_err(|_| ends("the header of a zstd block", 3))?;
        let [low, middle, high] = header;
        let size = u64::from(u32::from_le_bytes([low, middle, high, 0]) >> 3);
        // Raw, one byte repeated, compressed.
        let bytes = match low >> 1 & 3 {
            0 | 2 => size,
            1 => 1,
            _ => return Err(broken("a block is of the reserved type".to_owned())),
        };
        if size > MAX_BLOCK {
            return Err(ZstdFault::Limit {
                what: "size of a zstd block in bytes",
                found: size,
                limit: MAX_BLOCK,
            });
        }
        if bytes > found - 3 {
            return Err(ends("a zstd block", bytes + 3));
        }
        Ok(Block { header, bytes, last: low & LAST != 0 })
    }
}

pub(super) fn broken(why: String) -> ZstdFault {
    ZstdFault::Data { why }
}
