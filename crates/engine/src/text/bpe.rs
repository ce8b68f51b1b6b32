//! Byte-pair encoding: the best-ranked merge first, the leftmost of equals.
//!
//! The algorithm is that of `llm_tokenizer_bpe_session::tokenize`,
//! src/llama-vocab.cpp@<https://github.com/ggml-org/llama.cpp/tree/0c1e57098>. Ranks belong to *pairs* of
//! tokens, as in the file: the same token may be made by several merges, each with its own rank.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hashbrown::HashSet;

use super::Error;
use super::built::{Reader, Writer};
use super::pretokenize::{Cutter, PreTokenizer};
use super::store::{ByteTable, TokenStore, samples};
use super::table::{Seed, Table, TableBuf, Words};

/// The token that a pair of tokens merges into, and its rank.
#[derive(Clone, Copy)]
struct Merge {
    rank: u32,
    merged: u32,
}

/// All merges, by rank.
struct Merges {
    /// Left, right and merged token of each rank.
    triples: Words,
    seed: Seed,
    ranks: Table,
}

impl Merges {
    fn triple(&self, rank: u32) -> Option<[u32; 3]> {
        let bytes: &[u8; 12] = self.triples.0.bytes().get(12 * rank as usize..)?.first_chunk()?;
        let [left, right, merged] = bytes.as_chunks().0 else { return None };
        Some([left, right, merged].map(|word| u32::from_le_bytes(*word)))
    }

    fn get(&self, pair: (u32, u32)) -> Option<Merge> {
        let is = |rank| self.triple(rank).is_some_and(|[left, right, _]| (left, right) == pair);
        let rank = self.ranks.find(self.seed.pair(pair), is)?;
        let [_, _, merged] = self.triple(rank)?;
        Some(Merge { rank, merged })
    }
}

/// The parts of a word before any merge.
enum Atoms {
    /// Bytes: the token of each, where it has one.
    Bytes { ids: Box<[Option<u32>; 256]>, table: Box<ByteTable> },
    /// Characters; one without a token falls back to the tokens of its bytes.
    Chars { fallback: Box<[Option<u32>; 256]> },
}

impl Atoms {
    fn bytes(store: &TokenStore) -> Atoms {
        let table = Box::new(ByteTable::new());
        let mut ids = Box::new([None; 256]);
        for byte in 0..=255u8 {
            let spelled = table.char(byte);
            ids[usize::from(byte)] = store.id(spelled.encode_utf8(&mut [0; 4]).as_bytes());
        }
        Atoms::Bytes { ids, table }
    }

    fn chars(store: &TokenStore) -> Atoms {
        let mut fallback = Box::new([None; 256]);
        for byte in 0..=255u8 {
            fallback[usize::from(byte)] = store.id(format!("<0x{byte:02X}>").as_bytes());
        }
        Atoms::Chars { fallback }
    }
}

/// Which words are taken for a token without merging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whole {
    /// None.
    Never,
    /// Words of line ends alone, whose tokens are in no merge: `llm_tokenizer_bpe_session`, "fix for gemma 4".
    LineEnds,
    /// All that are tokens.
    Always,
}

/// A BPE model.
pub(super) struct Bpe {
    pub(super) pre: PreTokenizer,
    merges: Merges,
    atoms: Atoms,
    whole: Whole,
    /// Tokens that only stand for themselves: no word and no atom is one of them.
    outside: HashSet<u32>,
}

/// A part of a word: one atom, or several merged.
#[derive(Clone, Copy)]
struct Symbol {
    /// `None`: an atom without a token.
    id: Option<u32>,
    /// Bytes of the word, for the fallback.
    start: usize,
    len: usize,
    prev: usize,
    next: usize,
    /// Merged into the one before it.
    gone: bool,
}

const NONE: usize = usize::MAX;

/// A merge that could be made when it was queued. Ordered by rank, then from left to right.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: u32,
    left: usize,
    right: usize,
    pair: (u32, u32),
    merged: u32,
}

/// Buffers of an encoding, kept from word to word.
#[derive(Default)]
struct Scratch {
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Reverse<Candidate>>,
    spelled: String,
}

