//! What clients send and get, in OpenAI's shapes.
//!
//! Source: openai-python 3.57, `openai/types/chat`, `openai/types/completion*.py`.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use weighbridge::engine::{Stats, Stop};

/// `POST /v1/chat/completions`, whole.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ChatCompletion<'a> {
    #[serde(flatten)]
    pub(crate) head: Head<'a>,
    pub(crate) choices: Vec<ChatChoice>,
    pub(crate) usage: Usage,
}

/// The fields that all answers begin with.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct Head<'a> {
    pub(crate) id: &'a str,
    pub(crate) object: &'static str,
    /// Seconds since 1970.
    pub(crate) created: u64,
    pub(crate) model: &'a str,
    pub(crate) system_fingerprint: Fingerprint,
}

/// The weights that made an answer, as text: `weights-2`; `weights-2-3` if others took their place while it was made.
#[derive(Clone, Copy, Debug, JsonSchema)]
#[schemars(with = "String")]
pub(crate) struct Fingerprint {
    first: u64,
    last: u64,
}

impl Fingerprint {
    /// The first and the last weights that made an answer; if nothing was made, those that are run `now`.
    pub(crate) fn of(made: Option<(u64, u64)>, now: u64) -> Fingerprint {
        let (first, last) = made.unwrap_or((now, now));
        Fingerprint { first, last }
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Fingerprint { first, last } = self;
        if first == last {
            to.collect_str(&format_args!("weights-{first}"))
        } else {
            to.collect_str(&format_args!("weights-{first}-{last}"))
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ChatChoice {
    pub(crate) index: usize,
    pub(crate) message: WholeMessage,
    pub(crate) logprobs: Option<ChatLogprobs>,
    pub(crate) finish_reason: &'static str,
}

/// The message of an answer that is whole.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WholeMessage {
    pub(crate) role: &'static str,
    /// `null` if there are calls alone.
    pub(crate) content: Option<String>,
    /// What the model thought. OpenAI's API has no such field; vLLM, llama.cpp and DeepSeek have this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tool_calls: Vec<ToolCall>,
    /// Always `null`: the model refuses in its text, if at all.
    pub(crate) refusal: (),
}

/// A piece of a stream, of a chat or of a completion.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Chunk<'a, C> {
    #[serde(flatten)]
    pub(crate) head: Head<'a>,
    pub(crate) choices: Vec<C>,
    /// There if the client wants it: `null` in all chunks but the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[expect(clippy::option_option, reason = "to be absent and to be `null` are two things in JSON")]
    pub(crate) usage: Option<Option<Usage>>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ChatDelta {
    pub(crate) index: usize,
    pub(crate) delta: Delta,
    pub(crate) logprobs: Option<ChatLogprobs>,
    pub(crate) finish_reason: Option<&'static str>,
}

/// What a chunk adds to a message.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Delta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tool_calls: Vec<ToolCall>,
}

impl Delta {
    /// Whether it adds nothing.
    pub(crate) fn is_empty(&self) -> bool {
        let is_empty = |text: &Option<String>| text.as_ref().is_none_or(String::is_empty);
        is_empty(&self.content) && is_empty(&self.reasoning_content) && self.tool_calls.is_empty()
    }

