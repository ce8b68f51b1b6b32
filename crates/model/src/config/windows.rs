//! Which layers see a window only, and how wide it is.
//!
//! Source: transformers `__post_init__` of configuration_{mistral,qwen2,qwen3,qwen3_moe,gemma3,gpt_oss}.py@v5.23;
//! `llama_model_base::load_swa_pattern`, src/llama-model.cpp@0c1e57098.

use super::keys::OF_TRANSFORMERS;
use super::{Config, ConfigProblem, Field, Keys, Origin, Reader};
use crate::{DialectName, Fact};

/// Positions that a layer with a window sees.
pub(crate) const WINDOW: Keys = Keys::new("window", &["attention.sliding_window"], &["sliding_window"]);
const PATTERN: Keys =
    Keys::new("windowed", &["attention.sliding_window_pattern"], &["sliding_window_pattern"]);
const TYPES: Keys = Keys::new("windowed", &[], &["layer_types"]);
const USED: Keys = Keys::new("window", &[], &["use_sliding_window"]);
const AFTER: Keys = Keys::new("windowed", &[], &["max_window_layers"]);

const FULL: &str = "full_attention";
const SLIDING: &str = "sliding_attention";

/// Layers with a window, for people: `all`, or `0–4, 6–10`.
pub(super) fn shown(windowed: &[bool]) -> String {
    if !windowed.contains(&false) {
        return "all".to_owned();
    }
    let (mut runs, mut from): (Vec<String>, Option<usize>) = (Vec::new(), None);
    for (n, windowed) in windowed.iter().copied().chain([false]).enumerate() {
        match (windowed, from) {
            (true, None) => from = Some(n),
            (false, Some(first)) => {
                let last = n - 1;
                runs.push(if first == last { first.to_string() } else { format!("{first}–{last}") });
                from = None;
            }
            _ => {}
        }
    }
    if runs.is_empty() { "none".to_owned() } else { runs.join(", ") }
}

/// Reads the width of the window: null means none, and `absent` is the width where no key gives one.
fn width(r: &mut Reader, absent: Option<u64>) -> Field<u64> {
    let hf = r.dialect() == DialectName::Hf;
    if hf && r.is_null(WINDOW) {
        return Field::default(0, "null: none");
    }
    let found = r.count(WINDOW, u64::from(hf));
    found.unwrap_or_else(|| match absent.filter(|_| hf && r.fact(WINDOW).is_none()) {
        Some(width) => Field::default(width, OF_TRANSFORMERS),
        None => Field::default(0, "none"),
    })
}

/// A layer count that is worth a list; a larger one is reported elsewhere.
fn layers(c: &Config) -> usize {
    usize::try_from(*c.layers).unwrap_or(usize::MAX).min(4096)
}

/// A window in every layer, if there is one; `absent` is its width where config.json does not say it.
pub fn everywhere(r: &mut Reader, base: Config, absent: Option<u64>) -> Config {
    let window = width(r, absent);
    let windowed = Field::default(vec![*window > 0; layers(&base)], "every layer");
    let sliding = |fact: &Fact| *fact == Fact::Str(SLIDING.to_owned());
    let width = *window;
    r.only(
        TYPES,
        &format!("`{SLIDING}` in every layer, and a window"),
        |fact| matches!(fact, Fact::List(list) if width > 0 && list.iter().all(sliding)),
    );
    Config { window, windowed, ..base }
}

/// The same if a flag says so.
pub fn everywhere_if_used(r: &mut Reader, base: Config, absent: u64) -> Config {
    if used(r) { everywhere(r, base, Some(absent)) } else { base }
}

/// Whether windows are used: a flag says it in Qwen's config.json, and GGUF has no key for it.
fn used(r: &mut Reader) -> bool {
    if r.dialect() == DialectName::Gguf {
        return false;
    }
    let used = r.flag(USED).is_some_and(|used| *used);
    if !used {
        r.overridden(WINDOW, "`use_sliding_window` is not true");
    }
    used
}

