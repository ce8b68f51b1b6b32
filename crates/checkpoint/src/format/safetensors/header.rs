//! The JSON header, read strictly: `serde_json::Value` would hide keys that are there twice.

use std::collections::HashSet;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use crate::fault::Fault;

/// The name that is no tensor.
const METADATA: &str = "__metadata__";

/// What a header says, in its order.
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
    pub(super) dtype: String,
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

/// `__metadata__`: text to text.
#[derive(Default)]
struct Pairs {
    list: Vec<(String, String)>,
    doubled: Vec<String>,
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

/// The three fields of a tensor, in any order, each once, and no other.
struct Fields {
    dtype: String,
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
                const KNOWN: &[&str] = &["dtype", "shape", "data_offsets"];
                let (mut dtype, mut shape, mut offsets) = (None, None, None);
                while let Some(field) = map.next_key::<String>()? {
                    let twice = match field.as_str() {
                        "dtype" => dtype.replace(map.next_value()?).is_some(),
                        "shape" => shape.replace(map.next_value()?).is_some(),
                        "data_offsets" => offsets.replace(map.next_value()?).is_some(),
                        other => return Err(de::Error::unknown_field(other, KNOWN)),
                    };
                    if twice {
                        return Err(de::Error::custom(format_args!("`{field}` is there twice")));
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
