//! Holding a checkpoint against a manifest while it is loaded: its bytes are read once.
//!
//! The manifest's unit is the tensor of a file, and what is loaded may be made from parts of several. So bytes are
//! looked at as they come from the file, before anything is done with them, in any order and by any thread: whole
//! blocks of the digest's tree at once, others when their last byte has come. A tensor of which not every byte is
//! read, since the plan needs a part of it, or none, cannot be verified so, and is counted.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use checkpoint::Checkpoint;
use load::{Loaded, Options, Pool};
use tensor::FileId;

use crate::check::size;
use crate::digest::{self, LEAF, Leaf};
use crate::keys::{self, ListedKey};
use crate::said::Said;
use crate::{Error, Listed, Manifest};
use load::Plan;

/// Bytes that are hashed at once: a power of two that divides a leaf.
const BLOCK: u64 = 64 << 10;
/// Bytes of blocks that have come in part, at most. Beyond them tensors are given up, and count as read in part.
const WAITING: u64 = 16 << 20;

/// The results of a comparison with a manifest.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// Number of tensors whose digests match the manifest.
    pub verified: usize,
    /// Tensors that were read in part, or not at all: only their names, shapes and encodings were compared.
    pub partly: Vec<String>,
    /// The reason why metadata was not compared, if it was not.
    pub keys_not_compared: Option<&'static str>,
}

/// As [`Plan::load_with`], and compares the bytes with `manifest` as they are read. Borrowed tensors, which stay in a
/// map, are read for it.
///
/// # Errors
/// As [`Plan::load_with`]; [`Error::Differs`] with every difference from the manifest.
pub fn load_verified(
    plan: &Plan,
    pool: &mut Pool,
    options: Options<'_>,
    manifest: &Manifest,
) -> Result<(Loaded, Verified), Error> {
    let checkpoint = plan.checkpoint();
    let verifier = Verifier::new(checkpoint);
    let loaded = observed(&verifier, plan, pool, options)?;
    let said = keys::listed(&Said::of(checkpoint)?);
    let (mut verified, found) = verifier.listed(manifest, said);
    let findings = manifest.differences(&found);
    let keys = match manifest.key_differences(&found) {
        Ok(keys) => keys,
        Err(why) => {
            verified.keys_not_compared = Some(why);
            vec![]
        }
    };
    if findings.is_empty() && keys.is_empty() {
        return Ok((loaded, verified));
    }
    Err(Error::Differs { path: checkpoint.location().to_string(), findings, keys })
}

/// Loads, and shows `verifier` what is read.
fn observed(
    verifier: &Verifier<'_>,
    plan: &Plan,
    pool: &mut Pool,
    options: Options<'_>,
) -> Result<Loaded, Error> {
    let Options { guide, allow_overflow, owned, memory, watch, observe: also } = options;
    let observe = |file: FileId, at: u64, bytes: &[u8]| {
        verifier.see(file, at, bytes);
        if let Some(also) = also {
            also(file, at, bytes);
        }
    };
    // The caller's closures outlive `observe`, so they are wrapped to live as long.
    let options = Options {
        guide: Some(&|name| guide.map(|of| of(name)).unwrap_or_default()),
        allow_overflow,
        owned,
        memory,
        watch: Some(&|progress| watch.map_or(ControlFlow::Continue(()), |watch| watch(progress))),
        observe: Some(&observe),
    };
    Ok(plan.load_with(pool, options)?)
}

/// The digests of a checkpoint's tensors, as their bytes come.
struct Verifier<'a> {
    checkpoint: &'a Checkpoint,
    /// For each file its planes: their bytes, of which tensor, and where they begin in that.
    spans: Vec<Vec<(Range<u64>, usize, u64)>>,
    tensors: Vec<Mutex<Tensor>>,
    waiting: AtomicU64,
}

