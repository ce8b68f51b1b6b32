//! Columns that matter are made larger before they are encoded, and what goes into them smaller, as AWQ does.
//!
//! A matrix whose columns are multiplied by `s` gives the same results for inputs that are divided by `s`. Where the inputs are those of
//! a norm, the norm's own factors are divided. An encoding rounds values of a block alike: a column that was made larger
//! loses less of what it was. Which `s` is best is found by trying: `s` is the strength of the input to a power from 0 to 1.
//!
//! Source: Lin et al., AWQ, 2023 (arXiv:2306.00978).

use std::collections::HashMap;
use std::sync::Arc;

use tensor::{Dtype, Scheme, Shape, Stage, StageInput};

use crate::digest::digest;

/// By how much the columns of matrices are multiplied, and the factors of norms divided, by the names of GGUF.
#[derive(Clone, Debug, Default)]
pub struct Scaling {
    matrices: HashMap<String, Arc<Scaled>>,
    norms: HashMap<String, Arc<Scaled>>,
    /// The result for each norm, by name.
    pub norm_results: Vec<ScaledNorm>,
    /// The matrices that no norm feeds: they keep their columns.
    pub without_norm: Vec<String>,
}

/// A norm, and the power that was chosen for it.
#[derive(Clone, Debug)]
pub struct ScaledNorm {
    /// Its canonical name.
    pub name: String,
    /// The canonical names of the matrices that it feeds.
    pub feeds: Vec<String>,
    /// The power of the strength of its results by which columns are multiplied; 0 if nothing else is better.
    pub power: f64,
    /// The error that is left of what rounding loses without it: 1 if nothing is gained.
    pub share: f64,
}

/// The factors of the columns of matrices that one norm feeds.
#[derive(Debug)]
struct Scaled {
    factors: Vec<f32>,
    /// How much the columns matter then.
    importance: Vec<f32>,
}

impl Scaling {
    /// Scales nothing yet; no norm feeds `matrices`.
    pub(crate) fn without_norm(matrices: Vec<String>) -> Scaling {
        Scaling { without_norm: matrices, ..Scaling::default() }
    }

    /// Adds a norm whose results feed `matrices`, all by the names of GGUF: columns of strength `strengths` are multiplied by
    /// `factors`.
    pub(crate) fn add<'n>(
        &mut self,
        norm: impl IntoIterator<Item = &'n str>,
        matrices: impl IntoIterator<Item = &'n str>,
        strengths: &[f32],
        factors: Vec<f32>,
    ) {
        let importance = strengths.iter().zip(&factors).map(|(m, s)| m / (s * s)).collect();
        let scaled = Arc::new(Scaled { factors, importance });
        self.matrices.extend(matrices.into_iter().map(|name| (name.to_owned(), Arc::clone(&scaled))));
        self.norms.extend(norm.into_iter().map(|name| (name.to_owned(), Arc::clone(&scaled))));
    }

    /// The factors of the columns of the matrix that GGUF calls `name`.
    pub(crate) fn factors(&self, name: &str) -> Option<&[f32]> {
        self.matrices.get(name).map(|scaled| &scaled.factors[..])
    }

    /// How much the columns of the matrix that GGUF calls `name` matter, as they are then.
    pub(crate) fn importance(&self, name: &str) -> Option<&[f32]> {
        self.matrices.get(name).map(|scaled| &scaled.importance[..])
    }

    /// The change of the parameter that GGUF calls `name`; of a norm whose factors are stored with `added` added.
    pub(crate) fn stage(&self, name: &str, added: i32) -> Option<Columns> {
        if let Some(scaled) = self.matrices.get(name) {
            return Some(Columns { factors: scaled.factors.clone(), terms: None });
        }
        let scaled = self.norms.get(name)?;
        let factors: Vec<f32> = scaled.factors.iter().map(|s| 1.0 / s).collect();
        // (t - n) / s + n
        let added = added as f32;
        let terms = (added != 0.0).then(|| factors.iter().map(|f| added - added * f).collect());
        Some(Columns { factors, terms })
    }

    /// Returns true if the parameter that GGUF calls `name` is a norm that changes.
    pub(crate) fn is_norm(&self, name: &str) -> bool {
        self.norms.contains_key(name)
    }

    /// A digest of all factors.
    pub(crate) fn digest(&self) -> String {
        digest(self.matrices.iter().map(|(name, scaled)| (name.as_str(), &scaled.factors[..])))
    }
}

/// Columns times a number each, and plus another.
#[derive(Debug)]
pub(crate) struct Columns {
    factors: Vec<f32>,
    terms: Option<Vec<f32>>,
}

impl Stage for Columns {
    fn name(&self) -> &'static str {
        "awq"
    }

    fn identity(&self) -> Vec<u8> {
        let all = self.factors.iter().chain(self.terms.iter().flatten());
        all.flat_map(|x| x.to_le_bytes()).collect()
    }

    fn takes(&self) -> Arc<Scheme> {
        Scheme::plain(Dtype::F32)
    }

    fn gives(&self) -> Arc<Scheme> {
        Scheme::plain(Dtype::F32)
    }

    fn loses(&self) -> Option<String> {
        Some("columns are multiplied, and rounded to f32".to_owned())
    }

    fn fits(&self, shape: &Shape) -> Result<(), String> {
        match shape.last() {
            Some(k) if *k == self.factors.len() as u64 => Ok(()),
            _ => Err(format!("it is for rows of {}", self.factors.len())),
        }
    }

    fn apply(&self, input: StageInput<'_>, planes: &mut [&mut [u8]]) -> Result<(), String> {
        let k = self.factors.len();
        let from = input.planes[0].as_chunks::<4>().0;
        let to = planes[0].as_chunks_mut::<4>().0;
        for (from, to) in from.chunks_exact(k).zip(to.chunks_exact_mut(k)) {
            for j in 0..k {
                let term = self.terms.as_ref().map_or(0.0, |terms| terms[j]);
                to[j] = (f32::from_le_bytes(from[j]) * self.factors[j] + term).to_le_bytes();
            }
        }
        Ok(())
    }
}
