//! Metadata arrays, decoded element by element on demand.

use super::header::Notation;
use super::value::{Value, ValueType};

/// A metadata array: its header is checked, its elements are decoded as they are asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Array<'a> {
    element: ValueType,
    len: u64,
    bytes: &'a [u8],
    notation: Notation,
}

impl<'a> Array<'a> {
    /// `bytes` are `len` elements, as the header was found to have.
    pub(super) fn new(element: ValueType, len: u64, bytes: &'a [u8], notation: Notation) -> Array<'a> {
        Array { element, len, bytes, notation }
    }

    /// The type of its elements; never [`ValueType::Array`].
    pub fn element(&self) -> ValueType {
        self.element
    }

    /// The number of elements.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements as they stand in the file: numbers in its byte order, or strings with a length each, of
    /// eight bytes, or of four in version 1.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The elements of an array of strings. UTF-8 is not checked.
    pub fn strings(&self) -> Option<Strings<'a>> {
        (self.element == ValueType::Str).then_some(Strings {
            rest: self.bytes,
            left: self.len,
            notation: self.notation,
        })
    }

    /// Returns the elements, of any type.
    pub fn values(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let (kind, notation) = (self.element, self.notation);
        let width = kind.bytes().and_then(|b| usize::try_from(b).ok());
        let numbers = width.map(|w| self.bytes.chunks_exact(w)).into_iter().flatten();
        let numbers = numbers.filter_map(move |bytes| Value::scalar(kind, bytes, notation));
        numbers.chain(self.strings().into_iter().flatten().map(Value::Str))
    }

    /// Whether [`Array::bytes`] are as version 3 has them, little-endian.
    pub(super) fn is_usual(&self) -> bool {
        self.notation == Notation::default()
    }

    /// The elements, if they are of the given type.
    pub(super) fn of<const N: usize, T>(
        &self,
        element: ValueType,
        from: fn([u8; N]) -> T,
    ) -> Option<impl ExactSizeIterator<Item = T> + use<'a, N, T>> {
        let (chunks, notation) = (self.bytes.as_chunks::<N>().0, self.notation);
        (self.element == element).then(|| chunks.iter().map(move |bytes| from(notation.little(*bytes))))
    }
}

/// The elements of an array of strings, as bytes that are meant to be UTF-8.
#[derive(Clone, Debug)]
pub struct Strings<'a> {
    rest: &'a [u8],
    left: u64,
    notation: Notation,
}

impl<'a> Iterator for Strings<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.left == 0 {
            return None;
        }
        // The bounds were checked when the file was opened, and are again: another process may have
        // written to a mapped file since.
        let (len, rest) = self.notation.length(self.rest)?;
        let (text, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
        self.rest = rest;
        self.left -= 1;
        Some(text)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // Each string takes at least the bytes of its length, four of them.
        let most = self.rest.len() / 4;
        let left = usize::try_from(self.left).map_or(most, |left| left.min(most));
        (left, Some(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_end_quietly_where_a_length_lies() {
        let bytes = [&1u64.to_le_bytes()[..], b"a", &u64::MAX.to_le_bytes(), b"b"].concat();
        let array = Array::new(ValueType::Str, 2, &bytes, Notation::default());
        assert_eq!(array.strings().unwrap().collect::<Vec<_>>(), [b"a"]);
        assert_eq!(array.values().collect::<Vec<_>>(), [Value::Str(b"a")]);
    }

    #[test]
    fn values_decode_each_element() {
        let array = Array::new(ValueType::I16, 2, &[1, 0, 255, 255], Notation::default());
        assert_eq!(array.values().collect::<Vec<_>>(), [Value::I16(1), Value::I16(-1)]);
        assert_eq!(array.strings().map(|_| ()), None);
    }
    #[test]
    fn numbers_and_lengths_as_they_are_written() {
        let notation = Notation { big: true, narrow: true };
        let array = Array::new(ValueType::I16, 2, &[0, 1, 255, 254], notation);
        assert_eq!(array.values().collect::<Vec<_>>(), [Value::I16(1), Value::I16(-2)]);
        assert_eq!(array.of(ValueType::I16, i16::from_le_bytes).unwrap().collect::<Vec<_>>(), [1, -2]);
        let strings = Array::new(ValueType::Str, 2, b"\0\0\0\x01a\0\0\0\0", notation).strings().unwrap();
        assert_eq!(strings.collect::<Vec<_>>(), [&b"a"[..], b""]);
    }
}