/// One tensor: the bytes of its planes one after the other.
struct Tensor {
    len: u64,
    /// Its leaves, in order.
    leaves: Vec<Option<Leaf>>,
    /// For leaves of which some blocks are there: these.
    blocks: BTreeMap<u64, Vec<Option<Leaf>>>,
    /// Blocks of which some bytes are there.
    parts: BTreeMap<u64, PartialBlock>,
    /// Its elements are not in the order of the digest, or too much of it came in pieces.
    given_up: bool,
}

/// A block that has come in part: its bytes, and which of them are there.
struct PartialBlock {
    bytes: Vec<u8>,
    there: Vec<Range<usize>>,
}

impl<'a> Verifier<'a> {
    fn new(checkpoint: &'a Checkpoint) -> Verifier<'a> {
        let mut spans = vec![vec![]; checkpoint.files().len()];
        let mut tensors = vec![];
        for (index, entry) in checkpoint.entries().iter().enumerate() {
            let mut at = 0;
            for plane in entry.planes.iter().filter(|p| !p.bytes.is_empty()) {
                if let Some(of_file) = spans.get_mut(plane.file.0 as usize) {
                    of_file.push((plane.bytes.clone(), index, at));
                }
                at += plane.bytes.end - plane.bytes.start;
            }
            let count = size(Leaf::count(at));
            let mut leaves = vec![None; count];
            if at == 0 {
                leaves = vec![Some(Leaf::of(&[], 0, 0))];
            }
            let given_up = entry.strides.is_some();
            let (blocks, parts) = (BTreeMap::new(), BTreeMap::new());
            tensors.push(Mutex::new(Tensor { len: at, leaves, blocks, parts, given_up }));
        }
        for of_file in &mut spans {
            of_file.sort_by_key(|(range, ..)| (range.start, range.end));
        }
        Verifier { checkpoint, spans, tensors, waiting: AtomicU64::new(0) }
    }

    /// Takes bytes of a file.
    fn see(&self, file: FileId, at: u64, bytes: &[u8]) {
        let end = at + bytes.len() as u64;
        let Some(spans) = self.spans.get(file.0 as usize) else { return };
        let after = spans.partition_point(|(range, ..)| range.start < end);
        // They do not overlap but where several tensors are the same bytes, so that few are looked at in vain.
        let first = spans[..after].partition_point(|(range, ..)| range.end <= at);
        for (range, tensor, begin) in &spans[first..after] {
            let (from, to) = (range.start.max(at), range.end.min(end));
            if from < to {
                let part = &bytes[size(from - at)..size(to - at)];
                self.tensor(*tensor, begin + from - range.start, part);
            }
        }
    }

    /// Takes bytes of a tensor.
    fn tensor(&self, index: usize, start: u64, bytes: &[u8]) {
        let tensor = &self.tensors[index];
        let lock = || tensor.lock().unwrap_or_else(PoisonError::into_inner);
        let (len, end) = (lock().len, start + bytes.len() as u64);
        for block in start / BLOCK..end.div_ceil(BLOCK) {
            let (first, last) = (block * BLOCK, ((block + 1) * BLOCK).min(len));
            if !lock().wants(block) {
                continue;
            }
            let part = &bytes[size(first.max(start) - start)..size(last.min(end) - start)];
            if start <= first && last <= end {
                // Hashed while others may take the lock.
                let hashed = Leaf::at(part, block, len, BLOCK);
                let freed = lock().put(block, hashed);
                self.waiting.fetch_sub(freed, Ordering::Relaxed);
                continue;
            }
            let mut tensor = lock();
            let whole = size(last - first);
            let part_of = match tensor.parts.remove(&block) {
                Some(part_of) => part_of,
                None if self.waiting.fetch_add(whole as u64, Ordering::Relaxed) + whole as u64 > WAITING => {
                    tensor.given_up = true;
                    let parts = std::mem::take(&mut tensor.parts);
                    let freed = parts.values().map(|part| part.bytes.len() as u64).sum::<u64>();
                    self.waiting.fetch_sub(freed + whole as u64, Ordering::Relaxed);
                    return;
                }
                None => PartialBlock { bytes: vec![0; whole], there: vec![] },
            };
            let part_of = part_of.with(size(first.max(start) - first), part);
            if matches!(&part_of.there[..], [all] if *all == (0..whole)) {
                let hashed = Leaf::at(&part_of.bytes, block, len, BLOCK);
                tensor.put(block, hashed);
                self.waiting.fetch_sub(whole as u64, Ordering::Relaxed);
            } else {
                tensor.parts.insert(block, part_of);
            }
        }
    }

    /// Returns the verified counts, and a manifest of what was loaded.
    fn listed(self, manifest: &Manifest, keys: Vec<ListedKey>) -> (Verified, Manifest) {
        let mut verified = Verified::default();
        let mut listed = vec![];
        for (entry, tensor) in self.checkpoint.entries().iter().zip(self.tensors) {
            let tensor = tensor.into_inner().unwrap_or_else(PoisonError::into_inner);
            let digest = tensor.digest();
            let wanted = manifest.tensors().binary_search_by(|t| t.name.as_str().cmp(&entry.name)).ok();
            let blake3 = match (&digest, wanted) {
                (Some(digest), _) => digest.clone(),
                // Nothing is known of its bytes.
                (None, wanted) => wanted.map_or_else(String::new, |i| manifest.tensors()[i].blake3.clone()),
            };
            if digest.is_none() {
                verified.partly.push(entry.name.clone());
            } else {
                verified.verified += usize::from(wanted.is_some());
            }
            let (shape, scheme) = (entry.shape.clone(), entry.scheme.name.to_string());
            listed.push(Listed { name: entry.name.clone(), shape, scheme, blake3 });
        }
        (verified, Manifest::new(listed, Some(keys)))
    }
}

impl Tensor {
    /// Whether a block is still to come.
    fn wants(&self, block: u64) -> bool {
        let per = LEAF / BLOCK;
        let there = || {
            let blocks = self.blocks.get(&(block / per))?;
            blocks.get(size(block % per)).copied().flatten()
        };
        !self.given_up && self.leaves.get(size(block / per)).is_some_and(Option::is_none) && there().is_none()
    }

