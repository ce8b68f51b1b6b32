//! From the fields that chats and completions share to sequences that the engine can run.

use std::ops::Deref;
use std::sync::Arc;

use axum::extract::Request;
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;
use weighbridge::Sampler;
use weighbridge::engine::sampler::SamplerOptions;
use weighbridge::engine::text::SpecialText;

use crate::fields::Fields;
use crate::guard::body;
use crate::host::Host;
use crate::refusal::Refusal;
use crate::sampling;
use crate::service::Service;
use crate::work::Sequence;

#[cfg(feature = "grammar")]
use weighbridge::engine::grammar::Compiler;
#[cfg(feature = "grammar")]
pub(crate) use weighbridge::engine::grammar::Source;

/// A form that answers keep to: none, in a build that cannot hold them to it.
#[cfg(not(feature = "grammar"))]
#[derive(Clone, Debug)]
pub(crate) enum Source {}

/// Strings that end a text at most, and bytes of each.
const STOPS: (usize, usize) = (16, 256);
/// Answers to one prompt.
const ANSWERS: i64 = 128;

/// Fields that change no answer here, whatever they hold.
const WITHOUT_EFFECT: &[&str] = &[
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "cache_prompt",
];

/// What chats and completions have in common.
pub(crate) struct Common {
    model: Option<String>,
    /// Answers to each prompt.
    pub(crate) n: usize,
    /// Strings that end a text.
    pub(crate) stops: Vec<String>,
    /// Tokens to generate at most, if the request says so.
    tokens: Option<usize>,
    pub(crate) stream: bool,
    /// Whether a stream ends with the usage.
    pub(crate) include_usage: bool,
    options: SamplerOptions,
    form: Option<Form>,
    /// Whether the text of an answer has its special tokens: some mark calls and thoughts.
    pub(crate) special: SpecialText,
}

/// The form of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    pub(crate) source: Source,
    /// Whether a schema that can be followed only in part is refused.
    pub(crate) is_strict: bool,
    /// Whether any text is as good, if the schema cannot be followed at all.
    pub(crate) is_optional: bool,
}

/// A text that is to be continued.
pub(crate) struct Prompt {
    pub(crate) tokens: Vec<u32>,
    /// The form of what follows, if the request has none.
    pub(crate) form: Option<Form>,
}

/// What the engine is to run.
pub(crate) struct Prepared {
    pub(crate) sequences: Vec<Sequence>,
    /// The right to have them: given back when the engine is done with them.
    pub(crate) permit: OwnedSemaphorePermit,
}

impl Common {
    /// Reads the fields.
    pub(crate) fn read(fields: &mut Fields, service: &Service) -> Common {
        fields.without_effect(WITHOUT_EFFECT);
        let stream = fields.flag("stream").unwrap_or(false);
        let mut include_usage = false;
        if let Some(mut options) = fields.object("stream_options") {
            include_usage = options.flag("include_usage").unwrap_or(false);
            // Padding against those who count bytes: there is none.
            options.only("include_obfuscation", &[Value::Bool(false)], "wanted false: chunks are not padded");
            fields.join(options);
            if !stream {
                fields.problem("stream_options", "only with `stream`: true");
            }
        }
        let random = service.random();
        Common {
            model: fields.text("model"),
            n: fields.whole("n", 1, ANSWERS).map_or(1, |n| usize::try_from(n).unwrap_or(1)),
            stops: fields
                .texts("stop", STOPS.0, STOPS.1)
                .unwrap_or_else(|| service.sampling.stop_strings.clone()),
            tokens: tokens(fields, service.options.most_tokens),
            stream,
            include_usage,
            options: sampling::options(fields, &service.sampling, &service.tokenizer, service.vocab, random),
            form: format(fields),
            special: SpecialText::Hidden,
        }
    }

