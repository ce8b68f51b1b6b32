//! Sessions in files: a safetensors file that has the tokens, what each layer keeps of them, and of which model it is.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use blake3::Hasher;
use checkpoint::{Checkpoint, Draft, Metadata, Outgoing, WriteOptions};
use tensor::{Dtype, Scheme, Shape, TensorEntry};

use super::problem::SavedProblem;
use super::{Session, Snapshot};
use crate::Error;
use crate::rotary::Turns;
use crate::state::{SavedPlaces, SavedState, SavedTensor};

/// Raised whenever the file says something else, or in another way.
const FORMAT: &str = "1";

/// Says that it is such a file, and of which form.
const MARK: &str = "weighbridge.session";
/// The BLAKE3 of its tensors.
const DATA: &str = "blake3";

/// `[positions]`, U32.
const TOKENS: &str = "tokens";
/// `[layers, 4]`, U64.
const PLACES: &str = "places";

/// The values that a file and a session must have in common: the key in the file, and the words of an error.
const OF: [(&str, &str); 6] = [
    ("version", "version of Weighbridge"),
    ("weights", "model"),
    ("adapter", "adapter"),
    ("kv", "form of keys and values"),
    ("rotary", "rotary embedding"),
    ("layers", "number of layers"),
];

/// The values of [`OF`] for a session.
fn values(session: &Session) -> [String; 6] {
    let mut rotary = Hasher::new();
    for Turns { frequencies, magnitude } in &session.turns {
        rotary.update(&(frequencies.len() as u64).to_le_bytes());
        for number in frequencies.iter().chain([magnitude]) {
            rotary.update(&number.to_le_bytes());
        }
    }
    [
        env!("CARGO_PKG_VERSION").to_owned(),
        session.model.digest().to_string(),
        session.adapter.as_ref().map_or_else(|| "none".to_owned(), |adapter| adapter.digest()),
        session.kind.to_string(),
        rotary.finalize().to_hex().to_string(),
        session.states.len().to_string(),
    ]
}

/// Takes a tensor of the file, and its bytes.
type EachTensor<'a> = dyn FnMut(Outgoing, &[u8]) -> Result<(), Error> + 'a;

/// The name of a layer's tensor in the file.
fn in_layer(layer: usize, name: &str) -> String {
    format!("layers.{layer}.{name}")
}

/// The digests of tensors by their names, as text: one digest of all.
#[derive(Default)]
struct Digests(BTreeMap<String, String>);

impl Digests {
    fn add(&mut self, name: &str, shape: &[u64], bytes: &[u8]) {
        self.0.insert(name.to_owned(), format!("{shape:?} {}", blake3::hash(bytes)));
    }

    fn of_all(&self) -> String {
        blake3::hash(format!("{:?}", self.0).as_bytes()).to_string()
    }
}

impl Session {
    /// Writes the session to a file: `tokens`, which it has run, and what each layer keeps of them. [`Snapshot::open`] reads it, in this
    /// process or in another. The file appears whole or not at all, and a file that is there already is left alone. Returns how many bytes it wrote.
    ///
    /// All weights are read once, for their [digest](crate::Model::digest).
    ///
    /// # Errors
    /// If there are more or fewer tokens than positions, the session hears, or the file cannot be written.
    pub fn save(&self, tokens: &[u32], path: &Path) -> Result<u64, Error> {
        if tokens.len() != self.position {
            return Err(Error::SavedTokens { wanted: self.position, found: tokens.len() });
        }
        let (mut digests, mut outgoing) = (Digests::default(), vec![]);
        self.each_tensor(tokens, &mut |tensor, bytes| {
            digests.add(&tensor.name, &tensor.shape, bytes);
            outgoing.push(tensor);
            Ok(())
        })?;
        let digest = digests.of_all();
        let said = OF.iter().zip(values(self)).map(|((key, _), value)| ((*key).to_owned(), value));
        let own = [(MARK, FORMAT), (DATA, &digest)].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let pairs: Vec<(String, String)> = own.into_iter().chain(said).collect();
        let options = WriteOptions { identity: digest.into_bytes(), ..WriteOptions::default() };
        let mut writer = Draft::safetensors_with(outgoing, &pairs)?.create_with(path, &options)?;
        self.each_tensor(tokens, &mut |_, bytes| {
            // An earlier process that was ended may have written it.
            if writer.again()?.is_none() {
                writer.tensor(&[bytes])?;
            }
            Ok(())
        })?;
        Ok(writer.finish()?)
    }

