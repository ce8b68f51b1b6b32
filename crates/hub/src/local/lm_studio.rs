//! The folders of LM Studio: `PUBLISHER/MODEL/` with GGUF files, or with the files of MLX.

use std::fs;
use std::path::Path;

use super::{LocalModel, Store, home, models_of};
use crate::cache::there;

/// The models of LM Studio: in `.lmstudio/models` and `.cache/lm-studio/models` in the home folder.
pub fn lm_studio() -> Vec<LocalModel> {
    let folders = [".lmstudio/models", ".cache/lm-studio/models"];
    home().into_iter().flat_map(|home| folders.map(|folder| models(&home.join(folder)))).flatten().collect()
}

fn models(folder: &Path) -> Vec<LocalModel> {
    let folders = |of: &Path| {
        let entries = fs::read_dir(of).into_iter().flatten().flatten();
        entries
            .filter(|entry| entry.path().is_dir())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect()
    };
    let mut models = vec![];
    let publishers: Vec<String> = folders(folder);
    for publisher in publishers {
        let of: Vec<String> = folders(&folder.join(&publisher));
        for model in of {
            let path = folder.join(&publisher).join(&model);
            models.extend(models_of(&path, &there(&path)).into_iter().map(|found| {
                LocalModel {
                    store: Store::LmStudio,
                    name: found
                        .part
                        .map_or(format!("{publisher}/{model}"), |part| format!("{publisher}/{model}/{part}")),
                    commit: None,
                    revisions: vec![],
                    weights: found.weights,
                    quant: found.quant,
                    bytes: found.bytes,
                    path: found.entry.map_or(path.clone(), |entry| path.join(entry)),
                }
            }));
        }
    }
    models.sort_by(|a, b| a.name.cmp(&b.name));
    models
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::Weights;

    #[test]
    fn models_of_two_kinds() {
        let dir = tempfile::tempdir().expect("a folder");
        for (name, size) in [
            ("owner/a-GGUF/a-Q4_K_M.gguf", 10),
            ("owner/a-GGUF/mmproj-a.gguf", 5),
            ("owner/b-GGUF/b-Q8_0-00001-of-00002.gguf", 3),
            ("owner/b-GGUF/b-Q8_0-00002-of-00002.gguf", 4),
            ("owner/c-GGUF/c-Q8_0-00001-of-00002.gguf", 3),
            ("mlx/c-4bit/model.safetensors", 20),
            ("mlx/c-4bit/config.json", 2),
            ("mlx/none/README.md", 2),
        ] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, vec![0; size]).expect("written");
        }
        let found = models(dir.path());
        let facts: Vec<_> =
            found.iter().map(|m| (m.name.as_str(), m.weights, m.quant.as_deref(), m.bytes)).collect();
        assert_eq!(
            facts,
            [
                ("mlx/c-4bit", Weights::Safetensors, None, 22),
                ("owner/a-GGUF/Q4_K_M", Weights::Gguf, Some("Q4_K_M"), 10),
                ("owner/b-GGUF/Q8_0", Weights::Gguf, Some("Q8_0"), 7),
            ]
        );
        assert!(found[2].path.ends_with("owner/b-GGUF/b-Q8_0-00001-of-00002.gguf"));
    }
}
