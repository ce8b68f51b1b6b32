//! The way to a model's thread.

use std::sync::{Mutex, PoisonError};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Sends jobs to a model's thread, until it is closed: then the thread ends with those that it has, whoever still reads their answers.
pub(crate) struct Inbox<J>(Mutex<Option<UnboundedSender<J>>>);

impl<J> Inbox<J> {
    pub(crate) fn new() -> (Inbox<J>, UnboundedReceiver<J>) {
        let (sender, jobs) = unbounded_channel();
        (Inbox(Mutex::new(Some(sender))), jobs)
    }

    /// Sends a job. Returns whether there is somebody who runs it.
    pub(crate) fn send(&self, job: J) -> bool {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sender.as_ref().is_some_and(|sender| sender.send(job).is_ok())
    }

    /// No job comes any more.
    pub(crate) fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
