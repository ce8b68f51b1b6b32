//! The beginnings of texts, kept for those that begin as they do.

use std::collections::VecDeque;

use crate::{Session, Snapshot};

/// Texts and what sessions kept of them; those used last are at the front.
#[derive(Default)]
pub(super) struct Prefixes {
    texts: VecDeque<(Vec<u32>, Snapshot)>,
}

/// Texts that are kept at most: each request compares its own with all of them.
const MOST: usize = 256;

/// Fewer tokens than these are run again.
const LEAST: usize = 16;

fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Prefixes {
    /// Keeps what a session holds after `text`.
    pub(super) fn keep(&mut self, text: &[u32], snapshot: Snapshot) {
        if text.len() < LEAST {
            return;
        }
        // Those that it begins with, or that begin with it, say no more.
        self.texts.retain(|(kept, _)| !text.starts_with(kept));
        self.texts.truncate(MOST - 1);
        self.texts.push_front((text.to_vec(), snapshot));
    }

    /// Forgets those used longest ago until the others have no more than `bytes`.
    pub(super) fn shrink(&mut self, bytes: u64) {
        let mut held: u64 = self.texts.iter().map(|(_, snapshot)| snapshot.bytes() as u64).sum();
        while held > bytes {
            let Some((_, snapshot)) = self.texts.pop_back() else { break };
            held -= snapshot.bytes() as u64;
        }
    }

    /// Brings into an empty session what is kept of the beginning of `text`, as far as it [need not run again](Session::known_of), and
    /// returns its length.
    pub(super) fn restore(&mut self, text: &[u32], session: &mut Session) -> usize {
        let most = &text[..session.known_of(text.len(), text.len())];
        let lengths = self.texts.iter().map(|(kept, _)| common(kept, most)).enumerate();
        let Some((best, length)) = lengths.max_by_key(|(_, length)| *length) else { return 0 };
        let Some((kept, snapshot)) = self.texts.remove(best) else { return 0 };
        let taken = if length < LEAST { 0 } else { session.restore_first(&snapshot, length).unwrap_or(0) };
        self.texts.push_front((kept, snapshot));
        taken
    }
}
