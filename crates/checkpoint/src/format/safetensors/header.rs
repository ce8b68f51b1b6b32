//! The JSON header, read strictly: `serde_json::Value` would hide keys that are there twice.

use std::collections::HashSet;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use tensor::Dtype;

use crate::error::Quoted;
use crate::fault::Fault;

/// The name that is no tensor.
const METADATA: &str = "__metadata__";

/// The contents of a header, in its order.
#[derive(Debug, Default)]
pub(super) struct Header {
    pub(super) tensors: Vec<Info>,
    /// `__metadata__`.
    pub(super) metadata: Vec<(String, String)>,
    /// Keys of `__metadata__` that are there more than once.
    pub(super) doubled: Vec<String>,
}

/// One tensor, as the header has it.
#[derive(Debug)]
pub(super) struct Info {
    pub(super) name: String,
    pub(super) dtype: HeaderDtype,
    /// Slowest axis first.
    pub(super) shape: Vec<u64>,
    /// First byte and byte after the last, from the start of the data section.
    pub(super) offsets: (u64, u64),
}

impl Header {
    /// Parses a header; an error comes with its byte offset in `json`.
    pub(super) fn parse(json: &[u8]) -> Result<Header, (Option<u64>, Fault)> {
        // "The header data MUST begin with a { character (0x7B). The header data MAY be trailing padded
        // with whitespace (0x20)." (README.md, Format)
        if json.first() != Some(&b'{') {
            let found = json.first().map_or("nothing".to_owned(), |b| format!("byte {b:#04x}"));
            return Err((Some(0), Fault::Value { wants: "a header that starts with `{`", found }));
        }
        let last = json.iter().rposition(|b| *b != b' ').unwrap_or(0);
        match json.get(last) {
            Some(b'}') => {}
            other => {
                let found = other.map_or("nothing".to_owned(), |b| format!("byte {b:#04x}"));
                let wants = "a header that ends with `}` and spaces";
                return Err((Some(last as u64), Fault::Value { wants, found }));
            }
        }
        serde_json::from_slice(json).map_err(|e| Fault::json("the header", json, 0, &e))
    }
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tensors;
        impl<'de> Visitor<'de> for Tensors {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut header = Header::default();
                let mut metadata = None;
                while let Some(name) = map.next_key::<String>()? {
                    if name == METADATA {
                        if metadata.replace(map.next_value::<Pairs>()?).is_some() {
                            return Err(de::Error::custom("`__metadata__` is there twice"));
                        }
                    } else {
                        let Fields { dtype, shape, offsets } = map.next_value()?;
                        header.tensors.push(Info { name, dtype, shape, offsets });
                    }
                }
                let Pairs { list, doubled } = metadata.unwrap_or_default();
                Ok(Header { metadata: list, doubled, ..header })
            }
        }
        deserializer.deserialize_map(Tensors)
    }
}

/// A map of text to text, as `__metadata__` is.
#[derive(Default)]
pub(crate) struct Pairs {
    /// In the order of the file.
    pub(crate) list: Vec<(String, String)>,
    /// Keys that are there again.
    pub(crate) doubled: Vec<String>,
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts;
        impl<'de> Visitor<'de> for Texts {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Pairs::default();
                let mut seen = HashSet::new();
                while let Some((key, value)) = map.next_entry::<String, String>()? {
                    if !seen.insert(key.clone()) {
                        pairs.doubled.push(key.clone());
                    }
                    pairs.list.push((key, value));
                }
                Ok(pairs)
            }
        }
        deserializer.deserialize_map(Texts)
    }
}

/// Source: `enum Dtype`, safetensors/src/tensor.rs at 0.8.0.
static NAMES: &[(&str, Dtype)] = &[
    ("BOOL", Dtype::Bool),
    ("U8", Dtype::U8),
    ("I8", Dtype::I8),
    ("F8_E5M2", Dtype::F8E5M2),
    ("F8_E4M3", Dtype::F8E4M3),
    ("F8_E8M0", Dtype::F8E8M0),
    ("F8_E4M3FNUZ", Dtype::F8E4M3FNUZ),
    ("F8_E5M2FNUZ", Dtype::F8E5M2FNUZ),
    ("I16", Dtype::I16),
    ("U16", Dtype::U16),
    ("F16", Dtype::F16),
    ("BF16", Dtype::BF16),
    ("I32", Dtype::I32),
    ("U32", Dtype::U32),
    ("F32", Dtype::F32),
    ("C64", Dtype::C64),
    ("F64", Dtype::F64),
    ("I64", Dtype::I64),
    ("U64", Dtype::U64),
];

/// A dtype by its name in the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HeaderDtype {
    /// One that has a scheme.
    Plain(Dtype),
    /// Another, or none at all.
    Other(String),
}

impl HeaderDtype {
    fn of(name: &str) -> HeaderDtype {
        let known = NAMES.iter().find(|(n, _)| *n == name);
        known.map_or_else(|| HeaderDtype::Other(name.to_owned()), |(_, dtype)| HeaderDtype::Plain(*dtype))
    }

    /// The name of a dtype in a header. There is one for each.
    pub(super) fn name(dtype: Dtype) -> &'static str {
        NAMES.iter().find(|(_, d)| *d == dtype).map_or("", |(name, _)| name)
    }

    /// The dtype, if it has a scheme.
    pub(super) fn dtype(&self) -> Result<Dtype, Fault> {
        match self {
            HeaderDtype::Plain(dtype) => Ok(*dtype),
            HeaderDtype::Other(name) if ["F4", "F6_E2M3", "F6_E3M2"].contains(&name.as_str()) => {
                Err(Fault::TypeUnsupported { name: name.clone() })
            }
            HeaderDtype::Other(name) => {
                let found = Quoted(name).to_string();
                Err(Fault::Value { wants: "a dtype of safetensors 0.8", found })
            }
        }
    }
}

impl<'de> Deserialize<'de> for HeaderDtype {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = HeaderDtype;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a dtype")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<HeaderDtype, E> {
                Ok(HeaderDtype::of(name))
            }
        }
        deserializer.deserialize_str(Name)
    }
}

/// The name of a field of a tensor.
#[derive(Clone, Copy, serde::Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Field {
    Dtype,
    Shape,
    DataOffsets,
}

/// The three fields of a tensor, in any order, each once, and no other.
struct Fields {
    dtype: HeaderDtype,
    shape: Vec<u64>,
    offsets: (u64, u64),
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map with `dtype`, `shape` and `data_offsets`")
            }

            // Only maps: a derived implementation would take an array of the three as well.
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let (mut dtype, mut shape, mut offsets) = (None, None, None);
                while let Some(field) = map.next_key()? {
                    let (name, twice) = match field {
                        Field::Dtype => ("dtype", dtype.replace(map.next_value()?).is_some()),
                        Field::Shape => ("shape", shape.replace(map.next_value()?).is_some()),
                        Field::DataOffsets => ("data_offsets", offsets.replace(map.next_value()?).is_some()),
                    };
                    if twice {
                        return Err(de::Error::duplicate_field(name));
                    }
                }
                Ok(Fields {
                    dtype: dtype.ok_or_else(|| de::Error::missing_field("dtype"))?,
                    shape: shape.ok_or_else(|| de::Error::missing_field("shape"))?,
                    offsets: offsets.ok_or_else(|| de::Error::missing_field("data_offsets"))?,
                })
            }
        }
        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_has_a_name() {
        for dtype in Dtype::ALL {
            assert_eq!(HeaderDtype::of(HeaderDtype::name(*dtype)), HeaderDtype::Plain(*dtype));
        }
    }
}