    /// Reads the fields of a request to Anthropic's API.
    pub(crate) fn of_messages(fields: &mut Fields, service: &Service) -> Common {
        let tokens = fields.whole("max_tokens", 1, most(service));
        if tokens.is_none() && !fields.has_problems() {
            fields.problem("max_tokens", "wanted the tokens that the answer may have");
        }
        let stops = fields.texts("stop_sequences", STOPS.0, STOPS.1);
        let random = service.random();
        Common {
            tokens: tokens.map(|n| usize::try_from(n).unwrap_or(usize::MAX)),
            stops: stops.unwrap_or_else(|| service.sampling.stop_strings.clone()),
            stream: fields.flag("stream").unwrap_or(false),
            options: sampling::options(fields, &service.sampling, &service.tokenizer, service.vocab, random),
            ..Common::only(fields.text("model"), service)
        }
    }

    /// Reads the fields of a request to OpenAI's newer API.
    pub(crate) fn of_responses(fields: &mut Fields, service: &Service) -> Common {
        fields.without_effect(WITHOUT_EFFECT);
        if let Some(mut options) = fields.object("stream_options") {
            options.only("include_obfuscation", &[Value::Bool(false)], "wanted false: events are not padded");
            fields.join(options);
        }
        let tokens = fields.whole("max_output_tokens", 1, most(service));
        let random = service.random();
        Common {
            tokens: tokens.map(|n| usize::try_from(n).unwrap_or(usize::MAX)),
            stops: service.sampling.stop_strings.clone(),
            stream: fields.flag("stream").unwrap_or(false),
            options: sampling::options(fields, &service.sampling, &service.tokenizer, service.vocab, random),
            form: text_format(fields),
            ..Common::only(fields.text("model"), service)
        }
    }

    /// Reads the fields of a request to Ollama's API.
    pub(crate) fn of_ollama(fields: &mut Fields, service: &Service) -> Common {
        // How a model is loaded is for the command line.
        const OF_LOADING: &[&str] = &[
            "num_keep",
            "num_batch",
            "num_gpu",
            "main_gpu",
            "num_thread",
            "numa",
            "low_vram",
            "use_mmap",
            "use_mlock",
            "f16_kv",
            "vocab_only",
            "logits_all",
        ];
        let mut options = fields.object_or_none("options");
        options.without_effect(OF_LOADING);
        // A larger context than there is would be cut.
        options.whole("num_ctx", 1, i64::try_from(service.positions).unwrap_or(i64::MAX));
        let tokens = options.whole("num_predict", -2, most(service)).filter(|n| *n >= 0);
        let stops = options.texts("stop", STOPS.0, STOPS.1);
        options.only("penalize_newline", &[Value::Bool(true)], "is not supported here");
        let random = service.random();
        let sampler =
            sampling::options(&mut options, &service.sampling, &service.tokenizer, service.vocab, random);
        fields.join(options);
        let model = fields.text("model").map(|name| service.untagged(name));
        Common {
            tokens: tokens.map(|n| usize::try_from(n).unwrap_or(usize::MAX)),
            stops: stops.unwrap_or_else(|| service.sampling.stop_strings.clone()),
            stream: fields.flag("stream").unwrap_or(true),
            options: sampler,
            form: plain_format(fields),
            ..Common::only(model, service)
        }
    }

    /// What a request has that names a model and no more.
    pub(crate) fn only(model: Option<String>, service: &Service) -> Common {
        Common {
            model,
            n: 1,
            stops: vec![],
            tokens: None,
            stream: false,
            include_usage: false,
            options: service.sampling.over(SamplerOptions::default()),
            form: None,
            special: SpecialText::Hidden,
        }
    }

    /// Whether the request says which form an answer has.
    pub(crate) fn has_form(&self) -> bool {
        self.form.is_some()
    }

    /// Whether the model that the request names is served here.
    pub(crate) fn check_model(&self, service: &Service) -> Result<(), Refusal> {
        self.model.as_deref().map_or(Ok(()), |name| service.is_served(name))
    }

