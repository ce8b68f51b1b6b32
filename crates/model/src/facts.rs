//! The facts that a checkpoint of any format states about its model.

use std::fmt;

use checkpoint::{Ctranslate2Metadata, Metadata, Value};

use crate::ecosystem::DialectName;

/// One value of a checkpoint's metadata.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// JSON null: the same as absent.
    Null,
    /// A flag.
    Bool(bool),
    /// A non-negative integer.
    Count(u64),
    /// Any other number.
    Number(f64),
    /// A string.
    Str(String),
    /// A list; a long one is cut to its first 4096 elements.
    List(Vec<Fact>),
    /// An object, which only its own keys open.
    Object,
}

impl Fact {
    /// The count, or the one count that all elements of a list share.
    pub fn count(&self) -> Option<u64> {
        match self {
            Fact::Count(n) => Some(*n),
            Fact::List(facts) => {
                let first = facts.first()?.count()?;
                facts.iter().all(|f| f.count() == Some(first)).then_some(first)
            }
            _ => None,
        }
    }

    /// The number.
    pub fn number(&self) -> Option<f64> {
        match self {
            Fact::Count(n) => Some(*n as f64),
            Fact::Number(x) => Some(*x),
            _ => None,
        }
    }

    fn from_json(value: &serde_json::Value) -> Fact {
        match value {
            serde_json::Value::Null => Fact::Null,
            serde_json::Value::Bool(b) => Fact::Bool(*b),
            serde_json::Value::Number(n) => match n.as_u64() {
                Some(n) => Fact::Count(n),
                None => Fact::Number(n.as_f64().unwrap_or(f64::NAN)),
            },
            serde_json::Value::String(s) => Fact::Str(s.clone()),
            serde_json::Value::Array(a) => Fact::List(a.iter().take(4096).map(Fact::from_json).collect()),
            serde_json::Value::Object(_) => Fact::Object,
        }
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fact::Null => f.write_str("null"),
            Fact::Bool(b) => write!(f, "{b}"),
            Fact::Count(n) => write!(f, "{n}"),
            Fact::Number(x) => write!(f, "{x}"),
            Fact::Str(s) => write!(f, "{:?}", s.chars().take(60).collect::<String>()),
            Fact::List(l) => write!(f, "a list of {}", l.len()),
            Fact::Object => f.write_str("an object"),
        }
    }
}

/// The facts that a checkpoint states about its model.
pub trait Facts {
    /// The ecosystem whose keys these are.
    fn dialect(&self) -> DialectName;
    /// The value of `key`. In config.json, dots descend into objects.
    fn lookup(&self, key: &str) -> Option<Fact>;
    /// Every key and its value, in the order of the file. Of config.json, the values that are no objects, with dots
    /// between the names that lead there.
    fn pairs(&self) -> Vec<(String, Fact)>;
    /// The number of tokens in the vocabulary that the file carries, if it does.
    fn vocabulary(&self) -> Option<(String, u64)>;
}

/// A config.json.
impl Facts for serde_json::Value {
    fn dialect(&self) -> DialectName {
        DialectName::Hf
    }

    fn lookup(&self, key: &str) -> Option<Fact> {
        let value = key.split('.').try_fold(self, |value, segment| value.get(segment))?;
        Some(Fact::from_json(value))
    }

    fn pairs(&self) -> Vec<(String, Fact)> {
        let mut pairs = Vec::new();
        leaves(self, String::new(), &mut pairs);
        pairs
    }

    fn vocabulary(&self) -> Option<(String, u64)> {
        None
    }
}

/// The facts of an open checkpoint of any format.
impl Facts for Metadata {
    fn dialect(&self) -> DialectName {
        match self {
            Metadata::Gguf(_) => DialectName::Gguf,
            Metadata::Ctranslate2(_) => DialectName::Ctranslate2,
            Metadata::Openai(_) => DialectName::Openai,
            _ => DialectName::Hf,
        }
    }

