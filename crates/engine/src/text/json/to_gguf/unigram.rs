//! Unigram in the words of GGUF, as T5 and XLM-R have it.
//!
//! Source: conversion/bert.py@0c1e57098, `BertModel._xlmroberta_set_vocab`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::super::super::store::SPACE_MARK;
use super::super::super::vocabulary::kinds;
use super::super::super::{TokenizerLoss, VocabularyBuf};
use super::super::file::{File, Problems, steps};

impl File {
    pub(super) fn unigram(
        &self,
        pieces: &[(String, f64)],
        unk: usize,
        byte_fallback: bool,
        problems: &mut Problems,
        losses: &mut Vec<TokenizerLoss>,
    ) -> VocabularyBuf {
        if byte_fallback {
            problems.push(("model.byte_fallback".to_owned(), "llama.cpp has none here".to_owned()));
        }
        let charsmap = self.charsmap(problems);
        let spaces = self.spaces(problems);
        let (tokens, mut types) = self.tokens(problems);
        #[expect(clippy::cast_possible_truncation, reason = "GGUF has scores in f32")]
        let mut scores: Vec<f32> = pieces.iter().map(|(_, score)| *score as f32).collect();
        scores.resize(tokens.len(), 0.0);
        if let Some(kind) = types.get_mut(unk) {
            *kind = kinds::UNKNOWN;
        }
        VocabularyBuf {
            model: "t5".to_owned(),
            tokens,
            types: Some(types),
            scores: Some(scores),
            unk: u32::try_from(unk).ok(),
            add_space_prefix: Some(true),
            remove_extra_whitespaces: Some(spaces == Spaces::Merged),
            charsmap,
            ..self.roles(losses)
        }
    }

    /// What is replaced before all else.
    fn charsmap(&self, problems: &mut Problems) -> Option<Vec<u8>> {
        let mut table = None;
        for (i, step) in steps(&self.normalizer, "normalizers").into_iter().enumerate() {
            let coded = step["precompiled_charsmap"].as_str().filter(|_| step["type"] == "Precompiled");
            match coded {
                Some(coded) if i == 0 => match STANDARD.decode(coded) {
                    Ok(found) => table = Some(found).filter(|table| !table.is_empty()),
                    Err(e) => {
                        problems
                            .push(("normalizer.precompiled_charsmap".to_owned(), format!("not base64: {e}")));
                    }
                },
                // Words are cut at spaces afterwards, so that several are as one.
                _ if merges_spaces(step) => {}
                _ => {
                    let kind = step["type"].as_str().unwrap_or("?");
                    let said = format!("GGUF has no key for {kind}, only for Precompiled before all else");
                    problems.push(("normalizer".to_owned(), said));
                }
            }
        }
        table
    }

    /// What becomes of spaces, or a problem if llama.cpp has no way for it.
    fn spaces(&self, problems: &mut Problems) -> Spaces {
        let metaspace = |step: &Value| {
            step["type"] == "Metaspace"
                && step["replacement"].as_str() == Some(SPACE_MARK)
                && step["prepend_scheme"].as_str().unwrap_or("always") == "always"
        };
        let merged = steps(&self.normalizer, "normalizers").into_iter().any(merges_spaces);
        match steps(&self.pre_tokenizer, "pretokenizers")[..] {
            [words, marks] if words["type"] == "WhitespaceSplit" && metaspace(marks) => Spaces::Merged,
            [marks] if metaspace(marks) && merged => Spaces::Merged,
            [marks] if metaspace(marks) => Spaces::Kept,
            _ => {
                let said = "wanted Metaspace with a space before each text, alone or after WhitespaceSplit";
                problems.push(("pre_tokenizer".to_owned(), said.to_owned()));
                Spaces::Kept
            }
        }
    }
}

/// What becomes of several spaces that follow each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spaces {
    Kept,
    Merged,
}

/// Whether a step makes one space of several.
fn merges_spaces(step: &Value) -> bool {
    step["type"] == "Replace"
        && step["pattern"]["Regex"] == " {2,}"
        && [" ", SPACE_MARK].iter().any(|to| step["content"] == *to)
}
