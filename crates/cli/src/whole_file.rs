//! A file that appears when it is complete, or not at all.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file that is being written beside its place. If it is not finished, nothing of it stays.
pub(crate) struct WholeFile {
    path: PathBuf,
    temporary: PathBuf,
    out: Option<BufWriter<File>>,
}

impl WholeFile {
    /// Begins a file for `path`.
    pub(crate) fn create(path: &Path) -> io::Result<WholeFile> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let mut temporary = OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{}.tmp", std::process::id()));
        let temporary = path.with_file_name(temporary);
        let file = File::options().write(true).create_new(true).open(&temporary)?;
        Ok(WholeFile { path: path.to_owned(), temporary, out: Some(BufWriter::new(file)) })
    }

    /// Makes it durable and gives it its name; what was there before is replaced.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        let Some(out) = &mut self.out else { return Ok(()) };
        out.flush()?;
        out.get_ref().sync_all()?;
        fs::rename(&self.temporary, &self.path)?;
        self.out = None;
        Ok(())
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.as_mut().map_or(Ok(0), |out| out.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.as_mut().map_or(Ok(()), BufWriter::flush)
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if self.out.take().is_some() {
            // There is nobody to tell; the name says that it is temporary.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_file_is_never_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        let files = || fs::read_dir(dir.path()).unwrap().count();
        let mut half = WholeFile::create(&path).unwrap();
        half.write_all(b"half").unwrap();
        assert!(!path.exists() && files() == 1);
        drop(half);
        assert_eq!(files(), 0);
        let mut whole = WholeFile::create(&path).unwrap();
        whole.write_all(b"whole").unwrap();
        whole.finish().unwrap();
        assert_eq!((fs::read(&path).unwrap(), files()), (b"whole".to_vec(), 1));
    }
}
