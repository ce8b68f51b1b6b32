//! `weighbridge serve`: models for clients of OpenAI's, Anthropic's and other APIs.

mod page;
mod vllm;

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[cfg(unix)]
use server::LocalSocket;
use server::{Chat, Loaded, NotLoaded, Offer, Options, Served, Server};
#[cfg(feature = "speech")]
use weighbridge::Transcriber;
use weighbridge::embedder::Remark;
use weighbridge::engine::text::{ChatTemplate, Conversation, ReplySyntax};
use weighbridge::load::LoadReport;
use weighbridge::storage::{shown, url_scheme};
use weighbridge::tensor::{Bytes, counted};
use weighbridge::{Embedder, Reranker, Runtime, RuntimeOptions, Task, TensorEntry};

use crate::args::{AccessArgs, CacheArg, EngineArg, ServeArgs};
use crate::failure::Failure;
use crate::isolate;
use crate::keys::Doubts;
use crate::progress::{self, note};

/// The variable with a key.
const KEY: &str = "WEIGHBRIDGE_API_KEY";

pub(crate) fn run(args: &ServeArgs) -> Result<(), Failure> {
    match args.engine {
        Some(EngineArg::Vllm) => return vllm::run(args),
        None => {}
    }
    let keys = keys(&args.access)?;
    let own = args.chat_template.as_deref().map(isolate::own).transpose()?.map(Arc::new);
    let mut options = args.model.options(CacheArg::Write)?;
    options.kv_budget = args.budget.positions();
    // Before the models, which take longer: a port that is taken is said at once.
    let (host, port) = (args.access.host.as_str(), args.access.port);
    let listener = TcpListener::bind((host, port)).map_err(|error| cannot_listen(host, port, &error))?;
    let address = listener.local_addr()?;
    #[cfg(unix)]
    let local = args.access.socket.as_deref().map(socket).transpose()?;
    let offers = offers(args, &options, own.as_ref())?;
    let mut hosts = args.access.allow_host.clone();
    hosts.push(host.to_owned());
    let has_keys = !keys.is_empty();
    let server = Server::start(
        offers,
        Options {
            memory: options.memory,
            idle: (args.idle > 0).then(|| Duration::from_secs(args.idle)),
            queue: args.queue,
            most_tokens: args.max_tokens,
            deadline: (args.deadline > 0).then(|| Duration::from_secs(args.deadline)),
            body: usize::try_from(args.body_limit).unwrap_or(usize::MAX),
            sound: usize::try_from(args.sound_limit).unwrap_or(usize::MAX),
            longest_sound: Duration::from_secs(args.sound_seconds),
            keys,
            hosts,
            origins: args.access.cors.clone(),
            grace: Duration::from_secs(args.grace),
            log: if args.access.quiet { None } else { Some(Arc::new(note)) },
        },
    );
    let problems = |error: server::Error| match error {
        server::Error::Model(why) if why.is_misuse => Failure::Usage(why.problems.to_string()),
        error => Failure::Problems(error.diagnostics()),
    };
    let server = server.map_err(problems)?;
    for (name, bytes) in server.unloaded() {
        let bytes = Bytes(bytes);
        note(&format!("`{name}` is loaded when it is asked for: it takes {bytes}, and others take the room"));
    }
    if !has_keys && !address.ip().is_loopback() {
        note("anyone who reaches this machine may use the model: `--api-key-file` asks for a key");
    }
    #[cfg(unix)]
    let server = server.with_local(local);
    note(&format!("listening on http://{address}"));
    server.serve(listener).map_err(problems)
}

/// The socket at `path`.
#[cfg(unix)]
fn socket(path: &Path) -> Result<LocalSocket, Failure> {
    LocalSocket::bind(path).map_err(|error| {
        let hint = if error.kind() == std::io::ErrorKind::AddrInUse {
            "\nhint: a server listens there, or it is something else than a socket: give another FILE"
        } else {
            ""
        };
        Failure::Usage(format!("cannot listen on `{}`: {error}{hint}", path.display()))
    })
}

