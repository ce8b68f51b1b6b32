//! `weighbridge run`: one answer, or a [chat](super::chat).

use std::io::{IsTerminal, Read, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use weighbridge::Checkpoint;
use weighbridge::engine::text::{ChatTemplate, EncodeOptions, Message, SpecialText, Tokenizer};
use weighbridge::engine::{Limits, Stats};
use weighbridge::tensor::{Bytes, counted};
use weighbridge::{Runtime, Sampler};

use super::chat;
use crate::INTERRUPTED;
use crate::args::{CacheArg, RunArgs};
use crate::failure::Failure;
use crate::isolate;
use crate::json;
use crate::keys::Doubts;
use crate::memory::{Measured, Memory};
use crate::progress;
use crate::style;

pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let (started, memory) = (Instant::now(), Memory::watch());
    let prompt = prompt(args)?;
    let options = args.model.options(CacheArg::Write).map_err(Failure::Usage)?;
    let stop = Interrupt::install();
    let checkpoint = weighbridge::open_with(args.model.path(), &options.open)?;
    if let Some(ids) = &args.ids {
        in_vocabulary(&checkpoint, ids)?;
    }
    let mut runtime = Runtime::start_from(checkpoint, &options)?;
    if let Some(path) = &args.chat_template {
        runtime.set_template(template(path)?);
    }
    let tokenizer = runtime.tokenizer().ok().map(AsRef::as_ref);
    let doubts = Doubts::with(runtime.checkpoint(), runtime.model(), tokenizer)?;
    for line in doubts.unless(args.strict.strict)?.lines() {
        note(&line);
    }
    let tokenizer = runtime.tokenizer().ok().map(AsRef::as_ref);
    let options = args.sampler.options(runtime.sampling(), tokenizer)?;
    let sampler =
        Sampler::new(&options, runtime.shared().vocab()).map_err(|e| Failure::Usage(e.to_string()))?;
    if let (Err(error), None) = (runtime.tokenizer(), &args.ids) {
        return Err(Failure::Other(format!(
            "{}\nhint: `--ids` takes token ids, and needs no tokenizer",
            error.diagnostics()
        )));
    }
    progress::streaming(&runtime);
    if let Some(bytes) = runtime.first_copy() {
        let copy = Bytes(bytes);
        note(&format!(
            "keeping a copy of {copy} for the next start, in the background (`--cache off`: none)"
        ));
    }
    let mut session =
        Session { runtime, sampler, args, stop, cached: Vec::new(), last: None, started, memory };
    match (prompt, &args.ids) {
        (_, Some(ids)) => session.ids(ids),
        (Some(prompt), None) => session.once(&prompt),
        (None, None) => chat::run(&mut session),
    }
}

/// The prompt that the command line gives, or the file or standard input that it names.
fn prompt(args: &RunArgs) -> Result<Option<String>, Failure> {
    let text = |bytes: Vec<u8>, of: &str| {
        String::from_utf8(bytes).map_err(|_| Failure::Usage(format!("{of} is not UTF-8")))
    };
    let from_stdin = || {
        let mut bytes = vec![];
        std::io::stdin().lock().read_to_end(&mut bytes)?;
        text(bytes, "standard input")
    };
    match (args.prompt.as_deref(), args.file.as_deref()) {
        (Some("-"), _) => from_stdin().map(Some),
        (Some(prompt), _) => Ok(Some(prompt.to_owned())),
        (None, Some(path)) if path == Path::new("-") => from_stdin().map(Some),
        (None, Some(path)) => {
            let shown = format!("`{}`", path.display());
            let bytes =
                std::fs::read(path).map_err(|e| Failure::Other(format!("cannot read {shown}: {e}")))?;
            text(bytes, &shown).map(Some)
        }
        (None, None) => Ok(None),
    }
}

