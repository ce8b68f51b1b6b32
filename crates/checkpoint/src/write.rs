//! Writes entries to bytes, for formats that can be written.
//!
//! A [`Draft`] lists the tensors of a future checkpoint, and the files that will hold them. Creating it checks that the
//! format can hold them, computes the lengths of the files, and touches nothing. [`Draft::create`] starts a [`Writer`],
//! which takes the planes of one tensor after the other, so that no more than one need be in memory. The result is only
//! moved to its place when it is complete and durable: until then a reader finds nothing there, or the earlier file.

mod bucket;
mod files;
mod frame;
mod held;
mod journal;
mod place;
pub(crate) mod shards;
mod system;
mod writer;
mod zstd;

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tensor::{Dtype, Scheme, Shape};

use crate::error::{Error, Problem, Problems, Subject};
use crate::fault::Fault;
use crate::format::ctranslate2::{self, Ctranslate2Files};
use crate::format::hf::HfFiles;
use crate::format::openai::OpenaiMetadata;
use crate::format::{ggml, gguf, hf, npy, npz, onnx, safetensors, squish};
pub(crate) use frame::Frame;
pub use held::{Held, Removal};
use place::DestinationKind;
pub use shards::Split;
pub use writer::{Output, WriteOptions, Writer};
pub use zstd::Zstd;

/// One tensor of a checkpoint that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Its name.
    pub name: String,
    /// Logical shape, slowest axis first.
    pub shape: Shape,
    /// How it is stored.
    pub scheme: Arc<Scheme>,
}

impl Outgoing {
    /// The bytes of each plane. A draft has made sure that its scheme has a length for its shape.
    fn plane_lengths(&self) -> impl Iterator<Item = u64> {
        self.scheme.planes.iter().map(|plane| self.scheme.plane_bytes(plane, &self.shape).unwrap_or(0))
    }

    /// # Panics
    /// If a plane is not as long as the scheme says.
    fn check(&self, planes: &[&[u8]]) {
        let found: Vec<u64> = planes.iter().map(|plane| plane.len() as u64).collect();
        assert_eq!(self.plane_lengths().collect::<Vec<_>>(), found, "bytes of the planes of `{}`", self.name);
    }
}

/// The ecosystem that an HF directory is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// transformers, vLLM and others that read PyTorch's conventions.
    Hf,
    /// mlx and mlx-lm.
    Mlx,
}

/// A checkpoint that can be written: checked, measured, and not begun.
pub struct Draft {
    tensors: Vec<Outgoing>,
    kind: DestinationKind,
    files: Vec<OutFile>,
    /// The place of each plane of each tensor.
    spots: Vec<Vec<Spot>>,
    /// The `metadata_props` of an ONNX model. The first file names the second, so it is made once the path is known.
    metadata_props: Option<Vec<(String, String)>>,
}

impl fmt::Debug for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draft").finish_non_exhaustive()
    }
}

/// One file of the result, as far as it is known before its tensors.
pub(crate) struct OutFile {
    /// Its name in the directory; where the caller's path is that of a file, the end of its name.
    pub(crate) name: String,
    /// Its start; of a small file all of it.
    pub(crate) head: Vec<u8>,
    /// Other bytes that are known before the tensors: offset and bytes.
    pub(crate) between: Vec<(u64, Vec<u8>)>,
    /// Its length. Bytes that are neither of the head nor of a tensor are zero.
    pub(crate) len: u64,
    /// The other parts of the file, which depend on the tensors' bytes.
    pub(crate) frame: Option<Box<dyn Frame>>,
    /// It is one plane after its head, and is compressed with zstd where that makes it smaller. Its name gets an ending then.
    pub(crate) zstd: bool,
}

/// Where a plane goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    /// The file, as counted in the draft.
    pub(crate) file: usize,
    /// The offset in it.
    pub(crate) at: u64,
}

/// One of several files, and which tensors of the draft it holds.
pub(crate) struct DraftFile {
    /// Its name; of GGUF and ONNX only what tells it from others.
    pub(crate) name: String,
    /// The tensors, in the order of `flat`. One whose planes are in several files is in each of them, in the order of its planes.
    pub(crate) tensors: Vec<usize>,
    /// Its content.
    pub(crate) flat: Flat,
}

/// A file of a header and of planes at offsets that are known before.
pub(crate) struct Flat {
    /// The start of the file.
    pub(crate) head: Vec<u8>,
    /// Other bytes that are known before the tensors: offset and bytes.
    pub(crate) between: Vec<(u64, Vec<u8>)>,
    /// Where each plane of each tensor goes.
    pub(crate) offsets: Vec<Vec<u64>>,
    /// Length of the file.
    pub(crate) len: u64,
}

