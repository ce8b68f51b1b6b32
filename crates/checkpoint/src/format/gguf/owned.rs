//! Metadata values that own what they say, for files that are to be written.

use super::array::Array;
use super::header::Notation;
use super::value::{Value, ValueType};

/// A metadata value that is not borrowed from a file.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueBuf {
    /// Unsigned 32-bit integer, which most counts in GGUF are.
    U32(u32),
    /// Unsigned 64-bit integer.
    U64(u64),
    /// IEEE 754 binary32.
    F32(f32),
    /// True or false.
    Bool(bool),
    /// A string.
    Str(String),
    /// An array.
    Array(ArrayBuf),
}

impl ValueBuf {
    /// The value, borrowed.
    pub fn borrow(&self) -> Value<'_> {
        match self {
            ValueBuf::U32(n) => Value::U32(*n),
            ValueBuf::U64(n) => Value::U64(*n),
            ValueBuf::F32(x) => Value::F32(*x),
            ValueBuf::Bool(b) => Value::Bool(*b),
            ValueBuf::Str(text) => Value::Str(text.as_bytes()),
            ValueBuf::Array(array) => {
                Value::Array(Array::new(array.element, array.len, &array.bytes, Notation::default()))
            }
        }
    }
}

/// An array as version 3 has it.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayBuf {
    element: ValueType,
    len: u64,
    bytes: Vec<u8>,
}

impl ArrayBuf {
    /// An array of strings.
    pub fn strings<S: AsRef<[u8]>>(strings: impl IntoIterator<Item = S>) -> ArrayBuf {
        let (mut len, mut bytes) = (0, Vec::new());
        for text in strings {
            let text = text.as_ref();
            bytes.extend((text.len() as u64).to_le_bytes());
            bytes.extend(text);
            len += 1;
        }
        ArrayBuf { element: ValueType::Str, len, bytes }
    }

    /// An array of `u8`.
    pub fn octets(values: &[u8]) -> ArrayBuf {
        ArrayBuf { element: ValueType::U8, len: values.len() as u64, bytes: values.to_vec() }
    }

    /// An array of `bool`.
    pub fn bools(values: &[bool]) -> ArrayBuf {
        let bytes = values.iter().map(|v| u8::from(*v)).collect();
        ArrayBuf { element: ValueType::Bool, len: values.len() as u64, bytes }
    }

    /// An array of `i32`.
    pub fn i32s(values: &[i32]) -> ArrayBuf {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        ArrayBuf { element: ValueType::I32, len: values.len() as u64, bytes }
    }

    /// An array of `f32`.
    pub fn f32s(values: &[f32]) -> ArrayBuf {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        ArrayBuf { element: ValueType::F32, len: values.len() as u64, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_read_as_they_were_made() {
        let strings = ValueBuf::Array(ArrayBuf::strings(["a", "", "bc"]));
        let Value::Array(array) = strings.borrow() else { panic!("an array") };
        assert_eq!(array.strings().unwrap().collect::<Vec<_>>(), [&b"a"[..], b"", b"bc"]);
        let numbers = ValueBuf::Array(ArrayBuf::i32s(&[-1, 7]));
        let Value::Array(array) = numbers.borrow() else { panic!("an array") };
        assert_eq!(array.values().collect::<Vec<_>>(), [Value::I32(-1), Value::I32(7)]);
        let numbers = ValueBuf::Array(ArrayBuf::f32s(&[0.5]));
        let Value::Array(array) = numbers.borrow() else { panic!("an array") };
        assert_eq!((array.len(), array.values().collect::<Vec<_>>()), (1, vec![Value::F32(0.5)]));
    }
}
