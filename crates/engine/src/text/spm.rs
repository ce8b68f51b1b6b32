//! SentencePiece BPE as `llama` vocabularies hold it: neighbours merge where together they are a token, the highest
//! score first, the leftmost of equals; text without a token is spelled in bytes.
//!
//! The algorithm is that of `llm_tokenizer_spm_session`,
//! src/llama-vocab.cpp@<https://github.com/ggml-org/llama.cpp/tree/0c1e57098>.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::Error;
use super::built::{Reader, Writer};
use super::store::{SPACE_MARK, TokenStore};
use super::table::Words;

const SCORES: &str = "tokenizer.ggml.scores";

/// A SentencePiece model.
pub(super) struct Spm {
    /// Bits of the score of each token.
    scores: Words,
    /// Whether a text that opens a sequence, or follows a special token, gets a space before it.
    pub(super) space_prefix: bool,
    bytes: Box<[Option<u32>; 256]>,
    unknown: Option<u32>,
}

/// One character, or several merged.
#[derive(Clone, Copy)]
struct Symbol {
    start: usize,
    /// Bytes; 0 once merged into the one before it.
    len: usize,
    prev: usize,
    next: usize,
}

const NONE: usize = usize::MAX;

/// A merge that could be made when it was queued; the greatest is made first.
struct Candidate {
    score: f32,
    left: usize,
    right: usize,
    /// Bytes of both together, when queued.
    len: usize,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Candidate) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Candidate) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Candidate) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

impl Spm {
    /// Checks that every text can be spelled: by byte tokens or by an unknown token.
    pub(super) fn new(
        store: &TokenStore,
        scores: Option<&[f32]>,
        space_prefix: bool,
        unknown: Option<u32>,
    ) -> Result<Spm, Error> {
        let scores =
            scores.ok_or_else(|| Error::malformed(SCORES, "missing, and a `llama` vocabulary needs it"))?;
        if scores.len() != store.len() {
            let problem = format!("{} scores for {} tokens", scores.len(), store.len());
            return Err(Error::malformed(SCORES, problem));
        }
        if let Some(id) = scores.iter().position(|score| score.is_nan()) {
            return Err(Error::malformed(SCORES, format!("the score of token {id} is NaN")));
        }
        let mut bytes = Box::new([None; 256]);
        for byte in 0..=255u8 {
            let id = store.byte_id(byte);
            if id.is_none() && unknown.is_none() {
                let problem = format!("neither a byte token `<0x{byte:02X}>` nor an unknown token");
                return Err(Error::malformed("tokenizer.ggml.tokens", problem));
            }
            bytes[usize::from(byte)] = id;
        }
        // -0.0 and 0.0 are one score.
        let scores = scores.iter().map(|score| (score + 0.0).to_bits()).collect();
        Ok(Spm { scores, space_prefix, bytes, unknown })
    }

    /// Appends the scores and whether a space is put before a text.
    pub(super) fn write(&self, out: &mut Writer) {
        out.words(&self.scores);
        out.section(&[u8::from(self.space_prefix)]);
    }

    /// Reads them back; `None` if they are not whole.
    pub(super) fn read(from: &mut Reader, store: &TokenStore, unknown: Option<u32>) -> Option<Spm> {
        let scores = from.words()?;
        let space_prefix = match from.section()?.bytes() {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        let mut bytes = Box::new([None; 256]);
        for byte in 0..=255u8 {
            bytes[usize::from(byte)] = store.byte_id(byte);
        }
        (scores.len() == store.len()).then_some(Spm { scores, space_prefix, bytes, unknown })
    }

    /// Appends the tokens of `text`, which holds no special tokens. `opens`: it begins a sequence or follows
    /// a special token.
    pub(super) fn encode(&self, store: &TokenStore, text: &str, opens: bool, out: &mut Vec<u32>) {
        let mut marked = String::with_capacity(text.len() + text.len() / 2 + SPACE_MARK.len());
        if opens && self.space_prefix {
            marked.push_str(SPACE_MARK);
        }
        for c in text.chars() {
            if c == ' ' { marked.push_str(SPACE_MARK) } else { marked.push(c) }
        }
        let text = marked.as_bytes();

        let mut symbols: Vec<Symbol> = Vec::with_capacity(text.len());
        for (at, (start, c)) in marked.char_indices().enumerate() {
            let prev = at.checked_sub(1).unwrap_or(NONE);
            symbols.push(Symbol { start, len: c.len_utf8(), prev, next: at + 1 });
        }
        if let Some(last) = symbols.last_mut() {
            last.next = NONE;
        }
        let mut queue = BinaryHeap::with_capacity(symbols.len());
        for right in 1..symbols.len() {
            self.queue_pair(store, text, &symbols, &mut queue, right - 1, right);
        }
        while let Some(candidate) = queue.pop() {
            let (left, right) = (symbols[candidate.left], symbols[candidate.right]);
            if left.len == 0 || right.len == 0 || left.len + right.len != candidate.len {
                continue;
            }
            symbols[candidate.left].len += right.len;
            symbols[candidate.left].next = right.next;
            symbols[candidate.right].len = 0;
            if right.next != NONE {
                symbols[right.next].prev = candidate.left;
            }
            self.queue_pair(store, text, &symbols, &mut queue, left.prev, candidate.left);
            self.queue_pair(store, text, &symbols, &mut queue, candidate.left, right.next);
        }
        for symbol in symbols.iter().filter(|symbol| symbol.len > 0) {
            let spelled = &text[symbol.start..symbol.start + symbol.len];
            if let Some(id) = store.id(spelled) {
                out.push(id);
            } else {
                let ids = spelled.iter().map(|byte| self.bytes[usize::from(*byte)].or(self.unknown));
                out.extend(ids.flatten());
            }
        }
    }

    fn queue_pair(
        &self,
        store: &TokenStore,
        text: &[u8],
        symbols: &[Symbol],
        queue: &mut BinaryHeap<Candidate>,
        left: usize,
        right: usize,
    ) {
        let (Some(first), Some(second)) = (symbols.get(left), symbols.get(right)) else { return };
        let len = first.len + second.len;
        if let Some(id) = store.id(&text[first.start..first.start + len]) {
            let score = self.scores.get(id as usize).map_or(f32::NEG_INFINITY, f32::from_bits);
            queue.push(Candidate { score, left, right, len });
        }
    }
}