    /// A block that was hashed. Gives the bytes that no longer wait for others.
    fn put(&mut self, block: u64, hashed: Leaf) -> u64 {
        let freed = self.parts.remove(&block).map_or(0, |part| part.bytes.len() as u64);
        let (per, leaf) = (LEAF / BLOCK, block / (LEAF / BLOCK));
        let count = (self.len - leaf * LEAF).min(LEAF).div_ceil(BLOCK);
        let blocks = self.blocks.entry(leaf).or_insert_with(|| vec![None; size(count)]);
        blocks[size(block % per)] = Some(hashed);
        if let Some(all) = blocks.iter().copied().collect::<Option<Vec<_>>>() {
            self.blocks.remove(&leaf);
            self.leaves[size(leaf)] = if self.leaves.len() == 1 {
                digest::join(&all).map(Leaf::Whole)
            } else {
                digest::subtree(&all).map(Leaf::Part)
            };
        }
        freed
    }

    /// The digest, if every byte has come.
    fn digest(&self) -> Option<String> {
        let leaves = self.leaves.iter().copied().collect::<Option<Vec<_>>>()?;
        (!self.given_up).then_some(())?;
        Some(digest::join(&leaves)?.to_hex().to_string())
    }
}

impl PartialBlock {
    /// This with `bytes` at `at`.
    fn with(mut self, at: usize, bytes: &[u8]) -> PartialBlock {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.there.push(at..at + bytes.len());
        self.there.sort_by_key(|r| r.start);
        self.there.dedup_by(|next, r| {
            let meets = next.start <= r.end;
            if meets {
                r.end = r.end.max(next.end);
            }
            meets
        });
        self
    }
}
