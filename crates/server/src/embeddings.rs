//! `/v1/embeddings`: vectors of texts, in OpenAI's shape.
//!
//! Source: openai-python 3.57, `openai/types/embedding_create_params.py`; vLLM 0.11, `EmbeddingCompletionRequest`.

use std::ops::Deref;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;
use weighbridge::embedder::{Encoded, Encoder, Prompt};
use weighbridge::{Embedder, Error};

use crate::batch::{Job, Runs};
use crate::fields::Fields;
use crate::host::Host;
use crate::inbox::Inbox;
use crate::prepare::{ids, reading};
use crate::refusal::Refusal;
use crate::reply::sent;

/// Texts of a request at most: OpenAI's number.
pub(crate) const TEXTS: usize = 2048;

/// The state that requests to a model of vectors share.
pub(crate) struct Vectors {
    pub(crate) host: Arc<Host>,
    pub(crate) encoder: Encoder,
    /// Elements of a vector.
    pub(crate) width: usize,
    /// The fewer elements that a vector may have.
    cuts: Vec<usize>,
    normalizes: bool,
    pub(crate) inbox: Inbox<Job<Embedder>>,
}

impl Deref for Vectors {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

impl Runs for Embedder {
    type Text = Encoded;
    type Found = Vec<f32>;

    fn tokens(text: &Encoded) -> usize {
        text.tokens.len()
    }

    fn run(&mut self, texts: &[&Encoded]) -> Result<Vec<Vec<f32>>, Error> {
        let vectors = self.embed_encoded(texts, None)?;
        Ok((0..vectors.len()).map(|text| vectors.row(text).to_vec()).collect())
    }
}

/// Texts of a request, as tokens.
pub(crate) struct Texts {
    pub(crate) encoded: Vec<Encoded>,
    pub(crate) permit: OwnedSemaphorePermit,
}

impl Vectors {
    pub(crate) fn new(
        embedder: &Embedder,
        host: Arc<Host>,
        inbox: Inbox<Job<Embedder>>,
    ) -> Result<Vectors, Error> {
        let width = embedder.width();
        Ok(Vectors {
            host,
            encoder: embedder.encoder()?,
            width,
            cuts: (1..width).filter(|elements| embedder.can_be_cut_to(*elements)).collect(),
            normalizes: embedder.normalizes(),
            inbox,
        })
    }

    /// The tokens of `texts`. One that is too long is refused, unless it `is_cut`.
    pub(crate) fn encode(
        &self,
        texts: Vec<Text>,
        prompt: &Prompt,
        is_cut: Option<&str>,
    ) -> Result<Texts, Refusal> {
        // Before anything is made of them.
        let permit = self.places(1)?;
        let (longest, mut encoded) = (self.encoder.longest(), vec![]);
        for (i, text) in texts.into_iter().enumerate() {
            let text = match text {
                Text::Tokens(tokens) => {
                    let left_out = tokens.len().saturating_sub(longest);
                    let tokens = tokens.into_iter().take(longest).collect();
                    Encoded { tokens, skipped: 0, left_out }
                }
                Text::Text(text) => {
                    let mut one =
                        self.encoder.encode(&[text], prompt).map_err(|e| Refusal::wrong(e.to_string()))?;
                    one.pop().unwrap_or_default()
                }
            };
            if text.tokens.is_empty() {
                return Err(Refusal::wrong(format!("`input`: text {i} has no tokens")));
            }
            if let (Some(hint), true) = (is_cut, text.left_out > 0) {
                let found = text.tokens.len() + text.left_out;
                let message = format!("`input`: text {i} has {found} tokens, and the model reads {longest}");
                return Err(Refusal::too_long("input", message).hint(hint));
            }
            encoded.push(text);
        }
        Ok(Texts { encoded, permit })
    }

    /// The vectors of texts, of `elements` elements each.
    pub(crate) async fn run(&self, texts: Texts, elements: Option<usize>) -> Result<Vec<Vec<f32>>, Refusal> {
        let mut found = self.inbox.run(&self.host, texts.encoded, texts.permit).await?;
        if let Some(elements) = elements.filter(|elements| *elements < self.width) {
            for vector in &mut found {
                vector.truncate(elements);
                if self.normalizes {
                    shorten(vector);
                }
            }
        }
        Ok(found)
    }

