//! Everything that is wrong with a request to encode, found together.

use std::collections::{BTreeMap, HashSet};

use tensor::{Diagnostic, Dtype, IN, Pattern, PlaneAxis, Scheme, Shape, counted, nearest};

use super::rule::{encodable, glob};
use super::{EncodeRule, PRESETS, Preset, Seen, Subject};
use crate::Error;

/// Whether the values of a parameter in `scheme` are numbers to be rounded, not indices or flags.
pub(super) fn is_floating(scheme: &Scheme) -> bool {
    use Dtype::{BF16, F8E4M3, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0, F16, F32, F64};
    let floats = [F32, F16, BF16, F64, F8E4M3, F8E5M2, F8E8M0, F8E4M3FNUZ, F8E5M2FNUZ];
    scheme.dtype().is_none_or(|d| floats.contains(&d))
}

/// Checks that a tensor of `shape` can be encoded in `scheme`. `mx.quantize` of mlx 0.32 and AutoAWQ 0.2.9 take whole groups alone,
/// and squish computes the size of a group from the shapes of the arrays, where a scheme by itself may end a row with a part of one.
///
/// # Errors
/// The obstacle, as a message.
pub fn fits(scheme: &Scheme, shape: &Shape) -> Result<(), String> {
    scheme.byte_len(shape).map_err(|why| why.to_string())?;
    let columns = shape.last().copied().unwrap_or(1);
    let cells = scheme.planes.iter().flat_map(|plane| plane.axes.iter());
    let group = cells.filter_map(|axis| match axis {
        PlaneAxis::Cells { axis: IN, per, .. } => Some(*per),
        _ => None,
    });
    let whole = ["mlx-", "squish-", "awq:"].iter().any(|family| scheme.name.starts_with(family));
    match group.filter(|per| columns % per != 0).max() {
        Some(group) if whole => Err(format!("its {columns} columns are no whole groups of {group}")),
        _ => Ok(()),
    }
}

/// Returns true if the readers of a directory know `scheme` for linear layers alone: they replace these by layers of their own, and look up
/// embeddings in plain tables.
pub(super) fn of_linear_layers(scheme: &Scheme) -> bool {
    ["gptq:", "gptq-v2:", "awq:"].iter().any(|family| scheme.name.starts_with(family))
}

/// The format that encoded tensors are written to, and what it can hold.
#[derive(Clone, Copy)]
pub struct Holder<'a> {
    /// The format's name.
    pub name: &'a str,
    /// Whether it can hold a tensor of this scheme and shape.
    pub holds: &'a dyn Fn(&Scheme, &Shape) -> bool,
}

impl std::fmt::Debug for Holder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// The scheme nearest to `wanted` in bits a weight that can encode `shape`, and that `holder` holds.
fn legal(wanted: &Scheme, shape: &Shape, holder: Option<Holder<'_>>) -> Option<String> {
    let bits = |scheme: &Scheme| {
        // A shape that any scheme takes.
        let square = Shape::from([4096, 4096]);
        scheme.byte_len(&square).map_or(0.0, |bytes| bytes as f64 * 8.0 / (4096.0 * 4096.0))
    };
    let fits =
        |name: &String| quant::scheme(name).filter(|s| fits(s, shape).is_ok() && is_held(holder, s, shape));
    let fitting = encodable().into_iter().filter_map(|name| fits(&name).map(|s| (name, s)));
    // Encodings of linear layers are suggested only where one was asked for.
    let fitting = fitting.filter(|(_, s)| of_linear_layers(wanted) || !of_linear_layers(s));
    let distance = |s: &Scheme| (bits(s) - bits(wanted)).abs();
    fitting.min_by(|a, b| distance(&a.1).total_cmp(&distance(&b.1))).map(|(name, _)| name)
}

fn is_held(holder: Option<Holder<'_>>, scheme: &Scheme, shape: &Shape) -> bool {
    holder.is_none_or(|holder| (holder.holds)(scheme, shape))
}

/// Problems of a request to encode, grouped.
#[derive(Debug, Default)]
pub struct Misfits {
    whole: Vec<Diagnostic>,
    /// By preset that wants an importance matrix for a scheme: the number of parameters.
    unguided: BTreeMap<String, u64>,
    /// By preset and scheme that the format does not hold: the number of parameters, and a hint with the presets that
    /// it does hold.
    unheld: BTreeMap<String, (u64, Option<String>)>,
    /// By pattern of names, shape and scheme: the number of parameters, and the message.
    params: BTreeMap<(String, String, String), (u64, Diagnostic)>,
}

impl Misfits {
    /// Adds a problem of all parameters.
    pub fn whole(&mut self, what: String) {
        self.whole.push(Diagnostic::new(what));
    }

