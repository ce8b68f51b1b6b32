//! Keys of the metadata, the configuration, the tokenizer and the chat template as a manifest lists them, and
//! differences from it.

use std::collections::HashMap;
use std::fmt;

use crate::said::{self, Said};

/// Keys that say how a file is laid out, not what it holds: files that are cut otherwise have others.
static LAID_OUT: &[&str] = &["general.alignment", "split.no", "split.count", "split.tensors.count"];

/// A key of a checkpoint's metadata, as a manifest lists it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListedKey {
    /// The file that says it, or `metadata` for GGUF.
    pub file: String,
    /// The key, with dots between those of nested objects; empty for a file that is taken as a whole.
    pub key: String,
    /// BLAKE3 of the value, in 64 hexadecimal digits.
    pub blake3: String,
}

/// A key that is not as a manifest says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFinding {
    /// The file, or `metadata` for GGUF.
    pub file: String,
    /// The key; empty for a whole file.
    pub key: String,
    /// The problem.
    pub wrong: WrongKey,
}

/// Problems of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongKey {
    /// The manifest has it, the checkpoint has not.
    Missing,
    /// The checkpoint has it, the manifest has not.
    Extra,
    /// It has another value than the manifest says.
    Other,
}

impl fmt::Display for KeyFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, key) = (self.file.escape_debug(), self.key.escape_debug());
        match &*self.key {
            "" => write!(f, "`{file}`: {}", self.wrong),
            _ => write!(f, "`{key}` of {file}: {}", self.wrong),
        }
    }
}

impl fmt::Display for WrongKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WrongKey::Missing => "missing: in the manifest, not in the checkpoint",
            WrongKey::Extra => "extra: in the checkpoint, not in the manifest",
            WrongKey::Other => "the value differs from the manifest",
        })
    }
}

/// All that a checkpoint says, to be listed.
pub(crate) fn listed(said: &Said) -> Vec<ListedKey> {
    let laid_out = |file: &str, key: &str| file == said::GGUF && LAID_OUT.contains(&key);
    let own = said.keys.iter().filter(|((file, key), _)| !laid_out(file, key));
    let one = |((file, key), saying): (&(String, String), &said::Saying)| ListedKey {
        file: file.clone(),
        key: key.clone(),
        blake3: saying.blake3.clone(),
    };
    own.map(one).collect()
}

/// Returns every difference of `found` from `wanted`.
///
/// # Errors
/// The reason why they cannot be compared.
pub(crate) fn differences(
    wanted: &[ListedKey],
    found: &[ListedKey],
) -> Result<Vec<KeyFinding>, &'static str> {
    let is_gguf = |keys: &[ListedKey]| keys.iter().any(|k| k.file == said::GGUF);
    match (wanted, found) {
        ([], []) => return Ok(vec![]),
        (_, []) => return Err("the format of the checkpoint stores tensors only"),
        ([], _) => return Err("the manifest was made from a format that stores tensors only"),
        _ if is_gguf(wanted) != is_gguf(found) => {
            return Err("the manifest was made from another ecosystem's format, which has other keys");
        }
        _ => {}
    }
    let (wants, there) = (by_name(wanted), by_name(found));
    let mut findings = vec![];
    let mut add = |k: &ListedKey, wrong| {
        findings.push(KeyFinding { file: k.file.clone(), key: k.key.clone(), wrong });
    };
    for want in wanted {
        match there.get(&(want.file.as_str(), want.key.as_str())) {
            None => add(want, WrongKey::Missing),
            Some(found) if found.blake3 != want.blake3 => add(want, WrongKey::Other),
            Some(_) => {}
        }
    }
    for extra in found.iter().filter(|k| !wants.contains_key(&(k.file.as_str(), k.key.as_str()))) {
        add(extra, WrongKey::Extra);
    }
    Ok(findings)
}

fn by_name(keys: &[ListedKey]) -> HashMap<(&str, &str), &ListedKey> {
    keys.iter().map(|k| ((k.file.as_str(), k.key.as_str()), k)).collect()
}
