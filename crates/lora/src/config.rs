//! What a PEFT directory says in `adapter_config.json`: a verdict on every key.
//!
//! Source: peft 0.21.2, tuners/lora/config.py, `LoraConfig`; the scale of a pair is that of tuners/lora/layer.py,
//! `update_layer`.

use model::{Fact, Facts, KeyVerdict, Verdict};
use serde_json::Value;

use crate::Problem;

const TRAINING: &str = "for training";
const PROGRAM: &str = "of the program that wrote it";
const TENSORS: &str = "the tensors say it";
const INITIAL: &str = "how the factors began";

/// Keys that change nothing in a trained adapter, each with the reason.
static WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("task_type", "about the adapter"),
    ("auto_mapping", "about the adapter"),
    ("base_model_name_or_path", "about the adapter"),
    ("revision", "about the adapter"),
    ("peft_version", PROGRAM),
    ("inference_mode", PROGRAM),
    ("target_modules", TENSORS),
    ("exclude_modules", TENSORS),
    ("layers_to_transform", TENSORS),
    ("layers_pattern", TENSORS),
    ("lora_dropout", TRAINING),
    // peft sets it to what the module is, and warns (tuners/lora/model.py, `_create_new_module`).
    ("fan_in_fan_out", "the module says it"),
    ("megatron_core", "for training with Megatron"),
    ("loftq_config", INITIAL),
    ("eva_config", INITIAL),
    ("corda_config", INITIAL),
    ("lora_ga_config", INITIAL),
    ("runtime_config", "for the program that runs it"),
    ("qalora_group_size", "`use_qalora` is not set"),
    ("ensure_weight_tying", "tied tensors are not changed"),
];

/// Keys that add to a change, or change something else. They are followed as long as they are not set.
static UNSET: &[&str] = &[
    "trainable_token_indices",
    "target_parameters",
    "layer_replication",
    "alora_invocation_tokens",
    "megatron_config",
    "arrow_config",
    "kasa_config",
    "monteclora_config",
    "velora_config",
    "use_bdlora",
    "use_dora",
    "use_qalora",
    "lora_bias",
];

/// Ways in which factors begin that leave the base model as it is. Others (PiSSA, OLoRA, CorDA, LoftQ, LoRA-GA) change it.
static INITS: &[&str] = &["gaussian", "eva", "orthogonal", "mica"];

const MERGE: &str = "merge the adapter with peft (`merge_and_unload`), and load the result";

/// What a configuration says that factors are scaled by.
#[derive(Debug, PartialEq)]
pub(crate) struct Config {
    rank: u64,
    alpha: f64,
    by_root: bool,
    ranks: Vec<(ModulePattern, u64)>,
    alphas: Vec<(ModulePattern, f64)>,
    /// Modules that are in the adapter as a whole.
    saved: Vec<String>,
}

impl Config {
    /// Reads a configuration. Adds what is wrong with it to `problems`, and its keys to `keys`.
    pub(crate) fn read(value: &Value, problems: &mut Vec<Problem>, keys: &mut Vec<KeyVerdict>) -> Config {
        let mut reader = Reader { value, problems, keys };
        reader.checked("peft_type", "\"LORA\"", |v| v.as_str().is_some_and(|s| s == "LORA"), MERGE);
        reader.checked_or("bias", "\"none\"", true, |v| v.as_str() == Some("none"), MERGE);
        for key in UNSET {
            reader.checked_or(key, "no value", true, is_unset, MERGE);
        }
        let init = |v: &Value| match v {
            Value::Null | Value::Bool(_) => true,
            Value::String(s) => INITS.contains(&s.to_lowercase().as_str()),
            _ => false,
        };
        let hint = "such an adapter changes the base model too: convert it with peft \
                    (`path_initial_model_for_weight_conversion` of `save_pretrained`)";
        let wanted = format!("true, false or {}", INITS.join(", "));
        reader.checked_or("init_lora_weights", &wanted, true, init, hint);
        let rank = reader.required("r", "a rank", |v| v.as_u64().filter(|r| *r > 0));
        let alpha = reader.required("lora_alpha", "a number", Value::as_f64);
        let by_root = reader.optional("use_rslora", "true or false", Value::as_bool).unwrap_or(false);
        let ranks = reader.patterns("rank_pattern", "ranks", |v| v.as_u64().filter(|r| *r > 0));
        let alphas = reader.patterns("alpha_pattern", "numbers", Value::as_f64);
        let names = |v: &Value| v.as_array()?.iter().map(|name| Some(name.as_str()?.to_owned())).collect();
        let saved = reader.optional("modules_to_save", "a list of modules", names).unwrap_or_default();
        reader.rest();
        Config { rank: rank.unwrap_or(1), alpha: alpha.unwrap_or(0.0), by_root, ranks, alphas, saved }
    }

