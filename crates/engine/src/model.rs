//! The parts of a model that all its sessions share: its architecture and its weights, read-only.

mod digest;

use std::fmt;
use std::sync::Arc;

use ::model::{Architecture, Computes};
use load::{Loaded, Tensor};

use crate::branches;
use crate::build::{Builder, size};
use crate::ear::{Ear, STRIDE};
use crate::layer::{Branch, Room};
use crate::rotary::Rotary;
use crate::score::Score;
use crate::weights::{NormWeights, Projection};
use crate::{BATCH, Error, KvKind, OBSERVED};

pub use digest::ModelDigest;

/// A model that is ready to run: read-only, without buffers or caches, so that any number of sessions share it.
pub struct Model {
    arch: Architecture,
    vocab: usize,
    hidden: usize,
    /// `[vocab, hidden]`, and what rows are multiplied by.
    pub(crate) token_embedding: (Tensor, f32),
    /// `[context, hidden]`, if positions are learned.
    pub(crate) position_embedding: Option<Tensor>,
    /// The token that takes no position; rows of others count from the one after its number.
    padding: Option<u32>,
    /// `[types, hidden]`, if there are types of tokens. All tokens have the first.
    pub(crate) token_type_embedding: Option<Tensor>,
    /// Of the sum of embeddings.
    pub(crate) embedding_norm: Option<NormWeights>,
    /// Its audio encoder, if it transcribes.
    pub(crate) ear: Option<Ear>,
    /// Of all layers, in order.
    branches: Vec<Branch>,
    /// After the last layer; an encoder may have none.
    pub(crate) output_norm: Option<NormWeights>,
    /// Hidden to logits; an encoder has none.
    output: Option<Arc<Projection>>,
    /// What scores a text.
    pub(crate) score: Option<Score>,
    /// Its rotary embeddings.
    pub(crate) ropes: Vec<Rotary>,
    /// All that was loaded, by name.
    params: Vec<(String, Tensor)>,
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
        let ear = Ear::of(&arch, &mut build)?;
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
            padding: match arch.encoder().and_then(|encoder| encoder.padding) {
                Some(padding) => Some(u32::try_from(padding).map_err(|_| Error::TooLarge)?),
                None => None,
            },
            // The plan knows whether a model does without it.
            token_type_embedding: build.optional_parameter("token_type_embedding.weight"),
            embedding_norm: build.optional_norm("embedding_norm")?,
            ear,
            branches,
            output_norm: build.optional_norm("output_norm")?,
            output: arch.decoder().map(|_| build.projection("output")).transpose()?,
            score: match build.get("score") {
                Some(Computes::Score(score)) => Score::new("score", *score, &build)?,
                _ => None,
            },
            ropes: build.rotaries(),
            params: params(loaded),
            arch,
        })
    }

    /// The architecture.
    pub fn architecture(&self) -> &Architecture {
        &self.arch
    }

    /// The digest of its content. All weights are read for it.
    pub fn digest(&self) -> ModelDigest {
        digest::digest(&self.arch, &self.params)
    }

    /// The number of scores that it gives a text, if it scores texts.
    pub fn labels(&self) -> Option<usize> {
        self.score.as_ref().map(Score::labels)
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

    /// The frames that it hears at once, and their mel bands; `None` if it does not listen.
    pub fn hears(&self) -> Option<(usize, usize)> {
        self.ear.as_ref().map(|ear| (STRIDE * ear.context, ear.mels))
    }

    /// True if a session can forget its last positions alone. Linear attention can forget only all of them.
    pub fn goes_back(&self) -> bool {
        self.branches.iter().all(|branch| branch.layer.recurrent().is_none())
    }

    /// Those of its audio encoder, too.
    pub(crate) fn all_branches(&self) -> impl Iterator<Item = &Branch> {
        self.ear.iter().flat_map(Ear::branches).chain(&self.branches)
    }

    /// Rows of a pass of it: [`BATCH`], or what an audio encoder takes at once.
    pub(crate) fn rows(&self) -> usize {
        self.ear.as_ref().map_or(BATCH, |ear| ear.context.max(BATCH))
    }

    /// The room that its layers need in a pass.
    pub(crate) fn room(&self) -> Room {
        self.branches.iter().map(|branch| branch.layer.room()).fold(Room::default(), Room::max)
    }

    /// Every projection.
    pub fn projections(&self) -> impl Iterator<Item = &Arc<Projection>> {
        let heard = self.ear.iter().flat_map(Ear::projections);
        heard
            .chain(self.branches.iter().flat_map(|branch| branch.layer.projections()))
            .chain(self.output())
            .chain(self.score.iter().flat_map(Score::projections))
    }

    /// The output matrix, hidden to logits; an encoder has none.
    pub fn output(&self) -> Option<&Arc<Projection>> {
        self.output.as_ref()
    }

    /// Bytes that a session of `positions` positions takes; `None` if they cannot be counted.
    pub(crate) fn state_bytes(&self, kind: KvKind, positions: usize) -> Option<u64> {
        let mut bytes = self.branches.iter().map(|branch| branch.layer.state_bytes(kind, positions));
        bytes.try_fold(0u64, |sum, bytes| sum.checked_add(bytes?))
    }

    /// Bytes of the queries that a session with a budget keeps beside its state.
    pub(crate) fn observed_bytes(&self) -> u64 {
        let widths = self.branches.iter().filter_map(|branch| branch.layer.observed());
        widths.map(|width| (4 * OBSERVED * width) as u64).sum()
    }

    /// Positions that it has learned a vector for, if it learns them.
    pub(crate) fn learned_positions(&self) -> Option<usize> {
        let before = self.padding.map_or(0, |padding| padding as usize + 1);
        self.position_embedding.as_ref().map(|table| table.rows().saturating_sub(before))
    }

    /// The rows of learned positions for the tokens of a whole sequence.
    pub(crate) fn position_rows(&self, tokens: &[u32]) -> impl Iterator<Item = usize> {
        let mut next = self.padding.map_or(0, |padding| padding as usize + 1);
        tokens.iter().map(move |token| match self.padding {
            Some(padding) if padding == *token => padding as usize,
            _ => {
                next += 1;
                next - 1
            }
        })
    }
}

/// The parameters of `loaded`, sorted by name.
fn params(loaded: &Loaded) -> Vec<(String, Tensor)> {
    let mut names: Vec<&str> = loaded.names().collect();
    names.sort_unstable();
    names.into_iter().filter_map(|name| Some((name.to_owned(), loaded.get(name)?.clone()))).collect()
}