    /// Adds a problem of the parameter called `name`.
    pub fn param(&mut self, name: &str, what: String) {
        let key = (Pattern::of(name).to_string(), what.clone(), String::new());
        self.params.entry(key).or_insert_with(|| (0, Diagnostic::new(what))).0 += 1;
    }

    /// A rule that decides nothing.
    pub(super) fn rule(&mut self, rule: &EncodeRule, seen: &[(String, Seen)]) {
        let names: Vec<&str> = seen.iter().map(|(name, _)| name.as_str()).collect();
        let (why, hint) = match seen.iter().find(|(name, _)| rule.matches(name)) {
            None => ("no parameter matches".to_owned(), meant(rule.pattern(), &names)),
            Some((name, Seen::Floats)) => {
                (format!("earlier rules match all of its parameters, such as `{name}`"), None)
            }
            Some((name, Seen::Other(scheme))) => {
                (format!("only floats are encoded, and `{name}` is {scheme}"), None)
            }
            Some((name, Seen::Tied(root))) => (
                format!("`{name}` is tied to `{root}`, and is encoded with it"),
                Some(format!("name `{root}` in the rule")),
            ),
        };
        self.whole.push(Diagnostic::new(format!("rule `{rule}`: {why}")).with_hint(hint));
    }

    /// A parameter that cannot take `scheme`.
    pub(super) fn check(&mut self, subject: &Subject<'_>, scheme: &Scheme, holder: Option<Holder<'_>>) {
        let why = match (fits(scheme, subject.shape), holder) {
            (Err(why), _) => why,
            (Ok(()), Some(holder)) if !is_held(Some(holder), scheme, subject.shape) => {
                format!("{} cannot store it", holder.name)
            }
            (Ok(()), _) => return,
        };
        let (pattern, shape) = (Pattern::of(subject.name).to_string(), subject.shape.to_string());
        let message = || {
            let share = subject.whole.filter(|whole| *whole != subject.shape);
            let share = share.map_or_else(String::new, |whole| format!(", a rank's share of {whole},"));
            let hint = legal(scheme, subject.shape, holder).map(|n| format!("`{n}` would fit"));
            Diagnostic::new(format!("{shape}{share} cannot be `{scheme}`: {why}")).with_hint(hint)
        };
        let key = (pattern, shape.clone(), scheme.name.to_string());
        self.params.entry(key).or_insert_with(|| (0, message())).0 += 1;
    }

    /// A parameter that is no linear layer and cannot take `scheme`, which is for these.
    pub(super) fn not_linear(&mut self, name: &str, scheme: &Scheme, what: &str) {
        let message =
            format!("cannot be `{scheme}`, which readers know for linear layers alone: it is {what}");
        let hint = Some(
            "match linear layers alone: `*_proj.weight=…`, or leave other tensors to an earlier rule such as `*embed*=f16`",
        );
        let key = (Pattern::of(name).to_string(), message.clone(), String::new());
        let message = || (0, Diagnostic::new(message).with_hint(hint.map(str::to_owned)));
        self.params.entry(key).or_insert_with(message).0 += 1;
    }

    /// A parameter of which `preset` makes `scheme`, which wants an importance matrix.
    pub(super) fn unguided(&mut self, preset: &Preset, scheme: &Scheme) {
        let what =
            format!("the preset `{}` needs an importance matrix to make `{}`", preset.name(), scheme.name);
        *self.unguided.entry(what).or_default() += 1;
    }

    /// A parameter of which `preset` makes what the format does not hold.
    pub(super) fn preset(
        &mut self,
        preset: &Preset,
        subject: &Subject<'_>,
        scheme: &Scheme,
        holder: Option<Holder<'_>>,
    ) {
        let Some(holder) = holder.filter(|_| !is_held(holder, scheme, subject.shape)) else { return };
        let held = || {
            let square = Shape::from([4096, 4096]);
            let fits = |preset: &&Preset| {
                !preset.needs_importance() && preset.schemes().all(|scheme| (holder.holds)(&scheme, &square))
            };
            let mut held: Vec<&Preset> = PRESETS.iter().filter(fits).collect();
            let foreign = |p: &Preset| p.group().format().is_some_and(|name| name != holder.name);
            let distance = |p: &Preset| (p.bits() - preset.bits()).abs();
            held.sort_by(|a, b| foreign(a).cmp(&foreign(b)).then(distance(a).total_cmp(&distance(b))));
            let names: Vec<String> = held.iter().map(|p| format!("`{}`", p.name())).collect();
            match &names[..] {
                [] => None,
                [one] => Some(format!("the preset for {} is {one}", holder.name)),
                [nearest, others @ ..] => {
                    let others = &others[..others.len().min(3)];
                    Some(format!(
                        "presets for {}: {nearest}, the nearest; also {}",
                        holder.name,
                        others.join(", ")
                    ))
                }
            }
        };
        let key = format!(
            "the preset `{}` makes `{}`, which {} cannot store",
            preset.name(),
            scheme.name,
            holder.name
        );
        self.unheld.entry(key).or_insert_with(|| (0, held())).0 += 1;
    }

