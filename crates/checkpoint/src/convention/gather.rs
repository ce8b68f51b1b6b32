//! Quantised weights that their ecosystem spreads over several tensors: `qweight`, `scales`, `qzeros`.
//!
//! A [`Convention`] reads from `config.json` that a checkpoint follows it, and from the tensors of one module
//! which scheme the module's weight has and of what shape it is. The rest is the same for all: the scheme's
//! codec names the tensors that hold its planes ([`Codec::parts`](quant::Codec::parts)), and [`gather`] finds them, checks them and
//! puts one [`TensorEntry`] in their place. `Codec::parts` read the other way is how such a weight is
//! written.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde_json::{Map, Value};
use tensor::{Dtype, Scheme, Shape, TensorEntry};

use quant::codec;

use super::CONVENTIONS;

/// Paths of keys. A key without effect has the reason; a key that is read has `None`.
pub type Keys = [(&'static str, Option<&'static str>)];

/// Where `config.json` says how weights are quantised.
const OBJECTS: &[&str] = &["quantization", "quantization_config", "compression_config"];

/// The use of a key of `quantization_config`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// It is read or checked.
    Read,
    /// It changes no result, for this reason.
    WithoutEffect(&'static str),
    /// The convention does not know it.
    Unknown,
}

/// Returns the use of `key` of `config.json`, given by its full path; `None` if it belongs to no quantisation.
pub fn config_key(config: &Value, key: &str) -> Option<KeyUse> {
    let bare = key.strip_prefix("text_config.").unwrap_or(key);
    let (object, path) = bare.split_once('.').filter(|(object, _)| OBJECTS.contains(object))?;
    let convention = CONVENTIONS.iter().find(|c| c.read(config).is_some());
    Some(convention.map_or(KeyUse::Unknown, |convention| convention.key_use(config, object, path)))
}

/// Looks up the key at `path`.
pub(crate) fn known(keys: &Keys, path: &str) -> KeyUse {
    let found = keys.iter().find(|(pattern, _)| matches(pattern, path));
    found.map_or(KeyUse::Unknown, |(_, why)| why.map_or(KeyUse::Read, KeyUse::WithoutEffect))
}

/// Matches all of `text` against `pattern`. A star matches any text.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len()).any(|at| rest.is_char_boundary(at) && matches(after, &rest[at..]))
        }),
    }
}

/// One way of spreading weights over tensors.
pub trait Convention: Sync {
    /// Its name: `gptq`.
    fn name(&self) -> &'static str;

    /// How a checkpoint with this `config.json` follows the convention; `None` if it does not.
    ///
    /// # Errors
    /// The problem of the configuration.
    fn read(&self, config: &Value) -> Option<Result<Box<dyn ConventionReader>, String>>;

    /// The known keys of the object that [`Convention::read`] reads, by path. A star matches any text.
    fn keys(&self) -> &'static Keys;

    /// Returns the use of the key at `path` of `object` of this `config.json`.
    fn key_use(&self, config: &Value, object: &str, path: &str) -> KeyUse {
        let _ = (config, object);
        known(self.keys(), path)
    }

    /// The keys of `config.json` that say that these modules' weights, plain ones among them, have these schemes, where the source's
    /// `quantization_config` is `before`; `None` if the convention cannot say that.
    fn describe(&self, weights: &[(&str, &Scheme)], before: Option<&Value>) -> Option<Map<String, Value>> {
        let _ = (weights, before);
        None
    }
}

/// Returns the keys of `config.json` with which [`gather`] finds `weights`: the module name and the scheme of every
/// quantised weight and every plain matrix. The source has `before` as its `quantization_config`. With `mlx`, only keys that
/// mlx-lm reads will do.
pub(crate) fn describe(
    weights: &[(&str, &Scheme)],
    before: Option<&Value>,
    mlx: bool,
) -> Option<Map<String, Value>> {
    let reads = |c: &&&dyn Convention| !mlx || c.name() == "mlx";
    CONVENTIONS.iter().filter(reads).find_map(|c| c.describe(weights, before))
}

