//! `tokenizer.model`, as SentencePiece writes it: a protocol buffer of pieces and scores.
//!
//! Source: src/sentencepiece_model.proto of google/sentencepiece@v0.2.1 (`ModelProto`, `TrainerSpec`, `NormalizerSpec`);
//! the wire format, <https://protobuf.dev/programming-guides/encoding/>.

use serde_json::Value;

use super::vocabulary::kinds;
use super::{Error, VocabularyBuf};

const WHAT: &str = "tokenizer.model";

impl VocabularyBuf {
    /// Reads a SentencePiece model; `config` is the `tokenizer_config.json` beside it, whose `added_tokens_decoder`
    /// gives pieces other meanings.
    ///
    /// As llama.cpp's converter reads it: conversion/base.py@0c1e57098, `_create_vocab_sentencepiece`.
    ///
    /// # Errors
    /// [`Error::Malformed`] if it is not such a file, [`Error::Unsupported`] for a model that is not BPE.
    pub fn from_sentencepiece(model: &[u8], config: Option<&[u8]>) -> Result<VocabularyBuf, Error> {
        let config: Value = match config {
            Some(json) => serde_json::from_slice(json)
                .map_err(|e| Error::malformed("tokenizer_config.json", e.to_string()))?,
            None => Value::Null,
        };
        let (mut tokens, mut scores, mut types) = (vec![], vec![], vec![]);
        let mut spec = Spec::default();
        for field in Fields(model) {
            match field? {
                (1, Wire::Bytes(piece)) => {
                    let (text, score, kind) = read_piece(piece)?;
                    tokens.push(text);
                    scores.push(score);
                    types.push(kind);
                }
                (2, Wire::Bytes(trainer)) => spec.trainer(trainer)?,
                (3, Wire::Bytes(normalizer)) => spec.normalizer(normalizer)?,
                _ => {}
            }
        }
        if tokens.is_empty() {
            return Err(Error::malformed(WHAT, "it has no pieces"));
        }
        if spec.algorithm != BPE {
            let found = ["?", "unigram", "bpe", "word", "char"].get(spec.algorithm as usize).unwrap_or(&"?");
            return Err(Error::Unsupported {
                what: "SentencePiece model",
                found: (*found).to_owned(),
                supported: "bpe".to_owned(),
            });
        }
        let known = |id: Option<u64>| u32::try_from(id?).ok().filter(|id| (*id as usize) < tokens.len());
        let mut vocabulary = VocabularyBuf {
            model: "llama".to_owned(),
            pre: Some("default".to_owned()),
            unk: known(spec.unk.or(Some(0))),
            bos: known(spec.bos.or(Some(1))),
            eos: known(spec.eos.or(Some(2))),
            pad: known(spec.pad),
            tokens,
            scores: Some(scores),
            types: Some(types),
            add_bos: config["add_bos_token"].as_bool(),
            add_eos: config["add_eos_token"].as_bool(),
            add_space_prefix: Some(spec.space_prefix),
            ..VocabularyBuf::default()
        };
        vocabulary.add(&config["added_tokens_decoder"])?;
        vocabulary.name_roles(&config, None);
        Ok(vocabulary)
    }

    /// Pieces that a configuration names otherwise, or adds after the last.
    fn add(&mut self, added: &Value) -> Result<(), Error> {
        let mut all: Vec<(usize, &Value)> = Vec::new();
        for (id, token) in added.as_object().into_iter().flatten() {
            let id = id
                .parse()
                .map_err(|_| Error::malformed("added_tokens_decoder", format!("`{id}` is no id")))?;
            all.push((id, token));
        }
        all.sort_unstable_by_key(|(id, _)| *id);
        let (Some(scores), Some(types)) = (&mut self.scores, &mut self.types) else { return Ok(()) };
        for (id, token) in all {
            let Some(text) = token["content"].as_str() else { continue };
            if id > self.tokens.len() {
                let problem =
                    format!("`{text}` has the id {id}, and there are {} tokens before it", self.tokens.len());
                return Err(Error::malformed("added_tokens_decoder", problem));
            }
            if id == self.tokens.len() {
                self.tokens.push(String::new());
                scores.push(-1000.0);
                types.push(kinds::UNUSED);
            }
            let special = token["special"] == true;
            let text = if special { text.to_owned() } else { text.replace(super::store::SPACE_MARK, " ") };
            if let (Some(slot), Some(kind)) = (self.tokens.get_mut(id), types.get_mut(id)) {
                *slot = text;
                if *kind != kinds::UNKNOWN {
                    *kind = if special { kinds::CONTROL } else { kinds::USER_DEFINED };
                }
            }
        }
        Ok(())
    }
}

/// `TrainerSpec.ModelType`.
const BPE: u64 = 2;

/// The fields of `TrainerSpec` and `NormalizerSpec` that matter.
struct Spec {
    algorithm: u64,
    unk: Option<u64>,
    bos: Option<u64>,
    eos: Option<u64>,
    pad: Option<u64>,
    space_prefix: bool,
}

impl Default for Spec {
    /// As the protocol has them.
    fn default() -> Spec {
        Spec { algorithm: 1, unk: None, bos: None, eos: None, pad: None, space_prefix: true }
    }
}

