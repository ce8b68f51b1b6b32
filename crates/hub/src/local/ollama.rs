//! The store of Ollama: `manifests/HOST/NAMESPACE/MODEL/TAG` name blobs, `blobs/sha256-DIGEST` are their bytes.
//!
//! Source: ollama, `types/model/name.go` and `manifest/paths.go`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{LocalModel, Store, Weights, home};

/// Levels of folders below `manifests`.
const LEVELS: usize = 4;
/// The largest manifest that is read.
const MOST: u64 = 1 << 20;

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    layers: Vec<Layer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Layer {
    media_type: String,
    digest: String,
}

/// The models that Ollama has pulled: in `$OLLAMA_MODELS`, or in `.ollama/models` in the home folder. Only those with GGUF blobs.
pub fn ollama() -> Vec<LocalModel> {
    let set = env::var_os("OLLAMA_MODELS").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    set.or_else(|| home().map(|home| home.join(".ollama/models"))).map_or(vec![], |folder| models(&folder))
}

fn models(folder: &Path) -> Vec<LocalModel> {
    let mut models = vec![];
    walk(folder, &mut vec![], &mut models);
    models.sort_by(|a, b| a.name.cmp(&b.name));
    models
}

fn walk(folder: &Path, names: &mut Vec<String>, models: &mut Vec<LocalModel>) {
    let here = names.iter().fold(folder.join("manifests"), |path, name| path.join(name));
    for entry in fs::read_dir(here).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        names.push(name);
        if names.len() < LEVELS {
            if entry.path().is_dir() {
                walk(folder, names, models);
            }
        } else {
            models.extend(model(folder, names, &entry.path()));
        }
        names.pop();
    }
}

/// The model of a manifest, if its blob is a GGUF file.
fn model(folder: &Path, names: &[String], manifest: &Path) -> Option<LocalModel> {
    let about = fs::metadata(manifest).ok().filter(|about| about.is_file() && about.len() <= MOST);
    let text = about.and_then(|_| fs::read(manifest).ok())?;
    let manifest: Manifest = serde_json::from_slice(&text).ok()?;
    let layer =
        manifest.layers.iter().find(|layer| layer.media_type == "application/vnd.ollama.image.model")?;
    let digest = layer.digest.strip_prefix("sha256:").filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
    let path = folder.join("blobs").join(format!("sha256-{digest}"));
    let bytes = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?.len();
    let mut start = [0; 4];
    std::io::Read::read_exact(&mut fs::File::open(&path).ok()?, &mut start)
        .ok()
        .filter(|()| start == *b"GGUF")?;
    let [host, namespace, model, tag] = names else { return None };
    // As `ollama list` says it: what is usual is left out.
    let name = match (host.as_str(), namespace.as_str()) {
        ("registry.ollama.ai", "library") => format!("{model}:{tag}"),
        ("registry.ollama.ai", namespace) => format!("{namespace}/{model}:{tag}"),
        (host, namespace) => format!("{host}/{namespace}/{model}:{tag}"),
    };
    Some(LocalModel {
        store: Store::Ollama,
        name,
        commit: None,
        revisions: vec![],
        weights: Weights::Gguf,
        quant: None,
        bytes,
        path,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_lead_to_blobs() {
        let dir = tempfile::tempdir().expect("a folder");
        let manifest = |name: &str, digest: &str| {
            let path = dir.path().join("manifests").join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            let text = format!(
                r#"{{"schemaVersion": 2, "layers": [
                    {{"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:00", "size": 1}},
                    {{"mediaType": "application/vnd.ollama.image.model", "digest": "{digest}", "size": 9}}]}}"#
            );
            fs::write(path, text).expect("written");
        };
        fs::create_dir_all(dir.path().join("blobs")).expect("made");
        fs::write(dir.path().join("blobs/sha256-ab"), b"GGUF and more").expect("written");
        fs::write(dir.path().join("blobs/sha256-cd"), b"no model").expect("written");
        manifest("registry.ollama.ai/library/llama3/8b", "sha256:ab");
        manifest("registry.ollama.ai/someone/own/latest", "sha256:ab");
        manifest("hf.co/owner/name-GGUF/Q4_K_M", "sha256:ab");
        manifest("registry.ollama.ai/library/gone/1b", "sha256:ef");
        manifest("registry.ollama.ai/library/other/1b", "sha256:cd");
        manifest("registry.ollama.ai/library/evil/1b", "sha256:../../etc/passwd");
        fs::write(dir.path().join("manifests/registry.ollama.ai/library/llama3/broken"), "{")
            .expect("written");
        let found = models(dir.path());
        let names: Vec<&str> = found.iter().map(|model| model.name.as_str()).collect();
        assert_eq!(names, ["hf.co/owner/name-GGUF:Q4_K_M", "llama3:8b", "someone/own:latest"]);
        assert_eq!((&found[1].path, found[1].bytes), (&dir.path().join("blobs/sha256-ab"), 13));
    }
}
