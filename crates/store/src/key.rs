//! What a copy is of.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use checkpoint::{Checkpoint, Identity};
use load::Plan;
use serde::{Deserialize, Serialize};

/// Raised whenever the file of an entry is laid out in another way.
const VERSION: u64 = 1;

/// A source that changed this recently may be written to once more, without a later time. Coarse clocks tick every two seconds (FAT).
const SETTLED: Duration = Duration::from_secs(2);

/// What a copy is of: the plan, the files that it reads, and the instruction set that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key([u8; 16]);

impl Key {
    /// The key of what `plan` loads for an instruction set. `None` if a file of its checkpoint cannot be told from what it was before:
    /// it is in memory, or was written to within the last two seconds.
    pub fn of(plan: &Plan, isa: &str) -> Option<Key> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"weighbridge ready");
        hasher.update(&VERSION.to_le_bytes());
        hasher.update(plan.digest().as_bytes());
        hasher.update(&(isa.len() as u64).to_le_bytes());
        hasher.update(isa.as_bytes());
        sources(plan.checkpoint(), SystemTime::now(), &mut hasher)?;
        let mut key = [0; 16];
        hasher.finalize_xof().fill(&mut key);
        Some(Key(key))
    }

    /// The key and what it was made of.
    pub(crate) fn with_parts(plan: &Plan, isa: &str) -> Option<(Key, Parts)> {
        let key = Key::of(plan, isa)?;
        let mut hasher = blake3::Hasher::new();
        sources(plan.checkpoint(), SystemTime::now(), &mut hasher)?;
        let files = hasher.finalize().to_hex().to_string();
        Some((key, Parts { files, isa: isa.to_owned() }))
    }

    /// The key of a text.
    pub(crate) fn named(text: &str) -> Key {
        let mut key = [0; 16];
        blake3::Hasher::new().update(text.as_bytes()).finalize_xof().fill(&mut key);
        Key(key)
    }

    pub(crate) fn parse(text: &str) -> Option<Key> {
        let mut bytes = [0; 16];
        if text.len() != 32 || !text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Key(bytes))
    }
}

/// Parts of a key, which tell why a copy has another one. What differs beside them is the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Parts {
    /// Digest of the identities of the model's files.
    pub(crate) files: String,
    /// The instruction set.
    pub(crate) isa: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Adds which files `checkpoint` reads.
fn sources(checkpoint: &Checkpoint, now: SystemTime, hasher: &mut blake3::Hasher) -> Option<()> {
    hasher.update(&(checkpoint.files().len() as u64).to_le_bytes());
    checkpoint.files().iter().try_for_each(|file| add_identity(&file.source.identity()?, now, hasher))
}

/// Adds a file. `None` if it cannot be told from what it was before.
pub(crate) fn add_identity(identity: &Identity, now: SystemTime, hasher: &mut blake3::Hasher) -> Option<()> {
    match identity {
        // A device's number may be another after the next start of the machine.
        Identity::File { len, modified, changed, inode, .. } => {
            if !is_settled(*changed, now) {
                return None;
            }
            let numbers = [*len, *inode];
            let times = [modified.0, modified.1, changed.0, changed.1];
            hasher.update(b"file");
            for bytes in numbers.map(u64::to_le_bytes).into_iter().chain(times.map(i64::to_le_bytes)) {
                hasher.update(&bytes);
            }
        }
        Identity::Tagged { len, tag } => {
            hasher.update(b"tagged");
            hasher.update(&len.to_le_bytes());
            hasher.update(&(tag.len() as u64).to_le_bytes());
            hasher.update(tag.as_bytes());
        }
        _ => return None,
    }
    Some(())
}

/// Whether a file that last changed then gets another time if it is written to from `now` on.
fn is_settled(changed: (i64, i64), now: SystemTime) -> bool {
    let (Ok(seconds), Ok(nanoseconds)) = (u64::try_from(changed.0), u32::try_from(changed.1)) else {
        return true;
    };
    let changed = UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds));
    changed.is_some_and(|changed| now.duration_since(changed).is_ok_and(|ago| ago >= SETTLED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_is_shown() {
        let key = Key([0x0f, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff]);
        assert_eq!(key.to_string(), "0f0102030405060708090a0b0c0d0eff");
        assert_eq!(Key::parse(&key.to_string()), Some(key));
        for wrong in ["", "0f", "0F0102030405060708090a0b0c0d0eff", "zz0102030405060708090a0b0c0d0eff"] {
            assert_eq!(Key::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_has_just_changed_may_change_again() {
        let now = UNIX_EPOCH + Duration::from_millis(100_000_500);
        assert!(is_settled((99_998, 0), now));
        assert!(is_settled((99_998, 500_000_000), now));
        assert!(!is_settled((99_998, 500_000_001), now));
        assert!(!is_settled((100_001, 0), now), "a clock that is ahead");
    }
}
