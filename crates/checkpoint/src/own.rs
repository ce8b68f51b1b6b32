//! Checkpoints of formats that are read elsewhere: the caller says which tensors lie where, and that is checked.

use std::sync::Arc;

use storage::{ByteSource, Location};
use tensor::{SchemeError, TensorEntry};

use crate::checkpoint::{Checkpoint, FormatName, Metadata};
use crate::contents::{Contents, File};
use crate::error::{Error, Problem, Problems, Subject};
use crate::fault::Fault;

impl Checkpoint {
    /// Creates a checkpoint from `entries` that the caller's own reader has found in `files`. Planes name files by
    /// their index. `format` is its name in messages. It has no metadata, so the caller specifies the model, with
    /// modules of its own or with rules.
    ///
    /// # Errors
    /// [`Error::Malformed`] with every invalid entry: a name that occurs twice, or planes that are not the scheme's,
    /// have the wrong length for its shape, or are not wholly inside their file.
    pub fn of_entries(
        location: Location,
        format: &'static str,
        files: Vec<(Location, Arc<dyn ByteSource>)>,
        entries: Vec<TensorEntry>,
    ) -> Result<Checkpoint, Error> {
        let files: Vec<File> = files.into_iter().map(|(at, source)| File::new(at, source)).collect();
        let mut problems = Problems::default();
        for entry in &entries {
            if let Err(fault) = fits(entry, &files) {
                let subject = Subject::Tensor(entry.name.clone());
                problems.push(Problem { at: None, subject, fault });
            }
        }
        let contents = Contents { files, ..Contents::default() }.and_entries(entries, &mut problems);
        problems.check(&location)?;
        Ok(Checkpoint::new(location, FormatName::new(format), contents, Metadata::None))
    }
}

/// Checks that the planes of `entry` match its scheme and are inside `files`.
fn fits(entry: &TensorEntry, files: &[File]) -> Result<(), Fault> {
    let TensorEntry { shape, scheme, planes, strides, name } = entry;
    if strides.is_some() {
        let what = "has strides, which formats of a caller's own do not have".to_owned();
        return Err(Fault::Unsupported { what });
    }
    if let Some(fault) = Fault::of_name(name.as_bytes(), "tensor name") {
        return Err(fault);
    }
    let geometry =
        |why: SchemeError| Fault::Geometry { shape: shape.clone(), scheme: scheme.to_string(), why };
    scheme.byte_len(shape).map_err(geometry)?;
    if planes.len() != scheme.planes.len() {
        let (wants, found) = (scheme.planes.len() as u64, planes.len() as u64);
        return Err(Fault::Limit { what: "number of planes", found, limit: wants });
    }
    for (plane, spec) in planes.iter().zip(scheme.planes.iter()) {
        let wants = scheme.plane_bytes(spec, shape).map_err(geometry)?;
        let found = plane.bytes.end.saturating_sub(plane.bytes.start);
        if wants != found {
            return Err(Fault::Extent { shape: shape.clone(), scheme: scheme.to_string(), wants, found });
        }
        let len = files.get(plane.file.0 as usize).map_or(0, |file| file.len);
        if plane.bytes.end > len {
            let found = len.saturating_sub(plane.bytes.start);
            return Err(Fault::Ends { what: "a tensor", wants, found });
        }
    }
    Ok(())
}
