//! Entries to bytes: the way back, for formats that can be written.
//!
//! A [`Draft`] lists the tensors of a checkpoint to be; making one checks that the format can hold them and
//! how long the result will be, and touches nothing. [`Draft::create`] starts a [`Writer`], which takes the
//! planes of one tensor after the other, so that no more than one need be in memory. The result is only put in
//! its place when it is complete and durable: whoever looks before finds nothing, or what was there.

mod place;

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use tensor::{Scheme, Shape};

use crate::error::{Error, Problem, Problems, Subject};
use crate::fault::Fault;
use crate::format::hf::HfFiles;
use crate::format::{gguf, hf, npz, safetensors};
use place::Place;

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
    form: Box<dyn Form>,
    /// Of a directory: small files beside the weights, by name.
    members: Option<Vec<(String, Vec<u8>)>>,
}

/// How one format lays out the file with the tensors.
pub(crate) trait Form {
    /// Length of the file in bytes, or a little more.
    fn bytes(&self) -> u64;

    /// Starts to fill `file`, which is empty.
    fn start(self: Box<Self>, file: File) -> io::Result<Box<dyn Fill>>;
}

/// A file that is being filled.
pub(crate) trait Fill {
    /// Writes the planes of tensor `index` of the draft, which come in order.
    fn tensor(&mut self, index: usize, planes: &[&[u8]]) -> io::Result<()>;

    /// Ends the file, and gives it back with all that was written handed to the system.
    fn end(self: Box<Self>) -> io::Result<File>;
}

impl Draft {
    /// An `.npz` file: plain dtypes only. bf16 is stored as `V2`, as `ml_dtypes` and MLX do.
    ///
    /// # Errors
    /// [`Error::Misuse`] with every tensor that the format cannot hold.
    pub fn npz(tensors: Vec<Outgoing>) -> Result<Draft, Error> {
        let form = npz::Form::new(&tensors)?;
        Ok(Draft { form: Box::new(form), tensors, members: None })
    }

    /// A bare `.safetensors` file: plain dtypes only.
    ///
    /// # Errors
    /// [`Error::Misuse`] with every tensor that the format cannot hold.
    pub fn safetensors(tensors: Vec<Outgoing>) -> Result<Draft, Error> {
        let form = safetensors::form(&tensors, &[], false)?;
        Ok(Draft { form: Box::new(form), tensors, members: None })
    }

