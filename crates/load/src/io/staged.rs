//! A parameter whose entries are decoded or encoded before they are moved: a load of these, and then one from them.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use checkpoint::{ByteSource, Checkpoint};
use plan::PlannedParam;
use quant::Difference;

use crate::allocated::Allocated;
use crate::io::executor::fill;
use crate::memory::region::Slice;
use crate::memory::sink::{Destination, Place, Sink};
use crate::schedule::home::homes;
use crate::schedule::staged::{Later, in_memory, moving, staged_bytes, staging};
use crate::{Error, LoadReport, Options, Pool, Slot, Tensor};

impl<'m> Later<'_, Slice<'m>> {
    /// Decodes its sources, moves the values, and encodes them. The caller has checked that there is room.
    pub(crate) fn run(
        self,
        checkpoint: &Checkpoint,
        sink: &dyn Sink<'m>,
        place: &Place<'_>,
        pool: &mut Pool,
        options: Options<'_>,
        report: &mut LoadReport,
    ) -> Result<(), Error> {
        let Later { param, targets, .. } = self;
        let staged = staged_bytes(param);
        let memory = options.memory.map(|limit| limit.saturating_sub(staged));
        // The caller's `watch` runs between parameters only. The guide is looked up by the parameter's name, not by those of its
        // entries.
        let guide = |_: &str| options.guide.map(|of| of(&param.name)).unwrap_or_default();
        let options = Options { owned: true, memory, watch: None, guide: Some(&guide), ..options };
        let decoded = Allocated::new(&staging(param), checkpoint, None, options)?.fill(pool)?;
        let tensor = |staged: &PlannedParam| decoded.get(&staged.name).cloned();
        let memory = in_memory(param, |staged| Arc::new(Staged(tensor(staged))));
        let second = moving(param);
        let mut sink = Given { planes: Mutex::new(Some(targets)), sink, place };
        let options = Options { observe: None, ..options };
        let moved = fill(&second, &memory, &homes(&second, &memory, false)?, &mut sink, None, pool, options)?;
        let before = decoded.report();
        report.bytes_read += before.bytes_read;
        report.bytes_encoded += before.bytes_encoded + moved.bytes_encoded;
        report.bytes_copied += before.bytes_copied + moved.bytes_copied;
        report.scratch_peak = report.scratch_peak.max(staged + before.scratch_peak.max(moved.scratch_peak));
        // The parameter's loss is the sum of its parts'.
        let lost = before.differences.values().chain(moved.differences.values()).copied();
        if let Some(lost) = lost.reduce(Difference::and) {
            report.differences.insert(param.name.clone(), lost);
        }
        Ok(())
    }
}

/// The place of a parameter in another sink, which has been asked for it.
struct Given<'m, 's> {
    planes: Mutex<Option<Vec<Slice<'m>>>>,
    sink: &'s dyn Sink<'m>,
    place: &'s Place<'s>,
}

impl<'m> Sink<'m> for Given<'m, '_> {
    fn place(&mut self, _: &Place<'_>) -> Result<Destination<'m>, Box<dyn std::error::Error + Send + Sync>> {
        let planes = self.planes.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let mut lent = vec![];
        for plane in planes.ok_or("it was given before")? {
            match plane {
                Slice::Lent(bytes) => lent.push(bytes),
                Slice::Written { .. } => return Ok(Destination::Write),
            }
        }
        Ok(Destination::Memory(lent))
    }

    fn write(
        &self,
        _: &Place<'_>,
        plane: usize,
        at: u64,
        bytes: &[u8],
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.sink.write(self.place, plane, at, bytes)
    }
}

/// A loaded tensor as a source of bytes, plane after plane; it is read as a file would be.
struct Staged(Option<Tensor>);

impl Staged {
    fn planes(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().flat_map(Tensor::slots).map(Slot::bytes)
    }
}

impl std::fmt::Debug for Staged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes in memory", self.len())
    }
}

impl ByteSource for Staged {
    fn len(&self) -> u64 {
        self.planes().map(|plane| plane.len() as u64).sum()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut skip = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let mut rest = buf;
        for plane in self.planes() {
            let there = plane.get(skip..).unwrap_or_default();
            skip = skip.saturating_sub(plane.len());
            let (now, after) = rest.split_at_mut(there.len().min(rest.len()));
            now.copy_from_slice(&there[..now.len()]);
            rest = after;
        }
        if rest.is_empty() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn mapped(&self) -> Option<&[u8]> {
        None
    }

    fn kind(&self) -> &'static str {
        "memory"
    }
}