/// Checks that the model has the tokens `ids`, before its weights are loaded.
fn in_vocabulary(checkpoint: &Checkpoint, ids: &[u32]) -> Result<(), Failure> {
    let vocab = weighbridge::describe(checkpoint)?.architecture().ok().map(|a| a.decoder.vocab);
    let wrong: Vec<String> =
        ids.iter().filter(|id| vocab.is_some_and(|n| u64::from(**id) >= n)).map(u32::to_string).collect();
    match (vocab, &wrong[..]) {
        (_, []) | (None, _) => Ok(()),
        (Some(n), _) => {
            Err(Failure::Usage(format!("the model has no token {}: wanted ids below {n}", wrong.join(", "))))
        }
    }
}

/// A chat template of the user's own.
fn template(path: &Path) -> Result<ChatTemplate, Failure> {
    let shown = path.display();
    let bytes = std::fs::read(path).map_err(|e| Failure::Other(format!("cannot read `{shown}`: {e}")))?;
    let text = String::from_utf8(bytes).map_err(|_| Failure::Usage(format!("`{shown}` is not UTF-8")))?;
    ChatTemplate::new(&text).map_err(|e| Failure::Usage(format!("`{shown}`: {}", e.diagnostics())))
}

/// What Ctrl-C does: it ends an answer, and anywhere else the program.
#[derive(Clone, Default)]
struct Interrupt {
    answering: Arc<AtomicBool>,
    asked: Arc<AtomicBool>,
}

impl Interrupt {
    fn install() -> Interrupt {
        let interrupt = Interrupt::default();
        let shared = interrupt.clone();
        // Without a handler Ctrl-C ends the program at once, which is no worse.
        let _ = ctrlc::set_handler(move || {
            let again = shared.asked.swap(true, Ordering::SeqCst);
            if again || !shared.answering.load(Ordering::SeqCst) {
                std::process::exit(INTERRUPTED.into());
            }
        });
        interrupt
    }

    /// Whether the answer should end.
    fn asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// From here on, Ctrl-C ends the answer (`true`), or the program again (`false`).
    fn answering(&self, on: bool) {
        self.answering.store(on, Ordering::SeqCst);
        self.asked.store(false, Ordering::SeqCst);
    }
}

/// What the model said.
pub(super) struct Answer {
    pub(super) text: String,
    /// Its tokens, the one that ended it included.
    ids: Vec<u32>,
    pub(super) stats: Stats,
    /// Ctrl-C ended it.
    pub(super) interrupted: bool,
}

pub(super) struct Session<'a> {
    pub(super) runtime: Runtime,
    sampler: Sampler,
    pub(super) args: &'a RunArgs,
    stop: Interrupt,
    /// The tokens whose keys and values are in the cache.
    cached: Vec<u32>,
    pub(super) last: Option<Stats>,
    started: Instant,
    memory: Memory,
}

