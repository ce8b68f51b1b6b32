//! The files of a directory of a server.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use object_store::ObjectStore;
use object_store::path::Path;
use storage::{ByteSource, Error, Location, MOST_NAMES, Name, Storage};

use crate::object::Object;
use crate::place::{Names, Place};
use crate::reactor::Reactor;
use crate::refusal::{again, into_io};
use crate::usual::USUAL;

/// Requests under way while files are opened.
const AT_ONCE: usize = 16;

/// How long the list of a directory may take.
const LIST: Duration = Duration::from_mins(1);

/// A directory of a server, as a storage.
pub(crate) struct Objects {
    reactor: Arc<Reactor>,
    place: Place,
    /// What was opened, by its name: a file is asked for once, and stays the version that it was.
    open: Mutex<HashMap<Name, Arc<Object>>>,
    /// What was found by asking, by directory.
    probed: Mutex<HashMap<Name, Vec<String>>>,
}

impl Objects {
    pub(crate) fn new(reactor: Arc<Reactor>, place: Place) -> Objects {
        Objects { reactor, place, open: Mutex::default(), probed: Mutex::default() }
    }

    fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.place.store
    }

    pub(crate) fn path(&self, name: &Name) -> Result<Path, Error> {
        let text = match (self.place.base.as_ref(), name.as_str()) {
            (base, "") => base.to_owned(),
            ("", name) => name.to_owned(),
            (base, name) => format!("{base}/{name}"),
        };
        Path::parse(text).map_err(|_| Error::BadName { name: name.as_str().to_owned() })
    }

    /// An error, with what may help where access is refused.
    pub(crate) fn failed(&self, name: &Name, doing: &'static str, error: &object_store::Error) -> Error {
        let mut error = into_io(error);
        if error.kind() == io::ErrorKind::PermissionDenied {
            error = io::Error::new(error.kind(), format!("{error} ({})", self.place.access));
        }
        Error::io(self.location(name), doing, error)
    }

    /// Opens `name`, or finds it among what was opened.
    async fn object(&self, name: &Name) -> Result<Result<Arc<Object>, object_store::Error>, Error> {
        if let Some(object) = self.opened().get(name) {
            return Ok(Ok(Arc::clone(object)));
        }
        let path = self.path(name)?;
        Ok(Object::open(&self.reactor, self.store(), path, &self.place).await.map(|object| {
            let object = Arc::new(object);
            self.opened().insert(name.clone(), Arc::clone(&object));
            object
        }))
    }

    /// `names`, which are those in `dir`: of a directory without names there is none.
    pub(crate) fn there(&self, dir: &Name, names: Vec<String>) -> Result<Vec<String>, Error> {
        if names.is_empty() && !dir.is_root() {
            return Err(Error::io(self.location(dir), "list", io::ErrorKind::NotFound.into()));
        }
        Ok(names)
    }

    fn opened(&self) -> MutexGuard<'_, HashMap<Name, Arc<Object>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn probed(&self) -> MutexGuard<'_, HashMap<Name, Vec<String>>> {
        self.probed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether `name` is one that was asked for already, and is not there.
    fn is_known_absent(&self, name: &Name) -> bool {
        let file = name.file_name();
        let absent = |found: &Vec<String>| USUAL.contains(&file) && !found.iter().any(|found| found == file);
        self.probed().get(&name.parent()).is_some_and(absent)
    }

    /// The usual names that are in `dir`, which is not listed.
    fn probe(&self, dir: &Name) -> Result<Vec<String>, Error> {
        if let Some(found) = self.probed().get(dir) {
            return Ok(found.clone());
        }
        let found: Vec<String> = self.reactor.wait(async {
            let asked = USUAL.iter().map(|&usual| async move {
                let name = dir.join(usual)?;
                match self.object(&name).await? {
                    Ok(_) => Ok(Some(usual.to_owned())),
                    Err(object_store::Error::NotFound { .. }) => Ok(None),
                    // As S3 answers about what is not there, where it may not be listed.
                    Err(object_store::Error::PermissionDenied { .. }) if usual != "config.json" => Ok(None),
                    Err(error) => Err(self.failed(dir, "open", &error)),
                }
            });
            let mut asked = futures::stream::iter(asked).buffer_unordered(AT_ONCE);
            let mut found = BTreeSet::new();
            while let Some(name) = asked.next().await {
                found.extend(name?);
            }
            Ok::<_, Error>(found.into_iter().collect())
        })?;
        self.probed().insert(dir.clone(), found.clone());
        Ok(found)
    }

    /// The names in `dir`; none if there is no such directory.
    fn listed(&self, dir: &Name) -> Result<Vec<String>, Error> {
        match &self.place.names {
            Names::Listed => {}
            Names::Usual => return self.probe(dir),
            Names::Known(files) => return Ok(children(files, dir)),
        }
        match self.ask_for_names(dir)? {
            Ok(names) => Ok(names),
            // A bucket may give its objects and not their names.
            Err(object_store::Error::PermissionDenied { .. }) => self.probe(dir),
            Err(error) => Err(self.failed(dir, "list", &error)),
        }
    }

    /// All names in `dir` of a bucket, which must list them.
    pub(crate) fn all_names(&self, dir: &Name) -> Result<Vec<String>, Error> {
        self.ask_for_names(dir)?.map_err(|error| self.failed(dir, "list", &error))
    }

    fn ask_for_names(&self, dir: &Name) -> Result<Result<Vec<String>, object_store::Error>, Error> {
        let path = self.path(dir)?;
        // Pages may have no end.
        let list = again(async || self.store().list_with_delimiter(Some(&path)).await);
        let list = async { tokio::time::timeout(LIST, list).await };
        let late = |_| {
            let why = format!("its list takes longer than {} s", LIST.as_secs());
            Error::io(self.location(dir), "list", io::Error::new(io::ErrorKind::TimedOut, why))
        };
        let found = match self.reactor.wait(list).map_err(late)? {
            Ok(found) => found,
            Err(error) => return Ok(Err(error)),
        };
        let objects = found.objects.iter().map(|object| &object.location);
        let names = found.common_prefixes.iter().chain(objects).filter_map(Path::filename);
        let names: BTreeSet<String> = names.map(str::to_owned).collect();
        if names.len() as u64 > u64::from(MOST_NAMES) {
            return Err(Error::TooMany { location: self.location(dir), limit: MOST_NAMES.into() });
        }
        Ok(Ok(names.into_iter().collect()))
    }
}

