//! A vocabulary as `tokenizer.json` and `tokenizer_config.json`.

mod encoders;

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::super::pretokenize::{Pass, PreTokenizer};
use super::super::special::Ends;
use super::super::store::{SPACE_MARK, TokenType};
use super::super::vocabulary::kinds;
use super::{Error, SPLITS, Vocabulary, unsupported};

impl Vocabulary<'_> {
    /// Returns the `tokenizer.json` of this vocabulary, which gives the same tokens.
    ///
    /// A `llama` vocabulary becomes BPE whose merges are all pairs of tokens that make a token, the highest score
    /// first, as transformers makes it of SentencePiece models (`generate_merges`, convert_slow_tokenizer.py@v4.57).
    ///
    /// # Errors
    /// [`Error::Unsupported`] if no known `tokenizer.json` cuts text as the model does; [`Error::Malformed`] for a
    /// token that is not UTF-8, or an id that names none.
    pub fn to_tokenizer_json(&self) -> Result<Vec<u8>, Error> {
        if let "bert" | "t5" = self.model {
            return self.encoder_json();
        }
        let texts = self.texts()?;
        let named = self.kinds_by_name(&texts);
        let kind = |id: usize| {
            let said = self.types.as_ref().and_then(|types| types.get(id)).copied();
            named.get(&id).copied().or(said).unwrap_or(kinds::NORMAL)
        };
        let vocab: Map<String, Value> =
            texts.iter().enumerate().map(|(id, text)| ((*text).to_owned(), json!(id))).collect();
        let shape = match self.model {
            "gpt2" => self.over_bytes()?,
            "llama" => self.over_chars(&texts, &kind)?,
            other => return Err(unsupported("tokenizer model", other, "gpt2, llama, bert, t5")),
        };
        let file = json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": added(&texts, &kind),
            "normalizer": shape.normalizer,
            "pre_tokenizer": shape.pre_tokenizer,
            "post_processor": self.frame(&texts)?.unwrap_or(shape.post_processor),
            "decoder": shape.decoder,
            "model": {
                "type": "BPE",
                "dropout": null,
                // Bytes without a token are left out even if there is an unknown token, as in llama.cpp.
                "unk_token": self.unk().filter(|_| shape.by_chars).and_then(|id| texts.get(id as usize)),
                "continuing_subword_prefix": null,
                "end_of_word_suffix": null,
                "fuse_unk": shape.by_chars,
                "byte_fallback": shape.by_chars,
                "ignore_merges": shape.whole_words,
                "vocab": vocab,
                "merges": shape.merges,
            },
        });
        Ok(serde_json::to_vec(&file).unwrap_or_default())
    }

    /// The `tokenizer_config.json` beside it; `template` is the chat template, `context` the longest text in tokens.
    ///
    /// # Errors
    /// As [`Vocabulary::to_tokenizer_json`].
    pub fn to_tokenizer_config(&self, template: Option<&str>, context: u64) -> Result<Value, Error> {
        let texts = self.texts()?;
        let mut config = Map::new();
        let mut put = |key: &str, value: Value| {
            config.insert(key.to_owned(), value);
        };
        put("tokenizer_class", json!("PreTrainedTokenizerFast"));
        let roles = [
            ("bos_token", self.bos()),
            ("eos_token", self.eos()),
            ("unk_token", self.unk()),
            ("pad_token", self.pad),
            ("sep_token", self.sep),
            // GGUF has it as the token that opens a sequence.
            ("cls_token", self.cls.or(self.bos().filter(|_| self.sep.is_some()))),
            ("mask_token", self.mask),
        ];
        for (key, id) in roles {
            if let Some(text) = id.and_then(|id| texts.get(id as usize)) {
                put(key, json!(text));
            }
        }
        put("add_bos_token", json!(self.adds_bos()));
        put("add_eos_token", json!(self.adds_eos()));
        if let Some(adds) = self.add_space_prefix {
            put("add_prefix_space", json!(adds));
        }
        put("clean_up_tokenization_spaces", json!(false));
        put("model_max_length", json!(context));
        if let Some(template) = template {
            put("chat_template", json!(template));
        }
        Ok(Value::Object(config))
    }

    /// Returns the kinds that llama.cpp gives tokens by name, regardless of the file.
    fn kinds_by_name(&self, texts: &[&str]) -> HashMap<usize, i32> {
        let ids: HashMap<&str, u32> = texts.iter().copied().zip(0..).collect();
        let ends = Ends::find(&|name| ids.get(name).copied(), &[self.eos(), self.eot, self.eom]);
        let number = |kind: TokenType| match kind {
            TokenType::Control => kinds::CONTROL,
            TokenType::UserDefined => kinds::USER_DEFINED,
            _ => kinds::NORMAL,
        };
        ends.kinds.into_iter().map(|(id, kind)| (id as usize, number(kind))).collect()
    }

    fn texts(&self) -> Result<Vec<&str>, Error> {
        let mut texts = Vec::with_capacity(self.tokens.len());
        for (id, bytes) in self.tokens.iter().enumerate() {
            let text = std::str::from_utf8(bytes);
            let wrong = |_| Error::malformed("tokenizer.ggml.tokens", format!("token {id} is not UTF-8"));
            texts.push(text.map_err(wrong)?);
        }
        Ok(texts)
    }

    /// The token that opens a sequence. Without a key it is llama.cpp's, which differs between kinds of models.
    fn bos(&self) -> Option<u32> {
        self.bos.or(match self.model {
            "llama" => Some(1),
            "bert" => Some(101),
            _ => None,
        })
    }

    /// The token that ends one: of WordPiece, the separator.
    fn eos(&self) -> Option<u32> {
        match self.model {
            "llama" => self.eos.or(Some(2)),
            "bert" => self.sep.or(Some(102)),
            "t5" => self.eos.or(Some(1)),
            _ => self.eos,
        }
    }

    fn unk(&self) -> Option<u32> {
        self.unk.or(match self.model {
            "llama" => Some(0),
            "bert" => Some(100),
            "t5" => Some(2),
            _ => None,
        })
    }

    fn adds_bos(&self) -> bool {
        match self.model {
            "bert" => true,
            "t5" => self.add_bos.unwrap_or(false),
            "llama" => self.add_bos.unwrap_or(true),
            _ => {
                let pre = PreTokenizer::named(self.pre.unwrap_or("default"));
                self.add_bos.unwrap_or_else(|| pre.is_ok_and(|pre| pre.add_bos))
            }
        }
    }

    fn adds_eos(&self) -> bool {
        self.is_wordpiece() || self.add_eos.unwrap_or(self.model == "t5")
    }

    /// Returns the post-processor that puts BOS and EOS around a text, if the model adds them. Of two texts, each stands in its own frame,
    /// but those of an encoder in one, with one or two separators between them.
    fn frame(&self, texts: &[&str]) -> Result<Option<Value>, Error> {
        let special = |add: bool, id: Option<u32>| -> Result<Vec<(u32, &str)>, Error> {
            let Some(id) = id.filter(|_| add) else { return Ok(vec![]) };
            let text = texts.get(id as usize).copied();
            let missing = || {
                Error::malformed("tokenizer.ggml.bos_token_id", format!("{id}, and there is no such token"))
            };
            Ok(vec![(id, text.ok_or_else(missing)?)])
        };
        let bos = special(self.adds_bos(), self.bos())?;
        let eos = special(self.adds_eos(), self.eos())?;
        if bos.is_empty() && eos.is_empty() {
            return Ok(None);
        }
        let tokens = |list: &[(u32, &str)], kind: u32| -> Vec<Value> {
            list.iter().map(|(_, t)| json!({"SpecialToken": {"id": t, "type_id": kind}})).collect()
        };
        let text = |name: &str, kind: u32| vec![json!({"Sequence": {"id": name, "type_id": kind}})];
        let single = [tokens(&bos, 0), text("A", 0), tokens(&eos, 0)].concat();
        let separators = special(self.add_sep == Some(true), self.sep.or(self.eos()))?;
        let pair = match (self.is_wordpiece(), separators.is_empty()) {
            (true, _) => [single.clone(), text("B", 1), tokens(&eos, 1)],
            (false, false) => {
                [[single.clone(), tokens(&separators, 0)].concat(), text("B", 0), tokens(&eos, 0)]
            }
            (false, true) => [single.clone(), [tokens(&bos, 1), text("B", 1)].concat(), tokens(&eos, 1)],
        };
        let specials: Map<String, Value> = bos
            .iter()
            .chain(&eos)
            .chain(&separators)
            .map(|(id, text)| ((*text).to_owned(), json!({"id": text, "ids": [id], "tokens": [text]})))
            .collect();
        Ok(Some(json!({
            "type": "TemplateProcessing",
            "single": single,
            "pair": pair.concat(),
            "special_tokens": specials,
        })))
    }

    /// BPE over bytes, cut as the model was trained.
    fn over_bytes(&self) -> Result<Shape, Error> {
        let name = self.pre.unwrap_or("default");
        let pre = PreTokenizer::named(name)?;
        let bytes = |regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex});
        let after =
            |first: Value, regex: bool| json!({"type": "Sequence", "pretokenizers": [first, bytes(regex)]});
        let pre_tokenizer = match pre.passes {
            [Pass::Gpt2] => bytes(true),
            [Pass::Numbers { max: 1 }, Pass::Gpt2] => {
                after(json!({"type": "Digits", "individual_digits": true}), true)
            }
            [Pass::Llama3 { digits: digits @ (1 | 3), marks: false, .. }] => {
                let known = if *digits == 3 { "llama-bpe" } else { "qwen2" };
                let regex = SPLITS.iter().find(|(_, name)| *name == known).map_or("", |(regex, _)| regex);
                let split = json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
                after(split, false)
            }
            _ => {
                return Err(unsupported(
                    "way of cutting text in a tokenizer.json",
                    name,
                    "gpt-2, smollm, llama-bpe, qwen2",
                ));
            }
        };
        let merges = self.merges.iter().map(|m| Value::String(String::from_utf8_lossy(m).into_owned()));
        Ok(Shape {
            normalizer: Value::Null,
            pre_tokenizer,
            post_processor: bytes(true),
            decoder: json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
            merges: merges.collect(),
            whole_words: pre.whole_words,
            by_chars: false,
        })
    }

    /// BPE over characters with spaces marked, its merges in the order of scores.
    fn over_chars(&self, texts: &[&str], kind: &dyn Fn(usize) -> i32) -> Result<Shape, Error> {
        let Some(scores) = self.scores.as_ref().filter(|s| s.len() == texts.len()) else {
            return Err(Error::malformed("tokenizer.ggml.scores", "wanted one for each token"));
        };
        let ids: HashMap<&str, usize> = texts.iter().enumerate().map(|(id, text)| (*text, id)).collect();
        let mut made: Vec<(usize, Vec<(usize, usize)>)> = Vec::new();
        for (id, text) in texts.iter().enumerate().filter(|(id, _)| kind(*id) == kinds::NORMAL) {
            let cuts = text.char_indices().skip(1).map(|(at, _)| text.split_at(at));
            let mut pairs: Vec<(usize, usize)> =
                cuts.filter_map(|(l, r)| Some((*ids.get(l)?, *ids.get(r)?))).collect();
            pairs.sort_unstable();
            if !pairs.is_empty() {
                made.push((id, pairs));
            }
        }
        let score = |id: usize| scores.get(id).copied().unwrap_or(f32::MIN);
        made.sort_by(|(a, _), (b, _)| score(*b).total_cmp(&score(*a)).then(a.cmp(b)));
        let text = |id: usize| texts.get(id).copied().unwrap_or_default();
        let merges =
            made.iter().flat_map(|(_, pairs)| pairs).map(|(l, r)| json!([text(*l), text(*r)])).collect();
        let marks = json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE_MARK});
        let back = json!({"type": "Replace", "pattern": {"String": SPACE_MARK}, "content": " "});
        let mut decoders = vec![back, json!({"type": "ByteFallback"}), json!({"type": "Fuse"})];
        let mut normalizer = marks;
        if self.add_space_prefix.unwrap_or(true) {
            normalizer = json!({
                "type": "Sequence",
                "normalizers": [{"type": "Prepend", "prepend": SPACE_MARK}, normalizer],
            });
            decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
        }
        Ok(Shape {
            normalizer,
            pre_tokenizer: Value::Null,
            post_processor: Value::Null,
            decoder: json!({"type": "Sequence", "decoders": decoders}),
            merges,
            whole_words: false,
            by_chars: true,
        })
    }
}

/// `added_tokens`: those that are found in a text as they are.
fn added(texts: &[&str], kind: &dyn Fn(usize) -> i32) -> Vec<Value> {
    let of = |(id, text): (usize, &&str)| {
        let is_added = matches!(kind(id), kinds::CONTROL | kinds::USER_DEFINED | kinds::UNKNOWN);
        is_added.then(|| {
            json!({
                "id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": kind(id) != kinds::USER_DEFINED,
            })
        })
    };
    texts.iter().enumerate().filter_map(of).collect()
}

/// The parts of the file that differ between kinds of models.
struct Shape {
    normalizer: Value,
    pre_tokenizer: Value,
    post_processor: Value,
    decoder: Value,
    merges: Vec<Value>,
    whole_words: bool,
    by_chars: bool,
}
