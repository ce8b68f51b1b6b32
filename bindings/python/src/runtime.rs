//! Models that run.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyMemoryError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict};
use weighbridge::checkpoint::Io;
use weighbridge::engine::sampler::SamplerOptions;
use weighbridge::engine::sampling::Sampling;
use weighbridge::engine::text::{
    ChatTemplate, Conversation, EncodeOptions, Message, SpecialText, StopStrings,
};
use weighbridge::engine::{KvKind, Limits, Stats, Stop};
use weighbridge::runtime::BackendKind;
use weighbridge::tensor::Diagnostic;
use weighbridge::{RuntimeOptions, Sampler, engine};

use crate::checkpoint::options;
use crate::error::{Failure, Result, misuse, run_error, value_error};
use crate::plan::{Encode, Lora, adapters, encoding};
use crate::tensor::Array;
use crate::waiting::{self, LOOK};

/// Tokens between two looks whether Ctrl-C was pressed.
const STEP: usize = 64;

/// Options that every start has.
pub(crate) fn start_options(
    threads: Option<usize>,
    context: Option<usize>,
    encode: Option<Encode>,
    preset: Option<&str>,
    lora: Option<Lora>,
    memory: Option<u64>,
) -> PyResult<RuntimeOptions> {
    if threads == Some(0) || context == Some(0) {
        return Err(value_error("wanted at least one thread, and one position"));
    }
    Ok(RuntimeOptions {
        threads: threads.map(|n| n.min(1024)),
        context,
        encoding: encoding(encode, preset)?,
        loras: adapters(lora)?,
        memory,
        open: options(Io::Auto),
        ..RuntimeOptions::default()
    })
}

/// A model that runs, and its tokenizer.
///
/// `context` is the number of positions (by default the model's own, at most 4096), `memory` limits weights, buffers and KV cache
/// together.
#[pyclass(frozen, module = "weighbridge")]
pub(crate) struct Runtime {
    inner: Arc<Mutex<Inner>>,
    tokenizer: Option<Arc<engine::text::Tokenizer>>,
    family: &'static str,
    backend: String,
    context: usize,
    /// The checkpoint's defaults of sampling.
    sampling: Sampling,
    template: Option<ChatTemplate>,
    vocab: usize,
}

/// The runtime, and the tokens whose keys and values its session holds.
struct Inner {
    runtime: weighbridge::Runtime,
    cached: Vec<u32>,
}

/// Token ids. Bytes are a sequence of numbers too, and never meant so.
struct Tokens(Vec<u32>);

impl<'py> FromPyObject<'_, 'py> for Tokens {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Tokens> {
        if given.cast::<PyBytes>().is_ok() || given.cast::<PyByteArray>().is_ok() {
            return Err(PyTypeError::new_err("wanted token ids, found bytes: decode them to a text first"));
        }
        Ok(Tokens(given.extract()?))
    }
}

/// A prompt in one of its forms.
#[derive(FromPyObject)]
enum Given<'py> {
    Text(String),
    Tokens(Tokens),
    Messages(Vec<Bound<'py, PyDict>>),
}

