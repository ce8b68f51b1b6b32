//! A JSON object of a client, each field of which is read or named as a problem.

use serde_json::{Map, Value};
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
        Fields { left, path, known: vec![], problems: Problems::default() }
    }

    /// Names a problem of the field `name`.
    pub(crate) fn problem(&mut self, name: &str, message: &str) {
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
        self.left.remove(name).filter(|value| !value.is_null())
    }

    /// A value that `read` understands: others are problems.
    fn read<T>(
        &mut self,
        name: &'static str,
        wanted: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Option<T> {
        let value = self.value(name)?;
        let read = read(&value);
        if read.is_none() {
            self.wanted(name, wanted, &value);
        }
        read
    }

    pub(crate) fn flag(&mut self, name: &'static str) -> Option<bool> {
        self.read(name, "true or false", Value::as_bool)
    }

    pub(crate) fn text(&mut self, name: &'static str) -> Option<String> {
        self.read(name, "a string", |value| value.as_str().map(str::to_owned))
    }

    /// A number for which `fits` holds; `wanted` says which those are.
    pub(crate) fn number(
        &mut self,
        name: &'static str,
        wanted: &str,
        fits: impl FnOnce(f32) -> bool,
    ) -> Option<f32> {
        self.read(name, wanted, |value| narrow(value).filter(|x| fits(*x)))
    }

    /// A whole number from `least` to `most`.
    pub(crate) fn whole(&mut self, name: &'static str, least: i64, most: i64) -> Option<i64> {
        let wanted = if most == i64::MAX {
            format!("a whole number, {least} or more")
        } else {
            format!("a whole number from {least} to {most}")
        };
        self.read(name, &wanted, |value| whole(value).filter(|n| (least..=most).contains(n)))
    }

    /// A string, or a list of at most `most` strings of at most `bytes` bytes.
    pub(crate) fn texts(&mut self, name: &'static str, most: usize, bytes: usize) -> Option<Vec<String>> {
        let wanted = format!("a string, or a list of at most {most} strings, of at most {bytes} bytes each");
        self.read(name, &wanted, |value| {
            let one = std::slice::from_ref(value);
            let all = value.as_array().map_or(one, Vec::as_slice);
            let text = |value: &Value| value.as_str().filter(|s| s.len() <= bytes).map(str::to_owned);
            if all.len() > most { None } else { all.iter().map(text).collect() }
        })
    }

    /// The fields of an object; give them back with [`Fields::join`].
    pub(crate) fn object(&mut self, name: &'static str) -> Option<Fields> {
        match self.value(name)? {
            Value::Object(left) => Some(Fields::new(left, format!("{}{name}.", self.path))),
            other => {
                self.wanted(name, "an object", &other);
                None
            }
        }
    }

    /// A list of objects; give each back with [`Fields::join`].
    pub(crate) fn objects(&mut self, name: &'static str) -> Option<Vec<Fields>> {
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
                Value::Object(left) => all.push(Fields::new(left, format!("{}{name}[{i}].", self.path))),
                other => self.wanted(&format!("{name}[{i}]"), "an object", &other),
            }
        }
        all
    }

    /// Takes the problems of an object inside this one, all of whose known fields were read.
    pub(crate) fn join(&mut self, inner: Fields) {
        self.problems.add(inner.finish());
    }

    /// Fields that change nothing here, whatever they hold: the documentation lists them.
    pub(crate) fn without_effect(&mut self, names: &[&'static str]) {
        for name in names {
            self.value(name);
        }
    }

    /// A field that is taken only with a value that changes nothing.
    pub(crate) fn only(&mut self, name: &'static str, harmless: &[Value], why: &str) {
        if let Some(value) = self.value(name)
            && !harmless.contains(&value)
        {
            self.problem(name, why);
        }
    }

    /// All problems, those of fields that nobody asked for included.
    fn finish(mut self) -> Problems {
        for name in std::mem::take(&mut self.left).keys() {
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

fn kind(value: &Value) -> &'static str {
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
        Fields::of_body(text.as_bytes()).unwrap_or_else(|refusal| panic!("{}", refusal.json()))
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
        let error = fields.end().unwrap_err().json();
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
        let error = fields.end().unwrap_err().json();
        assert_eq!(error["error"]["problems"].as_array().unwrap().len(), 20);
        let said = error["error"]["message"].as_str().unwrap();
        assert!(said.ends_with("and 1983 more problems"), "{said}");
        let mut fields = body(&format!("{{\"list\": [{}{{}}]}}", "{}, ".repeat(20_000)));
        assert!(fields.objects("list").unwrap().is_empty());
        let said = fields.end().unwrap_err().json()["error"]["message"].as_str().unwrap().to_owned();
        assert_eq!(said, "`list`: wanted at most 16384 entries");
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for (text, wanted) in [
            ("[]", "wanted a JSON object, found a list"),
            ("{", "the body is not JSON: EOF while parsing an object at line 1 column 1"),
        ] {
            let refusal = Fields::of_body(text.as_bytes()).err().unwrap();
            assert_eq!(refusal.json()["error"]["message"], wanted);
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(Fields::of_body(deep.as_bytes()).is_err());
    }
}
