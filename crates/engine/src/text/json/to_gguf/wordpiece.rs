//! WordPiece in the words of GGUF: a token that begins a word has a mark before it, one that goes on has none.
//!
//! Source: conversion/bert.py@0c1e57098, `BertModel.set_vocab`.

use super::super::super::store::SPACE_MARK;
use super::super::super::vocabulary::kinds;
use super::super::super::{TokenizerLoss, VocabularyBuf};
use super::super::file::{File, Problems, steps};
use super::super::wordpiece::{LONGEST, PREFIX, cleaning};

impl File {
    pub(super) fn wordpiece(
        &self,
        unk: Option<u32>,
        prefix: &str,
        longest: usize,
        problems: &mut Problems,
        losses: &mut Vec<TokenizerLoss>,
    ) -> VocabularyBuf {
        let cleaning = cleaning(self, problems);
        if prefix != PREFIX {
            problems.push((
                "model.continuing_subword_prefix".to_owned(),
                format!("GGUF has no key for `{prefix}`, only words that go on after `{PREFIX}`"),
            ));
        }
        let mut lose = |field: &str, effect: &str| losses.push(TokenizerLoss::new(field, effect));
        if longest != LONGEST {
            lose("model.max_input_chars_per_word", "long words get other tokens");
        }
        if let Some(cleaning) = cleaning {
            if !cleaning.clean_text {
                lose("normalizer.clean_text", "control characters are taken out");
            }
            if !cleaning.chinese {
                lose("normalizer.handle_chinese_chars", "each Chinese character is a word");
            }
        }
        let (mut tokens, types) = self.tokens(problems);
        for (token, _) in tokens.iter_mut().zip(&types).filter(|(_, kind)| **kind == kinds::NORMAL) {
            *token = match token.strip_prefix(PREFIX) {
                Some(rest) => rest.to_owned(),
                None => format!("{SPACE_MARK}{token}"),
            };
        }
        let roles = self.roles(losses);
        let said =
            steps(&self.normalizer, "normalizers").into_iter().find_map(|n| n["strip_accents"].as_bool());
        let lowercase = cleaning.map(|cleaning| cleaning.lowercase || cleaning.lowers_first);
        // Where nothing says it, accents go with capitals.
        let strips =
            cleaning.map(|cleaning| cleaning.strip_accents).filter(|strips| Some(*strips) != lowercase);
        VocabularyBuf {
            model: "bert".to_owned(),
            tokens,
            types: Some(types),
            unk: unk.or(roles.unk),
            // What llama.cpp puts after a text.
            sep: roles.sep.or(roles.eos),
            lowercase,
            strip_accents: said.or(strips),
            ..roles
        }
    }
}
