//! A chat template, run in a process of its own.
//!
//! A template is a program from a stranger's file. Its steps are bounded where it runs, but not what it holds: a
//! string may double with each step, and a list may hold itself, which is walked by recursion. Here a process that may
//! take little memory and time runs it, and its end is an error like any other.

use std::borrow::Cow;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use serde::{Deserialize, Serialize};
use weighbridge::engine::text::{self, ChatTemplate, Conversation};

use crate::failure::Failure;

/// The first argument of such a process.
pub(crate) const COMMAND: &str = "render-chat-template";

/// Address space of it, in bytes. Linux alone holds it to that.
const MEMORY: u64 = 256 << 20;
/// CPU time of it, in seconds; all of its time, on Windows.
const TIME: u64 = 5;

/// What such a process is to do.
#[derive(Serialize, Deserialize)]
struct Task<'a> {
    template: Cow<'a, str>,
    conversation: Cow<'a, Conversation>,
    bos: Cow<'a, str>,
    eos: Cow<'a, str>,
}

/// A chat template of the user's own.
pub(crate) fn own(path: &Path) -> Result<ChatTemplate, Failure> {
    let shown = path.display();
    let bytes = std::fs::read(path).map_err(|e| Failure::Other(format!("cannot read `{shown}`: {e}")))?;
    let text = String::from_utf8(bytes).map_err(|_| Failure::Usage(format!("`{shown}` is not UTF-8")))?;
    ChatTemplate::new(&text).map_err(|e| Failure::Usage(format!("`{shown}`: {}", e.diagnostics())))
}

/// Writes a conversation as a prompt, as [`ChatTemplate::render`] does.
pub(crate) fn render(
    template: &ChatTemplate,
    conversation: &Conversation,
    [bos, eos]: [&str; 2],
) -> Result<String, String> {
    let task = Task {
        template: template.source().into(),
        conversation: Cow::Borrowed(conversation),
        bos: bos.into(),
        eos: eos.into(),
    };
    let task = serde_json::to_vec(&task).map_err(|e| e.to_string())?;
    let system = |e: std::io::Error| format!("cannot run the chat template: {e}");
    // The path of this program may be another's by now.
    let program = Path::new("/proc/self/exe");
    let program = if program.exists() { program.into() } else { std::env::current_exe().map_err(system)? };
    let mut child = Command::new(program)
        .arg(COMMAND)
        // Walking the stack takes longer than all else.
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(system)?;
    // It reads all of this before it writes. If it is gone by now, its status says why.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(&task));
    let output = child.wait_with_output().map_err(system)?;
    let text = String::from_utf8(output.stdout).unwrap_or_default();
    match output.status.code() {
        Some(0) => Ok(text),
        Some(1) => Err(text),
        _ => Err(format!(
            "`chat_template`: it takes over {TIME} s, over {} MiB, or values nested too deep",
            MEMORY >> 20
        )),
    }
}

/// The process that runs the template: the task on stdin, the prompt on stdout.
pub(crate) fn process() -> ExitCode {
    limit();
    let (text, code) = match task() {
        Ok(prompt) => (prompt, ExitCode::SUCCESS),
        Err(why) => (why, ExitCode::from(1)),
    };
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Ok(()) => code,
        Err(_) => ExitCode::from(2),
    }
}

/// Bounds what this process may take.
#[cfg(unix)]
fn limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limits = [(Resource::As, MEMORY), (Resource::Cpu, TIME), (Resource::Core, 0)];
    for (resource, most) in limits {
        // Only ever less than there was. Where the system has no such limit, there is none.
        let most = getrlimit(resource).maximum.map_or(most, |max| max.min(most));
        let _ = setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) });
    }
}

/// Ends this process when its time is over. What it holds is not bounded.
#[cfg(windows)]
fn limit() {
    std::thread::spawn(|| {
        std::thread::sleep(std::time::Duration::from_secs(TIME));
        std::process::exit(2);
    });
}

fn task() -> Result<String, String> {
    let mut task = Vec::new();
    std::io::stdin().lock().read_to_end(&mut task).map_err(|e| e.to_string())?;
    let task: Task<'_> = serde_json::from_slice(&task).map_err(|e| e.to_string())?;
    let said = |error: text::Error| error.diagnostics().to_string();
    let template = ChatTemplate::new(&task.template).map_err(said)?;
    template.render(&task.conversation, &task.bos, &task.eos).map_err(said)
}
