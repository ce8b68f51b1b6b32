//! Connections: who may have one, for how long, and how they end.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;
use weighbridge::Task;

use crate::fleet::Fleet;
use crate::host::Shared;
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
pub(crate) fn run(listener: TcpListener, fleet: &Arc<Fleet>) -> Result<(), Error> {
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
    let result = runtime.block_on(accept(listener, router, &fleet.shared));
    // A template that still runs is in a process of its own, which ends by itself.
    runtime.shutdown_background();
    result
}

async fn accept(listener: TcpListener, router: Router, shared: &Shared) -> Result<(), Error> {
    let listener = tokio::net::TcpListener::from_std(listener).map_err(Error::Io)?;
    let (connections, places) = (GracefulShutdown::new(), Arc::new(Semaphore::new(CONNECTIONS)));
    let mut told = std::pin::pin!(told_to_end());
    loop {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            next = next => next,
            told = &mut told => {
                told.map_err(Error::Io)?;
                break;
            }
        };
        let Ok((stream, _)) = accepted else {
            // The client has left, or the system has no more sockets: others will end.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        // Tokens go out one by one.
        let _ = stream.set_nodelay(true);
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(WRITE));
        let service = TowerToHyperService::new(router.clone());
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .serve_connection(TokioIo::new(Box::pin(stream)), service);
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            // What a client breaks is its own loss.
            let _ = connection.await;
            drop(place);
        });
    }
    drop(listener);
    shared.is_stopping.store(true, Ordering::Relaxed);
    tokio::select! {
        () = connections.shutdown() => {}
        () = tokio::time::sleep(shared.options.grace) => {}
        again = told_to_end() => again.map_err(Error::Io)?,
    }
    Ok(())
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
