//! Manifests: lists of a checkpoint's tensors, so that a copy can be compared with them.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tensor::Shape;

use crate::Error;
use crate::keys::{self, KeyFinding, ListedKey};
use crate::{Finding, Wrong};

/// The format name in a manifest.
const FORMAT: &str = "weighbridge-manifest";
/// The version of the format that is written, and the only one that is read.
const VERSION: u64 = 1;
/// No manifest is longer: a million tensors have 200 MB.
const LONGEST: u64 = 1 << 30;

/// One tensor of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its logical shape.
    pub shape: Shape,
    /// The name of its scheme.
    pub scheme: String,
    /// BLAKE3 of the bytes of its planes, one after the other, in 64 hexadecimal digits.
    pub blake3: String,
}

/// The tensors of a checkpoint with their digests, sorted by name, and the keys of its metadata. It does not depend on
/// files, so the same tensors in another format, or in other files, still match it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    tensors: Vec<Listed>,
    keys: Option<Vec<ListedKey>>,
}

impl Manifest {
    pub(crate) fn new(mut tensors: Vec<Listed>, mut keys: Option<Vec<ListedKey>>) -> Manifest {
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(keys) = &mut keys {
            keys.sort();
        }
        Manifest { tensors, keys }
    }

    /// The checkpoint's keys, sorted by file and key; `None` for a manifest that was written before
    /// they had this.
    pub fn keys(&self) -> Option<&[ListedKey]> {
        self.keys.as_deref()
    }

    /// The tensors, sorted by name.
    pub fn tensors(&self) -> &[Listed] {
        &self.tensors
    }

    /// Where the manifest of the checkpoint at `path` is kept: in a directory `weighbridge-manifest.json`, and
    /// beside a file that file's name with `.weighbridge.json` after it.
    pub fn beside(path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        if path.is_dir() {
            return path.join("weighbridge-manifest.json");
        }
        let mut name = path.as_os_str().to_owned();
        name.push(".weighbridge.json");
        PathBuf::from(name)
    }

