//! The files of an HF directory.
//!
//! Source: `generation_config.json` and `preprocessor_config.json` of openai/whisper-base.

use checkpoint::HfFiles;
use model::{Description, Loss, Model};
use serde_json::{Map, Value, json};

use super::{FFT, GENERATION, HOP, MULTILINGUAL, PREPROCESSOR, RATE, Speech, TOKENIZER, TOKENIZER_CONFIG};
use crate::carry::to_hf::{config_of, pretty};
use crate::carry::{Beside, Carried, in_a_line};

impl Speech {
    /// The files of an HF directory.
    pub(super) fn into_hf(mut self, description: Description, model: &Model) -> Carried {
        let mut config = config_of(&description);
        let c = model.config();
        let end = self.id("<|endoftext|>");
        let start = self.id("<|startoftranscript|>");
        for key in ["bos_token_id", "eos_token_id", "pad_token_id"] {
            config.insert(key.to_owned(), json!(end));
        }
        config.insert("decoder_start_token_id".to_owned(), json!(start));
        let generation = Value::Object(self.generation(*c.vocab, *c.context));
        let mut members = std::mem::take(&mut self.members);
        members.retain(|(name, _)| name != GENERATION);
        members.push((GENERATION.to_owned(), pretty(&generation)));
        let has = |members: &[(String, Vec<u8>)], name: &str| members.iter().any(|(n, _)| n == name);
        if !has(&members, PREPROCESSOR)
            && let Some(encoder) = &c.encoder
        {
            let json = preprocessor(*encoder.mels, *encoder.context);
            members.push((PREPROCESSOR.to_owned(), pretty(&json)));
        }
        let mut lost = description.losses;
        match self.tokenizer_json() {
            Some(Ok(json)) => members.push((TOKENIZER.to_owned(), json)),
            Some(Err(why)) => {
                lost.push(Loss::beside("tokenizer", format!("the directory has no tokenizer: {why}")));
            }
            None if !has(&members, TOKENIZER) => lost.push(Loss::beside(
                "tokenizer",
                "the directory has no tokenizer: the source has no tokenizer.json",
            )),
            None => {}
        }
        if has(&members, TOKENIZER) && !has(&members, TOKENIZER_CONFIG) {
            let json = json!({
                "tokenizer_class": "WhisperTokenizer",
                "processor_class": "WhisperProcessor",
                "model_max_length": *c.context,
                "clean_up_tokenization_spaces": false,
                "bos_token": "<|endoftext|>",
                "eos_token": "<|endoftext|>",
                "pad_token": "<|endoftext|>",
                "unk_token": "<|endoftext|>",
            });
            members.push((TOKENIZER_CONFIG.to_owned(), pretty(&json)));
        }
        let files = HfFiles { config, members, pairs: vec![] };
        Carried { beside: Beside::Hf(Box::new(files)), made: vec![], left: self.left, lost }
    }

    /// A tokenizer.json of the source's vocabulary, or the reason why there is none; `None` if a file has one, or there is no vocabulary.
    pub(super) fn tokenizer_json(&self) -> Option<Result<Vec<u8>, String>> {
        let vocabulary = self.tokenizer.as_ref()?;
        Some(vocabulary.borrow().to_tokenizer_json().map_err(|why| in_a_line(&why)))
    }

    fn generation(&mut self, vocab: u64, context: u64) -> Map<String, Value> {
        let mut generation = Map::new();
        let mut put = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                generation.insert(key.to_owned(), value);
            }
        };
        let end = self.id("<|endoftext|>");
        for key in ["bos_token_id", "eos_token_id", "pad_token_id"] {
            put(key, end.map(Value::from));
        }
        put("decoder_start_token_id", self.id("<|startoftranscript|>").map(Value::from));
        put("alignment_heads", self.alignment_heads.take());
        put("suppress_tokens", self.suppressed.take());
        put("begin_suppress_tokens", self.suppressed_first.take());
        put("no_timestamps_token_id", self.id("<|notimestamps|>").map(Value::from));
        put("prev_sot_token_id", self.id("<|startofprev|>").map(Value::from));
        put("max_length", Some(json!(context)));
        put("max_initial_timestamp_index", Some(json!(50)));
        put("return_timestamps", Some(json!(false)));
        let is_multilingual = vocab >= MULTILINGUAL;
        put("is_multilingual", Some(json!(is_multilingual)));
        if is_multilingual {
            let languages = self.languages.iter().filter_map(|id| {
                let token = self.vocabulary.get(usize::try_from(*id).ok()?)?;
                Some((token.clone(), json!(id)))
            });
            let languages: Map<String, Value> = languages.collect();
            put("lang_to_id", (!languages.is_empty()).then_some(Value::Object(languages)));
            let tasks = ["transcribe", "translate"];
            let tasks = tasks
                .iter()
                .filter_map(|task| Some(((*task).to_owned(), json!(self.id(&format!("<|{task}|>"))?))));
            let tasks: Map<String, Value> = tasks.collect();
            put("task_to_id", (!tasks.is_empty()).then_some(Value::Object(tasks)));
        }
        generation
    }
}

/// How sound becomes `mels` numbers a frame, of which the encoder sees two for each of its `positions`.
pub(super) fn preprocessor(mels: u64, positions: u64) -> Value {
    let frames = 2 * positions;
    json!({
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "WhisperProcessor",
        "feature_size": mels,
        "sampling_rate": RATE,
        "hop_length": HOP,
        "n_fft": FFT,
        "chunk_length": frames * HOP / RATE,
        "n_samples": frames * HOP,
        "nb_max_frames": frames,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": false,
    })
}
