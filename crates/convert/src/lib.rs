//! Converts checkpoints to other formats and encodings, and compares them.
//!
//! A [`Conversion`] writes a checkpoint as a file of another format or of other encodings; [`diff`] lists the
//! differences of two; [`coverage`] gives the verdict on every key of a checkpoint's metadata.

mod agreement;
mod carry;
mod compensation;
pub mod compress;
mod conversion;
mod coverage;
mod diff;
mod digest;
mod error;
mod format;
mod gguf;
mod imatrix;
mod names;
mod options;
mod report;
mod requantize;
mod resume;
mod rope;
mod scaling;

pub use carry::{Left, in_hf};
pub use checkpoint::Split;
pub use compensation::{Compensation, CompensationOptions, Feedbacks, Summing};
pub use conversion::{Conversion, Progress};
pub use coverage::{Covered, coverage};
pub use diff::{Compared, DiffGroup, DiffReport, KeyDifference, Outcome, StoredParam, diff};
pub use error::Error;
pub use format::OutputFormat;
pub use imatrix::{Imatrix, Sensitivity, write_calibration};
pub use options::ConvertOptions;
pub use report::{ConvertReport, Converted, Group};
pub use requantize::Requantized;
pub use scaling::{ScaledNorm, Scaling};