    /// Calls `each` with the tensors of the file. No more than a layer's are in memory beside the session.
    fn each_tensor(&self, tokens: &[u32], each: &mut EachTensor<'_>) -> Result<(), Error> {
        let mut each = |name: String, dtype: Dtype, shape: &[usize], bytes: &[u8]| {
            let shape = Shape::from(shape.iter().map(|n| *n as u64).collect::<Vec<_>>());
            each(Outgoing { name, shape, scheme: Scheme::plain(dtype) }, bytes)
        };
        let mut places = vec![];
        for (layer, state) in self.states.iter().enumerate() {
            let state = state.snapshot(self.position);
            places.extend(state.places());
            for SavedTensor { name, dtype, rows, parts } in state.tensors().ok_or(Error::SavedSound)? {
                let words = parts.concat();
                let shape = [rows, words.len() / rows];
                each(in_layer(layer, name), dtype, &shape, bytemuck::cast_slice(&words))?;
            }
        }
        each(TOKENS.to_owned(), Dtype::U32, &[tokens.len()], bytemuck::cast_slice(tokens))?;
        let shape = [self.states.len(), SavedPlaces::default().len()];
        each(PLACES.to_owned(), Dtype::U64, &shape, bytemuck::cast_slice(&places))
    }
}

impl Snapshot {
    /// Reads what [`Session::save`] wrote, to be restored in `session` and others like it: of the same model, adapter and form of keys and values. Returns
    /// the tokens, too.
    ///
    /// All weights are read once, for their [digest](crate::Model::digest).
    ///
    /// # Errors
    /// [`Error::Saved`] with all that is wrong: if the file is of another model or a session that differs otherwise, or is not what was written.
    pub fn open(path: &Path, session: &Session) -> Result<(Snapshot, Vec<u32>), Error> {
        let file = checkpoint::open(path).map_err(|error| {
            let problem = match &error {
                checkpoint::Error::Unsupported(_) => SavedProblem::NotSaved,
                checkpoint::Error::Malformed(report) => {
                    let problems = report.problems.iter().map(ToString::to_string);
                    SavedProblem::Damaged { what: problems.collect::<Vec<_>>().join("; ") }
                }
                _ => return error.into(),
            };
            Error::Saved { path: path.display().to_string(), problems: vec![problem] }
        })?;
        let mut reader = Reader { file: &file, digests: Digests::default() };
        let said = reader.said()?;
        let wanted = OF.iter().zip(values(session));
        let problems = wanted.filter_map(|((key, what), wanted)| {
            let found = said.get(key).map_or("nothing", |found| *found);
            let differs = || SavedProblem::Differs { what, wanted: short(&wanted), found: short(found) };
            (found != wanted).then(differs)
        });
        let problems: Vec<SavedProblem> = problems.collect();
        if !problems.is_empty() {
            return Err(reader.error(problems));
        }
        let tokens: Vec<u32> = reader.numbers(TOKENS, Dtype::U32, &[None])?;
        let layers = session.states.len() as u64;
        let places: Vec<u64> =
            reader.numbers(PLACES, Dtype::U64, &[Some(layers), Some(SavedPlaces::default().len() as u64)])?;
        let mut states = vec![];
        for (layer, (state, places)) in session.states.iter().zip(places.as_chunks().0).enumerate() {
            states.push(state.read(tokens.len(), *places, &mut Layer { reader: &mut reader, layer })?);
        }
        reader.finish(said.get(DATA).copied())?;
        let snapshot = Snapshot {
            model: Arc::clone(&session.model),
            states: Arc::new(states),
            turns: session.turns.clone(),
            position: tokens.len(),
            kind: session.kind,
            adapter: session.adapter.clone(),
        };
        Ok((snapshot, tokens))
    }
}

/// The beginning of a digest, or a short text.
fn short(text: &str) -> String {
    text.chars().take(12).collect()
}

/// A file that is read, and the digests of what was read of it.
struct Reader<'f> {
    file: &'f Checkpoint,
    digests: Digests,
}

impl<'f> Reader<'f> {
    fn error(&self, problems: Vec<SavedProblem>) -> Error {
        Error::Saved { path: self.file.location().to_string(), problems }
    }

    fn damaged(&self, what: impl Into<String>) -> Error {
        self.error(vec![SavedProblem::Damaged { what: what.into() }])
    }