impl OutFile {
    /// A file whose content is known.
    pub(crate) fn whole(name: impl Into<String>, content: Vec<u8>) -> OutFile {
        let len = content.len() as u64;
        OutFile { name: name.into(), head: content, between: vec![], len, frame: None, zstd: false }
    }
}

/// Why nothing can be written to a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Something is there.
    Exists,
    /// There is no such directory to write into.
    NoDirectory(PathBuf),
}

impl Draft {
    /// An `.npz` file: plain dtypes only. bf16 is stored as `V2`, as `ml_dtypes` and MLX do.
    ///
    /// # Errors
    /// [`Error::Misuse`] with every tensor that the format cannot hold.
    pub fn npz(tensors: Vec<Outgoing>) -> Result<Draft, Error> {
        let (flat, frame) = npz::form(&tensors)?;
        Ok(Draft::one(tensors, flat, Some(Box::new(frame))))
    }

    /// A `.npy` file of one tensor, whose name is not written: plain dtypes, of which bf16 is stored as in [`Draft::npz`].
    ///
    /// # Errors
    /// [`Error::Misuse`] if the format cannot hold it.
    pub fn npy(tensor: Outgoing) -> Result<Draft, Error> {
        let flat = npy::form(&tensor)?;
        Ok(Draft::one(vec![tensor], flat, None))
    }

    /// A bare `.safetensors` file: plain dtypes only.
    ///
    /// # Errors
    /// [`Error::Misuse`] with every tensor that the format cannot hold.
    pub fn safetensors(tensors: Vec<Outgoing>) -> Result<Draft, Error> {
        Draft::safetensors_with(tensors, &[])
    }

    /// The same, with `pairs` as its `__metadata__`.
    ///
    /// # Errors
    /// As [`Draft::safetensors`].
    pub fn safetensors_with(tensors: Vec<Outgoing>, pairs: &[(String, String)]) -> Result<Draft, Error> {
        let flat = safetensors::form(&tensors, pairs, false, safetensors::AS_REFERENCE)?;
        Ok(Draft::one(tensors, flat, None))
    }

    /// A `.safetensors` file to be mapped, of plain dtypes only, with `pairs` as its `__metadata__`: data begin on a page of
    /// 4 KiB, each tensor at a multiple of 64 bytes. Tensors of bytes, `__padding__.0` and so on, fill the gaps.
    ///
    /// # Errors
    /// [`Error::Misuse`] with every tensor that the format cannot hold.
    pub fn safetensors_in_pages(tensors: Vec<Outgoing>, pairs: &[(String, String)]) -> Result<Draft, Error> {
        let flat = safetensors::form(&tensors, pairs, false, safetensors::IN_PAGES)?;
        Ok(Draft::one(tensors, flat, None))
    }

    /// A file of `len` bytes that the caller lays out, in pieces of `piece` bytes, of which the last may be shorter: each is a tensor
    /// of bytes.
    ///
    /// # Panics
    /// If a piece has no bytes.
    pub fn pieces(len: u64, piece: u64) -> Draft {
        let starts = || (0..len).step_by(usize::try_from(piece).unwrap_or(usize::MAX));
        let tensors = starts().enumerate().map(|(index, start)| Outgoing {
            name: index.to_string(),
            shape: Shape::from(vec![piece.min(len - start)]),
            scheme: Scheme::plain(Dtype::U8),
        });
        let offsets = starts().map(|start| vec![start]).collect();
        Draft::one(tensors.collect(), Flat { head: vec![], between: vec![], offsets, len }, None)
    }

