//! `serve`: vectors and scores.

use std::io::Read;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::serve::Server;
use crate::{stdout, weighbridge};

fn numbers(value: &Value) -> Vec<f32> {
    serde_json::from_value(value.clone()).unwrap()
}

/// The vectors that `embed` makes.
fn alone(path: &str, texts: &[&str]) -> Vec<Vec<f32>> {
    let lines = stdout(&weighbridge([&["embed", path], texts].concat()));
    lines.lines().map(|line| numbers(&serde_json::from_str::<Value>(line).unwrap()["vector"])).collect()
}

#[test]
fn vectors_are_those_of_embed_in_openais_shape() {
    let path = testkit::golden("embed/tiny");
    let server = Server::of(&path, &["--alias", "tiny"]);
    let texts = ["the cat", "a long text, reading the long text", "dogs"];
    let wanted = alone(path.to_str().unwrap(), &texts);
    let (status, answer) =
        server.post("/v1/embeddings", &json!({"input": texts, "model": "tiny", "user": "x"}));
    assert_eq!(
        (status, &answer["object"], &answer["model"]),
        (200, &json!("list"), &json!("tiny")),
        "{answer}"
    );
    for (i, wanted) in wanted.iter().enumerate() {
        let one = &answer["data"][i];
        assert_eq!((&one["object"], &one["index"]), (&json!("embedding"), &json!(i)));
        assert_eq!(numbers(&one["embedding"]), *wanted);
    }
    assert_eq!(answer["usage"]["prompt_tokens"], answer["usage"]["total_tokens"]);

    let body = json!({"input": texts[0], "encoding_format": "base64", "dimensions": wanted[0].len()});
    let (_, answer) = server.post("/v1/embeddings", &body);
    let text = answer["data"][0]["embedding"].as_str().unwrap();
    assert_eq!(text.len(), (wanted[0].len() * 4).div_ceil(3) * 4, "{answer}");
}

#[test]
fn tokens_are_taken_as_they_are() {
    let path = testkit::model("minilm");
    let path = path.to_str().unwrap();
    let server = Server::of(path.as_ref(), &[]);
    let tokens: Value =
        serde_json::from_str(&stdout(&weighbridge(["tokenize", path, "--json", "the cat"]))).unwrap();
    let ids: Vec<u64> =
        tokens["tokens"].as_array().unwrap().iter().map(|t| t["id"].as_u64().unwrap()).collect();
    let (_, answer) = server.post("/v1/embeddings", &json!({"input": [ids, ids]}));
    assert_eq!(numbers(&answer["data"][1]["embedding"]), alone(path, &["the cat"])[0], "{answer}");
    assert_eq!(answer["usage"]["prompt_tokens"], json!(ids.len() * 2));
}

#[test]
fn what_a_model_of_vectors_cannot_do_is_refused_by_name() {
    let server = Server::of(&testkit::golden("embed/tiny"), &["--body-limit", "1MiB"]);
    let long = "cat ".repeat(5000);
    for (body, status, wanted) in [
        (json!({"input": []}), 400, "`input`: wanted a string, a list of token ids below "),
        (json!({"input": [["a"]]}), 400, "`input`: wanted a string"),
        (json!({"input": [[]]}), 400, "`input`: wanted a string"),
        (json!({"input": [999_999]}), 400, "`input`: wanted a string"),
        (json!({}), 400, "`input`: wanted a string"),
        (
            json!({"input": "a", "dimensions": 3}),
            400,
            "`dimensions`: wanted 16, as the model has it, found 3",
        ),
        (
            json!({"input": "a", "encoding_format": "int8"}),
            400,
            "`encoding_format`: wanted `float` or `base64`",
        ),
        (json!({"input": "a", "inptu": "a"}), 400, "`inptu` is not supported here: did you mean `input`?"),
        (json!({"input": "a", "model": "other"}), 404, "the model `other` is not served here"),
        (json!({"input": "a", "prompt_name": "other"}), 400, "other"),
        (json!({"input": long}), 400, "hint: `\"truncate_prompt_tokens\": -1` cuts texts"),
        (json!({"input": "x".repeat(2 << 20)}), 413, "larger than"),
    ] {
        let (found, answer) = server.post("/v1/embeddings", &body);
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(found == status && message.contains(wanted), "{found} {message}");
    }
    assert_eq!(server.post("/v1/embeddings", &json!({"input": long, "truncate_prompt_tokens": -1})).0, 200);
    let (status, answer) = server.post("/v1/chat/completions", &json!({"messages": []}));
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(
        status == 404 && message.contains("the model is for vectors\nhint: a server with a model for text"),
        "{message}"
    );
    assert_eq!(server.ask("GET", "/", "", "").0, 404);
    // Those that others have in all servers.
    let (_, _, models) = server.ask("GET", "/v1/models", "", "");
    let models: Value = serde_json::from_str(&models).unwrap();
    assert_eq!(
        (&models["data"][0]["meta"]["task"], &models["data"][0]["meta"]["n_embd"]),
        (&json!("vectors"), &json!(16))
    );
    let (_, _, metrics) = server.ask("GET", "/metrics", "", "");
    assert!(
        metrics.contains("route=\"/v1/embeddings\",status=\"200\"")
            && metrics.contains("prompt_tokens_total"),
        "{metrics}"
    );
}

