//! A conversation: lines in, answers out, and a context that slides.

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Behavior, ColorMode, Config, Context, Editor, Helper};
use serde_json::json;
use weighbridge::engine::Stop;
use weighbridge::engine::text::Message;
use weighbridge::tensor::counted;

use super::run::{Session, println};
use crate::failure::Failure;
use crate::progress::note;
use crate::style;

const COMMANDS: [(&str, &str); 6] = [
    ("/help", "this"),
    ("/clear", "forget the conversation, except the system message"),
    ("/save FILE", "write the conversation to FILE, as JSON"),
    ("/stats", "speed and memory of the last answer"),
    ("/quit", "leave, as Ctrl-D does"),
    ("Ctrl-C", "stop an answer"),
];

fn help() -> String {
    let lines: Vec<String> = COMMANDS.iter().map(|(name, what)| format!("{name:<12}{what}")).collect();
    format!("{}\nA line that ends with \\ continues on the next one.", lines.join("\n"))
}

/// Talks until the input ends.
pub(super) fn run(session: &mut Session<'_>) -> Result<(), Failure> {
    // An error now rather than after the first question.
    session.render(&[user(String::new())])?;
    note(&format!("{}", session.runtime.report()));
    let mut input = Input::new();
    note("/help lists the commands, /quit leaves");
    let mut messages = session.system();
    while let Some(text) = input.next()? {
        match text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), "")) {
            ("", _) => {}
            ("/quit" | "/exit" | "/bye", "") => break,
            ("/help" | "/?", "") => note(&help()),
            ("/clear", "") => {
                messages = session.system();
                note("the conversation begins anew");
            }
            ("/save", file) => note(&save(&messages, file.trim())),
            ("/stats", "") => note(&match &session.last {
                Some(stats) => format!("{}\n{}", session.speed(stats), session.memory()),
                None => session.memory(),
            }),
            (command, _) if command.starts_with('/') => {
                note(&format!("there is no command `{command}`\n{}", help()));
            }
            _ => ask(session, &mut messages, text)?,
        }
    }
    Ok(())
}

/// Answers one question. One that does not fit the context is not taken.
fn ask(session: &mut Session<'_>, messages: &mut Vec<Message>, question: String) -> Result<(), Failure> {
    messages.push(user(question));
    let room = session.runtime.session().capacity();
    let mut tokens = session.render(messages)?;
    if tokens.len() + reserve(session.args.tokens(), room) > room {
        // To a half of it, so that what is kept stays in the cache for some questions.
        let mut dropped = 0;
        while tokens.len() > room / 2 && drop_oldest(messages) {
            dropped += 1;
            tokens = session.render(messages)?;
        }
        if dropped > 0 {
            let what = if dropped == 1 { "question and its answer" } else { "questions and their answers" };
            note(&format!(
                "the context is full: dropped the oldest {dropped} {what} (a larger `--ctx` makes room)"
            ));
        }
    }
    if tokens.len() >= room {
        note(&format!(
            "this takes {}, but the context has room for {room}: it was not sent",
            counted(tokens.len(), "token")
        ));
        messages.pop();
        return Ok(());
    }
    let answer = session.answer(&tokens)?;
    println()?;
    match answer.stats.stop {
        Stop::Length => note(&format!("stopped after {} (`-n`)", counted(answer.stats.tokens, "token"))),
        Stop::ContextFull => note("stopped: the context is full (a larger `--ctx` makes room)"),
        Stop::EndOfText | Stop::StopString | Stop::Interrupted => {}
    }
    messages.push(Message::new("assistant", answer.text.unwrap_or_default()));
    Ok(())
}

/// Positions that are kept free for an answer.
fn reserve(wanted: usize, room: usize) -> usize {
    wanted.min(room / 4)
}

/// Removes the oldest question with its answer; the system message and the last question stay.
fn drop_oldest(messages: &mut Vec<Message>) -> bool {
    let is_user = |m: &Message| m.role == "user";
    let mut users = messages.iter().enumerate().filter(|(_, m)| is_user(m)).map(|(i, _)| i);
    let (Some(first), Some(second)) = (users.next(), users.next()) else { return false };
    messages.drain(first..second);
    true
}

/// Writes the conversation to a file that is not there yet, and says so.
fn save(messages: &[Message], file: &str) -> String {
    if file.is_empty() {
        return "wanted a file: /save FILE".to_owned();
    }
    let list: Vec<_> = messages.iter().map(|m| json!({"role": m.role, "content": m.content})).collect();
    let text = format!("{:#}\n", json!({"messages": list}));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(file)
        .and_then(|mut there| there.write_all(text.as_bytes()));
    match written {
        Ok(()) => format!("saved to `{file}`"),
        Err(e) => format!("could not save to `{file}`: {e}"),
    }
}

fn user(content: String) -> Message {
    Message::new("user", content)
}

/// Where questions come from.
enum Input {
    /// A person at a terminal: lines are edited, and remembered from one chat to the next.
    Terminal(Box<Lines>),
    /// A pipe.
    Pipe,
}

