//! Serves a model over HTTP, with the API of OpenAI.
//!
//! One thread, that of the caller, owns the model and runs its requests together ([`weighbridge::engine::schedule`]). Another one
//! talks HTTP, and neither waits for the other: jobs and tokens go through channels. So tokio never runs inside the engine's pool, and
//! a slow client holds nobody up.
//!
//! [`serve`] runs until the process is told to end (SIGTERM, Ctrl-C); then it takes no more requests, and finishes those it has.

mod answer;
mod chat;
mod completions;
mod error;
mod fields;
mod guard;
mod listen;
mod models;
mod prepare;
mod refusal;
mod sampling;
mod service;
mod shapes;
mod tokens;
mod work;

use std::fmt;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use weighbridge::Runtime;
use weighbridge::engine::schedule::{Bounds, Scheduler};
use weighbridge::engine::text::Message;

pub use error::Error;

/// Writes a conversation as the model's prompt. The error says why the template refuses it.
pub type Render = dyn Fn(&[Message]) -> Result<String, String> + Send + Sync;

/// Takes a line about each request: method, route, status, and how long it took. Never a text, a key or an address.
pub type Log = dyn Fn(&str) + Send + Sync;

/// What is served, to whom, and how much of it.
pub struct Options {
    /// The names of the model; the first is what answers say.
    pub names: Vec<String>,
    /// Writes conversations as prompts. Without it, there is no chat.
    pub render: Option<Arc<Render>>,
    /// Requests that run together. The runtime must have been started with as many
    /// [`more_sessions`](weighbridge::RuntimeOptions::more_sessions): its own session is never used, and its memory goes to the
    /// beginnings of prompts that are kept.
    pub parallel: usize,
    /// Requests that wait for a place.
    pub queue: usize,
    /// Tokens that a request may generate, if not as many as there are positions.
    pub most_tokens: Option<usize>,
    /// How long a request may take, in the queue and running.
    pub deadline: Option<Duration>,
    /// Bytes of a body.
    pub body: usize,
    /// Keys, one of which a request must have. None: all may ask.
    pub keys: Vec<String>,
    /// Names of this server beside `localhost`, and addresses, which are always taken; `*` takes all.
    pub hosts: Vec<String>,
    /// Origins whose pages may ask from a browser; `*` is all.
    pub origins: Vec<String>,
    /// How long requests may go on after the process was told to end.
    pub grace: Duration,
    /// Takes lines about requests.
    pub log: Option<Arc<Log>>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the keys.
        f.debug_struct("Options").field("names", &self.names).finish_non_exhaustive()
    }
}

/// Serves the model of `runtime` to those who connect to `listener`, until the process is told to end.
///
/// # Errors
/// If the model has no tokenizer, or the system has no thread or socket for it.
pub fn serve(runtime: Runtime, listener: TcpListener, options: Options) -> Result<(), Error> {
    let tokenizer = Arc::clone(runtime.tokenizer().map_err(|e| Error::Tokenizer(e.diagnostics()))?);
    let session = runtime.session();
    // The session that the runtime has is never used: the texts that are kept may take what it would.
    let sessions = options.parallel.saturating_add(1) as u64;
    let bounds = Bounds {
        sequences: options.parallel,
        waiting: options.queue,
        bytes: (session.bytes() as u64).saturating_mul(sessions),
    };
    let scheduler = Scheduler::new(session.kind(), bounds);
    let (inbox, jobs) = tokio::sync::mpsc::unbounded_channel();
    let service = Arc::new(service::Service::new(&runtime, &tokenizer, options, inbox)?);
    let (ends, pace) = (service.ends(), Arc::clone(&service.pace));
    let http = std::thread::Builder::new().name("http".to_owned());
    let http = http.spawn(move || listen::run(listener, service)).map_err(Error::Io)?;
    // Ends when nobody is left who could send a job.
    work::Engine::new(runtime, scheduler, &tokenizer, ends, pace).run(jobs);
    http.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