/// A request of many texts does not hold up one of one text.
#[test]
fn many_texts_hold_nobody_up() {
    let model = testkit::model("minilm");
    let server = Server::of(&model, &["--queue", "2"]);
    let texts: Vec<String> =
        (0..2048).map(|n| format!("{n} {}", "a long text about rivers ".repeat(20))).collect();
    let mut big = server.begin("/v1/embeddings", &json!({"input": texts}));
    thread::sleep(Duration::from_millis(500));
    let since = Instant::now();
    assert_eq!(server.post("/v1/embeddings", &json!({"input": "short"})).0, 200);
    let took = since.elapsed();
    assert!(took < Duration::from_secs(4), "{took:?}");
    // It still runs.
    big.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(big.read(&mut [0]).is_err());
    // More than may wait are turned away; who has left makes room.
    let others: Vec<_> = (0..2).map(|_| server.begin("/v1/embeddings", &json!({"input": texts}))).collect();
    thread::sleep(Duration::from_millis(1500));
    let (status, head, _) = server.ask("POST", "/v1/embeddings", "", &json!({"input": "short"}).to_string());
    assert!(status == 429 && head.contains("retry-after"), "{head}");
    drop((big, others));
    let since = Instant::now();
    while server.post("/v1/embeddings", &json!({"input": "short"})).0 != 200 {
        assert!(since.elapsed() < Duration::from_secs(10));
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn scores_are_those_of_rerank_in_the_shape_of_jina() {
    let golden: Value =
        serde_json::from_slice(&std::fs::read(testkit::golden("embed/rerank.json")).unwrap()).unwrap();
    let texts: Vec<&str> = golden["texts"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
    let scores: Vec<f32> = serde_json::from_value(golden["models"]["bert"]["query"].clone()).unwrap();
    let server = Server::of(&testkit::golden("embed/rerank/bert"), &[]);
    let query = "who wrote Emma?";
    for path in ["/v1/rerank", "/rerank"] {
        let (status, answer) =
            server.post(path, &json!({"query": query, "documents": texts, "truncate_prompt_tokens": -1}));
        assert_eq!(status, 200, "{answer}");
        let results = answer["results"].as_array().unwrap();
        assert_eq!(results.len(), texts.len());
        let mut before = f64::INFINITY;
        for result in results {
            let index = usize::try_from(result["index"].as_u64().unwrap()).unwrap();
            let score = result["relevance_score"].as_f64().unwrap();
            assert!(score <= before && (score - f64::from(scores[index])).abs() < 1e-4, "{result}");
            assert_eq!(result["document"]["text"], texts[index]);
            before = score;
        }
    }
    let objects: Vec<Value> = texts.iter().map(|text| json!({"text": text})).collect();
    let body = json!({"query": query, "documents": objects, "top_n": 2, "return_documents": false, "truncate_prompt_tokens": -1});
    let (_, answer) = server.post("/v1/rerank", &body);
    assert_eq!(answer["results"].as_array().unwrap().len(), 2);
    assert!(answer["results"][0].get("document").is_none(), "{answer}");
    for (body, wanted) in [
        (json!({"documents": ["a"]}), "`query`: wanted a string"),
        (json!({"query": "a", "documents": []}), "`documents`: wanted a list of 1 to 2048 strings"),
        (json!({"query": "a", "documents": [{"title": "x"}]}), "`documents`: wanted a list"),
        (json!({"query": "a", "documents": ["b"], "top_n": 0}), "`top_n`: wanted a whole number, 1 or more"),
        (
            json!({"query": "a", "documents": ["cat ".repeat(5000)]}),
            "`documents[0]`: the query and the text have",
        ),
    ] {
        let (status, answer) = server.post("/v1/rerank", &body);
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(status == 400 && message.contains(wanted), "{status} {message}");
    }
    assert_eq!(server.post("/v1/embeddings", &json!({"input": "a"})).0, 404);
}
