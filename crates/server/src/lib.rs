//! Serves models over HTTP: text with the APIs of OpenAI, Anthropic and Ollama, vectors, scores, and transcripts.
//!
//! Each model has a thread, which loads it and runs its requests together. Another thread talks HTTP, and none of them waits for it:
//! jobs and tokens go through channels. So tokio never runs inside an engine's pool, and a slow client holds nobody up.
//!
//! [`Server::start`] loads models as far as they have room together; others are loaded when they are asked for, and those that were used
//! least lately make room. [`Server::serve`] runs until the process is told to end (SIGTERM, Ctrl-C); then it takes no more requests, and
//! finishes those it has. A browser finds a chat page at `/`, and one about the model at `/model`.

mod answer;
mod asked;
mod batch;
mod chat;
mod chunks;
mod completions;
mod dispatch;
mod embeddings;
mod error;
mod fields;
mod fleet;
#[cfg(feature = "speech")]
mod form;
mod guard;
mod host;
mod inbox;
mod listen;
mod live;
#[cfg(unix)]
mod local;
mod messages;
mod metrics;
mod models;
mod offer;
mod ollama;
mod openapi;
mod options;
mod pace;
mod pages;
mod prepare;
mod refusal;
mod reply;
mod rerank;
mod responses;
mod routes;
mod sampling;
mod service;
mod shapes;
#[cfg(feature = "speech")]
mod speech;
mod stream;
mod table;
mod template;
mod tokens;
mod tools;
#[cfg(feature = "speech")]
mod transcriptions;
mod work;

use std::fmt;
use std::net::TcpListener;
use std::sync::Arc;

use fleet::Fleet;
use host::Shared;

pub use error::Error;
#[cfg(unix)]
pub use local::{LocalSocket, ask};
pub use offer::{Chat, Load, Loaded, ModelPage, NotLoaded, Offer, Render, Served};
pub use options::{Log, Options};

/// Models that are ready to be served.
pub struct Server {
    fleet: Arc<Fleet>,
    #[cfg(unix)]
    local: Option<LocalSocket>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl Server {
    /// Loads models, in their order, as far as there is room for them together.
    ///
    /// # Errors
    /// What is wrong with the first that cannot be loaded; or the system has no thread for it.
    pub fn start(offers: Vec<Offer>, options: Options) -> Result<Server, Error> {
        let fleet = Arc::new(Fleet::start(offers, Arc::new(Shared::new(options)))?);
        Ok(Server {
            fleet,
            #[cfg(unix)]
            local: None,
        })
    }

    /// The models that are loaded when they are asked for, with their bytes.
    pub fn unloaded(&self) -> Vec<(String, u64)> {
        self.fleet.unloaded()
    }

    /// Serves those who connect to `local` as well. They need no key, and may move models.
    #[cfg(unix)]
    #[must_use]
    pub fn with_local(self, local: Option<LocalSocket>) -> Server {
        Server { local, ..self }
    }

    /// Serves those who connect to `listener`, until the process is told to end.
    ///
    /// # Errors
    /// If the system has no socket for it.
    pub fn serve(self, listener: TcpListener) -> Result<(), Error> {
        let served = listen::run(
            listener,
            #[cfg(unix)]
            self.local,
            &self.fleet,
        );
        self.fleet.end();
        served
    }
}
