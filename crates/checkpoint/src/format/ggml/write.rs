//! whisper.cpp's `ggml-….bin`, written.
//!
//! Source: `whisper_model_load` of src/whisper.cpp in pywhispercpp 1.5.1, whose tensors have one type by their place: matrices that
//! of the file, vectors and positions f32, convolutions f16, or f32 where matrices are.

use std::sync::Arc;

use tensor::{Dtype, Scheme};

use super::{DIMS, FTYPE, MAGIC, MAX_NAME, NAME};
use crate::error::Error;
use crate::fault::Fault;
use crate::format::gguf::type_of;
use crate::format::openai::OpenaiMetadata;
use crate::write::{Flat, Outgoing, Refusals};

/// Types of matrices, and the number of a file of them: `ggml_ftype` of ggml/include/ggml.h.
static FILE_TYPES: &[(&str, i32)] = &[
    ("f32", 0),
    ("f16", 1),
    ("q4_0", 2),
    ("q4_1", 3),
    ("q8_0", 7),
    ("q5_0", 8),
    ("q5_1", 9),
    ("q2_k", 10),
    ("q3_k", 11),
    ("q4_k", 12),
    ("q5_k", 13),
    ("q6_k", 14),
];
/// `GGML_QNT_VERSION`, by which files of blocks differ, and its factor.
const QUANTISED: i32 = 2 * 1000;

/// Returns true if a file of whisper.cpp can hold matrices of this scheme.
pub fn ggml_holds(scheme: &Scheme) -> bool {
    file_type(scheme).is_some()
}

fn file_type(scheme: &Scheme) -> Option<i32> {
    FILE_TYPES.iter().find(|(name, _)| **name == *scheme.name).map(|(_, id)| *id)
}

/// The file of `tensors`, which says what `said` says; its own type is that of the tensors.
pub(crate) fn form(tensors: &[Outgoing], said: &OpenaiMetadata) -> Result<Flat, Error> {
    let matrices = type_of_most(tensors).unwrap_or_else(|| Scheme::plain(Dtype::F16));
    let mut refused = Refusals::default();
    let number = |n: u64| i32::try_from(n).unwrap_or(i32::MAX).to_le_bytes();
    let mut bytes = MAGIC.to_vec();
    for name in DIMS {
        let plain = matrices.dtype().is_some();
        let own = file_type(&matrices).map(|id| if plain { id } else { QUANTISED + id });
        let n = if name == FTYPE { own.map(Into::into) } else { said.dim(name) };
        bytes.extend(i32::try_from(n.unwrap_or(0)).unwrap_or(i32::MAX).to_le_bytes());
    }
    if let Some(filters) = said.filters() {
        bytes.extend(number(filters.bands));
        bytes.extend(number(filters.frequencies));
        bytes.extend(filters.factors.iter().flat_map(|x| x.to_le_bytes()));
    } else {
        bytes.extend([0; 8]);
    }
    bytes.extend(number(said.tokens().len() as u64));
    for token in said.tokens() {
        bytes.extend(number(token.len() as u64));
        bytes.extend(token);
    }
    let (mut between, mut offsets, mut start) = (vec![], vec![], 0u64);
    for tensor in tensors {
        let len = match head(&mut bytes, tensor, &matrices) {
            Ok(len) => len,
            Err(fault) => {
                refused.push(tensor, fault);
                continue;
            }
        };
        let at = start.saturating_add(bytes.len() as u64);
        between.push((start, std::mem::take(&mut bytes)));
        offsets.push(vec![at]);
        start = at.saturating_add(len);
    }
    refused.check(NAME, "a type of whisper.cpp")?;
    let head = if between.is_empty() { bytes } else { between.remove(0).1 };
    let len = start.max(head.len() as u64);
    Ok(Flat { head, between, offsets, len })
}

/// The scheme that whisper.cpp reads and that most matrices have, if there are any.
fn type_of_most(tensors: &[Outgoing]) -> Option<Arc<Scheme>> {
    let mut counts: Vec<(&Arc<Scheme>, usize)> = vec![];
    let matrices = tensors.iter().filter(|tensor| Kind::of(tensor) == Kind::Matrix);
    for scheme in matrices.map(|tensor| &tensor.scheme).filter(|scheme| ggml_holds(scheme)) {
        match counts.iter_mut().find(|(other, _)| other.name == scheme.name) {
            Some((_, count)) => *count += 1,
            None => counts.push((scheme, 1)),
        }
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(scheme, _)| Arc::clone(scheme))
}

/// The kinds of tensors that whisper.cpp tells apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Floats,
    Convolution,
    Matrix,
}

impl Kind {
    fn of(tensor: &Outgoing) -> Kind {
        match tensor.shape.len() {
            3.. => Kind::Convolution,
            2 if !tensor.name.ends_with("positional_embedding") => Kind::Matrix,
            _ => Kind::Floats,
        }
    }
}

/// Appends the header of a tensor, and returns the bytes of its data.
fn head(out: &mut Vec<u8>, tensor: &Outgoing, matrices: &Scheme) -> Result<u64, Fault> {
    let Outgoing { name, shape, scheme } = tensor;
    let (wanted, wants) = match Kind::of(tensor) {
        Kind::Floats => ("f32", "f32, as whisper.cpp reads vectors and positions"),
        Kind::Convolution if *matrices.name == *"f32" => {
            ("f32", "f32, as whisper.cpp reads convolutions where matrices are f32")
        }
        Kind::Convolution => ("f16", "f16, as whisper.cpp reads convolutions"),
        Kind::Matrix => (&*matrices.name, "the type of most matrices, since whisper.cpp reads one"),
    };
    let id = type_of(scheme).filter(|_| *scheme.name == *wanted);
    let Some(id) = id else { return Err(Fault::Value { wants, found: scheme.name.to_string() }) };
    let bytes = scheme.byte_len(shape).map_err(|why| Fault::geometry(shape, scheme, why))?;
    let largest = shape.iter().copied().max().unwrap_or(0);
    for (what, found, limit) in [
        ("length of a tensor's name", name.len() as u64, MAX_NAME),
        ("size of an axis", largest, i32::MAX as u64),
    ] {
        if found > limit {
            return Err(Fault::Limit { what, found, limit });
        }
    }
    let mut axes = shape.to_vec();
    if super::is_of_columns(name) && axes.len() == 1 {
        axes.push(1);
    }
    let number = |n: u64| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes();
    out.extend(number(axes.len() as u64));
    out.extend(number(name.len() as u64));
    out.extend(id.to_le_bytes());
    axes.iter().rev().for_each(|axis| out.extend(number(*axis)));
    out.extend(name.as_bytes());
    Ok(bytes)
}
