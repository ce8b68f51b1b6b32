//! Expressions: how one tensor is made from others.
//!
//! A dialect writes each canonical parameter as an expression over checkpoint entries, a layout writes
//! each runtime parameter as one over canonical parameters, and the plan substitutes one into the other.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::{Scheme, Shape, SharedStage};

/// A change of value or of encoding, done by a codec. Everything else in [`Expr`] is exact movement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Re-encode as this scheme: a cast, a decode, a repack.
    To(Arc<Scheme>),
    /// Add this to each element. HF's Gemma stores `w` where the model multiplies by `1 + w`.
    Add(i32),
    /// Replace each element by a function of it.
    Apply(Function),
    /// Changed by a stage from outside, after all movement.
    By(SharedStage),
}

/// A function of one number that has an inverse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// `-exp(x)`. HF's linear attention stores the logarithm of a rate, and GGUF the negative rate.
    NegExp,
    /// `ln(-x)`.
    LnNeg,
}

impl Function {
    /// The function that undoes it.
    #[must_use]
    pub fn inverse(self) -> Function {
        match self {
            Function::NegExp => Function::LnNeg,
            Function::LnNeg => Function::NegExp,
        }
    }

    /// Its value at `x`.
    pub fn of(self, x: f32) -> f32 {
        match self {
            Function::NegExp => -x.exp(),
            Function::LnNeg => (-x).ln(),
        }
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Function::NegExp => "-exp",
            Function::LnNeg => "ln-",
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::To(scheme) => write!(f, "-> {scheme}"),
            Step::Apply(function) => write!(f, "{function}"),
            Step::By(stage) => write!(f, "by {}", stage.name()),
            Step::Add(n) => write!(f, "{} {}", if *n < 0 { '-' } else { '+' }, n.unsigned_abs()),
        }
    }
}

/// How one tensor is made from others, on logical axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expr {
    /// The tensor of this name.
    Source(String),
    /// Padding.
    Zero(Shape),
    /// The parts one after another along `axis`.
    Concat {
        /// Logical axis, counted from the first.
        axis: usize,
        /// At least one part; the shapes agree on all other axes.
        parts: Vec<Expr>,
    },
    /// Equal parts along a new first axis.
    Stack(Vec<Expr>),
    /// The elements `range` of `axis`.
    Slice {
        /// Logical axis, counted from the first.
        axis: usize,
        /// Elements kept.
        range: Range<u64>,
        /// What is sliced.
        of: Box<Expr>,
    },
    /// Axis `n` becomes two: `n / inner, inner`.
    Split {
        /// Logical axis, counted from the first.
        axis: usize,
        /// Extent of the new inner axis.
        inner: u64,
        /// What is split.
        of: Box<Expr>,
    },
    /// Axes `axis` and `axis + 1` become one.
    Merge {
        /// The first of the two.
        axis: usize,
        /// What is merged.
        of: Box<Expr>,
    },
    /// Axis `i` of the result is axis `axes[i]` of `of`.
    Permute {
        /// A permutation of the axes.
        axes: Vec<usize>,
        /// What is permuted.
        of: Box<Expr>,
    },
    /// `of`, changed by a codec.
    Encode {
        /// The change.
        step: Step,
        /// What is changed.
        of: Box<Expr>,
    },
}

impl Expr {
    /// The tensor called `name`.
    pub fn source(name: impl Into<String>) -> Expr {
        Expr::Source(name.into())
    }

    /// The parts one after another along `axis`.
    pub fn concat(axis: usize, parts: Vec<Expr>) -> Expr {
        Expr::Concat { axis, parts }
    }

    /// Elements `range` of `axis`.
    #[must_use]
    pub fn slice(self, axis: usize, range: Range<u64>) -> Expr {
        Expr::Slice { axis, range, of: Box::new(self) }
    }

    /// Splits `axis` into `n / inner, inner`.
    #[must_use]
    pub fn split(self, axis: usize, inner: u64) -> Expr {
        Expr::Split { axis, inner, of: Box::new(self) }
    }

