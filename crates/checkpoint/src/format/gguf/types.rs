//! Tensor types: ids and the schemes they stand for.

use std::sync::Arc;

use tensor::Scheme;

use super::header::Notation;
use crate::fault::Fault;
use crate::format;

/// Ids from here on are damage, not news: there were 43 in the first three years.
const NEVER: u32 = 256;

/// The scheme of a type id.
enum Id {
    /// The scheme of this name.
    Scheme(&'static str),
    /// A type that ggml had once: its name there.
    Removed(&'static str, &'static str),
}

const REQUANTISE: &str = "quantise the model again from its original weights";
const REPACK: &str = "get it as Q4_0; runtimes repack that themselves";
const REPACK_NL: &str = "get it as IQ4_NL; runtimes repack that themselves";

/// Every id from 0.
///
/// Source: `enum ggml_type`, ggml/include/ggml.h@0c1e57098.
static BY_ID: [Id; 43] = [
    Id::Scheme("f32"),
    Id::Scheme("f16"),
    Id::Scheme("q4_0"),
    Id::Scheme("q4_1"),
    Id::Removed("Q4_2", REQUANTISE),
    Id::Removed("Q4_3", REQUANTISE),
    Id::Scheme("q5_0"),
    Id::Scheme("q5_1"),
    Id::Scheme("q8_0"),
    Id::Scheme("q8_1"),
    Id::Scheme("q2_k"),
    Id::Scheme("q3_k"),
    Id::Scheme("q4_k"),
    Id::Scheme("q5_k"),
    Id::Scheme("q6_k"),
    Id::Scheme("q8_k"),
    Id::Scheme("iq2_xxs"),
    Id::Scheme("iq2_xs"),
    Id::Scheme("iq3_xxs"),
    Id::Scheme("iq1_s"),
    Id::Scheme("iq4_nl"),
    Id::Scheme("iq3_s"),
    Id::Scheme("iq2_s"),
    Id::Scheme("iq4_xs"),
    Id::Scheme("i8"),
    Id::Scheme("i16"),
    Id::Scheme("i32"),
    Id::Scheme("i64"),
    Id::Scheme("f64"),
    Id::Scheme("iq1_m"),
    Id::Scheme("bf16"),
    Id::Removed("Q4_0_4_4", REPACK),
    Id::Removed("Q4_0_4_8", REPACK),
    Id::Removed("Q4_0_8_8", REPACK),
    Id::Scheme("tq1_0"),
    Id::Scheme("tq2_0"),
    Id::Removed("IQ4_NL_4_4", REPACK_NL),
    Id::Removed("IQ4_NL_4_8", REPACK_NL),
    Id::Removed("IQ4_NL_8_8", REPACK_NL),
    Id::Scheme("mxfp4"),
    Id::Scheme("nvfp4"),
    Id::Scheme("q1_0"),
    Id::Scheme("q2_0"),
];

/// The id of the scheme called `name`.
pub(super) fn id(name: &str) -> Option<u32> {
    let found = BY_ID.iter().position(|id| matches!(id, Id::Scheme(n) if *n == name));
    found.and_then(|id| u32::try_from(id).ok())
}

/// The schemes of type ids, each made once.
#[derive(Debug)]
pub(super) struct Types {
    known: Vec<(u32, Arc<Scheme>)>,
    notation: Notation,
}

impl Types {
    pub(super) fn of(notation: Notation) -> Types {
        Types { known: Vec::new(), notation }
    }

    /// The scheme of a type id in a file.
    pub(super) fn scheme(&mut self, id: u32) -> Result<Arc<Scheme>, Fault> {
        if let Some((_, scheme)) = self.known.iter().find(|(known, _)| *known == id) {
            return Ok(Arc::clone(scheme));
        }
        let scheme = match BY_ID.get(id as usize) {
            Some(Id::Scheme(name)) => {
                quant::scheme(name).ok_or_else(|| Fault::TypeUnsupported { name: (*name).to_owned() })?
            }
            Some(Id::Removed(name, instead)) => {
                return Err(Fault::TypeRemoved { id, name, instead });
            }
            None if id < NEVER => {
                let what = format!("has type {id}, which is newer than 42, the last that is known");
                return Err(Fault::Unsupported { what });
            }
            None => {
                let found = id.cast_signed().to_string();
                return Err(Fault::Value { wants: "a tensor type from 0 to 42", found });
            }
        };
        // There is no big-endian form of blocks: gguf-py writes them unchanged on a little-endian machine
        // (gguf-py/gguf/gguf_writer.py, `add_tensor`), its `gguf_convert_endian.py` swaps their scales.
        let scheme = if self.notation.big { format::big_endian(&scheme) } else { scheme };
        self.known.push((id, Arc::clone(&scheme)));
        Ok(scheme)
    }
}
