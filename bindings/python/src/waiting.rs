//! Work that lets Python's other threads run, and ends with Ctrl-C.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;

use crate::error::{Failure, Result};

/// Between two looks at signals.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// Counts what is done, and says when to end.
#[derive(Default)]
pub(crate) struct Watch {
    stop: AtomicBool,
    done: AtomicU64,
    total: AtomicU64,
}

impl Watch {
    /// Notes that `done` of `total` is done. Breaks if an exception wants the work to end.
    pub(crate) fn at(&self, done: u64, total: u64) -> ControlFlow<()> {
        self.done.fetch_max(done, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        if self.stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Runs `work`, which calls [`Watch::at`], and calls `progress` with what is done and all there is.
    pub(crate) fn run<T: Send>(
        &self,
        py: Python<'_>,
        progress: Option<&Py<PyAny>>,
        work: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        let mut told = None;
        let look = || {
            let now = (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
            if let Some(progress) = progress.filter(|_| now.1 > 0 && told != Some(now)) {
                told = Some(now);
                progress.call1(py, now)?;
            }
            Ok(())
        };
        run(py, &self.stop, look, work)
    }
}

/// Runs `work` on a thread of its own, while this one, which holds the interpreter now and then, looks after signals and calls `look`. After an
/// exception `stop` is set, which `work` heeds, and the exception is the result.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    stop: &AtomicBool,
    mut look: impl FnMut() -> PyResult<()>,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    let (send, ended) = mpsc::channel();
    // Waiting without the interpreter wants what threads may share.
    let ended = Mutex::new(ended);
    std::thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let result = work();
            // Nobody waits for it if the other end has panicked.
            let _ = send.send(());
            result
        });
        let mut raised = None;
        loop {
            let wait = || ended.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(LOOK);
            let over = py.detach(wait) != Err(RecvTimeoutError::Timeout);
            if raised.is_none()
                && let Err(error) = py.check_signals().and_then(|()| look())
            {
                stop.store(true, Ordering::Relaxed);
                raised = Some(error);
            }
            if over {
                break;
            }
        }
        match (raised, py.detach(|| worker.join())) {
            (Some(error), _) => Err(Failure::Python(error)),
            (None, Ok(result)) => result,
            (None, Err(panic)) => std::panic::resume_unwind(panic),
        }
    })
}
