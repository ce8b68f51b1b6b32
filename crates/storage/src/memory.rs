//! Files in memory.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::ops::Bound;
use std::sync::Arc;

use crate::source::past_the_end;
use crate::{ByteSource, Error, Fill, Location, MOST_NAMES, Name, Storage};

/// A map from names to bytes: for tests, for files inside a program (`include_bytes!`), for what came over a wire.
///
/// Its sources lend their bytes as a mapped file does, so that what needs no change is used where it lies. Clones share
/// the bytes.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    called: String,
    files: BTreeMap<Name, Arc<Bytes>>,
}

impl Memory {
    /// One without files, which messages call `called`.
    pub fn new(called: impl Into<String>) -> Memory {
        Memory { called: called.into(), files: BTreeMap::new() }
    }

    /// The same, with `bytes` as the file `name`; they replace a file that is called so.
    #[must_use]
    pub fn with(mut self, name: Name, bytes: impl Into<Cow<'static, [u8]>>) -> Memory {
        self.insert(name, bytes);
        self
    }

    /// Adds `bytes` as the file `name`; they replace a file that is called so.
    pub fn insert(&mut self, name: Name, bytes: impl Into<Cow<'static, [u8]>>) {
        self.files.insert(name, Arc::new(Bytes(bytes.into())));
    }

    /// The files below `dir`, by what follows its name and the slash.
    fn below(&self, dir: &Name) -> impl Iterator<Item = &str> {
        let start = if dir.is_root() { String::new() } else { format!("{dir}/") };
        let files = self.files.range::<str, _>((Bound::Included(&*start), Bound::Unbounded));
        files.map_while(move |(name, _)| name.as_str().strip_prefix(&start))
    }
}

impl Storage for Memory {
    fn list(&self, dir: &Name) -> Result<Vec<String>, Error> {
        let location = || self.location(dir);
        if self.files.contains_key(dir) {
            return Err(Error::NotADirectory { location: location() });
        }
        let first = |name: &str| name.split('/').next().unwrap_or_default().to_owned();
        let names: BTreeSet<String> = self.below(dir).map(first).filter(|name| !name.is_empty()).collect();
        if names.is_empty() && !dir.is_root() {
            return Err(Error::io(location(), "list", io::ErrorKind::NotFound.into()));
        }
        if names.len() as u64 > u64::from(MOST_NAMES) {
            return Err(Error::TooMany { location: location(), limit: MOST_NAMES.into() });
        }
        Ok(names.into_iter().collect())
    }

    fn open(&self, name: &Name) -> Result<Arc<dyn ByteSource>, Error> {
        match self.files.get(name) {
            Some(bytes) => Ok(Arc::clone(bytes) as Arc<dyn ByteSource>),
            None if name.is_root() || self.below(name).next().is_some() => {
                Err(Error::Directory { location: self.location(name) })
            }
            None => Err(Error::io(self.location(name), "open", io::ErrorKind::NotFound.into())),
        }
    }

    fn location(&self, name: &Name) -> Location {
        let base = Location::Named(self.called.clone());
        if name.is_root() { base } else { base.join(name.as_str()) }
    }
}

/// A file in memory.
struct Bytes(Cow<'static, [u8]>);

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl ByteSource for Bytes {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).ok();
        let range = start.and_then(|s| Some(s..s.checked_add(buf.len())?));
        let bytes = range.and_then(|r| self.0.get(r));
        buf.copy_from_slice(bytes.ok_or_else(|| past_the_end(offset, buf.len(), self.len()))?);
        Ok(())
    }

    fn read_many(&self, fills: &mut [Fill<'_>]) -> io::Result<()> {
        fills.iter_mut().try_for_each(|fill| self.read_at(fill.offset, fill.buf))
    }

    fn mapped(&self) -> Option<&[u8]> {
        Some(&self.0)
    }

    fn kind(&self) -> &'static str {
        "memory"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    #[test]
    fn directories_are_what_names_begin_with() {
        let mut files = Memory::new("m").with(name("d/e/f"), b"ef".as_slice()).with(name("d-2/x"), vec![1]);
        files.insert(name("d.txt"), vec![2, 3]);
        files.insert(name("d/a"), vec![]);
        assert_eq!(files.list(&Name::ROOT).unwrap(), ["d", "d-2", "d.txt"]);
        assert_eq!(files.list(&name("d")).unwrap(), ["a", "e"]);
        assert_eq!(files.list(&name("d/e")).unwrap(), ["f"]);
        assert_eq!(Memory::new("none").list(&Name::ROOT).unwrap(), [""; 0]);
        assert!(matches!(files.list(&name("d.txt")), Err(Error::NotADirectory { .. })));
        assert!(files.list(&name("x")).unwrap_err().is_not_found());
        assert!(files.list(&name("d/e/x")).unwrap_err().is_not_found());
        for dir in ["d", "d/e", "d-2", ""] {
            assert!(matches!(files.open(&name(dir)), Err(Error::Directory { .. })), "{dir}");
        }
        let missing = files.open(&name("d/b")).unwrap_err();
        assert_eq!(missing.to_string(), "cannot open `m/d/b`: entity not found");
        assert_eq!(missing.location().unwrap().path(), None);
    }

    #[test]
    fn bytes_are_lent_and_read() {
        static INSIDE: &[u8] = b"inside the program";
        let files = Memory::new("m").with(name("a"), INSIDE);
        let source = files.clone().open(&name("a")).unwrap();
        assert_eq!(source.mapped().unwrap().as_ptr(), INSIDE.as_ptr());
        let mut buf = [0; 3];
        source.read_at(7, &mut buf).unwrap();
        assert_eq!(&buf, b"the");
        for past in [16, 18, u64::MAX] {
            assert_eq!(source.read_at(past, &mut buf).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
        assert_eq!((source.kind(), source.identity()), ("memory", None));
    }
}
