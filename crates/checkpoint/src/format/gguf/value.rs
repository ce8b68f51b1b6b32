//! Metadata values.

use std::fmt;

use super::array::Array;
use super::header::Notation;
use crate::error::Quoted;

/// The type of a metadata value or of an array's elements.
///
/// Source: `enum gguf_type`, ggml/include/gguf.h@0c1e57098.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueType {
    /// Unsigned byte.
    U8,
    /// Signed byte.
    I8,
    /// Unsigned 16-bit integer.
    U16,
    /// Signed 16-bit integer.
    I16,
    /// Unsigned 32-bit integer.
    U32,
    /// Signed 32-bit integer.
    I32,
    /// IEEE 754 binary32.
    F32,
    /// One byte; 0 is false.
    Bool,
    /// Length and bytes, meant to be UTF-8.
    Str,
    /// Element type, length, elements.
    Array,
    /// Unsigned 64-bit integer.
    U64,
    /// Signed 64-bit integer.
    I64,
    /// IEEE 754 binary64.
    F64,
}

impl ValueType {
    /// Every type, where its id says.
    const BY_ID: [ValueType; 13] = [
        ValueType::U8,
        ValueType::I8,
        ValueType::U16,
        ValueType::I16,
        ValueType::U32,
        ValueType::I32,
        ValueType::F32,
        ValueType::Bool,
        ValueType::Str,
        ValueType::Array,
        ValueType::U64,
        ValueType::I64,
        ValueType::F64,
    ];

    /// The type of an id in a file.
    pub(super) fn from_id(id: u32) -> Option<ValueType> {
        usize::try_from(id).ok().and_then(|id| Self::BY_ID.get(id)).copied()
    }

    /// The id in a file.
    pub(super) fn id(self) -> u32 {
        // The table has every type, and 13 of them.
        Self::BY_ID.iter().position(|t| *t == self).and_then(|id| u32::try_from(id).ok()).unwrap_or_default()
    }

    /// Bytes of one value; `None` for strings and arrays, whose length varies.
    pub const fn bytes(self) -> Option<u64> {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => Some(1),
            ValueType::U16 | ValueType::I16 => Some(2),
            ValueType::U32 | ValueType::I32 | ValueType::F32 => Some(4),
            ValueType::U64 | ValueType::I64 | ValueType::F64 => Some(8),
            ValueType::Str | ValueType::Array => None,
        }
    }

    /// Lower-case name, as llama.cpp prints it.
    pub const fn name(self) -> &'static str {
        match self {
            ValueType::U8 => "u8",
            ValueType::I8 => "i8",
            ValueType::U16 => "u16",
            ValueType::I16 => "i16",
            ValueType::U32 => "u32",
            ValueType::I32 => "i32",
            ValueType::F32 => "f32",
            ValueType::Bool => "bool",
            ValueType::Str => "str",
            ValueType::Array => "arr",
            ValueType::U64 => "u64",
            ValueType::I64 => "i64",
            ValueType::F64 => "f64",
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A metadata value, borrowed from the header.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// Unsigned byte.
    U8(u8),
    /// Signed byte.
    I8(i8),
    /// Unsigned 16-bit integer.
    U16(u16),
    /// Signed 16-bit integer.
    I16(i16),
    /// Unsigned 32-bit integer.
    U32(u32),
    /// Signed 32-bit integer.
    I32(i32),
    /// IEEE 754 binary32.
    F32(f32),
    /// Any byte but 0 is true.
    Bool(bool),
    /// Bytes that are meant to be UTF-8, unchecked.
    Str(&'a [u8]),
    /// An array whose elements are decoded on demand.
    Array(Array<'a>),
    /// Unsigned 64-bit integer.
    U64(u64),
    /// Signed 64-bit integer.
    I64(i64),
    /// IEEE 754 binary64.
    F64(f64),
}

impl<'a> Value<'a> {
    /// The value of a scalar type from its bytes; `None` for arrays and where bytes are missing.
    pub(super) fn scalar(kind: ValueType, bytes: &'a [u8], notation: Notation) -> Option<Value<'a>> {
        macro_rules! number {
            ($variant:ident, $type:ty) => {
                Value::$variant(<$type>::from_le_bytes(notation.little(*bytes.first_chunk()?)))
            };
        }
        Some(match kind {
            ValueType::U8 => number!(U8, u8),
            ValueType::I8 => number!(I8, i8),
            ValueType::U16 => number!(U16, u16),
            ValueType::I16 => number!(I16, i16),
            ValueType::U32 => number!(U32, u32),
            ValueType::I32 => number!(I32, i32),
            ValueType::F32 => number!(F32, f32),
            ValueType::U64 => number!(U64, u64),
            ValueType::I64 => number!(I64, i64),
            ValueType::F64 => number!(F64, f64),
            ValueType::Bool => Value::Bool(*bytes.first()? != 0),
            ValueType::Str => Value::Str(bytes),
            ValueType::Array => return None,
        })
    }

    /// Its type.
    pub const fn kind(&self) -> ValueType {
        match self {
            Value::U8(_) => ValueType::U8,
            Value::I8(_) => ValueType::I8,
            Value::U16(_) => ValueType::U16,
            Value::I16(_) => ValueType::I16,
            Value::U32(_) => ValueType::U32,
            Value::I32(_) => ValueType::I32,
            Value::F32(_) => ValueType::F32,
            Value::Bool(_) => ValueType::Bool,
            Value::Str(_) => ValueType::Str,
            Value::Array(_) => ValueType::Array,
            Value::U64(_) => ValueType::U64,
            Value::I64(_) => ValueType::I64,
            Value::F64(_) => ValueType::F64,
        }
    }

    /// The value of any integer type, if it is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Value::U8(v) => Some(v.into()),
            Value::U16(v) => Some(v.into()),
            Value::U32(v) => Some(v.into()),
            Value::U64(v) => Some(v),
            Value::I8(v) => v.try_into().ok(),
            Value::I16(v) => v.try_into().ok(),
            Value::I32(v) => v.try_into().ok(),
            Value::I64(v) => v.try_into().ok(),
            _ => None,
        }
    }

    /// The value of either float type.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Value::F32(v) => Some(v.into()),
            Value::F64(v) => Some(v),
            _ => None,
        }
    }
}

