//! Behaviour of the crate as its users see it: files that open, files that are rejected, and the messages.

extern crate weighbridge_checkpoint as checkpoint;

mod bucket;
mod companions;
mod config_keys;
mod ctranslate2;
mod folders;
mod ggml;
mod golden;
mod limits;
mod malformed;
mod memory;
mod messages;
mod metadata;
mod models;
mod more;
mod notations;
mod npy;
mod npy_zst;
mod npz;
mod onnx;
mod own;
mod packed_companions;
mod pytorch;
mod random;
mod shards;
mod split;
mod strictness;
mod subfolders;
mod truncated;
mod write;
mod write_again;
mod write_files;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use checkpoint::{Checkpoint, Error, Io, OpenOptions};

use tensor::PlaneData;
use testkit::corpus::build;

/// The bytes of one plane of a tensor.
fn plane(checkpoint: &Checkpoint, plane: &PlaneData) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(plane.bytes.end - plane.bytes.start).expect("small")];
    checkpoint.file(plane.file).source.read_at(plane.bytes.start, &mut bytes)?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A directory that is gone after the test.
struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Dir {
        Dir(tempfile::tempdir().expect("a temporary directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file, and gives its path.
    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories are made");
        std::fs::write(&path, content).expect("the file is written");
        path
    }

    /// The error that opening `name` gives, with this directory as `DIR`.
    fn error(&self, name: &str) -> String {
        match checkpoint::open(self.path(name)) {
            Ok(_) => panic!("`{name}` opens"),
            Err(error) => self.text(&error),
        }
    }

    /// An error as text, with this directory as `DIR`.
    fn text(&self, error: &Error) -> String {
        assert!(!error.to_string().contains("hint:"), "{error}");
        format!("{error:?}").replace(&self.0.path().display().to_string(), "DIR")
    }
}

/// Returns the result of `work` and the CPU time of this thread that it took: other processes do not count.
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let now = || {
        let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::try_from(spent).expect("not negative")
    };
    let start = now();
    let result = work();
    (result, now().saturating_sub(start))
}

/// Opens `path` mapped and read, which must agree in every way.
fn open_both(path: &Path) -> Result<Checkpoint, Error> {
    let mapped = checkpoint::open_with(path, &OpenOptions::with_io(Io::Mmap));
    let read = checkpoint::open_with(path, &OpenOptions::with_io(Io::Pread));
    match (&mapped, &read) {
        (Ok(a), Ok(b)) => {
            assert_eq!(a.entries(), b.entries());
            assert_eq!((a.format(), a.location()), (b.format(), b.location()));
            for (a, b) in a.files().iter().zip(b.files()) {
                assert_eq!((&a.location, a.len), (&b.location, b.len));
                let kinds = (a.source.kind(), b.source.kind());
                assert!(matches!(kinds, ("mmap", "pread") | ("zstd", "zstd")), "{kinds:?}");
            }
            if let (Some(a), Some(b)) = (a.metadata().gguf(), b.metadata().gguf()) {
                assert!(a.iter().map(|kv| format!("{kv:?}")).eq(b.iter().map(|kv| format!("{kv:?}"))));
            }
        }
        (Err(a), Err(b)) => assert_eq!(format!("{a:?}"), format!("{b:?}")),
        _ => panic!("mapped: {:?}, read: {:?}", mapped.err(), read.err()),
    }
    mapped
}
