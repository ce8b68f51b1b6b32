//! Whether two models mean the same by their tokens.

use std::fmt;

use crate::Error;
use crate::text::Tokenizer;

/// What a model's tokens mean, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub struct Vocab<'a> {
    /// Tokens that the model has logits for.
    pub size: usize,
    /// The tokenizer, if there is one.
    pub tokenizer: Option<&'a Tokenizer>,
}

/// How the vocabulary of a draft differs from that of the model that it guesses for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VocabularyDifference {
    /// Tokens of the model.
    pub model: usize,
    /// Tokens of the draft.
    pub draft: usize,
    /// The first token that differs, if both have tokenizers.
    pub first: Option<TokenDifference>,
}

/// A token that two vocabularies spell differently; `None` where one lacks it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenDifference {
    /// The id of the token.
    pub token: u32,
    /// Its spelling in the model.
    pub model: Option<String>,
    /// Its spelling in the draft.
    pub draft: Option<String>,
}

impl fmt::Display for VocabularyDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VocabularyDifference { model, draft, first } = self;
        if model != draft {
            write!(f, "the model has {model} tokens, the draft {draft}")?;
        }
        let Some(TokenDifference { token, model: by_model, draft: by_draft }) = first else { return Ok(()) };
        let spelled = |spelling: &Option<String>| match spelling {
            Some(text) => format!("`{}`", text.escape_debug()),
            None => "missing".to_owned(),
        };
        let separator = if model == draft { "" } else { "; " };
        write!(
            f,
            "{separator}token {token} is {} in the model and {} in the draft",
            spelled(by_model),
            spelled(by_draft)
        )
    }
}

/// Checks that both mean the same by each token. Without both tokenizers, that they have as many tokens.
///
/// Tokens that a file lists as unused fill a vocabulary up to a round number, so they may differ.
pub(super) fn check_vocabularies(model: Vocab<'_>, draft: Vocab<'_>) -> Result<(), Error> {
    let difference = match (model.tokenizer, draft.tokenizer) {
        (Some(a), Some(b)) => first_difference(a, b).map(|token| {
            let spelling = |tokenizer: &Tokenizer| tokenizer.token_spelling(token).map(str::to_owned);
            let first = Some(TokenDifference { token, model: spelling(a), draft: spelling(b) });
            VocabularyDifference { model: a.vocab_size(), draft: b.vocab_size(), first }
        }),
        _ if model.size == draft.size => None,
        _ => Some(VocabularyDifference { model: model.size, draft: draft.size, first: None }),
    };
    match difference {
        Some(difference) => Err(Error::DraftVocabulary(Box::new(difference))),
        None => Ok(()),
    }
}

/// The first token that two tokenizers spell differently, where neither lists it as unused.
fn first_difference(a: &Tokenizer, b: &Tokenizer) -> Option<u32> {
    let tokens = u32::try_from(a.vocab_size().max(b.vocab_size())).unwrap_or(u32::MAX);
    let is_unused = |token| a.is_unused(token) || b.is_unused(token);
    (0..tokens).find(|token| a.token_spelling(*token) != b.token_spelling(*token) && !is_unused(*token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Vocabulary;

    /// A tokenizer of letters: token 0 is a byte that all have.
    fn letters(tokens: &[&str], unused: usize) -> Tokenizer {
        let names: Vec<&[u8]> = tokens.iter().map(|token| token.as_bytes()).collect();
        let mut types = vec![1; tokens.len() - unused];
        types.resize(tokens.len(), 5);
        let vocabulary =
            Vocabulary { model: "gpt2", tokens: names, types: Some(types), ..Vocabulary::default() };
        Tokenizer::from_vocabulary(&vocabulary).unwrap()
    }

    fn difference(a: &Tokenizer, b: &Tokenizer) -> Option<String> {
        let vocab = |tokenizer| Vocab { size: 8, tokenizer: Some(tokenizer) };
        check_vocabularies(vocab(a), vocab(b)).err().map(|error| error.to_string())
    }

    #[test]
    fn what_differs_is_named() {
        let a = letters(&["a", "b", "c", "d"], 0);
        assert_eq!(difference(&a, &a), None);
        let swapped = letters(&["a", "c", "b", "d"], 0);
        assert_eq!(
            difference(&a, &swapped).unwrap(),
            "the draft has another vocabulary: token 1 is `b` in the model and `c` in the draft"
        );
        let shorter = letters(&["a", "b", "c"], 0);
        assert_eq!(
            difference(&a, &shorter).unwrap(),
            "the draft has another vocabulary: the model has 4 tokens, the draft 3; token 3 is `d` in the model and \
             missing in the draft"
        );
        // Unused tokens may be missing, and may be spelled in any way.
        let filled = letters(&["a", "b", "c", "d", "e"], 1);
        let otherwise = letters(&["a", "b", "c", "d", "f", "g"], 2);
        for (a, b) in [(&a, &filled), (&filled, &a), (&filled, &otherwise)] {
            assert_eq!(difference(a, b), None);
        }
        assert!(difference(&filled, &shorter).is_some());

        // Without a tokenizer, the sizes decide.
        let without = |size| Vocab { size, tokenizer: None };
        assert!(check_vocabularies(without(8), Vocab { size: 8, tokenizer: Some(&a) }).is_ok());
        assert_eq!(
            check_vocabularies(without(9), without(8)).unwrap_err().to_string(),
            "the draft has another vocabulary: the model has 9 tokens, the draft 8"
        );
    }
}
