//! The index of a sharded checkpoint: `{"metadata": {…}, "weight_map": {TENSOR: FILE}}`.
//!
//! Source: `split_torch_state_dict_into_shards_factory` and `save_torch_state_dict` of huggingface_hub
//! (serialization/_torch.py), and `get_checkpoint_shard_files` of transformers 5 (utils/hub.py), which reads it.

use std::collections::{BTreeSet, HashSet};
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use storage::Name;
use tensor::TensorEntry;

use crate::contents::{Contents, File};
use crate::error::{Error, Problem, Problems, Subject};
use crate::fault::Fault;
use crate::folder::Folder;
use crate::format::safetensors::Pairs;

/// An index is at most this long. It stores less per tensor than a safetensors header.
const MAX_INDEX: u64 = 100_000_000;

/// Which file holds which tensor.
#[derive(Debug)]
pub(super) struct Index {
    /// Tensor and file, in the order of the index; no tensor twice.
    map: Vec<(String, String)>,
}

impl Index {
    /// Reads the index called `name`. Every file that it names is in the directory, or in one below it.
    pub(super) fn read(folder: &Folder, name: &str) -> Result<Index, Error> {
        let file = folder.open_small(name)?;
        let location = file.location();
        let json = file.read_all(MAX_INDEX)?;
        let Raw { weight_map: Pairs { list: map, doubled } } =
            serde_json::from_slice(&json).map_err(|e| {
                let (at, fault) = Fault::json("the index", &json, 0, &e);
                Problem { at, subject: Subject::Whole, fault }.of(&location)
            })?;
        let mut problems = Problems::default();
        for name in doubled {
            let (first, last) = Fault::places(&json, &name);
            let fault = Fault::Duplicate { first: first.unwrap_or_default() };
            problems.push(Problem { at: last, subject: Subject::Tensor(name), fault });
        }
        for name in map.iter().map(|(_, file)| file).collect::<BTreeSet<_>>() {
            if Name::ROOT.join(name).is_err() {
                let (at, _) = Fault::places(&json, name);
                let fault = Fault::NotPlain { name: name.clone() };
                problems.push(Problem { at, subject: Subject::Whole, fault });
            }
        }
        if map.is_empty() {
            let (wants, found) = ("a `weight_map` of tensors", "an empty one".to_owned());
            problems.push(Problem {
                at: None,
                subject: Subject::Whole,
                fault: Fault::Value { wants, found },
            });
        }
        problems.check(&location)?;
        Ok(Index { map })
    }

    /// The files that it names, sorted, each once.
    pub(super) fn files(&self) -> BTreeSet<String> {
        let files: BTreeSet<&str> = self.map.iter().map(|(_, file)| file.as_str()).collect();
        files.into_iter().map(str::to_owned).collect()
    }

    /// Compares it with the tensors of the files `opened`.
    pub(super) fn check(&self, contents: &Contents, opened: &BTreeSet<&str>, problems: &mut Problems) {
        let files: Vec<String> = contents.files.iter().map(File::name).collect();
        let home = |entry: &TensorEntry| {
            entry.planes.first().and_then(|p| files.get(p.file.0 as usize)).map(String::as_str)
        };
        for (tensor, wants) in self.map.iter().filter(|(_, file)| opened.contains(file.as_str())) {
            let found = contents.find(tensor).and_then(|id| contents.entries.get(id as usize)).and_then(home);
            // A tensor that is in two files is a problem of its own.
            let second = || contents.entries.iter().any(|e| e.name == *tensor && home(e) == Some(wants));
            if found != Some(wants) && (found.is_none() || !second()) {
                let fault = Fault::Astray { wants: wants.clone(), found: found.map(str::to_owned) };
                problems.push(Problem { at: None, subject: Subject::Tensor(tensor.clone()), fault });
                if problems.enough() {
                    return;
                }
            }
        }
        let named: HashSet<&str> = self.map.iter().map(|(tensor, _)| tensor.as_str()).collect();
        for (id, entry) in (0..).zip(&contents.entries) {
            if !named.contains(entry.name.as_str()) {
                let fault = Fault::Unlisted { file: contents.home(id) };
                problems.push(Problem { at: None, subject: Subject::Tensor(entry.name.clone()), fault });
            }
        }
    }
}

/// The fields of the index that are used.
///
/// `metadata` is not used: its `total_size` is the memory of the weights when they were saved. Tied tensors count twice
/// or once, quantisers leave the earlier size, and every reader trusts the files instead. Each file's own header shows
/// whether it was cut short.
struct Raw {
    weight_map: Pairs,
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Raw;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map with `weight_map`")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
                let mut weight_map = None;
                while let Some(key) = map.next_key::<String>()? {
                    if key != "weight_map" {
                        map.next_value::<IgnoredAny>()?;
                    } else if weight_map.replace(map.next_value()?).is_some() {
                        return Err(de::Error::duplicate_field("weight_map"));
                    }
                }
                Ok(Raw { weight_map: weight_map.ok_or_else(|| de::Error::missing_field("weight_map"))? })
            }
        }
        deserializer.deserialize_map(Object)
    }
}
