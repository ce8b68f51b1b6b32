//! The characters that SentencePiece replaces before it cuts a text, as a `tokenizer.json` carries them
//! (`precompiled_charsmap`): checked here, so that the library can follow them without leaving the table.
//!
//! Source: `Precompiled`, spm_precompiled/src/lib.rs@0.1.4; darts-clone's units, third_party/darts_clone/darts.h of
//! sentencepiece@v0.2.

use std::collections::HashSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Checks the table of a normalizer: a tree of the bytes of characters, then the texts that its leaves point into.
///
/// # Errors
/// What is wrong with it.
pub(super) fn check(normalizer: &Value) -> Result<(), String> {
    let coded = normalizer["precompiled_charsmap"].as_str().unwrap_or_default();
    let table = STANDARD.decode(coded).map_err(|error| format!("not base64: {error}"))?;
    let cut = || "it ends before its tree does".to_owned();
    let (size, rest) = table.split_first_chunk::<4>().ok_or_else(cut)?;
    let size = usize::try_from(u32::from_le_bytes(*size)).map_err(|_| cut())?;
    let (tree, texts) = rest.split_at_checked(size / 4 * 4).ok_or_else(cut)?;
    let units: Vec<u32> = tree.as_chunks::<4>().0.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
    let texts = std::str::from_utf8(texts).map_err(|_| "its texts are not UTF-8".to_owned())?;
    walk(&units, texts).map_err(|place| format!("unit {place} of its tree leads out of the table"))
}

/// Goes to every place that a text can lead to. Gives the place from which one leads outside.
fn walk(units: &[u32], texts: &str) -> Result<(), usize> {
    let root = units.first().map(|unit| offset(*unit)).ok_or(0usize)?;
    let (mut open, mut seen) = (vec![root], HashSet::from([root]));
    while let Some(base) = open.pop() {
        for byte in 1..=255usize {
            let place = base ^ byte;
            let unit = *units.get(place).ok_or(base)?;
            // The highest bit marks a leaf, which no byte leads to.
            if unit & (1 << 31 | 0xff) != byte as u32 {
                continue;
            }
            let next = place ^ offset(unit);
            if unit >> 8 & 1 == 1 {
                let leaf = *units.get(next).ok_or(place)?;
                let at = usize::try_from(leaf & !(1 << 31)).map_err(|_| place)?;
                if !texts.is_char_boundary(at) {
                    return Err(place);
                }
            }
            if seen.insert(next) {
                open.push(next);
            }
        }
    }
    Ok(())
}

/// How far the children of a unit are.
fn offset(unit: u32) -> usize {
    ((unit >> 10) as usize) << ((unit & 1 << 9) >> 6)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of 256 units in which `a` is a character that has the text at `at`.
    fn table(at: u32, offset: u32) -> Value {
        let mut units = vec![0u32; 512];
        units[0] = 256 << 10;
        units[256 ^ usize::from(b'a')] = offset << 10 | 1 << 8 | u32::from(b'a');
        if let Some(leaf) = units.get_mut(256 ^ usize::from(b'a') ^ offset as usize) {
            *leaf = at | 1 << 31;
        }
        let bytes: Vec<u8> = [512 * 4u32].iter().chain(&units).flat_map(|unit| unit.to_le_bytes()).collect();
        let bytes = [&bytes, "é\0".as_bytes()].concat();
        serde_json::json!({ "precompiled_charsmap": STANDARD.encode(bytes) })
    }

    #[test]
    fn tables_that_lead_outside_are_rejected() {
        assert_eq!(check(&table(0, 5)), Ok(()));
        assert!(check(&table(1, 5)).unwrap_err().contains("leads out"), "within a character");
        assert!(check(&table(4, 5)).unwrap_err().contains("leads out"), "after the texts");
        assert!(check(&table(0, 1 << 20)).unwrap_err().contains("leads out"), "after the tree");
        assert!(check(&serde_json::json!({ "precompiled_charsmap": "////" })).is_err());
        assert!(check(&serde_json::json!({ "precompiled_charsmap": "?" })).unwrap_err().contains("base64"));
        assert!(check(&serde_json::json!({ "precompiled_charsmap": "" })).is_err());
    }
}
