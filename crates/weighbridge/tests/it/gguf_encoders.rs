//! Encoders as GGUF: files that llama.cpp's converter made are read, and ours are what it makes (golden/embed/to_gguf.py).

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde_json::Value;
use weighbridge::convert::{Conversion, ConvertOptions, ConvertReport, OutputFormat};
use weighbridge::embedder::EmbedOptions;
use weighbridge::engine::text::{TextPair, Tokenizer, VocabularyBuf};
use weighbridge::runtime::BackendKind;
use weighbridge::{Embedder, LayoutKind, Metadata, Pool, Reranker, RuntimeOptions, open};

use crate::perturbed::Family;

/// The models, each with the file of its tokenizer where that is not beside it.
const MODELS: [(&str, Option<&str>); 6] = [
    ("bert", None),
    ("distilbert", None),
    ("nomic_bert", None),
    ("roberta", Some("roberta")),
    ("xlm_roberta", Some("xlm_roberta")),
    ("modernbert", Some("roberta")),
];

/// Vectors and scores of 16 elements at most, each looked up in tables of f16 by llama.cpp.
const NEAR: f64 = 1e-6;

fn golden() -> Value {
    serde_json::from_slice(&std::fs::read(testkit::golden("embed/gguf.json")).unwrap()).unwrap()
}

fn texts(golden: &Value) -> Vec<&str> {
    golden["texts"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

fn of_llama_cpp(name: &str) -> PathBuf {
    testkit::golden("embed/gguf").join(name).with_extension("gguf")
}

/// The directory of a model, with its tokenizer, below `scratch`.
fn directory(name: &str, tokenizer: Option<&str>, scratch: &Path) -> PathBuf {
    let (from, to) = (testkit::golden("embed/gguf").join(name), scratch.join(name));
    std::fs::create_dir_all(to.join("1_Pooling")).unwrap();
    for file in
        ["config.json", "model.safetensors", "modules.json", "1_Pooling/config.json", "tokenizer_config.json"]
    {
        std::fs::copy(from.join(file), to.join(file)).unwrap();
    }
    let own = tokenizer.map_or(from.join("tokenizer.json"), json_of);
    std::fs::copy(own, to.join("tokenizer.json")).unwrap();
    to
}

fn json_of(kind: &str) -> PathBuf {
    testkit::golden("embed/tokenizers").join(kind).with_extension("json")
}

fn convert(from: &Path, to: &Path, format: OutputFormat, losses: &[&str]) -> Result<ConvertReport, String> {
    let allow_loss = losses.iter().map(|loss| (*loss).to_owned()).collect();
    let options = ConvertOptions { allow_loss, ..ConvertOptions::default() };
    let source = open(from).unwrap();
    let conversion =
        Conversion::new(&source, LayoutKind::Source, format, &options).map_err(|e| e.to_string())?;
    conversion.run(to, &mut Pool::new(2), &mut |_| ControlFlow::Continue(())).map_err(|e| e.to_string())
}

/// The masks of RoBERTa and its like take in spaces before them, and GGUF does not say it.
fn losses(tokenizer: Option<&str>) -> &'static [&'static str] {
    if tokenizer.is_some() { &["tokenizer.added_tokens.lstrip"] } else { &[] }
}

fn embedder(path: &Path, backend: BackendKind) -> Embedder {
    let options = RuntimeOptions { backend, threads: Some(2), ..RuntimeOptions::default() };
    Embedder::open(path, &options).unwrap()
}

/// The largest 1 - cosine of the angle between the vectors of `texts` and those wanted.
fn farthest(embedder: &mut Embedder, texts: &[&str], wanted: &Value) -> f64 {
    let vectors = embedder.embed(texts, &EmbedOptions::default()).unwrap();
    let distance = |(n, wanted): (usize, &Value)| {
        let wanted: Vec<f64> = serde_json::from_value(wanted.clone()).unwrap();
        let found: Vec<f64> = vectors.row(n).iter().map(|x| f64::from(*x)).collect();
        let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        1.0 - product(&found, &wanted) / (product(&found, &found) * product(&wanted, &wanted)).sqrt()
    };
    wanted.as_array().unwrap().iter().enumerate().map(distance).fold(0.0, f64::max)
}

#[test]
fn files_of_llama_cpp_have_its_tokens_and_vectors() {
    let golden = golden();
    let texts = texts(&golden);
    for (name, _) in MODELS {
        let known = &golden["models"][name];
        let ids: Vec<Vec<u32>> = serde_json::from_value(known["ids"].clone()).unwrap();
        for backend in [BackendKind::Reference, BackendKind::Cpu] {
            let mut embedder = embedder(&of_llama_cpp(name), backend);
            for (text, ids) in texts.iter().zip(&ids) {
                let found = embedder.tokenizer().unwrap().encode_within(text, 100).unwrap();
                assert_eq!(found, (ids.clone(), 0), "{name}: {text:?}");
            }
            for by in ["llama_cpp", "sentence_transformers"] {
                let far = farthest(&mut embedder, &texts, &known[by]);
                assert!(far <= NEAR, "{name}, {backend:?}: {far:e} from {by}");
            }
        }
    }
}

fn pairs(path: &Path) -> BTreeMap<String, String> {
    let checkpoint = open(path).unwrap();
    let Metadata::Gguf(gguf) = checkpoint.metadata() else { panic!("gguf") };
    let shown = |value: weighbridge::checkpoint::Value<'_>| match value {
        weighbridge::checkpoint::Value::Array(array) => format!("{:?}", array.values().collect::<Vec<_>>()),
        value => format!("{value:?}"),
    };
    gguf.iter().map(|(key, value)| (key.to_owned(), shown(value))).collect()
}

