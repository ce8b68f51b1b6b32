//! PEFT directories: `adapter_config.json` beside `adapter_model.safetensors` or `adapter_model.bin`.

use std::collections::BTreeMap;
use std::path::Path;

use checkpoint::Checkpoint;
use model::KeyVerdict;
use serde_json::Value;
use tensor::{Diagnostic, Shape, counted};

use crate::config::Config;
use crate::factors::{Factor, Halves, factors, pair};
use crate::pair::Pair;
use crate::{Error, Problem};

/// The configuration's name.
pub(crate) const CONFIG: &str = "adapter_config.json";
/// Names of the weights, the preferred one first.
const WEIGHTS: [&str; 2] = ["adapter_model.safetensors", "adapter_model.bin"];
/// A configuration may be this long, in bytes.
const LONGEST: u64 = 16 << 20;
/// What peft puts before the names of the model.
const PREFIX: &str = "base_model.model.";
/// How the names of factors end: those of linear layers, and those of an embedding.
const ENDS: [(&str, &str); 2] =
    [(".lora_A.weight", ".lora_B.weight"), (".lora_embedding_A", ".lora_embedding_B")];
/// How the name of a matrix ends that is saved beside its factors.
const BASE: &str = ".base_layer.weight";
const WANTED: &str =
    "`NAME.lora_A.weight`, `NAME.lora_B.weight`, `NAME.lora_embedding_A` or `NAME.lora_embedding_B`";

/// What is read of a directory.
pub(crate) struct Peft {
    pub(crate) pairs: Vec<Pair>,
    pub(crate) keys: Vec<KeyVerdict>,
    pub(crate) problems: Vec<Problem>,
}

/// Opens the weights in `dir`.
pub(crate) fn weights(dir: &Path) -> Result<Checkpoint, Error> {
    let found = WEIGHTS.iter().map(|name| dir.join(name)).find(|path| path.exists());
    match found {
        Some(path) => Ok(checkpoint::open(path)?),
        None => {
            let what =
                format!("`{}` has no weights: wanted `{}` or `{}`", dir.display(), WEIGHTS[0], WEIGHTS[1]);
            Err(Error::Malformed { what: Diagnostic::new(what) })
        }
    }
}

/// What the tensors of one module are.
#[derive(Default)]
struct Module {
    halves: Halves,
    /// The factors are those of an embedding.
    is_embedding: bool,
    /// Takes the place of the matrix beside its factors.
    base: Option<Factor>,
    /// Takes the place of the matrix, without factors.
    whole: Option<Factor>,
}

impl Module {
    /// Where the tensor called `bare` goes; `None` if it is of no module.
    fn place<'m>(
        modules: &'m mut BTreeMap<String, Module>,
        bare: &str,
        config: &Config,
    ) -> Option<&'m mut Option<Factor>> {
        for (kind, (a, b)) in ENDS.iter().enumerate() {
            let (name, is_a) = match bare.strip_suffix(a) {
                Some(name) => (name, true),
                None => match bare.strip_suffix(b) {
                    Some(name) => (name, false),
                    None => continue,
                },
            };
            let module = modules.entry(name.to_owned()).or_default();
            module.is_embedding = kind == 1;
            return Some(if is_a { &mut module.halves.a } else { &mut module.halves.b });
        }
        if let Some(name) = bare.strip_suffix(BASE) {
            return Some(&mut modules.entry(name.to_owned()).or_default().base);
        }
        let name = bare.strip_suffix(".weight").filter(|name| config.is_saved(name))?;
        Some(&mut modules.entry(name.to_owned()).or_default().whole)
    }

    /// The change of the module called `name`.
    fn pair(self, name: &str, config: &Config, problems: &mut Vec<Problem>) -> Option<Pair> {
        let Module { halves, is_embedding, base, whole } = self;
        let matrix = format!("{name}.weight");
        if let Some(whole) = whole {
            return Some(Pair::replacing(matrix, whole));
        }
        let other = |tensor: &str| {
            let mut ends = ENDS.iter().flat_map(|(a, b)| [(*a, *b), (*b, *a), (BASE, *a)]);
            ends.find_map(|(own, other)| Some(format!("{}{other}", tensor.strip_suffix(own)?)))
        };
        if let (None, None, Some(base)) = (&halves.a, &halves.b, &base) {
            let (tensor, missing) = (base.tensor.clone(), other(&base.tensor).unwrap_or_default());
            problems.push(Problem::Lone { tensor, missing });
            return None;
        }
        let (mut a, mut b) = halves.both(other, problems)?;
        if is_embedding {
            // An embedding is [tokens, hidden]: the transposed product.
            (a, b) = (b.transposed(), a.transposed());
        }
        #[expect(clippy::cast_possible_truncation, reason = "factors are f32")]
        let scale = config.scale(name) as f32;
        let mut pair = pair(matrix, a, b, scale, problems)?;
        if let Some(base) = base {
            let found = Shape::from([pair.outputs as u64, pair.inputs as u64]);
            if base.shape() != found {
                let (name, wanted) = (pair.name.clone(), base.shape());
                problems.push(Problem::Shape { name, found, param: base.tensor, wanted });
                return None;
            }
            pair.base = Some(base.values);
        }
        let (found, wanted) = (pair.rank as u64, config.rank(name));
        if found != wanted {
            problems.push(Problem::Rank { name: pair.name.clone(), found, wanted });
        }
        Some(pair)
    }
}

/// Reads the adapter whose configuration is in `dir`.
pub(crate) fn read(dir: &Path, weights: &Checkpoint) -> Result<Peft, Error> {
    let value = config(&dir.join(CONFIG))?;
    let (mut problems, mut keys) = (vec![], vec![]);
    let config = Config::read(&value, &mut problems, &mut keys);
    let mut modules = BTreeMap::new();
    for factor in factors(weights, &mut problems)? {
        let bare = factor.tensor.strip_prefix(PREFIX).unwrap_or(&factor.tensor);
        match Module::place(&mut modules, bare, &config) {
            Some(place) => *place = Some(factor),
            None => problems.push(Problem::NoFactor { tensor: factor.tensor, wanted: WANTED }),
        }
    }
    let is_saved =
        |name: &str| modules.iter().any(|(module, own)| own.whole.is_some() && module.ends_with(name));
    config.without(is_saved, &mut problems);
    let pairs =
        modules.into_iter().filter_map(|(name, module)| module.pair(&name, &config, &mut problems)).collect();
    Ok(Peft { pairs, keys, problems })
}

/// Reads a configuration.
fn config(path: &Path) -> Result<Value, Error> {
    let io = |source| Error::Io { path: path.display().to_string(), source };
    let length = std::fs::metadata(path).map_err(io)?.len();
    let refuse = |what: String| Error::Malformed { what: Diagnostic::new(what) };
    if length > LONGEST {
        let (found, most) = (counted(length, "byte"), counted(LONGEST, "byte"));
        return Err(refuse(format!("`{}` has {found}, wanted at most {most}", path.display())));
    }
    let text = std::fs::read(path).map_err(io)?;
    let value: Value = serde_json::from_slice(&text)
        .map_err(|e| refuse(format!("`{}` is not JSON: {e}", path.display())))?;
    if value.is_object() { Ok(value) } else { Err(refuse(format!("`{}` is no JSON object", path.display()))) }
}
