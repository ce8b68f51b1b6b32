//! Connections: who may have one, for how long, and how they end.

use std::io;
use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

#[cfg(unix)]
use axum::Extension;
use axum::Router;
use axum::middleware::from_fn_with_state;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_io_timeout::TimeoutStream;
use weighbridge::Task;

use crate::fleet::Fleet;
#[cfg(unix)]
use crate::local::{LocalSocket, is_of};
use crate::{Error, guard, pages, table};

/// Connections at once; more wait for one of these to end.
const CONNECTIONS: usize = 512;
/// How long a client may take for the head of a request, and be silent between two.
const HEAD: Duration = Duration::from_mins(1);
/// How long a client may not read while there is something to be sent.
const WRITE: Duration = Duration::from_mins(1);
/// Threads that read bodies, tokenize and render templates.
const BLOCKING: usize = 8;

/// The routes, behind what guards them.
fn router(fleet: &Arc<Fleet>) -> Router {
    let mut routes = table::of_fleet(fleet);
    if fleet.of(Task::Text).next().is_some() {
        routes = routes.merge(pages::router().with_state(Arc::clone(fleet)));
    }
    routes.layer(from_fn_with_state(Arc::clone(&fleet.shared), guard::check))
}

/// Serves until the process is told to end, and as long after as requests run and may.
pub(crate) fn run(
    listener: TcpListener,
    #[cfg(unix)] local: Option<LocalSocket>,
    fleet: &Arc<Fleet>,
) -> Result<(), Error> {
    listener.set_nonblocking(true).map_err(Error::Io)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING)
        .build()
        .map_err(Error::Io)?;
    let router = router(fleet);
    if let Some(idle) = fleet.shared.options.idle {
        let fleet = Arc::clone(fleet);
        runtime.spawn(async move { fleet.rest(idle).await });
    }
    let result = runtime.block_on(async {
        #[cfg(unix)]
        let local = local;
        let connections = Arc::new(Connections::new());
        let listener = tokio::net::TcpListener::from_std(listener).map_err(Error::Io)?;
        let mut doors = JoinSet::new();
        doors.spawn(take(Arc::clone(&connections), router.clone(), async move || {
            let (stream, _) = listener.accept().await?;
            // Tokens go out one by one.
            let _ = stream.set_nodelay(true);
            Ok(stream)
        }));
        #[cfg(unix)]
        if let Some(local) = &local {
            local.listener.set_nonblocking(true).map_err(Error::Io)?;
            let listener = local.listener.try_clone().map_err(Error::Io)?;
            let listener = tokio::net::UnixListener::from_std(listener).map_err(Error::Io)?;
            let router = router.layer(Extension(guard::Trusted));
            let owner = local.owner;
            doors.spawn(take(Arc::clone(&connections), router, async move || {
                let (stream, _) = listener.accept().await?;
                is_of(owner, &stream)?;
                Ok(stream)
            }));
        }
        told_to_end().await.map_err(Error::Io)?;
        doors.shutdown().await;
        #[cfg(unix)]
        drop(local);
        fleet.shared.is_stopping.store(true, Ordering::Relaxed);
        tokio::select! {
            () = connections.ended() => {}
            () = tokio::time::sleep(fleet.shared.options.grace) => {}
            again = told_to_end() => again.map_err(Error::Io)?,
        }
        Ok(())
    });
    // A template that still runs is in a process of its own, which ends by itself.
    runtime.shutdown_background();
    result
}

/// Connections, whatever they come through.
struct Connections {
    watched: Mutex<Option<GracefulShutdown>>,
    /// One for each.
    places: Arc<Semaphore>,
}

impl Connections {
    fn new() -> Connections {
        Connections {
            watched: Mutex::new(Some(GracefulShutdown::new())),
            places: Arc::new(Semaphore::new(CONNECTIONS)),
        }
    }

    /// Serves one.
    fn serve<S>(&self, stream: S, router: Router, place: OwnedSemaphorePermit)
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(WRITE));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(router));
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(connection) = watched.as_ref().map(|watched| watched.watch(connection)) else { return };
        drop(watched);
        tokio::spawn(async move {
            // What a client breaks is its own loss.
            let _ = connection.await;
            drop(place);
        });
    }

    /// Waits until all have ended. No more come.
    async fn ended(&self) {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(watched) = watched {
            watched.shutdown().await;
        }
    }
}

/// Serves all who come through a door.
async fn take<S>(connections: Arc<Connections>, router: Router, next: impl AsyncFn() -> io::Result<S>)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    loop {
        // It is never closed.
        let Ok(place) = Arc::clone(&connections.places).acquire_owned().await else { return };
        match next().await {
            Ok(stream) => connections.serve(stream, router.clone(), place),
            // The client has left, or the system has no more sockets: others will end.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Waits until the process is told to end.
#[cfg(unix)]
async fn told_to_end() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => pressed,
        _ = terminate.recv() => Ok(()),
    }
}

/// Waits until the process is told to end.
#[cfg(not(unix))]
async fn told_to_end() -> std::io::Result<()> {
    tokio::signal::ctrl_c().await
}