impl Session<'_> {
    fn tokenizer(&self) -> Result<&Arc<Tokenizer>, Failure> {
        self.runtime.tokenizer().map_err(|e| Failure::Other(e.diagnostics().to_string()))
    }

    /// Answers `prompt` and leaves.
    fn once(&mut self, prompt: &str) -> Result<(), Failure> {
        note(&format!("{}", self.runtime.report()));
        let tokens = if self.args.raw || self.runtime.template().is_none() {
            if !self.args.raw {
                self.takes_system()?;
                note("the model has no chat template: continuing the prompt as it is");
            }
            let options = EncodeOptions { add_special: true, parse_special: false };
            self.tokenizer()?
                .encode(prompt, options)
                .map_err(|e| Failure::Other(e.diagnostics().to_string()))?
        } else {
            let mut messages = self.system();
            messages.push(Message { role: "user".to_owned(), content: prompt.to_owned() });
            self.render(&messages)?
        };
        if tokens.is_empty() {
            return Err(Failure::Usage(
                "the prompt is empty, and this model has no token to begin with".to_owned(),
            ));
        }
        let answer = self.answer(&tokens)?;
        match (self.args.json, std::io::stdout().is_terminal()) {
            (true, _) => {}
            // The line ends where people read it; a pipe gets the text alone.
            (false, true) => println()?,
            (false, false) => note(""),
        }
        self.end(&answer, true)
    }

    /// Says what an answer took; as JSON, the answer too. One that Ctrl-C ended ends the program as Ctrl-C does.
    fn end(&self, answer: &Answer, is_text: bool) -> Result<(), Failure> {
        let Answer { text, ids, stats, interrupted } = answer;
        if self.args.json {
            let text = is_text.then_some(text.as_str());
            let (first_token, backend) = (self.first_token(stats), self.runtime.backend());
            let resident = self.measured().json();
            json::print(&json::Run::of((text, ids), stats, first_token, &backend, resident))?;
        } else {
            note(&self.speed(stats));
            match self.measured().line() {
                line if line.is_empty() => {}
                line => note(&line),
            }
        }
        if *interrupted { Err(Failure::Interrupted) } else { Ok(()) }
    }

    /// The memory that it took until now.
    fn measured(&self) -> Measured {
        self.memory.so_far(Some(self.runtime.foreseen()))
    }

    /// Refuses a system message where nothing can say it to the model.
    fn takes_system(&self) -> Result<(), Failure> {
        match self.args.system {
            Some(_) => Err(Failure::Usage(
                "this model has no chat template, so it cannot be given a system message\nhint: leave `--system` out, or \
                 give a template with `--chat-template FILE`"
                    .to_owned(),
            )),
            None => Ok(()),
        }
    }

    /// Runs `ids` and prints those that follow, on one line.
    fn ids(&mut self, ids: &[u32]) -> Result<(), Failure> {
        note(&format!("{}", self.runtime.report()));
        let tokenizer = self.runtime.tokenizer().ok().map(Arc::clone);
        let ends = self.runtime.sampling().ends.clone();
        let of_tokenizer = |id| tokenizer.as_ref().is_some_and(|t| t.is_end_of_generation(id));
        let end = |id| ends.contains(&id) || of_tokenizer(id);
        let (mut between, quiet, mut sampled) = ("", self.args.json, vec![]);
        let (stats, interrupted) = self.generate(ids, &end, &mut |id| {
            sampled.push(id);
            if quiet {
                return Ok(());
            }
            let mut out = std::io::stdout().lock();
            write!(out, "{between}{id}")?;
            between = ",";
            out.flush()
        })?;
        if !quiet {
            println()?;
        }
        let text = tokenizer.map(|tokenizer| {
            let mut stream = tokenizer.stream(SpecialText::Hidden);
            let mut text: String = sampled.iter().map(|id| stream.push(*id).to_owned()).collect();
            text.push_str(stream.finish());
            text
        });
        let is_text = text.is_some();
        self.end(&Answer { text: text.unwrap_or_default(), ids: sampled, stats, interrupted }, is_text)
    }

    /// Seconds from the start of the process to the first token.
    fn first_token(&self, stats: &Stats) -> f64 {
        self.started.elapsed().as_secs_f64() - stats.decode_seconds
    }

    pub(super) fn system(&self) -> Vec<Message> {
        let content = self.args.system.iter();
        content.map(|text| Message { role: "system".to_owned(), content: text.clone() }).collect()
    }

    /// The conversation as the model wants to read it.
    pub(super) fn render(&self, messages: &[Message]) -> Result<Vec<u32>, Failure> {
        let tokenizer = self.tokenizer()?;
        let Some(template) = self.runtime.template() else {
            return Err(Failure::Usage(
                "the model has no chat template\nhint: give a text to continue with -p TEXT --raw".to_owned(),
            ));
        };
        let spelling = |id: Option<u32>| id.and_then(|id| tokenizer.token_spelling(id)).unwrap_or_default();
        let around = [spelling(tokenizer.bos()), spelling(tokenizer.eos())];
        let of = self.args.chat_template.as_deref().unwrap_or(self.args.model.path());
        let text = isolate::render(of, template, messages, around).map_err(Failure::Other)?;
        // The template writes its own special tokens, the first included.
        let options = EncodeOptions { add_special: false, parse_special: true };
        tokenizer.encode(&text, options).map_err(|e| Failure::Other(e.diagnostics().to_string()))
    }

    /// Runs `tokens`, less what the cache holds already, and streams the answer to stdout, unless JSON will have it.
    pub(super) fn answer(&mut self, tokens: &[u32]) -> Result<Answer, Failure> {
        let tokenizer = Arc::clone(self.tokenizer()?);
        let mut stream = tokenizer.stream(SpecialText::Hidden);
        let (mut text, mut ids, quiet) = (String::new(), vec![], self.args.json);
        let ends = self.runtime.sampling().ends.clone();
        let end = |token| ends.contains(&token) || tokenizer.is_end_of_generation(token);
        let (stats, interrupted) = self.generate(tokens, &end, &mut |token| {
            let piece = stream.push(token);
            ids.push(token);
            text.push_str(piece);
            shown(piece, quiet)
        })?;
        let rest = stream.finish();
        text.push_str(rest);
        shown(rest, quiet)?;
        Ok(Answer { text, ids, stats, interrupted })
    }

    /// Runs `tokens`, less what the cache holds already, and hands on those that follow until `end` says so. The second
    /// value says whether Ctrl-C ended it.
    fn generate(
        &mut self,
        tokens: &[u32],
        end: &dyn Fn(u32) -> bool,
        each: &mut dyn FnMut(u32) -> std::io::Result<()>,
    ) -> Result<(Stats, bool), Failure> {
        // At least one token has to run, to have logits.
        let known = self.cached.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let known = known.min(tokens.len().saturating_sub(1));
        self.runtime.truncate(known);
        self.cached.truncate(known);
        self.sampler.begin(&self.cached);
        self.cached.extend_from_slice(&tokens[known..]);

        self.stop.answering(true);
        let mut failed = None;
        let limits = Limits { tokens: self.args.tokens(), end };
        let (cached, stop) = (&mut self.cached, &self.stop);
        let stats = self.runtime.generate(&mut self.sampler, &tokens[known..], &limits, &mut |token| {
            cached.push(token);
            if let Err(error) = each(token) {
                failed = Some(error);
                return ControlFlow::Break(());
            }
            if stop.asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let interrupted = self.stop.asked();
        self.stop.answering(false);
        let stats = stats?;
        // The last token that was sampled has not been run.
        self.cached.truncate(self.runtime.session().position());
        if let Some(error) = failed {
            return Err(error.into());
        }
        self.last = Some(stats);
        Ok((stats, interrupted))
    }

    pub(super) fn speed(&self, stats: &Stats) -> String {
        // The first token comes from the prompt.
        let rate = match stats.tokens {
            0 | 1 => String::new(),
            _ => format!(" at {:.1} tokens/s", stats.decode_rate()),
        };
        format!(
            "prefill {} at {:.0} tokens/s, decode {}{rate} ({}; first token after {:.2} s)",
            counted(stats.prompt_tokens, "token"),
            stats.prefill_rate(),
            stats.tokens,
            self.runtime.backend(),
            stats.prefill_seconds,
        )
    }

    pub(super) fn memory(&self) -> String {
        let session = self.runtime.session();
        format!(
            "context {} of {} positions, cache {}; {}",
            session.position(),
            session.capacity(),
            Bytes(session.bytes() as u64),
            self.runtime.report(),
        )
    }
}

/// Prints a piece of an answer at once, unless `quiet`.
fn shown(piece: &str, quiet: bool) -> std::io::Result<()> {
    if quiet {
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    out.write_all(piece.as_bytes())?;
    out.flush()
}

pub(super) fn println() -> std::io::Result<()> {
    writeln!(std::io::stdout().lock())
}

/// Side information. If stderr is gone, it is not missed.
pub(super) fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", style::note(text));
}
