//! A JSON object or form of a client, each field of which is read or named as a problem.
//!
//! The same reading describes itself: [`Fields::describing`] has no fields, and notes which ones are asked for, of which kind, and
//! which ones are missed. So `/openapi.json` says what is read.

use axum::body::Bytes;
use serde_json::{Map, Value, json};
use weighbridge::tensor::nearest;

use crate::refusal::{Problem, Problems, Refusal};

/// Entries of a list of objects at most.
const ENTRIES: usize = 1 << 14;

/// The fields of an object that have not been read, and what is wrong with those that have.
pub(crate) struct Fields {
    left: Map<String, Value>,
    /// The path of the object, with a dot at its end; empty for the body.
    path: String,
    /// The names that were asked for.
    known: Vec<&'static str>,
    problems: Problems,
    /// The parts of a form that are files.
    files: Vec<(String, Bytes)>,
    /// Whether values came as texts of a form.
    is_form: bool,
    /// The fields that were read so far, if only these are wanted.
    sketch: Option<Sketch>,
}

/// The fields that a reader reads.
#[derive(Default)]
struct Sketch {
    /// Schemas of JSON Schema, by field.
    properties: Map<String, Value>,
    /// The fields that are missed.
    required: Vec<String>,
}

impl Fields {
    /// The object of a body.
    pub(crate) fn of_body(body: &[u8]) -> Result<Fields, Refusal> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(left)) => Ok(Fields::new(left, String::new())),
            Ok(other) => Err(Refusal::wrong(format!("wanted a JSON object, found {}", kind(&other)))),
            Err(error) => Err(Refusal::wrong(format!("the body is not JSON: {error}"))),
        }
    }

    fn new(left: Map<String, Value>, path: String) -> Fields {
        let (known, problems, files) = (vec![], Problems::default(), vec![]);
        Fields { left, path, known, problems, files, is_form: false, sketch: None }
    }

    /// The fields of a form, and its files.
    #[cfg(feature = "speech")]
    pub(crate) fn of_form(left: Map<String, Value>, files: Vec<(String, Bytes)>) -> Fields {
        Fields { files, is_form: true, ..Fields::new(left, String::new()) }
    }

    /// No fields: what is read of them is noted for [`Fields::schema`].
    pub(crate) fn describing() -> Fields {
        Fields { sketch: Some(Sketch::default()), ..Fields::new(Map::new(), String::new()) }
    }

    /// An object inside this one.
    fn inside(&self, left: Map<String, Value>, path: String) -> Fields {
        Fields { sketch: self.sketch.as_ref().map(|_| Sketch::default()), ..Fields::new(left, path) }
    }

    /// The JSON Schema of what was read.
    pub(crate) fn schema(self) -> Value {
        let Sketch { properties, mut required } = self.sketch.unwrap_or_default();
        required.sort();
        required.dedup();
        let mut schema = json!({"type": "object", "properties": properties});
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        schema
    }

    /// Notes what a field holds. What is known of it stays.
    fn note(&mut self, name: &str, schema: impl FnOnce() -> Value) {
        let Some(sketch) = &mut self.sketch else { return };
        let known = sketch.properties.entry(name).or_insert_with(|| json!({}));
        if let (Some(known), Value::Object(schema)) = (known.as_object_mut(), schema()) {
            known.extend(schema);
        }
    }

    /// Names it as a problem if a list is empty, and nothing else is wrong.
    pub(crate) fn needed<T>(&mut self, name: &str, found: &[T], wanted: &str) {
        if let Some(sketch) = &mut self.sketch {
            return sketch.required.push(name.to_owned());
        }
        if found.is_empty() && !self.has_problems() {
            self.problem(name, wanted);
        }
    }

    /// Names a problem of the field `name`.
    pub(crate) fn problem(&mut self, name: &str, message: &str) {
        if let Some(sketch) = &mut self.sketch {
            // It is missed, unless it is an object, which all have that are described.
            if let Some(known) = sketch.properties.get_mut(name)
                && !matches!(known["type"].as_str(), Some("object" | "array"))
            {
                known["description"] = json!(message);
                sketch.required.push(name.to_owned());
            }
            return;
        }
        if !self.problems.has_room() {
            return self.problems.count(1);
        }
        let param = format!("{}{name}", self.path);
        self.problems.push(Problem { message: format!("`{param}`: {message}"), param: Some(param) });
    }

    /// Whether anything is wrong so far.
    pub(crate) fn has_problems(&self) -> bool {
        !self.problems.is_empty()
    }

    fn wanted(&mut self, name: &str, wanted: &str, found: &Value) {
        if !self.problems.has_room() {
            return self.problems.count(1);
        }
        let shown: String = found.to_string().chars().take(60).collect();
        self.problem(name, &format!("wanted {wanted}, found {shown}"));
    }

    /// The value of a field, if it is there and not `null`.
    pub(crate) fn value(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.note(name, || json!({}));
        self.left.remove(name).filter(|value| !value.is_null())
    }

    /// The value of a field as it came, which is still to be read; or `null`.
    pub(crate) fn peek(&self, name: &str) -> Value {
        self.left.get(name).cloned().unwrap_or(Value::Null)
    }

    /// A value that `read` understands: others are problems.
    fn read<T>(
        &mut self,
        name: &'static str,
        wanted: &str,
        schema: impl FnOnce() -> Value,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Option<T> {
        self.note(name, schema);
        let value = self.value(name)?;
        let read = read(&value);
        if read.is_none() {
            self.wanted(name, wanted, &value);
        }
        read
    }

    pub(crate) fn flag(&mut self, name: &'static str) -> Option<bool> {
        let is_form = self.is_form;
        self.read(
            name,
            "true or false",
            || json!({"type": "boolean"}),
            |value| typed(value, is_form).as_bool(),
        )
    }

    pub(crate) fn text(&mut self, name: &'static str) -> Option<String> {
        self.read(name, "a string", || json!({"type": "string"}), |value| value.as_str().map(str::to_owned))
    }

    /// A number for which `fits` holds; `wanted` says which those are.
    pub(crate) fn number(
        &mut self,
        name: &'static str,
        wanted: &str,
        fits: impl FnOnce(f32) -> bool,
    ) -> Option<f32> {
        let is_form = self.is_form;
        self.read(
            name,
            wanted,
            || json!({"type": "number", "description": wanted}),
            |value| narrow(&typed(value, is_form)).filter(|x| fits(*x)),
        )
    }

    /// A whole number from `least` to `most`.
    pub(crate) fn whole(&mut self, name: &'static str, least: i64, most: i64) -> Option<i64> {
        let wanted = if most == i64::MAX {
            format!("a whole number, {least} or more")
        } else {
            format!("a whole number from {least} to {most}")
        };
        let (is_form, bounds) = (self.is_form, json!({"type": "integer", "minimum": least, "maximum": most}));
        self.read(
            name,
            &wanted,
            || bounds,
            |value| whole(&typed(value, is_form)).filter(|n| (least..=most).contains(n)),
        )
    }

    /// A string, or a list of at most `most` strings of at most `bytes` bytes.
    pub(crate) fn texts(&mut self, name: &'static str, most: usize, bytes: usize) -> Option<Vec<String>> {
        let wanted = format!("a string, or a list of at most {most} strings, of at most {bytes} bytes each");
        let text = || json!({"type": "string", "maxLength": bytes});
        let schema = || json!({"anyOf": [text(), {"type": "array", "maxItems": most, "items": text()}]});
        self.read(name, &wanted, schema, |value| {
            let one = std::slice::from_ref(value);
            let all = value.as_array().map_or(one, Vec::as_slice);
            let text = |value: &Value| value.as_str().filter(|s| s.len() <= bytes).map(str::to_owned);
            if all.len() > most { None } else { all.iter().map(text).collect() }
        })
    }

    /// The fields of an object; give them back with [`Fields::join`].
    pub(crate) fn object(&mut self, name: &'static str) -> Option<Fields> {
        if self.sketch.is_some() {
            self.note(name, || json!({"type": "object"}));
            return Some(self.inside(Map::new(), format!("{}{name}.", self.path)));
        }
        match self.value(name)? {
            Value::Object(left) => Some(self.inside(left, format!("{}{name}.", self.path))),
            other => {
                self.wanted(name, "an object", &other);
                None
            }
        }
    }

    /// The same, without fields if it is not there.
    pub(crate) fn object_or_none(&mut self, name: &'static str) -> Fields {
        self.object(name).unwrap_or_else(|| self.inside(Map::new(), format!("{}{name}.", self.path)))
    }

    /// A list of objects; give each back with [`Fields::join`].
    pub(crate) fn objects(&mut self, name: &'static str) -> Option<Vec<Fields>> {
        if self.sketch.is_some() {
            self.note(name, || json!({"type": "array", "items": {"type": "object"}}));
            return Some(vec![self.inside(Map::new(), format!("{}{name}[].", self.path))]);
        }
        let Value::Array(list) = self.value(name)? else {
            self.problem(name, "wanted a list of objects");
            return None;
        };
        Some(self.inner(name, list))
    }

    /// The objects of a list that is in the field `name`; give each back with [`Fields::join`].
    pub(crate) fn inner(&mut self, name: &str, list: Vec<Value>) -> Vec<Fields> {
        let mut all = Vec::new();
        if list.len() > ENTRIES {
            self.problem(name, &format!("wanted at most {ENTRIES} entries"));
            return all;
        }
        for (i, value) in list.into_iter().enumerate() {
            match value {
                Value::Object(left) => all.push(self.inside(left, format!("{}{name}[{i}].", self.path))),
                other => self.wanted(&format!("{name}[{i}]"), "an object", &other),
            }
        }
        all
    }

    /// Takes the problems of an object inside this one, all of whose known fields were read.
    pub(crate) fn join(&mut self, inner: Fields) {
        if self.sketch.is_some() {
            let name = inner.path[self.path.len()..].trim_end_matches('.').to_owned();
            let schema = inner.schema();
            return match name.strip_suffix("[]") {
                Some(name) => self.note(name, || json!({"type": "array", "items": schema})),
                None => self.note(&name, || schema),
            };
        }
        self.problems.add(inner.finish());
    }

    /// Fields that change nothing here, whatever they hold: the documentation lists them.
    pub(crate) fn without_effect(&mut self, names: &[&'static str]) {
        for name in names {
            self.note(name, || json!({"description": "without effect here"}));
            self.value(name);
        }
    }

    /// A field that is taken only with a value that changes nothing.
    pub(crate) fn only(&mut self, name: &'static str, harmless: &[Value], why: &str) {
        self.note(name, || json!({"enum": harmless}));
        if let Some(value) = self.value(name)
            && !harmless.contains(&value)
        {
            self.problem(name, why);
        }
    }

    /// The file of a form.
    #[cfg(feature = "speech")]
    pub(crate) fn file(&mut self, name: &'static str) -> Option<Bytes> {
        self.note(name, || json!({"type": "string", "format": "binary"}));
        self.known.push(name);
        let at = self.files.iter().position(|(found, _)| found == name)?;
        Some(self.files.swap_remove(at).1)
    }

    /// All problems, those of fields that nobody asked for included.
    fn finish(mut self) -> Problems {
        let files = std::mem::take(&mut self.files).into_iter().map(|(name, _)| name);
        for name in
            &files.chain(std::mem::take(&mut self.left).into_iter().map(|(name, _)| name)).collect::<Vec<_>>()
        {
            if !self.problems.has_room() {
                self.problems.count(1);
                continue;
            }
            let near = nearest(name, self.known.iter().copied().filter(|_| name.len() <= 64));
            let hint = near.map_or(String::new(), |near| format!(": did you mean `{near}`?"));
            let shown: String = name.chars().take(60).collect();
            let param = format!("{}{shown}", self.path);
            self.problems.push(Problem {
                message: format!("`{param}` is not supported here{hint}"),
                param: Some(param),
            });
        }
        self.problems
    }

    /// Ends the body.
    ///
    /// # Errors
    /// If anything is wrong with it: all of that.
    pub(crate) fn end(self) -> Result<(), Refusal> {
        let problems = self.finish();
        if problems.is_empty() { Ok(()) } else { Err(Refusal::of_problems(problems)) }
    }
}

/// A value of a form is a text: it is read as JSON where another kind is wanted.
fn typed(value: &Value, is_form: bool) -> std::borrow::Cow<'_, Value> {
    match value {
        Value::String(text) if is_form => {
            serde_json::from_str(text).map_or(std::borrow::Cow::Borrowed(value), std::borrow::Cow::Owned)
        }
        _ => std::borrow::Cow::Borrowed(value),
    }
}

