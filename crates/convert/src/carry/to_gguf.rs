//! From the JSON files of an HF directory to GGUF metadata.

use checkpoint::{ArrayBuf, HfMetadata, Location, Member, Metadata, ValueBuf};
use engine::text::{self, VocabularyBuf, hf_template};
use model::{DialectName, Fact, Facts, KeyVerdict, Loss, Model};
use serde_json::Value;

use super::pooling::{self, Pooling};
use super::{Beside, Carried, LABELS, Left, SAMPLING, in_a_line, is_said, narrow, proven, why_left};
use crate::Error;

const ARCHITECTURE: &str = "general.architecture";
const CONFIG: &str = "config.json";
const GENERATION: &str = "generation_config.json";
const TOKENIZER: &str = "tokenizer.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

/// Why ids of tokens are not said.
const NO_TOKENIZER: &str = "the file has no tokenizer";

/// `tokenizer.ggml.token_type` of a row that no token has.
const UNUSED: i32 = 5;

/// The metadata of a GGUF file with the model of an HF directory, and what it does not say.
///
/// # Errors
/// If GGUF has no way to say the model, or a file beside the weights cannot be read.
pub(crate) fn to_gguf(
    hf: &HfMetadata,
    metadata: &Metadata,
    model: &Model,
    own: &dyn Fn(&str) -> bool,
) -> Result<Carried, Error> {
    let description = model.describe(DialectName::Gguf, own);
    proven(model, &description)?;
    let mut out = Out { pairs: Vec::new(), left: Vec::new() };
    let mut unsaid = Vec::new();
    let config = hf.config().cloned().unwrap_or_default();
    for (key, fact) in &description.pairs {
        match of_fact(fact) {
            Some(ValueBuf::Array(_)) if key.ends_with(LABELS) => out.labels(key, fact, &config),
            Some(value) => out.put(key, value),
            None if *fact == Fact::Null => {}
            None => unsaid.push(Loss::beside(key.clone(), "its value has no type in GGUF")),
        }
        if key == ARCHITECTURE {
            out.put("general.type", ValueBuf::Str("model".to_owned()));
            // The name of the directory itself, whatever path led to it.
            let dir = hf.dir();
            let real =
                dir.path().and_then(|path| path.canonicalize().ok()).map_or(dir.clone(), Location::Path);
            let name = Some(real.file_name()).filter(|name| !name.is_empty());
            out.put("general.name", ValueBuf::Str(name.unwrap_or_else(|| "model".to_owned())));
        }
    }
    let Pooling { kind, lost: lost_vectors, left } = pooling::of(hf)?;
    out.left.extend(left);
    if let (Some(kind), Some(Fact::Str(arch))) = (kind, description.lookup(ARCHITECTURE)) {
        let key = format!("{arch}.pooling_type");
        // A model that scores texts says so.
        if description.lookup(&key).is_none() {
            out.put(&key, ValueBuf::U32(kind));
        }
    }
    let generation = json(hf.generation_config(), GENERATION, &mut out)?;
    let roles = Roles { config: &config, generation: &generation };
    let mut lost = description.losses;
    lost.extend(lost_vectors);
    lost.extend(unsaid);
    let vocabulary = vocabulary_of_hf(hf, &mut lost)?;
    let has_tokenizer = vocabulary.is_some();
    if let Some((vocabulary, losses)) = vocabulary {
        out.tokenizer(vocabulary, *model.config().vocab, &roles)?;
        let beside =
            |loss: text::TokenizerLoss| Loss::beside(format!("tokenizer.{}", loss.field), loss.effect);
        lost.extend(losses.into_iter().map(beside));
    } else {
        out.put("tokenizer.ggml.model", ValueBuf::Str("none".to_owned()));
        if hf.tokenizer().is_none() && hf.sentencepiece().is_none() {
            out.left.push(Left::new(TOKENIZER, "", "it is not there: the file has no tokenizer"));
        }
    }
    if let Some(template) = hf_template(hf)? {
        out.put("tokenizer.chat_template", ValueBuf::Str(template));
    }
    for (from, to) in SAMPLING {
        if let Some(x) = generation[*from].as_f64() {
            let whole = (*from == "top_k").then(|| generation[*from].as_u64()).flatten();
            out.put(
                to,
                whole.and_then(|n| u32::try_from(n).ok()).map_or(ValueBuf::F32(narrow(x)), ValueBuf::U32),
            );
        }
    }
    out.list_config(&model.verdicts(metadata), has_tokenizer);
    out.list_generation(&generation, has_tokenizer);
    out.list_tokenizer_config(hf)?;
    Ok(Carried { beside: Beside::Gguf(out.pairs), made: vec![], left: out.left, lost })
}

