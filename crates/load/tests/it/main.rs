//! The executor against a copy made one element at a time, and what it must not do.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests: what they make is small")]

extern crate weighbridge_load as load;

mod bounds;
mod chains;
mod digest;
mod direct;
mod identity;
mod movement;
mod needs;
mod pool;
mod sinks;
mod updates;
mod writable;
mod written;

use std::collections::HashMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use checkpoint::{Checkpoint, Io, OpenOptions};
use load::Plan;
use tempfile::TempDir;
use tensor::{Arrangement, Expr, Target};

/// Two-byte elements: how many, row by row, and what the first is.
pub(crate) struct Matrix {
    pub(crate) name: &'static str,
    pub(crate) shape: Vec<u64>,
    pub(crate) seed: u64,
}

impl Matrix {
    pub(crate) fn new(name: &'static str, shape: &[u64], seed: u64) -> Matrix {
        Matrix { name, shape: shape.to_vec(), seed }
    }

    /// The elements: each other than most others.
    pub(crate) fn values(&self) -> Vec<u16> {
        let n = self.shape.iter().product::<u64>();
        (0..n).map(|i| ((i + self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 41) as u16).collect()
    }
}

/// A directory with `name`, a safetensors file of these.
pub(crate) fn file(dir: &Path, name: &str, matrices: &[Matrix]) -> PathBuf {
    let (mut header, mut end) = (String::new(), 0);
    for m in matrices {
        let start = end;
        end += m.shape.iter().product::<u64>() * 2;
        let comma = if header.is_empty() { "{" } else { "," };
        let _ = write!(
            header,
            "{comma}\"{}\":{{\"dtype\":\"BF16\",\"shape\":{:?},\"data_offsets\":[{start},{end}]}}",
            m.name, m.shape
        );
    }
    header += "}";
    while !header.len().is_multiple_of(8) {
        header.push(' ');
    }
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    for m in matrices {
        bytes.extend(m.values().iter().flat_map(|v| v.to_le_bytes()));
    }
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// On a disk, where `O_DIRECT` may work.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub(crate) const ALL: [Io; 4] = [Io::Mmap, Io::CopyOnWrite, Io::Pread, Io::Direct];

pub(crate) fn open(path: &Path, io: Io) -> Checkpoint {
    checkpoint::open_with(path, &OpenOptions::with_io(io)).unwrap()
}

/// A plan of these expressions over the tensors of a checkpoint.
pub(crate) fn plan_of(checkpoint: &Checkpoint, wanted: &[(&str, Expr)]) -> Plan {
    let (bindings, _) = plan::as_stored(checkpoint.entries());
    let resolved = plan::resolve(checkpoint.entries(), &bindings).unwrap();
    let targets: Vec<Target> = wanted
        .iter()
        .map(|(name, expr)| Target { name: (*name).to_owned(), expr: expr.clone(), scheme: None })
        .collect();
    crate::compile(checkpoint, &resolved, &targets)
}

pub(crate) fn compile(checkpoint: &Checkpoint, resolved: &plan::Resolved, targets: &[Target]) -> Plan {
    let arrangement = Arrangement::stored(checkpoint.format().name());
    Plan::compile(checkpoint, resolved, targets, arrangement).unwrap()
}

/// Every tensor under its own name.
pub(crate) fn as_stored(checkpoint: &Checkpoint) -> Plan {
    let (bindings, targets) = plan::as_stored(checkpoint.entries());
    let resolved = plan::resolve(checkpoint.entries(), &bindings).unwrap();
    crate::compile(checkpoint, &resolved, &targets)
}

pub(crate) fn halves(bytes: &[u8]) -> Vec<u16> {
    bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect()
}

/// Returns the loaded bytes by name.
pub(crate) fn bytes_of(loaded: &load::Loaded) -> HashMap<String, Vec<u8>> {
    loaded.names().map(|n| (n.to_owned(), loaded.get(n).unwrap().planes().concat())).collect()
}