/// Every tensor: scheme, shape and bytes.
fn stored(path: &Path) -> BTreeMap<String, (String, Vec<u64>, Vec<u8>)> {
    let checkpoint = open(path).unwrap();
    let entries = checkpoint.entries().iter().map(|e| {
        let plane = &e.planes[0];
        let mut bytes = vec![0; usize::try_from(plane.bytes.end - plane.bytes.start).unwrap()];
        checkpoint.file(plane.file).source.read_at(plane.bytes.start, &mut bytes).unwrap();
        (e.name.clone(), (e.scheme.name.to_string(), e.shape.to_vec(), bytes))
    });
    entries.collect()
}

/// Every tensor to the byte, and every key but those that llama.cpp does not read here.
#[test]
fn a_directory_becomes_the_file_that_llama_cpp_makes_of_it() {
    let scratch = tempfile::tempdir().unwrap();
    for (name, tokenizer) in MODELS {
        let to = scratch.path().join(name).with_extension("gguf");
        convert(&directory(name, tokenizer, scratch.path()), &to, OutputFormat::Gguf, losses(tokenizer))
            .unwrap();
        assert_eq!(stored(&to), stored(&of_llama_cpp(name)), "{name}");
        let (ours, theirs) = (pairs(&to), pairs(&of_llama_cpp(name)));
        let arch = name.replace('_', "-").replace("modernbert", "modern-bert");
        let unread = |key: &str| {
            // Names of ways to cut text of which llama.cpp has one here.
            let known = ["general.name", "general.size_label", "tokenizer.ggml.pre"].contains(&key);
            let of_arch = |rest: &str| key == format!("{arch}.{rest}");
            known
                || ["rope.scaling.type", "attention.layer_norm_rms_epsilon", "classifier.pooling_type"]
                    .into_iter()
                    .any(of_arch)
        };
        for (key, value) in theirs.iter().filter(|(key, _)| !unread(key)) {
            assert_eq!(ours.get(key), Some(value), "{name}: {key}");
        }
    }
}

/// A directory that is made of llama.cpp's file gives the same vectors of tokens, and tokens.
#[test]
fn files_of_llama_cpp_become_directories() {
    let scratch = tempfile::tempdir().unwrap();
    let golden = golden();
    for (name, _) in MODELS {
        let (gguf, to) = (of_llama_cpp(name), scratch.path().join(name));
        convert(&gguf, &to, OutputFormat::Hf, &[]).unwrap_or_else(|e| panic!("{name}: {e}"));
        let [mut of_gguf, mut of_hf] = [&gguf, &to].map(|path| embedder(path, BackendKind::Reference));
        for text in texts(&golden) {
            let tokens = of_gguf.tokenizer().unwrap().encode_within(text, 100).unwrap();
            assert_eq!(
                of_hf.tokenizer().unwrap().encode_within(text, 100).unwrap(),
                tokens,
                "{name}: {text:?}"
            );
            let [wanted, found] = [&mut of_gguf, &mut of_hf].map(|e| e.token_vectors(&tokens.0).unwrap());
            assert!(wanted == found, "{name}: {text:?}");
        }
    }
}

/// Tokens of the 2,000 odd strings of golden/embed by a vocabulary of GGUF, and by the `tokenizer.json` that it becomes.
#[test]
fn tokenizers_go_to_gguf_and_back() {
    let known: Value =
        serde_json::from_slice(&std::fs::read(testkit::golden("embed/minilm.json")).unwrap()).unwrap();
    let strings = known["strings"].as_array().unwrap();
    let text = |string: &Value| string["text"].as_str().unwrap().to_owned();
    let of_file = |path: &Path| {
        let words = std::fs::read(path).unwrap();
        let mut words = words.as_chunks::<2>().0.iter().map(|word| u32::from(u16::from_le_bytes(*word)));
        let mut next = || {
            let count = words.next().unwrap() as usize;
            words.by_ref().take(count).collect::<Vec<u32>>()
        };
        strings.iter().map(|_| next()).collect::<Vec<_>>()
    };
    let minilm = strings.iter().map(|s| serde_json::from_value(s["ids"].clone()).unwrap()).collect();
    let kinds = [
        ("bert", testkit::model("minilm").join("tokenizer.json"), minilm),
        ("t5", json_of("xlm_roberta"), of_file(&json_of("xlm_roberta").with_extension("bin"))),
        ("gpt2", json_of("roberta"), of_file(&json_of("roberta").with_extension("bin"))),
    ];
    for (kind, path, wanted) in kinds {
        let wanted: Vec<Vec<u32>> = wanted;
        let (vocabulary, _) = VocabularyBuf::from_json(&std::fs::read(path).unwrap(), None).unwrap();
        assert_eq!(vocabulary.model, kind);
        let json = vocabulary.borrow().to_tokenizer_json().unwrap();
        let by_gguf = Tokenizer::from_vocabulary(&vocabulary.borrow()).unwrap();
        let again = Tokenizer::from_json(&json, None).unwrap();
        for (by, tokenizer) in [("GGUF", &by_gguf), ("tokenizer.json", &again)] {
            let mut wrong = vec![];
            for (string, wanted) in strings.iter().map(text).zip(&wanted) {
                let (found, _) = tokenizer.encode_within(&string, 100_000).unwrap();
                // Masks take in spaces before them, which GGUF does not say.
                if found != *wanted && !string.contains("<mask>") {
                    wrong.push(format!("{string:?}: {found:?}, wanted {wanted:?}"));
                }
            }
            let first = wrong[..wrong.len().min(5)].join("\n");
            assert!(wrong.is_empty(), "{kind} by {by}: {} of {}:\n{first}", wrong.len(), strings.len());
        }
        let pair = |tokenizer: &Tokenizer| tokenizer.encode_pair_within("a cat", "dogs", 100).ok();
        assert!(kind == "gpt2" || pair(&by_gguf) == pair(&again), "{kind}");
    }
}

