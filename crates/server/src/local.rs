//! A socket in the file system: who may open it may move models.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;

/// Bytes of an answer that are read at most.
const ANSWER: usize = 1 << 20;
/// How long a server may take to take a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// A socket in the file system, which leaves it when it is dropped. Its owner alone may open it.
#[derive(Debug)]
pub struct LocalSocket {
    pub(crate) listener: UnixListener,
    path: PathBuf,
    /// The user who may open it.
    pub(crate) owner: u32,
    /// The device and the number of its file.
    file: (u64, u64),
}

impl LocalSocket {
    /// Listens at `path`. A socket there that nobody listens to any more is replaced.
    ///
    /// # Errors
    /// If something else is there, somebody listens to it, or the system does not let us.
    pub fn bind(path: impl Into<PathBuf>) -> io::Result<LocalSocket> {
        let path = path.into();
        let is_socket = std::fs::symlink_metadata(&path).is_ok_and(|found| found.file_type().is_socket());
        if is_socket
            && UnixStream::connect(&path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
        {
            std::fs::remove_file(&path)?;
        }
        let mut socket = LocalSocket { listener: UnixListener::bind(&path)?, path, owner: 0, file: (0, 0) };
        std::fs::set_permissions(&socket.path, Permissions::from_mode(0o600))?;
        let found = std::fs::symlink_metadata(&socket.path)?;
        (socket.owner, socket.file) = (found.uid(), (found.dev(), found.ino()));
        Ok(socket)
    }
}

/// Refuses a client of another user, who may have connected before the permissions were set.
pub(crate) fn is_of(owner: u32, stream: &tokio::net::UnixStream) -> io::Result<()> {
    let user = stream.peer_cred()?.uid();
    if user == owner || user == 0 { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        // What somebody else has put there stays.
        let file = std::fs::symlink_metadata(&self.path).map(|found| (found.dev(), found.ino()));
        if file.is_ok_and(|file| file == self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Sends a request to the server that listens at `socket`, and waits for its answer: its status and its JSON.
///
/// # Errors
/// If nobody listens there, or what comes back is not an answer in JSON.
pub fn ask(socket: &Path, path: &str, body: Option<&Value>) -> io::Result<(u16, Value)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let connected = tokio::time::timeout(CONNECT, tokio::net::UnixStream::connect(socket)).await;
        let stream = connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let running = tokio::spawn(connection);
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, "application/json")
            .body(body.map_or_else(Body::empty, |body| Body::from(body.to_string())))
            .map_err(io::Error::other)?;
        let answer = sender.send_request(request).await.map_err(io::Error::other)?;
        let status = answer.status().as_u16();
        let bytes = to_bytes(Body::new(answer.into_body()), ANSWER).await.map_err(io::Error::other)?;
        running.abort();
        Ok((status, serde_json::from_slice(&bytes)?))
    })
}
