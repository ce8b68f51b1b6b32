//! Layers of matrices. They go by the names that vLLM gave them.
//!
//! Source: vllm/model_executor/layers/{linear,vocab_parallel_embedding}.py, v0.33.0.

use tensor::{Expr, Presence};

use super::{Computes, Module, Tree, with_presence};
use crate::param::{Along, Axis, ParamSpec, Role};

/// Whether a linear layer has a bias.
type Bias = Option<Presence>;

/// `y = x Wᵀ + b`, whole on every rank: `weight` `[out, in]`, `bias` `[out]`.
#[derive(Clone, Debug)]
pub struct Linear {
    input: Along,
    output: Along,
    bias: Bias,
    presence: Presence,
    /// The bias is added once to a sum over ranks.
    once: bool,
}

impl Linear {
    /// Without a bias. An axis that is more than its extent says how ranks share it.
    pub fn new(input: impl Into<Along>, output: impl Into<Along>) -> Linear {
        let (input, output) = (input.into(), output.into());
        Linear { input, output, bias: None, presence: Presence::Required, once: false }
    }

    /// The same, but if its weight is absent it is the parameter called `name`, by its whole name.
    #[must_use]
    pub fn tied_to(self, name: impl Into<String>) -> Linear {
        Linear { presence: Presence::TiedTo(name.into()), ..self }
    }

    /// The same with a bias.
    #[must_use]
    pub fn with_bias(self) -> Linear {
        Linear { bias: Some(Presence::Required), ..self }
    }

    /// The same with a bias if a checkpoint has one.
    #[must_use]
    pub fn with_optional_bias(self) -> Linear {
        Linear { bias: Some(Presence::Optional), ..self }
    }

    /// The same, but the model does without it.
    #[must_use]
    pub fn optional(self) -> Linear {
        let bias = self.bias.map(|_| Presence::Optional);
        Linear { bias, presence: Presence::Optional, ..self }
    }

    fn weight(&self) -> ParamSpec {
        with_presence(ParamSpec::matrix(self.output, self.input), &self.presence)
    }

    fn bias(&self) -> Option<ParamSpec> {
        let spec = |presence: &Presence| with_presence(ParamSpec::vector(self.output), presence);
        self.bias.as_ref().map(spec).map(|spec| ParamSpec { once: self.once, ..spec })
    }
}

impl Module for Linear {
    fn declare(&self, tree: &mut Tree) {
        tree.param("weight", self.weight());
        if let Some(bias) = self.bias() {
            tree.param("bias", bias);
        }
    }
}

/// An axis that ranks share among them, if it does not say how they do.
fn divided(axis: Along) -> Along {
    if axis.axis == Axis::Whole { Along { axis: Axis::Divided, ..axis } } else { axis }
}

