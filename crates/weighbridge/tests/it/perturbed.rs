//! Every key of config.json is removed, nulled and set to other values: our logits change as those of transformers do,
//! or the checkpoint is rejected by the key's name (golden/config/perturb.py).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use weighbridge::runtime::BackendKind;
use weighbridge::{Embedder, Error, Runtime, RuntimeOptions};

use crate::golden;

/// Limit on the largest difference divided by the largest logit.
const NEAR: f32 = 1e-4;

/// The outcome of a case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Verdict {
    /// The key moves the logits of the reference, and ours with them.
    Followed,
    /// The key has no effect, in the reference and here.
    Unmoved,
    /// Refused with the key's name, or for shapes that the key asks for.
    Refused,
    /// The engine runs no model of this family.
    NotRun,
    /// Refused by an error that names another thing.
    Unnamed,
    /// The reference moves or refuses, and ours goes on as it was.
    Ignored,
    /// Ours gives logits that are neither the reference's nor the base's.
    Wrong,
}

impl Verdict {
    fn is_right(self) -> bool {
        matches!(self, Verdict::Followed | Verdict::Unmoved | Verdict::Refused | Verdict::NotRun)
    }
}

pub(crate) struct Family {
    golden: Value,
    /// `[rows, positions, width]`.
    logits: Vec<f32>,
    /// The file without its last path: `golden/config/perturb/NAME`.
    stem: PathBuf,
    /// Why the engine runs no model of the family, if so.
    not_run: Option<String>,
}

impl Family {
    pub(crate) fn read(name: &str) -> Family {
        let stem = golden().join("../config/perturb").join(name);
        let golden = serde_json::from_slice(&std::fs::read(stem.with_extension("json")).unwrap()).unwrap();
        let bytes = std::fs::read(stem.with_extension("bin")).unwrap();
        let logits = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        Family { golden, logits, stem, not_run: None }
    }

    fn number(&self, key: &str) -> usize {
        usize::try_from(self.golden[key].as_u64().unwrap()).unwrap()
    }

    pub(crate) fn row(&self, row: usize) -> &[f32] {
        let size = self.number("positions") * self.number("width");
        &self.logits[row * size..][..size]
    }

    fn ids(&self) -> Vec<u32> {
        let ids = self.golden["ids"].as_array().unwrap();
        ids.iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect()
    }

    /// config.json of a case.
    fn config(&self, case: &Value) -> Value {
        let mut config = self.golden["config"].clone();
        let object = config.as_object_mut().unwrap();
        object.extend(case["set"].as_object().cloned().unwrap_or_default());
        for key in words(&case["remove"]) {
            object.remove(&key);
        }
        config
    }

    pub(crate) fn cases(&self) -> &[Value] {
        self.golden["cases"].as_array().unwrap()
    }

    /// The directory of a case.
    pub(crate) fn write(&self, dir: &Path, case: &Value) {
        std::fs::write(dir.join("config.json"), self.config(case).to_string()).unwrap();
        let weights = std::fs::read(self.stem.with_extension("safetensors")).unwrap();
        std::fs::write(dir.join("model.safetensors"), without(&weights, &words(&case["drop"]))).unwrap();
    }

    fn run(&self, dir: &Path, case: &Value) -> Result<Vec<f32>, String> {
        self.write(dir, case);
        self.logits(dir)
    }

    /// Returns the logits of the last positions, or the reason why there are none.
    pub(crate) fn logits(&self, path: &Path) -> Result<Vec<f32>, String> {
        let ids = self.ids();
        let options = RuntimeOptions {
            backend: BackendKind::Reference,
            threads: Some(1),
            context: Some(ids.len()),
            ..RuntimeOptions::default()
        };
        let mut runtime = match Runtime::start(path, &options) {
            Ok(runtime) => runtime,
            Err(Error::Encoder { .. }) => return self.hidden(path, &options, &ids),
            Err(error) => return Err(error.to_string()),
        };
        let mut logits = vec![];
        runtime.forward_each(&ids, |l| logits.push(l.to_vec())).map_err(|e| e.to_string())?;
        Ok(logits[ids.len() - self.number("positions")..].concat())
    }