/// The models of the command line.
fn offers(
    args: &ServeArgs,
    options: &RuntimeOptions,
    own: Option<&Arc<ChatTemplate>>,
) -> Result<Vec<Offer>, Failure> {
    let paths: Vec<&Path> =
        [args.model.path()].into_iter().chain(args.more.iter().map(AsRef::as_ref)).collect();
    let is_one = paths.len() == 1;
    if !is_one {
        let of_one = [
            ("--alias", !args.alias.is_empty(), "\nhint: write NAME=PATH"),
            ("--task", args.task.is_some(), ""),
            ("--chat-template", own.is_some(), ""),
            ("--lora", !options.loras.is_empty(), ""),
        ];
        if let Some((option, _, hint)) = of_one.into_iter().find(|(_, is_given, _)| *is_given) {
            return Err(Failure::Usage(format!(
                "{option} is for one model, and there are {}{hint}",
                paths.len()
            )));
        }
    }
    let (mut offers, mut known, mut failed) = (vec![], BTreeSet::new(), vec![]);
    for path in paths {
        match offer(args, options, own, path, is_one) {
            Ok(offer) => match offer.names.iter().find(|name| !known.insert((*name).clone())) {
                Some(twice) => {
                    let why = format!("two models are called `{twice}`\nhint: write NAME=PATH");
                    failed.push(Failure::Usage(why));
                }
                None => offers.push(offer),
            },
            Err(why) => failed.push(why),
        }
    }
    match Failure::all(failed) {
        Some(failure) => Err(failure),
        None => Ok(offers),
    }
}

/// The model at `path`, which is the only one if `is_one`.
fn offer(
    args: &ServeArgs,
    options: &RuntimeOptions,
    own: Option<&Arc<ChatTemplate>>,
    path: &Path,
    is_one: bool,
) -> Result<Offer, Failure> {
    let (name, path) = named(path);
    if name == Some("*") || (name.is_some() && !args.alias.is_empty()) {
        let why = if name == Some("*") {
            "`*` is no name of a model"
        } else {
            "NAME=PATH and --alias both name the model"
        };
        return Err(Failure::Usage(why.to_owned()));
    }
    let mut options = options.clone();
    let task = args.task.map_or_else(|| Task::of(path, &options.open), |task| Ok(task.task()))?;
    // Of a text model each request has a session; others run one thing at a time.
    let parallel = if task == Task::Text { args.parallel } else { 1 };
    options.more_sessions = parallel;
    if is_one {
        check_options(args, task)?;
    } else if task != Task::Text {
        // They are for the models of text beside it.
        (options.context, options.kv, options.kv_budget) = (None, None, None);
    }
    let names = name.map_or_else(|| names(args, path), |name| vec![name.to_owned()]);
    // One model has all the room that there is.
    let bytes = if is_one { 0 } else { stored_bytes(path, &options) };
    let (path, own, is_strict) = (path.to_owned(), own.cloned(), args.strict.strict);
    let name = names.first().cloned().unwrap_or_default();
    let starting = Starting { path, name, task, options, own, parallel, is_strict };
    let load = Box::new(move |memory| {
        starting.start(memory).map_err(|failure| NotLoaded {
            problems: failure.diagnostics(),
            is_misuse: failure.is_usage(),
            is_for_memory: matches!(failure, Failure::Model(weighbridge::Error::Memory { .. })),
        })
    });
    Ok(Offer { names, task, parallel, bytes, load })
}

/// Bytes of the tensors of a checkpoint. What cannot be opened so is for loading to refuse: sentence-transformers keep weights in a folder
/// of their own.
fn stored_bytes(path: &Path, options: &RuntimeOptions) -> u64 {
    let checkpoint = weighbridge::open_with(path, &options.open);
    checkpoint.map_or(0, |checkpoint| checkpoint.entries().iter().map(TensorEntry::byte_len).sum())
}

/// Takes `NAME=PATH` apart, unless it is a file.
fn named(path: &Path) -> (Option<&str>, &Path) {
    let parts = path.to_str().and_then(|text| text.split_once('='));
    match parts {
        Some((name, rest))
            if !name.is_empty() && !name.contains(['/', '\\', ':']) && !rest.is_empty() && !path.exists() =>
        {
            (Some(name), Path::new(rest))
        }
        _ => (None, path),
    }
}