impl Bpe {
    /// A model whose atoms are bytes, spelled as [`ByteTable`] does. `merges` are `(left, right)`, best first.
    pub(super) fn over_bytes<'a>(
        store: &TokenStore,
        pre: PreTokenizer,
        merges: impl ExactSizeIterator<Item = Option<(&'a [u8], &'a [u8])>>,
    ) -> Result<Bpe, Error> {
        let atoms = Atoms::bytes(store);
        let whole = if pre.whole_words { Whole::Always } else { Whole::Never };
        let (merges, outside) = (read_merges(store, merges)?, HashSet::new());
        Ok(Bpe { pre, merges, atoms, whole, outside })
    }

    /// A model whose atoms are characters.
    pub(super) fn over_chars<'a>(
        store: &TokenStore,
        pre: PreTokenizer,
        merges: impl ExactSizeIterator<Item = Option<(&'a [u8], &'a [u8])>>,
    ) -> Result<Bpe, Error> {
        let atoms = Atoms::chars(store);
        let whole = if pre.whole_words { Whole::Always } else { Whole::LineEnds };
        let (merges, outside) = (read_merges(store, merges)?, HashSet::new());
        Ok(Bpe { pre, merges, atoms, whole, outside })
    }

    /// Appends all but how words are cut and what atoms are.
    pub(super) fn write(&self, out: &mut Writer) {
        out.words(&self.merges.triples);
        out.words(&self.merges.ranks.slots);
        out.section(&[match self.whole {
            Whole::Never => 0,
            Whole::LineEnds => 1,
            Whole::Always => 2,
        }]);
        let mut outside: Vec<u32> = self.outside.iter().copied().collect();
        outside.sort_unstable();
        out.words(&outside.into_iter().collect());
    }

    /// Reads it back; `None` if it is not whole.
    pub(super) fn read(
        from: &mut Reader,
        store: &TokenStore,
        pre: PreTokenizer,
        is_chars: bool,
    ) -> Option<Bpe> {
        let triples = from.words()?;
        let ranks = Table::over(from.words()?, triples.len() / 3)?;
        let whole = match from.section()?.bytes() {
            [0] => Whole::Never,
            [1] => Whole::LineEnds,
            [2] => Whole::Always,
            _ => return None,
        };
        let outside = from.words()?.iter().collect();
        if triples.len() % 3 != 0 || triples.iter().any(|id| id as usize >= store.len()) {
            return None;
        }
        let merges = Merges { triples, seed: store.seed(), ranks };
        // Of two equal merges the first is found.
        let finds = |rank| {
            let triple = merges.triple(rank);
            triple.is_some_and(|[left, right, _]| {
                merges.get((left, right)).is_some_and(|found| found.rank <= rank)
            })
        };
        if !samples(merges.triples.len() / 3).all(finds) {
            return None;
        }
        let atoms = if is_chars { Atoms::chars(store) } else { Atoms::bytes(store) };
        Some(Bpe { pre, merges, atoms, whole, outside })
    }

    /// Returns the model with another rule for whole words, and with tokens `outside` it.
    pub(super) fn with(self, whole: Whole, outside: HashSet<u32>) -> Bpe {
        Bpe { whole, outside, ..self }
    }

    /// The token of the model that is spelled `text`.
    fn id(&self, store: &TokenStore, text: &[u8]) -> Option<u32> {
        store.id(text).filter(|id| !self.outside.contains(id))
    }

    /// Whether words are made of characters, and not of bytes.
    pub(super) fn atoms_are_chars(&self) -> bool {
        matches!(self.atoms, Atoms::Chars { .. })
    }

    /// Appends the tokens of `text`, which holds no special tokens.
    pub(super) fn encode(&self, store: &TokenStore, text: &str, cutter: &mut Cutter, out: &mut Vec<u32>) {
        let mut scratch = Scratch::default();
        for word in cutter.words(self.pre.passes, text) {
            if let Some(id) = self.whole(store, word, &mut scratch.spelled) {
                out.push(id);
            } else {
                self.encode_word(store, word, &mut scratch, out);
            }
        }
    }

    /// The token that a word is taken for without merging.
    fn whole(&self, store: &TokenStore, word: &str, spelled: &mut String) -> Option<u32> {
        let taken = match self.whole {
            Whole::Never => false,
            Whole::LineEnds => word.bytes().all(|byte| byte == b'\n'),
            Whole::Always => true,
        };
        match &self.atoms {
            _ if !taken => None,
            Atoms::Bytes { table, .. } => {
                spelled.clear();
                spelled.extend(word.bytes().map(|byte| table.char(byte)));
                self.id(store, spelled.as_bytes())
            }
            Atoms::Chars { .. } => self.id(store, word.as_bytes()),
        }
    }

    fn encode_word(&self, store: &TokenStore, word: &str, scratch: &mut Scratch, out: &mut Vec<u32>) {
        let Scratch { symbols, queue, .. } = scratch;
        symbols.clear();
        match &self.atoms {
            Atoms::Bytes { ids, .. } => {
                let bytes = word.bytes().enumerate();
                symbols.extend(bytes.map(|(at, byte)| Symbol::atom(ids[usize::from(byte)], at, 1)));
            }
            Atoms::Chars { .. } => symbols.extend(word.char_indices().map(|(at, c)| {
                let len = c.len_utf8();
                Symbol::atom(self.id(store, &word.as_bytes()[at..at + len]), at, len)
            })),
        }
        link(symbols);
        queue.clear();
        for right in 1..symbols.len() {
            self.queue_pair(symbols, queue, right - 1, right);
        }
        while let Some(Reverse(candidate)) = queue.pop() {
            let (left, right) = (symbols[candidate.left], symbols[candidate.right]);
            let now = left.id.zip(right.id);
            if left.gone || right.gone || now != Some(candidate.pair) {
                continue;
            }
            symbols[candidate.left].id = Some(candidate.merged);
            symbols[candidate.left].len += right.len;
            symbols[candidate.left].next = right.next;
            symbols[candidate.right].gone = true;
            if right.next != NONE {
                symbols[right.next].prev = candidate.left;
            }
            self.queue_pair(symbols, queue, left.prev, candidate.left);
            self.queue_pair(symbols, queue, candidate.left, right.next);
        }
        for symbol in symbols.iter().filter(|symbol| !symbol.gone) {
            match (symbol.id, &self.atoms) {
                (Some(id), _) => out.push(id),
                // A byte that the vocabulary has no token for is passed over, as llama.cpp does.
                (None, Atoms::Bytes { .. }) => {}
                (None, Atoms::Chars { fallback }) => {
                    let bytes = word.bytes().skip(symbol.start).take(symbol.len);
                    out.extend(bytes.filter_map(|byte| fallback[usize::from(byte)]));
                }
            }
        }
    }

    fn queue_pair(
        &self,
        symbols: &[Symbol],
        queue: &mut BinaryHeap<Reverse<Candidate>>,
        left: usize,
        right: usize,
    ) {
        let ids = |at: usize| symbols.get(at).and_then(|symbol| symbol.id);
        let Some(pair) = ids(left).zip(ids(right)) else { return };
        if let Some(Merge { rank, merged }) = self.merges.get(pair) {
            queue.push(Reverse(Candidate { rank, left, right, pair, merged }));
        }
    }
}

