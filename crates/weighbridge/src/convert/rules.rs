//! Which parameter is encoded how, by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use plan::PlannedParam;
use tensor::{Dtype, IN, Pattern, PlaneAxis, Scheme, Shape, nearest};

use super::Imatrix;
use crate::Error;

/// `PATTERN=SCHEME`: parameters whose whole name fits the pattern become the scheme. `*` stands for any run of
/// characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodeRule {
    pattern: String,
    scheme: Arc<Scheme>,
}

impl std::str::FromStr for EncodeRule {
    type Err = Error;

    fn from_str(text: &str) -> Result<EncodeRule, Error> {
        let wrong = |what| Err(Error::Convert { what });
        let Some((pattern, name)) = text.rsplit_once('=').filter(|(p, s)| !p.is_empty() && !s.is_empty())
        else {
            return wrong(format!("an encoding rule is PATTERN=SCHEME, found `{text}`"));
        };
        let Some(scheme) = quant::scheme(name) else {
            let names = encodable();
            let near = nearest(name, names.iter().map(String::as_str));
            let near = near.map_or_else(String::new, |n| format!("the nearest is `{n}`; "));
            return wrong(format!(
                "no scheme is called `{name}`\nhint: {near}`weighbridge quants` lists them"
            ));
        };
        if !encodes(name) {
            return wrong(format!(
                "nothing can be encoded as `{name}` yet\nhint: these can be: {}",
                encodable().join(", ")
            ));
        }
        Ok(EncodeRule { pattern: pattern.to_owned(), scheme })
    }
}

impl std::fmt::Display for EncodeRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}", self.pattern, self.scheme)
    }
}

impl EncodeRule {
    /// The scheme.
    pub(super) fn scheme(&self) -> &Arc<Scheme> {
        &self.scheme
    }

    /// Whether it is for the parameter called `name`.
    pub fn matches(&self, name: &str) -> bool {
        glob(&self.pattern, name)
    }
}