/// Refuses options that a model for `task` has no use for.
fn check_options(args: &ServeArgs, task: Task) -> Result<(), Failure> {
    let is_of_text = task == Task::Text;
    let unused = [
        ("--chat-template", args.chat_template.is_some() && !is_of_text),
        ("--max-tokens", args.max_tokens.is_some() && !is_of_text),
        ("--kv", args.model.has_kv() && matches!(task, Task::Vectors | Task::Scores)),
        ("--kv-budget", args.budget.positions().is_some() && !is_of_text),
        ("--ctx", args.model.ctx.is_some() && task == Task::Speech),
    ];
    match unused.into_iter().find(|(_, is_unused)| *is_unused) {
        Some((option, _)) => {
            let task = task.name();
            Err(Failure::Usage(format!("{option} does nothing for this model, which is for {task}")))
        }
        None => Ok(()),
    }
}

/// How a model is started, each time that it is.
struct Starting {
    path: PathBuf,
    name: String,
    task: Task,
    options: RuntimeOptions,
    /// The chat template of the command line.
    own: Option<Arc<ChatTemplate>>,
    parallel: usize,
    is_strict: bool,
}

impl Starting {
    /// Loads the model into at most `memory` bytes, if there is a limit.
    fn start(&self, memory: Option<u64>) -> Result<Loaded, Failure> {
        let options = RuntimeOptions { memory, ..self.options.clone() };
        let served = match self.task {
            Task::Text => return self.text(&options),
            Task::Vectors => {
                let embedder = Embedder::open(&self.path, &options)?;
                let tokenizer = embedder.tokenizer().ok().map(AsRef::as_ref);
                let doubts = Doubts::with(embedder.checkpoint(), embedder.model(), tokenizer)?;
                let width = embedder.width();
                let what =
                    format!("vectors of {width} elements, of texts of up to {} tokens", embedder.longest());
                notes(doubts.unless(self.is_strict)?, embedder.notes(), embedder.report(), &what);
                Served::Vectors(Box::new(embedder))
            }
            Task::Scores => {
                let reranker = Reranker::open(&self.path, &options)?;
                let doubts = Doubts::with(
                    reranker.checkpoint(),
                    reranker.model(),
                    Some(reranker.tokenizer().as_ref()),
                )?;
                let what = format!("scores of texts, of up to {} tokens with the query", reranker.longest());
                notes(doubts.unless(self.is_strict)?, reranker.notes(), reranker.report(), &what);
                Served::Scores(Box::new(reranker))
            }
            Task::Speech => self.speech(&options)?,
        };
        Ok(Loaded { served, chat: None, page: None })
    }

    #[cfg(feature = "speech")]
    fn speech(&self, options: &RuntimeOptions) -> Result<Served, Failure> {
        let transcriber = Transcriber::open(&self.path, options)?;
        let tokenizer = Some(transcriber.tokenizer());
        let doubts = Doubts::with(transcriber.checkpoint(), transcriber.model(), tokenizer)?;
        let languages = match transcriber.languages().count() {
            0 => "English alone".to_owned(),
            n => counted(n, "language").to_string(),
        };
        let what = format!("transcripts of speech, of {languages}");
        notes(doubts.unless(self.is_strict)?, &[], transcriber.report(), &what);
        Ok(Served::Speech(Box::new(transcriber)))
    }

    #[cfg(not(feature = "speech"))]
    fn speech(&self, _: &RuntimeOptions) -> Result<Served, Failure> {
        Err(Failure::Other(
            "the model is for speech, which this build does not have (feature `speech`)".to_owned(),
        ))
    }

    /// Starts a model of text.
    fn text(&self, options: &RuntimeOptions) -> Result<Loaded, Failure> {
        let mut runtime = Runtime::start(&self.path, options)?;
        if let Some(own) = &self.own {
            runtime.set_template(ChatTemplate::new(own.source()).map_err(|e| Failure::Other(e.to_string()))?);
        }
        let tokenizer = runtime.tokenizer().ok().map(AsRef::as_ref);
        let doubts = Doubts::with(runtime.checkpoint(), runtime.model(), tokenizer)?;
        let doubts = doubts.and(&options.loras).unless(self.is_strict)?;
        for line in doubts.lines() {
            note(&line);
        }
        progress::streaming(&runtime);
        let report = runtime.report().to_string();
        note(&report);
        let positions = runtime.session().capacity();
        let memory = (runtime.session().bytes() as u64).saturating_mul(self.parallel as u64 + 1);
        let together = format!(
            "{} of {positions} positions together, {} of KV cache",
            counted(self.parallel, "request"),
            Bytes(memory)
        );
        note(&together);
        let chat = chat(runtime.template(), &runtime)?;
        if chat.is_none() {
            note("the model has no chat template: `/v1/completions` alone continues texts");
        }
        let page = page::page(&runtime, options, &self.name, &doubts, vec![report, together])?;
        Ok(Loaded { served: Served::Text(Box::new(runtime)), chat, page: Some(page) })
    }
}

