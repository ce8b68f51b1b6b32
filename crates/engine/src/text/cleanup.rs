//! Spaces that decoded text loses.

/// The text without spaces before punctuation and short forms.
///
/// Source: `clean_up_tokenization`, tokenization_utils_base.py of transformers@5.23.
pub(super) fn cleaned(text: &str) -> String {
    let mut text = text.to_owned();
    for (from, to) in [
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ] {
        text = text.replace(from, to);
    }
    text
}
