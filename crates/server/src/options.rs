//! What is served, to whom, and how much of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use weighbridge::engine::text::Conversation;

/// Writes a conversation as the model's prompt. The error says why the template refuses it.
pub type Render = dyn Fn(&Conversation) -> Result<String, String> + Send + Sync;

/// The chat template of the model.
pub struct Chat {
    /// Writes conversations as prompts.
    pub render: Box<Render>,
    /// The [variables](weighbridge::engine::text::ChatTemplate::variables) that the template reads.
    pub variables: Vec<String>,
    /// What encloses the thoughts of the model ([`ReplySyntax::thoughts`](weighbridge::engine::text::ReplySyntax::thoughts)).
    pub thoughts: Option<[&'static str; 2]>,
}

impl fmt::Debug for Chat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chat").field("variables", &self.variables).finish_non_exhaustive()
    }
}

/// Takes a line about each request: method, route, status, and how long it took. Never a text, a key or an address.
pub type Log = dyn Fn(&str) + Send + Sync;

/// What is served, to whom, and how much of it.
pub struct Options {
    /// The names of the model; the first is what answers say. With `*` among them a request may have any name.
    pub names: Vec<String>,
    /// Without it, there is no chat.
    pub chat: Option<Chat>,
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
    /// The page about the model, at `/model`.
    pub page: Option<ModelPage>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the keys.
        f.debug_struct("Options").field("names", &self.names).finish_non_exhaustive()
    }
}

/// The page about the model.
#[derive(Clone, Debug, Default)]
pub struct ModelPage {
    /// All of it. It may load `page/model.css` and `page/model.js`; nothing inline is applied or run.
    pub html: String,
    /// The style sheet `page/model.css`, which needs no key.
    pub style: String,
    /// The script `page/model.js`, which needs no key.
    pub script: String,
}
