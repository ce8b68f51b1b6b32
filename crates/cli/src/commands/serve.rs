//! `weighbridge serve`: a model for clients of OpenAI's, Anthropic's and other APIs.

mod page;

use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use server::{Chat, Options, Served};
#[cfg(feature = "speech")]
use weighbridge::Transcriber;
use weighbridge::embedder::Remark;
use weighbridge::engine::text::{ChatTemplate, Conversation, ReplySyntax};
use weighbridge::load::LoadReport;
use weighbridge::storage::{shown, url_scheme};
use weighbridge::tensor::{Bytes, counted};
use weighbridge::{Embedder, Reranker, Runtime, RuntimeOptions, Task};

use crate::args::{AccessArgs, CacheArg, ServeArgs};
use crate::failure::Failure;
use crate::isolate;
use crate::keys::Doubts;
use crate::progress::{self, note};

/// The variable with a key.
const KEY: &str = "WEIGHBRIDGE_API_KEY";

pub(crate) fn run(args: &ServeArgs) -> Result<(), Failure> {
    let keys = keys(&args.access)?;
    let own = args.chat_template.as_deref().map(isolate::own).transpose()?;
    let mut options = args.model.options(CacheArg::Write)?;
    // Before the model, which takes longer: a port that is taken is said at once.
    let (host, port) = (args.access.host.as_str(), args.access.port);
    let listener = TcpListener::bind((host, port)).map_err(|error| cannot_listen(host, port, &error))?;
    let address = listener.local_addr()?;
    let path = args.model.path();
    let task = args.task.map_or_else(|| Task::of(path, &options.open), |task| Ok(task.task()))?;
    // Of a text model each request has a session; others run one thing at a time.
    let parallel = if task == Task::Text { args.parallel } else { 1 };
    options.more_sessions = parallel;
    check_options(args, task)?;
    let mut hosts = args.access.allow_host.clone();
    hosts.push(host.to_owned());
    let mut served = Options {
        names: names(args),
        chat: None,
        parallel,
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
        page: None,
    };
    let model = match task {
        Task::Text => text(args, &options, own.as_ref(), &mut served)?,
        Task::Vectors => {
            let embedder = Embedder::open(path, &options)?;
            let tokenizer = embedder.tokenizer().ok().map(AsRef::as_ref);
            let doubts = Doubts::with(embedder.checkpoint(), embedder.model(), tokenizer)?;
            let width = embedder.width();
            let what =
                format!("vectors of {width} elements, of texts of up to {} tokens", embedder.longest());
            notes(doubts.unless(args.strict.strict)?, embedder.notes(), embedder.report(), &what);
            Served::Vectors(Box::new(embedder))
        }
        Task::Scores => {
            let reranker = Reranker::open(path, &options)?;
            let doubts =
                Doubts::with(reranker.checkpoint(), reranker.model(), Some(reranker.tokenizer().as_ref()))?;
            let what = format!("scores of texts, of up to {} tokens with the query", reranker.longest());
            notes(doubts.unless(args.strict.strict)?, reranker.notes(), reranker.report(), &what);
            Served::Scores(Box::new(reranker))
        }
        Task::Speech => speech(args, &options)?,
    };
    if served.keys.is_empty() && !address.ip().is_loopback() {
        note("anyone who reaches this machine may use the model: `--api-key-file` asks for a key");
    }
    note(&format!("listening on http://{address}"));
    server::serve(model, listener, served).map_err(|e| Failure::Problems(e.diagnostics()))
}

/// Refuses options that a model for `task` has no use for.
fn check_options(args: &ServeArgs, task: Task) -> Result<(), Failure> {
    let is_of_text = task == Task::Text;
    let unused = [
        ("--chat-template", args.chat_template.is_some() && !is_of_text),
        ("--max-tokens", args.max_tokens.is_some() && !is_of_text),
        ("--kv", args.model.has_kv() && matches!(task, Task::Vectors | Task::Scores)),
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

#[cfg(feature = "speech")]
fn speech(args: &ServeArgs, options: &RuntimeOptions) -> Result<Served, Failure> {
    let transcriber = Transcriber::open(args.model.path(), options)?;
    let tokenizer = Some(transcriber.tokenizer());
    let doubts = Doubts::with(transcriber.checkpoint(), transcriber.model(), tokenizer)?;
    let languages = match transcriber.languages().count() {
        0 => "English alone".to_owned(),
        n => counted(n, "language").to_string(),
    };
    notes(
        doubts.unless(args.strict.strict)?,
        &[],
        transcriber.report(),
        &format!("transcripts of speech, of {languages}"),
    );
    Ok(Served::Speech(Box::new(transcriber)))
}

#[cfg(not(feature = "speech"))]
fn speech(_: &ServeArgs, _: &RuntimeOptions) -> Result<Served, Failure> {
    Err(Failure::Other(
        "the model is for speech, which this build does not have (feature `speech`)".to_owned(),
    ))
}

/// Starts a model of text.
fn text(
    args: &ServeArgs,
    options: &RuntimeOptions,
    own: Option<&ChatTemplate>,
    served: &mut Options,
) -> Result<Served, Failure> {
    let runtime = Runtime::start(args.model.path(), options)?;
    let tokenizer = runtime.tokenizer().ok().map(AsRef::as_ref);
    let doubts = Doubts::with(runtime.checkpoint(), runtime.model(), tokenizer)?;
    let doubts = doubts.and(&options.loras).unless(args.strict.strict)?;
    for line in doubts.lines() {
        note(&line);
    }
    progress::streaming(&runtime);
    let report = runtime.report().to_string();
    note(&report);
    let positions = runtime.session().capacity();
    let memory = (runtime.session().bytes() as u64).saturating_mul(args.parallel as u64 + 1);
    let together = format!(
        "{} of {positions} positions together, {} of KV cache",
        counted(args.parallel, "request"),
        Bytes(memory)
    );
    note(&together);
    served.chat = chat(own.or(runtime.template()), &runtime)?;
    if served.chat.is_none() {
        note("the model has no chat template: `/v1/completions` alone continues texts");
    }
    let name = served.names.first().map_or("model", String::as_str);
    served.page = Some(page::page(&runtime, options, name, &doubts, vec![report, together])?);
    Ok(Served::Text(Box::new(runtime)))
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
fn names(args: &ServeArgs) -> Vec<String> {
    let mut names = args.alias.clone();
    if names.iter().all(|name| name == "*") {
        names.insert(0, own_name(args.model.path()));
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