/// Says how a model was loaded, and what it does.
fn notes(doubts: Doubts, remarks: &[Remark], report: &LoadReport, what: &str) {
    for line in doubts.lines() {
        note(&line);
    }
    for remark in remarks {
        note(&remark.to_string());
    }
    note(&report.to_string());
    note(what);
}

fn cannot_listen(host: &str, port: u16, error: &std::io::Error) -> Failure {
    let hint = match error.kind() {
        ErrorKind::AddrInUse => "\nhint: another program listens there: `--port 0` takes a free port",
        _ => "",
    };
    Failure::Other(format!("cannot listen on {host}, port {port}: {error}{hint}"))
}

/// The keys of the command line, of the file that it names, and of the environment.
fn keys(args: &AccessArgs) -> Result<Vec<String>, Failure> {
    let mut keys = args.api_key.clone();
    if let Some(path) = &args.api_key_file {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|e| Failure::Other(format!("cannot read `{shown}`: {e}")))?;
        let before = keys.len();
        keys.extend(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned));
        if keys.len() == before {
            return Err(Failure::Usage(format!("`{shown}` has no key: wanted one on each line")));
        }
    }
    match std::env::var(KEY) {
        Ok(key) => keys.push(key),
        Err(std::env::VarError::NotPresent) => {}
        Err(error) => return Err(Failure::Usage(format!("`{KEY}`: {error}"))),
    }
    if keys.iter().any(|key| key.trim().is_empty()) {
        return Err(Failure::Usage("an API key is empty".to_owned()));
    }
    Ok(keys)
}

/// The names that are given, or that of the file or directory.
fn names(args: &ServeArgs, path: &Path) -> Vec<String> {
    let mut names = args.alias.clone();
    if names.iter().all(|name| name == "*") {
        names.insert(0, own_name(path));
    }
    names
}

/// The name of the file or directory.
fn own_name(path: &Path) -> String {
    if let Some(name) = path.to_str().and_then(elsewhere) {
        return name;
    }
    // `.` has a name only where it is.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
    name.map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Names a model after its URL, or by its name of the hub.
fn elsewhere(location: &str) -> Option<String> {
    if let Some(name) = location.strip_prefix("hf:") {
        return Some(name.to_owned());
    }
    url_scheme(location)?;
    let shown = shown(location);
    let last = shown.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let stem = Path::new(last).file_stem().map_or_else(|| last.into(), |stem| stem.to_string_lossy());
    // A directory keeps its dots: `llama-3.2`.
    Some(if shown.ends_with('/') { last.to_owned() } else { stem.into_owned() })
}

/// Runs the template in a process of its own, for each conversation.
fn chat(template: Option<&ChatTemplate>, runtime: &Runtime) -> Result<Option<Chat>, Failure> {
    let (Some(template), Ok(tokenizer)) = (template, runtime.tokenizer()) else { return Ok(None) };
    let template =
        ChatTemplate::new(template.source()).map_err(|e| Failure::Other(e.diagnostics().to_string()))?;
    let spelling =
        |id: Option<u32>| id.and_then(|id| tokenizer.token_spelling(id)).unwrap_or_default().to_owned();
    let [bos, eos] = [spelling(tokenizer.bos()), spelling(tokenizer.eos())];
    let (variables, thoughts) = (template.variables(), ReplySyntax::thoughts(template.source()));
    let render = move |conversation: &Conversation| isolate::render(&template, conversation, [&bos, &eos]);
    Ok(Some(Chat { render: Box::new(render), variables, thoughts }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_elsewhere_has_a_name_without_secrets() {
        for (location, name) in [
            ("https://me:x@host/a/model.Q4_0.gguf?sig=x.y", Some("model.Q4_0")),
            ("s3://bucket/llama-3.2/", Some("llama-3.2")),
            ("hf:owner/name@main/Q4_K_M", Some("owner/name@main/Q4_K_M")),
            ("a/model.gguf", None),
        ] {
            assert_eq!(elsewhere(location).as_deref(), name);
        }
    }
}