#[pymethods]
impl Runtime {
    #[new]
    #[pyo3(signature = (
        path, *, threads=None, context=None, backend="cpu", kv=None, kv_budget=None, encode=None, preset=None, lora=None, memory=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        threads: Option<usize>,
        context: Option<usize>,
        backend: &str,
        kv: Option<&str>,
        kv_budget: Option<usize>,
        encode: Option<Encode>,
        preset: Option<&str>,
        lora: Option<Lora>,
        memory: Option<u64>,
    ) -> PyResult<Runtime> {
        let mut options = start_options(threads, context, encode, preset, lora, memory)?;
        options.backend = match backend {
            "cpu" => BackendKind::Cpu,
            "reference" => BackendKind::Reference,
            _ => {
                return Err(value_error(format!("backend is \"cpu\" or \"reference\", found \"{backend}\"")));
            }
        };
        options.kv_budget = kv_budget;
        options.kv = match kv {
            None => None,
            Some("f32") => Some(KvKind::F32),
            Some("f16") => Some(KvKind::F16),
            Some("int8") => Some(KvKind::Int8),
            Some("int4") => Some(KvKind::Int4),
            Some(kv) => {
                return Err(value_error(format!(
                    "kv is \"f32\", \"f16\", \"int8\" or \"int4\", found \"{kv}\""
                )));
            }
        };
        let runtime = py.detach(|| -> Result<_> { Ok(weighbridge::Runtime::start(path, &options)?) })?;
        Ok(Runtime {
            tokenizer: runtime.tokenizer().ok().map(Arc::clone),
            family: runtime.model().family.name(),
            backend: runtime.backend(),
            context: runtime.session().capacity(),
            sampling: runtime.sampling().clone(),
            vocab: usize::try_from(*runtime.model().config().vocab).unwrap_or(usize::MAX),
            // A template is its source.
            template: runtime.template().and_then(|template| ChatTemplate::new(template.source()).ok()),
            inner: Arc::new(Mutex::new(Inner { runtime, cached: vec![] })),
        })
    }

    /// The family of the model.
    #[getter]
    fn family(&self) -> &'static str {
        self.family
    }

    /// The number of positions.
    #[getter]
    fn context(&self) -> usize {
        self.context
    }

    /// The name of the backend, with its instruction set.
    #[getter]
    fn backend(&self) -> &str {
        &self.backend
    }

    /// The tokenizer.
    #[getter]
    fn tokenizer(&self) -> PyResult<Tokenizer> {
        Ok(Tokenizer { tokenizer: Arc::clone(self.tokens()?) })
    }

    /// The logits that follow each of `tokens`, `[tokens, vocabulary]`.
    fn logits(&self, py: Python<'_>, tokens: Tokens) -> PyResult<Array> {
        let Tokens(tokens) = tokens;
        let (mut values, mut vocab, mut no_room) = (Vec::<f32>::new(), 0, false);
        self.forward(py, &tokens, 0, |_, logits| {
            vocab = logits.len();
            no_room |=
                values.is_empty() && values.try_reserve_exact(vocab.saturating_mul(tokens.len())).is_err();
            if !no_room {
                values.extend_from_slice(logits);
            }
        })?;
        if no_room {
            return Err(PyMemoryError::new_err(format!(
                "no room for {} rows of {vocab} logits",
                tokens.len()
            )));
        }
        Ok(Array::of(tokens.len(), vocab, values))
    }

    /// How likely each of `tokens` from `start` on is after those before it: the natural logarithm of its probability, and whether it
    /// is the most likely one. Tokens before `start` that the last call had too are not run again.
    #[pyo3(signature = (tokens, start=1))]
    fn scores(&self, py: Python<'_>, tokens: Tokens, start: usize) -> PyResult<Vec<(f64, bool)>> {
        let Tokens(tokens) = tokens;
        if start == 0 || start > tokens.len() {
            return Err(value_error(format!("start is from 1 to {}, found {start}", tokens.len())));
        }
        let vocab = self.vocab;
        if let Some(token) = tokens.iter().find(|token| **token as usize >= vocab) {
            return Err(value_error(format!("token {token} is none of the model's {vocab}")));
        }
        let mut scores = vec![];
        self.forward(py, &tokens[..tokens.len() - 1], start - 1, |at, logits| {
            if at + 1 >= start {
                scores.push(score(logits, tokens[at + 1]));
            }
        })?;
        Ok(scores)
    }

    /// Continues `prompt`: a text, token ids, or a conversation as dicts with `role` and `content`. Gives the pieces of the answer as they
    /// come; `text()` waits for all of it.
    ///
    /// Options that are None have the checkpoint's defaults, or else those of `weighbridge run`. `temperature=0` takes the most likely token.
    #[pyo3(signature = (
        prompt, *, max_tokens=256, temperature=None, top_k=None, top_p=None, min_p=None, typical_p=None, repeat_penalty=None,
        presence_penalty=None, frequency_penalty=None, logit_bias=None, seed=None, stop=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn generate(
        &self,
        py: Python<'_>,
        prompt: Given<'_>,
        max_tokens: usize,
        temperature: Option<f32>,
        top_k: Option<usize>,
        top_p: Option<f32>,
        min_p: Option<f32>,
        typical_p: Option<f32>,
        repeat_penalty: Option<f32>,
        presence_penalty: Option<f32>,
        frequency_penalty: Option<f32>,
        logit_bias: Option<std::collections::HashMap<u32, f32>>,
        seed: Option<u64>,
        stop: Option<Vec<String>>,
    ) -> PyResult<Generation> {
        let tokenizer = Arc::clone(self.tokens()?);
        let tokens = self.prompt(py, prompt)?;
        let inner = Arc::clone(&self.inner);
        let seed = seed.unwrap_or_else(any_seed);
        let mut options = self.sampling.over(SamplerOptions { seed, ..SamplerOptions::default() });
        let set = |place: &mut f32, value: Option<f32>| *place = value.unwrap_or(*place);
        set(&mut options.temperature, temperature);
        set(&mut options.top_p, top_p);
        set(&mut options.min_p, min_p);
        set(&mut options.typical_p, typical_p);
        set(&mut options.penalties.repeat, repeat_penalty);
        set(&mut options.penalties.presence, presence_penalty);
        set(&mut options.penalties.frequency, frequency_penalty);
        options.top_k = top_k.unwrap_or(options.top_k);
        options.bias.extend(logit_bias.into_iter().flatten());
        let stops = stop.unwrap_or_else(|| self.sampling.stop_strings.clone());
        let sampler = Sampler::new(&options, tokenizer.vocab_size()).map_err(engine::Error::from);
        let sampler = sampler.map_err(Failure::from)?;
        let gone = Arc::new(AtomicBool::new(false));
        // Without a limit but `max_tokens`: an answer that nobody reads on holds no other up.
        let (send, pieces) = mpsc::channel();
        let job = Job { tokenizer, tokens, sampler, stops, max_tokens, gone: Arc::clone(&gone) };
        let spawned = std::thread::Builder::new().name("weighbridge-generate".to_owned()).spawn(move || {
            let ended = job.run(&mut inner.lock().unwrap_or_else(PoisonError::into_inner), &send);
            let _ = send.send(Piece::End(ended.map_err(Box::new)));
        });
        spawned.map_err(PyErr::from)?;
        let state = State { pieces, ended: None };
        Ok(Generation { state: Mutex::new(state), gone, text: Mutex::default() })
    }

    /// Writes what the session has computed to a file, for `load_session`: the tokens that it holds, and their keys and values. A file that is there
    /// already is an error. An answer must have ended before. Returns the bytes of the file.
    fn save_session(&self, py: Python<'_>, path: PathBuf) -> PyResult<u64> {
        let save = || -> Result<u64> {
            let inner = self.lock();
            let session = inner.runtime.session();
            Ok(session.save(&inner.cached, &path).map_err(weighbridge::Error::from)?)
        };
        Ok(py.detach(save)?)
    }

    /// Goes on from what `save_session` has written: a prompt that begins as its tokens, which are returned, runs only what follows them.
    /// The file is of one model and one kind of keys and values, and anything else is an error.
    fn load_session(&self, py: Python<'_>, path: PathBuf) -> PyResult<Vec<u32>> {
        let load = || -> Result<Vec<u32>> {
            let mut inner = self.lock();
            let opened = engine::Snapshot::open(&path, inner.runtime.session());
            let (snapshot, tokens) = opened.map_err(weighbridge::Error::from)?;
            inner.runtime.session_mut().restore(&snapshot).map_err(weighbridge::Error::from)?;
            inner.cached.clone_from(&tokens);
            Ok(tokens)
        };
        Ok(py.detach(load)?)
    }

    fn __repr__(&self) -> String {
        format!("<weighbridge.Runtime {}, {}>", self.family, self.backend)
    }
}