/// Windows as Qwen has them: if a flag says so, in the layers that a list names, or from `max_window_layers` on.
pub fn late(r: &mut Reader, base: Config, absent: u64) -> Config {
    let used = used(r);
    let window = if used { width(r, Some(absent)) } else { base.window.clone() };
    let windowed = match of_types(r, &base) {
        Some(types) => {
            r.overridden(AFTER, "`layer_types` says it");
            types
        }
        None => {
            let after = r.count(AFTER, 0).unwrap_or(Field::default(28, OF_TRANSFORMERS));
            let late = |n: usize| *window > 0 && n as u64 >= *after;
            Field { value: (0..layers(&base)).map(late).collect(), origin: after.origin }
        }
    };
    if *window == 0 && windowed.contains(&true) {
        let (key, found) = (key_of(&windowed.origin), Fact::Str(SLIDING.to_owned()));
        r.does_not_follow(&key, &found, "`full_attention` where there is no window");
    }
    Config { window, windowed, ..base }
}

/// Windows in all layers but every `period`th, or as a list says; `absent` is the width where config.json does not
/// say it.
pub fn alternating(r: &mut Reader, base: Config, absent: u64, period: u64) -> Config {
    alternate(r, base, absent, period, PATTERN)
}

/// The same where config.json has only the list.
pub fn alternating_by_types(r: &mut Reader, base: Config, absent: u64, period: u64) -> Config {
    alternate(r, base, absent, period, Keys { hf: &[], ..PATTERN })
}

/// Windows of attention in both directions, in all layers but the first of every `period`, or as a list says. Both directions
/// together are `absent` wide where config.json does not say it; where GGUF does not, there are no windows.
pub(crate) fn both_ways(r: &mut Reader, base: Config, absent: u64, period: u64) -> Config {
    const HALF: Keys = Keys::new("window", &[], &["sliding_window"]);
    const BOTH: Keys = Keys::new("window", &["attention.sliding_window"], &["local_attention"]);
    const EVERY: Keys =
        Keys::new("windowed", &["attention.sliding_window_pattern"], &["global_attn_every_n_layers"]);
    if r.is_null(HALF) {
        r.does_not_follow("sliding_window", &Fact::Null, "a number");
    }
    let window = match (r.count(HALF, 0), r.dialect()) {
        // Another name for half of it.
        (Some(half), _) => {
            r.overridden(BOTH, "`sliding_window` says it, and wins");
            Field { value: *half + 1, origin: half.origin }
        }
        (None, DialectName::Gguf) => match r.count(BOTH, 0) {
            Some(both) if *both > 0 => Field { value: *both / 2 + 1, origin: both.origin },
            _ => Field::default(0, "none"),
        },
        (None, _) => {
            let both = r.count(BOTH, 0).unwrap_or(Field::default(absent, OF_TRANSFORMERS));
            Field { value: *both / 2 + 1, origin: both.origin }
        }
    };
    let windowed = match of_types(r, &base) {
        Some(types) => {
            r.overridden(EVERY, "`layer_types` says it");
            types
        }
        None => of_pattern(r, &base, period, EVERY, but_first),
    };
    Config { window, windowed, ..base }
}

/// Reports a window of 0 in GGUF, in families whose layers with a window see nothing in llama.cpp then.
pub(crate) fn not_empty(r: &mut Reader, base: &Config) {
    let is_empty = r.dialect() == DialectName::Gguf && *base.window == 0 && base.windowed.contains(&true);
    if let Some((key, found)) = r.fact(WINDOW).filter(|_| is_empty) {
        let (wanted, found) = ("at least 1".to_owned(), found.to_string());
        r.problem(ConfigProblem::Invalid { key, wanted, found });
    }
}

fn alternate(r: &mut Reader, base: Config, absent: u64, period: u64, pattern: Keys) -> Config {
    let window = width(r, Some(absent));
    let windowed = match of_types(r, &base) {
        Some(types) => {
            r.overridden(pattern, "`layer_types` says it");
            types
        }
        None => of_pattern(r, &base, period, pattern, but_last),
    };
    if r.dialect() == DialectName::Hf
        && let Some((key, Fact::Null)) = r.said(WINDOW)
    {
        r.does_not_follow(&key, &Fact::Null, "a number");
    }
    Config { window, windowed, ..base }
}