/// The description `said` of weights some of which were `before` in the same method: the keys that say how they were made stay. It is
/// `before` itself where that says the same. `exact` are keys whose absence says something.
pub(super) fn described(
    said: Map<String, Value>,
    before: Option<&Value>,
    exact: &[&str],
) -> Map<String, Value> {
    let before = before.and_then(Value::as_object);
    let Some(before) = before.filter(|before| before.get("quant_method") == said.get("quant_method")) else {
        return said;
    };
    let same = said.iter().all(|(key, value)| before.get(key).is_none_or(|before| before == value))
        && exact.iter().all(|key| before.contains_key(*key) == said.contains_key(*key));
    let mut all = before.clone();
    if !same {
        // The newer name of `checkpoint_format`.
        exact.iter().chain(&["format"]).for_each(|key| drop(all.remove(*key)));
        all.extend(said);
    }
    all
}

/// The weights with a name.
type Named<'a> = Vec<(&'a str, &'a Scheme)>;

/// The plain ones of `weights`, and the quantised ones.
pub(crate) fn split<'a>(weights: &[(&'a str, &'a Scheme)]) -> (Named<'a>, Named<'a>) {
    weights.iter().copied().partition(|(_, scheme)| scheme.dtype().is_some())
}

/// How one checkpoint follows a [`Convention`].
pub trait ConventionReader {
    /// Suffixes of tensors that make a module quantised. All of a module's are looked at together.
    fn marks(&self) -> &'static [&'static str];

    /// Returns the weight of `module`, which has at least one of the marks; `None` if it is not quantised after all.
    ///
    /// # Errors
    /// The problem, with the value wanted and the value found.
    fn weight(&self, module: &QuantisedModule<'_>) -> Result<Option<Weight>, String>;
}

/// A weight that was recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weight {
    /// The part of the weight's name after the module's name: `.weight`.
    pub suffix: &'static str,
    /// The name of its scheme.
    pub scheme: String,
    /// Its logical shape, `[out, in]` or with leading axes.
    pub shape: Shape,
    /// Suffixes of tensors that only say what `scheme` and `shape` say now.
    pub facts: Vec<&'static str>,
    /// Planes that have another name here than [`Codec::parts`](quant::Codec::parts) gives them: that suffix, and the one here.
    pub renamed: Vec<(&'static str, &'static str)>,
}

/// The tensors of one module that carry marks.
pub struct QuantisedModule<'a> {
    name: &'a str,
    parts: BTreeMap<&'static str, &'a TensorEntry>,
    read: &'a dyn Fn(&TensorEntry) -> Result<Vec<u8>, String>,
}

impl fmt::Debug for QuantisedModule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuantisedModule").finish_non_exhaustive()
    }
}

/// A condition that one module's tensors do not meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inconsistent {
    /// The module, or empty for the configuration.
    pub module: String,
    /// The problem.
    pub what: String,
}

impl fmt::Display for Inconsistent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.module.is_empty() {
            f.write_str(&self.what)
        } else {
            write!(f, "`{}`: {}", self.module, self.what)
        }
    }
}

