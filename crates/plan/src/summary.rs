//! The cost of a plan, in numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use tensor::{Bytes, Step, TensorEntry, counted};

use crate::codecs::Fidelity;
use crate::compile::{LoadPlan, PlannedParam};
use crate::whole::Whole;

/// The cost of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Parameters, aliases included.
    pub params: usize,
    /// Parameters that share another's slot.
    pub ties: usize,
    /// Entries of the checkpoint.
    pub entries: usize,
    /// Entries that some parameter is made from, each counted once.
    pub entries_used: usize,
    /// Entries that may be ignored.
    pub dropped: usize,
    /// Bytes of all slots.
    pub slot_bytes: u64,
    /// Bytes of files that are needed, each counted once.
    pub needed_bytes: u64,
    /// Bytes of slots that a mapped source can lend.
    pub borrowable_bytes: u64,
    /// Bytes moved without a codec, where they cannot be borrowed.
    pub copied_bytes: u64,
    /// Bytes that are padding.
    pub zero_bytes: u64,
    /// Changes of encoding, by kind.
    pub codecs: Vec<CodecUse>,
}

/// One kind of change of encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodecUse {
    /// The steps: `bf16 -> f32`, `f32 + 1`.
    pub what: String,
    /// To how many parameters.
    pub params: usize,
    /// Bytes before.
    pub bytes_in: u64,
    /// Bytes after.
    pub bytes_out: u64,
    /// Whether it keeps the values.
    pub fidelity: Fidelity,
}

/// The cost of `plan` on `entries`, apart from how its bytes are read.
pub fn summary(plan: &LoadPlan, entries: &[TensorEntry]) -> Summary {
    let mut used = BTreeSet::new();
    let mut codecs: BTreeMap<String, CodecUse> = BTreeMap::new();
    let mut sum = Summary {
        params: plan.params.len(),
        ties: 0,
        entries: entries.len(),
        entries_used: 0,
        dropped: plan.dropped.len(),
        slot_bytes: 0,
        needed_bytes: 0,
        borrowable_bytes: 0,
        copied_bytes: 0,
        zero_bytes: 0,
        codecs: vec![],
    };
    for param in &plan.params {
        if param.tied_to.is_some() {
            sum.ties += 1;
            continue;
        }
        sum.slot_bytes += param.slot_bytes();
        for piece in param.from_entries().flat_map(|p| p.copy.iter().chain(&p.equal)) {
            used.extend(piece.source.map(|s| s.entry));
        }
        for piece in param.planes.iter().flat_map(|p| &p.copy) {
            let bytes = piece.bytes();
            if piece.source.is_none() {
                sum.zero_bytes += bytes;
            } else if param.borrowable() {
                sum.borrowable_bytes += bytes;
            } else if param.steps.is_empty() {
                sum.copied_bytes += bytes;
            }
        }
        for param in param.staged.iter().chain([param]) {
            uses(param, &mut codecs);
        }
    }
    sum.needed_bytes = needed(plan);
    sum.entries_used = used.len();
    sum.codecs = codecs.into_values().collect();
    sum
}

/// Adds the changes of encoding of one parameter.
fn uses(param: &PlannedParam, codecs: &mut BTreeMap<String, CodecUse>) {
    let mut now = Arc::clone(&param.moved);
    for (step, fidelity) in param.steps.iter().zip(&param.step_fidelity) {
        let bytes_in = now.byte_len(&param.shape).unwrap_or(0);
        let what = match step {
            Step::To(to) => {
                let what = format!("{now} -> {to}");
                now = Arc::clone(to);
                what
            }
            Step::By(stage) => {
                let what = format!("{now} {step}");
                now = stage.gives();
                what
            }
            Step::Add(_) | Step::Apply(_) => format!("{now} {step}"),
        };
        let codec = codecs.entry(what.clone()).or_insert(CodecUse {
            what,
            params: 0,
            bytes_in: 0,
            bytes_out: 0,
            fidelity: fidelity.clone(),
        });
        codec.params += 1;
        codec.bytes_in += bytes_in;
        codec.bytes_out += now.byte_len(&param.shape).unwrap_or(0);
    }
}

/// Bytes of files that a plan needs, each counted once: pieces that take the same are one.
fn needed(plan: &LoadPlan) -> u64 {
    let mut whole = Whole::default();
    whole.add(plan);
    whole.bytes()
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", counted(self.params, "parameter"))?;
        if self.ties > 0 {
            write!(f, " ({} tied)", self.ties)?;
        }
        let tensors = counted(self.entries, "tensor");
        if self.entries_used == self.entries && self.entries > 1 {
            write!(f, ", all {tensors} used")?;
        } else {
            write!(f, ", {} of {tensors} used", self.entries_used)?;
        }
        if self.dropped > 0 {
            write!(f, ", {} dropped", self.dropped)?;
        }
        write!(f, "\nuses {} of the files", Bytes(self.needed_bytes))?;
        write!(
            f,
            "\n{} in memory: {} can be mapped, {} copied",
            Bytes(self.slot_bytes),
            Bytes(self.borrowable_bytes),
            Bytes(self.copied_bytes)
        )?;
        if self.zero_bytes > 0 {
            write!(f, ", {} padding", Bytes(self.zero_bytes))?;
        }
        let unchanged = self.borrowable_bytes + self.copied_bytes + self.zero_bytes;
        if !self.codecs.is_empty() && self.slot_bytes > unchanged {
            write!(f, ", the rest re-encoded")?;
        }
        for c in &self.codecs {
            write!(
                f,
                "\n{} in {}: {} to {}, ",
                c.what,
                counted(c.params, "parameter"),
                Bytes(c.bytes_in),
                Bytes(c.bytes_out)
            )?;
            match &c.fidelity {
                Fidelity::Exact => write!(f, "exact")?,
                Fidelity::Lossy(why) => write!(f, "lossy: {why}")?,
            }
        }
        Ok(())
    }
}
