//! The digest of a model: of its weights as they lie in memory, and of its architecture.

use std::fmt;

use ::model::Architecture;
use blake3::{Hash, Hasher};
use load::{Pool, Tensor};

/// Bytes that are hashed at once. The digest depends on it.
const PIECE: usize = 4 << 20;

/// The digest of a [`Model`](crate::Model): 32 bytes, shown as hexadecimal digits.
///
/// Equal digests mean equal weights in equal forms, and an equal architecture: a session of the one goes on from what a session of the other
/// has computed. The files that they came from do not matter. The forms depend on the layout and on the instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ModelDigest(Hash);

impl fmt::Display for ModelDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The digest of `params` and their architecture. All processors hash.
pub(super) fn digest(architecture: &Architecture, params: &[(String, Tensor)]) -> ModelDigest {
    let slots = params.iter().flat_map(|(_, tensor)| tensor.slots());
    let pieces: Vec<&[u8]> = slots.flat_map(|slot| slot.bytes().chunks(PIECE)).collect();
    let mut hashes = vec![Hash::from_bytes([0; 32]); pieces.len()];
    let share = pieces.len().div_ceil(Pool::available()).max(1);
    std::thread::scope(|scope| {
        for (pieces, hashes) in pieces.chunks(share).zip(hashes.chunks_mut(share)) {
            scope.spawn(move || {
                for (piece, hash) in pieces.iter().zip(hashes) {
                    *hash = blake3::hash(piece);
                }
            });
        }
    });
    let mut all = Hasher::new();
    let text = |all: &mut Hasher, text: &str| {
        all.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
    };
    // Its maps are sorted.
    text(&mut all, &format!("{architecture:?}"));
    let mut hashes = hashes.iter();
    for (name, tensor) in params {
        text(&mut all, name);
        text(&mut all, &tensor.scheme().name);
        text(&mut all, &format!("{:?}", tensor.shape()));
        for slot in tensor.slots() {
            all.update(&(slot.bytes().len() as u64).to_le_bytes());
            for hash in hashes.by_ref().take(slot.bytes().len().div_ceil(PIECE)) {
                all.update(hash.as_bytes());
            }
        }
    }
    ModelDigest(all.finalize())
}
