//! From a checkpoint's metadata to the `metadata_props` of an ONNX model, which are pairs of text.

use checkpoint::{HfFiles, Metadata, Value};
use serde_json::{Map, Value as Json, json};

use super::{Beside, Left};

/// The key of the configuration.
const CONFIG: &str = "config.json";

/// Why a tokenizer is left.
const NO_PLACE: &str = "ONNX has no place for it";

/// The `metadata_props` of a model with the metadata `beside` its tensors, or else those of its source; and what is left.
///
/// A configuration is the text of its file, under the file's name. Pairs of GGUF and of safetensors keep their keys.
pub(crate) fn to_onnx(beside: &Beside, source: &Metadata) -> (Vec<(String, String)>, Vec<Left>) {
    let mut props = Props::default();
    match (beside, source) {
        (Beside::Gguf(pairs), _) => {
            props.gguf(pairs.iter().map(|(key, value)| (key.as_str(), value.borrow())));
        }
        (Beside::Hf(files), _) => {
            let HfFiles { config, pairs, members } = &**files;
            props.hf(Some(config), pairs);
            props.files(members.iter().map(|(name, _)| name.as_str()), NO_PLACE);
        }
        (Beside::Nothing, Metadata::Gguf(gguf)) => props.gguf(gguf.iter()),
        (Beside::Nothing, Metadata::Hf(hf)) => {
            let config = hf.config().and_then(serde_json::Value::as_object);
            props.hf(config, hf.safetensors());
            let others = hf.beside().map(|(name, _)| name).filter(|name| *name != CONFIG);
            props.files(others, "ONNX has no place for it; copy the file beside the model");
        }
        (Beside::Nothing | Beside::Ctranslate2(_) | Beside::Ggml(_), _) => {}
    }
    (props.pairs, props.left)
}

#[derive(Default)]
struct Props {
    pairs: Vec<(String, String)>,
    left: Vec<Left>,
}

impl Props {
    fn gguf<'v>(&mut self, pairs: impl Iterator<Item = (&'v str, Value<'v>)>) {
        for (key, value) in pairs {
            let is_of_file = key.starts_with("split.")
                || ["general.alignment", "general.file_type", "general.quantization_version"].contains(&key);
            let why = match text(&value) {
                _ if is_of_file => "it is about the GGUF file",
                _ if key.starts_with("tokenizer.") => NO_PLACE,
                None => "it is neither text nor numbers",
                Some(text) => {
                    self.pairs.push((key.to_owned(), text));
                    continue;
                }
            };
            self.left.push(Left::new("metadata", key, why));
        }
    }

    fn hf(&mut self, config: Option<&Map<String, Json>>, pairs: &[(String, String)]) {
        if let Some(config) = config {
            let plain = checkpoint::plain_config(config);
            for key in config.keys().filter(|key| !plain.contains_key(*key)) {
                self.left.push(Left::new(CONFIG, key, "no weight is quantised in the result"));
            }
            self.pairs.push((CONFIG.to_owned(), Json::Object(plain).to_string()));
        }
        let (taken, pairs): (Vec<_>, Vec<_>) =
            pairs.iter().cloned().partition(|(key, _)| config.is_some() && key == CONFIG);
        self.pairs.extend(pairs);
        for (key, _) in taken {
            self.left.push(Left::new("the file with the weights", &key, "the configuration has this key"));
        }
    }

    fn files<'n>(&mut self, names: impl Iterator<Item = &'n str>, why: &str) {
        self.left.extend(names.map(|name| Left::new(name, "", why)));
    }
}

/// Text as it is, numbers in decimal digits, and lists of either as JSON.
fn text(value: &Value<'_>) -> Option<String> {
    match value {
        Value::Str(text) => Some(std::str::from_utf8(text).ok()?.to_owned()),
        Value::Array(array) => {
            let item = |item: Value<'_>| match item {
                Value::Array(_) => None,
                Value::Str(text) => Some(json!(std::str::from_utf8(text).ok()?).to_string()),
                number => Some(number.to_string()),
            };
            let items: Option<Vec<String>> = array.values().map(item).collect();
            Some(format!("[{}]", items?.join(", ")))
        }
        number => Some(number.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use checkpoint::{ArrayBuf, ValueBuf};

    use super::*;

    #[test]
    fn values_are_text_that_reads_back() {
        let text = |value: &Value<'_>| super::text(value);
        assert_eq!(text(&Value::Str("ü \"x\"".as_bytes())).as_deref(), Some("ü \"x\""));
        assert_eq!(text(&Value::Str(b"\xff")), None);
        assert_eq!(text(&Value::F32(1e-5)).and_then(|text| text.parse().ok()), Some(1e-5f32));
        assert_eq!(text(&Value::U64(u64::MAX)).as_deref(), Some("18446744073709551615"));
        assert_eq!(text(&Value::Bool(true)).as_deref(), Some("true"));
        let list = |array: ArrayBuf| text(&ValueBuf::Array(array).borrow());
        assert_eq!(list(ArrayBuf::i32s(&[-1, 2])).as_deref(), Some("[-1, 2]"));
        assert_eq!(list(ArrayBuf::strings(["a", "\""])).as_deref(), Some(r#"["a", "\""]"#));
        assert_eq!(list(ArrayBuf::strings([[0xff]])), None);
    }

    #[test]
    fn no_key_is_there_twice() {
        let files = HfFiles {
            config: [("model_type".to_owned(), json!("x"))].into_iter().collect(),
            pairs: vec![(CONFIG.to_owned(), "1".to_owned()), ("format".to_owned(), "pt".to_owned())],
            members: vec![("tokenizer.json".to_owned(), vec![])],
        };
        let (pairs, left) = to_onnx(&Beside::Hf(Box::new(files)), &Metadata::None);
        let keys: Vec<&str> = pairs.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, [CONFIG, "format"]);
        let left: Vec<(&str, &str)> = left.iter().map(|left| (&*left.file, &*left.key)).collect();
        assert_eq!(left, [("the file with the weights", CONFIG), ("tokenizer.json", "")]);
    }
}
