//! To whom models are served, and how much of them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Takes a line about each request: method, route, status, and how long it took. Never a text, a key or an address.
pub type Log = dyn Fn(&str) + Send + Sync;

/// To whom models are served, and how much of them.
pub struct Options {
    /// Bytes of all models together that are in memory; if `None`, what the system has available when the server starts.
    pub memory: Option<u64>,
    /// How long a model stays in memory that nobody uses; `None`: as long as there is room.
    pub idle: Option<Duration>,
    /// Requests that wait for a place, for each model.
    pub queue: usize,
    /// Tokens that a request may generate, if not as many as there are positions.
    pub most_tokens: Option<usize>,
    /// How long a request may take, in the queue and running.
    pub deadline: Option<Duration>,
    /// Bytes of a body.
    pub body: usize,
    /// Bytes of a form with a sound.
    pub sound: usize,
    /// How long a sound may be.
    pub longest_sound: Duration,
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
        f.debug_struct("Options")
            .field("memory", &self.memory)
            .field("idle", &self.idle)
            .finish_non_exhaustive()
    }
}
