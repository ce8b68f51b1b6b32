//! The tiers of a model: floats as published, compressed, ready for a runtime.

use std::collections::BTreeMap;
use std::fmt;

use checkpoint::Checkpoint;
use tensor::Dtype;

/// How far the weights of a model are on their way to a runtime.
///
/// | from | step | to |
/// |---|---|---|
/// | `Source` | [`Compress`](Step::Compress) | `Compressed` |
/// | `Source`, `Compressed` | [`Keep`](Step::Keep) | `RuntimeReady` |
/// | `RuntimeReady` | [`Lose`](Step::Lose) | the tier of the model's files |
///
/// No other step exists: [`Tiers::after`] is this table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Floats of 16 bits or more, as training leaves them.
    Source,
    /// A quantiser has made the weights smaller.
    Compressed,
    /// This machine has a valid copy in its runtime's layout.
    RuntimeReady,
}

/// What leads from one tier to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A quantiser writes a new checkpoint.
    Compress,
    /// A start keeps a copy of what it has loaded, and the copy becomes [`State::Ready`].
    Keep,
    /// The copy no longer counts: it was removed or changed, or the model's files have changed.
    Lose,
}

/// The use that the next start makes of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It maps the copy.
    Maps,
    /// It reads the copy whole. It maps the copy if the digest matches, and loads the model's files otherwise.
    Verifies,
    /// It loads the model's files.
    Loads,
}

/// Where an entry stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Nothing is there.
    Absent,
    /// A builder is at work.
    Building,
    /// A builder was ended on the way; the next one continues.
    Partial,
    /// The file is whole, and it is the one that was verified.
    Ready,
    /// It may be another file than the one that was verified: it is verified whole before it is used.
    Doubtful,
}

impl State {
    /// What a start does with a copy in this state.
    pub fn start(self) -> Start {
        match self {
            State::Ready => Start::Maps,
            State::Doubtful => Start::Verifies,
            State::Absent | State::Building | State::Partial => Start::Loads,
        }
    }
}

/// The tiers of one model on this machine: that of its files, and the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiers {
    is_compressed: bool,
    is_ready: bool,
}

impl Tiers {
    /// The tiers of a model with such `weights`, and a copy in this state. A copy that must be verified first does not count.
    pub fn new(weights: &Weights, copy: State) -> Tiers {
        Tiers { is_compressed: weights.tier() == Tier::Compressed, is_ready: copy.start() == Start::Maps }
    }

    /// The furthest tier.
    pub fn now(self) -> Tier {
        if self.is_ready { Tier::RuntimeReady } else { self.files() }
    }

    /// The tier of the model's files.
    pub fn files(self) -> Tier {
        if self.is_compressed { Tier::Compressed } else { Tier::Source }
    }

    /// The tiers after a step; `None` if the step does not begin here.
    #[must_use]
    pub fn after(self, step: Step) -> Option<Tiers> {
        match (self.now(), step) {
            (Tier::Source, Step::Compress) => Some(Tiers { is_compressed: true, ..self }),
            (Tier::Source | Tier::Compressed, Step::Keep) => Some(Tiers { is_ready: true, ..self }),
            (Tier::RuntimeReady, Step::Lose) => Some(Tiers { is_ready: false, ..self }),
            _ => None,
        }
    }
}

impl Tier {
    /// Its name, as `source`.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Source => "source",
            Tier::Compressed => "compressed",
            Tier::RuntimeReady => "runtime-ready",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The encodings of a checkpoint's weights, as its headers say. Integers (positions, masks, counters) are not weights.
#[derive(Clone, Debug, Default)]
pub struct Weights {
    /// The encodings, the one with the most elements first.
    pub encodings: Vec<Share>,
    is_compressed: bool,
}

/// The tensors of one encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The name of the encoding.
    pub encoding: String,
    /// The number of tensors.
    pub tensors: usize,
    /// The number of elements.
    pub elements: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Weights {
    /// Counts the weights of `checkpoint`. Reads nothing.
    pub fn of(checkpoint: &Checkpoint) -> Weights {
        let mut shares: BTreeMap<&str, Share> = BTreeMap::new();
        let mut is_compressed = false;
        for entry in checkpoint.entries() {
            match entry.scheme.dtype() {
                // Blocks, groups, codes with scales.
                None => is_compressed = true,
                Some(Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F64 | Dtype::C64) => {}
                Some(dtype) if is_float(dtype) => is_compressed = true,
                Some(_) => continue,
            }
            let name: &str = &entry.scheme.name;
            let share = shares.entry(name).or_insert_with(|| Share {
                encoding: name.to_owned(),
                tensors: 0,
                elements: 0,
                bytes: 0,
            });
            share.tensors += 1;
            share.elements = share.elements.saturating_add(entry.shape.elements().unwrap_or(0));
            share.bytes = share.bytes.saturating_add(entry.byte_len());
        }
        let mut encodings: Vec<Share> = shares.into_values().collect();
        encodings.sort_by_key(|share| std::cmp::Reverse(share.elements));
        Weights { encodings, is_compressed }
    }

    /// `Compressed` if any weight has fewer than 16 bits, `Source` otherwise.
    pub fn tier(&self) -> Tier {
        if self.is_compressed { Tier::Compressed } else { Tier::Source }
    }

    /// Bits of all weights per element; `None` if there are no weights.
    pub fn bits(&self) -> Option<f64> {
        let sum = |count: fn(&Share) -> u64| self.encodings.iter().map(count).sum::<u64>() as f64;
        let elements = sum(|share| share.elements);
        (elements > 0.0).then(|| 8.0 * sum(|share| share.bytes) / elements)
    }
}

/// Whether a type that is none of the usual floats is one of 8 bits.
fn is_float(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F8E4M3 | Dtype::F8E5M2 | Dtype::F8E8M0 | Dtype::F8E4M3FNUZ | Dtype::F8E5M2FNUZ)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [State; 5] =
        [State::Absent, State::Building, State::Partial, State::Ready, State::Doubtful];

    #[test]
    fn steps_lead_where_the_table_says_and_nowhere_else() {
        let mut led = vec![];
        for is_compressed in [false, true] {
            for is_ready in [false, true] {
                let tiers = Tiers { is_compressed, is_ready };
                for step in [Step::Compress, Step::Keep, Step::Lose] {
                    let Some(after) = tiers.after(step) else { continue };
                    led.push(format!("{} ({}) -> {}", tiers.now(), tiers.files(), after.now()));
                }
            }
        }
        assert_eq!(
            led,
            [
                "source (source) -> compressed",
                "source (source) -> runtime-ready",
                "runtime-ready (source) -> source",
                "compressed (compressed) -> runtime-ready",
                "runtime-ready (compressed) -> compressed",
            ]
        );
    }

    #[test]
    fn only_a_copy_that_a_start_maps_makes_the_model_runtime_ready() {
        for compressed in [false, true] {
            let weights = Weights { is_compressed: compressed, ..Weights::default() };
            for state in STATES {
                let tiers = Tiers::new(&weights, state);
                assert_eq!(tiers.files(), weights.tier());
                assert_eq!(tiers.now() == Tier::RuntimeReady, state == State::Ready, "{state:?}");
            }
        }
    }
}
