//! Tokens that are not made by merging: cut out of a text first, and known by name.

use super::store::{TokenStore, TokenType};

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextOrToken<'a> {
    Text(&'a str),
    Token(u32),
}

/// The tokens that are cut out of a text before it is encoded.
pub(super) struct Specials {
    /// Lengths of tokens, the longest first, by their first byte.
    lengths: Box<[Vec<usize>; 256]>,
    /// Whether a token begins with two bytes: vocabularies have tokens of 2 to 31 line ends, and most lines end with one.
    begins: Box<[[bool; 256]]>,
}

/// One place where a special token stands.
#[derive(Clone, Copy)]
struct Occurrence {
    id: u32,
    start: usize,
    len: usize,
}

impl Specials {
    pub(super) fn new(store: &TokenStore) -> Specials {
        let mut lengths: Box<[Vec<usize>; 256]> = Box::new([const { Vec::new() }; 256]);
        let mut begins = vec![[false; 256]; 256].into_boxed_slice();
        for (_, text) in store.specials() {
            if let [first, second, ..] = text {
                begins[usize::from(*first)][usize::from(*second)] = true;
            }
            let lengths = &mut lengths[usize::from(text[0])];
            if let Err(at) = lengths.binary_search_by(|len| text.len().cmp(len)) {
                lengths.insert(at, text.len());
            }
        }
        Specials { lengths, begins }
    }

    /// Cuts `text`. A longer token goes before a shorter one wherever it stands, then the one further left;
    /// steering tokens are seen only with `steering`, user-defined ones always.
    ///
    /// Source: `tokenizer_st_partition`, src/llama-vocab.cpp@<https://github.com/ggml-org/llama.cpp/tree/0c1e57098>.
    pub(super) fn cut<'a>(&self, store: &TokenStore, text: &'a str, steering: bool) -> Vec<TextOrToken<'a>> {
        let bytes = text.as_bytes();
        let mut places = Vec::new();
        for (start, first) in bytes.iter().enumerate() {
            let second = bytes.get(start + 1);
            let is_longer =
                second.is_some_and(|second| self.begins[usize::from(*first)][usize::from(*second)]);
            for &len in self.lengths[usize::from(*first)].iter().filter(|len| is_longer || **len == 1) {
                let Some(id) = bytes.get(start..start + len).and_then(|text| store.id(text)) else {
                    continue;
                };
                let kind = store.kind(id);
                if kind == Some(TokenType::UserDefined) || steering && kind.is_some_and(TokenType::steers) {
                    places.push(Occurrence { id, start, len });
                }
            }
        }
        let mut chosen = choose(places, bytes.len());
        chosen.sort_unstable_by_key(|place| place.start);

        let mut parts = Vec::with_capacity(2 * chosen.len() + 1);
        let mut at = 0;
        for Occurrence { id, start, len } in chosen {
            // Tokens are whole UTF-8 strings, so they begin and end between characters.
            parts.extend(text.get(at..start).filter(|text| !text.is_empty()).map(TextOrToken::Text));
            parts.push(TextOrToken::Token(id));
            at = start + len;
        }
        parts.extend(text.get(at..).filter(|text| !text.is_empty()).map(TextOrToken::Text));
        parts
    }
}

/// Returns the `places` that remain when each takes its bytes in turn.
fn choose(mut places: Vec<Occurrence>, bytes: usize) -> Vec<Occurrence> {
    if places.is_empty() {
        return places;
    }
    places.sort_unstable_by(|a, b| (b.len.cmp(&a.len)).then(a.id.cmp(&b.id)).then(a.start.cmp(&b.start)));
    let mut taken = vec![false; bytes];
    places.retain(|place| {
        let range = place.start..place.start + place.len;
        // Places taken before are at least as long, so an overlap holds the first or the last byte.
        let free = !taken[range.start] && !taken[range.end - 1];
        if free {
            taken[range].fill(true);
        }
        free
    });
    places
}

/// Token names that end a generation, regardless of the file's other fields.
///
/// This list and the two below: `llama_vocab::impl::load`,
/// src/llama-vocab.cpp@<https://github.com/ggml-org/llama.cpp/tree/0c1e57098>.
const ENDS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

/// Names of fill-in-the-middle tokens: the first one found in each row counts. Those of the last three rows end a
/// generation too (padding, next repository, next file).
const FILL_IN: [(&[&str], bool); 6] = [
    (
        &[
            "<|fim_prefix|>",
            "<fim-prefix>",
            "<fim_prefix>",
            "<｜fim▁begin｜>",
            "<PRE>",
            "▁<PRE>",
            "<|code_prefix|>",
            "<|prefix|>",
        ],
        false,
    ),
    (
        &[
            "<|fim_suffix|>",
            "<fim-suffix>",
            "<fim_suffix>",
            "<｜fim▁hole｜>",
            "<SUF>",
            "▁<SUF>",
            "<|code_suffix|>",
            "<|suffix|>",
        ],
        false,
    ),
    (
        &[
            "<|fim_middle|>",
            "<fim-middle>",
            "<fim_middle>",
            "<｜fim▁end｜>",
            "<MID>",
            "▁<MID>",
            "<|code_middle|>",
            "<|middle|>",
        ],
        false,
    ),
    (&["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"], true),
    (&["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"], true),
    (&["<|file_sep|>"], true),
];

