//! Everything that callers of a model see of it but its numbers.

use std::sync::Arc;

use engine::sampling::Sampling;
use engine::text::Tokenizer;
use model::Model;

use super::Runtime;

/// Everything of a model but its weights. A text that one runtime has begun goes on in another if their interfaces are alike.
#[derive(Clone, Debug)]
pub struct Interface {
    model: Model,
    tokenizer: Option<Arc<Tokenizer>>,
    template: Option<String>,
    sampling: Sampling,
}

impl Runtime {
    /// Everything of this model but its weights.
    pub fn interface(&self) -> Interface {
        Interface {
            model: self.model.clone(),
            tokenizer: self.tokenizer.as_ref().ok().cloned(),
            template: self.template.as_ref().map(|template| template.source().to_owned()),
            sampling: self.sampling.clone(),
        }
    }
}

impl Interface {
    /// Returns the differences of `other`, a sentence for each.
    pub fn unlike(&self, other: &Interface) -> Vec<String> {
        let fields = self.model.unlike(&other.model).into_iter();
        let mut unlike: Vec<String> =
            fields.map(|(name, a, b)| format!("`{name}` was {a} and is {b}")).collect();
        let is_like = match (&self.tokenizer, &other.tokenizer) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a.is_like(b),
            (None, None) => true,
            _ => false,
        };
        let others = [
            (is_like, "the tokenizer is another"),
            (self.template == other.template, "the chat template is another"),
            (self.sampling == other.sampling, "the defaults of sampling are others"),
        ];
        unlike.extend(others.iter().filter(|(is_like, _)| !is_like).map(|(_, what)| (*what).to_owned()));
        unlike
    }
}