impl Runtime {
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        // A panic has left tokens that the next prompt truncates.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `tokens`, but for those among the first `keep` that the session holds already, and calls `each` with the place of each and the
    /// logits after it.
    fn forward(
        &self,
        py: Python<'_>,
        tokens: &[u32],
        keep: usize,
        mut each: impl FnMut(usize, &[f32]) + Send,
    ) -> PyResult<()> {
        let stop = AtomicBool::new(false);
        let work = || -> Result<()> {
            let mut inner = self.lock();
            let Inner { runtime, cached } = &mut *inner;
            let known = cached.iter().zip(tokens).take_while(|(a, b)| a == b).count();
            // All positions count here.
            let known = if runtime.session().has_left_out() { 0 } else { known.min(keep) };
            let mut at = runtime.truncate(known);
            cached.truncate(at);
            for part in tokens[at..].chunks(STEP) {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                runtime.forward_each(part, |logits| {
                    each(at, logits);
                    at += 1;
                })?;
                cached.extend_from_slice(part);
            }
            Ok(())
        };
        Ok(waiting::run(py, &stop, || Ok(()), work)?)
    }

    fn tokens(&self) -> PyResult<&Arc<engine::text::Tokenizer>> {
        self.tokenizer.as_ref().ok_or_else(|| {
            misuse(Diagnostic::new(
                "the model has no tokenizer, so it writes no texts: `logits` takes token ids",
            ))
        })
    }

