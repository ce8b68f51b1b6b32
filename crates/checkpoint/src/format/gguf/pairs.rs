//! The key-value pairs: where each is in the header, found sound but not decoded.

use std::ops::Range;

use super::array::Array;
use super::header::{Cursor, Header, Notation, Stop};
use super::value::{Value, ValueType};
use crate::error::{Problem, Problems, Subject};
use crate::fault::Fault;
use crate::index::NameIndex;

/// Keys are at most this long (docs/gguf.md, `gguf_metadata_kv_t`).
const MAX_KEY: u64 = 65_535;
/// Arrays have at most this many elements (gguf.cpp, `GGUF_MAX_ARRAY_ELEMENTS`).
const MAX_ARRAY: u64 = 1 << 30;
/// Alignment of tensor data if no key says another (gguf.h, `GGUF_DEFAULT_ALIGNMENT`).
const DEFAULT_ALIGNMENT: u64 = 32;

/// One key and its value, as ranges of the header.
#[derive(Debug)]
pub(super) struct Pair {
    key: Range<u64>,
    kind: ValueType,
    /// Element type and number of elements of an array.
    array: Option<(ValueType, u64)>,
    /// A scalar's or a string's bytes, or an array's elements.
    value: Range<u64>,
}

/// All pairs, in the order of the file.
#[derive(Debug)]
pub(super) struct Pairs {
    list: Vec<Pair>,
    by_key: NameIndex,
    notation: Notation,
}

impl Pairs {
    pub(super) fn parse(cursor: &mut Cursor, count: u64, problems: &mut Problems) -> Result<Pairs, Stop> {
        let notation = cursor.notation;
        // An empty key, a type, one byte.
        let count = cursor.check_count("key-value pairs", count, notation.length_bytes() + 4 + 1)?;
        let mut pairs = Pairs { list: Vec::new(), by_key: NameIndex::default(), notation };
        for id in 0..count {
            let at = cursor.at();
            let pair = Pair::parse(cursor, problems)?;
            pairs.list.push(pair);
            let header = cursor.header();
            let first = pairs.by_key.insert(id, |i| key_of(&pairs.list, header, i));
            if let Some(first) = first {
                let key = text(key_of(&pairs.list, header, id));
                let first =
                    pairs.list.get(first as usize).map_or(0, |p| p.key.start - notation.length_bytes());
                problems.push(Problem {
                    at: Some(at),
                    subject: Subject::Key(key),
                    fault: Fault::Duplicate { first },
                });
            }
            if problems.enough() {
                return Err(Stop::Enough);
            }
        }
        Ok(pairs)
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// The pair at a position.
    pub(super) fn at(&self, id: usize) -> Option<&Pair> {
        self.list.get(id)
    }

    pub(super) fn find(&self, header: &Header, key: &str) -> Option<&Pair> {
        let id = self.by_key.find(key.as_bytes(), |i| key_of(&self.list, header, i))?;
        self.list.get(id as usize)
    }

    /// The value of one of these pairs.
    pub(super) fn value<'h>(&self, pair: &Pair, header: &'h Header) -> Value<'h> {
        let bytes = header.get(&pair.value);
        match pair.array {
            Some((element, len)) => Value::Array(Array::new(element, len, bytes, self.notation)),
            None => Value::scalar(pair.kind, bytes, self.notation).unwrap_or(Value::Str(bytes)),
        }
    }

    /// `general.alignment`, a power of two.
    pub(super) fn alignment(&self, header: &Header, problems: &mut Problems) -> u64 {
        const KEY: &str = "general.alignment";
        let Some(pair) = self.find(header, KEY) else { return DEFAULT_ALIGNMENT };
        let mut wrong = |fault| {
            let subject = Subject::Key(KEY.to_owned());
            problems.push(Problem { at: Some(pair.value_at()), subject, fault });
            DEFAULT_ALIGNMENT
        };
        match self.value(pair, header) {
            Value::U32(alignment) if alignment.is_power_of_two() => alignment.into(),
            Value::U32(other) => wrong(Fault::Value { wants: "a power of two", found: other.to_string() }),
            other => wrong(Fault::Value { wants: "type u32", found: format!("{} {other}", other.kind()) }),
        }
    }
}

impl Pair {
    fn parse(cursor: &mut Cursor, problems: &mut Problems) -> Result<Pair, Stop> {
        let at = cursor.at();
        let key = cursor.string("a key")?;
        let subject = |cursor: &Cursor| Subject::Key(text(cursor.header().get(&key)));
        let len = key.end - key.start;
        if len > MAX_KEY {
            let fault = Fault::Limit { what: "key length in bytes", found: len, limit: MAX_KEY };
            return Err(Stop::at(at, fault).about(|| subject(cursor)));
        }
        if let Some(fault) = Fault::of_name(cursor.header().get(&key), "key") {
            problems.push(Problem { at: Some(at), subject: subject(cursor), fault });
        }
        let value = Self::parse_value(cursor).map_err(|stop| stop.about(|| subject(cursor)));
        let (kind, array, value) = value?;
        Ok(Pair { key, kind, array, value })
    }

    #[expect(clippy::type_complexity, reason = "the three fields of `Pair`, once")]
    fn parse_value(cursor: &mut Cursor) -> Result<(ValueType, Option<(ValueType, u64)>, Range<u64>), Stop> {
        const WHAT: &str = "a value";
        let kind = parse_type(cursor)?;
        if kind != ValueType::Array {
            let value = match kind.bytes() {
                Some(bytes) => cursor.take(bytes, WHAT)?,
                None => cursor.string(WHAT)?,
            };
            return Ok((kind, None, value));
        }
        let at = cursor.at();
        let element = parse_type(cursor)?;
        if element == ValueType::Array {
            let what = "an array of arrays is not read".to_owned();
            return Err(Stop::at(at, Fault::Unsupported { what }));
        }
        let at = cursor.at();
        let len = cursor.length(WHAT)?;
        if len > MAX_ARRAY {
            let fault = Fault::Limit { what: "number of elements", found: len, limit: MAX_ARRAY };
            return Err(Stop::at(at, fault));
        }
        let value = if let Some(bytes) = element.bytes() {
            cursor.take(len * bytes, "an array")?
        } else {
            let start = cursor.at();
            cursor.strings(len, "an array of strings")?;
            start..cursor.at()
        };
        Ok((kind, Some((element, len)), value))
    }

    /// The key.
    pub(super) fn key<'h>(&self, header: &'h Header) -> &'h str {
        // Checked when it was parsed; empty if another process has written to the mapped file since.
        std::str::from_utf8(header.get(&self.key)).unwrap_or_default()
    }

    /// Byte offset of the value in the file.
    pub(super) fn value_at(&self) -> u64 {
        self.value.start
    }
}

fn parse_type(cursor: &mut Cursor) -> Result<ValueType, Stop> {
    let at = cursor.at();
    let id = cursor.u32("a value type")?;
    ValueType::from_id(id).ok_or_else(|| {
        let found = id.cast_signed().to_string();
        Stop::at(at, Fault::Value { wants: "a value type from 0 to 12", found })
    })
}

/// A name as text, for a report.
pub(super) fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name.get(..512).unwrap_or(name)).into_owned()
}

fn key_of<'h>(pairs: &[Pair], header: &'h Header, id: u32) -> &'h [u8] {
    pairs.get(id as usize).map_or(&[], |p| header.get(&p.key))
}
