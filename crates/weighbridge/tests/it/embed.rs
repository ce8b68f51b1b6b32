//! Vectors of texts against those of sentence-transformers, and tokens against those of tokenizers (golden/embed).

use std::path::PathBuf;

use insta::assert_snapshot;
use serde_json::{Value, json};
use weighbridge::embedder::{EmbedOptions, Prompt, Similarity};
use weighbridge::planner::Encoding;
use weighbridge::runtime::BackendKind;
use weighbridge::{Embedder, RuntimeOptions};

fn minilm() -> PathBuf {
    testkit::model("minilm")
}

fn golden() -> Value {
    serde_json::from_slice(&std::fs::read(testkit::golden("embed/minilm.json")).unwrap()).unwrap()
}

fn sentences(golden: &Value) -> Vec<&str> {
    golden["sentences"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

/// The largest distance between vectors of `options` and those of sentence-transformers, by the cosine of their angle.
fn farthest(options: &RuntimeOptions, texts: &[&str]) -> f64 {
    let mut embedder = Embedder::open(minilm(), options).unwrap();
    assert_eq!((embedder.width(), embedder.longest()), (384, 256));
    let vectors = embedder.embed(texts, &EmbedOptions::default()).unwrap();
    let bytes = std::fs::read(testkit::golden("embed/minilm.bin")).unwrap();
    let wanted: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    let distance = |(n, wanted): (usize, &[f32])| {
        let product = |a: &[f32], b: &[f32]| -> f64 {
            a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
        };
        let found = vectors.row(n);
        1.0 - product(found, wanted) / (product(found, found) * product(wanted, wanted)).sqrt()
    };
    wanted.chunks_exact(384).take(texts.len()).enumerate().map(distance).fold(0.0, f64::max)
}

fn cpu(encoding: &[&str]) -> RuntimeOptions {
    let rules = encoding.iter().map(|rule| rule.parse().unwrap()).collect();
    let encoding = Encoding { rules, ..Encoding::default() };
    RuntimeOptions { threads: Some(2), encoding, ..RuntimeOptions::default() }
}

#[test]
fn minilm_has_the_vectors_of_sentence_transformers() {
    let golden = golden();
    let texts = sentences(&golden);
    assert_eq!(texts.len(), 200);
    let far = farthest(&cpu(&[]), &texts);
    assert!(far <= 1e-6, "f32: {far:e}");
}

#[test]
fn decoders_have_the_vectors_of_transformers() {
    let golden: Value =
        serde_json::from_slice(&std::fs::read(testkit::golden("embed/decoders.json")).unwrap()).unwrap();
    let tokens: Vec<u32> = serde_json::from_value(golden["tokens"].clone()).unwrap();
    let vectors = golden["vectors"].as_object().unwrap();
    assert_eq!(vectors.len(), 5);
    for (name, vectors) in vectors {
        let wanted: [Vec<f32>; 2] = serde_json::from_value(vectors.clone()).unwrap();
        for backend in [BackendKind::Reference, BackendKind::Cpu] {
            let options = RuntimeOptions { backend, context: Some(24), ..cpu(&[]) };
            let mut embedder = Embedder::open(testkit::golden("models").join(name), &options).unwrap();
            let found = embedder.token_vectors(&tokens).unwrap();
            let width = embedder.width();
            let found = [&found[..width], &found[(tokens.len() - 1) * width..]];
            for (found, wanted) in found.iter().zip(&wanted) {
                let largest = wanted.iter().fold(0f32, |most, x| most.max(x.abs()));
                for (found, wanted) in found.iter().zip(wanted) {
                    assert!(
                        (found - wanted).abs() <= 1e-4 * largest,
                        "{name}, {backend:?}: {found}, {wanted}"
                    );
                }
            }
        }
    }
}

#[test]
fn in_q8_0_vectors_are_near() {
    let golden = golden();
    let far = farthest(&cpu(&["*=q8_0"]), &sentences(&golden));
    assert!(far <= 1e-3, "q8_0: {far:e}");
}

#[test]
fn the_oracle_has_the_same_vectors() {
    let golden = golden();
    let reference = RuntimeOptions { backend: BackendKind::Reference, ..RuntimeOptions::default() };
    let far = farthest(&reference, &sentences(&golden)[..3]);
    assert!(far <= 1e-6, "reference: {far:e}");
}

/// Which texts run together changes no bit of a vector.
#[test]
fn a_vector_does_not_depend_on_the_texts_beside_it() {
    let golden = golden();
    let texts = &sentences(&golden)[..24];
    let mut embedder = Embedder::open(minilm(), &cpu(&[])).unwrap();
    let together = embedder.embed(texts, &EmbedOptions::default()).unwrap();
    for (n, text) in texts.iter().enumerate() {
        let alone = embedder.embed(&[text], &EmbedOptions::default()).unwrap();
        assert_eq!(alone.row(0), together.row(n), "{text}");
    }
}

#[test]
fn odd_strings_have_the_tokens_of_tokenizers() {
    let golden = golden();
    let embedder = Embedder::open(minilm(), &cpu(&[])).unwrap();
    let strings = golden["strings"].as_array().unwrap();
    assert_eq!(strings.len(), 2000);
    let mut wrong = vec![];
    for string in strings {
        let text = string["text"].as_str().unwrap();
        let wanted: Vec<u32> = string["ids"]
            .as_array()
            .unwrap()
            .iter()
            .map(|id| u32::try_from(id.as_u64().unwrap()).unwrap())
            .collect();
        let (found, left_out) = embedder.tokenizer().unwrap().encode_within(text, 100_000).unwrap();
        if found != wanted || left_out > 0 {
            wrong.push(format!("{text:?}: {found:?}, wanted {wanted:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of 2000:\n{}", wrong.len(), wrong[..wrong.len().min(10)].join("\n"));
}

/// The tokenizer of a GGUF file of BERT gives the tokens of the file that it was made of.
#[test]
fn odd_strings_have_the_same_tokens_by_the_vocabulary_of_gguf() {
    use weighbridge::engine::text::{Tokenizer, Vocabulary};

    let words = std::fs::read_to_string(minilm().join("vocab.txt")).unwrap();
    // As conversion/bert.py of llama.cpp has them.
    let is_control = |word: &str| ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].contains(&word);
    let tokens: Vec<String> = words
        .lines()
        .map(|word| match word.strip_prefix("##") {
            _ if is_control(word) => word.to_owned(),
            Some(rest) => rest.to_owned(),
            None => format!("\u{2581}{word}"),
        })
        .collect();
    let vocabulary = Vocabulary {
        model: "bert",
        tokens: tokens.iter().map(String::as_bytes).collect(),
        types: Some(words.lines().map(|word| if is_control(word) { 3 } else { 1 }).collect()),
        bos: Some(101),
        sep: Some(102),
        unk: Some(100),
        ..Vocabulary::default()
    };
    let tokenizer = Tokenizer::from_vocabulary(&vocabulary).unwrap();
    let golden = golden();
    for string in golden["strings"].as_array().unwrap() {
        let text = string["text"].as_str().unwrap();
        let wanted: Vec<u32> = serde_json::from_value(string["ids"].clone()).unwrap();
        assert_eq!(tokenizer.encode_within(text, 100_000).unwrap(), (wanted, 0), "{text:?}");
    }
    let pair = tokenizer.encode_pair_within("a cat", "dogs", 100).unwrap();
    assert_eq!((pair.tokens, pair.first), (vec![101, 1037, 4937, 102, 6077, 102], 4));
}

/// The tokenizers of RoBERTa, XLM-R and MPNet: golden/embed/kinds.py.
#[test]
fn odd_strings_have_the_tokens_of_tokenizers_whatever_the_kind() {
    let golden = golden();
    let strings = golden["strings"].as_array().unwrap();
    for kind in ["roberta", "xlm_roberta", "mpnet"] {
        let path = testkit::golden("embed/tokenizers").join(kind);
        let json = std::fs::read(path.with_extension("json")).unwrap();
        let tokenizer = weighbridge::engine::text::Tokenizer::from_json(&json, None).unwrap();
        let words = std::fs::read(path.with_extension("bin")).unwrap();
        let mut words = words.as_chunks::<2>().0.iter().map(|word| u32::from(u16::from_le_bytes(*word)));
        let mut wrong = vec![];
        for string in strings {
            let text = string["text"].as_str().unwrap();
            let count = words.next().unwrap();
            let wanted: Vec<u32> = words.by_ref().take(count as usize).collect();
            let (found, left_out) = tokenizer.encode_within(text, 100_000).unwrap();
            if found != wanted || left_out > 0 {
                wrong.push(format!("{text:?}: {found:?}, wanted {wanted:?}"));
            }
        }
        assert!(words.next().is_none());
        let first = wrong[..wrong.len().min(10)].join("\n");
        assert!(wrong.is_empty(), "{kind}: {} of 2000:\n{first}", wrong.len());
    }
}

/// Three poolings that leave the prompt out, two dense layers, prompts of a name: golden/embed/tiny.py.
#[test]
fn every_module_of_a_directory_is_obeyed() {
    let golden: Value =
        serde_json::from_slice(&std::fs::read(testkit::golden("embed/tiny.json")).unwrap()).unwrap();
    let texts: Vec<&str> =
        golden["texts"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    let reference = RuntimeOptions { backend: BackendKind::Reference, ..RuntimeOptions::default() };
    for options in [reference, cpu(&[])] {
        let mut embedder = Embedder::open(testkit::golden("embed/tiny"), &options).unwrap();
        assert_eq!((embedder.width(), embedder.longest(), embedder.notes()), (16, 20, &[][..]));
        assert_eq!((embedder.similarity(), embedder.default_prompt()), (Similarity::Dot, Some("titled")));
        for (name, prompt) in [
            ("default", Prompt::Default),
            ("query", Prompt::Named("query".to_owned())),
            ("none", Prompt::Text(String::new())),
        ] {
            let found = embedder.embed(&texts, &EmbedOptions { prompt, normalize: None }).unwrap();
            for (n, wanted) in golden[name].as_array().unwrap().iter().enumerate() {
                let wanted = wanted.as_array().unwrap().iter().map(|x| x.as_f64().unwrap());
                let off = found.row(n).iter().zip(wanted).map(|(x, y)| (f64::from(*x) - y).abs());
                let off = off.fold(0.0, f64::max);
                assert!(off < 2e-5, "{name}, {:?}: off by {off:e}", texts[n]);
            }
            assert!(found.left_out(7) > 0 && found.tokens(7) == 20);
        }
        let unknown = EmbedOptions { prompt: Prompt::Named("x".to_owned()), normalize: None };
        let error = format!("{:?}", embedder.embed(&texts, &unknown).unwrap_err());
        let wanted = "the model has no prompt `x`\nhint: it has `document`, `query`, `titled`";
        assert_eq!(error, wanted);
    }
}

/// Every problem of every file is said at once.
#[test]
fn settings_that_cannot_be_followed_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, value: Value| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, value.to_string()).unwrap();
    };
    let module = |kind: &str, path: &str| json!({"type": kind, "path": path});
    write(
        "modules.json",
        json!([
            module("sentence_transformers.models.Transformer", ""),
            module("sentence_transformers.models.Pooling", "1_Pooling"),
            module("sentence_transformers.models.Dense", "2_Dense"),
            module("mine.Module", "3"),
            module("sentence_transformers.models.LSTM", "../4"),
        ]),
    );
    write("sentence_bert_config.json", json!({"max_seq_length": "long", "do_lower_case": 1}));
    write("1_Pooling/config.json", json!({"pooling_mode": ["mean", "best"], "include_prompt": true}));
    write("2_Dense/config.json", json!({"in_features": 8, "activation_function": "os.system"}));
    write(
        "config_sentence_transformers.json",
        json!({"default_prompt_name": "q", "similarity_fn_name": "maxsim"}),
    );
    let error = Embedder::open(dir.path(), &RuntimeOptions::default()).unwrap_err().to_string();
    assert_snapshot!(error.replace(&dir.path().display().to_string(), "DIR"), @r#"
    `DIR` cannot be followed
      `sentence_bert_config.json`, `max_seq_length`: wanted a count, found `"long"`
      `sentence_bert_config.json`, `do_lower_case`: wanted true or false, found `1`
      `1_Pooling/config.json`, `pooling_mode`: `"best"` is not supported, only cls, max, mean, mean_sqrt_len_tokens, weightedmean, lasttoken
      `2_Dense/config.json`, `out_features`: wanted a count, found none
      `2_Dense/config.json`, `activation_function`: `os.system` is not supported, only Identity, Tanh, Sigmoid, ReLU, GELU, SiLU of `torch`
      `modules.json`, `[3].type`: `mine.Module` is not supported, only Transformer, Pooling, Dense and Normalize of `sentence_transformers`
      `modules.json`, `[4].path`: wanted a folder of the model, found `"../4"`
      `config_sentence_transformers.json`, `default_prompt_name`: there is no prompt `q`, only `document`, `query`
      `config_sentence_transformers.json`, `similarity_fn_name`: `maxsim` is not supported, only cosine, dot, euclidean, manhattan
    "#);
}
