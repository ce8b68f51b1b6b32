//! `weighbridge serve`: a model for clients of OpenAI's and Anthropic's APIs.

mod page;

use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use server::{Chat, Options};
use weighbridge::Runtime;
use weighbridge::engine::text::{ChatTemplate, Conversation, ReplySyntax};
use weighbridge::storage::{shown, url_scheme};
use weighbridge::tensor::{Bytes, counted};

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
    options.more_sessions = args.parallel;
    // Before the model, which takes longer: a port that is taken is said at once.
    let (host, port) = (args.access.host.as_str(), args.access.port);
    let listener = TcpListener::bind((host, port)).map_err(|error| cannot_listen(host, port, &error))?;
    let address = listener.local_addr()?;
    let runtime = Runtime::start(args.model.path(), &options)?;
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
    let chat = chat(own.as_ref().or(runtime.template()), &runtime)?;
    if chat.is_none() {
        note("the model has no chat template: `/v1/completions` alone continues texts");
    }
    if keys.is_empty() && !address.ip().is_loopback() {
        note("anyone who reaches this machine may use the model: `--api-key-file` asks for a key");
    }
    let mut hosts = args.access.allow_host.clone();
    hosts.push(host.to_owned());
    let names = names(args);
    let name = names.first().map_or("model", String::as_str);
    let page = page::page(&runtime, &options, name, &doubts, vec![report, together])?;
    let served = Options {
        names,
        chat,
        parallel: args.parallel,
        queue: args.queue,
        most_tokens: args.max_tokens,
        deadline: (args.deadline > 0).then(|| Duration::from_secs(args.deadline)),
        body: usize::try_from(args.body_limit).unwrap_or(usize::MAX),
        keys,
        hosts,
        origins: args.access.cors.clone(),
        grace: Duration::from_secs(args.grace),
        log: if args.access.quiet { None } else { Some(Arc::new(note)) },
        page: Some(page),
    };
    note(&format!("listening on http://{address}"));
    server::serve(runtime, listener, served).map_err(|e| Failure::Problems(e.diagnostics()))
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
    if !args.alias.is_empty() {
        return args.alias.clone();
    }
    let path = args.model.path();
    if let Some(name) = path.to_str().and_then(elsewhere) {
        return vec![name];
    }
    // `.` has a name only where it is.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
    vec![name.map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())]
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
