//! What is wrong with what is to be encoded, found together.

use std::collections::BTreeMap;

use tensor::{Dtype, IN, Pattern, PlaneAxis, Scheme, Shape, nearest};

use super::rule::encodable;
use super::{EncodeRule, Seen, Subject};
use crate::Error;

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

/// What is wrong.
#[derive(Default)]
pub(crate) struct Misfits {
    whole: Vec<String>,
    /// By pattern of names, shape and scheme: how many, and the message.
    params: BTreeMap<(String, String, String), (u64, String)>,
}

impl Misfits {
    /// Something about all parameters.
    pub(crate) fn whole(&mut self, what: String) {
        self.whole.push(what);
    }

    /// Something about the parameter called `name`.
    pub(crate) fn param(&mut self, name: &str, what: String) {
        let key = (Pattern::of(name).to_string(), what.clone(), String::new());
        self.params.entry(key).or_insert_with(|| (0, what)).0 += 1;
    }

    /// A rule that decides nothing.
    pub(super) fn rule(&mut self, rule: &EncodeRule, seen: &[(String, Seen)]) {
        let near = || {
            let near = nearest(rule.pattern(), seen.iter().map(|(name, _)| name.as_str()));
            near.map_or_else(String::new, |n| format!("\nhint: the nearest is `{n}`"))
        };
        let why = match seen.iter().find(|(name, _)| rule.matches(name)) {
            None => format!("no parameter has such a name{}", near()),
            Some((name, Seen::Floats)) => {
                format!("what it matches is taken by rules before it, as is `{name}`")
            }
            Some((name, Seen::Other(scheme))) => format!("only floats are encoded, and `{name}` is {scheme}"),
            Some((name, Seen::Tied(root))) => {
                format!("`{name}` is tied to `{root}`, and encoded as that is\nhint: say it of `{root}`")
            }
        };
        self.whole(format!("rule `{rule}`: {why}"));
    }

    /// A parameter that cannot take `scheme`.
    pub(super) fn check(&mut self, subject: &Subject<'_>, scheme: &Scheme) {
        let Err(why) = fits(scheme, subject.shape) else { return };
        let (pattern, shape) = (Pattern::of(subject.name).to_string(), subject.shape.to_string());
        let message = || {
            let share = subject.whole.filter(|whole| *whole != subject.shape);
            let share = share.map_or_else(String::new, |whole| format!(", a rank's share of {whole},"));
            let hint = legal(scheme, subject.shape);
            let hint = hint.map_or_else(String::new, |n| format!("\nhint: `{n}` would fit"));
            format!("{shape}{share} cannot be `{scheme}`: {why}{hint}")
        };
        let key = (pattern, shape.clone(), scheme.name.to_string());
        self.params.entry(key).or_insert_with(|| (0, message())).0 += 1;
    }

    /// `Ok` if nothing is wrong.
    pub(super) fn none(self) -> Result<(), Error> {
        let params = self.params.into_iter().map(|((name, ..), (count, message))| match count {
            1 => format!("`{name}` {message}"),
            n => format!("`{name}` ({n} of them) {message}"),
        });
        let all: Vec<String> = self.whole.into_iter().chain(params).collect();
        if all.is_empty() { Ok(()) } else { Err(Error::Encoding { what: all.join("\n") }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