    fn prompt(&self, py: Python<'_>, given: Given<'_>) -> PyResult<Vec<u32>> {
        let tokenizer = self.tokens()?;
        let encode = |text: &str, add_special| -> Result<Vec<u32>> {
            let options = EncodeOptions { add_special, parse_special: !add_special };
            tokenizer.encode(text, options).map_err(of_text)
        };
        match given {
            Given::Tokens(Tokens(tokens)) => Ok(tokens),
            Given::Text(text) => Ok(py.detach(|| encode(&text, true))?),
            Given::Messages(messages) => {
                let messages = messages.iter().map(message).collect::<PyResult<Vec<_>>>()?;
                let render = || -> Result<Vec<u32>> {
                    let Some(template) = &self.template else {
                        let what = "the model has no chat template: give the prompt as text";
                        return Err(Failure::Python(misuse(Diagnostic::new(what))));
                    };
                    let spelling =
                        |id: Option<u32>| id.and_then(|id| tokenizer.token_spelling(id)).unwrap_or_default();
                    let conversation = Conversation::new(messages);
                    let around = [spelling(tokenizer.bos()), spelling(tokenizer.eos())];
                    let text = template.render(&conversation, around[0], around[1]).map_err(of_text)?;
                    encode(&text, false)
                };
                Ok(py.detach(render)?)
            }
        }
    }
}

/// An error of tokens or templates.
pub(crate) fn of_text(error: engine::text::Error) -> Failure {
    Failure::Python(run_error(&error.diagnostics()))
}

/// A message from a dict with `role` and `content`.
fn message(dict: &Bound<'_, PyDict>) -> PyResult<Message> {
    let mut parts = (None, None);
    for (key, value) in dict.iter() {
        match key.extract::<String>()?.as_str() {
            "role" => parts.0 = Some(value.extract::<String>()?),
            "content" => parts.1 = Some(value.extract::<String>()?),
            other => return Err(value_error(format!("a message has role and content, found `{other}`"))),
        }
    }
    match parts {
        (Some(role), Some(content)) => Ok(Message::new(role, content)),
        _ => Err(value_error("a message needs role and content")),
    }
}

/// The logarithm of the probability of `token`, and whether no other is more likely.
fn score(logits: &[f32], token: u32) -> (f64, bool) {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|x| f64::from(x - most).exp()).sum();
    let own = logits.get(token as usize).copied().unwrap_or(f32::NEG_INFINITY);
    (f64::from(own - most) - sum.ln(), own >= most)
}

/// A seed that is another each time.
fn any_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

/// A generation, which runs on a thread of its own.
struct Job {
    tokenizer: Arc<engine::text::Tokenizer>,
    tokens: Vec<u32>,
    sampler: Sampler,
    stops: Vec<String>,
    max_tokens: usize,
    gone: Arc<AtomicBool>,
}

enum Piece {
    Text(String),
    End(std::result::Result<Ended, Box<weighbridge::Error>>),
}

/// How a generation ended.
#[derive(Clone)]
struct Ended {
    stats: Stats,
    ids: Vec<u32>,
}

impl Job {
    fn run(
        mut self,
        inner: &mut Inner,
        pieces: &Sender<Piece>,
    ) -> std::result::Result<Ended, weighbridge::Error> {
        let Inner { runtime, cached } = inner;
        // At least one token has to run, to have logits.
        let known = cached.iter().zip(&self.tokens).take_while(|(a, b)| a == b).count();
        let known = runtime.session().known_of(known, self.tokens.len());
        let known = runtime.truncate(known);
        cached.truncate(known);
        self.sampler.begin(cached);
        cached.extend_from_slice(&self.tokens[known..]);
        let ends = runtime.sampling().ends.clone();
        let tokenizer = &self.tokenizer;
        let limits = Limits {
            tokens: self.max_tokens,
            end: &|id| ends.contains(&id) || tokenizer.is_end_of_generation(id),
        };
        let (mut stream, mut stops) = (tokenizer.stream(SpecialText::Hidden), StopStrings::new(self.stops));
        let mut ids = vec![];
        let send = |text: &str| text.is_empty() || pieces.send(Piece::Text(text.to_owned())).is_ok();
        let stats =
            runtime.generate(&mut self.sampler, None, &self.tokens[known..], &limits, &mut |sampled| {
                cached.push(sampled.token);
                ids.push(sampled.token);
                let goes_on =
                    send(stops.push(stream.push(sampled.token))) && !self.gone.load(Ordering::Relaxed);
                match (goes_on, stops.found()) {
                    (false, _) => ControlFlow::Break(Stop::Interrupted),
                    (true, Some(_)) => ControlFlow::Break(Stop::StopString),
                    (true, None) => ControlFlow::Continue(()),
                }
            });
        // The last token that was sampled has not been run.
        cached.truncate(runtime.session().position());
        let stats = stats?;
        let rest = stops.push(stream.finish()).to_owned();
        let rest = rest + stops.finish();
        send(&rest);
        Ok(Ended { stats, ids })
    }
}

