//! Grammars and JSON schemas that a text keeps to, by the library `llguidance`.

use std::fmt;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, SimpleVob, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};

use crate::sampler::Constraint;
use crate::text::{SpecialText, Tokenizer};

/// The texts that are allowed.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A JSON value that a schema describes, on one line or indented.
    ///
    /// An object may have the key `x-guidance` with llguidance's own options, such as `whitespace_pattern`.
    /// Source: llguidance 1.9.1, docs/json_schema.md.
    JsonSchema(Value),
    /// A text of a grammar in llguidance's variant of Lark.
    ///
    /// Source: llguidance 1.9.1, docs/syntax.md.
    Lark(String),
}

/// Errors of grammars before they are compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text of a token depends on the tokens before it.
    #[error(
        "a grammar needs a tokenizer whose tokens always stand for the same bytes, and this one's do not"
    )]
    Tokenizer,
    /// A text could never end.
    #[error("a grammar needs a token that ends the text, and the model names none")]
    NoEnd,
    /// The library cannot use the vocabulary.
    #[error("no grammar can be compiled for these tokens: {what}")]
    Vocabulary {
        /// The library's reason.
        what: String,
    },
    /// The system has no thread to compile on.
    #[error("no thread to compile a grammar on")]
    NoThread,
}

/// Compiles grammars for the tokens of one model, which are prepared once for all of them.
pub struct Compiler {
    factory: ParserFactory,
}

impl fmt::Debug for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiler").finish_non_exhaustive()
    }
}

impl Compiler {
    /// Prepares the tokens of `tokenizer`. `vocab` is the number of logits, and `ends` are the tokens that end a text.
    ///
    /// # Errors
    /// If no grammar can be used with this tokenizer.
    pub fn new(tokenizer: &Tokenizer, ends: &[u32], vocab: usize) -> Result<Compiler, Error> {
        let ends = checked(tokenizer, ends, vocab)?;
        let wrong = |e: &dyn fmt::Display| Error::Vocabulary { what: e.to_string() };
        let factory = factory(tokenizer, &ends, vocab).map_err(|e| wrong(&e))?;
        Ok(Compiler { factory })
    }

    /// Compiles `source` on this thread. Returns the grammar with the library's warnings about parts of it that it follows only
    /// roughly.
    ///
    /// # Errors
    /// If it is no grammar, or too large a one.
    pub fn compile(&self, source: Source) -> Result<(Grammar, Vec<String>), String> {
        let mut matcher =
            matcher(source, &self.factory).map_err(|e| format!("the grammar does not compile: {e}"))?;
        let warnings = matcher.grammar_warnings();
        Ok((Grammar { state: State::Ready(Box::new(matcher)), allowed: SimpleVob::new() }, warnings))
    }
}

/// A grammar that a text keeps to. A step allocates.
pub struct Grammar {
    state: State,
    allowed: SimpleVob,
}

enum State {
    Compiling(JoinHandle<Result<Matcher, String>>),
    Ready(Box<Matcher>),
    Failed(String),
}

impl fmt::Debug for Grammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammar").finish_non_exhaustive()
    }
}

/// Whitespace between parts of a JSON value: a space, or a line break with an indentation. Without a limit, a model may write
/// whitespace forever.
pub(crate) const WHITESPACE: &str = r"\x20|\x0A\x20{0,32}";

impl Grammar {
    /// Starts to compile `source` on another thread; the first step waits for it. Its error is the step's then.
    ///
    /// `vocab` is the number of logits, and `ends` are the tokens that end a text. `warn` gets the library's warnings about
    /// parts of the grammar that it follows only roughly.
    ///
    /// # Errors
    /// If no grammar can be used with this tokenizer.
    pub fn compile(
        source: Source,
        tokenizer: &Arc<Tokenizer>,
        ends: &[u32],
        vocab: usize,
        warn: impl FnOnce(&[String]) + Send + 'static,
    ) -> Result<Grammar, Error> {
        let ends = checked(tokenizer, ends, vocab)?;
        let tokenizer = Arc::clone(tokenizer);
        let compile = move || {
            let compiled = factory(&tokenizer, &ends, vocab).and_then(|factory| matcher(source, &factory));
            let mut matcher = compiled.map_err(|e| format!("the grammar does not compile: {e}"))?;
            let warnings = matcher.grammar_warnings();
            if !warnings.is_empty() {
                warn(&warnings);
            }
            Ok(matcher)
        };
        let thread = Builder::new().name("grammar".to_owned()).spawn(compile).map_err(|_| Error::NoThread)?;
        Ok(Grammar { state: State::Compiling(thread), allowed: SimpleVob::new() })
    }