    /// Makes the sequences of `prompts`, each of which has at most `usual` tokens more unless the request says how many. `prompts` runs
    /// once there is room for its sequences.
    pub(crate) fn prepare(
        &self,
        service: &Service,
        count: usize,
        usual: usize,
        param: &str,
        prompts: impl FnOnce() -> Result<Vec<Prompt>, Refusal>,
    ) -> Result<Prepared, Refusal> {
        let permit = service.places(count.saturating_mul(self.n))?;
        let most = service.options.most_tokens.unwrap_or(usize::MAX);
        let wanted = self.tokens.unwrap_or(usize::min(usual, most));
        let mut sequences = vec![];
        for Prompt { tokens: prompt, form } in prompts()? {
            if prompt.is_empty() {
                return Err(Refusal::wrong(format!("`{param}`: wanted a prompt of at least one token")));
            }
            let Some(room) = service.positions.checked_sub(prompt.len()) else {
                let (found, most) = (prompt.len(), service.positions);
                let message =
                    format!("`{param}`: the prompt has {found} tokens, and there is room for {most}");
                return Err(Refusal::too_long(param, message));
            };
            for i in 0..self.n {
                let seed = self.options.seed.wrapping_add(i as u64);
                let options = SamplerOptions { seed, ..self.options.clone() };
                let sampler = sampler(service, &options, form.as_ref().or(self.form.as_ref()))?;
                // The last token that is sampled takes no position.
                sequences.push(Sequence { prompt: prompt.clone(), sampler, tokens: wanted.min(room + 1) });
            }
        }
        Ok(Prepared { sequences, permit })
    }
}

/// Tokens that an answer may have.
fn most(service: &Service) -> i64 {
    service.options.most_tokens.map_or(i64::MAX, |most| i64::try_from(most).unwrap_or(i64::MAX))
}

fn sampler(service: &Service, options: &SamplerOptions, form: Option<&Form>) -> Result<Sampler, Refusal> {
    let sampler = Sampler::new(options, service.vocab).map_err(|e| Refusal::wrong(e.to_string()))?;
    match form {
        Some(form) => constrained(sampler, service, form),
        None => Ok(sampler),
    }
}

#[cfg(feature = "grammar")]
fn constrained(mut sampler: Sampler, service: &Service, form: &Form) -> Result<Sampler, Refusal> {
    let compile = |compiler: &Compiler| compiler.compile(form.source.clone()).map_err(Refusal::wrong);
    let (grammar, warnings) = match service.grammars().and_then(compile) {
        // The tokenizer may be one that no grammar works with.
        Err(_) if form.is_optional => return Ok(sampler),
        compiled => compiled?,
    };
    if form.is_strict && !warnings.is_empty() {
        let message = format!("the schema can only be followed in part: {}", warnings.join("; "));
        return Err(Refusal::wrong(message));
    }
    sampler.constrain(Box::new(grammar));
    Ok(sampler)
}

#[cfg(not(feature = "grammar"))]
fn constrained(_: Sampler, _: &Service, form: &Form) -> Result<Sampler, Refusal> {
    match form.source {}
}

/// Tokens to generate at most, under either name.
fn tokens(fields: &mut Fields, most: Option<usize>) -> Option<usize> {
    let most = most.map_or(i64::MAX, |most| i64::try_from(most).unwrap_or(i64::MAX));
    let old = fields.whole("max_tokens", 0, most);
    let new = fields.whole("max_completion_tokens", 0, most);
    if let (Some(a), Some(b)) = (old, new)
        && a != b
    {
        fields.problem("max_tokens", "`max_completion_tokens` is its new name, and has another value");
    }
    new.or(old).map(|n| usize::try_from(n).unwrap_or(usize::MAX))
}

/// The form that an answer must have.
#[cfg(not(feature = "grammar"))]
fn format(fields: &mut Fields) -> Option<Form> {
    fields.only(
        "response_format",
        &[serde_json::json!({"type": "text"})],
        "this build holds no answer to a form",
    );
    None
}

/// The same, as the newer API has it.
#[cfg(not(feature = "grammar"))]
fn text_format(fields: &mut Fields) -> Option<Form> {
    let mut text = fields.object("text")?;
    text.without_effect(&["verbosity"]);
    text.only("format", &[serde_json::json!({"type": "text"})], "this build holds no answer to a form");
    fields.join(text);
    None
}

