//! Reading files, observed by the caller, and ended when the caller or another thread says so.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use checkpoint::{Checkpoint, File};
use plan::Piece;
use tensor::FileId;

use crate::Error;
use crate::options::{Options, Progress};
use crate::schedule::sources::Ways;
use crate::sizes::size;

/// The reader that all threads of a load share.
pub(crate) struct Reader<'a, 'o> {
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) options: Options<'o>,
    /// One thread has failed, or the caller has ended it.
    pub(crate) stop: AtomicBool,
    /// Bytes of slots that are filled.
    pub(crate) done: AtomicU64,
    /// Bytes of slots that are to be filled.
    pub(crate) total: u64,
}

/// The local state of a thread.
#[derive(Default)]
pub(crate) struct Own {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) clipped: Vec<Piece>,
    pub(crate) bytes_read: u64,
}

impl Reader<'_, '_> {
    pub(crate) fn ways(&self) -> Ways<'_> {
        Ways { checkpoint: self.checkpoint, observed: self.options.observe.is_some() }
    }

    /// Tells the caller how far it is, and ends if the caller or another thread has ended it.
    pub(crate) fn pulse(&self) -> Result<(), Error> {
        let progress = Progress { done: self.done.load(Ordering::Relaxed), total: self.total };
        let over = self.stop.load(Ordering::Relaxed)
            || self.options.watch.is_some_and(|watch| watch(progress).is_break());
        if over {
            self.stop.store(true, Ordering::Relaxed);
            let Progress { done, total } = progress;
            return Err(Error::Cancelled { done, total });
        }
        Ok(())
    }

    /// Reads bytes of a file to where they belong.
    pub(crate) fn read(&self, id: FileId, offset: u64, buf: &mut [u8], own: &mut Own) -> Result<(), Error> {
        let file: &File = self.checkpoint.file(id);
        let longest = size(file.source.pace().longest).max(1);
        let mut at = offset;
        for part in buf.chunks_mut(longest) {
            self.pulse()?;
            let bytes = part.len() as u64;
            file.source.read_at(at, part).map_err(|source| match file.unchanged() {
                Err(changed) => Error::Changed(changed),
                Ok(()) => Error::Io { location: file.location.clone(), offset: at, bytes, source },
            })?;
            if let Some(observe) = self.options.observe {
                observe(id, at, part);
            }
            own.bytes_read += bytes;
            at += bytes;
        }
        Ok(())
    }
}