    /// The compiled grammar; waits for it.
    fn ready(&mut self) -> Result<&mut Matcher, String> {
        if matches!(self.state, State::Compiling(_)) {
            let none = State::Failed(String::new());
            if let State::Compiling(thread) = std::mem::replace(&mut self.state, none) {
                let compiled = thread
                    .join()
                    .unwrap_or_else(|_| Err("the grammar does not compile: llguidance panicked".to_owned()));
                self.state = compiled.map_or_else(State::Failed, |matcher| State::Ready(Box::new(matcher)));
            }
        }
        match &mut self.state {
            State::Ready(matcher) => Ok(matcher),
            State::Failed(why) => Err(why.clone()),
            State::Compiling(_) => Err("the grammar is not compiled".to_owned()),
        }
    }
}

impl Constraint for Grammar {
    fn begin(&mut self) {
        if let State::Ready(matcher) = &mut self.state
            && let Err(error) = matcher.reset()
        {
            self.state = State::Failed(stuck(&error));
        }
    }

    fn accept(&mut self, token: u32) {
        if let State::Ready(matcher) = &mut self.state
            // After its end, a grammar takes no more tokens: this is the one that ends the text.
            && !matcher.is_stopped()
            && let Err(error) = matcher.consume_token(token)
        {
            self.state = State::Failed(stuck(&error));
        }
    }

    fn allowed(&mut self) -> Result<&[u32], String> {
        self.allowed = self.ready()?.compute_mask_or_eos().map_err(|e| stuck(&e))?;
        if self.allowed.is_zero() {
            return Err("the grammar allows no token here".to_owned());
        }
        Ok(self.allowed.as_slice())
    }
}

fn stuck(error: &impl fmt::Display) -> String {
    format!("the grammar cannot go on: {error}")
}

/// Returns the tokens of `ends` that have logits, in order, if a grammar can be used with `tokenizer` at all.
fn checked(tokenizer: &Tokenizer, ends: &[u32], vocab: usize) -> Result<Vec<u32>, Error> {
    let mut ends: Vec<u32> = ends.iter().copied().filter(|end| (*end as usize) < vocab).collect();
    ends.sort_unstable();
    ends.dedup();
    if ends.is_empty() {
        return Err(Error::NoEnd);
    }
    // All or none of its tokens have bytes of their own.
    tokenizer.bytes(0, SpecialText::Shown).ok_or(Error::Tokenizer)?;
    Ok(ends)
}

/// Prepares the tokens of `tokenizer`.
fn factory(
    tokenizer: &Tokenizer,
    ends: &[u32],
    vocab: usize,
) -> Result<ParserFactory, Box<dyn std::error::Error>> {
    let size = u32::try_from(vocab)?;
    let info = TokRxInfo::new(size, ends.first().copied().unwrap_or_default());
    let words: Vec<Vec<u8>> = (0..size).map(|token| word(tokenizer, token)).collect();
    let trie = TokTrie::from(&info, &words).with_eos_tokens(ends);
    let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
    let slices = llguidance::earley::SlicedBiasComputer::general_slices();
    let mut factory = ParserFactory::new(&environment, InferenceCapabilities::default(), &slices)?;
    factory.quiet().limits_mut().verbose_errors = false;
    Ok(factory)
}

/// Compiles `source`.
fn matcher(source: Source, factory: &ParserFactory) -> Result<Matcher, Box<dyn std::error::Error>> {
    let grammar = match source {
        Source::Lark(text) => TopLevelGrammar::from_lark(text),
        Source::JsonSchema(mut schema) => {
            if let Value::Object(keys) = &mut schema {
                keys.entry("x-guidance").or_insert_with(|| json!({ "whitespace_pattern": WHITESPACE }));
            }
            TopLevelGrammar::from_json_schema(schema)
        }
    };
    Ok(Matcher::new(Ok(factory.create_parser(grammar)?)))
}

/// The bytes of a token, as llguidance wants them: those of a special token come after a byte that is in no text, so that only
/// a grammar that names the token takes it. Empty for tokens that no grammar can take.
fn word(tokenizer: &Tokenizer, token: u32) -> Vec<u8> {
    let of = |special| tokenizer.bytes(token, special).unwrap_or_default();
    match (of(SpecialText::Hidden), of(SpecialText::Shown)) {
        ([], []) | ([TokTrie::SPECIAL_TOKEN_MARKER, ..], _) => vec![],
        ([], shown) => [&[TokTrie::SPECIAL_TOKEN_MARKER][..], shown].concat(),
        (bytes, _) => bytes.to_vec(),
    }
}