struct Lines {
    editor: Editor<Words, FileHistory>,
    history: Option<PathBuf>,
}

impl Input {
    fn new() -> Input {
        if !std::io::stdin().is_terminal() {
            return Input::Pipe;
        }
        // The terminal itself, so that a redirected stdout gets answers alone.
        let config = Config::builder()
            .behavior(Behavior::PreferTerm)
            .color_mode(if style::on_stderr() { ColorMode::Enabled } else { ColorMode::Disabled })
            .auto_add_history(true)
            .max_history_size(1000);
        let editor = config.and_then(|config| Editor::with_config(config.build()));
        let Ok(mut editor) = editor else { return Input::Pipe };
        editor.set_helper(Some(Words));
        let history = history();
        if let Some(path) = &history {
            // Not there yet, or not readable: then nothing is remembered.
            let _ = editor.load_history(path);
        }
        Input::Terminal(Box::new(Lines { editor, history }))
    }

    /// The next question, which may be of several lines; `None` at the end.
    fn next(&mut self) -> Result<Option<String>, Failure> {
        match self {
            Input::Terminal(lines) => lines.next(),
            Input::Pipe => {
                let mut text = String::new();
                loop {
                    let before = text.len();
                    if std::io::stdin().lock().read_line(&mut text)? == 0 {
                        return Ok((before > 0).then(|| joined(&text)));
                    }
                    if !goes_on(text.trim_end_matches(['\r', '\n'])) {
                        return Ok(Some(joined(text.trim_end_matches(['\r', '\n']))));
                    }
                }
            }
        }
    }
}

impl Lines {
    fn next(&mut self) -> Result<Option<String>, Failure> {
        match self.editor.readline("> ") {
            Ok(text) => {
                if let Some(path) = &self.history {
                    // A chat without a history is a chat all the same.
                    let _ = path.parent().map(std::fs::create_dir_all);
                    let _ = self.editor.append_history(path);
                }
                Ok(Some(joined(&text)))
            }
            Err(ReadlineError::Eof) => Ok(None),
            Err(ReadlineError::Interrupted) => Err(Failure::Interrupted),
            Err(ReadlineError::Io(e)) => Err(e.into()),
            Err(e) => Err(Failure::Other(e.to_string())),
        }
    }
}

/// Whether a text ends in the middle of a question.
fn goes_on(text: &str) -> bool {
    text.ends_with('\\')
}

/// A question of several lines, without the marks that join them.
fn joined(text: &str) -> String {
    text.replace("\\\r\n", "\n").replace("\\\n", "\n")
}

/// The file that remembers questions: `$XDG_STATE_HOME/weighbridge/history`, or in `~/.local/state`.
fn history() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")))?;
    Some(state.join(Path::new("weighbridge").join("history")))
}

/// Tells the line editor where a question ends, and completes commands.
struct Words;

impl Validator for Words {
    fn validate(&self, ctx: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if goes_on(ctx.input()) { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Completer for Words {
    type Candidate = String;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = line.get(..pos).unwrap_or(line);
        let commands = COMMANDS.iter().filter_map(|(name, _)| name.split(' ').next());
        let fits = |name: &&str| name.starts_with('/') && !typed.is_empty() && name.starts_with(typed);
        Ok((0, commands.filter(fits).map(str::to_owned).collect()))
    }
}

impl Highlighter for Words {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, _: bool) -> Cow<'b, str> {
        Cow::Owned(style::prompt(prompt))
    }
}

impl Hinter for Words {
    type Hint = String;
}

impl Helper for Words {}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(role: &str, content: &str) -> Message {
        Message::new(role, content)
    }

    #[test]
    fn the_oldest_question_goes_first_with_its_answer_and_the_last_one_stays() {
        let mut messages = vec![
            message("system", "s"),
            message("user", "1"),
            message("assistant", "a"),
            message("user", "2"),
            message("assistant", "b"),
            message("user", "3"),
        ];
        assert!(drop_oldest(&mut messages));
        let left: Vec<&str> = messages.iter().map(|m| m.content.as_str()).collect();
        assert_eq!(left, ["s", "2", "b", "3"]);
        assert!(drop_oldest(&mut messages) && !drop_oldest(&mut messages));
        assert_eq!(messages.len(), 2);
    }

    #[test]
    fn lines_that_go_on_are_one_question() {
        assert!(goes_on("one\\") && !goes_on("one"));
        assert_eq!(joined("one\\\ntwo\\\r\nthree"), "one\ntwo\nthree");
    }

    #[test]
    fn nothing_that_is_there_is_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("chat.json");
        let name = file.to_str().unwrap();
        assert_eq!(save(&[message("user", "hi \"there\"")], name), format!("saved to `{name}`"));
        let text = std::fs::read_to_string(&file).unwrap();
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["messages"][0]["content"], "hi \"there\"");
        assert!(save(&[], name).starts_with(&format!("could not save to `{name}`: File exists")));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        assert!(save(&[], "").contains("/save FILE"));
    }
}