impl<'a> QuantisedModule<'a> {
    /// The module's name, without a trailing dot.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// The tensor with this mark.
    pub fn get(&self, mark: &str) -> Option<&'a TensorEntry> {
        self.parts.get(mark).copied()
    }

    /// The tensor with this mark.
    ///
    /// # Errors
    /// If it is not there.
    pub fn want(&self, mark: &str) -> Result<&'a TensorEntry, String> {
        self.get(mark).ok_or_else(|| {
            let there: Vec<String> =
                self.parts.keys().map(|k| format!("`{}`", k.trim_start_matches('.'))).collect();
            format!("wanted `{}` beside {}, found none", mark.trim_start_matches('.'), there.join(", "))
        })
    }

    /// The shape of the tensor with this mark, which must have `N` axes.
    ///
    /// # Errors
    /// If it is not there or has another number of axes.
    pub fn shape<const N: usize>(&self, mark: &str) -> Result<[u64; N], String> {
        let entry = self.want(mark)?;
        <[u64; N]>::try_from(&*entry.shape).map_err(|_| {
            format!("`{}` has shape {}, wanted {N} axes", mark.trim_start_matches('.'), entry.shape)
        })
    }

    /// The dtype of the tensor with this mark.
    ///
    /// # Errors
    /// If it is not there, or of another dtype than `allowed`.
    pub fn dtype(&self, mark: &str, allowed: &[Dtype]) -> Result<Dtype, String> {
        let entry = self.want(mark)?;
        let found = entry.scheme.dtype().filter(|d| allowed.contains(d));
        found.ok_or_else(|| {
            let allowed: Vec<&str> = allowed.iter().map(|d| d.name()).collect();
            let mark = mark.trim_start_matches('.');
            format!("`{mark}` is {}, wanted {}", entry.scheme, allowed.join(" or "))
        })
    }

    /// The bytes of a small tensor with this mark, at most 256 KiB.
    ///
    /// # Errors
    /// If it is not there, larger, or cannot be read.
    pub fn bytes(&self, mark: &str) -> Result<Vec<u8>, String> {
        const MOST: u64 = 256 << 10;
        let entry = self.want(mark)?;
        if entry.byte_len() > MOST {
            let mark = mark.trim_start_matches('.');
            return Err(format!("`{mark}` has {} bytes, wanted at most {MOST}", entry.byte_len()));
        }
        (self.read)(entry)
    }
}

/// Replaces the tensors that together hold one quantised weight by one entry, as `config.json` says
/// that they do. `read` gives the bytes of small tensors. Entries that no convention takes stay as they are.
///
/// # Errors
/// Everything that does not fit together, by module.
pub fn gather(
    config: &Value,
    entries: Vec<TensorEntry>,
    read: &dyn Fn(&TensorEntry) -> Result<Vec<u8>, String>,
) -> Result<Vec<TensorEntry>, Vec<Inconsistent>> {
    let Some(reading) = CONVENTIONS.iter().find_map(|c| c.read(config)) else { return Ok(entries) };
    let reading = match reading {
        Ok(reading) => reading,
        Err(what) => return Err(vec![Inconsistent { module: String::new(), what }]),
    };
    let (taken, gathered) = weights(&*reading, &entries, read)?;
    let mut out = Vec::with_capacity(entries.len());
    for (i, entry) in entries.into_iter().enumerate() {
        match taken.get(&i) {
            None => out.push(entry),
            Some(Some(weight)) => out.push(gathered[*weight].clone()),
            Some(None) => {}
        }
    }
    Ok(out)
}

/// For each entry that is taken, the weight that stands there now, if any; and the weights.
type Taken = (HashMap<usize, Option<usize>>, Vec<TensorEntry>);

fn weights(
    reading: &dyn ConventionReader,
    entries: &[TensorEntry],
    read: &dyn Fn(&TensorEntry) -> Result<Vec<u8>, String>,
) -> Result<Taken, Vec<Inconsistent>> {
    let index: HashMap<&str, usize> = entries.iter().enumerate().map(|(i, e)| (e.name.as_str(), i)).collect();
    let mut modules: BTreeMap<&str, QuantisedModule<'_>> = BTreeMap::new();
    for entry in entries {
        // The longest mark: `.weight.absmax` goes before `.absmax`.
        let marks = reading.marks().iter().filter_map(|m| Some((*m, entry.name.strip_suffix(m)?)));
        let Some((mark, name)) = marks.max_by_key(|(m, _)| m.len()) else { continue };
        let module =
            modules.entry(name).or_insert_with(|| QuantisedModule { name, parts: BTreeMap::new(), read });
        module.parts.insert(mark, entry);
    }

    let (mut taken, mut gathered, mut problems) = (HashMap::new(), vec![], vec![]);
    for module in modules.values() {
        let weight = match reading.weight(module) {
            Ok(Some(weight)) => weight,
            Ok(None) => continue,
            Err(what) => {
                problems.push(Inconsistent { module: module.name.to_owned(), what });
                continue;
            }
        };
        match join(module.name, &weight, &index, entries) {
            Ok((entry, planes)) => {
                let clash = index.get(entry.name.as_str()).filter(|i| !planes.contains(i));
                if clash.is_some() {
                    let what = format!("its weight would be called `{}`, as another tensor is", entry.name);
                    problems.push(Inconsistent { module: module.name.to_owned(), what });
                }
                let first = planes.iter().copied().min();
                let facts =
                    weight.facts.iter().filter_map(|f| index.get(format!("{}{f}", module.name).as_str()));
                for i in planes.into_iter().chain(facts.copied()) {
                    taken.insert(i, (Some(i) == first).then_some(gathered.len()));
                }
                gathered.push(entry);
            }
            Err(wrong) => problems
                .extend(wrong.into_iter().map(|what| Inconsistent { module: module.name.to_owned(), what })),
        }
    }
    if problems.is_empty() { Ok((taken, gathered)) } else { Err(problems) }
}

