//! Strings that end a text.

/// Ends a text before the first of some strings. Text that may be the beginning of one is held back.
#[derive(Clone, Debug, Default)]
pub struct StopStrings {
    strings: Vec<String>,
    /// The text of the last push, after what was held back before.
    text: String,
    /// How much of it was given out, in bytes.
    given: usize,
    found: Option<usize>,
}

impl StopStrings {
    /// Ends a text at one of `strings`; empty ones end nothing.
    pub fn new(mut strings: Vec<String>) -> StopStrings {
        strings.retain(|string| !string.is_empty());
        StopStrings { strings, ..StopStrings::default() }
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.strings.is_empty()
    }

    /// The string that ended the text.
    pub fn found(&self) -> Option<&str> {
        self.found.map(|i| self.strings[i].as_str())
    }

    /// Takes the next piece of a text; returns the text that comes before any of the strings. After one was
    /// [found](Self::found), nothing comes any more.
    pub fn push(&mut self, piece: &str) -> &str {
        self.text.drain(..self.given);
        self.given = 0;
        if self.found.is_some() {
            self.text.clear();
            return "";
        }
        self.text.push_str(piece);
        let at = self.strings.iter().enumerate().filter_map(|(i, s)| Some((self.text.find(s.as_str())?, i)));
        if let Some((at, which)) = at.min() {
            self.found = Some(which);
            self.text.truncate(at);
            self.given = at;
        } else {
            self.given = self.text.len() - self.held();
        }
        &self.text[..self.given]
    }

    /// Ends the text: returns what was held back. The next push begins another text.
    pub fn finish(&mut self) -> &str {
        self.text.drain(..self.given);
        self.found = None;
        self.given = self.text.len();
        &self.text
    }

    /// The bytes at the end of the text that one of the strings may begin with.
    fn held(&self) -> usize {
        let of = |string: &String| {
            let most = self.text.len().min(string.len() - 1);
            let begins =
                |n: &usize| string.as_bytes().starts_with(&self.text.as_bytes()[self.text.len() - n..]);
            (1..=most).rev().find(begins).unwrap_or(0)
        };
        self.strings.iter().map(of).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(strings: &[&str], pieces: &[&str]) -> (String, Option<String>) {
        let mut stops = StopStrings::new(strings.iter().map(|s| (*s).to_owned()).collect());
        let mut out = String::new();
        for piece in pieces {
            out.push_str(stops.push(piece));
        }
        let found = stops.found().map(str::to_owned);
        out.push_str(stops.finish());
        (out, found)
    }

    #[test]
    fn the_first_string_ends_the_text_wherever_pieces_end() {
        let text = "aé END b STOP c";
        for (strings, wanted, which) in [
            (&["STOP", "END"][..], "aé ", Some("END")),
            (&["STOP"], "aé END b ", Some("STOP")),
            (&["ENDE", "b STOP c."], text, None),
            (&["é E", "é"], "a", Some("é")),
            (&[""], text, None),
            (&["漢"], text, None),
        ] {
            let chars: Vec<String> = text.chars().map(String::from).collect();
            let single: Vec<&str> = chars.iter().map(String::as_str).collect();
            assert_eq!(all(strings, &single), (wanted.to_owned(), which.map(str::to_owned)), "{strings:?}");
            for at in (0..=text.len()).filter(|at| text.is_char_boundary(*at)) {
                let found = all(strings, &[&text[..at], &text[at..]]);
                assert_eq!(found, (wanted.to_owned(), found.1.clone()), "{strings:?}, split at {at}");
            }
        }
    }

    #[test]
    fn only_what_may_begin_a_string_is_held_back() {
        let mut stops = StopStrings::new(vec!["aab".to_owned()]);
        assert_eq!(stops.push("xaa"), "x");
        assert_eq!(stops.push("a"), "a");
        assert_eq!(stops.push("c"), "aac");
        assert_eq!(stops.push("aa"), "");
        assert_eq!(stops.finish(), "aa");
        assert_eq!(stops.push("yaab z"), "y");
        assert_eq!(stops.push("more"), "");
        assert_eq!(stops.found(), Some("aab"));
        assert_eq!(stops.finish(), "");
        assert_eq!(stops.push("w"), "w");
        assert_eq!(stops.found(), None);
    }
}