    /// Returns the vectors of the last positions as an encoder leaves them.
    fn hidden(&self, path: &Path, options: &RuntimeOptions, ids: &[u32]) -> Result<Vec<f32>, String> {
        let mut embedder = Embedder::open(path, options).map_err(|e| e.to_string())?;
        let vectors = embedder.token_vectors(ids).map_err(|e| e.to_string())?;
        Ok(vectors[vectors.len() - self.number("positions") * self.number("width")..].to_vec())
    }

    fn judge(&self, dir: &Path, case: &Value) -> (Verdict, String) {
        let outcome = case["outcome"].as_str().unwrap();
        let found = match self.run(dir, case) {
            Ok(found) => found,
            Err(why) if Some(&why) == self.not_run.as_ref() => return (Verdict::NotRun, why),
            // Tensors that the reference leaves lie, or wants otherwise, are reported by their own names.
            Err(why) if matches!(outcome, "shape" | "error") => return (Verdict::Refused, why),
            Err(why) if names_it(&why, case) || case.get("unused").is_some() => {
                return (Verdict::Refused, why);
            }
            Err(why) => return (Verdict::Unnamed, why),
        };
        let base = distance(&found, self.row(0));
        match outcome {
            "same" if base <= NEAR => (Verdict::Unmoved, String::new()),
            "same" => (Verdict::Wrong, format!("ours moves by {base:.1e}, the reference does not")),
            "moved" => {
                let by = narrow(&case["by"]);
                let near = NEAR.min(by / 4.0).max(1e-5);
                let row = usize::try_from(case["row"].as_u64().unwrap()).unwrap();
                let off = distance(&found, self.row(row));
                match off <= near {
                    true => (Verdict::Followed, String::new()),
                    false if base <= NEAR => (Verdict::Ignored, format!("the reference moves by {by:.1e}")),
                    false => (Verdict::Wrong, format!("off by {off:.1e}, the reference moves by {by:.1e}")),
                }
            }
            _ if case.get("inert").is_some() && base <= NEAR => (Verdict::Unmoved, String::new()),
            // The reference's vision part does not fit then; text alone does not need it.
            "shape" if words(&case["remove"]) == ["vision_config"] && base <= NEAR => {
                (Verdict::Unmoved, String::new())
            }
            _ => (Verdict::Ignored, format!("the reference: {outcome}, {}", case["says"])),
        }
    }
}

fn words(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|word| word.as_str().unwrap().to_owned()).collect()
}

/// Whether the message has the name of a key, a word of its value, or a tensor that the case is about.
fn names_it(why: &str, case: &Value) -> bool {
    fn keys(value: &Value, into: &mut Vec<String>) {
        match value {
            Value::Object(object) => {
                for (key, inner) in object {
                    into.push(key.clone());
                    keys(inner, into);
                }
            }
            Value::Array(list) => list.iter().for_each(|inner| keys(inner, into)),
            Value::String(word) => into.push(format!("`{word}`")),
            _ => {}
        }
    }
    let mut names = [words(&case["remove"]), words(&case["drop"])].concat();
    keys(&case["set"], &mut names);
    names.iter().any(|name| why.contains(name.as_str()))
}

/// A number of a file as f32.
pub(crate) fn narrow(number: &Value) -> f32 {
    number.to_string().parse().unwrap()
}

/// Largest difference over the largest logit.
pub(crate) fn distance(found: &[f32], wanted: &[f32]) -> f32 {
    if found.len() != wanted.len() {
        return f32::INFINITY;
    }
    let largest = wanted.iter().fold(0f32, |m, x| m.max(x.abs()));
    found.iter().zip(wanted).fold(0f32, |m, (f, w)| m.max((f - w).abs())) / largest
}