struct Out {
    pairs: Vec<(String, ValueBuf)>,
    left: Vec<Left>,
}

impl Out {
    fn put(&mut self, key: &str, value: ValueBuf) {
        self.pairs.push((key.to_owned(), value));
    }

    /// The names of scores, as `id2label` has them.
    fn labels(&mut self, key: &str, fact: &Fact, config: &Value) {
        let Fact::List(list) = fact else { return };
        let name = |(n, plain): (usize, &Fact)| match (&config["id2label"][n.to_string()], plain) {
            (Value::String(name), _) | (_, Fact::Str(name)) => name.clone(),
            _ => String::new(),
        };
        let names = list.iter().enumerate().map(name);
        self.put(key, ValueBuf::Array(ArrayBuf::strings(names)));
    }

    /// The keys `tokenizer.ggml.*`, with a row for each of the `rows` of the embedding, as llama.cpp wants them.
    fn tokenizer(&mut self, mut v: VocabularyBuf, rows: u64, roles: &Roles<'_>) -> Result<(), Error> {
        let tokens = v.tokens.len();
        let rows = usize::try_from(rows).unwrap_or(usize::MAX);
        if tokens > rows {
            let what = format!("the tokenizer has {tokens} tokens, and the model's embedding {rows} rows");
            return Err(Error::Convert { what: what.into() });
        }
        let types = v.types.get_or_insert_with(|| vec![1; tokens]);
        let (mark, score) = match v.model.as_str() {
            "bert" => ("\u{2581}", 0.0),
            "t5" => ("", -10_000.0),
            _ => ("", -1000.0),
        };
        for id in tokens..rows {
            v.tokens.push(format!("{mark}[PAD{id}]"));
            types.push(UNUSED);
            if let Some(scores) = &mut v.scores {
                scores.push(score);
            }
        }
        self.put("tokenizer.ggml.model", ValueBuf::Str(v.model));
        self.put("tokenizer.ggml.pre", ValueBuf::Str(v.pre.unwrap_or_else(|| "default".to_owned())));
        self.put("tokenizer.ggml.tokens", ValueBuf::Array(ArrayBuf::strings(&v.tokens)));
        if let Some(scores) = &v.scores {
            self.put("tokenizer.ggml.scores", ValueBuf::Array(ArrayBuf::f32s(scores)));
        }
        self.put("tokenizer.ggml.token_type", ValueBuf::Array(ArrayBuf::i32s(types)));
        if let Some(map) = &v.charsmap {
            self.put("tokenizer.ggml.precompiled_charsmap", ValueBuf::Array(ArrayBuf::octets(map)));
        }
        if !v.merges.is_empty() {
            self.put("tokenizer.ggml.merges", ValueBuf::Array(ArrayBuf::strings(&v.merges)));
        }
        let eos = v.eos.or_else(|| roles.ids("eos_token_id").first().copied());
        let eot = roles.ids("eos_token_id").into_iter().find(|id| Some(*id) != eos);
        for (file, said) in [(CONFIG, roles.config), (GENERATION, roles.generation)] {
            let all = ids(said, "eos_token_id").unwrap_or_default();
            let more: Vec<u32> = all.into_iter().filter(|id| ![eos, eot].contains(&Some(*id))).collect();
            if !more.is_empty() {
                let why = format!("GGUF has keys for two tokens that end a text: {more:?} has none");
                self.left.push(Left::new(file, "eos_token_id", why));
            }
        }
        let ids = [
            ("bos", v.bos.or_else(|| roles.ids("bos_token_id").first().copied())),
            ("eos", eos),
            ("eot", eot),
            ("unknown", v.unk),
            ("padding", v.pad.or_else(|| roles.ids("pad_token_id").first().copied())),
            // Spelled so.
            ("seperator", v.sep.or_else(|| roles.ids("sep_token_id").first().copied())),
            ("mask", v.mask.or_else(|| roles.ids("mask_token_id").first().copied())),
        ];
        for (role, id) in ids {
            if let Some(id) = id.filter(|id| (*id as usize) < rows) {
                self.put(&format!("tokenizer.ggml.{role}_token_id"), ValueBuf::U32(id));
            }
        }
        let flags = [
            ("add_bos_token", v.add_bos),
            ("add_eos_token", v.add_eos),
            ("add_sep_token", v.add_sep),
            ("add_space_prefix", v.add_space_prefix),
            ("remove_extra_whitespaces", v.remove_extra_whitespaces),
            ("normalizer.lowercase", v.lowercase),
            ("normalizer.strip_accents", v.strip_accents),
        ];
        for (name, flag) in flags {
            if let Some(flag) = flag {
                self.put(&format!("tokenizer.ggml.{name}"), ValueBuf::Bool(flag));
            }
        }
        Ok(())
    }

