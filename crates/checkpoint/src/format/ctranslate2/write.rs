//! CTranslate2's `model.bin`, written: version 6, attributes first, then tensors, then aliases.
//!
//! Source: python/ctranslate2/specs/model_spec.py (`ModelSpec._serialize`) of CTranslate2 4.8.5. Variables come in the order of the
//! tensors; src/models/model.cc keeps them by name.

use tensor::{Dtype, Scheme, Shape};

use super::{MAX_AXES, NAME, NEWEST, TYPES};
use crate::error::Error;
use crate::fault::Fault;
use crate::write::{Flat, Outgoing, Refusals};

/// The content of a directory of CTranslate2 beside its tensors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ctranslate2Files {
    /// The name of the specification: `WhisperSpec`.
    pub spec: String,
    /// Its revision.
    pub revision: u32,
    /// Variables of one number.
    pub attributes: Vec<(String, Attribute)>,
    /// Other names of tensors: the name, and the tensor that it stands for.
    pub aliases: Vec<(String, String)>,
    /// Files beside the weights: name and content.
    pub members: Vec<(String, Vec<u8>)>,
}

/// The value of a variable of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// A flag, or a number of a list.
    I8(i8),
    /// A count.
    I16(i16),
}

/// The longest name, without the NUL that ends it.
const MAX_NAME: u64 = u16::MAX as u64 - 1;

/// Returns true if a file of CTranslate2 can hold tensors of this scheme.
pub fn ctranslate2_holds(scheme: &Scheme) -> bool {
    match scheme.dtype() {
        Some(dtype) => TYPES.contains(&dtype),
        None => scheme.name.starts_with("ctranslate2-"),
    }
}

/// The file of `tensors`. A weight of codes is two variables.
pub(crate) fn form(tensors: &[Outgoing], files: &Ctranslate2Files) -> Result<Flat, Error> {
    let mut refused = Refusals::default();
    let mut variables = vec![];
    for tensor in tensors {
        match of(tensor) {
            Ok(parts) => variables.push(parts),
            Err(Some(fault)) => refused.push(tensor, fault),
            Err(None) => refused.scheme(tensor),
        }
    }
    refused.check(NAME, "f32, f16, bf16, i8, i16 or i32, or codes of its own")?;

    let mut bytes = NEWEST.to_le_bytes().to_vec();
    text(&mut bytes, &files.spec);
    bytes.extend(files.revision.to_le_bytes());
    let count = variables.iter().map(Vec::len).sum::<usize>() + files.attributes.len();
    bytes.extend(count_of(count).to_le_bytes());
    for (name, value) in &files.attributes {
        let (dtype, value) = match value {
            Attribute::I8(value) => (Dtype::I8, value.to_le_bytes().to_vec()),
            Attribute::I16(value) => (Dtype::I16, value.to_le_bytes().to_vec()),
        };
        variable(
            &mut bytes,
            &Variable { name: name.clone(), shape: Shape::from([]), dtype, bytes: value.len() as u64 },
        );
        bytes.extend(value);
    }
    // The bytes before each plane, and after the last.
    let (mut between, mut offsets, mut start) = (vec![], vec![], 0u64);
    for parts in &variables {
        let mut planes = vec![];
        for part in parts {
            variable(&mut bytes, part);
            let at = start.saturating_add(bytes.len() as u64);
            between.push((start, std::mem::take(&mut bytes)));
            planes.push(at);
            start = at.saturating_add(part.bytes);
        }
        offsets.push(planes);
    }
    bytes.extend(count_of(files.aliases.len()).to_le_bytes());
    for (alias, of) in &files.aliases {
        text(&mut bytes, alias);
        text(&mut bytes, of);
    }
    let len = start.saturating_add(bytes.len() as u64);
    between.push((start, bytes));
    let (_, head) = between.remove(0);
    Ok(Flat { head, between, offsets, len })
}

/// A variable of data.
struct Variable {
    name: String,
    shape: Shape,
    dtype: Dtype,
    bytes: u64,
}

/// The variables of a tensor, or what is wrong: with its scheme if nothing else.
fn of(tensor: &Outgoing) -> Result<Vec<Variable>, Option<Fault>> {
    let Outgoing { name, shape, scheme } = tensor;
    if !ctranslate2_holds(scheme) {
        return Err(None);
    }
    scheme.byte_len(shape).map_err(|why| Some(Fault::geometry(shape, scheme, why)))?;
    let parts = match scheme.dtype() {
        Some(dtype) => vec![(String::new(), dtype, shape.clone())],
        None => quant::codec(&scheme.name)
            .map(|codec| codec.parts(shape))
            .unwrap_or_default()
            .into_iter()
            .map(|part| (part.suffix.to_owned(), part.dtype, part.shape))
            .collect(),
    };
    parts
        .into_iter()
        .zip(&*scheme.planes)
        .map(|((suffix, dtype, part), plane)| {
            let bytes = scheme.plane_bytes(plane, shape).unwrap_or(0);
            let of = Variable { name: format!("{name}{suffix}"), shape: part, dtype, bytes };
            let largest = of.shape.iter().copied().chain([bytes]).max().unwrap_or(0);
            for (what, found, limit) in [
                ("length of a tensor's name", of.name.len() as u64, MAX_NAME),
                ("size of a tensor", largest, u32::MAX.into()),
                ("number of dimensions", of.shape.len() as u64, MAX_AXES),
            ] {
                if found > limit {
                    return Err(Some(Fault::Limit { what, found, limit }));
                }
            }
            Ok(of)
        })
        .collect()
}

fn variable(out: &mut Vec<u8>, variable: &Variable) {
    text(out, &variable.name);
    out.push(u8::try_from(variable.shape.len()).unwrap_or(u8::MAX));
    for axis in &*variable.shape {
        out.extend(u32::try_from(*axis).unwrap_or(u32::MAX).to_le_bytes());
    }
    let id = TYPES.iter().position(|dtype| *dtype == variable.dtype).unwrap_or(0);
    out.push(u8::try_from(id).unwrap_or(0));
    out.extend(u32::try_from(variable.bytes).unwrap_or(u32::MAX).to_le_bytes());
}

fn text(out: &mut Vec<u8>, text: &str) {
    let len = u16::try_from(text.len() + 1).unwrap_or(u16::MAX);
    out.extend(len.to_le_bytes());
    out.extend(text.as_bytes());
    out.push(0);
}

fn count_of(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