/// A safetensors file without some of its tensors.
fn without(file: &[u8], names: &[String]) -> Vec<u8> {
    if names.is_empty() {
        return file.to_vec();
    }
    let header = usize::try_from(u64::from_le_bytes(file[..8].try_into().unwrap())).unwrap();
    let entries: Map<String, Value> = serde_json::from_slice(&file[8..8 + header]).unwrap();
    let mut data = vec![];
    let mut kept = Map::new();
    for (name, mut entry) in entries {
        if let Some(offsets) = entry.get("data_offsets") {
            if names.contains(&name) {
                continue;
            }
            let [from, to] = [0, 1].map(|i| usize::try_from(offsets[i].as_u64().unwrap()).unwrap());
            let at = data.len();
            data.extend_from_slice(&file[8 + header..][from..to]);
            entry["data_offsets"] = serde_json::json!([at, data.len()]);
        }
        kept.insert(name, entry);
    }
    let head = serde_json::to_vec(&kept).unwrap();
    [&(head.len() as u64).to_le_bytes()[..], &head, &data].concat()
}

pub(crate) fn shown(case: &Value) -> String {
    let set = case["set"].as_object().into_iter().flatten().map(|(k, v)| format!("{k} = {v}"));
    let remove = words(&case["remove"]).into_iter().map(|k| format!("no {k}"));
    let drop = words(&case["drop"]).into_iter().map(|k| format!("without the tensor {k}"));
    set.chain(remove).chain(drop).collect::<Vec<_>>().join(", ")
}

#[expect(clippy::print_stdout, reason = "counts, for `--nocapture`")]
pub(crate) fn check(name: &str) {
    let mut family = Family::read(name);
    let dir = tempfile::tempdir().unwrap();
    match family.run(dir.path(), &Value::Null) {
        Ok(found) => {
            let off = distance(&found, family.row(0));
            assert!(off <= NEAR, "{name} as it is: {off:e}");
        }
        Err(why) => {
            assert!(why.contains("but this one is not run: "), "{name} as it is: {why}");
            family.not_run = Some(why);
        }
    }
    let cases = family.cases();
    let mut counts = BTreeMap::new();
    let mut failures = vec![];
    for case in cases {
        let (verdict, why) = family.judge(dir.path(), case);
        *counts.entry(verdict).or_insert(0usize) += 1;
        if !verdict.is_right() {
            let first = why.lines().take(2).collect::<Vec<_>>().join(" ");
            failures.push(format!("{name} | {verdict:?} | {} | {first}", shown(case)));
        }
    }
    println!("{name}: {} tried, {counts:?}", cases.len());
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

/// The vectors of an encoder by the backend for the processor.
fn check_cpu(name: &str) {
    let (family, dir) = (Family::read(name), tempfile::tempdir().unwrap());
    family.write(dir.path(), &Value::Null);
    let ids = family.ids();
    let options = RuntimeOptions { threads: Some(2), context: Some(ids.len()), ..RuntimeOptions::default() };
    let found = family.hidden(dir.path(), &options, &ids).unwrap();
    let off = distance(&found, family.row(0));
    assert!(off <= NEAR, "{name}: {off:e}");
}

macro_rules! families {
    ($($name:ident),*) => {$(
        #[test]
        fn $name() {
            check(stringify!($name));
        }
    )*};
}

families!(
    llama,
    mistral,
    qwen2,
    qwen3,
    gemma3,
    gpt2,
    phi3,
    mixtral,
    qwen3moe,
    qwen35,
    qwen35_biased,
    deepseek_v2,
    deepseek_v3,
    gpt_oss,
    qwen3_biased,
    gemma3_parts,
    starcoder2,
    granite,
    olmo2,
    olmo2_biased,
    gemma2,
    falcon,
    falcon_grouped
);

macro_rules! encoders {
    ($($name:ident),*) => {$(
        #[test]
        fn $name() {
            check(stringify!($name));
            check_cpu(stringify!($name));
        }
    )*};
}

encoders!(bert, roberta, xlm_roberta, distilbert, mpnet, modernbert, modernbert_plain, nomic_bert);
