//! The compiler: from expressions over names to checked pieces over bytes. Pure: it never does I/O and
//! never sees a byte of a tensor.
//!
//! 1. [`resolve`] matches the checkpoint's entries with the model's parameters, and reports everything that is missing,
//!    unused or mis-shaped at once. [`Mapped`] is what a user's rules make of the entries before that.
//! 2. [`compile`] substitutes the resolved parameters into the runtime's [`Target`]s, lowers each to [`Piece`]s, and
//!    proves that these write every byte of every slot exactly once.
//! 3. [`reads`], [`summary`] and [`explain`] say what a plan does before anything is done.
//!
//! # How movement works
//! An expression is evaluated once, on logical axes, to *parts*: affine maps from target to source
//! coordinates. Lowering divides both sides of a part by the cell sizes of a plane. Two operations do
//! everything: `clip` (a slice) and `align` (a split, the target's cells, the source's cells).
//!
//! A target cell can be written iff all its elements come from one source cell, in the same places if
//! the cell packs them. Whatever is refused breaks that rule; nothing else is refused. The tests check
//! both directions against an oracle that walks single elements.
#![forbid(unsafe_code)]
#![allow(
    clippy::result_large_err,
    reason = "a problem is made once and read by a person; it is not on a hot path"
)]

mod affix;
mod as_stored;
mod budget;
mod codecs;
mod compile;
mod diagnose;
mod dropped;
mod explain;
mod grid;
mod lower;
mod mapping;
mod partly;
mod piece;
mod problem;
mod prove;
mod reads;
mod render;
mod report;
mod resolve;
mod shapes;
mod sources;
mod steps;
mod summary;
mod view;
mod whole;
mod why;

pub use as_stored::as_stored;
pub use codecs::{Codecs, Fidelity};
pub use compile::{LoadPlan, PlannedParam, compile};
pub use dropped::{Dropped, dropped};
pub use explain::explain;
pub use lower::{Refusal, lower};
pub use mapping::{MapFault, MapProblem, MapProblems, Mapped, MappedTensor};
pub use piece::{Dim, Piece, PieceSource, PlannedPlane};
pub use problem::{Blame, End, Problem, Problems};
pub use prove::{Unproven, prove};
pub use reads::{Read, reads, reads_along, reads_of};
pub use resolve::{Absent, ResolveOptions, Resolved, ResolvedParam, resolve, resolve_with};
pub use shapes::shape_of;
pub use sources::Sources;
pub use steps::Clash;
pub use summary::{CodecUse, Summary, summary};
pub use tensor::{Binding, Bindings, DropRule, Presence, Target};
pub use whole::{Replicated, Untaken, Whole};
pub use why::Why;