    /// A GGUF file of version 3 with the given metadata, in that order. Tensors are aligned as its
    /// `general.alignment` says.
    ///
    /// # Errors
    /// [`Error::Misuse`] with every tensor that the format cannot hold.
    pub fn gguf(tensors: Vec<Outgoing>, metadata: &[(&str, gguf::Value<'_>)]) -> Result<Draft, Error> {
        let form = gguf::form(&tensors, metadata)?;
        Ok(Draft { form: Box::new(form), tensors, members: None })
    }

    /// A directory with `model.safetensors`, a `config.json` that says how its weights are quantised, and the
    /// small files `beside` them.
    ///
    /// # Errors
    /// [`Error::Misuse`] with every tensor that the format cannot hold.
    pub fn directory(tensors: Vec<Outgoing>, beside: HfFiles, flavour: Flavour) -> Result<Draft, Error> {
        let config = hf::config_for(&tensors, &beside.config, flavour)?;
        let form = safetensors::form(&tensors, &hf::pairs(&beside, flavour), true)?;
        let mut members = vec![(hf::CONFIG.to_owned(), config)];
        members.extend(beside.members);
        Ok(Draft { form: Box::new(form), tensors, members: Some(members) })
    }

    /// The tensors, in the order in which [`Writer::tensor`] wants them.
    pub fn tensors(&self) -> &[Outgoing] {
        &self.tensors
    }

    /// Length of all files together in bytes, or a little more.
    pub fn bytes(&self) -> u64 {
        let members = self.members.iter().flatten().map(|(_, content)| content.len() as u64);
        self.form.bytes().saturating_add(members.sum())
    }

    /// Begins to write, beside `path`; nothing is at `path` itself before [`Writer::finish`].
    ///
    /// # Errors
    /// If something is at `path` and is not to be overwritten, the disk lacks the space, or the system refuses.
    pub fn create(self, path: &Path, overwrite: bool) -> Result<Writer, Error> {
        let bytes = self.bytes();
        let (place, file) = match self.members {
            None => Place::file(path, bytes, overwrite)?,
            Some(members) => Place::directory(path, bytes, overwrite, &members)?,
        };
        let fill = self.form.start(file).map_err(|e| Error::io(path, "write", e))?;
        Ok(Writer { place, fill, tensors: self.tensors, next: 0 })
    }
}

/// A checkpoint that is being written. Dropped before [`Writer::finish`], it leaves nothing behind.
pub struct Writer {
    place: Place,
    fill: Box<dyn Fill>,
    tensors: Vec<Outgoing>,
    next: usize,
}

impl Writer {
    /// Writes the planes of the next tensor of the draft, as its scheme has them.
    ///
    /// # Errors
    /// If the system refuses.
    ///
    /// # Panics
    /// If there is no next tensor, or a plane is not as long as the scheme says: the caller's bugs.
    pub fn tensor(&mut self, planes: &[&[u8]]) -> Result<(), Error> {
        let Some(tensor) = self.tensors.get(self.next) else { panic!("all tensors are written") };
        let wants: Vec<_> =
            tensor.scheme.planes.iter().map(|p| tensor.scheme.plane_bytes(p, &tensor.shape)).collect();
        let found: Vec<_> = planes.iter().map(|p| Ok(p.len() as u64)).collect();
        assert_eq!(wants, found, "bytes of the planes of `{}`", tensor.name);
        self.fill.tensor(self.next, planes).map_err(|e| Error::io(self.place.path(), "write", e))?;
        self.next += 1;
        Ok(())
    }

    /// Makes everything durable and puts it in its place. Gives its length in bytes.
    ///
    /// # Errors
    /// If the system refuses, or something has come to be at the path meanwhile.
    ///
    /// # Panics
    /// If tensors are missing: the caller's bug.
    pub fn finish(self) -> Result<u64, Error> {
        assert_eq!(self.next, self.tensors.len(), "tensors written");
        let path = self.place.path().to_owned();
        let file = self.fill.end().map_err(|e| Error::io(&path, "write", e))?;
        self.place.commit(&file)
    }
}

/// A file of a header and of planes at offsets that are known before; bytes between them are zero.
pub(crate) struct Flat {
    /// The start of the file.
    pub(crate) head: Vec<u8>,
    /// Where each plane of each tensor goes.
    pub(crate) offsets: Vec<Vec<u64>>,
    /// Length of the file.
    pub(crate) len: u64,
}

impl Form for Flat {
    fn bytes(&self) -> u64 {
        self.len
    }

    fn start(self: Box<Self>, mut file: File) -> io::Result<Box<dyn Fill>> {
        file.set_len(self.len)?;
        file.write_all(&self.head)?;
        Ok(Box::new(Filling { file, offsets: self.offsets }))
    }
}

struct Filling {
    file: File,
    offsets: Vec<Vec<u64>>,
}

impl Fill for Filling {
    fn tensor(&mut self, index: usize, planes: &[&[u8]]) -> io::Result<()> {
        let offsets = self.offsets.get(index).map_or(&[][..], |o| o);
        planes.iter().zip(offsets).try_for_each(|(plane, at)| self.file.write_all_at(plane, *at))
    }

    fn end(self: Box<Self>) -> io::Result<File> {
        Ok(self.file)
    }
}

/// What a format refuses to hold: one problem for each scheme, with the first tensor of it and how many more.
#[derive(Default)]
pub(crate) struct Refusals {
    schemes: Vec<(String, String, u64)>,
    problems: Problems,
}

impl Refusals {
    /// `tensor`'s scheme has no place in the format.
    pub(crate) fn scheme(&mut self, tensor: &Outgoing) {
        let name = &tensor.scheme.name;
        match self.schemes.iter_mut().find(|(scheme, ..)| scheme == name) {
            Some((_, _, count)) => *count += 1,
            None => self.schemes.push((name.to_string(), tensor.name.clone(), 1)),
        }
    }

    /// Something else is wrong with `tensor`.
    pub(crate) fn push(&mut self, tensor: &Outgoing, fault: Fault) {
        self.problems.push(Problem { at: None, subject: Subject::Tensor(tensor.name.clone()), fault });
    }

    /// `Ok` if there are none; `format` holds what `wants` says.
    pub(crate) fn check(mut self, format: &'static str, wants: &'static str) -> Result<(), Error> {
        for (scheme, first, tensors) in self.schemes {
            let fault = Fault::NoPlace { scheme, tensors, wants };
            self.problems.push(Problem { at: None, subject: Subject::Tensor(first), fault });
        }
        // Whatever it is, the file is not there yet: it is the caller who asks for it.
        self.problems.check(Path::new(format)).map_err(|error| match error {
            Error::Malformed(report) | Error::Mismatch(report) | Error::Unsupported(report) => {
                Error::Misuse(report)
            }
            error => error,
        })
    }
}