    /// Merges `axis` with the one after it.
    #[must_use]
    pub fn merge(self, axis: usize) -> Expr {
        Expr::Merge { axis, of: Box::new(self) }
    }

    /// Reorders the axes.
    #[must_use]
    pub fn permute(self, axes: &[usize]) -> Expr {
        Expr::Permute { axes: axes.to_vec(), of: Box::new(self) }
    }

    /// Swaps the two axes of a matrix.
    #[must_use]
    pub fn transpose(self) -> Expr {
        self.permute(&[1, 0])
    }

    /// Applies a codec.
    #[must_use]
    pub fn encode(self, step: Step) -> Expr {
        Expr::Encode { step, of: Box::new(self) }
    }

    /// Whether nothing that is stored has a part in it: it is padding, or a number added to that.
    pub fn is_constant(&self) -> bool {
        let mut constant = true;
        self.for_each_source(&mut |_| constant = false);
        constant
    }

    /// Calls `f` with the name of every source, in order of appearance.
    pub fn for_each_source<'a>(&'a self, f: &mut impl FnMut(&'a str)) {
        match self {
            Expr::Source(name) => f(name),
            Expr::Zero(_) => {}
            Expr::Concat { parts, .. } | Expr::Stack(parts) => {
                for part in parts {
                    part.for_each_source(f);
                }
            }
            Expr::Slice { of, .. }
            | Expr::Split { of, .. }
            | Expr::Merge { of, .. }
            | Expr::Permute { of, .. }
            | Expr::Encode { of, .. } => of.for_each_source(f),
        }
    }

    /// Whether axes change their order anywhere.
    pub fn turns(&self) -> bool {
        match self {
            Expr::Source(_) | Expr::Zero(_) => false,
            Expr::Permute { .. } => true,
            Expr::Concat { parts, .. } | Expr::Stack(parts) => parts.iter().any(Expr::turns),
            Expr::Slice { of, .. }
            | Expr::Split { of, .. }
            | Expr::Merge { of, .. }
            | Expr::Encode { of, .. } => of.turns(),
        }
    }

    /// Replaces every source by what `f` gives for its name. Of a stack that is sliced at once, only what is kept of it
    /// is copied: a rank's few experts of many.
    ///
    /// # Errors
    /// The first error of `f`.
    pub fn substitute<'e, E>(&self, f: &mut impl FnMut(&str) -> Result<Cow<'e, Expr>, E>) -> Result<Expr, E> {
        let mut inside = |of: &Expr| of.substitute(f).map(Box::new);
        Ok(match self {
            Expr::Source(name) => return Ok(f(name)?.into_owned()),
            Expr::Zero(shape) => Expr::Zero(shape.clone()),
            Expr::Concat { axis, parts } => {
                let parts = parts.iter().map(|p| p.substitute(f)).collect::<Result<_, E>>()?;
                Expr::Concat { axis: *axis, parts }
            }
            Expr::Stack(parts) => {
                Expr::Stack(parts.iter().map(|p| p.substitute(f)).collect::<Result<_, E>>()?)
            }
            Expr::Slice { axis, range, of } => {
                if let (Expr::Source(name), 0) = (&**of, *axis) {
                    let of = f(name)?;
                    return Ok(of.kept(range).unwrap_or_else(|| of.into_owned().slice(0, range.clone())));
                }
                Expr::Slice { axis: *axis, range: range.clone(), of: inside(of)? }
            }
            Expr::Split { axis, inner, of } => Expr::Split { axis: *axis, inner: *inner, of: inside(of)? },
            Expr::Merge { axis, of } => Expr::Merge { axis: *axis, of: inside(of)? },
            Expr::Permute { axes, of } => Expr::Permute { axes: axes.clone(), of: inside(of)? },
            Expr::Encode { step, of } => Expr::Encode { step: step.clone(), of: inside(of)? },
        })
    }

    /// Elements `range` of the first axis of a stack, as a stack of those parts.
    fn kept(&self, range: &Range<u64>) -> Option<Expr> {
        let Expr::Stack(parts) = self else { return None };
        let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
        parts.get(range).filter(|kept| !kept.is_empty()).map(|kept| Expr::Stack(kept.to_vec()))
    }
}
