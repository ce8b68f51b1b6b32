//! `weighbridge run`: one answer, or a [chat](super::chat).

use std::io::{IsTerminal, Read, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use weighbridge::Checkpoint;
use weighbridge::engine;
use weighbridge::engine::draft::{Draft, PromptLookup};
#[cfg(feature = "grammar")]
use weighbridge::engine::grammar::{Grammar, Source};
use weighbridge::engine::text::{Conversation, EncodeOptions, Message, Tokenizer};
use weighbridge::engine::{Limits, Sampled, Stats, Stop};
use weighbridge::tensor::{Bytes, counted};
use weighbridge::{Runtime, RuntimeOptions, Sampler};

use super::answer::{Answer, Answering};
use super::chat;
use super::prompt_cache::PromptCache;
use crate::args::{CacheArg, RunArgs};
use crate::cache;
use crate::failure::{Failure, INTERRUPTED};
use crate::isolate;
use crate::json;
use crate::keys::Doubts;
use crate::memory::{Measured, Memory};
use crate::progress::{self, note};

pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let (started, memory) = (Instant::now(), Memory::watch());
    let prompt = prompt(args)?;
    let prompt_cache = args.prompt_cache.as_deref().map(PromptCache::at).transpose()?;
    #[cfg(feature = "grammar")]
    let grammar = args.structure.source()?;
    let mut options = args.model.options(CacheArg::Write)?;
    options.kv_budget = args.budget.positions();
    let stop = Interrupt::install();
    let checkpoint = weighbridge::open_with(args.model.path(), &options.open)?;
    if let Some(ids) = &args.ids {
        in_vocabulary(&checkpoint, ids)?;
    }
    let (mut runtime, draft) = start(args, checkpoint, &options)?;
    if let Some(path) = &args.chat_template {
        runtime.set_template(isolate::own(path)?);
    }
    let tokenizer = runtime.tokenizer().ok().map(AsRef::as_ref);
    let doubts = Doubts::with(runtime.checkpoint(), runtime.model(), tokenizer)?;
    for line in doubts.and(&options.loras).unless(args.strict.strict)?.lines() {
        note(&line);
    }
    let tokenizer = runtime.tokenizer().ok().map(AsRef::as_ref);
    let options = args.sampler.options(runtime.sampling(), tokenizer)?;
    without_tokenizer(args, &runtime)?;
    let sampler =
        Sampler::new(&options, runtime.shared().vocab()).map_err(|e| Failure::Usage(e.to_string()))?;
    #[cfg(feature = "grammar")]
    let sampler = constrain(sampler, grammar, &runtime)?;
    if let (Err(error), None) = (runtime.tokenizer(), &args.ids) {
        return Err(Failure::Other(format!(
            "{}\nhint: `--ids` takes token ids, and needs no tokenizer",
            error.diagnostics()
        )));
    }
    progress::streaming(&runtime);
    cache::say_first(runtime.first_copy());
    let mut session = Session {
        runtime,
        sampler,
        draft,
        args,
        stop,
        prompt_cache,
        unsaved: None,
        aside: 0.0,
        cached: Vec::new(),
        last: None,
        started,
        memory,
    };
    match (prompt, &args.ids) {
        (_, Some(ids)) => session.ids(ids),
        (Some(prompt), None) => session.once(&prompt),
        (None, None) => chat::run(&mut session),
    }
}

/// Starts the model, and what guesses its tokens if the command line asks for it.
fn start(
    args: &RunArgs,
    checkpoint: Checkpoint,
    options: &RuntimeOptions,
) -> Result<(Runtime, Option<Box<dyn Draft>>), Failure> {
    let Some((path, draft_options)) = args.draft(options) else {
        let lookup = args.prompt_lookup.then(|| Box::new(PromptLookup::new()) as Box<dyn Draft>);
        return Ok((Runtime::start_from(checkpoint, options)?, lookup));
    };
    let draft = weighbridge::open_with(path, &draft_options.open)?;
    let (runtime, draft) = Runtime::start_with_draft(checkpoint, options, draft, &draft_options)?;
    Ok((runtime, Some(Box::new(draft))))
}

/// Compiles the grammar that the answers keep to, while the prompt runs.
#[cfg(feature = "grammar")]
fn constrain(mut sampler: Sampler, grammar: Option<Source>, runtime: &Runtime) -> Result<Sampler, Failure> {
    let Some(source) = grammar else { return Ok(sampler) };
    let tokenizer = runtime.tokenizer().map_err(|e| Failure::Other(e.diagnostics().to_string()))?;
    let ends = [&runtime.sampling().ends[..], tokenizer.end_of_generation()].concat();
    let warn = |warnings: &[String]| warnings.iter().for_each(|warning| note(&format!("grammar: {warning}")));
    let grammar = Grammar::compile(source, tokenizer, &ends, runtime.shared().vocab(), warn);
    sampler.constrain(Box::new(grammar.map_err(|e| Failure::Usage(e.to_string()))?));
    Ok(sampler)
}

