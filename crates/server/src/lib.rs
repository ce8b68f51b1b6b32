//! Serves a model over HTTP, with the APIs of OpenAI and Anthropic.
//!
//! One thread, that of the caller, owns the model and runs its requests together ([`weighbridge::engine::schedule`]). Another one
//! talks HTTP, and neither waits for the other: jobs and tokens go through channels. So tokio never runs inside the engine's pool, and
//! a slow client holds nobody up.
//!
//! A browser finds a chat page at `/`, and one about the model at `/model`.
//!
//! [`serve`] runs until the process is told to end (SIGTERM, Ctrl-C); then it takes no more requests, and finishes those it has.

mod answer;
mod asked;
mod chat;
mod chunks;
mod completions;
mod error;
mod fields;
mod guard;
mod listen;
mod messages;
mod metrics;
mod models;
mod options;
mod pages;
mod prepare;
mod refusal;
mod reply;
mod sampling;
mod service;
mod shapes;
mod template;
mod tokens;
mod tools;
mod work;

use std::net::TcpListener;
use std::sync::Arc;

use weighbridge::Runtime;
use weighbridge::engine::schedule::{Bounds, Scheduler};

pub use error::Error;
pub use options::{Chat, Log, ModelPage, Options, Render};

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
    let service = Arc::new(service::Service::new(&runtime, &tokenizer, options, inbox));
    let (ends, pace, metrics) = (service.ends(), Arc::clone(&service.pace), service.metrics.clone());
    let http = std::thread::Builder::new().name("http".to_owned());
    let http = http.spawn(move || listen::run(listener, service)).map_err(Error::Io)?;
    // Ends when nobody is left who could send a job.
    work::Engine::new(runtime, scheduler, &tokenizer, ends, pace, metrics).run(jobs);
    http.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
