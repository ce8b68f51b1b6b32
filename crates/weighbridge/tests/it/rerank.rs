//! Scores of texts against those of the `CrossEncoder` of sentence-transformers (golden/embed/rerank.py).

use serde_json::Value;
use weighbridge::reranker::ScoreActivation;
use weighbridge::runtime::BackendKind;
use weighbridge::{Reranker, RuntimeOptions};

fn options(backend: BackendKind) -> RuntimeOptions {
    RuntimeOptions { backend, threads: Some(2), ..RuntimeOptions::default() }
}

/// Every family, the first token and the mean, a sigmoid and none, types of tokens, and texts that are cut.
#[test]
fn scores_are_those_of_sentence_transformers() {
    let golden: Value =
        serde_json::from_slice(&std::fs::read(testkit::golden("embed/rerank.json")).unwrap()).unwrap();
    let texts: Vec<&str> =
        golden["texts"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    let models = golden["models"].as_object().unwrap();
    assert_eq!(models.len(), 5);
    for (name, wanted) in models {
        for backend in [BackendKind::Reference, BackendKind::Cpu] {
            let path = testkit::golden("embed/rerank").join(name);
            let mut reranker = Reranker::open(path, &options(backend)).unwrap();
            assert_eq!((reranker.longest(), reranker.notes()), (48, &[][..]), "{name}");
            let is_identity = reranker.activation() == ScoreActivation::Identity;
            assert_eq!(is_identity, name == "mpnet", "{name}");
            for query in ["query", "long"] {
                let ranking = reranker.rank(golden[query].as_str().unwrap(), &texts).unwrap();
                let wanted: Vec<f32> = serde_json::from_value(wanted[query].clone()).unwrap();
                for ((found, wanted), text) in ranking.scores().iter().zip(&wanted).zip(&texts) {
                    assert!(
                        (found - wanted).abs() < 1e-5,
                        "{name}, {query}, {text:?}: {found}, not {wanted}"
                    );
                }
                assert!(ranking.left_out()[4] > 0, "{name}: {:?}", ranking.left_out());
                let order = ranking.order();
                assert!(order.is_sorted_by(|a, b| wanted[*a] >= wanted[*b]), "{name}: {order:?}");
            }
        }
    }
}

#[test]
fn a_model_that_gives_no_score_is_refused() {
    let error = Reranker::open(testkit::golden("embed/tiny"), &RuntimeOptions::default()).unwrap_err();
    let why = "`config.json`: the model scores no texts: its class is no `…ForSequenceClassification`";
    assert!(error.to_string().contains(why), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let from = testkit::golden("embed/rerank/bert");
    for name in ["model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(from.join(name), dir.path().join(name)).unwrap();
    }
    let mut config: Value =
        serde_json::from_slice(&std::fs::read(from.join("config.json")).unwrap()).unwrap();
    config["id2label"]["1"] = "LABEL_1".into();
    config["sentence_transformers"]["activation_fn"] = "mine.Function".into();
    std::fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    let error = Reranker::open(dir.path(), &RuntimeOptions::default()).unwrap_err().to_string();
    for why in ["the model gives 2 scores, and one is wanted", "\"mine.Function\" is not supported"] {
        assert!(error.contains(why), "{error}");
    }
}