impl Symbol {
    fn atom(id: Option<u32>, start: usize, len: usize) -> Symbol {
        Symbol { id, start, len, prev: NONE, next: NONE, gone: false }
    }
}

fn link(symbols: &mut [Symbol]) {
    let count = symbols.len();
    for (at, symbol) in symbols.iter_mut().enumerate() {
        symbol.prev = at.checked_sub(1).unwrap_or(NONE);
        symbol.next = if at + 1 < count { at + 1 } else { NONE };
    }
}

const MERGES: &str = "tokenizer.ggml.merges";

/// Splits `left right`; a token may itself begin with a space, none holds one later.
pub(super) fn split_merge(merge: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = 1 + merge.get(1..)?.iter().position(|byte| *byte == b' ')?;
    Some((&merge[..at], &merge[at + 1..]))
}

fn read_merges<'a>(
    store: &TokenStore,
    merges: impl ExactSizeIterator<Item = Option<(&'a [u8], &'a [u8])>>,
) -> Result<Merges, Error> {
    let too_many = || Error::malformed(MERGES, "more merges than 32-bit ranks");
    let mut ranks = TableBuf::new(merges.len()).ok_or_else(too_many)?;
    let mut triples: Vec<[u32; 3]> = Vec::with_capacity(merges.len());
    let seed = store.seed();
    let mut whole = Vec::new();
    let mut guess = 0;
    for (rank, merge) in (0u32..).zip(merges) {
        let Some((left, right)) = merge else {
            return Err(Error::malformed(
                MERGES,
                format!("merge {rank} is not two tokens with a space between"),
            ));
        };
        whole.clear();
        whole.extend_from_slice(left);
        whole.extend_from_slice(right);
        let missing = |text: &[u8]| {
            let [left, right, text] = [left, right, text].map(String::from_utf8_lossy);
            let problem = format!("merge {rank} (`{left}` and `{right}`) needs `{text}`, which is no token");
            Error::malformed(MERGES, problem)
        };
        let find = |text: &[u8]| store.id(text).ok_or_else(|| missing(text));
        // Most vocabularies number the tokens as the merges made them: look there first.
        let merged = if store.text(guess) == Some(&whole) { guess } else { find(&whole)? };
        guess = merged.saturating_add(1);
        let pair = (find(left)?, find(right)?);
        triples.push([pair.0, pair.1, merged]);
        let is = |other: u32| triples.get(other as usize).is_some_and(|t| (t[0], t[1]) == pair);
        // The first of two equal merges counts.
        ranks.insert(seed.pair(pair), rank, is);
    }
    Ok(Merges { triples: Words::from(triples.as_flattened()), seed, ranks: ranks.finish() })
}
