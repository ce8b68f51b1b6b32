//! The parts of a model that all its sessions share: its architecture and its weights, read-only.

use std::fmt;
use std::sync::Arc;

use ::model::Architecture;
use load::{Loaded, Tensor};

use crate::branches;
use crate::build::{Builder, size};
use crate::layer::{Branch, Room};
use crate::rotary::Rotary;
use crate::weights::{NormWeights, Projection};
use crate::{Error, KvKind};

/// A model that is ready to run: read-only, without buffers or caches, so that any number of sessions share it.
pub struct Model {
    arch: Architecture,
    vocab: usize,
    hidden: usize,
    /// `[vocab, hidden]`, and what rows are multiplied by.
    pub(crate) token_embedding: (Tensor, f32),
    /// `[context, hidden]`, if positions are learned.
    pub(crate) position_embedding: Option<Tensor>,
    /// `[types, hidden]`, if there are types of tokens. All tokens have the first.
    pub(crate) token_type_embedding: Option<Tensor>,
    /// Of the sum of embeddings.
    pub(crate) embedding_norm: Option<NormWeights>,
    /// Of all layers, in order.
    branches: Vec<Branch>,
    /// Hidden to logits; an encoder has none.
    pub(crate) head: Option<Head>,
    /// Its rotary embeddings.
    pub(crate) ropes: Vec<Rotary>,
}

/// Turns the residual stream into logits.
pub(crate) struct Head {
    /// Before the matrix.
    pub(crate) norm: NormWeights,
    /// Hidden to logits.
    pub(crate) output: Arc<Projection>,
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").field("branches", &self.branches.len()).finish_non_exhaustive()
    }
}

impl Model {
    /// Builds the layers that `arch` describes from what was loaded.
    ///
    /// # Errors
    /// If a parameter is not there, or the order of the rows of q and k is not known: a layout that the engine does not run. If an
    /// update ended on the way.
    pub fn new(loaded: &Loaded, arch: Architecture) -> Result<Model, Error> {
        let mut build = Builder::new(loaded, &arch)?;
        let mut branches = vec![];
        for n in 0..arch.layers() {
            branches.extend(branches::of(&format!("layers.{n}"), &mut build)?);
        }
        let table = |path: &str| -> Result<Option<Tensor>, Error> {
            Ok(build.optional_embedding(path)?.map(|(table, _)| table))
        };
        Ok(Model {
            vocab: size(arch.vocab())?,
            hidden: size(arch.hidden())?,
            token_embedding: build.embedding("token_embedding")?,
            position_embedding: table("position_embedding")?,
            token_type_embedding: table("token_type_embedding")?,
            embedding_norm: build.optional_norm("embedding_norm")?,
            branches,
            head: match arch.decoder() {
                Some(_) => {
                    Some(Head { norm: build.norm("output_norm")?, output: build.projection("output")? })
                }
                None => None,
            },
            ropes: build.rotaries(),
            arch,
        })
    }

    /// The architecture.
    pub fn architecture(&self) -> &Architecture {
        &self.arch
    }

    /// Tokens in the vocabulary.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// Elements of the residual stream.
    pub(crate) fn hidden(&self) -> usize {
        self.hidden
    }

    pub(crate) fn branches(&self) -> &[Branch] {
        &self.branches
    }

    /// The room that its layers need in a pass.
    pub(crate) fn room(&self) -> Room {
        self.branches.iter().map(|branch| branch.layer.room()).fold(Room::default(), Room::max)
    }

    /// Every projection.
    pub fn projections(&self) -> impl Iterator<Item = &Arc<Projection>> {
        self.branches.iter().flat_map(|branch| branch.layer.projections()).chain(self.output())
    }

    /// The output matrix, hidden to logits; an encoder has none.
    pub fn output(&self) -> Option<&Arc<Projection>> {
        self.head.as_ref().map(|head| &head.output)
    }

    /// Bytes of its state (keys and values) that a token at `position` reads.
    pub fn state_reads(&self, kind: KvKind, position: usize) -> u64 {
        let reads = self.branches.iter().map(|branch| branch.layer.state_reads(kind, position));
        reads.fold(0, u64::saturating_add)
    }

    /// Bytes that a session of `positions` positions takes; `None` if they cannot be counted.
    pub(crate) fn state_bytes(&self, kind: KvKind, positions: usize) -> Option<u64> {
        let mut bytes = self.branches.iter().map(|branch| branch.layer.state_bytes(kind, positions));
        bytes.try_fold(0u64, |sum, bytes| sum.checked_add(bytes?))
    }

    /// Positions that it has learned a vector for, if it learns them.
    pub(crate) fn learned_positions(&self) -> Option<usize> {
        self.position_embedding.as_ref().map(Tensor::rows)
    }
}