/// Says which strings cannot end a text without a tokenizer; those that were asked for are an error.
fn without_tokenizer(args: &RunArgs, runtime: &Runtime) -> Result<(), Failure> {
    match (runtime.tokenizer(), args.stop.is_empty(), runtime.sampling().stop_strings.is_empty()) {
        (Ok(_), ..) | (Err(_), true, true) => Ok(()),
        (Err(_), true, false) => {
            note("without a tokenizer, the checkpoint's `stop_strings` end nothing");
            Ok(())
        }
        (Err(_), false, _) => {
            Err(Failure::Usage("`--stop` needs a tokenizer, and the model has none".to_owned()))
        }
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
    let vocab = weighbridge::describe(checkpoint)?.architecture().ok().map(|a| a.vocab());
    let wrong: Vec<String> =
        ids.iter().filter(|id| vocab.is_some_and(|n| u64::from(**id) >= n)).map(u32::to_string).collect();
    match (vocab, &wrong[..]) {
        (_, []) | (None, _) => Ok(()),
        (Some(n), _) => {
            Err(Failure::Usage(format!("the model has no token {}: wanted ids below {n}", wrong.join(", "))))
        }
    }
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

pub(super) struct Session<'a> {
    pub(super) runtime: Runtime,
    sampler: Sampler,
    draft: Option<Box<dyn Draft>>,
    pub(super) args: &'a RunArgs,
    stop: Interrupt,
    /// The file of the only prompt.
    prompt_cache: Option<PromptCache<'a>>,
    /// Why the prompt is not in that file.
    unsaved: Option<Failure>,
    /// Seconds that reading or writing it took.
    aside: f64,
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
            messages.push(Message::new("user", prompt));
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
        self.end(&answer)?;
        self.unsaved.take().map_or(Ok(()), Err)
    }

    /// Says what an answer took; as JSON, the answer too. One that Ctrl-C ended ends the program as Ctrl-C does.
    fn end(&self, answer: &Answer) -> Result<(), Failure> {
        let Answer { text, ids, logprobs, stop_string, stats, interrupted } = answer;
        if self.args.json {
            let said = (text.as_deref(), &ids[..], logprobs.as_deref(), stop_string.as_deref());
            let (first_token, backend) = (self.first_token(stats), self.runtime.backend());
            let resident = self.measured().json();
            json::print(&json::Run::of(said, stats, first_token, &backend, resident))?;
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
        let (mut between, quiet) = ("", self.args.json);
        let mut answer = self.answering(tokenizer.as_deref());
        let ended = self.generate(ids, tokenizer.as_deref(), &mut |sampled| {
            let (_, goes_on) = answer.push(sampled);
            if !quiet {
                let mut out = std::io::stdout().lock();
                write!(out, "{between}{}", sampled.token)?;
                between = ",";
                out.flush()?;
            }
            Ok(goes_on)
        })?;
        if !quiet {
            println()?;
        }
        self.end(&answer.finish(ended).0)?;
        self.unsaved.take().map_or(Ok(()), Err)
    }

    /// Seconds from the start of the process to the first token.
    fn first_token(&self, stats: &Stats) -> f64 {
        self.started.elapsed().as_secs_f64() - stats.decode_seconds
    }

    pub(super) fn system(&self) -> Vec<Message> {
        let content = self.args.system.iter();
        content.map(|text| Message::new("system", text.as_str())).collect()
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
        let text = isolate::render(template, &Conversation::new(messages.to_vec()), around)
            .map_err(|why| Failure::Other(format!("`{}`: {why}", of.display())))?;
        // The template writes its own special tokens, the first included.
        let options = EncodeOptions { add_special: false, parse_special: true };
        tokenizer.encode(&text, options).map_err(|e| Failure::Other(e.diagnostics().to_string()))
    }

    /// Runs `tokens`, less what the cache holds already, and streams the answer to stdout, unless JSON will have it.
    pub(super) fn answer(&mut self, tokens: &[u32]) -> Result<Answer, Failure> {
        let tokenizer = Arc::clone(self.tokenizer()?);
        let (mut answer, quiet) = (self.answering(Some(&tokenizer)), self.args.json);
        let ended = self.generate(tokens, Some(&tokenizer), &mut |sampled| {
            let (piece, goes_on) = answer.push(sampled);
            shown(piece, quiet)?;
            Ok(goes_on)
        })?;
        let (answer, rest) = answer.finish(ended);
        shown(&rest, quiet)?;
        Ok(answer)
    }

    /// An answer of which nothing is said yet.
    fn answering<'t>(&self, tokenizer: Option<&'t Tokenizer>) -> Answering<'t> {
        let given = &self.args.stop;
        let stops = if given.is_empty() { &self.runtime.sampling().stop_strings } else { given };
        Answering::new(tokenizer, stops.clone(), self.args.logprobs)
    }

    /// Runs `tokens`, less what the cache holds already, and hands on those that follow until the model ends. The second
    /// value says whether Ctrl-C ended it.
    fn generate(
        &mut self,
        tokens: &[u32],
        tokenizer: Option<&Tokenizer>,
        each: &mut dyn FnMut(Sampled<'_>) -> std::io::Result<ControlFlow<Stop>>,
    ) -> Result<(Stats, bool), Failure> {
        let begun = match self.prompt_cache.take() {
            Some(file) => self.begin(&file, tokens)?,
            None => Begun::default(),
        };
        // At least one token has to run, to have logits.
        let known = self.cached.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let known = known.min(tokens.len().saturating_sub(1));
        let known = self.runtime.truncate(known);
        self.cached.truncate(known);
        self.sampler.begin(&self.cached);
        if let Some(draft) = &mut self.draft {
            draft.begin(&self.cached);
        }
        self.cached.extend_from_slice(&tokens[known..]);

        self.stop.answering(true);
        let mut failed = None;
        let ends = self.runtime.sampling().ends.clone();
        let end = |id| ends.contains(&id) || tokenizer.is_some_and(|t| t.is_end_of_generation(id));
        let limits = Limits { tokens: self.args.tokens(), end: &end };
        let (cached, stop) = (&mut self.cached, &self.stop);
        let draft = self.draft.as_mut().map(|draft| &mut **draft as &mut dyn Draft);
        let stats =
            self.runtime.generate(&mut self.sampler, draft, &tokens[known..], &limits, &mut |sampled| {
                cached.push(sampled.token);
                match each(sampled) {
                    Ok(ControlFlow::Continue(())) if stop.asked() => ControlFlow::Break(Stop::Interrupted),
                    Ok(goes_on) => goes_on,
                    Err(error) => {
                        failed = Some(error);
                        ControlFlow::Break(Stop::Interrupted)
                    }
                }
            });
        let interrupted = self.stop.asked();
        self.stop.answering(false);
        let mut stats = stats?;
        stats.known_tokens = begun.restored;
        stats.prompt_tokens += begun.ran;
        stats.prefill_seconds += begun.seconds;
        // The last token that was sampled has not been run.
        self.cached.truncate(self.runtime.session().position());
        if let Some(error) = failed {
            return Err(error.into());
        }
        self.last = Some(stats);
        Ok((stats, interrupted))
    }

    /// Begins with what `file` has of a prompt. If there is no such file, runs all but the last token, and keeps that there.
    fn begin(&mut self, file: &PromptCache<'_>, tokens: &[u32]) -> Result<Begun, Failure> {
        let capacity = self.runtime.session().capacity();
        if tokens.len() > capacity {
            let full = engine::Error::ContextFull { wanted: tokens.len(), capacity };
            return Err(weighbridge::Error::from(full).into());
        }
        let began = Instant::now();
        let restored = file.restore(&mut self.runtime, tokens)?;
        let mut begun = Begun { restored, ..Begun::default() };
        let (first, _) = tokens.split_at(tokens.len() - 1);
        if file.is_new() && !first.is_empty() {
            let started = Instant::now();
            self.runtime.forward(first)?;
            begun.seconds = started.elapsed().as_secs_f64();
            begun.ran = first.len();
            // The answer comes, and then the error.
            self.unsaved = file.save(&self.runtime, first).err();
        } else if file.is_new() {
            file.say_nothing_is_kept();
        }
        self.aside = began.elapsed().as_secs_f64() - begun.seconds;
        self.cached.extend_from_slice(&tokens[..restored + begun.ran]);
        Ok(begun)
    }

    pub(super) fn speed(&self, stats: &Stats) -> String {
        // The first token comes from the prompt.
        let rate = match stats.tokens {
            0 | 1 => String::new(),
            _ => format!(" at {:.1} tokens/s", stats.decode_rate()),
        };
        let guesses = match stats.guessed {
            0 => String::new(),
            guessed => format!(", {} of {guessed} guesses right", stats.right),
        };
        format!(
            "prefill {} at {:.0} tokens/s, decode {}{rate}{guesses} ({}; first token after {:.2} s)",
            counted(stats.prompt_tokens, "token"),
            stats.prefill_rate(),
            stats.tokens,
            self.runtime.backend(),
            stats.prefill_seconds + self.aside,
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

/// The tokens of a prompt that are in the cache before it runs.
#[derive(Default)]
struct Begun {
    /// Tokens out of a file.
    restored: usize,
    /// Tokens that were run to be kept in a file.
    ran: usize,
    /// Seconds that these took.
    seconds: f64,
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