    /// Reads how many elements a vector is to have.
    pub(crate) fn elements(&self, fields: &mut Fields) -> Option<usize> {
        let wanted = fields.whole("dimensions", 1, 1 << 20)?;
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        if wanted != self.width && !self.cuts.contains(&wanted) {
            let width = self.width;
            let also = match &self.cuts[..] {
                [] => String::new(),
                [one] => format!(" or {one}"),
                [first, .., last] => format!(" or some from {first} to {last}"),
            };
            fields
                .problem("dimensions", &format!("wanted {width}{also}, as the model has it, found {wanted}"));
        }
        Some(wanted)
    }
}

/// Divides a vector by its length.
pub(crate) fn shorten(vector: &mut [f32]) {
    let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    if length > 0.0 {
        for x in vector {
            *x /= length;
        }
    }
}

/// A text whose vector is wanted.
#[derive(Clone, Debug)]
pub(crate) enum Text {
    Text(String),
    Tokens(Vec<u32>),
}

impl Text {
    /// Reads texts: a string, token ids, or a list of either.
    pub(crate) fn all(fields: &mut Fields, vocab: usize) -> Vec<Text> {
        let one = |value: Value| match value {
            Value::String(text) => Some(Text::Text(text)),
            Value::Array(list) if !list.is_empty() => ids(&list, vocab).map(Text::Tokens),
            _ => None,
        };
        let texts = match fields.value("input") {
            Some(Value::Array(list)) if list.is_empty() || list.len() > TEXTS && !list[0].is_number() => None,
            Some(Value::Array(list)) if !list.iter().all(Value::is_number) => {
                list.into_iter().map(one).collect()
            }
            other => other.and_then(one).map(|text| vec![text]),
        };
        if texts.is_none() {
            let wanted = format!(
                "wanted a string, a list of token ids below {vocab}, or a list of at most {TEXTS} of either"
            );
            fields.problem("input", &wanted);
        }
        texts.unwrap_or_default()
    }
}

/// A request.
pub(crate) struct Asked {
    model: Option<String>,
    texts: Vec<Text>,
    is_base64: bool,
    elements: Option<usize>,
    prompt: Prompt,
    is_cut: bool,
}

impl Asked {
    pub(crate) fn read(fields: &mut Fields, vectors: &Vectors) -> Asked {
        fields.without_effect(&["user"]);
        let form = fields.text("encoding_format");
        if !matches!(form.as_deref(), None | Some("float" | "base64")) {
            fields.problem("encoding_format", "wanted `float` or `base64`");
        }
        Asked {
            model: fields.text("model"),
            texts: Text::all(fields, vectors.about.vocab),
            is_base64: form.as_deref() == Some("base64"),
            elements: vectors.elements(fields),
            prompt: fields.text("prompt_name").map_or(Prompt::Default, Prompt::Named),
            is_cut: is_cut(fields),
        }
    }
}

/// Reads whether texts that are too long are cut: vLLM's field.
pub(crate) fn is_cut(fields: &mut Fields) -> bool {
    fields.whole(CUT, -1, -1).is_some()
}

const CUT: &str = "truncate_prompt_tokens";
/// How a client has its texts cut.
pub(crate) const CUT_HINT: &str = "`\"truncate_prompt_tokens\": -1` cuts texts";

pub(crate) async fn answer(
    State(vectors): State<Arc<Vectors>>,
    request: Request,
) -> Result<Response, Refusal> {
    let (texts, is_base64, elements) = reading(&vectors, request, |mut fields, vectors| {
        let Asked { model, texts, is_base64, elements, prompt, is_cut } = Asked::read(&mut fields, vectors);
        fields.end()?;
        model.map_or(Ok(()), |name| vectors.is_served(&name))?;
        let texts = vectors.encode(texts, &prompt, (!is_cut).then_some(CUT_HINT))?;
        Ok((texts, is_base64, elements))
    })
    .await?;
    let tokens = texts.encoded.iter().map(|text| text.tokens.len()).sum();
    let found = vectors.run(texts, elements).await?;
    sent(move || {
        let one = |(index, vector): (usize, Vec<f32>)| {
            let vector = if is_base64 {
                let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
                Vector::Base64(STANDARD.encode(bytes))
            } else {
                Vector::Float(vector)
            };
            Embedding { object: "embedding", index, vector }
        };
        let data = found.into_iter().enumerate().map(one).collect();
        let usage = TextUsage { prompt_tokens: tokens, total_tokens: tokens };
        serde_json::to_vec(&Embeddings { object: "list", data, model: vectors.name(), usage })
    })
    .await
}

/// `POST /v1/embeddings`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Embeddings<'a> {
    object: &'static str,
    data: Vec<Embedding>,
    model: &'a str,
    usage: TextUsage,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Embedding {
    object: &'static str,
    index: usize,
    #[serde(rename = "embedding")]
    vector: Vector,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum Vector {
    Float(Vec<f32>),
    /// The bytes of the numbers, each of 4 bytes, the lowest first.
    Base64(String),
}

/// The tokens of a request whose answer is no text.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct TextUsage {
    pub(crate) prompt_tokens: usize,
    pub(crate) total_tokens: usize,
}
