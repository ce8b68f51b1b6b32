//! A file that is compressed with zstd, as the source of what it holds.
//!
//! Source: RFC 8878. A file is frames one after another, whose contents are joined; skippable ones hold nothing. What
//! is refused: frames that need a dictionary, and windows over 128 MiB.
//!
//! Opening decompresses the first block alone. The first byte that is read decompresses the whole, on one thread, at
//! about 100 MB/s for weights (zstd's own decoder: 650), and what comes out is kept as long as the source lives: it is
//! neither mapped nor given back, so it counts for as much memory as the data has. How much that may be is known
//! before: the reader of what is inside says how long it has to be, a file may expand by no more than 1024 times (and
//! 64 MiB), and decompressing stops at the first byte too much.

mod frame;
mod write;

use std::io::{self, BufReader};
use std::sync::{Arc, OnceLock};

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use self::frame::{Block, CHECKSUM, Frame, FrameOrSkip, LAST, MAX_WINDOW, broken};
use crate::source::past_the_end;
use crate::{ByteSource, Identity, Reader};
pub use frame::is_zstd;
pub use write::{read_frame, write_frame};

/// A problem of a compressed file, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault} (at byte {at})")]
pub struct Broken {
    /// Byte offset in the compressed file.
    pub at: u64,
    /// What is wrong there.
    pub fault: ZstdFault,
}

/// Problems of compressed data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ZstdFault {
    /// It does not fit together.
    #[error("the zstd data is broken: {why}")]
    Data {
        /// What is wrong, or what the decoder says.
        why: String,
    },
    /// Fewer bytes than something needs.
    #[error("the file ends inside {what}: {wants} bytes wanted, {found} left")]
    Ends {
        /// What needs them.
        what: &'static str,
        /// How many it needs.
        wants: u64,
        /// How many are left.
        found: u64,
    },
    /// Something else where a frame has to begin.
    #[error("wanted {wants}, found {found}")]
    Value {
        /// What has to be there.
        wants: &'static str,
        /// What is there.
        found: String,
    },
    /// A number over the limit of this reader.
    #[error("{what} of {found}, over the limit of {limit}")]
    Limit {
        /// What is too large, with its unit.
        what: &'static str,
        /// Its size.
        found: u64,
        /// The most that is allowed.
        limit: u64,
    },
    /// Another length than what it holds wants.
    #[error("decompresses to {found} bytes, wanted {wants}")]
    Content {
        /// Bytes that it has to be.
        wants: u64,
        /// Bytes that it is, or says it is.
        found: u64,
    },
    /// A small file that says it holds very much.
    #[error("{compressed} bytes would decompress to {content}, over the limit of {limit}")]
    Expands {
        /// Bytes of the file.
        compressed: u64,
        /// Bytes of the content.
        content: u64,
        /// The most that is decompressed from as many bytes.
        limit: u64,
    },
    /// Sound, but beyond what is read.
    #[error("{what}")]
    Unsupported {
        /// What it is.
        what: String,
    },
}

/// Bytes that any file may hold.
const FREE: u64 = 64 << 20;
/// Bytes beyond them for each byte of the file. Runs of zeros reach 32,768; weights reach 2, and masks some dozens.
const TIMES: u64 = 1 << 10;
/// Frames of one file, skippable ones included.
const MAX_FRAMES: u64 = 1 << 20;
/// Blocks that the start may be spread over.
const MAX_START: u32 = 64;
/// Bytes that are decompressed at a time.
const STEP: usize = 1 << 20;

/// A compressed file whose first frame has been looked at.
#[derive(Debug)]
pub struct Compressed {
    source: Arc<dyn ByteSource>,
    /// Where the first frame that is not skipped begins.
    at: u64,
    frame: Frame,
}

impl Compressed {
    /// Looks at `source`, which [`is_zstd`].
    pub fn open(source: Arc<dyn ByteSource>) -> Result<Compressed, Broken> {
        let mut at = 0;
        for _ in 0..MAX_FRAMES {
            if at >= source.len() {
                return Err(problem(at, broken("there is no frame with content".to_owned())));
            }
            match FrameOrSkip::read(&*source, at).map_err(|fault| problem(at, fault))? {
                FrameOrSkip::Skip(bytes) => at += bytes,
                FrameOrSkip::Frame(frame) => return Ok(Compressed { source, at, frame }),
            }
        }
        Err(problem(at, too_many()))
    }

    /// The first bytes of the content: at least `enough`, or the whole first frame if it is shorter.
    pub fn start(&self, enough: usize) -> Result<Vec<u8>, Broken> {
        // As many blocks as are needed are read as if they were all.
        let mut stream = self.frame.header.clone();
        if let Some(flags) = stream.get_mut(4) {
            *flags &= !CHECKSUM;
        }
        let mut at = self.at + stream.len() as u64;
        for n in 1.. {
            let wrong = |fault| problem(at, fault);
            let block = Block::read(&*self.source, at).map_err(wrong)?;
            let header = stream.len();
            stream.extend(block.header);
            let body = stream.len();
            stream.resize(body + usize::try_from(block.bytes).unwrap_or(0), 0);
            let read = self.source.read_at(at + 3, stream.get_mut(body..).unwrap_or_default());
            read.map_err(|e| wrong(broken(e.to_string())))?;
            at += 3 + block.bytes;
            if !(block.last || n == MAX_START || u32::is_power_of_two(n)) {
                continue;
            }
            let flag = |stream: &mut [u8], to: u8| stream.get_mut(header).map(|b| *b = *b & !LAST | to);
            flag(&mut stream, LAST);
            let mut content = Vec::new();
            let decoded = decode(&mut &stream[..], |more| content.extend(more), usize::MAX);
            decoded.map_err(|(read, fault)| problem(self.at + read, fault))?;
            if block.last || n == MAX_START || content.len() >= enough {
                return Ok(content);
            }
            flag(&mut stream, 0);
        }
        Ok(Vec::new())
    }