/// Whether `name` is `pattern`, where `*` is any run of characters.
fn glob(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        // The first place is as good as any: what follows has more left to choose from.
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Whether values can be encoded in the scheme called `name`.
pub(super) fn encodes(name: &str) -> bool {
    quant::codec(name).is_some_and(|c| c.encoder().is_some())
}

/// The names of all schemes that values can be encoded in.
fn encodable() -> Vec<String> {
    quant::names().filter(|n| encodes(n)).collect()
}

/// Whether the values of a parameter in `scheme` are numbers to be rounded, not indices or flags.
pub(super) fn is_floating(scheme: &Scheme) -> bool {
    use Dtype::{BF16, F8E4M3, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0, F16, F32, F64};
    let floats = [F32, F16, BF16, F64, F8E4M3, F8E5M2, F8E8M0, F8E4M3FNUZ, F8E5M2FNUZ];
    scheme.dtype().is_none_or(|d| floats.contains(&d))
}

/// Whether a tensor of `shape` can be encoded so. `mx.quantize` of mlx 0.32 takes whole groups alone, where a scheme by
/// itself may end a row with a part of one.
///
/// # Errors
/// What is in the way.
pub(super) fn fits(scheme: &Scheme, shape: &Shape) -> Result<(), String> {
    scheme.byte_len(shape).map_err(|why| why.to_string())?;
    let columns = shape.last().copied().unwrap_or(1);
    let cells = scheme.planes.iter().flat_map(|plane| plane.axes.iter());
    let group = cells.filter_map(|axis| match axis {
        PlaneAxis::Cells { axis: IN, per, .. } => Some(*per),
        _ => None,
    });
    match group.filter(|per| columns % per != 0).max() {
        Some(group) if scheme.name.starts_with("mlx-") => {
            Err(format!("its {columns} columns are no whole groups of {group}"))
        }
        _ => Ok(()),
    }
}

/// The scheme nearest to `wanted` in bits a weight that can hold `shape`.
fn legal(wanted: &Scheme, shape: &Shape) -> Option<String> {
    let bits = |scheme: &Scheme| {
        // A shape that any scheme takes.
        let square = Shape::from([4096, 4096]);
        scheme.byte_len(&square).map_or(0.0, |bytes| bytes as f64 * 8.0 / (4096.0 * 4096.0))
    };
    let fits = |name: &String| quant::scheme(name).filter(|s| fits(s, shape).is_ok());
    let fitting = encodable().into_iter().filter_map(|name| fits(&name).map(|s| (name, s)));
    let distance = |s: &Scheme| (bits(s) - bits(wanted)).abs();
    fitting.min_by(|a, b| distance(&a.1).total_cmp(&distance(&b.1))).map(|(name, _)| name)
}

/// What is wrong with rules, found together.
#[derive(Default)]
pub(super) struct Misfits {
    rules: Vec<String>,
    /// By pattern of names, shape and scheme: how many, and the message.
    params: BTreeMap<(String, String, String), (u64, String)>,
}

impl Misfits {
    /// A rule that decides nothing.
    pub(super) fn rule(&mut self, rule: &EncodeRule, params: &[PlannedParam]) {
        let what = if let Some(taken) = params.iter().find(|p| rule.matches(&p.name)) {
            format!("rule `{rule}`: what it matches is taken by rules before it, as is `{}`", taken.name)
        } else {
            let near = nearest(&rule.pattern, params.iter().map(|p| p.name.as_str()));
            let near = near.map_or_else(String::new, |n| format!("\nhint: the nearest is `{n}`"));
            format!("rule `{rule}`: no parameter has such a name{near}")
        };
        self.rules.push(what);
    }

    /// A parameter that cannot take `scheme`.
    pub(super) fn check(&mut self, param: &PlannedParam, scheme: &Scheme) {
        let Err(why) = fits(scheme, &param.shape) else { return };
        let key = (Pattern::of(&param.name).to_string(), param.shape.to_string(), scheme.name.to_string());
        let message = || {
            let hint = legal(scheme, &param.shape);
            let hint = hint.map_or_else(String::new, |n| format!("\nhint: `{n}` would fit"));
            format!("{} cannot be `{scheme}`: {why}{hint}", param.shape)
        };
        self.params.entry(key).or_insert_with(|| (0, message())).0 += 1;
    }

    /// A parameter that a preset has nothing for.
    pub(super) fn preset(&mut self, param: &PlannedParam, what: String) {
        let key = (Pattern::of(&param.name).to_string(), what.clone(), String::new());
        self.params.entry(key).or_insert_with(|| (0, what)).0 += 1;
    }

    /// Importance that fits no parameter, or one that it is not as long as.
    pub(super) fn imatrix(&mut self, imatrix: &Imatrix, params: &[PlannedParam]) {
        let mut found = false;
        for (param, columns) in params.iter().filter_map(|p| Some((p, imatrix.get(&p.name)?))) {
            found = true;
            let wants = param.shape.last().copied().unwrap_or(1);
            if columns.len() as u64 != wants {
                let what = format!("has {wants} columns, but the importance matrix {} for it", columns.len());
                self.preset(param, what);
            }
        }
        if !found {
            let path = imatrix.path().display();
            self.rules.push(format!("the importance matrix `{path}` names none of the parameters"));
        }
    }

    /// `Ok` if nothing is wrong.
    pub(super) fn none(self) -> Result<(), Error> {
        let params = self.params.into_iter().map(|((name, ..), (count, message))| match count {
            1 => format!("`{name}` {message}"),
            n => format!("`{name}` ({n} of them) {message}"),
        });
        let all: Vec<String> = self.rules.into_iter().chain(params).collect();
        if all.is_empty() { Ok(()) } else { Err(Error::Convert { what: all.join("\n") }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_for_whole_names() {
        let yes = [("*", ""), ("*", "a.b"), ("a", "a"), ("a*", "a"), ("*.w", "x.w"), ("a*b*c", "abc")];
        let no =
            [("a", "ab"), ("b", "ab"), ("a*", "ba"), ("*.w", "x.w.y"), ("a*b*c", "acb"), ("ab*ba", "aba")];
        assert!(yes.iter().all(|(p, n)| glob(p, n)));
        assert!(no.iter().all(|(p, n)| !glob(p, n)));
        assert!(glob("*aab*b", "aaabbb") && glob("blk.*.ffn_*.weight", "blk.12.ffn_up.weight"));
    }

    #[test]
    fn a_rule_says_what_is_wrong_with_it() {
        let rule = |text: &str| text.parse::<EncodeRule>().map(|r| r.to_string()).map_err(|e| e.to_string());
        assert_eq!(rule("*=f16"), Ok("*=f16".to_owned()));
        assert_eq!(rule("a=b=f32"), Ok("a=b=f32".to_owned()));
        for (text, part) in [
            ("f16", "PATTERN=SCHEME"),
            ("=f16", "PATTERN=SCHEME"),
            ("*=", "PATTERN=SCHEME"),
            ("*=f15", "the nearest is `f16`"),
            ("*=iq1_s", "nothing can be encoded as `iq1_s`"),
        ] {
            let error = rule(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_legal_scheme_is_near_in_bits_and_fits() {
        let q4k = quant::scheme("q4_k").unwrap();
        for shape in [&[4, 576][..], &[7]] {
            let name = legal(&q4k, &shape.to_vec().into()).unwrap();
            assert!(quant::scheme(&name).unwrap().byte_len(&shape.to_vec().into()).is_ok(), "{name}");
            assert!(quant::codec(&name).unwrap().encoder().is_some(), "{name}");
        }
    }
}