fn key_of(origin: &Origin) -> String {
    match origin {
        Origin::Key(key) => key.clone(),
        Origin::Default(_) => String::new(),
    }
}

/// `layer_types`, if it is there.
fn of_types(r: &mut Reader, c: &Config) -> Option<Field<Vec<bool>>> {
    let (key, fact) = r.fact(TYPES)?;
    let kind = |fact: &Fact| match fact {
        Fact::Str(kind) if kind == FULL => Some(false),
        Fact::Str(kind) if kind == SLIDING => Some(true),
        _ => None,
    };
    let types = match &fact {
        Fact::List(list) if list.len() == layers(c) => list.iter().map(kind).collect::<Option<Vec<bool>>>(),
        _ => None,
    };
    if types.is_none() {
        let wanted = format!("`{FULL}` or `{SLIDING}` for each of {} layers", *c.layers);
        r.problem(ConfigProblem::Invalid { key: key.clone(), wanted, found: fact.to_string() });
    }
    Some(Field { value: types.unwrap_or_else(|| vec![false; layers(c)]), origin: Origin::Key(key) })
}

/// Whether layer `n` has a window where the last of every `period` has none.
fn but_last(n: u64, period: u64) -> bool {
    period == 0 || n % period < period - 1
}

/// The same where the first has none.
pub(crate) fn but_first(n: u64, period: u64) -> bool {
    period == 0 || !n.is_multiple_of(period)
}

/// Every how many layers one has no window: a number, or in GGUF a flag for each layer.
fn of_pattern(
    r: &mut Reader,
    c: &Config,
    period: u64,
    pattern: Keys,
    is_windowed: fn(u64, u64) -> bool,
) -> Field<Vec<bool>> {
    let all = |period: u64| (0..layers(c)).map(|n| is_windowed(n as u64, period)).collect();
    if let Some((key, Fact::List(list))) = r.fact(pattern)
        && r.dialect() == DialectName::Gguf
    {
        let flag = |fact: &Fact| match fact {
            Fact::Bool(windowed) => Some(*windowed),
            Fact::Count(n) => Some(*n != 0),
            _ => None,
        };
        let flags = list.iter().map(flag).collect::<Option<Vec<bool>>>().filter(|l| l.len() == layers(c));
        if flags.is_none() {
            let wanted = format!("a flag for each of {} layers", *c.layers);
            let found = Fact::List(list).to_string();
            r.problem(ConfigProblem::Invalid { key: key.clone(), wanted, found });
        }
        return Field { value: flags.unwrap_or_else(|| all(1)), origin: Origin::Key(key) };
    }
    // Python divides by it: 0 is no period there, and every layer in llama.cpp.
    let least = u64::from(r.dialect() == DialectName::Hf);
    match r.count(pattern, least) {
        Some(period) => Field { value: all(*period), origin: period.origin },
        None => Field::default(all(period), "as the family was trained"),
    }
}

/// The period of layers without a window, if some have none.
pub(crate) fn period(windowed: &[bool]) -> Option<u64> {
    let first = windowed.iter().position(|w| !w).map_or(0, |at| at as u64 + 1);
    let regular = |(n, windowed): (usize, &bool)| *windowed == (first == 0 || n as u64 % first < first - 1);
    windowed.iter().enumerate().all(regular).then_some(first)
}

/// `layer_types`, as config.json has it.
pub(crate) fn types(c: &Config) -> Fact {
    let kind = |n| Fact::Str(if c.is_windowed(n) { SLIDING } else { FULL }.to_owned());
    Fact::List((0..*c.layers).map(kind).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_shown_as_runs_and_have_a_period_or_not() {
        let of = |list: &str| list.chars().map(|c| c == 's').collect::<Vec<bool>>();
        assert_eq!(shown(&of("sss")), "all");
        assert_eq!(shown(&of("ff")), "none");
        assert_eq!(shown(&of("ssfsfs")), "0–1, 3, 5");
        assert_eq!(period(&of("ssfssfs")), Some(3));
        assert_eq!(period(&of("sss")), Some(0));
        assert_eq!(period(&of("fff")), Some(1));
        assert_eq!(period(&of("ffs")), None);
    }
}