    /// Whether `module` is one of `modules_to_save` (peft utils/other.py, `_set_trainable`).
    pub(crate) fn is_saved(&self, module: &str) -> bool {
        self.saved.iter().any(|name| module.ends_with(name.as_str()))
    }

    /// Adds the entries of `modules_to_save` that no module `fits`.
    pub(crate) fn without(&self, fits: impl Fn(&str) -> bool, problems: &mut Vec<Problem>) {
        for name in self.saved.iter().filter(|name| !fits(name)) {
            let (key, found) = ("modules_to_save".to_owned(), Some(format!("{name:?}")));
            let wanted = "modules whose `weight` is in the adapter".to_owned();
            problems.push(Problem::Key { key, found, wanted, hint: None });
        }
    }

    /// The rank of the factors of `module`.
    pub(crate) fn rank(&self, module: &str) -> u64 {
        of(&self.ranks, module).unwrap_or(self.rank)
    }

    /// What the product of the factors of `module` is multiplied by.
    pub(crate) fn scale(&self, module: &str) -> f64 {
        let (rank, alpha) = (self.rank(module) as f64, of(&self.alphas, module).unwrap_or(self.alpha));
        alpha / if self.by_root { rank.sqrt() } else { rank }
    }
}

/// The value of the first pattern that `module` fits.
fn of<T: Copy>(patterns: &[(ModulePattern, T)], module: &str) -> Option<T> {
    patterns.iter().find(|(pattern, _)| pattern.matches(module)).map(|(_, value)| *value)
}

/// Whether a key has no value, or one that asks for nothing.
fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.is_empty(),
        _ => false,
    }
}

/// Names of modules: the end of a name from a dot on, or all of it after `^`. A dot stands for any character, as in the
/// regular expressions that peft makes of them (utils/other.py, `get_pattern_key`); these have nothing else.
#[derive(Debug, PartialEq)]
struct ModulePattern(String);

impl ModulePattern {
    /// `None` if it is more than a name.
    fn parse(text: &str) -> Option<ModulePattern> {
        let name = text.strip_prefix('^').unwrap_or(text);
        let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-');
        (!name.is_empty() && name.chars().all(plain)).then(|| ModulePattern(text.to_owned()))
    }

    fn matches(&self, module: &str) -> bool {
        let alike = |name: &str, module: &str| {
            name.chars().count() == module.chars().count()
                && name.chars().zip(module.chars()).all(|(wanted, found)| wanted == '.' || wanted == found)
        };
        match self.0.strip_prefix('^') {
            Some(whole) => alike(whole, module),
            None => {
                let ends = module.match_indices('.').map(|(at, _)| &module[at + 1..]);
                std::iter::once(module).chain(ends).any(|end| alike(&self.0, end))
            }
        }
    }
}

struct Reader<'a> {
    value: &'a Value,
    problems: &'a mut Vec<Problem>,
    keys: &'a mut Vec<KeyVerdict>,
}

