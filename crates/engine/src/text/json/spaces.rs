//! SentencePiece models as `tokenizer.json` has them: BPE over characters, spaces marked, byte fallback, and the order
//! of merges where the model has scores.

use serde_json::Value;

use super::super::store::SPACE_MARK;
use super::super::vocabulary::kinds;
use super::super::{Error, VocabularyBuf};

/// The score of what no merge makes: below every other.
const LOWEST: f32 = -1e9;

/// Whether the file marks spaces and falls back to bytes, and then whether it puts a space before a text.
///
/// Source: `LlamaConverter` and `GemmaConverter` of transformers@v4.57, convert_slow_tokenizer.py: a normaliser that
/// replaces spaces, with `Prepend` or without, or the pre-tokenizer `Metaspace`.
pub(super) fn prefix(file: &Value) -> Option<bool> {
    if file["model"]["byte_fallback"] != true {
        return None;
    }
    let one = |step: &Value, of: &str| match step[of].as_array() {
        Some(steps) => steps.clone(),
        None if step.is_null() => vec![],
        None => vec![step.clone()],
    };
    let normalizers = one(&file["normalizer"], "normalizers");
    let cutters = one(&file["pre_tokenizer"], "pretokenizers");
    let marks = |n: &Value| {
        n["type"] == "Replace" && n["pattern"]["String"] == " " && n["content"].as_str() == Some(SPACE_MARK)
    };
    let prepends = |n: &Value| n["type"] == "Prepend" && n["prepend"].as_str() == Some(SPACE_MARK);
    // Once spaces are marked, there is none to cut at.
    let idle = |p: &Value| p["type"] == "Split" && p["pattern"]["String"] == " ";
    match (&normalizers[..], &cutters[..]) {
        ([first, second], []) if prepends(first) && marks(second) => Some(true),
        ([only], []) if marks(only) => Some(false),
        ([only], [cut]) if marks(only) && idle(cut) => Some(false),
        ([], [cut]) if cut["type"] == "Metaspace" && cut["split"] == false => {
            match cut["prepend_scheme"].as_str() {
                Some("first" | "always") => Some(true),
                Some("never") => Some(false),
                _ => None,
            }
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