    /// Keys of config.json that nothing above has taken.
    fn list_config(&mut self, keys: &[KeyVerdict], has_tokenizer: bool) {
        for key in keys.iter().filter(|key| !is_said(key) && key.key != "architectures") {
            match (is_id(&key.key), has_tokenizer) {
                (true, true) => {}
                (true, false) => self.left.push(Left::new(CONFIG, &key.key, NO_TOKENIZER)),
                (false, _) => {
                    let why = why_left(key, "GGUF has no key for it that is known here");
                    self.left.push(Left::new(CONFIG, &key.key, why));
                }
            }
        }
    }

    fn list_generation(&mut self, generation: &Value, has_tokenizer: bool) {
        for key in generation.as_object().into_iter().flatten().map(|(key, _)| key.as_str()) {
            let carried = SAMPLING.iter().any(|(name, _)| *name == key) || is_id(key);
            let bookkeeping = matches!(key, "transformers_version" | "_from_model_config");
            match (carried, bookkeeping) {
                (true, _) if is_id(key) && !has_tokenizer => {
                    self.left.push(Left::new(GENERATION, key, NO_TOKENIZER));
                }
                (true, _) => {}
                (_, true) => self.left.push(Left::new(GENERATION, key, "of the program that wrote it")),
                _ => self.left.push(Left::new(GENERATION, key, "GGUF has no key for it that is known here")),
            }
        }
    }

    fn list_tokenizer_config(&mut self, hf: &HfMetadata) -> Result<(), Error> {
        const CARRIED: &[&str] = &[
            "add_bos_token",
            "add_eos_token",
            "add_prefix_space",
            "added_tokens_decoder",
            "bos_token",
            "chat_template",
            "cls_token",
            "eos_token",
            "mask_token",
            "pad_token",
            "sep_token",
            "unk_token",
        ];
        let config = json(hf.tokenizer_config(), TOKENIZER_CONFIG, self)?;
        for key in config.as_object().into_iter().flatten().map(|(key, _)| key.as_str()) {
            if !CARRIED.contains(&key) && !config[key].is_null() {
                self.left.push(Left::new(TOKENIZER_CONFIG, key, "GGUF has no key for it that is known here"));
            }
        }
        Ok(())
    }
}

