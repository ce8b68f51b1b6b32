//! Which files of a repository make the model.
//!
//! [`choose`] looks at names and sizes only. An index of safetensors or PyTorch weights is read later: it names the
//! files that [`Choice::with_shards`] adds.

use serde::Deserialize;
use storage::Name;

use crate::quant::{Split, has_tag, is_model, tag};
use crate::role::{Format, PYTORCH, SAFETENSORS, is_companion, is_module};
use crate::{Error, HubName, Offer};

/// A file of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubFile {
    /// Its path in the repository.
    pub path: String,
    /// Its size in bytes; `None` if the server does not say.
    pub size: Option<u64>,
    /// The SHA-256 of its bytes, for a file in large-file storage.
    pub sha256: Option<String>,
    /// The SHA-1 that git computes of its blob. Of a large file, it is that of the pointer.
    pub blob: Option<String>,
}

/// The files of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The files, sorted by path.
    pub files: Vec<HubFile>,
    /// Among them, the index that names more: see [`Choice::with_shards`].
    pub index: Option<String>,
    /// The one file to open; `None` if it is the directory.
    pub entry: Option<String>,
}

/// Chooses the files of `name` among `files`, all files of its repository.
///
/// - With a file or a quantisation: that file, with all parts if it is split.
/// - Without, safetensors weights if there are any, else PyTorch weights; and with them all small files that describe the
///   model, its tokenizer and its modules. Weights of the same model in other formats are left out.
/// - With GGUF files only: the model, if there is one.
///
/// # Errors
/// If there is no such file, or more than one model.
pub fn choose(name: &HubName, files: &[HubFile]) -> Result<Choice, Error> {
    let chosen = Chooser { name, files };
    let choice = match name.part() {
        Some(part) => chosen.part(part)?,
        None => chosen.all()?,
    };
    let strange = choice.files.iter().find(|file| !is_safe(&file.path));
    match strange {
        Some(file) => Err(Error::BadName {
            text: file.path.clone(),
            wanted: "the path of a file within the repository",
            found: "one that leads elsewhere".to_owned(),
        }),
        None => Ok(choice),
    }
}

/// Returns true if a path stays within its folder on every system.
pub(crate) fn is_safe(path: &str) -> bool {
    let is_part = |part: &str| part.len() <= 255 && !part.contains(char::is_control);
    path.len() <= 1024
        && Name::parse(path).is_ok_and(|name| !name.is_root() && name.components().all(is_part))
}

impl Choice {
    /// Adds the files that the index names. `text` is the index, `files` are all files of the repository.
    ///
    /// # Errors
    /// If it is no index, or names a file that the repository does not have.
    pub fn with_shards(mut self, name: &HubName, text: &[u8], files: &[HubFile]) -> Result<Choice, Error> {
        #[derive(Deserialize)]
        struct Index {
            weight_map: std::collections::BTreeMap<String, String>,
        }
        let Some(index) = self.index.take() else { return Ok(self) };
        let repo = name.repo().as_str();
        let parsed: Index = serde_json::from_slice(text).map_err(|e| Error::Malformed {
            host: format!("`{repo}`"),
            path: index.clone(),
            what: format!("wanted an index of weights, {e}"),
        })?;
        let shards: std::collections::BTreeSet<String> = parsed.weight_map.into_values().collect();
        for shard in shards {
            match files.iter().find(|file| file.path == shard && is_safe(&shard)) {
                Some(file) => self.add(file.clone()),
                None => {
                    return Err(Error::NoFile {
                        repo: repo.to_owned(),
                        file: shard.escape_debug().to_string(),
                        hint: Some(format!("`{index}` names it: the repository is not complete")),
                    });
                }
            }
        }
        Ok(self)
    }

    fn add(&mut self, file: HubFile) {
        if let Err(at) = self.files.binary_search_by(|there| there.path.cmp(&file.path)) {
            self.files.insert(at, file);
        }
    }
}

struct Chooser<'a> {
    name: &'a HubName,
    files: &'a [HubFile],
}

/// The weights of one format: files, and an index that names more.
type Weights<'a> = (Vec<&'a HubFile>, Option<&'a HubFile>);

/// A GGUF model: its parts, in order.
struct Model<'a>(Vec<&'a HubFile>);