/// The same, as Ollama has it.
#[cfg(not(feature = "grammar"))]
fn plain_format(fields: &mut Fields) -> Option<Form> {
    fields.only("format", &[serde_json::json!("")], "this build holds no answer to a form");
    None
}

/// The same, as the newer API has it.
#[cfg(feature = "grammar")]
fn text_format(fields: &mut Fields) -> Option<Form> {
    let mut text = fields.object("text")?;
    text.without_effect(&["verbosity"]);
    let mut form = None;
    if let Some(mut format) = text.object("format") {
        form = match format.text("type").as_deref() {
            Some("text") => None,
            Some("json_object") => Some(serde_json::json!({"type": "object"})),
            Some("json_schema") => schema(&mut format),
            _ => {
                format.problem("type", "wanted `text`, `json_object` or `json_schema`");
                None
            }
        };
        text.join(format);
    }
    fields.join(text);
    form.map(Form::of)
}

/// The same, as Ollama has it: `json`, or a schema.
#[cfg(feature = "grammar")]
fn plain_format(fields: &mut Fields) -> Option<Form> {
    match fields.value("format")? {
        Value::String(format) if format == "json" => Some(Form::of(serde_json::json!({"type": "object"}))),
        Value::String(format) if format.is_empty() => None,
        schema @ Value::Object(_) => Some(Form::of(schema)),
        _ => {
            fields.problem("format", "wanted `json`, or a JSON Schema");
            None
        }
    }
}

#[cfg(feature = "grammar")]
impl Form {
    /// The form of a schema, which is followed in all of its parts.
    fn of(schema: Value) -> Form {
        Form { source: Source::JsonSchema(schema), is_strict: true, is_optional: false }
    }
}

/// Reads a schema with its name.
#[cfg(feature = "grammar")]
fn schema(fields: &mut Fields) -> Option<Value> {
    fields.without_effect(&["name", "description", "strict"]);
    let schema = fields.value("schema").filter(|schema| schema.is_object() || schema.is_boolean());
    if schema.is_none() {
        fields.problem("schema", "wanted a JSON Schema");
    }
    schema
}

/// The form that an answer must have.
#[cfg(feature = "grammar")]
fn format(fields: &mut Fields) -> Option<Form> {
    let mut format = fields.object("response_format")?;
    let kind = format.text("type");
    let schema = match kind.as_deref() {
        Some("text") => None,
        Some("json_object") => Some(serde_json::json!({"type": "object"})),
        Some("json_schema") => {
            let inner = format.object("json_schema");
            if inner.is_none() && !format.has_problems() {
                format.problem("json_schema", "wanted an object with a `schema`");
            }
            inner.and_then(|mut inner| {
                let schema = schema(&mut inner);
                format.join(inner);
                schema
            })
        }
        _ => {
            format.problem("type", "wanted `text`, `json_object` or `json_schema`");
            None
        }
    };
    fields.join(format);
    schema.map(Form::of)
}

/// Reads a request, and runs `run` on its fields, on a thread of its own, so that other connections go on.
pub(crate) async fn reading<S, T>(
    service: &Arc<S>,
    request: Request,
    run: impl FnOnce(Fields, &S) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal>
where
    S: Deref<Target = Host> + Send + Sync + 'static,
    T: Send + 'static,
{
    let (own, body) = (Arc::clone(service), body(service, request).await?);
    let ran = tokio::task::spawn_blocking(move || run(Fields::of_body(&body)?, &own)).await;
    ran.unwrap_or_else(|_| Err(Refusal::failed("the request could not be read")))
}

/// The same for a conversation, whose template runs in its turn: others need some of the threads.
pub(crate) async fn reading_conversation<T: Send + 'static>(
    service: &Arc<Service>,
    request: Request,
    run: impl FnOnce(Fields, &Service) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let _turn = service.templates.acquire().await;
    reading(service, request, run).await
}

/// A list of token ids below `vocab`.
pub(crate) fn ids(list: &[Value], vocab: usize) -> Option<Vec<u32>> {
    let id = |value: &Value| u32::try_from(value.as_u64()?).ok().filter(|id| (*id as usize) < vocab);
    list.iter().map(id).collect()
}