macro_rules! linear {
    ($($(#[$doc:meta])* $name:ident($linear:ident => $make:expr);)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name(Linear);

        impl $name {
            /// Without a bias.
            pub fn new(input: impl Into<Along>, output: impl Into<Along>) -> $name {
                let $linear = Linear::new(input, output);
                $name($make)
            }

            /// The same with a bias.
            #[must_use]
            pub fn with_bias(self) -> $name {
                $name(self.0.with_bias())
            }

            /// The same with a bias if a checkpoint has one.
            #[must_use]
            pub fn with_optional_bias(self) -> $name {
                $name(self.0.with_optional_bias())
            }
        }

        impl Module for $name {
            fn declare(&self, tree: &mut Tree) {
                self.0.declare(tree);
            }
        }
    )* };
}

linear! {
    /// A linear layer whose outputs ranks share: each holds rows of `weight` and of `bias`.
    ColumnParallelLinear(l => Linear { output: divided(l.output), ..l });
    /// A linear layer whose inputs ranks share, and whose outputs they sum up: each holds columns of `weight`; the
    /// bias is added once.
    RowParallelLinear(l => Linear { input: divided(l.input), once: true, ..l });
}

/// One of the layers that are fused: its name beside the fused one, and its outputs.
#[derive(Clone, Debug)]
pub struct FusedPart {
    name: String,
    output: Along,
    biased: bool,
}

impl FusedPart {
    /// A part that ranks share.
    pub fn new(name: impl Into<String>, output: impl Into<Along>) -> FusedPart {
        FusedPart { name: name.into(), output: divided(output.into()), biased: true }
    }

    /// A part that every rank holds whole.
    pub fn whole(name: impl Into<String>, output: impl Into<Along>) -> FusedPart {
        FusedPart { name: name.into(), output: output.into(), biased: true }
    }

    /// The same, but it has no bias where the others have one: their biases are not fused then.
    #[must_use]
    pub fn without_bias(self) -> FusedPart {
        FusedPart { biased: false, ..self }
    }
}

/// Linear layers of one input, fused: the share of each, one below the other. A checkpoint has them apart, beside where
/// the fused one is.
#[derive(Clone, Debug)]
pub struct MergedColumnParallelLinear {
    input: Along,
    parts: Vec<FusedPart>,
    bias: Bias,
}

impl MergedColumnParallelLinear {
    /// Without a bias.
    pub fn new(input: impl Into<Along>, parts: impl Into<Vec<FusedPart>>) -> MergedColumnParallelLinear {
        MergedColumnParallelLinear { input: input.into(), parts: parts.into(), bias: None }
    }

    /// The same, each part with a bias.
    #[must_use]
    pub fn with_bias(self) -> MergedColumnParallelLinear {
        MergedColumnParallelLinear { bias: Some(Presence::Required), ..self }
    }

    /// The same, each part with a bias if a checkpoint has one.
    #[must_use]
    pub fn with_optional_bias(self) -> MergedColumnParallelLinear {
        MergedColumnParallelLinear { bias: Some(Presence::Optional), ..self }
    }
}

impl Module for MergedColumnParallelLinear {
    fn declare(&self, tree: &mut Tree) {
        let mut fused = |kind: &str, spec: &dyn Fn(&FusedPart) -> ParamSpec| {
            let one = |part: &FusedPart| tree.part(&format!("..{}.{kind}", part.name), spec(part));
            let parts: Vec<Expr> = self.parts.iter().map(one).map(Expr::source).collect();
            tree.held_as(kind, Expr::concat(0, parts));
        };
        fused("weight", &|part| ParamSpec::matrix(part.output, self.input));
        let Some(presence) = &self.bias else { return };
        let bias = |part: &FusedPart| with_presence(ParamSpec::vector(part.output), presence);
        if self.parts.iter().all(|part| part.biased) {
            fused("bias", &bias);
            return;
        }
        for part in self.parts.iter().filter(|part| part.biased) {
            tree.param(&format!("..{}.bias", part.name), bias(part));
        }
    }
}

/// Queries, keys and values of attention, fused.
#[derive(Clone, Debug)]
pub struct QkvParallelLinear(MergedColumnParallelLinear);

impl QkvParallelLinear {
    /// Without a bias; a checkpoint has `q_proj`, `k_proj` and `v_proj`.
    pub fn new(hidden: impl Into<Along>, heads: u64, kv_heads: u64, head_dim: u64) -> QkvParallelLinear {
        let (q, kv) = (Axis::Heads.of_units(heads, head_dim), Axis::KvHeads.of_units(kv_heads, head_dim));
        let parts = [FusedPart::new("q_proj", q), FusedPart::new("k_proj", kv), FusedPart::new("v_proj", kv)];
        QkvParallelLinear(MergedColumnParallelLinear::new(hidden, parts))
    }

    /// The same with other names for the parts.
    #[must_use]
    pub fn named(mut self, names: [&str; 3]) -> QkvParallelLinear {
        for (part, name) in self.0.parts.iter_mut().zip(names) {
            name.clone_into(&mut part.name);
        }
        self
    }

    /// The same with keys that have no bias where queries and values have one.
    #[must_use]
    pub fn without_key_bias(mut self) -> QkvParallelLinear {
        if let Some(key) = self.0.parts.get_mut(1) {
            key.biased = false;
        }
        self
    }

    /// The same with a fourth part, as wide as the queries: the gate of what the heads give.
    #[must_use]
    pub fn with_gate(mut self, name: &str, heads: u64, head_dim: u64) -> QkvParallelLinear {
        self.0.parts.push(FusedPart::new(name, Axis::Heads.of_units(heads, head_dim)));
        self
    }

    /// The same, each part with a bias.
    #[must_use]
    pub fn with_bias(self) -> QkvParallelLinear {
        QkvParallelLinear(self.0.with_bias())
    }

    /// The same, each part with a bias if a checkpoint has one.
    #[must_use]
    pub fn with_optional_bias(self) -> QkvParallelLinear {
        QkvParallelLinear(self.0.with_optional_bias())
    }
}

impl Module for QkvParallelLinear {
    fn declare(&self, tree: &mut Tree) {
        self.0.declare(tree);
    }
}

/// A table of which rows are looked up: `weight` `[rows, width]`, whole on every rank.
#[derive(Clone, Debug)]
pub struct Embedding {
    rows: Along,
    width: Along,
    scale: f32,
    presence: Presence,
}

impl Embedding {
    /// `rows` rows of `width` elements.
    pub fn new(rows: impl Into<Along>, width: impl Into<Along>) -> Embedding {
        Embedding { rows: rows.into(), width: width.into(), scale: 1.0, presence: Presence::Required }
    }

    /// The same, whose rows are multiplied by `scale` when they are looked up.
    #[must_use]
    pub fn scaled(self, scale: f32) -> Embedding {
        Embedding { scale, ..self }
    }

    /// The same, but the model does without it.
    #[must_use]
    pub fn optional(self) -> Embedding {
        Embedding { presence: Presence::Optional, ..self }
    }
}

impl Module for Embedding {
    fn declare(&self, tree: &mut Tree) {
        let spec = ParamSpec::new(Role::Embedding, [self.rows, self.width]);
        tree.param("weight", with_presence(spec, &self.presence));
        tree.computes(Ok(Computes::Embedding { scale: self.scale }));
    }
}

/// The token embedding, `weight` `[vocab, hidden]`, whose rows ranks share.
#[derive(Clone, Debug)]
pub struct VocabParallelEmbedding {
    table: Embedding,
    added: u64,
}

impl VocabParallelEmbedding {
    /// An embedding of `vocab` tokens.
    pub fn new(vocab: u64, hidden: impl Into<Along>) -> VocabParallelEmbedding {
        VocabParallelEmbedding { table: Embedding::new(Axis::Vocab.of(vocab), hidden), added: 0 }
    }

    /// The same, whose rows are multiplied by `scale` when they are looked up.
    #[must_use]
    pub fn scaled(self, scale: f32) -> VocabParallelEmbedding {
        VocabParallelEmbedding { table: self.table.scaled(scale), ..self }
    }

    /// The same, but the model does without it.
    #[must_use]
    pub fn optional(self) -> VocabParallelEmbedding {
        VocabParallelEmbedding { table: self.table.optional(), ..self }
    }

    /// The same with `tokens` tokens that were added to the vocabulary, as `LoRA` does: a checkpoint has them as
    /// `added.weight`. They are a region of their own: each rank has its share of the vocabulary, padded, and then its share
    /// of these. [`Mesh::gathered`](crate::Mesh::gathered) says where the rows of all ranks are then.
    #[must_use]
    pub fn with_added(self, tokens: u64) -> VocabParallelEmbedding {
        VocabParallelEmbedding { added: tokens, ..self }
    }
}

impl Module for VocabParallelEmbedding {
    fn declare(&self, tree: &mut Tree) {
        if self.added == 0 {
            return self.table.declare(tree);
        }
        let spec = |rows: Along| ParamSpec::new(Role::Embedding, [rows, self.table.width]);
        let added = spec(Axis::Vocab.of(self.added));
        regions(tree, "weight", spec(self.table.rows), Some(added));
        tree.computes(Ok(Computes::Embedding { scale: self.table.scale }));
    }
}

/// A parameter, with the rows of `added` in a region of their own if there are some.
fn regions(tree: &mut Tree, name: &str, own: ParamSpec, added: Option<ParamSpec>) {
    let Some(added) = added else { return tree.param(name, own) };
    let parts = [tree.part(name, own), tree.part(&format!("added.{name}"), added)];
    tree.held_as(name, Expr::concat(0, parts.map(Expr::source).to_vec()));
}

/// The output matrix, `weight` `[vocab, hidden]`, whose rows ranks share.
#[derive(Clone, Debug)]
pub struct ParallelLmHead {
    linear: Linear,
    added: u64,
}

impl ParallelLmHead {
    /// A matrix of its own.
    pub fn new(hidden: impl Into<Along>, vocab: u64) -> ParallelLmHead {
        ParallelLmHead { linear: Linear::new(hidden, Axis::Vocab.of(vocab)), added: 0 }
    }

    /// The same, but if it is absent it is the parameter called `name`, by its whole name.
    #[must_use]
    pub fn tied_to(self, name: impl Into<String>) -> ParallelLmHead {
        ParallelLmHead { linear: self.linear.tied_to(name), ..self }
    }

    /// The same with a bias.
    #[must_use]
    pub fn with_bias(self) -> ParallelLmHead {
        ParallelLmHead { linear: self.linear.with_bias(), ..self }
    }

    /// The same with a bias if a checkpoint has one.
    #[must_use]
    pub fn with_optional_bias(self) -> ParallelLmHead {
        ParallelLmHead { linear: self.linear.with_optional_bias(), ..self }
    }

    /// The same with `tokens` tokens that were added to the vocabulary: see [`VocabParallelEmbedding::with_added`].
    /// A tied head that is absent is absent in both regions.
    #[must_use]
    pub fn with_added(self, tokens: u64) -> ParallelLmHead {
        ParallelLmHead { added: tokens, ..self }
    }
}

impl Module for ParallelLmHead {
    fn declare(&self, tree: &mut Tree) {
        let own = &self.linear;
        let added = Linear { output: Axis::Vocab.of(self.added), ..own.clone() };
        // The added tokens of a tied head are those of the embedding.
        let added = match &own.presence {
            Presence::TiedTo(name) => added.tied_to(added_to(name)),
            _ => added,
        };
        let has_added = self.added > 0;
        regions(tree, "weight", own.weight(), has_added.then(|| added.weight()));
        if let Some(bias) = own.bias() {
            regions(tree, "bias", bias, added.bias().filter(|_| has_added));
        }
    }
}

/// The region of added tokens of the parameter called `name`.
fn added_to(name: &str) -> String {
    match name.rsplit_once('.') {
        Some((module, name)) => format!("{module}.added.{name}"),
        None => format!("added.{name}"),
    }
}