    /// The file as the source of its content, which has to be `len` bytes.
    pub fn into_source(self, len: u64) -> Result<Zstd, Broken> {
        let Compressed { source, at, frame } = self;
        let compressed = source.len();
        let limit = compressed.saturating_mul(TIMES).saturating_add(FREE);
        let wrong = |fault| Err(problem(at, fault));
        if let Some(found) = frame.content.filter(|found| *found > len) {
            return wrong(ZstdFault::Content { wants: len, found });
        }
        if len > limit {
            return wrong(ZstdFault::Expands { compressed, content: len, limit });
        }
        Ok(Zstd { source, len, content: OnceLock::new() })
    }
}

/// The content of a compressed file.
pub struct Zstd {
    source: Arc<dyn ByteSource>,
    len: u64,
    content: OnceLock<Result<Vec<u8>, Broken>>,
}

impl Zstd {
    /// All of it, decompressed now if it was not before.
    fn content(&self) -> Result<&[u8], &Broken> {
        self.content.get_or_init(|| self.decompress()).as_deref()
    }

    fn decompress(&self) -> Result<Vec<u8>, Broken> {
        let len = usize::try_from(self.len).unwrap_or(usize::MAX);
        let mut content = Vec::new();
        content.try_reserve_exact(len).map_err(|_| {
            let what = format!("decompresses to {len} bytes, for which there is no memory");
            problem(0, ZstdFault::Unsupported { what })
        })?;
        let (mut at, mut frames) = (0, 0);
        while at < self.source.len() {
            let wrong = |fault| problem(at, fault);
            frames += 1;
            if frames > MAX_FRAMES {
                return Err(wrong(too_many()));
            }
            at += match FrameOrSkip::read(&*self.source, at).map_err(wrong)? {
                FrameOrSkip::Skip(bytes) => bytes,
                FrameOrSkip::Frame(frame) => {
                    let (before, room) = (content.len(), len - content.len());
                    let reader = Reader::new(Arc::clone(&self.source), at);
                    let mut reader = BufReader::with_capacity(STEP / 4, reader);
                    let read = decode(&mut reader, |more| content.extend(more), room)
                        .map_err(|(read, fault)| problem(at + read, fault))?;
                    let found = (content.len() - before) as u64;
                    if let Some(says) = frame.content.filter(|says| *says != found) {
                        let why = format!("a frame says it holds {says} bytes, and holds {found}");
                        return Err(wrong(broken(why)));
                    }
                    read
                }
            };
        }
        if content.len() < len {
            let found = content.len() as u64;
            return Err(problem(at, ZstdFault::Content { wants: self.len, found }));
        }
        Ok(content)
    }
}

impl ByteSource for Zstd {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let content = self
            .content()
            .map_err(|problem| io::Error::new(io::ErrorKind::InvalidData, problem.to_string()))?;
        let start = usize::try_from(offset).ok();
        let range = start.and_then(|s| Some(s..s.checked_add(buf.len())?));
        let bytes = range.and_then(|r| content.get(r));
        buf.copy_from_slice(bytes.ok_or_else(|| past_the_end(offset, buf.len(), self.len))?);
        Ok(())
    }

    fn mapped(&self) -> Option<&[u8]> {
        None
    }

    fn kind(&self) -> &'static str {
        "zstd"
    }

    fn identity(&self) -> Option<Identity> {
        self.source.identity()
    }

    fn identity_now(&self) -> io::Result<Option<Identity>> {
        self.source.identity_now()
    }
}

impl std::fmt::Debug for Zstd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Zstd").field("source", &self.source).field("len", &self.len).finish_non_exhaustive()
    }
}

/// Gives the content of the frame that `reader` begins with to `take`, at most `room` bytes, and checks its checksum.
/// Gives the frame's length in the file; or how much of it was read, and what is wrong.
fn decode(
    reader: &mut impl io::Read,
    mut take: impl FnMut(&[u8]),
    room: usize,
) -> Result<u64, (u64, ZstdFault)> {
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(MAX_WINDOW);
    decoder.init(&mut *reader).map_err(|e| (0, broken(e.to_string())))?;
    let mut left = room;
    let mut part = vec![];
    loop {
        let decoded = decoder.decode_blocks(&mut *reader, BlockDecodingStrategy::UptoBytes(STEP));
        let wrong = |fault| (decoder.bytes_read_from_source(), fault);
        decoded.map_err(|e| wrong(broken(e.to_string())))?;
        let ready = decoder.can_collect();
        if ready > left {
            return Err(wrong(broken("it holds more than is wanted of it".to_owned())));
        }
        left -= ready;
        part.clear();
        decoder.collect_to_writer(&mut part).map_err(|e| (0, broken(e.to_string())))?;
        take(&part);
        if decoder.is_finished() {
            break;
        }
    }
    let read = decoder.bytes_read_from_source();
    match (decoder.get_checksum_from_data(), decoder.get_calculated_checksum()) {
        (Some(says), Some(found)) if says != found => {
            let why = format!("its checksum is {says:#010x}, that of what it holds {found:#010x}");
            Err((read.saturating_sub(4), broken(why)))
        }
        _ => Ok(read),
    }
}

fn problem(at: u64, fault: ZstdFault) -> Broken {
    Broken { at, fault }
}

fn too_many() -> ZstdFault {
    ZstdFault::Limit { what: "number of zstd frames", found: MAX_FRAMES + 1, limit: MAX_FRAMES }
}