/// What is in the directory `dir` of `files`.
fn children(files: &BTreeSet<String>, dir: &Name) -> Vec<String> {
    let below = |file: &String| {
        let rest = if dir.is_root() { file } else { file.strip_prefix(dir.as_str())?.strip_prefix('/')? };
        rest.split('/').next().map(str::to_owned)
    };
    files.iter().filter_map(below).collect::<BTreeSet<_>>().into_iter().collect()
}

impl Storage for Objects {
    fn list(&self, dir: &Name) -> Result<Vec<String>, Error> {
        self.there(dir, self.listed(dir)?)
    }

    fn open(&self, name: &Name) -> Result<Arc<dyn ByteSource>, Error> {
        let directory = || Error::Directory { location: self.location(name) };
        if name.is_root() {
            return Err(directory());
        }
        if self.is_known_absent(name) {
            return Err(Error::io(self.location(name), "open", io::ErrorKind::NotFound.into()));
        }
        match &self.place.names {
            Names::Listed => {}
            // A server of files may answer with a page about a directory.
            Names::Usual => {
                if !name.file_name().contains('.') && !self.probe(name)?.is_empty() {
                    return Err(directory());
                }
            }
            Names::Known(files) if files.contains(name.as_str()) => {}
            Names::Known(files) if !children(files, name).is_empty() => return Err(directory()),
            Names::Known(_) => {
                return Err(Error::io(self.location(name), "open", io::ErrorKind::NotFound.into()));
            }
        }
        match self.reactor.wait(self.object(name))? {
            Ok(object) => Ok(object),
            Err(object_store::Error::NotFound { .. })
                if matches!(self.place.names, Names::Listed) && !self.listed(name)?.is_empty() =>
            {
                Err(directory())
            }
            Err(error) => Err(self.failed(name, "open", &error)),
        }
    }

    fn lists_all(&self) -> bool {
        !matches!(self.place.names, Names::Usual)
    }

    fn opens_at_once(&self) -> usize {
        AT_ONCE
    }

    fn location(&self, name: &Name) -> Location {
        let base = Location::Named(self.place.shown.clone());
        if name.is_root() { base } else { base.join(name.as_str()) }
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Objects").field(&self.place.shown).finish()
    }
}
