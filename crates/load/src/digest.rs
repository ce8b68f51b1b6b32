//! The digest of a plan: the same for the same work, on every machine and in every run.
//!
//! It covers everything that determines the loaded bytes: the headers of the checkpoint, the layout and the rank, how
//! each parameter is moved and encoded, and the revisions of the encoders. It does not cover the files' identities: a
//! program that keeps a copy stores them beside the digest.

use std::collections::BTreeSet;
use std::fmt;

use blake3::Hasher;
use plan::{Piece, PlannedParam, PlannedPlane};
use tensor::{Arrangement, MeshRank, Scheme, Step, TensorEntry, ValueOrder};

/// Raised whenever something else is hashed, or in another way.
const VERSION: u64 = 1;

/// The identity of a plan: 32 bytes, shown as hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The bytes to hash, one field after the other: numbers as 8 bytes, texts and lists after their lengths.
#[derive(Default)]
struct Sum<'a> {
    hasher: Hasher,
    /// Schemes that were named.
    schemes: BTreeSet<&'a str>,
}

impl<'a> Sum<'a> {
    fn number(&mut self, n: u64) {
        self.hasher.update(&n.to_le_bytes());
    }

    fn count(&mut self, n: usize) {
        self.number(n as u64);
    }

    fn text(&mut self, text: &str) {
        self.count(text.len());
        self.hasher.update(text.as_bytes());
    }

    fn option<T>(&mut self, of: Option<T>, put: impl FnOnce(&mut Sum<'a>, T)) {
        self.number(u64::from(of.is_some()));
        if let Some(of) = of {
            put(self, of);
        }
    }

    fn numbers(&mut self, numbers: &[u64]) {
        self.count(numbers.len());
        for n in numbers {
            self.number(*n);
        }
    }

    fn scheme(&mut self, scheme: &'a Scheme) {
        self.text(&scheme.name);
        self.schemes.insert(&scheme.name);
    }

    fn arrangement(&mut self, arrangement: &Arrangement) {
        let Arrangement { layout, rope_order, value_order, share } = arrangement;
        self.text(layout);
        self.option(rope_order.as_ref(), |sum, order| sum.text(&order.to_string()));
        self.option(share.as_ref(), |sum, MeshRank { mesh, rank }| {
            sum.text(mesh);
            sum.number(*rank);
        });
        // Others have the digests that they had before there was a second order.
        if *value_order != ValueOrder::Grouped {
            self.text(&value_order.to_string());
        }
    }

    fn entry(&mut self, entry: &'a TensorEntry) {
        let TensorEntry { name, shape, scheme, planes, strides } = entry;
        self.text(name);
        self.numbers(shape);
        self.scheme(scheme);
        self.option(strides.as_ref(), |sum, strides| {
            sum.count(strides.len());
            for n in strides {
                sum.text(&n.to_string());
            }
        });
        self.count(planes.len());
        for plane in planes {
            self.numbers(&[u64::from(plane.file.0), plane.bytes.start, plane.bytes.end]);
        }
    }

    fn piece(&mut self, piece: &Piece) {
        let Piece { source, source_offset, target_offset, run, dims } = piece;
        self.option(source.as_ref(), |sum, from| sum.numbers(&[from.entry as u64, from.plane as u64]));
        self.numbers(&[*source_offset, *target_offset, *run]);
        self.count(dims.len());
        for dim in dims {
            self.numbers(&[dim.extent, dim.source_stride, dim.target_stride]);
        }
    }

    fn plane(&mut self, plane: &PlannedPlane) {
        let PlannedPlane { role, bytes, copy, equal } = plane;
        self.text(role);
        self.number(*bytes);
        for pieces in [copy, equal] {
            self.count(pieces.len());
            for piece in pieces {
                self.piece(piece);
            }
        }
    }

    fn param(&mut self, param: &'a PlannedParam) {
        self.text(&param.name);
        self.numbers(&param.shape);
        self.scheme(&param.scheme);
        self.scheme(&param.moved);
        self.count(param.steps.len());
        for step in &param.steps {
            match step {
                Step::To(scheme) => self.scheme(scheme),
                Step::Add(n) => self.text(&format!("add {n}")),
                Step::Apply(function) => self.text(&format!("apply {function}")),
                Step::By(stage) => {
                    self.text(&format!("by {}", stage.name()));
                    self.text(&stage.gives().name);
                    self.text(blake3::hash(&stage.identity()).to_hex().as_str());
                }
            }
        }
        self.option(param.tied_to, Sum::count);
        self.count(param.planes.len());
        for plane in &param.planes {
            self.plane(plane);
        }
        // Plans without it have the digests that they had.
        if param.align > 1 {
            self.text("align");
            self.number(param.align);
        }
        self.count(param.staged.len());
        for staged in &param.staged {
            self.param(staged);
        }
    }

    /// The digest, with the revision of each scheme that was named.
    fn finish(mut self) -> Digest {
        let schemes = std::mem::take(&mut self.schemes);
        self.count(schemes.len());
        for name in schemes {
            self.text(name);
            self.number(quant::codec(name).map_or(0, |codec| u64::from(codec.revision())));
        }
        Digest(*self.hasher.finalize().as_bytes())
    }
}

/// The digest of a plan: how its layout holds parameters, the entries that there are, and how each parameter is made of
/// them.
pub(crate) fn of(arrangement: &Arrangement, entries: &[TensorEntry], params: &[PlannedParam]) -> Digest {
    let mut sum = Sum::default();
    sum.text("weighbridge plan");
    sum.number(VERSION);
    sum.arrangement(arrangement);
    sum.count(entries.len());
    for entry in entries {
        sum.entry(entry);
    }
    sum.count(params.len());
    for param in params {
        sum.param(param);
    }
    sum.finish()
}
