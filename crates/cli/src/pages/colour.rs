//! Colours of schemes: those with the most bytes have their own, the others share one.

use std::collections::HashMap;

/// Colours on a light and on a dark ground. Paul Tol's schemes "bright" and "light", made to be told apart by people with any
/// colour vision (SRON/EPS/TN/09-002, issue 3.2).
const COLOURS: [(&str, &str); 7] = [
    ("#4477aa", "#77aadd"),
    ("#ccbb44", "#eedd88"),
    ("#ee6677", "#ee8866"),
    ("#228833", "#44bb99"),
    ("#66ccee", "#99ddff"),
    ("#aa3377", "#ffaabb"),
    // All others.
    ("#bbbbbb", "#999999"),
];

/// Which scheme has which colour.
pub(super) struct Palette(Vec<(String, u64)>);

impl Palette {
    /// The colours of schemes, each with its bytes; a scheme may come several times.
    pub(super) fn new<'a>(schemes: impl IntoIterator<Item = (&'a str, u64)>) -> Palette {
        let mut bytes: HashMap<&str, u64> = HashMap::new();
        for (scheme, n) in schemes {
            *bytes.entry(base(scheme)).or_default() += n;
        }
        let mut all: Vec<(String, u64)> = bytes.into_iter().map(|(s, n)| (s.to_owned(), n)).collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        Palette(all)
    }

    /// The number of the colour of `scheme`. Interleaving rows keeps it.
    pub(super) fn colour(&self, scheme: &str) -> usize {
        let at = self.0.iter().position(|(s, _)| s == base(scheme));
        at.map_or(COLOURS.len() - 1, |at| at.min(COLOURS.len() - 1))
    }

    /// Each colour that is used, with its schemes.
    pub(super) fn legend(&self) -> Vec<(usize, String)> {
        let own = COLOURS.len() - 1;
        let mut legend: Vec<(usize, String)> =
            self.0.iter().take(own).enumerate().map(|(i, (scheme, _))| (i, scheme.clone())).collect();
        match self.0.len().saturating_sub(own) {
            0 => {}
            1 => legend.push((own, self.0[own].0.clone())),
            n => legend.push((own, format!("{n} other encodings"))),
        }
        legend
    }
}

/// The scheme without the interleaving of its rows: `q4_1` of `q4_1.r16`.
fn base(scheme: &str) -> &str {
    let rows = |rest: &str| rest.strip_prefix('r').is_some_and(|n| n.parse::<u32>().is_ok());
    scheme.rsplit_once('.').filter(|(_, rest)| rows(rest)).map_or(scheme, |(base, _)| base)
}

/// The variables of both grounds: `--c0` …, ink, faint ink, ground.
pub(super) fn css(root: &str) -> String {
    let colours = |of: fn(&(&'static str, &'static str)) -> &'static str| -> String {
        COLOURS.iter().enumerate().map(|(i, pair)| format!("--c{i}:{};", of(pair))).collect()
    };
    format!(
        "{root}{{color-scheme:light dark;--ink:#1f2328;--faint:#59636e;--rule:#d1d9e0;--ground:#ffffff;{}}}\n\
         @media (prefers-color-scheme:dark){{{root}{{--ink:#e6edf3;--faint:#9198a1;--rule:#3d444d;--ground:#0d1117;{}}}}}\n",
        colours(|pair| pair.0),
        colours(|pair| pair.1),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_bytes_have_the_first_colours() {
        let palette = Palette::new([("f32", 1), ("q4_1", 5), ("q4_1.r16", 5), ("q8_0", 8)]);
        assert_eq!(["q4_1.r16", "q8_0", "f32", "i8"].map(|s| palette.colour(s)), [0, 1, 2, 6]);
        assert_eq!(palette.legend().len(), 3);
        let many: Vec<String> = (0..9).map(|n| format!("s{n}")).collect();
        let legend = Palette::new(many.iter().map(|s| (s.as_str(), 1))).legend();
        assert_eq!(legend[6], (6, "3 other encodings".to_owned()));
    }
}