/// A whole number, however it is written.
fn whole(value: &Value) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "such a number is exact")]
    let exact = |x: f64| (x.fract() == 0.0 && x.abs() < 9e15).then_some(x as i64);
    value.as_i64().or_else(|| exact(value.as_f64()?))
}

/// A finite number, as the sampler has it.
#[expect(clippy::cast_possible_truncation, reason = "the sampler computes in f32")]
pub(crate) fn narrow(value: &Value) -> Option<f32> {
    value.as_f64().map(|x| x as f32).filter(|x| x.is_finite())
}

pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> Fields {
        Fields::of_body(text.as_bytes()).unwrap_or_else(|refusal| panic!("{}", refusal.message()))
    }

    #[test]
    fn every_problem_is_named_with_its_path() {
        let mut fields = body(
            r#"{"temperature": "hot", "n": 2.5, "stop": [1], "top_k": 3.0, "tempratur": 1, "user": null,
                "o": {"x": 1, "y": 2}, "list": [{"z": true}, 5], "nothing": null, "harmless": []}"#,
        );
        assert_eq!(fields.number("temperature", "a number", |_| true), None);
        assert_eq!(fields.whole("n", 1, 8), None);
        assert_eq!(fields.texts("stop", 4, 10), None);
        assert_eq!(fields.whole("top_k", 0, i64::MAX), Some(3));
        assert_eq!(fields.text("user"), None);
        fields.only("harmless", &[Value::Array(vec![])], "no");
        let mut inner = fields.object("o").unwrap();
        assert_eq!(inner.whole("x", 0, 5), Some(1));
        fields.join(inner);
        for mut inner in fields.objects("list").unwrap() {
            assert_eq!(inner.flag("z"), Some(true));
            fields.join(inner);
        }
        let error = serde_json::to_value(fields.end().unwrap_err().body()).unwrap();
        let said = error["error"]["message"].as_str().unwrap();
        let wanted = "`temperature`: wanted a number, found \"hot\"\n\
                      `n`: wanted a whole number from 1 to 8, found 2.5\n\
                      `stop`: wanted a string, or a list of at most 4 strings, of at most 10 bytes each, found [1]\n\
                      `o.y` is not supported here\n\
                      `list[1]`: wanted an object, found 5\n\
                      `tempratur` is not supported here: did you mean `temperature`?\n\
                      `nothing` is not supported here";
        assert_eq!(said, wanted);
        assert_eq!(error["error"]["param"], "temperature");
    }

    #[test]
    fn of_many_problems_some_are_listed_and_all_are_counted() {
        let mut fields = body(&format!("{{\"list\": [{}{{\"a\": 1, \"b\": 2}}]}}", "{}, 5, ".repeat(1000)));
        for mut inner in fields.objects("list").unwrap() {
            if inner.flag("needed").is_none() {
                inner.problem("needed", "wanted true or false");
            }
            fields.join(inner);
        }
        let error = serde_json::to_value(fields.end().unwrap_err().body()).unwrap();
        assert_eq!(error["error"]["problems"].as_array().unwrap().len(), 20);
        let said = error["error"]["message"].as_str().unwrap();
        assert!(said.ends_with("and 1983 more problems"), "{said}");
        let mut fields = body(&format!("{{\"list\": [{}{{}}]}}", "{}, ".repeat(20_000)));
        assert!(fields.objects("list").unwrap().is_empty());
        let said = fields.end().unwrap_err().message();
        assert_eq!(said, "`list`: wanted at most 16384 entries");
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for (text, wanted) in [
            ("[]", "wanted a JSON object, found a list"),
            ("{", "the body is not JSON: EOF while parsing an object at line 1 column 1"),
        ] {
            let refusal = Fields::of_body(text.as_bytes()).err().unwrap();
            assert_eq!(refusal.message(), wanted);
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(Fields::of_body(deep.as_bytes()).is_err());
    }

    #[test]
    fn what_is_read_describes_itself() {
        let mut fields = Fields::describing();
        assert_eq!(fields.flag("stream"), None);
        let all = fields.objects("list").unwrap();
        fields.needed("list", &all, "wanted one");
        for mut one in all {
            if one.text("role").is_none() {
                one.problem("role", "wanted a role");
            }
            fields.join(one);
        }
        let role = json!({"type": "string", "description": "wanted a role"});
        let list = json!({"type": "object", "properties": {"role": role}, "required": ["role"]});
        let stream = json!({"type": "boolean"});
        let properties = json!({"stream": stream, "list": {"type": "array", "items": list}});
        assert_eq!(
            fields.schema(),
            json!({"type": "object", "properties": properties, "required": ["list"]})
        );
    }

    #[test]
    fn texts_of_a_form_are_numbers_where_numbers_are_wanted() {
        let form = [("t", "0.5"), ("s", "5"), ("b", "true"), ("n", "x")];
        let form = form.map(|(name, text)| (name.to_owned(), Value::String(text.to_owned())));
        let mut fields = Fields::of_form(form.into_iter().collect(), vec![("file".to_owned(), Bytes::new())]);
        assert_eq!(fields.number("t", "a number", |_| true), Some(0.5));
        assert_eq!(fields.text("s").as_deref(), Some("5"));
        assert_eq!(fields.flag("b"), Some(true));
        assert_eq!(fields.whole("n", 0, 9), None);
        let message = fields.end().unwrap_err().message();
        assert_eq!(
            message,
            "`n`: wanted a whole number from 0 to 9, found \"x\"\n`file` is not supported here"
        );
    }
}
