//! The tokenizers of encoders as `tokenizer.json`: WordPiece of BERT, and Unigram of XLM-R.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::super::super::store::SPACE_MARK;
use super::super::super::vocabulary::kinds;
use super::super::wordpiece::{LONGEST, PREFIX, texts_of_gguf};
use super::super::{Error, Vocabulary};
use super::added;

impl Vocabulary<'_> {
    /// Whether it is WordPiece, the frame of which no key changes.
    pub(super) fn is_wordpiece(&self) -> bool {
        self.model == "bert"
    }

    /// `tokenizer.json` of a `bert` or `t5` vocabulary.
    pub(super) fn encoder_json(&self) -> Result<Vec<u8>, Error> {
        let kind = |id: usize| {
            let said = self.types.as_ref().and_then(|types| types.get(id)).copied();
            said.unwrap_or(kinds::NORMAL)
        };
        let own = if self.is_wordpiece() { Some(texts_of_gguf(self)?) } else { None };
        let mut texts = match &own {
            Some(own) => own.iter().map(String::as_str).collect(),
            None => self.texts()?,
        };
        // Rows of the embedding that no token has, which llama.cpp wants to be called something.
        while texts.last().is_some() && kind(texts.len() - 1) == kinds::UNUSED {
            texts.pop();
        }
        let shape = if self.is_wordpiece() { self.wordpiece(&texts) } else { self.unigram(&texts)? };
        let file = json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": added(&texts, &kind),
            "normalizer": shape.normalizer,
            "pre_tokenizer": shape.pre_tokenizer,
            "post_processor": self.frame(&texts)?,
            "decoder": shape.decoder,
            "model": shape.model,
        });
        Ok(serde_json::to_vec(&file).unwrap_or_default())
    }

    fn wordpiece(&self, texts: &[&str]) -> Encoder {
        let vocab: Map<String, Value> =
            texts.iter().enumerate().map(|(id, text)| ((*text).to_owned(), json!(id))).collect();
        Encoder {
            normalizer: json!({
                "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                "strip_accents": self.strip_accents, "lowercase": self.lowercase.unwrap_or(true),
            }),
            pre_tokenizer: json!({"type": "BertPreTokenizer"}),
            decoder: json!({"type": "WordPiece", "prefix": PREFIX, "cleanup": true}),
            model: json!({
                "type": "WordPiece",
                "unk_token": self.unk().and_then(|id| texts.get(id as usize)),
                "continuing_subword_prefix": PREFIX,
                "max_input_chars_per_word": LONGEST,
                "vocab": vocab,
            }),
        }
    }

    /// Pieces by scores, in a text whose spaces are marked as llama.cpp marks them.
    ///
    /// Source: `llm_tokenizer_ugm_session::normalize`, src/llama-vocab.cpp@0c1e57098.
    fn unigram(&self, texts: &[&str]) -> Result<Encoder, Error> {
        let Some(scores) = self.scores.as_ref().filter(|scores| scores.len() >= texts.len()) else {
            return Err(Error::malformed("tokenizer.ggml.scores", "wanted one for each token"));
        };
        let pieces: Vec<Value> =
            texts.iter().zip(scores).map(|(text, score)| json!([text, f64::from(*score)])).collect();
        let charsmap = self.charsmap.as_deref().filter(|map| !map.is_empty());
        let mut normalizers: Vec<Value> = charsmap
            .map(|map| json!({"type": "Precompiled", "precompiled_charsmap": STANDARD.encode(map)}))
            .into_iter()
            .collect();
        let prefix = self.add_space_prefix.unwrap_or(false);
        let merges = self.remove_extra_whitespaces.unwrap_or(false);
        let scheme = if prefix || merges { "always" } else { "never" };
        let metaspace =
            json!({"type": "Metaspace", "replacement": SPACE_MARK, "prepend_scheme": scheme, "split": true});
        let pre_tokenizer = if merges {
            let cutters = [json!({"type": "WhitespaceSplit"}), metaspace.clone()];
            json!({"type": "Sequence", "pretokenizers": cutters})
        } else {
            if prefix {
                normalizers.push(json!({"type": "Prepend", "prepend": SPACE_MARK}));
            }
            normalizers.push(json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE_MARK}));
            Value::Null
        };
        Ok(Encoder {
            normalizer: json!({"type": "Sequence", "normalizers": normalizers}),
            pre_tokenizer,
            decoder: metaspace,
            model: json!({
                "type": "Unigram",
                "unk_id": self.unk(),
                "vocab": pieces,
                "byte_fallback": false,
            }),
        })
    }
}

/// The parts of the file that differ between encoders.
struct Encoder {
    normalizer: Value,
    pre_tokenizer: Value,
    decoder: Value,
    model: Value,
}
