//! Names: patterns over whole segments, and the nearest name to a wrong one.

/// A name with holes: `blk.{n}.attn_q.weight`. A hole stands for one whole segment between dots, so a
/// pattern never matches part of a word. `{n}` takes digits only, any other `{hole}` takes any segment, and `{rest..}` at
/// the end takes one segment or more.
///
/// A name of slashes and no dots has its segments between slashes, and the number of a layer behind the word:
/// `encoder/layer_{n}/ffn/linear_0/weight`, as CTranslate2 has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern(String);

impl Pattern {
    /// A pattern from its text.
    pub fn new(text: impl Into<String>) -> Pattern {
        Pattern(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `name` fits.
    pub fn matches(&self, name: &str) -> bool {
        let under = self.0.strip_suffix("..}").and_then(|text| text.rsplit_once(".{"));
        let (text, more) = under.map_or((self.0.as_str(), false), |(before, _)| (before, true));
        let slashes = separator(text) == '/';
        let mut want = text.split(separator(text));
        let mut have = name.split(if slashes { '/' } else { '.' });
        loop {
            match (want.next(), have.next()) {
                (None, rest) => return rest.is_some() == more,
                (Some(w), Some(_)) if w.starts_with('{') && w.ends_with("..}") => {
                    return want.next().is_none();
                }
                (Some("{n}"), Some(s)) if is_number(s) => {}
                (Some(LAYER_N), Some(s)) if slashes && s.strip_prefix(LAYER).is_some_and(is_number) => {}
                (Some(w), Some(s)) if w == s || (w != "{n}" && w.starts_with('{') && w.ends_with('}')) => {}
                _ => return false,
            }
        }
    }

    /// The pattern of `name`: each segment of digits becomes `{n}`. Groups what belongs together.
    pub fn of(name: &str) -> Pattern {
        if separator(name) == '/' {
            let hole = |s: &str| s.strip_prefix(LAYER).is_some_and(is_number);
            return Pattern(
                name.split('/').map(|s| if hole(s) { LAYER_N } else { s }).collect::<Vec<_>>().join("/"),
            );
        }
        Pattern(name.split('.').map(|s| if is_number(s) { "{n}" } else { s }).collect::<Vec<_>>().join("."))
    }

    /// The text with the numbers of `name`, in order, in the holes for numbers.
    pub fn with_numbers_of(&self, name: &str) -> String {
        let number = |s: &'_ str| is_number(s.strip_prefix(LAYER).unwrap_or(s));
        let numbers = name.split(separator(name)).filter(|s| number(s));
        let mut numbers = numbers.map(|s| s.strip_prefix(LAYER).unwrap_or(s));
        let mut parts = self.0.split("{n}");
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            filled.push_str(numbers.next().unwrap_or("{n}"));
            filled.push_str(part);
        }
        filled
    }
}

/// The word before a layer's number in names of slashes, and with the hole.
const LAYER: &str = "layer_";
const LAYER_N: &str = "layer_{n}";

/// The text between segments.
fn separator(name: &str) -> char {
    if name.contains('/') && !name.contains('.') { '/' } else { '.' }
}

fn is_number(segment: &str) -> bool {
    !segment.is_empty() && segment.bytes().all(|b| b.is_ascii_digit())
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// How near two names are, from 0 to 1: the share of characters that an optimal edit keeps.
pub fn nearness(a: &str, b: &str) -> f64 {
    let longest = a.len().max(b.len()).max(1);
    1.0 - edit_distance(a.as_bytes(), b.as_bytes()) as f64 / longest as f64
}

/// The nearest of `names` to `wanted`, if one is near enough to be worth a hint: at least 0.6 by [`nearness`].
pub fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    names
        .into_iter()
        .filter(|n| n.len() <= 512)
        .map(|n| (nearness(wanted, n), n))
        .filter(|(s, _)| *s >= 0.6)
        .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(a.1)))
        .map(|(_, n)| n)
}

fn edit_distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replace = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_segments() {
        let p = Pattern::new("blk.{n}.attn_output.weight");
        assert!(p.matches("blk.12.attn_output.weight"));
        assert!(!p.matches("blk.x.attn_output.weight"));
        assert!(!p.matches("blk.12.attn_output.weight.more"));
        assert!(!Pattern::new("output.weight").matches("blk.0.attn_output.weight"));
        let under = Pattern::new("vision_tower.{rest..}");
        assert!(under.matches("vision_tower.a") && under.matches("vision_tower.a.0.b"));
        assert!(!under.matches("vision_tower") && !under.matches("my.vision_tower.a"));
        assert!(Pattern::new("h.{n}.attn.{any}").matches("h.0.attn.masked_bias"));
    }

    #[test]
    fn the_pattern_of_a_name_has_holes_for_numbers() {
        assert_eq!(Pattern::of("blk.3.ffn_up.weight").as_str(), "blk.{n}.ffn_up.weight");
        assert_eq!(
            Pattern::new("blk.{n}.ffn_up.weight").with_numbers_of("blk.3.ffn_up"),
            "blk.3.ffn_up.weight"
        );
    }

    #[test]
    fn names_of_slashes_have_the_number_behind_a_word() {
        let name = "encoder/layer_11/ffn/linear_0/weight";
        let pattern = Pattern::of(name);
        assert_eq!(pattern.as_str(), "encoder/layer_{n}/ffn/linear_0/weight");
        assert!(pattern.matches(name) && !pattern.matches("encoder/layer_x/ffn/linear_0/weight"));
        assert!(!pattern.matches("encoder.layer_1.ffn.linear_0.weight"));
        assert_eq!(pattern.with_numbers_of("x/layer_7/y"), "encoder/layer_7/ffn/linear_0/weight");
        assert_eq!(Pattern::of("/model/layers.0/layer_1/x").as_str(), "/model/layers.0/layer_1/x");
    }

    #[test]
    fn the_nearest_name_is_near() {
        let names = ["blk.0.attn_k.weight", "blk.0.attn_qq.weight", "output_norm.weight"];
        assert_eq!(nearest("blk.0.attn_q.weight", names), Some("blk.0.attn_qq.weight"));
        assert_eq!(nearest("zzz", names), None);
    }
}