    /// Reads the manifest at `path`.
    ///
    /// # Errors
    /// If it cannot be read, or is no manifest of a version that is known.
    pub fn read(path: impl AsRef<Path>) -> Result<Manifest, Error> {
        let path = path.as_ref();
        let failed = |source| Error::ManifestIo { path: shown(path), doing: "read", source };
        let wrong = |what: String| Error::Manifest { path: shown(path), what };
        let mut text = Vec::new();
        let read = File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut text));
        if read.map_err(failed)? as u64 > LONGEST {
            return Err(wrong(format!("wanted at most {LONGEST} bytes, found more")));
        }
        let json: Value = serde_json::from_slice(&text).map_err(|e| wrong(format!("it is no JSON: {e}")))?;
        let field = |key: &str| json.get(key).unwrap_or(&Value::Null);
        if field("format") != FORMAT {
            return Err(wrong(format!("wanted \"format\": \"{FORMAT}\", found {}", field("format"))));
        }
        if field("version") != VERSION {
            return Err(wrong(format!("wanted version {VERSION}, found {}", field("version"))));
        }
        let listed = field("tensors").as_array().ok_or_else(|| wrong("it has no list `tensors`".into()))?;
        let tensors = listed
            .iter()
            .enumerate()
            .map(|(i, t)| {
                parse(t)
                    .ok_or_else(|| wrong(format!("tensor {i} lacks a name, shape, scheme or blake3: {t}")))
            })
            .collect::<Result<_, _>>()?;
        let keys = match field("keys") {
            Value::Null => None,
            listed => {
                let listed = listed.as_array().ok_or_else(|| wrong("`keys` is no list".into()))?;
                let key = |(i, k): (usize, &Value)| {
                    parse_key(k).ok_or_else(|| wrong(format!("key {i} lacks a file, key or blake3: {k}")))
                };
                Some(listed.iter().enumerate().map(key).collect::<Result<Vec<_>, _>>()?)
            }
        };
        let manifest = Manifest::new(tensors, keys);
        let twice = |w: &[ListedKey]| (&w[0].file, &w[0].key) == (&w[1].file, &w[1].key);
        if let Some(w) = manifest.keys.iter().flat_map(|keys| keys.windows(2)).find(|w| twice(w)) {
            return Err(wrong(format!("the key `{}` of {} is there twice", w[0].key, w[0].file)));
        }
        match manifest.tensors.windows(2).find(|w| w[0].name == w[1].name) {
            Some(twice) => Err(wrong(format!("`{}` is there twice", twice[0].name))),
            None => Ok(manifest),
        }
    }

    /// Writes it to `path`: to a temporary file that is made durable and then renamed, so that no partial file is ever
    /// there. Equal manifests are equal bytes.
    ///
    /// # Errors
    /// If anything but an equal manifest is there and `overwrite` is not set, or the system fails.
    pub fn write(&self, path: impl AsRef<Path>, overwrite: bool) -> Result<(), Error> {
        let path = path.as_ref();
        let text = self.text();
        if fs::symlink_metadata(path).is_ok() && !overwrite {
            return match fs::read(path) {
                Ok(there) if there == text.as_bytes() => Ok(()),
                _ => Err(Error::ManifestThere { path: shown(path) }),
            };
        }
        let failed = |source| Error::ManifestIo { path: shown(path), doing: "write", source };
        let name = path.file_name().ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{}.tmp", std::process::id()));
        let temporary = path.with_file_name(temporary);
        let written = File::options().write(true).create_new(true).open(&temporary).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, path)
        });
        if written.is_err() {
            // The error has no one to go to, and the name says that the file is temporary.
            let _ = fs::remove_file(&temporary);
        }
        written.map_err(failed)
    }

    /// One tensor a line, for tools that compare lines.
    fn text(&self) -> String {
        let line = |t: &Listed| {
            let (shape, blake3) = (t.shape.to_vec(), &t.blake3);
            json!({"name": t.name, "shape": shape, "scheme": t.scheme, "blake3": blake3}).to_string()
        };
        let lines: Vec<String> = self.tensors.iter().map(line).collect();
        let keys = self.keys.as_ref().map_or(String::new(), |keys| {
            let line = |k: &ListedKey| json!({"file": k.file, "key": k.key, "blake3": k.blake3}).to_string();
            let lines: Vec<String> = keys.iter().map(line).collect();
            format!(",\n\"keys\": [\n{}\n]", lines.join(",\n"))
        });
        format!(
            "{{\n\"format\": \"{FORMAT}\",\n\"version\": {VERSION},\n\"tensors\": [\n{}\n]{keys}\n}}\n",
            lines.join(",\n")
        )
    }

    /// Returns every key of `found` that differs from this manifest.
    ///
    /// # Errors
    /// The reason why the keys cannot be compared.
    pub(crate) fn key_differences(&self, found: &Manifest) -> Result<Vec<KeyFinding>, &'static str> {
        match (&self.keys, &found.keys) {
            (Some(wanted), Some(found)) => keys::differences(wanted, found),
            (None, _) => Err("the manifest was written before manifests covered them"),
            (_, None) => Ok(vec![]),
        }
    }

    /// Returns every difference of the tensors of `found` from this manifest.
    pub(crate) fn differences(&self, found: &Manifest) -> Vec<Finding> {
        let wanted: HashMap<&str, &Listed> = self.tensors.iter().map(|t| (t.name.as_str(), t)).collect();
        let there: HashMap<&str, &Listed> = found.tensors.iter().map(|t| (t.name.as_str(), t)).collect();
        let mut findings = vec![];
        let mut add = |t: &Listed, wrong| findings.push(Finding { tensor: t.name.clone(), wrong });
        for want in self.tensors.iter().filter(|t| !there.contains_key(t.name.as_str())) {
            add(want, Wrong::Missing);
        }
        for t in &found.tensors {
            let Some(want) = wanted.get(t.name.as_str()) else {
                add(t, Wrong::Extra);
                continue;
            };
            // Of other shapes and schemes the bytes are others anyway.
            let same = (want.shape == t.shape, want.scheme == t.scheme);
            if !same.0 {
                add(t, Wrong::Shape { wanted: want.shape.clone(), found: t.shape.clone() });
            }
            if !same.1 {
                add(t, Wrong::Scheme { wanted: want.scheme.clone(), found: t.scheme.clone() });
            }
            if same == (true, true) && want.blake3 != t.blake3 {
                add(t, Wrong::Digest { wanted: want.blake3.clone(), found: t.blake3.clone() });
            }
        }
        findings
    }
}

fn parse(tensor: &Value) -> Option<Listed> {
    let text = |key: &str| Some(tensor.get(key)?.as_str()?.to_owned());
    let shape: Option<Vec<u64>> = tensor.get("shape")?.as_array()?.iter().map(Value::as_u64).collect();
    let blake3 = text("blake3").filter(|t| t.len() == 64 && t.bytes().all(|b| b.is_ascii_hexdigit()))?;
    Some(Listed { name: text("name")?, shape: shape?.into(), scheme: text("scheme")?, blake3 })
}

fn parse_key(key: &Value) -> Option<ListedKey> {
    let text = |name: &str| Some(key.get(name)?.as_str()?.to_owned());
    let blake3 = text("blake3").filter(|t| t.len() == 64 && t.bytes().all(|b| b.is_ascii_hexdigit()))?;
    Some(ListedKey { file: text("file")?, key: text("key")?, blake3 })
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