impl Reader<'_> {
    fn note(&mut self, key: &str, verdict: Verdict) {
        let value = self.value.lookup(key).unwrap_or(Fact::Null).to_string();
        self.keys.push(KeyVerdict { key: key.to_owned(), value, verdict });
    }

    fn refuse(&mut self, key: &str, wanted: &str, hint: Option<&str>) {
        let found = self.value.lookup(key).map(|found| found.to_string());
        let (wanted, hint) = (wanted.to_owned(), hint.map(str::to_owned));
        self.problems.push(Problem::Key { key: key.to_owned(), found, wanted, hint });
    }

    fn checked(&mut self, key: &str, wanted: &str, fits: impl FnOnce(&Value) -> bool, hint: &str) {
        self.checked_or(key, wanted, false, fits, hint);
    }

    /// A key with few values that are followed; `absent` says whether it may be absent.
    fn checked_or(
        &mut self,
        key: &str,
        wanted: &str,
        absent: bool,
        fits: impl FnOnce(&Value) -> bool,
        hint: &str,
    ) {
        match self.value.get(key) {
            Some(value) if fits(value) => self.note(key, Verdict::Checked),
            None if absent => {}
            _ => self.refuse(key, wanted, Some(hint)),
        }
    }

    fn required<T>(&mut self, key: &str, wanted: &str, read: impl FnOnce(&Value) -> Option<T>) -> Option<T> {
        let found = self.value.get(key).and_then(read);
        match &found {
            Some(_) => self.note(key, Verdict::Used),
            None => self.refuse(key, wanted, None),
        }
        found
    }

    fn optional<T>(&mut self, key: &str, wanted: &str, read: impl FnOnce(&Value) -> Option<T>) -> Option<T> {
        match self.value.get(key) {
            None | Some(Value::Null) => None,
            Some(_) => self.required(key, wanted, read),
        }
    }

    /// Numbers by patterns of modules.
    fn patterns<T>(
        &mut self,
        key: &str,
        wanted: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Vec<(ModulePattern, T)> {
        let wanted = format!("{wanted} by the names of modules, without regular expressions");
        let pair = |(name, value): (&String, &Value)| Some((ModulePattern::parse(name)?, read(value)?));
        let all = |value: &Value| value.as_object()?.iter().map(pair).collect::<Option<Vec<_>>>();
        self.optional(key, &wanted, all).unwrap_or_default()
    }

    /// Every key that was not asked for.
    fn rest(&mut self) {
        let Some(all) = self.value.as_object() else { return };
        let refused = |key: &str| {
            let is = |problem: &Problem| matches!(problem, Problem::Key { key: own, .. } if own == key);
            self.problems.iter().any(is)
        };
        let left: Vec<&String> =
            all.keys().filter(|key| !refused(key) && self.keys.iter().all(|k| k.key != **key)).collect();
        for key in left {
            // Absent and null are the same.
            if all[key].is_null() {
                continue;
            }
            let known = WITHOUT_EFFECT.iter().find(|(name, _)| name == key);
            self.note(key, known.map_or(Verdict::Unknown, |(_, why)| Verdict::WithoutEffect(why)));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: &Value) -> (Config, Vec<Problem>, Vec<KeyVerdict>) {
        let (mut problems, mut keys) = (vec![], vec![]);
        let config = Config::read(value, &mut problems, &mut keys);
        (config, problems, keys)
    }

    #[test]
    fn scales_follow_the_patterns() {
        let (config, problems, _) = read(&json!({
            "peft_type": "LORA", "r": 8, "lora_alpha": 16,
            "rank_pattern": {"q_proj": 4, "^model.layers.1.mlp.up_proj": 2},
            "alpha_pattern": {"layers.0.self_attn.q_proj": 2},
        }));
        assert_eq!(problems, []);
        assert_eq!(config.rank("model.layers.0.self_attn.q_proj"), 4);
        assert!((config.scale("model.layers.0.self_attn.q_proj") - 0.5).abs() < 1e-9);
        assert!((config.scale("model.layers.1.self_attn.q_proj") - 4.0).abs() < 1e-9);
        assert_eq!(config.rank("model.layers.1.mlp.up_proj"), 2);
        assert_eq!(config.rank("x.model.layers.1.mlp.up_proj"), 8);
        assert_eq!(config.rank("model.layers.0.self_attn.seq_proj"), 8);
        let (root, ..) = read(&json!({"peft_type": "LORA", "r": 4, "lora_alpha": 6, "use_rslora": true}));
        assert!((root.scale("x") - 3.0).abs() < 1e-9);
    }

    #[test]
    fn every_key_has_a_verdict() {
        let (_, problems, keys) = read(&json!({
            "peft_type": "LORA", "r": 8, "lora_alpha": 16, "bias": "all", "use_dora": true, "lora_dropout": 0.1,
            "init_lora_weights": "pissa_niter_4", "modules_to_save": ["lm_head"], "rank_pattern": {"a|b": 2}, "new": 1,
        }));
        let wrong: Vec<String> = problems
            .iter()
            .map(|p| if let Problem::Key { key, .. } = p { key.clone() } else { String::new() })
            .collect();
        assert_eq!(wrong, ["bias", "use_dora", "init_lora_weights", "rank_pattern"]);
        let verdict = |key: &str| keys.iter().find(|k| k.key == key).unwrap().verdict.clone();
        assert_eq!(verdict("r"), Verdict::Used);
        assert_eq!(verdict("lora_dropout"), Verdict::WithoutEffect(TRAINING));
        assert_eq!(verdict("new"), Verdict::Unknown);
        assert_eq!(keys.len(), 6);
    }
}
