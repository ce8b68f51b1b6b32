//! Byte-level vocabularies whose merges follow from the order of their tokens: those of OpenAI, where a token's number says when it
//! is merged.
//!
//! Source: openai/tiktoken@0.12, tiktoken/_educational.py, `bpe_encode`: of all neighbours, those whose token has the lowest number are
//! merged first.

use std::collections::HashMap;

use super::VocabularyBuf;
use super::store::ByteTable;
use super::vocabulary::kinds;

impl VocabularyBuf {
    /// The vocabulary of `tokens`, which are bytes and in the order of their merges, and of `special` ones after them.
    pub(crate) fn from_ranks(tokens: &[Vec<u8>], special: &[String]) -> VocabularyBuf {
        let table = ByteTable::new();
        let spelled = |bytes: &[u8]| bytes.iter().map(|byte| table.char(*byte)).collect::<String>();
        let mut ranks: HashMap<&[u8], usize> = HashMap::with_capacity(tokens.len());
        for (rank, token) in tokens.iter().enumerate() {
            ranks.entry(token).or_insert(rank);
        }
        let halves = tokens.iter().enumerate().filter(|(_, token)| token.len() > 1);
        let halves = halves.filter_map(|(rank, token)| {
            let at = halves_of(token, rank, &ranks)?;
            Some(format!("{} {}", spelled(&token[..at]), spelled(&token[at..])))
        });
        let merges = halves.collect();
        let mut types = vec![kinds::NORMAL; tokens.len()];
        types.resize(tokens.len() + special.len(), kinds::CONTROL);
        VocabularyBuf {
            model: "gpt2".to_owned(),
            pre: Some("gpt-2".to_owned()),
            tokens: tokens.iter().map(|token| spelled(token)).chain(special.iter().cloned()).collect(),
            types: Some(types),
            merges,
            add_bos: Some(false),
            ..VocabularyBuf::default()
        }
    }
}

/// Where the two tokens meet that become `token`, whose number is `rank`; `None` if none do.
fn halves_of(token: &[u8], rank: usize, ranks: &HashMap<&[u8], usize>) -> Option<usize> {
    // The ends of the parts so far.
    let mut ends: Vec<usize> = (1..=token.len()).collect();
    while ends.len() > 2 {
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let pairs = starts.zip(ends.iter().skip(1)).enumerate();
        let found = pairs.filter_map(|(n, (start, end))| Some((*ranks.get(&token[start..*end])?, n)));
        let (_, n) = found.filter(|(found, _)| *found < rank).min()?;
        ends.remove(n);
    }
    ends.first().copied()
}
