//! Digests of files, as the hub names them.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

/// What the bytes of a file must give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Digest {
    /// The SHA-256 of the bytes: files in large-file storage.
    Sha256(String),
    /// The SHA-1 of git's blob, `blob SIZE\0` and the bytes: all others.
    Blob(String),
}

impl Digest {
    /// The digest that `text` is, by its length.
    pub(crate) fn parse(text: &str) -> Option<Digest> {
        let is_hex = text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        match text.len() {
            64 if is_hex => Some(Digest::Sha256(text.to_owned())),
            40 if is_hex => Some(Digest::Blob(text.to_owned())),
            _ => None,
        }
    }

    /// What it is called.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Digest::Sha256(_) => "SHA-256",
            Digest::Blob(_) => "SHA-1 of git",
        }
    }

    /// As text: lower-case hexadecimal digits.
    pub(crate) fn text(&self) -> &str {
        match self {
            Digest::Sha256(text) | Digest::Blob(text) => text,
        }
    }

    /// The digest of the same kind of the file at `path`.
    pub(crate) fn of_file(&self, path: &Path) -> io::Result<Digest> {
        let mut file = File::open(path)?;
        let mut context = match self {
            Digest::Sha256(_) => Context::new(&SHA256),
            Digest::Blob(_) => {
                let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
                context.update(format!("blob {}\0", file.metadata()?.len()).as_bytes());
                context
            }
        };
        let mut buffer = vec![0; 1 << 20];
        loop {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => context.update(buffer.get(..n).unwrap_or_default()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        let text = context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(match self {
            Digest::Sha256(_) => Digest::Sha256(text),
            Digest::Blob(_) => Digest::Blob(text),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of sha256sum and of `git hash-object`.
    #[test]
    fn digests_are_those_of_other_programs() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("f");
        std::fs::write(&path, "hello\n").expect("written");
        for text in [
            "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03",
            "ce013625030ba8dba906f756967f9e9ca394464a",
        ] {
            let digest = Digest::parse(text).expect("a digest");
            assert_eq!(digest.of_file(&path).expect("read").text(), text);
        }
        assert_eq!(Digest::parse("ce01"), None);
        assert_eq!(Digest::parse(&"G".repeat(40)), None);
    }
}
