//! Digests of what encoders heed.

/// A digest of numbers by name, in the order of the names.
pub(crate) fn digest<'a>(all: impl Iterator<Item = (&'a str, &'a [f32])>) -> String {
    let mut all: Vec<_> = all.collect();
    all.sort_unstable_by_key(|(name, _)| *name);
    let mut hasher = blake3::Hasher::new();
    for (name, numbers) in all {
        hasher.update(&(name.len() as u64).to_le_bytes()).update(name.as_bytes());
        hasher.update(&(numbers.len() as u64).to_le_bytes());
        for x in numbers {
            hasher.update(&x.to_le_bytes());
        }
    }
    hasher.finalize().to_hex().to_string()
}