impl fmt::Display for Value<'_> {
    /// As in JSON, nearly: strings quoted and escaped, long ones cut, arrays by type and length.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::U8(v) => v.fmt(f),
            Value::I8(v) => v.fmt(f),
            Value::U16(v) => v.fmt(f),
            Value::I16(v) => v.fmt(f),
            Value::U32(v) => v.fmt(f),
            Value::I32(v) => v.fmt(f),
            Value::F32(v) => v.fmt(f),
            Value::Bool(v) => v.fmt(f),
            Value::U64(v) => v.fmt(f),
            Value::I64(v) => v.fmt(f),
            Value::F64(v) => v.fmt(f),
            Value::Str(v) => {
                // Only the start of a long text is shown; no need to decode the rest.
                let start = v.get(..512).unwrap_or(v);
                Quoted(&String::from_utf8_lossy(start)).fmt(f)
            }
            Value::Array(array) => write!(f, "[{}; {}]", array.element(), array.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_ids_are_those_of_gguf_h() {
        let names: Vec<_> = (0..14).map(|id| ValueType::from_id(id).map(ValueType::name)).collect();
        let wanted = "u8 i8 u16 i16 u32 i32 f32 bool str arr u64 i64 f64";
        assert_eq!(names[..13], wanted.split(' ').map(Some).collect::<Vec<_>>());
        assert_eq!(names[13], None);
        assert!((0..13).all(|id| ValueType::from_id(id).unwrap().id() == id));
    }

    #[test]
    fn integers_widen_unless_negative_and_floats_stay_apart() {
        assert_eq!(Value::I8(5).as_u64(), Some(5));
        assert_eq!(Value::I64(-1).as_u64(), None);
        assert_eq!(Value::F32(1.0).as_u64(), None);
        assert_eq!(Value::U32(1).as_f64(), None);
        assert_eq!(Value::F32(0.5).as_f64(), Some(0.5));
    }

    #[test]
    fn a_scalar_with_bytes_missing_is_none() {
        let scalar = |kind, bytes: &'static [u8]| Value::scalar(kind, bytes, Notation::default());
        assert_eq!(scalar(ValueType::U32, &[1, 0, 0]), None);
        assert_eq!(scalar(ValueType::U32, &[1, 0, 0, 0]), Some(Value::U32(1)));
        assert_eq!(scalar(ValueType::Bool, &[2]), Some(Value::Bool(true)));
    }
}