    /// The pairs of its `__metadata__`.
    fn said(&self) -> Result<BTreeMap<&'f str, &'f str>, Error> {
        let pairs = match self.file.metadata() {
            Metadata::Hf(metadata) => metadata.safetensors(),
            _ => &[],
        };
        let said: BTreeMap<&str, &str> = pairs.iter().map(|(key, value)| (&**key, &**value)).collect();
        match said.get(MARK).copied() {
            Some(FORMAT) => Ok(said),
            Some(found) => {
                let (wanted, found) = (FORMAT.to_owned(), short(found));
                Err(self.error(vec![SavedProblem::Differs { what: "form of such files", wanted, found }]))
            }
            None => Err(self.error(vec![SavedProblem::NotSaved])),
        }
    }

    /// The tensor `name`, of the given sizes, as far as they are known.
    fn entry(&self, name: &str, dtype: &[Dtype], sizes: &[Option<u64>]) -> Result<&'f TensorEntry, Error> {
        let entry = self.file.entry(name).ok_or_else(|| self.damaged(format!("`{name}` is missing")))?;
        let fits = entry.shape.len() == sizes.len()
            && entry.shape.iter().zip(sizes).all(|(n, wanted)| wanted.is_none_or(|wanted| wanted == *n))
            && dtype.iter().any(|dtype| entry.scheme.name == dtype.name());
        if fits { Ok(entry) } else { Err(self.damaged(format!("`{name}` has another shape or type"))) }
    }

    /// All numbers of a tensor.
    fn numbers<T: bytemuck::Pod>(
        &mut self,
        name: &str,
        dtype: Dtype,
        sizes: &[Option<u64>],
    ) -> Result<Vec<T>, Error> {
        let entry = self.entry(name, &[dtype], sizes)?;
        self.read(entry)
    }

    fn read<T: bytemuck::Pod>(&mut self, entry: &TensorEntry) -> Result<Vec<T>, Error> {
        // A plain tensor has one plane, which lies within the file.
        let [plane] = &entry.planes[..] else { return Err(self.damaged("a tensor has no place")) };
        let len = usize::try_from(plane.bytes.end - plane.bytes.start).map_err(|_| Error::TooLarge)?;
        let mut numbers = vec![];
        let count = len / size_of::<T>();
        numbers.try_reserve_exact(count).map_err(|_| Error::TooLarge)?;
        numbers.resize(count, T::zeroed());
        let bytes = bytemuck::cast_slice_mut(&mut numbers);
        self.file.file(plane.file).read_at(plane.bytes.start, bytes)?;
        self.digests.add(&entry.name, &entry.shape, bytes);
        Ok(numbers)
    }

    /// Checks that all was read, and is what was written.
    fn finish(&self, digest: Option<&str>) -> Result<(), Error> {
        let mut names = self.file.entries().iter().map(|entry| &entry.name);
        if let Some(name) = names.find(|name| !self.digests.0.contains_key(*name)) {
            return Err(self.damaged(format!("`{name}` is no tensor of this session")));
        }
        self.file.read_unchanged()?;
        if digest == Some(&self.digests.of_all()) {
            Ok(())
        } else {
            Err(self.damaged("its bytes are not those that were written"))
        }
    }
}

/// The tensors of one layer.
struct Layer<'r, 'f> {
    reader: &'r mut Reader<'f>,
    layer: usize,
}

impl SavedState for Layer<'_, '_> {
    type Error = Error;

    fn rows(
        &mut self,
        name: &str,
        width: usize,
        count: RangeInclusive<usize>,
    ) -> Result<Vec<Vec<u32>>, Error> {
        let name = in_layer(self.layer, name);
        if self.reader.file.entry(&name).is_none() && *count.start() == 0 {
            return Ok(vec![]);
        }
        let entry = self.reader.entry(&name, &[Dtype::U32, Dtype::F32], &[None, Some(width as u64)])?;
        let found = entry.shape.first().and_then(|n| usize::try_from(*n).ok());
        if !found.is_some_and(|found| count.contains(&found)) {
            return Err(self.wrong(&format!("`{name}` has more or fewer rows than it should")));
        }
        let words: Vec<u32> = self.reader.read(entry)?;
        Ok(words.chunks_exact(width.max(1)).map(<[u32]>::to_vec).collect())
    }

    fn wrong(&self, what: &str) -> Error {
        self.reader.damaged(what)
    }
}
