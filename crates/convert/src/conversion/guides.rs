//! What encoders heed beside the values of each parameter.

use std::collections::HashMap;
use std::sync::Arc;

use load::Guide;
use quant::Feedback;

use crate::names::Names;
use crate::{ConvertOptions, Error, Imatrix, Scaling};

/// The guides of all parameters, but for feedbacks, which are made one after the other.
pub(super) struct Guides<'a> {
    names: &'a Names,
    imatrix: Option<&'a Imatrix>,
    scaling: Option<&'a Scaling>,
    /// The columns of each matrix whose errors are made good.
    fed: HashMap<&'a str, usize>,
}

impl<'a> Guides<'a> {
    pub(super) fn new(options: &ConvertOptions<'a>, names: &'a Names) -> Guides<'a> {
        let ConvertOptions { imatrix, scaling, compensation, .. } = *options;
        let fed = compensation.into_iter().flat_map(|compensation| compensation.columns()).collect();
        Guides { names, imatrix, scaling, fed }
    }

    /// The guide of the parameter called `name`, with its `feedback` if that is there.
    pub(super) fn of<'g>(&'g self, name: &str, feedback: Option<&'g Feedback>) -> Guide<'g> {
        let gguf = self.names.of(name);
        let scaled = self.scaling.and_then(|scaling| scaling.importance(gguf));
        let importance = scaled.or_else(|| self.imatrix.and_then(|imatrix| imatrix.get(gguf)));
        Guide { importance, feedback, foreseen: self.fed.get(gguf).copied() }
    }
}

/// The feedback of the first of `coming`, parameters that are encoded one after the other.
pub(super) fn feedback(
    options: &ConvertOptions<'_>,
    names: &Names,
    coming: &[&str],
) -> Result<Option<Arc<Feedback>>, Error> {
    let Some(compensation) = options.compensation else { return Ok(None) };
    compensation.feedback(&mut coming.iter().map(|name| names.of(name)))
}