impl Spec {
    fn trainer(&mut self, bytes: &[u8]) -> Result<(), Error> {
        for field in Fields(bytes) {
            match field? {
                (3, Wire::Int(n)) => self.algorithm = n,
                (40, Wire::Int(n)) => self.unk = Some(n),
                (41, Wire::Int(n)) => self.bos = Some(n),
                (42, Wire::Int(n)) => self.eos = Some(n),
                (43, Wire::Int(n)) => self.pad = Some(n),
                _ => {}
            }
        }
        Ok(())
    }

    fn normalizer(&mut self, bytes: &[u8]) -> Result<(), Error> {
        for field in Fields(bytes) {
            if let (3, Wire::Int(n)) = field? {
                self.space_prefix = n != 0;
            }
        }
        Ok(())
    }
}

/// Text, score and kind, whose numbers are GGUF's.
fn read_piece(bytes: &[u8]) -> Result<(String, f32, i32), Error> {
    let (mut text, mut score, mut kind) = (String::new(), 0.0, kinds::NORMAL);
    for field in Fields(bytes) {
        match field? {
            (1, Wire::Bytes(piece)) => {
                let piece = std::str::from_utf8(piece);
                piece.map_err(|_| Error::malformed(WHAT, "a piece is not UTF-8"))?.clone_into(&mut text);
            }
            (2, Wire::Word(bits)) => score = f32::from_bits(bits),
            (3, Wire::Int(n)) => kind = i32::try_from(n).unwrap_or(i32::MAX),
            _ => {}
        }
    }
    Ok((text, score, kind))
}

/// The value of a field.
enum Wire<'a> {
    Int(u64),
    Bytes(&'a [u8]),
    Word(u32),
    Long,
}

/// The fields of a message: number and value.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Wire<'a>), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or_else(|| Error::malformed(WHAT, "it is no SentencePiece model, or it is cut short")))
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u64, Wire<'a>)> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Wire::Int(self.varint()?),
            1 => {
                self.take(8)?;
                Wire::Long
            }
            2 => {
                let len = self.varint()?;
                Wire::Bytes(self.take(usize::try_from(len).ok()?)?)
            }
            5 => Wire::Word(u32::from_le_bytes(*self.take(4)?.first_chunk()?)),
            _ => return None,
        };
        Some((tag >> 3, value))
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (&[byte], rest) = self.0.split_first_chunk::<1>()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varint(mut n: u64) -> Vec<u8> {
        let mut out = vec![];
        while n >= 0x80 {
            out.push((n & 0x7f) as u8 | 0x80);
            n >>= 7;
        }
        out.push(n as u8);
        out
    }
    fn int(field: u64, n: u64) -> Vec<u8> {
        [varint(field << 3), varint(n)].concat()
    }
    fn bytes(field: u64, content: &[u8]) -> Vec<u8> {
        [varint(field << 3 | 2), varint(content.len() as u64), content.to_vec()].concat()
    }
    fn piece(text: &str, score: f32, kind: u64) -> Vec<u8> {
        let score = [varint(2 << 3 | 5), score.to_le_bytes().to_vec()].concat();
        bytes(1, &[bytes(1, text.as_bytes()), score, int(3, kind)].concat())
    }
    fn model(algorithm: u64) -> Vec<u8> {
        let pieces = [piece("<unk>", 0.0, 2), piece("<s>", 0.0, 3), piece("▁a", -1.5, 1), piece("x", 0.0, 5)];
        let trainer = bytes(2, &[int(3, algorithm), int(40, 0), int(41, 1), int(43, u64::MAX)].concat());
        [pieces.concat(), trainer, bytes(3, &[bytes(1, b"identity"), int(3, 0)].concat())].concat()
    }

    #[test]
    fn pieces_and_roles_are_read() {
        let config = br#"{"added_tokens_decoder": {"3": {"content": "<end>", "special": true},
            "4": {"content": "new", "special": false}}, "eos_token": "<end>"}"#;
        let v = VocabularyBuf::from_sentencepiece(&model(2), Some(config)).unwrap();
        assert_eq!(v.tokens, ["<unk>", "<s>", "▁a", "<end>", "new"]);
        assert_eq!(v.types.unwrap(), [2, 3, 1, 3, 4]);
        assert_eq!(v.scores.unwrap(), [0.0, 0.0, -1.5, 0.0, -1000.0]);
        assert_eq!((v.unk, v.bos, v.eos, v.pad), (Some(0), Some(1), Some(3), None));
        assert_eq!(v.add_space_prefix, Some(false));
    }

    #[test]
    fn what_is_no_such_model_is_refused() {
        let whole = model(2);
        let told = |bytes: &[u8]| VocabularyBuf::from_sentencepiece(bytes, None).unwrap_err().to_string();
        assert_eq!(told(b""), "`tokenizer.model`: it has no pieces");
        assert!(told(&model(1)).starts_with("SentencePiece model `unigram` is not supported"));
        assert!(told(&whole[..whole.len() - 3]).contains("cut short"));
        for cut in 1..whole.len() {
            // Whatever is missing, it does not panic.
            let _ = VocabularyBuf::from_sentencepiece(&whole[..cut], None);
        }
        assert!(
            told(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]).contains("cut short")
        );
    }
}
