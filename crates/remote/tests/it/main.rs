//! Files of servers, kind and hostile ones.

mod faults;
mod open;
mod places;
mod versions;

use std::sync::Arc;

use storage::{ByteSource, Error};
use testkit::Rng;
use testkit::http::FileServer;

/// Bytes that are the same each time.
fn noise(len: usize) -> Vec<u8> {
    let mut rng = Rng(7);
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| rng.next().to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

/// Opens the file at `url`.
fn open(url: &str) -> Result<Arc<dyn ByteSource>, Error> {
    let (files, name) = weighbridge_remote::Servers::from_env().at(url)?;
    files.open(&name)
}

/// A server with one file of `len` bytes, and the file.
fn served(len: usize) -> (FileServer, Vec<u8>) {
    let (server, bytes) = (FileServer::start(), noise(len));
    server.put("dir/a.bin", bytes.clone());
    (server, bytes)
}