    /// `Ok` if nothing is wrong.
    pub(super) fn none(self) -> Result<(), Error> {
        let params = self.params.into_iter().map(|((name, ..), (count, message))| match count {
            1 => Diagnostic { what: format!("`{name}` {}", message.what), ..message },
            n => Diagnostic { what: format!("`{name}` ({n} of them) {}", message.what), ..message },
        });
        // The hint is the same for each of them.
        let unguided = self.unguided.into_iter().map(|(what, count)| {
            let hint = "the preset `q2_k` needs none".to_owned();
            Diagnostic::new(format!("{what} ({})", counted(count, "tensor"))).with_hint(Some(hint))
        });
        let last = self.unheld.len().saturating_sub(1);
        let unheld = self.unheld.into_iter().enumerate().map(|(i, (what, (count, hint)))| {
            Diagnostic::new(format!("{what} ({})", counted(count, "tensor")))
                .with_hint(hint.filter(|_| i == last))
        });
        let all: Vec<Diagnostic> =
            self.whole.into_iter().chain(unguided).chain(unheld).chain(params).collect();
        if all.is_empty() { Ok(()) } else { Err(Error::Encoding { what: all.into_iter().collect() }) }
    }
}

/// Suggests names for a pattern that matches none of `names`: the nearest name, else patterns of the names that contain
/// the pattern's segments in order, else of those that contain its text, else of all.
fn meant(pattern: &str, names: &[&str]) -> Option<String> {
    if let Some(near) = nearest(pattern, names.iter().copied()) {
        return Some(format!("the nearest is `{near}`"));
    }
    let words: Vec<&str> = pattern.split(['.', '*']).filter(|word| !word.is_empty()).collect();
    let loose = format!("*{}*", words.join("*"));
    let segments = |name: &str| {
        let mut segments = name.split('.');
        words.iter().all(|word| segments.any(|segment| segment == *word))
    };
    let tests: [&dyn Fn(&str) -> bool; 3] = [&segments, &|name| glob(&loose, name), &|_| true];
    let as_rules = |fits: &dyn Fn(&str) -> bool| -> Vec<String> {
        let fitting = names.iter().filter(|name| fits(name));
        let mut there = HashSet::new();
        let patterns = fitting.map(|name| format!("`{}`", Pattern::of(name).as_str().replace("{n}", "*")));
        patterns.filter(|pattern| there.insert(pattern.clone())).collect()
    };
    let found = tests.into_iter().map(as_rules).find(|found| !found.is_empty()).unwrap_or_default();
    let list = match &found[..] {
        [] => return None,
        [one] => return Some(format!("a pattern must match the whole name, such as {one}")),
        [few @ .., last] if found.len() <= 4 => format!("{} and {last}", few.join(", ")),
        [first, second, third, more @ ..] => format!("{first}, {second}, {third} and {} more", more.len()),
        [..] => found.join(", "),
    };
    Some(format!("a pattern must match the whole name, such as {list}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_of_no_name_has_a_hint() {
        let layer = |n: u64| {
            let names =
                ["attention.q.weight", "attention.k.weight", "attention.k.bias", "ffn.gate_up.weight"];
            names.map(|name| format!("layers.{n}.{name}"))
        };
        let names: Vec<String> = (0..2).flat_map(layer).chain(["output.weight".to_owned()]).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let whole = "a pattern must match the whole name, such as ";
        for (pattern, wanted) in [
            ("layers.*.q", "`layers.*.attention.q.weight`"),
            ("layers.*.k", "`layers.*.attention.k.weight` and `layers.*.attention.k.bias`"),
            ("k", "`layers.*.attention.k.weight` and `layers.*.attention.k.bias`"),
            ("*.gate", "`layers.*.ffn.gate_up.weight`"),
            (
                "blk.*.attn_q.weight",
                "`layers.*.attention.q.weight`, `layers.*.attention.k.weight`, `layers.*.attention.k.bias` and 2 more",
            ),
        ] {
            assert_eq!(meant(pattern, &names), Some(format!("{whole}{wanted}")), "{pattern}");
        }
        assert_eq!(meant("output.wieght", &names).as_deref(), Some("the nearest is `output.weight`"));
        assert_eq!(meant("*.q", &[]), None);
    }

    #[test]
    fn a_legal_scheme_is_near_in_bits_and_fits() {
        let q4k = quant::scheme("q4_k").unwrap();
        for shape in [&[4, 576][..], &[7]] {
            let name = legal(&q4k, &shape.to_vec().into(), None).unwrap();
            assert!(quant::scheme(&name).unwrap().byte_len(&shape.to_vec().into()).is_ok(), "{name}");
            assert!(quant::codec(&name).unwrap().encoder().is_some(), "{name}");
        }
    }
}
