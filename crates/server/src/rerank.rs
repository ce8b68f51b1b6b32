//! `/v1/rerank`: scores of texts for a query, as Jina and Cohere have them, and after them vLLM and llama.cpp.
//!
//! Source: <https://api.jina.ai/redoc#tag/rerank>; vLLM 0.11, `RerankRequest`.

use std::ops::Deref;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use weighbridge::engine::text::{TextPair, Tokenizer};
use weighbridge::{Error, Reranker};

use crate::batch::{Job, Runs};
use crate::embeddings::{CUT_HINT, TEXTS, TextUsage, is_cut};
use crate::fields::Fields;
use crate::host::Host;
use crate::inbox::Inbox;
use crate::prepare::reading;
use crate::refusal::Refusal;
use crate::reply::sent;

/// The state that requests to a model of scores share.
pub(crate) struct Scores {
    pub(crate) host: Arc<Host>,
    tokenizer: Arc<Tokenizer>,
    /// Tokens of a query with a text at most.
    longest: usize,
    pub(crate) inbox: Inbox<Job<Reranker>>,
}

impl Deref for Scores {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

impl Runs for Reranker {
    type Text = TextPair;
    type Found = f32;

    fn tokens(text: &TextPair) -> usize {
        text.tokens.len()
    }

    fn run(&mut self, texts: &[&TextPair]) -> Result<Vec<f32>, Error> {
        Ok(self.rank_encoded(texts)?.scores().to_vec())
    }
}

impl Scores {
    pub(crate) fn new(reranker: &Reranker, host: Arc<Host>, inbox: Inbox<Job<Reranker>>) -> Scores {
        Scores { host, tokenizer: Arc::clone(reranker.tokenizer()), longest: reranker.longest(), inbox }
    }

    /// The tokens of the query with each of `texts`.
    fn encode(&self, query: &str, texts: &[String], is_cut: bool) -> Result<Vec<TextPair>, Refusal> {
        let longest = self.longest;
        let one = |(i, text): (usize, &String)| {
            let pair = self.tokenizer.encode_pair_within(query, text, longest);
            let pair = pair.map_err(|error| Refusal::wrong(error.to_string()))?;
            if pair.left_out > 0 && !is_cut {
                let found = pair.tokens.len() + pair.left_out;
                let message = format!(
                    "`documents[{i}]`: the query and the text have {found} tokens, and the model reads {longest}"
                );
                return Err(Refusal::too_long("documents", message).hint(CUT_HINT));
            }
            Ok(pair)
        };
        texts.iter().enumerate().map(one).collect()
    }
}

/// A request.
pub(crate) struct Asked {
    model: Option<String>,
    query: String,
    documents: Vec<String>,
    top: usize,
    returns: bool,
    is_cut: bool,
}

impl Asked {
    pub(crate) fn read(fields: &mut Fields) -> Asked {
        fields.without_effect(&["user"]);
        let query = fields.text("query");
        fields.needed("query", query.as_slice(), "wanted a string");
        Asked {
            model: fields.text("model"),
            query: query.unwrap_or_default(),
            documents: documents(fields),
            top: fields
                .whole("top_n", 1, i64::MAX)
                .map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX)),
            returns: fields.flag("return_documents").unwrap_or(true),
            is_cut: is_cut(fields),
        }
    }
}

/// Reads the texts: strings, or objects that have one.
fn documents(fields: &mut Fields) -> Vec<String> {
    let one = |value: Value| match value {
        Value::String(text) => Some(text),
        Value::Object(mut object) if object.len() == 1 => match object.remove("text") {
            Some(Value::String(text)) => Some(text),
            _ => None,
        },
        _ => None,
    };
    let texts: Option<Vec<String>> = match fields.value("documents") {
        Some(Value::Array(list)) if (1..=TEXTS).contains(&list.len()) => list.into_iter().map(one).collect(),
        _ => None,
    };
    if texts.is_none() {
        let wanted = format!("wanted a list of 1 to {TEXTS} strings, or of objects {{\"text\": …}}");
        fields.problem("documents", &wanted);
    }
    texts.unwrap_or_default()
}

pub(crate) async fn answer(State(scores): State<Arc<Scores>>, request: Request) -> Result<Response, Refusal> {
    let (asked, pairs, permit) = reading(&scores, request, |mut fields, scores| {
        let asked = Asked::read(&mut fields);
        fields.end()?;
        asked.model.as_deref().map_or(Ok(()), |name| scores.is_served(name))?;
        let permit = scores.places(1)?;
        let pairs = scores.encode(&asked.query, &asked.documents, asked.is_cut)?;
        Ok((asked, pairs, permit))
    })
    .await?;
    let tokens = pairs.iter().map(|pair| pair.tokens.len()).sum();
    let found = scores.inbox.run(&scores, pairs, permit).await?;
    sent(move || {
        let returns = asked.returns;
        let one = |(index, (text, score)): (usize, (String, f32))| RankedText {
            index,
            relevance_score: score,
            document: returns.then_some(Document { text }),
        };
        let mut results: Vec<RankedText> =
            asked.documents.into_iter().zip(found).enumerate().map(one).collect();
        // Equal ones stay in the order of the texts.
        results.sort_by(|a, b| b.relevance_score.total_cmp(&a.relevance_score));
        results.truncate(asked.top);
        let usage = TextUsage { prompt_tokens: tokens, total_tokens: tokens };
        serde_json::to_vec(&Ranked { id: scores.id("rerank-"), model: scores.name(), usage, results })
    })
    .await
}

/// `POST /v1/rerank`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Ranked<'a> {
    id: String,
    model: &'a str,
    usage: TextUsage,
    /// The best first.
    results: Vec<RankedText>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct RankedText {
    index: usize,
    relevance_score: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<Document>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Document {
    text: String,
}
