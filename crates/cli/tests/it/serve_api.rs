//! `serve`: what `/openapi.json` says.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use testkit::model;

use crate::serve::Server;

/// The description of a server: of each path that it has, and of what is read there.
fn described(server: &Server) -> Value {
    let (status, head, text) = server.ask("GET", "/openapi.json", "", "");
    assert!(status == 200 && head.contains("content-type: application/json"), "{head}");
    let api: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(api["openapi"], "3.1.1");
    for (path, operations) in api["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let path = path.replace("{name}", "other");
            // The route is there: it reads the body, or answers.
            let (status, _, body) = server.ask(&method.to_uppercase(), &path, "", "");
            assert!(
                status == 200
                    || status == 400
                    || status == 415
                    || path.ends_with("other")
                    // Behind a key.
                    || (status == 403 && path.starts_with("/models/")),
                "{path} {status}: {body}"
            );
            assert!(!body.contains("there is nothing here"), "{path}");
            assert!(
                operation["responses"]["200"]["content"].as_object().is_some_and(|kinds| !kinds.is_empty()),
                "{path}"
            );
            let other = if method == "get" { "POST" } else { "GET" };
            if operations.as_object().unwrap().len() == 1 {
                assert_eq!(server.ask(other, &path, "", "").0, 405, "{path}");
            }
        }
    }
    // Every name of a type is there.
    for (at, _) in text.match_indices("\"$ref\":\"#") {
        let pointer = text[at + 9..].split('"').next().unwrap();
        assert!(api.pointer(pointer).is_some(), "{pointer}");
    }
    api
}

fn properties(api: &Value, path: &str) -> BTreeSet<String> {
    let schema = &api["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"];
    schema["properties"].as_object().unwrap_or_else(|| panic!("{path}")).keys().cloned().collect()
}

#[test]
fn the_description_has_every_route_and_every_field_that_is_read() {
    let server = Server::start(&[]);
    let api = described(&server);
    let chat = "/v1/chat/completions";
    let schema = &api["paths"][chat]["post"]["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!(schema["required"], json!(["messages"]));
    assert_eq!(schema["properties"]["temperature"]["type"], "number");
    assert_eq!(schema["properties"]["messages"]["items"]["required"], json!(["content", "role"]));
    // A field that is described is known, and one that is not is refused by name.
    for path in
        [chat, "/v1/completions", "/v1/messages", "/v1/messages/count_tokens", "/tokenize", "/detokenize"]
    {
        let known = properties(&api, path);
        let mut body: Value = known.iter().map(|name| (name.clone(), Value::Null)).collect();
        body["no_field"] = json!(1);
        let (status, answer) = server.post(path, &body);
        assert_eq!(status, 400);
        let message = answer["error"]["message"].as_str().unwrap();
        let refused: Vec<&str> =
            message.lines().filter(|line| line.contains("is not supported here")).collect();
        assert_eq!(refused.len(), 1, "{path}: {message}");
    }
    assert!(!api["paths"].as_object().unwrap().contains_key("/v1/embeddings"));
    assert!(model("smollm2").exists());
}

#[test]
fn models_of_vectors_and_scores_have_their_own() {
    let server = Server::of(&testkit::golden("embed/tiny"), &[]);
    let api = described(&server);
    assert_eq!(
        properties(&api, "/v1/embeddings"),
        ["dimensions", "encoding_format", "input", "model", "prompt_name", "truncate_prompt_tokens", "user"]
            .map(str::to_owned)
            .into()
    );
    let server = Server::of(&testkit::golden("embed/rerank/bert"), &[]);
    let api = described(&server);
    assert!(properties(&api, "/v1/rerank").contains("documents"));
}