/// What llama.cpp has no way for is refused by name.
#[test]
fn what_gguf_cannot_say_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let to = scratch.path().join("x.gguf");
    let error = |from: &Path| convert(from, &to, OutputFormat::Gguf, &[]).unwrap_err();
    let said = error(&testkit::golden("embed/rerank/mpnet"));
    assert!(said.contains("the family mpnet") && said.contains("has no files of that kind"), "{said}");
    let said = error(&testkit::golden("embed/tiny"));
    for why in [
        "`pooling_mode` is lost: llama.cpp pools by mean, cls or the last token alone, not by cls and mean and max",
        "`modules.json.Dense` is lost: llama.cpp leaves `2_Dense` out: every vector differs",
    ] {
        assert!(said.contains(why), "{said}");
    }
    // It has biases everywhere.
    let dir = scratch.path().join("biased");
    std::fs::create_dir(&dir).unwrap();
    Family::read("modernbert").write(&dir, &Value::Null);
    let said = error(&dir);
    for key in ["norm_bias", "attention_bias", "mlp_bias"] {
        let why = format!("`{key}` is lost: llama.cpp has no such biases here, and refuses the file");
        assert!(said.contains(&why), "{said}");
    }
}

/// The small rerankers of golden/embed/rerank as GGUF, and as directories that are made of that.
#[test]
fn rerankers_go_to_gguf_and_back() {
    let scratch = tempfile::tempdir().unwrap();
    let golden: Value =
        serde_json::from_slice(&std::fs::read(testkit::golden("embed/rerank.json")).unwrap()).unwrap();
    let lstrip = "tokenizer.added_tokens.lstrip";
    for (name, losses) in [
        ("bert", &["type_vocab_size"][..]),
        ("distilbert", &["pre_classifier", lstrip]),
        ("xlm_roberta", &[lstrip]),
        ("modernbert", &[lstrip]),
    ] {
        let (from, gguf) =
            (testkit::golden("embed/rerank").join(name), scratch.path().join(name).with_extension("gguf"));
        let said = convert(&from, &gguf, OutputFormat::Gguf, &[]).unwrap_err();
        assert!(losses.iter().all(|loss| said.contains(&format!("`{loss}` is lost"))), "{said}");
        convert(&from, &gguf, OutputFormat::Gguf, losses).unwrap_or_else(|e| panic!("{name}: {e}"));
        let back = scratch.path().join(name);
        convert(&gguf, &back, OutputFormat::Hf, &[]).unwrap_or_else(|e| panic!("{name}: {e}"));
        // llama.cpp has tanh where DistilBERT has relu.
        if name == "distilbert" {
            continue;
        }
        let wanted: Vec<f32> = serde_json::from_value(golden["models"][name]["query"].clone()).unwrap();
        let texts = texts(&golden);
        for path in [&gguf, &back] {
            let options = RuntimeOptions { threads: Some(2), context: Some(48), ..RuntimeOptions::default() };
            let mut reranker = Reranker::open(path, &options).unwrap();
            let query = golden["query"].as_str().unwrap();
            let pair = |text: &&str| {
                let pair = reranker.tokenizer().encode_pair_within(query, text, 48).unwrap();
                // The template of this BERT has all tokens of the first type, which GGUF does not say.
                TextPair { first: pair.tokens.len(), ..pair }
            };
            let pairs: Vec<TextPair> = texts.iter().map(pair).collect();
            let ranking = reranker.rank_encoded(&pairs.iter().collect::<Vec<_>>()).unwrap();
            for (found, wanted) in ranking.scores().iter().zip(&wanted) {
                assert!((found - wanted).abs() < 1e-5, "{name}, {}: {found}, not {wanted}", path.display());
            }
        }
    }
}
