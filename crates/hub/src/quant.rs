//! GGUF files by their names: quantisations, and parts of split models.

/// A part of a split model, `NAME-00002-of-00005.gguf`.
///
/// Source: llama.cpp, `llama_split_path`: five digits, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split<'a> {
    /// What all parts have in common before the number, folder included.
    pub(crate) stem: &'a str,
    /// The number of this part, from 1.
    pub(crate) part: usize,
    /// The number of parts.
    pub(crate) of: usize,
    /// What follows, `.gguf` or `.safetensors`.
    pub(crate) extension: &'a str,
}

impl<'a> Split<'a> {
    /// Reads the name of a file.
    pub(crate) fn of(path: &'a str) -> Option<Split<'a>> {
        let (rest, extension) = path.rsplit_once('.')?;
        let number = |text: &str| (text.len() == 5).then(|| text.parse().ok()).flatten();
        let (rest, of) = rest.rsplit_once("-of-")?;
        let (stem, part) = rest.rsplit_once('-')?;
        let (part, of) = (number(part)?, number(of)?);
        (1 <= part && part <= of).then_some(Split { stem, part, of, extension })
    }

    /// Whether `other` is of the same model.
    pub(crate) fn is_beside(&self, other: &Split<'_>) -> bool {
        (self.stem, self.of, self.extension) == (other.stem, other.of, other.extension)
    }
}

/// Whether it is a GGUF file of a model, by its name. Importance matrices and projectors of pictures are none.
pub(crate) fn is_model(path: &str) -> bool {
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name).to_ascii_lowercase();
    name.ends_with(".gguf")
        && !name.starts_with("mmproj")
        && !name.starts_with("imatrix")
        && !name.contains("-mmproj")
}

/// Whether the name has `tag` as a whole, in any case: `Q4_K` is not in `m-Q4_K_M.gguf`.
pub(crate) fn has_tag(path: &str, tag: &str) -> bool {
    let (path, tag) = (path.to_ascii_lowercase(), tag.to_ascii_lowercase());
    path.match_indices(&tag).any(|(at, _)| {
        let before = path.get(..at).and_then(|text| text.chars().next_back());
        let after = path.get(at + tag.len()..).and_then(|text| text.chars().next());
        before.is_none_or(|c| matches!(c, '-' | '.' | '/' | '_'))
            && after.is_none_or(|c| matches!(c, '-' | '.' | '/'))
    })
}

/// The quantisation in the name of a GGUF file: the last word that looks like one, as `Q4_K_M` and `UD-IQ2_XXS` do.
pub(crate) fn tag(path: &str) -> Option<&str> {
    let stem = path.strip_suffix(".gguf").unwrap_or(path);
    let words = |text: &'static str, whole: &str| whole.to_ascii_uppercase().starts_with(text);
    let is_tag = |word: &str| {
        let rest = ["IQ", "TQ", "Q"]
            .into_iter()
            .find(|kind| words(kind, word))
            .and_then(|kind| word.get(kind.len()..));
        let is_quant = rest.is_some_and(|rest| {
            let digits = rest.chars().take_while(char::is_ascii_digit).count();
            let ends = rest.get(digits..).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
            (1..=2).contains(&digits) && ends
        });
        is_quant
            || ["F16", "F32", "BF16", "FP16", "MXFP4", "MXFP4_MOE", "NVFP4"]
                .iter()
                .any(|name| word.eq_ignore_ascii_case(name))
    };
    let mut end = stem.len();
    loop {
        let start = stem.get(..end)?.rfind(['-', '.', '/']).map_or(0, |at| at + 1);
        let word = stem.get(start..end)?;
        if is_tag(word) {
            // Unsloth's dynamic ones are other files than those without the prefix.
            let start =
                start - if stem.get(..start).is_some_and(|text| text.ends_with("UD-")) { 3 } else { 0 };
            return stem.get(start..end);
        }
        end = start.checked_sub(1)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_split_models() {
        let split = |path| Split::of(path).map(|s| (s.stem, s.part, s.of, s.extension));
        assert_eq!(split("Q8_0/m-Q8_0-00002-of-00003.gguf"), Some(("Q8_0/m-Q8_0", 2, 3, "gguf")));
        assert_eq!(split("model-00001-of-00001.safetensors"), Some(("model", 1, 1, "safetensors")));
        for path in
            ["m.gguf", "m-1-of-2.gguf", "m-00003-of-00002.gguf", "m-00000-of-00002.gguf", "-of-.gguf", ""]
        {
            assert_eq!(split(path), None, "{path}");
        }
    }

    #[test]
    fn tags_are_whole_words() {
        assert!(has_tag("m-Q4_K_M.gguf", "q4_k_m"));
        assert!(has_tag("Q8_0/m-00001-of-00002.gguf", "Q8_0"));
        assert!(has_tag("m_f16.gguf", "F16"));
        assert!(!has_tag("m-Q4_K_M.gguf", "Q4_K"));
        assert!(!has_tag("m-IQ4_NL.gguf", "Q4_NL"));
        assert!(!has_tag("m-BF16.gguf", "F16"));
        for (path, wanted) in [
            ("m-Q4_K_M.gguf", Some("Q4_K_M")),
            ("m.Q8_0.gguf", Some("Q8_0")),
            ("sub/m-UD-IQ2_XXS-00001-of-00002.gguf", Some("UD-IQ2_XXS")),
            ("BF16/m-00001-of-00002.gguf", Some("BF16")),
            ("qwen2-0_5b-instruct-q4_0.gguf", Some("q4_0")),
            ("tinyllama-1.1b.gguf", None),
            ("Qwen3.gguf", None),
            ("größe.gguf", None),
        ] {
            assert_eq!(tag(path), wanted, "{path}");
            assert!(wanted.is_none_or(|tag| has_tag(path, tag)), "{path}");
        }
    }

    #[test]
    fn not_every_gguf_file_is_a_model() {
        assert!(is_model("a/m.gguf") && is_model("m.GGUF"));
        for path in
            ["mmproj-F16.gguf", "a/mmproj-m.gguf", "m-mmproj-f16.gguf", "imatrix.gguf", "m.safetensors"]
        {
            assert!(!is_model(path), "{path}");
        }
    }
}