    /// Adds what comes after it.
    pub(crate) fn add(&mut self, next: Delta) {
        let add = |all: &mut Option<String>, text: Option<String>| {
            if let Some(text) = text {
                all.get_or_insert_default().push_str(&text);
            }
        };
        add(&mut self.content, next.content);
        add(&mut self.reasoning_content, next.reasoning_content);
        self.tool_calls.extend(next.tool_calls);
    }
}

/// A call of a tool. A stream has each whole, in one chunk.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ToolCall {
    /// Which of the message's calls it is; in streams alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) index: Option<usize>,
    pub(crate) id: String,
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) function: CalledFunction,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct CalledFunction {
    pub(crate) name: String,
    /// A JSON object.
    pub(crate) arguments: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ChatLogprobs {
    pub(crate) content: Vec<ChatLogprob>,
    /// Always `null`.
    pub(crate) refusal: (),
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ChatLogprob {
    #[serde(flatten)]
    pub(crate) of: Logprob,
    pub(crate) top_logprobs: Vec<Logprob>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Logprob {
    pub(crate) token: String,
    /// -9999 is the logarithm of 0, as OpenAI has it.
    #[serde(rename = "logprob")]
    pub(crate) value: f32,
    pub(crate) bytes: Vec<u8>,
}

/// `POST /v1/completions`, whole.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Completion<'a> {
    #[serde(flatten)]
    pub(crate) head: Head<'a>,
    pub(crate) choices: Vec<CompletionChoice>,
    pub(crate) usage: Usage,
}

/// A text, or what a chunk adds to it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CompletionChoice {
    pub(crate) index: usize,
    pub(crate) text: String,
    pub(crate) logprobs: Option<CompletionLogprobs>,
    pub(crate) finish_reason: Option<&'static str>,
}

/// One entry of each list for each token.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct CompletionLogprobs {
    pub(crate) tokens: Vec<String>,
    /// Null for the first token of a prompt. As wide as numbers of `top_logprobs` are: clients ask which of both are equal.
    pub(crate) token_logprobs: Vec<Option<f64>>,
    /// As those of `token_logprobs`.
    pub(crate) top_logprobs: Vec<Option<serde_json::Map<String, serde_json::Value>>>,
    /// Where the token begins in the text, in characters.
    pub(crate) text_offset: Vec<usize>,
}

/// What a request took, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: usize,
    pub(crate) completion_tokens: usize,
    pub(crate) total_tokens: usize,
    pub(crate) prompt_tokens_details: PromptTokens,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct PromptTokens {
    /// Tokens that an earlier request had run.
    pub(crate) cached_tokens: usize,
}

impl Usage {
    /// Counts the tokens that sequence `index` sampled; those of its prompt, if it is the first that has it.
    pub(crate) fn add(&mut self, stats: &Stats, is_first: bool) {
        self.completion_tokens += stats.tokens;
        if is_first {
            self.prompt_tokens += stats.prompt_tokens;
            self.prompt_tokens_details.cached_tokens += stats.known_tokens;
        }
        self.total_tokens = self.prompt_tokens + self.completion_tokens;
    }
}

/// Why a text ended, as OpenAI has it.
pub(crate) fn finish_reason(stop: Stop) -> &'static str {
    match stop {
        Stop::EndOfText | Stop::StopString => "stop",
        Stop::Length | Stop::ContextFull | Stop::Interrupted => "length",
    }
}

/// `POST /tokenize`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Tokens {
    pub(crate) tokens: Vec<u32>,
}

/// `POST /detokenize`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Content {
    pub(crate) content: String,
}

/// `GET /v1/models`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Models<'a> {
    pub(crate) object: &'static str,
    pub(crate) data: Vec<Model<'a>>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Model<'a> {
    pub(crate) id: &'a str,
    pub(crate) object: &'static str,
    pub(crate) created: u64,
    pub(crate) owned_by: &'static str,
    pub(crate) status: Status,
    pub(crate) meta: Meta<'a>,
}

/// As llama.cpp's server says it.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct Status {
    /// Whether the model is in memory: `loaded`, `loading` or `unloaded`.
    pub(crate) value: &'static str,
}

/// What llama.cpp's server says of a model too, under its names. What only loading tells is missing before.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct Meta<'a> {
    /// The task of the model: `text`, `vectors`, `scores` or `speech`.
    pub(crate) task: &'a str,
    /// Requests that run together.
    pub(crate) parallel: usize,
    #[serde(flatten)]
    pub(crate) of_loaded: Option<LoadedMeta<'a>>,
}

/// What loading tells of a model.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct LoadedMeta<'a> {
    pub(crate) family: &'a str,
    /// Tokens of the vocabulary.
    pub(crate) n_vocab: usize,
    /// Positions of a request.
    pub(crate) n_ctx: usize,
    /// Positions that the model was trained for.
    pub(crate) n_ctx_train: u64,
    /// Elements of a vector, if the model makes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) n_embd: Option<usize>,
}