/// Tokens that are text to a reader although files call them control: gpt-oss channels.
const SHOWN: &[&str] = &["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

/// The tokens that end a generation, and notes about tokens found meanwhile.
pub(super) struct Ends {
    /// Sorted.
    pub(super) ids: Vec<u32>,
    /// The kinds of tokens by name; the last of several counts.
    pub(super) kinds: Vec<(u32, TokenType)>,
}

impl Ends {
    /// Finds the tokens that a file names, and those known by name; `id` returns the token with a spelling.
    pub(super) fn find(id: &dyn Fn(&str) -> Option<u32>, named: &[Option<u32>]) -> Ends {
        let mut ends = Ends { ids: named.iter().flatten().copied().collect(), kinds: Vec::new() };
        for (names, is_end) in FILL_IN {
            if let Some(id) = names.iter().find_map(|name| id(name)) {
                ends.kinds.push((id, TokenType::Control));
                ends.ids.extend(is_end.then_some(id));
            }
        }
        for id in ENDS.iter().filter_map(|name| id(name)) {
            ends.kinds.push((id, TokenType::Control));
            ends.ids.push(id);
        }
        ends.kinds.extend(SHOWN.iter().filter_map(|name| id(name)).map(|id| (id, TokenType::UserDefined)));
        ends.ids.sort_unstable();
        ends.ids.dedup();

        // In vocabularies with calls, `<|end|>` closes a message and not the turn; where `</s>` is not the mark of
        // its own family, it is plain text.
        let has = |name: &str| id(name).is_some_and(|id| ends.ids.binary_search(&id).is_ok());
        let inner_end = has("<|return|>") && (has("<|call|>") || has("<|calls|>"))
            || (has("<|call|>") || has("<|calls|>")) && has("<|flush|>");
        let plain_s = has("<|tool_response>") || has("<|plamo:eos|>");
        let mut drop = |name: &str, kind: TokenType| {
            if let Some(id) = id(name)
                && let Ok(at) = ends.ids.binary_search(&id)
            {
                ends.ids.remove(at);
                ends.kinds.push((id, kind));
            }
        };
        if inner_end {
            drop("<|end|>", TokenType::UserDefined);
        }
        if plain_s {
            drop("</s>", TokenType::Normal);
        }
        ends
    }
}

/// Returns the tokens that end a generation, sorted: those named by the file, and those known by name. Tokens known by
/// name become control tokens.
pub(super) fn find_ends(store: &mut TokenStore, named: &[Option<u32>]) -> Vec<u32> {
    let Ends { ids, kinds } = Ends::find(&|name| store.id(name.as_bytes()), named);
    for (id, kind) in kinds {
        store.set_kind(id, kind);
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(tokens: &[&str], types: &[i32]) -> TokenStore {
        let tokens: Vec<_> = tokens.iter().map(|token| token.as_bytes()).collect();
        TokenStore::new(&tokens, Some(types)).unwrap()
    }

    #[test]
    fn the_longest_goes_first_wherever_it_stands() {
        let store = store(&["ab", "bcd", "x"], &[4, 3, 1]);
        let specials = Specials::new(&store);
        let text = "abcdabx";
        let all =
            [TextOrToken::Text("a"), TextOrToken::Token(1), TextOrToken::Token(0), TextOrToken::Text("x")];
        assert_eq!(specials.cut(&store, text, true), all);
        let user =
            [TextOrToken::Token(0), TextOrToken::Text("cd"), TextOrToken::Token(0), TextOrToken::Text("x")];
        assert_eq!(specials.cut(&store, text, false), user);
        assert_eq!(specials.cut(&store, "", true), []);
    }

    #[test]
    fn ends_are_found_by_name_and_by_id() {
        let mut tokens = store(&["a", "<|im_end|>", "<fim_pad>", "<reponame>", "<pad>"], &[1, 1, 3, 3, 3]);
        assert_eq!(find_ends(&mut tokens, &[Some(4), None]), [1, 2, 3, 4]);
        assert_eq!(tokens.kind(1), Some(TokenType::Control));
    }

    #[test]
    fn an_inner_end_is_none() {
        let mut tokens = store(&["<|return|>", "<|call|>", "<|end|>", "</s>"], &[3; 4]);
        assert_eq!(find_ends(&mut tokens, &[]), [0, 1, 3]);
        assert_eq!(tokens.kind(2), Some(TokenType::UserDefined));
        let mut tokens = store(&["<|tool_response>", "</s>"], &[3, 1]);
        assert_eq!(find_ends(&mut tokens, &[Some(1)]), [0]);
        assert_eq!(tokens.kind(1), Some(TokenType::Normal));
    }
}