/// An answer as it comes: an iterator over its pieces.
///
/// Once it has ended, `tokens`, `stop_reason` and the counts are there. To end it early, drop it.
#[pyclass(frozen, module = "weighbridge")]
pub(crate) struct Generation {
    state: Mutex<State>,
    gone: Arc<AtomicBool>,
    text: Mutex<String>,
}

struct State {
    pieces: Receiver<Piece>,
    ended: Option<Ended>,
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
    }
}

#[pymethods]
impl Generation {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<String>> {
        loop {
            let next = || {
                let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                if state.ended.is_some() {
                    Err(RecvTimeoutError::Disconnected)
                } else {
                    state.pieces.recv_timeout(LOOK)
                }
            };
            match py.detach(next) {
                Ok(Piece::Text(text)) => {
                    self.text.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
                    return Ok(Some(text));
                }
                Ok(Piece::End(ended)) => {
                    let ended = ended.map_err(Failure::Ours)?;
                    self.state.lock().unwrap_or_else(PoisonError::into_inner).ended = Some(ended);
                    return Ok(None);
                }
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }

    /// Waits for the end, and returns all of the text.
    fn text(&self, py: Python<'_>) -> PyResult<String> {
        while self.__next__(py)?.is_some() {}
        Ok(self.text.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// The tokens that were sampled, the one that ended the text included. None before the end.
    #[getter]
    fn tokens(&self) -> Option<Vec<u32>> {
        self.ended().map(|ended| ended.ids)
    }

    /// Why it ended: `end`, `length`, `stop` (a stop string), `context`, `interrupted`. None before the end.
    #[getter]
    fn stop_reason(&self) -> Option<&'static str> {
        self.ended().map(|ended| match ended.stats.stop {
            Stop::EndOfText => "end",
            Stop::Length => "length",
            Stop::StopString => "stop",
            Stop::ContextFull => "context",
            Stop::Interrupted => "interrupted",
        })
    }

    /// Tokens of the prompt that were run. None before the end.
    #[getter]
    fn prompt_tokens(&self) -> Option<usize> {
        self.ended().map(|ended| ended.stats.prompt_tokens)
    }

    /// Tokens a second, without the first. None before the end.
    #[getter]
    fn decode_rate(&self) -> Option<f64> {
        self.ended().map(|ended| ended.stats.decode_rate())
    }
}

impl Generation {
    fn ended(&self) -> Option<Ended> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).ended.clone()
    }
}

/// Texts to token ids and back, as the model's own tokenizer has them.
#[pyclass(frozen, module = "weighbridge")]
pub(crate) struct Tokenizer {
    tokenizer: Arc<engine::text::Tokenizer>,
}

#[pymethods]
impl Tokenizer {
    /// The tokens of `text`. `add_special` adds those that the model wants around a text; `parse_special` takes their spellings in the text
    /// for them.
    #[pyo3(signature = (text, *, add_special=true, parse_special=false))]
    fn encode(
        &self,
        py: Python<'_>,
        text: &str,
        add_special: bool,
        parse_special: bool,
    ) -> PyResult<Vec<u32>> {
        let options = EncodeOptions { add_special, parse_special };
        let encode = || self.tokenizer.encode(text, options).map_err(of_text);
        Ok(py.detach(encode)?)
    }

    /// The text of `tokens`, without special ones unless `special`.
    #[pyo3(signature = (tokens, *, special=false))]
    fn decode(&self, tokens: Tokens, special: bool) -> PyResult<String> {
        let Tokens(tokens) = tokens;
        let special = if special { SpecialText::Shown } else { SpecialText::Hidden };
        Ok(self.tokenizer.decode(&tokens, special).map_err(of_text)?)
    }

    /// The id of the token that is spelled `token`; None if there is none.
    fn token_id(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_id(token)
    }

    /// The token that begins a text.
    #[getter]
    fn bos(&self) -> Option<u32> {
        self.tokenizer.bos()
    }

    /// The token that ends a text.
    #[getter]
    fn eos(&self) -> Option<u32> {
        self.tokenizer.eos()
    }

    fn __len__(&self) -> usize {
        self.tokenizer.vocab_size()
    }

    fn __repr__(&self) -> String {
        format!("<weighbridge.Tokenizer {}, {} tokens>", self.tokenizer.name(), self.tokenizer.vocab_size())
    }
}
