//! SentencePiece models as `tokenizer.json` has them: BPE over characters, spaces marked, byte fallback, and the order
//! of merges where the model has scores.

use serde_json::Value;

use super::super::store::SPACE_MARK;
use super::super::vocabulary::kinds;
use super::super::{Error, TokenizerLoss, VocabularyBuf};
use super::file::{Bpe, File, steps};

/// The score of what no merge makes: below every other.
const LOWEST: f32 = -1e9;

/// Whether the file marks spaces and falls back to bytes, and then whether it puts a space before a text.
///
/// Source: `LlamaConverter` and `GemmaConverter` of transformers@v4.57, convert_slow_tokenizer.py: a normaliser that
/// replaces spaces, with `Prepend` or without, or the pre-tokenizer `Metaspace`.
pub(super) fn prefix(file: &File, model: &Bpe, losses: &mut Vec<TokenizerLoss>) -> Option<bool> {
    if !model.byte_fallback {
        return None;
    }
    let normalizers = steps(&file.normalizer, "normalizers");
    let cutters = steps(&file.pre_tokenizer, "pretokenizers");
    let marks = |n: &Value| {
        n["type"] == "Replace" && n["pattern"]["String"] == " " && n["content"].as_str() == Some(SPACE_MARK)
    };
    let prepends = |n: &Value| n["type"] == "Prepend" && n["prepend"].as_str() == Some(SPACE_MARK);
    // Once spaces are marked, no plain space is left to cut at.
    let idle = |p: &Value| p["type"] == "Split" && p["pattern"]["String"] == " " && p["invert"] == false;
    let metaspace = |p: &Value| {
        p["type"] == "Metaspace" && p["replacement"].as_str() == Some(SPACE_MARK) && p["split"] == false
    };
    match (&normalizers[..], &cutters[..]) {
        ([first, second], []) if prepends(first) && marks(second) => Some(true),
        ([only], []) if marks(only) => Some(false),
        ([only], [cut]) if marks(only) && idle(cut) => Some(false),
        ([], [cut]) if metaspace(cut) => {
            let scheme = cut["prepend_scheme"].as_str().unwrap_or("always");
            let effect = match scheme {
                "never" => return Some(false),
                "first" => "a text after a special token gets a space before it",
                _ => "a text that begins with a space gets another before it",
            };
            losses.push(TokenizerLoss::new("pre_tokenizer.prepend_scheme", effect));
            Some(true)
        }
        _ => None,
    }
}

/// The same vocabulary with scores for merges: the earlier a token can be made, the higher.
pub(super) fn as_scores(vocabulary: VocabularyBuf, space_prefix: bool) -> Result<VocabularyBuf, Error> {
    let VocabularyBuf { tokens, types, merges, unk, .. } = vocabulary;
    let ids: std::collections::HashMap<&str, usize> =
        tokens.iter().enumerate().map(|(id, text)| (text.as_str(), id)).collect();
    let mut scores = vec![LOWEST; tokens.len()];
    let mut joined = String::new();
    let mut rank = 0u32;
    for (i, merge) in merges.iter().enumerate() {
        joined.clear();
        joined.extend(merge.split(' '));
        let Some(score) = ids.get(joined.as_str()).and_then(|id| scores.get_mut(*id)) else {
            return Err(Error::malformed(
                "model.merges",
                format!("merge {i} makes `{joined}`, which is no token"),
            ));
        };
        if *score <= LOWEST {
            #[expect(clippy::cast_precision_loss, reason = "below 2^24 tokens; beyond, ties")]
            let value = -(rank as f32);
            (*score, rank) = (value, rank + 1);
        }
    }
    let mut types = types.unwrap_or_default();
    let mut texts = tokens.clone();
    for (id, (kind, text)) in types.iter_mut().zip(&mut texts).enumerate() {
        match *kind {
            kinds::NORMAL if is_byte(text) => *kind = kinds::BYTE,
            _ if unk == u32::try_from(id).ok() => *kind = kinds::UNKNOWN,
            // llama.cpp looks for them in the text as it is.
            kinds::USER_DEFINED => *text = text.replace(SPACE_MARK, " "),
            _ => {}
        }
    }
    Ok(VocabularyBuf {
        model: "llama".to_owned(),
        pre: Some("default".to_owned()),
        tokens: texts,
        types: Some(types),
        scores: Some(scores),
        merges: vec![],
        unk,
        add_space_prefix: Some(space_prefix),
        ..vocabulary
    })
}

/// `<0x0A>` and its like.
fn is_byte(text: &str) -> bool {
    let digits = text.strip_prefix("<0x").and_then(|t| t.strip_suffix('>'));
    digits.is_some_and(|d| d.len() == 2 && u8::from_str_radix(d, 16).is_ok())
}