/// Ids of tokens with a role, as the two files beside the weights give them.
struct Roles<'a> {
    config: &'a Value,
    generation: &'a Value,
}

impl Roles<'_> {
    /// All of both, the ones for generation first.
    fn ids(&self, key: &str) -> Vec<u32> {
        let both = [ids(self.generation, key), ids(self.config, key)];
        both.into_iter().flatten().flatten().collect()
    }
}

/// Whether a key gives ids of tokens with a role that GGUF has a key for.
fn is_id(key: &str) -> bool {
    let roles = ["bos", "eos", "pad", "sep", "cls", "mask"];
    key.strip_suffix("_token_id").is_some_and(|role| roles.contains(&role))
}

/// A token id, or a list of them, if `key` is one that gives them.
fn ids(file: &Value, key: &str) -> Option<Vec<u32>> {
    if !is_id(key) {
        return None;
    }
    let one = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match &file[key] {
        Value::Array(list) => Some(list.iter().filter_map(one).collect()),
        value => Some(one(value).into_iter().collect()),
    }
}

/// The vocabulary beside the weights, if GGUF can say it: a SentencePiece model has scores, which a tokenizer.json has
/// not.
pub(super) fn vocabulary_of_hf(
    hf: &HfMetadata,
    lost: &mut Vec<Loss>,
) -> Result<Option<(VocabularyBuf, Vec<text::TokenizerLoss>)>, Error> {
    let config = hf.tokenizer_config().map(Member::read).transpose()?;
    let vocabulary = match (hf.sentencepiece(), hf.tokenizer()) {
        (Some(model), _) => VocabularyBuf::from_sentencepiece(&model.read()?, config.as_deref())
            .map(|vocabulary| (vocabulary, vec![])),
        (None, Some(json)) => VocabularyBuf::from_json(&json.read()?, config.as_deref()),
        (None, None) => return Ok(None),
    };
    let without = |why: text::Error| {
        let what = format!("the file has no tokenizer: {}", in_a_line(&why));
        lost.push(Loss::beside("tokenizer", what));
    };
    Ok(vocabulary.map_err(without).ok())
}

/// A small JSON file; one that is no JSON is left.
fn json(member: Option<&Member>, file: &str, out: &mut Out) -> Result<Value, Error> {
    let Some(member) = member else { return Ok(Value::Null) };
    Ok(serde_json::from_slice(&member.read()?).unwrap_or_else(|e| {
        out.left.push(Left::new(file, "", format!("it is not JSON: {e}")));
        Value::Null
    }))
}

fn of_fact(fact: &Fact) -> Option<ValueBuf> {
    Some(match fact {
        Fact::Bool(b) => ValueBuf::Bool(*b),
        Fact::Count(n) => u32::try_from(*n).map_or(ValueBuf::U64(*n), ValueBuf::U32),
        Fact::Number(x) => ValueBuf::F32(narrow(*x)),
        Fact::Str(text) => ValueBuf::Str(text.clone()),
        Fact::List(list) if list.iter().all(|fact| matches!(fact, Fact::Str(_))) => {
            let text = |fact: &Fact| if let Fact::Str(text) = fact { text.clone() } else { String::new() };
            ValueBuf::Array(ArrayBuf::strings(list.iter().map(text)))
        }
        Fact::List(list) if list.iter().all(|fact| matches!(fact, Fact::Count(_))) => {
            let count = |fact: &Fact| fact.count().and_then(|n| i32::try_from(n).ok());
            ValueBuf::Array(ArrayBuf::i32s(&list.iter().map(count).collect::<Option<Vec<i32>>>()?))
        }
        Fact::List(list) => {
            let flag = |fact: &Fact| if let Fact::Bool(flag) = fact { Some(*flag) } else { None };
            ValueBuf::Array(ArrayBuf::bools(&list.iter().map(flag).collect::<Option<Vec<bool>>>()?))
        }
        Fact::Null | Fact::Object => return None,
    })
}