    /// A GGUF file of version 3 with the given metadata, in that order. Tensors are aligned as its
    /// `general.alignment` says.
    ///
    /// # Errors
    /// [`Error::Misuse`] with every tensor that the format cannot hold.
    pub fn gguf(tensors: Vec<Outgoing>, metadata: &[(&str, gguf::Value<'_>)]) -> Result<Draft, Error> {
        let flat = gguf::form(&tensors, metadata)?;
        Ok(Draft::one(tensors, flat, None))
    }

    /// Creates a draft of GGUF in several files, `NAME-00001-of-00003.gguf` for a path of `NAME.gguf`, as
    /// llama-gguf-split cuts them; one `NAME.gguf` if that holds all. Existing files under any of these names count as
    /// the same checkpoint, and are replaced together.
    ///
    /// # Errors
    /// [`Error::Misuse`] with every tensor that the format cannot hold, or if there would be over 65,535 files.
    pub fn gguf_split(
        tensors: Vec<Outgoing>,
        metadata: &[(&str, gguf::Value<'_>)],
        split: Split,
    ) -> Result<Draft, Error> {
        let parts = gguf::parts(&tensors, metadata, split)?;
        Ok(Draft::several(tensors, DestinationKind::Parts, parts))
    }

    /// Creates a draft of a directory with `model.safetensors`, or its shards and their index, a `config.json` that
    /// describes how the weights are quantised, and the small files `beside` them.
    ///
    /// Files hold at most `max_shard` bytes of tensors, unless they hold a single larger tensor. The default is that of
    /// the flavour's own writer.
    ///
    /// # Errors
    /// [`Error::Misuse`] with every tensor that the format cannot hold.
    pub fn directory(
        tensors: Vec<Outgoing>,
        beside: HfFiles,
        flavour: Flavour,
        max_shard: Option<u64>,
    ) -> Result<Draft, Error> {
        let pairs = hf::pairs(&beside, flavour);
        let small = small_files(&tensors, beside, flavour)?;
        let weights = hf::shards(&tensors, &pairs, flavour, max_shard)?;
        let index = weights.index.map(|json| OutFile::whole(hf::INDEX, json));
        let mut draft = Draft::several(tensors, DestinationKind::Folder, weights.parts);
        draft.files.extend(index);
        draft.files.extend(small);
        Ok(draft)
    }

    /// A directory for vLLM's `sharded_state` loader: the tensors of each rank in files of its own,
    /// `model-rank-0-part-0.safetensors` and so on, or `model-pp-0-tp-0-part-0.safetensors` if there are several
    /// `stages`, with `beside`. `stages` lists the number of tensors of each rank, for each stage; ranks may hold
    /// tensors of one name. If all are encoded `as_source`, the configuration is left as it is.
    ///
    /// # Errors
    /// [`Error::Misuse`] with every tensor that the format cannot hold.
    pub fn ranks(
        tensors: Vec<Outgoing>,
        stages: &[Vec<usize>],
        beside: HfFiles,
        as_source: bool,
        max_shard: Option<u64>,
    ) -> Result<Draft, Error> {
        // With unchanged weights, the source's configuration still holds.
        let small = if as_source {
            let HfFiles { config, members, .. } = beside;
            let members = members.into_iter().map(|(name, content)| OutFile::whole(name, content));
            std::iter::once(OutFile::whole(hf::CONFIG, hf::pretty(&config))).chain(members).collect()
        } else {
            // Ranks of a stage say the same of their weights.
            let mut named = HashSet::new();
            let own: Vec<Outgoing> =
                tensors.iter().filter(|tensor| named.insert(tensor.name.as_str())).cloned().collect();
            small_files(&own, beside, Flavour::Hf)?
        };
        let parts = hf::rank_parts(&tensors, stages, max_shard)?;
        let mut draft = Draft::several(tensors, DestinationKind::Folder, parts);
        draft.files.extend(small);
        Ok(draft)
    }

    /// Creates a draft of a directory of numpy arrays in squish's form: `tensors/KEY__pt.npy`, and a `manifest.json` of
    /// names and keys, so that any name is possible. Plain dtypes, of which bf16 is stored as in [`Draft::npz`], and squish's own
    /// encodings, with an array for each plane. With the
    /// files `beside` the weights of an HF directory it is still a model.
    ///
    /// # Errors
    /// [`Error::Misuse`] with every tensor that the format cannot hold.
    pub fn npy_dir(tensors: Vec<Outgoing>, beside: Option<HfFiles>) -> Result<Draft, Error> {
        let (parts, mut others) = squish::form(&tensors)?;
        if let Some(beside) = beside {
            // How the others are encoded, the names of their files say.
            let plain = tensors.iter().filter(|tensor| tensor.scheme.dtype().is_some()).cloned();
            others.extend(small_files(&plain.collect::<Vec<_>>(), beside, Flavour::Hf)?);
        }
        let mut draft = Draft::several(tensors, DestinationKind::Folder, parts);
        draft.files.extend(others);
        Ok(draft)
    }

    /// The same, with each array of a directory of arrays compressed with zstd where that makes its file smaller: `KEY__pt.npy.zst`.
    #[must_use]
    pub fn with_zstd(mut self) -> Draft {
        for spot in self.spots.iter().flatten() {
            let file = self.files.get_mut(spot.file).filter(|file| file.name.ends_with(npy::SUFFIX));
            if let Some(file) = file {
                file.zstd = true;
            }
        }
        self
    }

    /// A directory of CTranslate2: `model.bin` with `tensors`, and the files beside it.
    ///
    /// # Errors
    /// [`Error::Misuse`] with every tensor that the format cannot hold.
    pub fn ctranslate2(tensors: Vec<Outgoing>, files: Ctranslate2Files) -> Result<Draft, Error> {
        let flat = ctranslate2::form(&tensors, &files)?;
        let all = (0..tensors.len()).collect();
        let model = DraftFile { name: ctranslate2::MODEL.to_owned(), tensors: all, flat };
        let mut draft = Draft::several(tensors, DestinationKind::Folder, vec![model]);
        draft.files.extend(files.members.into_iter().map(|(name, content)| OutFile::whole(name, content)));
        Ok(draft)
    }

    /// A file of whisper.cpp, `ggml-….bin`, that says what `said` says. Its type is that of its matrices, which is one.
    ///
    /// # Errors
    /// [`Error::Misuse`] with every tensor that whisper.cpp does not read so.
    pub fn ggml(tensors: Vec<Outgoing>, said: &OpenaiMetadata) -> Result<Draft, Error> {
        let flat = ggml::form(&tensors, said)?;
        Ok(Draft::one(tensors, flat, None))
    }

    /// An ONNX model of `tensors` as initializers, without nodes, and beside it a file with their data: `NAME.onnx` and
    /// `NAME.onnx.data`. Plain dtypes only. Keys of `metadata_props` must be distinct.
    ///
    /// # Errors
    /// [`Error::Misuse`] with every tensor that the format cannot hold.
    pub fn onnx(tensors: Vec<Outgoing>, metadata_props: Vec<(String, String)>) -> Result<Draft, Error> {
        let data = onnx::data(&tensors)?;
        let all = (0..tensors.len()).collect();
        let model = Flat { head: vec![], between: vec![], offsets: vec![], len: 0 };
        let files = vec![
            DraftFile { name: String::new(), tensors: vec![], flat: model },
            DraftFile { name: onnx::DATA.to_owned(), tensors: all, flat: data },
        ];
        let mut draft = Draft::several(tensors, DestinationKind::File, files);
        draft.metadata_props = Some(metadata_props);
        draft.name_data(onnx::LOCATION);
        Ok(draft)
    }

    /// Makes the ONNX model anew, with its data in the file `location`.
    fn name_data(&mut self, location: &str) {
        let Some(metadata_props) = &self.metadata_props else { return };
        let offsets = self.spots.iter().filter_map(|spots| spots.first().map(|spot| spot.at));
        let model = onnx::model(&self.tensors, offsets, metadata_props, location);
        if let Some(first) = self.files.first_mut() {
            *first = OutFile::whole("", model);
        }
    }

    fn one(tensors: Vec<Outgoing>, flat: Flat, frame: Option<Box<dyn Frame>>) -> Draft {
        let all = (0..tensors.len()).collect();
        let mut draft = Draft::several(
            tensors,
            DestinationKind::File,
            vec![DraftFile { name: String::new(), tensors: all, flat }],
        );
        if let Some(file) = draft.files.first_mut() {
            file.frame = frame;
        }
        draft
    }

    /// Files by name, each with the tensors that it holds.
    fn several(tensors: Vec<Outgoing>, kind: DestinationKind, parts: Vec<DraftFile>) -> Draft {
        let mut spots = vec![vec![]; tensors.len()];
        let mut files = Vec::with_capacity(parts.len());
        for (file, DraftFile { name, tensors, flat }) in parts.into_iter().enumerate() {
            let Flat { head, between, offsets, len } = flat;
            for (tensor, at) in tensors.into_iter().zip(offsets) {
                if let Some(spots) = spots.get_mut(tensor) {
                    spots.extend(at.into_iter().map(|at| Spot { file, at }));
                }
            }
            files.push(OutFile { name, head, between, len, frame: None, zstd: false });
        }
        Draft { tensors, kind, files, spots, metadata_props: None }
    }

    /// The tensors, in the order in which [`Writer::tensor`] wants them.
    pub fn tensors(&self) -> &[Outgoing] {
        &self.tensors
    }

    /// The bytes with which the first file begins, before any tensor: they say what it holds, and where.
    pub fn head(&self) -> &[u8] {
        self.files.first().map_or(&[], |file| &file.head)
    }

    /// The offset of each plane of tensor `index` in its file.
    ///
    /// # Panics
    /// If there is no such tensor.
    pub fn offsets(&self, index: usize) -> Vec<u64> {
        match self.spots.get(index) {
            Some(spots) => spots.iter().map(|spot| spot.at).collect(),
            None => panic!("tensor {index} of {}", self.spots.len()),
        }
    }

    /// Length of all files together in bytes, before any is compressed; of ONNX nearly, because one file names the other.
    pub fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.len))
    }

    /// The directory in which a checkpoint is while it is written to `path`. It holds a file `journal`, which is locked as long as
    /// its process is at work, and is left by one that was ended on the way.
    pub fn partial(path: &Path) -> PathBuf {
        place::work_of(path)
    }

    /// Why nothing can be written to `path`, as far as can be told before: work that takes minutes is not lost for a name. `None` if nothing is there,
    /// or what an ended process has left to be continued, or it may be overwritten.
    pub fn refused(path: &Path, overwrite: bool) -> Option<Refused> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty() && !parent.is_dir());
        if let Some(parent) = parent {
            return Some(Refused::NoDirectory(parent.to_owned()));
        }
        // One that was interrupted may have given a complete result its name, and left its directory: it continues from there.
        let is_free = overwrite || !path.exists() || Draft::partial(path).is_dir();
        (!is_free).then_some(Refused::Exists)
    }

    /// Begins to write, beside `path`. Nothing appears at `path` itself before [`Writer::finish`].
    ///
    /// # Errors
    /// If `path` exists and may not be overwritten, the disk lacks the space, another process is writing there, or the
    /// system fails.
    pub fn create(self, path: &Path, overwrite: bool) -> Result<Writer, Error> {
        self.create_with(path, &WriteOptions { overwrite, ..WriteOptions::default() })
    }

    /// Begins to write, or continues what a process that was ended has left, beside `output`.
    ///
    /// # Errors
    /// As [`Draft::create`].
    pub fn create_with(mut self, output: impl Into<Output>, options: &WriteOptions) -> Result<Writer, Error> {
        let output = output.into();
        if self.metadata_props.is_some() {
            self.name_data(&onnx::location(&output)?);
        }
        Writer::new(self, &output, options)
    }

    /// The most bytes that writing to `output` keeps in memory beside the tensor that is given: parts on their way to a bucket.
    pub fn buffers(&self, output: &Output) -> u64 {
        match output {
            Output::Path(_) => 0,
            Output::Bucket { bucket, .. } => bucket::buffers(self, bucket.part_limits()),
        }
    }
}

