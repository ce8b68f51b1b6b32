//! Threads beside the caller's, on which connections run.

use std::sync::Arc;
use std::{fmt, io};

use tokio::runtime::Runtime;

/// Threads that connections run on.
pub(crate) struct Reactor(Option<Runtime>);

impl Reactor {
    pub(crate) fn start() -> io::Result<Reactor> {
        // The provider of a program that has chosen one stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(threads).thread_name("remote").enable_all().build()?;
        Ok(Reactor(Some(runtime)))
    }

    /// Waits for `future` on this thread, while connections run on theirs.
    pub(crate) fn wait<F: Future>(&self, future: F) -> F::Output {
        let _inside = self.0.as_ref().map(Runtime::enter);
        futures::executor::block_on(future)
    }
}

impl Reactor {
    /// Lets `future` run beside the caller. Returns what waits for it.
    pub(crate) fn spawn<T: Send + 'static, F>(
        self: &Arc<Self>,
        future: F,
    ) -> impl FnOnce() -> io::Result<T> + Send + use<T, F>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let task = self.0.as_ref().map(|runtime| runtime.spawn(future));
        let reactor = Arc::clone(self);
        move || match task {
            Some(task) => reactor.wait(task).map_err(io::Error::other),
            None => Err(io::Error::other("it has ended")),
        }
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        // Does not wait, which a thread of another runtime must not.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Reactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reactor")
    }
}