/// The entry of `weight`, and which entries its planes are; or all that is wrong with them.
fn join(
    module: &str,
    weight: &Weight,
    index: &HashMap<&str, usize>,
    entries: &[TensorEntry],
) -> Result<(TensorEntry, Vec<usize>), Vec<String>> {
    let Weight { scheme, shape, .. } = weight;
    let Some(codec) = codec(scheme) else { return Err(vec![format!("no scheme is called `{scheme}`")]) };
    let geometry = quant::scheme(scheme).unwrap_or_else(|| codec.scheme());
    geometry.byte_len(shape).map_err(|why| vec![format!("shape {shape} cannot be `{scheme}`: {why}")])?;
    let (mut planes, mut wrong) = (vec![], vec![]);
    for part in codec.parts(shape) {
        let renamed = weight.renamed.iter().find(|(usual, _)| *usual == part.suffix);
        let suffix = renamed.map_or(part.suffix, |(_, here)| here);
        let (name, short) = (format!("{module}{suffix}"), suffix.trim_start_matches('.'));
        let Some(&i) = index.get(name.as_str()) else {
            wrong.push(format!("wanted `{short}` {} {}, found none", part.shape, part.dtype));
            continue;
        };
        let entry = &entries[i];
        let dtype = entry.scheme.dtype().is_some_and(|d| alike(d, part.dtype));
        if !dtype || !squeezed(&entry.shape).eq(squeezed(&part.shape)) {
            wrong.push(format!(
                "`{short}` is {} {}, wanted {} {}, for `{scheme}` {shape}",
                entry.shape, entry.scheme, part.shape, part.dtype
            ));
        }
        if entry.strides.is_some() {
            wrong.push(format!("`{short}` is a view with strides, wanted its elements one after another"));
        }
        planes.push(i);
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let name = format!("{module}{}", weight.suffix);
    let data = planes.iter().flat_map(|&i| entries[i].planes.iter().cloned()).collect::<Vec<_>>();
    assert_eq!(data.len(), geometry.planes.len(), "`{scheme}` names a part for each plane");
    Ok((TensorEntry { name, shape: shape.clone(), scheme: geometry, planes: data, strides: None }, planes))
}

/// Whether both are the same bits to a codec: integers of a width are, and bytes that stand for small floats.
fn alike(found: Dtype, wanted: Dtype) -> bool {
    use Dtype::{F8E4M3, F8E5M2, F8E8M0, I8, I32, U8, U32};
    let bits = |d| match d {
        I32 | U32 => 32,
        I8 | U8 | F8E8M0 | F8E4M3 | F8E5M2 => 8,
        _ => 0,
    };
    let raw = |d| matches!(d, I32 | U32 | I8 | U8);
    found == wanted || (bits(found) == bits(wanted) && bits(found) > 0 && (raw(found) || raw(wanted)))
}

fn squeezed(shape: &Shape) -> impl Iterator<Item = &u64> {
    shape.iter().filter(|n| **n != 1)
}
