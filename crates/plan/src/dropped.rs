//! Entries that are left, as a person reads them.

use std::collections::HashMap;

use tensor::Pattern;

/// More patterns than these for one reason are one line.
const APART: usize = 2;

/// Entries that are left for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The name, or the pattern of the names: a part of a model is `vision_tower.{rest..}`.
    pub pattern: String,
    /// How many.
    pub count: usize,
    /// Why nothing is lost.
    pub why: String,
}

/// A line for each pattern of entries, given with their reasons.
pub fn dropped(entries: &[(String, String)]) -> Vec<Dropped> {
    let mut groups: Vec<(Dropped, &str)> = vec![];
    let mut index = HashMap::new();
    for (entry, why) in entries {
        let pattern = Pattern::of(entry).to_string();
        let at = *index.entry((pattern.clone(), why.as_str())).or_insert_with(|| {
            groups.push((Dropped { pattern, count: 0, why: why.clone() }, entry));
            groups.len() - 1
        });
        groups[at].0.count += 1;
    }
    let mut out: Vec<Dropped> = vec![];
    for i in 0..groups.len() {
        let why = groups[i].0.why.clone();
        let alike: Vec<&(Dropped, &str)> = groups.iter().filter(|g| g.0.why == why).collect();
        match common(&alike) {
            Some(pattern) if alike.len() > APART => {
                if !out.iter().any(|d| d.why == why) {
                    let count = alike.iter().map(|g| g.0.count).sum();
                    out.push(Dropped { pattern: format!("{pattern}.{{rest..}}"), count, why });
                }
            }
            _ => {
                let (group, entry) = &groups[i];
                let pattern = if group.count == 1 { (*entry).to_owned() } else { group.pattern.clone() };
                out.push(Dropped { pattern, ..group.clone() });
            }
        }
    }
    out
}

/// The segments that all patterns begin with.
fn common(groups: &[&(Dropped, &str)]) -> Option<String> {
    let (first, rest) = groups.split_first()?;
    let mut shared: Vec<&str> = first.0.pattern.split('.').collect();
    shared.pop();
    for group in rest {
        let same = shared.iter().zip(group.0.pattern.split('.')).take_while(|(a, b)| **a == *b).count();
        shared.truncate(same);
    }
    (!shared.is_empty()).then(|| shared.join("."))
}

impl std::fmt::Display for Dropped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let times = if self.count == 1 { String::new() } else { format!("{} × ", self.count) };
        write!(f, "{times}{} ({})", self.pattern, self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_model_are_one_line() {
        let mut entries: Vec<(String, String)> = vec![("rotary.inv_freq".into(), "computed".into())];
        for n in 0..3 {
            for part in ["q", "k", "v"] {
                entries.push((format!("vision_tower.layers.{n}.{part}.weight"), "for images".into()));
            }
            entries.push((format!("layers.{n}.bias"), "a constant".into()));
        }
        let lines: Vec<String> = dropped(&entries).iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "rotary.inv_freq (computed)",
                "9 × vision_tower.layers.{n}.{rest..} (for images)",
                "3 × layers.{n}.bias (a constant)"
            ]
        );
        assert_eq!(dropped(&[]), []);
    }
}
