//! Runs a model whose weights a plan has loaded.
//!
//! - A [`Model`] is shared and read-only: the architecture and the weights. It is made from [`load::Loaded`] once.
//! - A [`Session`] is one sequence of tokens: its position, and the state that each layer keeps of earlier positions.
//!   It can be truncated, and a [`Snapshot`] of it starts others from a common prefix.
//! - A [`Batch`] is one step of many sessions: each takes its tokens, a prompt or a single one, and specifies after
//!   which of them it wants logits. Each row comes out as if its session were alone, bit for bit.
//! - A [`Runner`] runs batches: it owns the [backend](backend::Backend), which owns the threads, and the buffers.
//! - A model that transcribes hears: [`Runner::hear`] makes [`Heard`] of a spectrogram, which sessions then look at.
//! - A [`Sequencer`] runs whole sequences, of encoders too, for the vectors of their tokens.
//! - [`eval`] measures how well a model predicts a text and answers questions, and how far it is from another model.
//! - [`calibrate`] measures what goes into each matrix, and how much the predictions depend on it.
//! - [`generate`] is the loop over one session with a [sampler](sampler::Sampler); [`logprobs`] tells how likely its tokens
//!   were; [`text`] converts between text and tokens.
//!
//! ```no_run
//! # fn run(loaded: &load::Loaded, architecture: ::model::Architecture) -> Result<(), weighbridge_engine::Error> {
//! use std::sync::Arc;
//! use weighbridge_engine::{Batch, KvKind, Logits, Model, Runner, Session, backend::Reference};
//!
//! let model = Arc::new(Model::new(loaded, architecture)?);
//! let mut runner = Runner::new(&model, Box::new(Reference::new()))?;
//! let (mut first, mut second) = (Session::new(&model, KvKind::F16, 512)?, Session::new(&model, KvKind::F16, 64)?);
//! let mut batch = Batch::new();
//! batch.add(&mut first, &[1, 504, 3575], Logits::Last);
//! batch.add(&mut second, &[28], Logits::Last);
//! runner.run(batch, |part, _, logits| println!("{part}: {} logits", logits.len()))?;
//! # Ok(())
//! # }
//! ```

#![allow(
    clippy::cast_possible_truncation,
    reason = "sums and angles are taken in f64 and kept in f32; sizes are checked where they come in"
)]

mod adapter;
pub mod backend;
mod batch;
mod branches;
mod build;
pub mod calibrate;
pub mod draft;
mod ear;
mod error;
pub mod eval;
mod forward;
mod generate;
#[cfg(feature = "grammar")]
pub mod grammar;
mod hearing;
mod layer;
pub mod logprobs;
mod model;
mod pass;
mod rotary;
mod runner;
pub mod sampler;
pub mod sampling;
pub mod schedule;
mod score;
mod sequencer;
mod session;
#[cfg(feature = "speech")]
pub mod speech;
mod state;
mod stream;
pub mod text;
mod weights;

pub use self::model::{Model, ModelDigest};
pub use adapter::Adapter;
pub use batch::{Batch, Logits};
pub use error::Error;
pub use generate::{Limits, Sampled, Stats, Stop, generate};
pub use hearing::Heard;
pub use pass::BATCH;
pub use runner::Runner;
pub use sequencer::{Sequencer, Typed};
pub use session::{SavedProblem, Session, Snapshot, session_bytes};
pub use state::{KvCache, KvKind, KvShape, OBSERVED, PAGE, RECENT, RecurrentShape};
pub use stream::Streaming;
pub use weights::{Bias, Linear, NormWeights, Projection};