    fn lookup(&self, key: &str) -> Option<Fact> {
        match self {
            Metadata::Gguf(metadata) => metadata.get(key).map(|v| Fact::from_gguf(&v)),
            Metadata::Hf(metadata) => metadata.config()?.lookup(key),
            Metadata::Ctranslate2(metadata) => ctranslate2(metadata, key),
            // Its only model with such sizes.
            Metadata::Openai(_) if key == ARCHITECTURE => Some(Fact::Str("whisper".to_owned())),
            Metadata::Openai(metadata) => metadata.dim(key).map(|n| of_number(n as f64)),
            _ => None,
        }
    }

    fn pairs(&self) -> Vec<(String, Fact)> {
        match self {
            Metadata::Gguf(metadata) => {
                metadata.iter().map(|(key, value)| (key.to_owned(), Fact::from_gguf(&value))).collect()
            }
            Metadata::Hf(metadata) => metadata.config().map(Facts::pairs).unwrap_or_default(),
            Metadata::Openai(metadata) => {
                metadata.dims().map(|(key, n)| (key.to_owned(), of_number(n as f64))).collect()
            }
            Metadata::Ctranslate2(metadata) => {
                let own = [SPEC, REVISION].map(|key| (key.to_owned(), ctranslate2(metadata, key)));
                let own = own.into_iter().filter_map(|(key, fact)| Some((key, fact?)));
                let attributes = metadata.attributes().map(|(key, x)| (key.to_owned(), of_number(x)));
                own.chain(attributes).chain(metadata.config().map(Facts::pairs).unwrap_or_default()).collect()
            }
            _ => Vec::new(),
        }
    }

    fn vocabulary(&self) -> Option<(String, u64)> {
        const TOKENS: &str = "tokenizer.ggml.tokens";
        match self.gguf()?.get(TOKENS)? {
            Value::Array(tokens) => Some((TOKENS.to_owned(), tokens.len())),
            _ => None,
        }
    }
}

const ARCHITECTURE: &str = "architecture";
const SPEC: &str = "spec";
const REVISION: &str = "revision";

/// The value of `key` in CTranslate2: of the file, an attribute, an extent `X[0]` of the variable `X`, the number of layers
/// `X_*`, or a key of the config.json beside it.
fn ctranslate2(metadata: &Ctranslate2Metadata, key: &str) -> Option<Fact> {
    match key {
        SPEC => return Some(Fact::Str(metadata.spec().to_owned())),
        REVISION => return Some(Fact::Count(metadata.revision().into())),
        _ => {}
    }
    if let Some(attribute) = metadata.attribute(key) {
        return Some(of_number(attribute));
    }
    if let Some((name, axis)) = key.strip_suffix(']').and_then(|key| key.rsplit_once('[')) {
        return metadata.shape(name)?.get(axis.parse::<usize>().ok()?).copied().map(Fact::Count);
    }
    if let Some(layers) = key.strip_suffix('*') {
        let count = metadata.layers(layers);
        return (count > 0).then_some(Fact::Count(count));
    }
    metadata.config()?.lookup(key)
}

/// A number, as a count if it is one.
fn of_number(x: f64) -> Fact {
    match u64::try_from(x as i64) {
        Ok(whole) if x.fract() == 0.0 && x < 1e15 => Fact::Count(whole),
        _ => Fact::Number(x),
    }
}

impl Fact {
    fn from_gguf(value: &Value<'_>) -> Fact {
        match value {
            Value::Bool(b) => Fact::Bool(*b),
            Value::Str(s) => Fact::Str(String::from_utf8_lossy(s).into_owned()),
            Value::Array(array) => {
                Fact::List(array.values().take(4096).map(|v| Fact::from_gguf(&v)).collect())
            }
            number => match (number.as_u64(), number.as_f64()) {
                (Some(n), _) => Fact::Count(n),
                (None, Some(x)) => Fact::Number(x),
                // Whole and negative.
                (None, None) => Fact::Number(number.to_string().parse().unwrap_or(f64::NAN)),
            },
        }
    }
}

/// The keys of what is no object, or an empty one, with dots between.
fn leaves(value: &serde_json::Value, path: String, out: &mut Vec<(String, Fact)>) {
    match value {
        serde_json::Value::Object(map) if path.is_empty() || !map.is_empty() => {
            for (key, value) in map {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                leaves(value, path, out);
            }
        }
        _ => out.push((path, Fact::from_json(value))),
    }
}