/// The files beside the weights of a directory.
fn small_files(tensors: &[Outgoing], beside: HfFiles, flavour: Flavour) -> Result<Vec<OutFile>, Error> {
    let config = hf::config_for(tensors, &beside.config, flavour)?;
    let members = beside.members.into_iter().map(|(name, content)| OutFile::whole(name, content));
    Ok(std::iter::once(OutFile::whole(hf::CONFIG, config)).chain(members).collect())
}

/// Tensors that a format cannot hold: one problem for each scheme, with the first tensor of it and the number of
/// others.
#[derive(Default)]
pub(crate) struct Refusals {
    schemes: Vec<(String, String, u64)>,
    problems: Problems,
}

impl Refusals {
    /// The format cannot store `tensor`'s scheme.
    pub(crate) fn scheme(&mut self, tensor: &Outgoing) {
        let name = &tensor.scheme.name;
        match self.schemes.iter_mut().find(|(scheme, ..)| scheme == name) {
            Some((_, _, count)) => *count += 1,
            None => self.schemes.push((name.to_string(), tensor.name.clone(), 1)),
        }
    }

    /// Adds another problem of `tensor`.
    pub(crate) fn push(&mut self, tensor: &Outgoing, fault: Fault) {
        self.problems.push(Problem { at: None, subject: Subject::Tensor(tensor.name.clone()), fault });
    }

    /// Returns `Ok` if there are no problems; `wants` describes what `format` holds.
    pub(crate) fn check(mut self, format: &'static str, wants: &'static str) -> Result<(), Error> {
        for (scheme, first, tensors) in self.schemes {
            let fault = Fault::NoPlace { scheme, tensors, wants };
            self.problems.push(Problem { at: None, subject: Subject::Tensor(first), fault });
        }
        // The file does not exist yet, so the fault is the caller's.
        self.problems.check(Path::new(format)).map_err(|error| match error {
            Error::Malformed(report) | Error::Mismatch(report) | Error::Unsupported(report) => {
                Error::Misuse(report)
            }
            error => error,
        })
    }
}
