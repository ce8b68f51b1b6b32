//! Values of metadata and configurations, as JSON has them.

use serde::Serialize;
use serde_json::{Number, Value};
use weighbridge::checkpoint::Value as Stored;

/// The longest array that is printed whole.
const LONGEST: u64 = 64;

/// A value of a checkpoint's metadata or of a model's configuration.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub(crate) enum Typed {
    Bool(bool),
    Number(Number),
    /// Text, or a number that JSON cannot say (`NaN`, `inf`).
    Text(String),
    /// An array of up to 64 values.
    List(Vec<Typed>),
    /// An array of more values, which are not listed.
    Long {
        /// The type of its elements: `str`, `f32`, …
        elements: String,
        /// The number of its elements.
        length: u64,
    },
}

impl Typed {
    /// The value of a text that may be a number or a truth value.
    pub(crate) fn parsed(text: String) -> Typed {
        match serde_json::from_str(&text) {
            Ok(Value::Number(number)) => Typed::Number(number),
            Ok(Value::Bool(value)) => Typed::Bool(value),
            Ok(Value::String(text)) => Typed::Text(text),
            _ => Typed::Text(text),
        }
    }

    fn float(value: f64, shown: &impl ToString) -> Typed {
        // The shortest text of an f32 is another number than its value as an f64: 0.1, not 0.10000000149.
        match shown.to_string().parse().ok().filter(|_| value.is_finite()).and_then(Number::from_f64) {
            Some(number) => Typed::Number(number),
            None => Typed::Text(shown.to_string()),
        }
    }
}

impl From<Stored<'_>> for Typed {
    fn from(value: Stored<'_>) -> Typed {
        use Stored as V;
        match value {
            V::Bool(v) => Typed::Bool(v),
            V::U8(v) => Typed::Number(v.into()),
            V::I8(v) => Typed::Number(v.into()),
            V::U16(v) => Typed::Number(v.into()),
            V::I16(v) => Typed::Number(v.into()),
            V::U32(v) => Typed::Number(v.into()),
            V::I32(v) => Typed::Number(v.into()),
            V::U64(v) => Typed::Number(v.into()),
            V::I64(v) => Typed::Number(v.into()),
            V::F32(v) => Typed::float(v.into(), &v),
            V::F64(v) => Typed::float(v, &v),
            V::Str(v) => Typed::Text(String::from_utf8_lossy(v).into_owned()),
            V::Array(array) if array.len() <= LONGEST => {
                Typed::List(array.values().map(Typed::from).collect())
            }
            V::Array(array) => Typed::Long { elements: array.element().to_string(), length: array.len() },
        }
    }
}