impl<'a> Chooser<'a> {
    fn repo(&self) -> &'a str {
        self.name.repo().as_str()
    }

    /// A file, or else a quantisation.
    fn part(&self, part: &str) -> Result<Choice, Error> {
        if let Some(file) = self.files.iter().find(|file| file.path == part) {
            let files = match Split::of(part) {
                Some(split) => self.parts(&split, file)?.0,
                None => vec![file],
            };
            return Ok(one(files));
        }
        let models = self.models()?;
        let matching: Vec<&Model<'_>> = models
            .iter()
            .filter(|model| model.0.first().is_some_and(|file| has_tag(&file.path, part)))
            .collect();
        match matching.as_slice() {
            [model] => Ok(one(model.0.clone())),
            // A name with an ending is meant as a file.
            [] if part.contains(['.', '/']) || models.is_empty() => {
                Err(Error::no_file(self.repo(), part, self.files.iter().map(|file| file.path.as_str())))
            }
            [] => Err(self.choose(Some(part), 0, &models.iter().collect::<Vec<_>>())),
            several => Err(self.choose(Some(part), several.len(), several)),
        }
    }

    /// All that a model directory has.
    fn all(&self) -> Result<Choice, Error> {
        let Some((weights, index)) =
            self.weights(&SAFETENSORS)?.map_or_else(|| self.weights(&PYTORCH), |w| Ok(Some(w)))?
        else {
            let models = self.models()?;
            return match models.as_slice() {
                [model] => Ok(one(model.0.clone())),
                [] => Err(Error::NoWeights { repo: self.repo().to_owned(), files: self.files.len() }),
                several => Err(self.choose(None, several.len(), &several.iter().collect::<Vec<_>>())),
            };
        };
        let mut choice = Choice { files: vec![], index: index.map(|file| file.path.clone()), entry: None };
        let small = self.files.iter().filter(|file| is_companion(&file.path, file.size));
        let modules = self.modules();
        weights
            .into_iter()
            .chain(index)
            .chain(small)
            .chain(modules)
            .for_each(|file| choice.add(file.clone()));
        Ok(choice)
    }

    /// The weights of one format in the root.
    fn weights(&self, format: &Format) -> Result<Option<Weights<'a>>, Error> {
        let root = || self.files.iter().filter(|file| !file.path.contains('/'));
        let find = |name: &str| root().find(|file| file.path == name);
        if let Some(index) = find(format.index) {
            return Ok(Some((vec![], Some(index))));
        }
        if let Some(file) = find(format.single) {
            return Ok(Some((vec![file], None)));
        }
        let all: Vec<&HubFile> = root().filter(|file| format.has(&file.path)).collect();
        // Mistral's own files lie beside those of transformers.
        let mut own: Vec<&HubFile> =
            all.iter().copied().filter(|file| !file.path.starts_with("consolidated")).collect();
        if own.is_empty() {
            own = all;
        }
        let Some(first) = own.first() else { return Ok(None) };
        if let Some(index) = root().find(|file| format.is_index(&file.path)) {
            return Ok(Some((vec![], Some(index))));
        }
        if own.len() == 1 {
            return Ok(Some((own, None)));
        }
        match Split::of(&first.path) {
            Some(split)
                if own
                    .iter()
                    .all(|file| Split::of(&file.path).is_some_and(|other| other.is_beside(&split))) =>
            {
                Ok(Some((self.parts(&split, first)?.0, None)))
            }
            _ => {
                let models: Vec<Model<'_>> = own.into_iter().map(|file| Model(vec![file])).collect();
                Err(self.choose(None, models.len(), &models.iter().collect::<Vec<_>>()))
            }
        }
    }

    /// The weights of modules of sentence-transformers, which have folders like `2_Dense`.
    fn modules(&self) -> Vec<&'a HubFile> {
        let of = |name: &'static str| {
            self.files.iter().filter(move |file| {
                file.path.split_once('/').is_some_and(|(folder, file)| is_module(folder) && file == name)
            })
        };
        let folder = |file: &HubFile| file.path.split_once('/').map(|(folder, _)| folder.to_owned());
        let safe: Vec<&HubFile> = of(SAFETENSORS.single).collect();
        let torch = of(PYTORCH.single).filter(|file| safe.iter().all(|safe| folder(safe) != folder(file)));
        safe.iter().copied().chain(torch).collect()
    }

    /// The GGUF models.
    fn models(&self) -> Result<Vec<Model<'a>>, Error> {
        let mut models = vec![];
        for file in self.files.iter().filter(|file| is_model(&file.path)) {
            match Split::of(&file.path) {
                None => models.push(Model(vec![file])),
                Some(split) if split.part == 1 => models.push(self.parts(&split, file)?),
                Some(_) => {}
            }
        }
        Ok(models)
    }

    /// All parts of a split model, in order.
    fn parts(&self, split: &Split<'_>, file: &HubFile) -> Result<Model<'a>, Error> {
        let mut parts: Vec<(usize, &HubFile)> = self
            .files
            .iter()
            .filter_map(|file| Split::of(&file.path).filter(|s| s.is_beside(split)).map(|s| (s.part, file)))
            .collect();
        parts.sort_unstable_by_key(|(part, _)| *part);
        parts.dedup_by_key(|(part, _)| *part);
        if parts.len() != split.of {
            return Err(Error::Parts {
                repo: self.repo().to_owned(),
                file: file.path.clone(),
                there: parts.len(),
                of: split.of,
            });
        }
        Ok(Model(parts.into_iter().map(|(_, file)| file).collect()))
    }

    /// The error that lists what can be chosen.
    fn choose(&self, wanted: Option<&str>, matches: usize, models: &[&Model<'_>]) -> Error {
        let tags: Vec<Option<&str>> =
            models.iter().map(|model| model.0.first().and_then(|f| tag(&f.path))).collect();
        let is_plain = |wanted: &str| {
            let matching = models.iter().filter(|m| m.0.first().is_some_and(|f| has_tag(&f.path, wanted)));
            matching.count() == 1
        };
        let offer = |(model, tag): (&&Model<'_>, Option<&str>)| {
            let path = model.0.first().map_or("", |file| &file.path);
            let part = tag.filter(|tag| is_plain(tag)).unwrap_or(path);
            let bytes = model.0.iter().try_fold(0u64, |sum, file| Some(sum.saturating_add(file.size?)));
            Offer { name: self.name.with_part(part).to_string(), bytes }
        };
        let mut offers: Vec<Offer> = models.iter().zip(tags).map(offer).collect();
        offers.sort_by(|a, b| (a.bytes, &a.name).cmp(&(b.bytes, &b.name)));
        Error::Choose { repo: self.repo().to_owned(), wanted: wanted.map(str::to_owned), matches, offers }
    }
}

/// One model in files of its own.
fn one(files: Vec<&HubFile>) -> Choice {
    let entry = files.first().map(|file| file.path.clone());
    let mut choice = Choice { files: vec![], index: None, entry };
    for file in files {
        choice.add(file.clone());
    }
    choice
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[&str]) -> Vec<HubFile> {
        let size = |path: &str| if is_model(path) || path.contains("safetensors") { 1 << 30 } else { 1000 };
        let file = |path: &&str| HubFile {
            path: (*path).to_owned(),
            size: Some(size(path)),
            sha256: None,
            blob: None,
        };
        paths.iter().map(file).collect()
    }

    fn chosen(name: &str, paths: &[&str]) -> Result<Choice, Error> {
        choose(&HubName::parse(name)?, &files(paths))
    }

    /// The paths that are chosen, in a line; or the error.
    fn paths(name: &str, all: &[&str]) -> String {
        match chosen(name, all) {
            Ok(choice) => {
                let paths: Vec<&str> = choice.files.iter().map(|file| file.path.as_str()).collect();
                let entry = choice.entry.map_or(String::new(), |entry| format!("; opens {entry}"));
                paths.join(" ") + &entry
            }
            Err(error) => error.diagnostics().to_string(),
        }
    }

    const LLAMA: &[&str] = &[
        ".gitattributes",
        "LICENSE",
        "README.md",
        "USE_POLICY.md",
        "additional_chat_templates/tool_use.jinja",
        "chat_template.jinja",
        "checkpoint-500/trainer_state.json",
        "config.json",
        "consolidated.safetensors",
        "flax_model.msgpack",
        "generation_config.json",
        "gguf/config.json",
        "merges.txt",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.onnx",
        "model.safetensors.index.json",
        "onnx/config.json",
        "original/consolidated.00.pth",
        "original/params.json",
        "original/tokenizer.model",
        "preprocessor_config.json",
        "pytorch_model-00001-of-00002.bin",
        "pytorch_model-00002-of-00002.bin",
        "pytorch_model.bin.index.json",
        "special_tokens_map.json",
        "tekken.json",
        "tf_model.h5",
        "tokenizer.json",
        "tokenizer.model",
        "tokenizer_config.json",
        "vocab.json",
    ];

    #[test]
    fn weights_of_an_index_and_what_describes_them() {
        assert_eq!(
            paths("hf:o/n", LLAMA),
            "additional_chat_templates/tool_use.jinja chat_template.jinja config.json generation_config.json merges.txt \
             model.safetensors.index.json preprocessor_config.json special_tokens_map.json tekken.json tokenizer.json \
             tokenizer.model tokenizer_config.json vocab.json"
        );
        let (name, all) = (HubName::parse("hf:o/n").expect("a name"), files(LLAMA));
        let index = br#"{"metadata": {}, "weight_map": {"a": "model-00001-of-00002.safetensors",
            "b": "model-00002-of-00002.safetensors", "c": "model-00001-of-00002.safetensors"}}"#;
        let choice = choose(&name, &all).expect("a choice");
        assert_eq!(choice.index.as_deref(), Some("model.safetensors.index.json"));
        let count = choice.files.len();
        let whole = choice.clone().with_shards(&name, index, &all).expect("shards");
        assert_eq!((whole.files.len(), whole.index, whole.entry), (count + 2, None, None));
        for (index, says) in [
            (&br#"{"weight_map": {"a": "none.safetensors"}}"#[..], "has no file `none.safetensors`"),
            (br#"{"weight_map": {"a": "../x"}}"#, "has no file `../x`"),
            (br"[]", "wanted an index of weights"),
            (b"", "wanted an index of weights"),
        ] {
            let error = choice.clone().with_shards(&name, index, &all).expect_err("no shards").to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn one_file_of_weights() {
        let all = [
            "config.json",
            "model.safetensors",
            "model.fp16.safetensors",
            "pytorch_model.bin",
            "tokenizer.json",
        ];
        assert_eq!(paths("hf:o/n", &all), "config.json model.safetensors tokenizer.json");
        assert_eq!(
            paths("hf:o/n", &["config.json", "weights.safetensors"]),
            "config.json weights.safetensors"
        );
        assert_eq!(
            paths("hf:o/n", &["consolidated.safetensors", "params.json", "tekken.json"]),
            "consolidated.safetensors params.json tekken.json"
        );
        assert_eq!(
            paths("hf:o/n", &["consolidated.safetensors", "model.safetensors", "params.json"]),
            "model.safetensors params.json"
        );
    }

    #[test]
    fn parts_without_an_index() {
        let all = ["a-00001-of-00002.safetensors", "a-00002-of-00002.safetensors", "config.json"];
        assert_eq!(
            paths("hf:o/n", &all),
            "a-00001-of-00002.safetensors a-00002-of-00002.safetensors config.json"
        );
        assert!(
            paths("hf:o/n", &["a-00001-of-00003.safetensors", "a-00002-of-00003.safetensors"])
                .starts_with("`o/n` has 2 of the 3 parts of `a-00001-of-00003.safetensors`")
        );
        assert!(
            paths("hf:o/n", &["a.safetensors", "b.safetensors"])
                .starts_with("`o/n` has 2 models: choose one\n"),
            "{}",
            paths("hf:o/n", &["a.safetensors", "b.safetensors"])
        );
    }

    #[test]
    fn modules_of_sentence_transformers() {
        let all = [
            "1_Pooling/config.json",
            "2_Dense/config.json",
            "2_Dense/model.safetensors",
            "2_Dense/pytorch_model.bin",
            "3_Dense/pytorch_model.bin",
            "config.json",
            "config_sentence_transformers.json",
            "model.safetensors",
            "modules.json",
            "onnx/model.onnx",
            "openvino/openvino_model.bin",
            "sentence_bert_config.json",
            "train_script.py",
            "vocab.txt",
        ];
        assert_eq!(
            paths("hf:o/n", &all),
            "1_Pooling/config.json 2_Dense/config.json 2_Dense/model.safetensors 3_Dense/pytorch_model.bin config.json \
             config_sentence_transformers.json model.safetensors modules.json sentence_bert_config.json vocab.txt"
        );
    }

    #[test]
    fn pytorch_weights_alone() {
        let all =
            ["config.json", "pytorch_model.bin", "training_args.bin", "tf_model.h5", "vocab.txt", "m.onnx"];
        assert_eq!(paths("hf:o/n", &all), "config.json pytorch_model.bin vocab.txt");
        assert_eq!(paths("hf:o/n", &["config.json", "model.pt", "optimizer.pt"]), "config.json model.pt");
        assert_eq!(
            paths("hf:o/n", &["config.json", "tf_model.h5"]),
            "`o/n` has no weights in safetensors, GGUF or PyTorch files among its 2 files\n\
             hint: add the name of a file to pull that file"
        );
    }

    const GGUF: &[&str] = &[
        "README.md",
        "config.json",
        "imatrix.gguf",
        "mmproj-F16.gguf",
        "m-F16-00001-of-00002.gguf",
        "m-F16-00002-of-00002.gguf",
        "m-Q4_K_M.gguf",
        "m-Q4_K_S.gguf",
        "sub/m-UD-Q4_K_XL.gguf",
    ];

    #[test]
    fn gguf_by_file_or_quantisation() {
        assert_eq!(paths("hf:o/n/Q4_K_M", GGUF), "m-Q4_K_M.gguf; opens m-Q4_K_M.gguf");
        assert_eq!(paths("hf:o/n/q4_k_m", GGUF), "m-Q4_K_M.gguf; opens m-Q4_K_M.gguf");
        let both = "m-F16-00001-of-00002.gguf m-F16-00002-of-00002.gguf; opens m-F16-00001-of-00002.gguf";
        assert_eq!(paths("hf:o/n/F16", GGUF), both);
        assert_eq!(paths("hf:o/n/m-F16-00002-of-00002.gguf", GGUF), both);
        assert_eq!(
            paths("hf:o/n/sub/m-UD-Q4_K_XL.gguf", GGUF),
            "sub/m-UD-Q4_K_XL.gguf; opens sub/m-UD-Q4_K_XL.gguf"
        );
        assert_eq!(paths("hf:o/n/Q4_K_XL", GGUF), "sub/m-UD-Q4_K_XL.gguf; opens sub/m-UD-Q4_K_XL.gguf");
        assert_eq!(paths("hf:o/n/mmproj-F16.gguf", GGUF), "mmproj-F16.gguf; opens mmproj-F16.gguf");
        assert_eq!(paths("hf:o/n", &["README.md", "m.gguf", "mmproj.gguf"]), "m.gguf; opens m.gguf");
    }

    #[test]
    fn several_gguf_models_are_listed() {
        assert_eq!(
            paths("hf:o/n", GGUF),
            "`o/n` has 4 models: choose one
  1.0 GiB  hf:o/n/Q4_K_M
  1.0 GiB  hf:o/n/Q4_K_S
  1.0 GiB  hf:o/n/UD-Q4_K_XL
  2.0 GiB  hf:o/n/F16
hint: use one of these names"
        );
        let none = paths("hf:o/n@v1/Q4_K", GGUF);
        assert!(none.starts_with("`o/n` has no model in `Q4_K`\n  1.0 GiB  hf:o/n@v1/Q4_K_M\n"), "{none}");
        let two = paths("hf:o/n/Q4_0", &["a-Q4_0.gguf", "b-Q4_0.gguf", "b-Q8_0.gguf"]);
        assert_eq!(
            two,
            "`o/n` has 2 models in `Q4_0`: choose one\n  1.0 GiB  hf:o/n/a-Q4_0.gguf\n  1.0 GiB  hf:o/n/b-Q4_0.gguf\n\
             hint: use one of these names"
        );
        assert!(
            paths("hf:o/n/F16", &["m-F16-00001-of-00002.gguf"]).starts_with("`o/n` has 1 of the 2 parts")
        );
    }

    #[test]
    fn a_file_that_is_not_there_has_a_near_name() {
        assert_eq!(
            paths("hf:o/n/m-Q4_K_N.gguf", GGUF),
            "`o/n` has no file `m-Q4_K_N.gguf`\nhint: did you mean `m-Q4_K_M.gguf`?"
        );
        assert_eq!(paths("hf:o/n/Q4_K_M", &["model.safetensors"]), "`o/n` has no file `Q4_K_M`");
    }

    /// A server may say anything.
    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        for path in [
            "x/../../x.json",
            "/etc/x.json",
            "a/../../x.json",
            "a\\..\\x.json",
            "a//x.json",
            "x\0.json",
            "\n.json",
        ] {
            let said = paths("hf:o/n", &["model.safetensors", path]);
            assert!(said.contains("wanted the path of a file within the repository"), "{path:?}: {said}");
        }
        let long = format!("{}.json", "a".repeat(256));
        assert!(paths("hf:o/n", &["model.safetensors", &long]).contains("leads elsewhere"));
    }
}
