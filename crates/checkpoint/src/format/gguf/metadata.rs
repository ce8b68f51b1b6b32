//! The metadata of a GGUF file, as its readers ask for it.

use storage::Location;

use super::Opening;
use super::array::{Array, Strings};
use super::header::Header;
use super::pairs::{Pair, Pairs};
use super::split::{self, Split};
use super::value::{Value, ValueType};
use crate::error::{Error, Problem, Subject};
use crate::fault::Fault;

/// The key-value pairs of a GGUF file; for a split model, those of its first file.
///
/// Values stay where they are, in the mapped file or in one buffer, and are decoded when asked for. A key
/// that is absent is `None`; one of another type than asked for is an error that names it, the file and the
/// byte offset.
#[derive(Debug)]
pub struct GgufMetadata {
    location: Location,
    version: u32,
    big_endian: bool,
    alignment: u64,
    data_start: u64,
    header: Header,
    pairs: Pairs,
}

impl GgufMetadata {
    pub(super) fn new(
        location: &Location,
        opening: &Opening,
        pairs: Pairs,
        alignment: u64,
        data_start: u64,
        header: Header,
    ) -> GgufMetadata {
        let Opening { version, notation, .. } = *opening;
        let (location, big_endian) = (location.to_owned(), notation.big);
        GgufMetadata { location, version, big_endian, alignment, data_start, header, pairs }
    }

    /// The version of the format: 1, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Whether the file has the most significant byte of a number first.
    pub fn big_endian(&self) -> bool {
        self.big_endian
    }

    /// The alignment of each tensor's data in bytes, a power of two.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// Byte offset of the data section.
    pub fn data_start(&self) -> u64 {
        self.data_start
    }

    /// The number of pairs.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All pairs, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        (0..self.len())
            .filter_map(|i| self.pairs.at(i))
            .map(|pair| (pair.key(&self.header), self.pairs.value(pair, &self.header)))
    }

    /// All keys, in the order of the file.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(key, _)| key)
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        self.pairs.find(&self.header, key).map(|pair| self.pairs.value(pair, &self.header))
    }

    /// A number of any integer type that is not negative.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if the value is another.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, Error> {
        self.typed(key, "a whole number that is not negative", |v| v.as_u64())
    }

    /// A number of either float type.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if the value is another.
    pub fn f64(&self, key: &str) -> Result<Option<f64>, Error> {
        self.typed(key, "a float", |v| v.as_f64())
    }

    /// A truth value.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if the value is another.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, Error> {
        self.typed(key, "a bool", |v| if let Value::Bool(v) = v { Some(v) } else { None })
    }

    /// A text.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if the value is another, [`Error::Malformed`] if it is not UTF-8.
    pub fn str(&self, key: &str) -> Result<Option<&str>, Error> {
        let bytes = self.typed(key, "a string", |v| if let Value::Str(v) = v { Some(v) } else { None })?;
        bytes.map(|bytes| self.utf8(key, bytes)).transpose()
    }

    /// An array of any element type.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if the value is not an array.
    pub fn array(&self, key: &str) -> Result<Option<Array<'_>>, Error> {
        self.typed(key, "an array", |v| if let Value::Array(v) = v { Some(v) } else { None })
    }

    /// An array of strings, as bytes: tokens need not be UTF-8.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if the value is another.
    pub fn strings(&self, key: &str) -> Result<Option<Strings<'_>>, Error> {
        self.elements(key, "an array of str", |array| array.strings())
    }

    /// An array of strings, each checked to be UTF-8 as it comes.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if the value is another; an element is [`Error::Malformed`] if it is not UTF-8.
    pub fn strs<'a>(
        &'a self,
        key: &'a str,
    ) -> Result<Option<impl Iterator<Item = Result<&'a str, Error>>>, Error> {
        let strings = self.strings(key)?;
        Ok(strings.map(|strings| strings.map(move |bytes| self.utf8(key, bytes))))
    }

    /// An array of `f32`.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if the value is another.
    pub fn f32s(&self, key: &str) -> Result<Option<impl ExactSizeIterator<Item = f32>>, Error> {
        self.elements(key, "an array of f32", |array| array.of(ValueType::F32, f32::from_le_bytes))
    }

    /// An array of `i32`.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if the value is another.
    pub fn i32s(&self, key: &str) -> Result<Option<impl ExactSizeIterator<Item = i32>>, Error> {
        self.elements(key, "an array of i32", |array| array.of(ValueType::I32, i32::from_le_bytes))
    }

    /// An array of `u32`.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if the value is another.
    pub fn u32s(&self, key: &str) -> Result<Option<impl ExactSizeIterator<Item = u32>>, Error> {
        self.elements(key, "an array of u32", |array| array.of(ValueType::U32, u32::from_le_bytes))
    }

    /// An array of `u8`, or of `i8` taken for such.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if the value is another.
    pub fn octets(&self, key: &str) -> Result<Option<&[u8]>, Error> {
        let octets = |array: Array<'_>| [ValueType::U8, ValueType::I8].contains(&array.element());
        self.elements(key, "an array of u8", |array| octets(array).then(|| array.bytes()))
    }

    /// An array of truth values.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if the value is another.
    pub fn bools(&self, key: &str) -> Result<Option<impl ExactSizeIterator<Item = bool>>, Error> {
        self.elements(key, "an array of bool", |array| array.of(ValueType::Bool, |[byte]| byte != 0))
    }

    /// The place of this file in a split model, if it is a part. A count of 0 says that parts were joined again
    /// (tools/gguf-split/gguf-split.cpp, `gguf_merge`).
    pub(super) fn split(&self) -> Result<Option<Split>, Error> {
        let count = self.u64(split::COUNT)?.unwrap_or(0);
        let (no, tensors) = (self.u64(split::NO)?, self.u64(split::TENSORS)?);
        Ok((count > 1).then_some(Split { no, count, tensors }))
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        wants: &'static str,
        read: impl FnOnce(Value<'a>) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(pair) = self.pairs.find(&self.header, key) else { return Ok(None) };
        let value = self.pairs.value(pair, &self.header);
        match read(value) {
            Some(read) => Ok(Some(read)),
            None => Err(self.wrong(key, wants, value)),
        }
    }

    fn elements<'a, T>(
        &'a self,
        key: &str,
        wants: &'static str,
        read: impl FnOnce(Array<'a>) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        self.typed(key, wants, |v| if let Value::Array(array) = v { read(array) } else { None })
    }

    fn wrong(&self, key: &str, wants: &'static str, value: Value<'_>) -> Error {
        let found = match value {
            Value::Array(_) => format!("{value}"),
            _ => format!("{} {value}", value.kind()),
        };
        self.problem(key, Fault::Type { wants, found }).of(&self.location)
    }

    fn utf8<'a>(&self, key: &str, bytes: &'a [u8]) -> Result<&'a str, Error> {
        std::str::from_utf8(bytes).map_err(|e| {
            self.problem(key, Fault::NotUtf8 { what: "string", valid: e.valid_up_to() }).of(&self.location)
        })
    }

    /// Returns `fault` as a problem of the value of `key`.
    pub(super) fn problem(&self, key: &str, fault: Fault) -> Problem {
        let at = self.pairs.find(&self.header, key).map(Pair::value_at);
        Problem { at, subject: Subject::Key(key.to_owned()), fault }
    }
}
