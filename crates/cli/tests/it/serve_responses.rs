//! `serve`: OpenAI's newer API, and Ollama's.

use serde_json::{Value, json};

use crate::serve::{QUESTIONS, Server, alone};

/// The events of a stream, with the names before them.
fn named(text: &str) -> Vec<(String, Value)> {
    let event = |event: &str| {
        let (name, data) = event.split_once('\n')?;
        let data = serde_json::from_str(data.strip_prefix("data: ")?).ok()?;
        Some((name.strip_prefix("event: ")?.to_owned(), data))
    };
    text.split("\n\n").filter_map(event).collect()
}

/// golden/serve_openai.py asks with OpenAI's own client.
#[test]
fn responses_have_the_answers_of_chats() {
    let server = Server::start(&[]);
    let wanted = alone(QUESTIONS[0], 24, false);
    let mut body = json!({"input": QUESTIONS[0], "temperature": 0, "max_output_tokens": 24, "store": true, "instructions": null});
    let (status, answer) = server.post("/v1/responses", &body);
    assert_eq!(
        (status, &answer["object"], &answer["status"]),
        (200, &json!("response"), &json!("incomplete")),
        "{answer}"
    );
    let part = json!({"type": "output_text", "text": wanted, "annotations": [], "logprobs": []});
    assert_eq!(answer["output"][0]["content"], json!([part]), "{answer}");
    assert_eq!(answer["usage"]["output_tokens"], 24);
    body["stream"] = json!(true);
    let (_, head, text) = server.ask("POST", "/v1/responses", "", &body.to_string());
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    let events = named(&text);
    for (n, (name, event)) in events.iter().enumerate() {
        assert_eq!((&event["type"], &event["sequence_number"]), (&json!(name), &json!(n)));
    }
    assert_eq!((events[0].0.as_str(), events[1].0.as_str()), ("response.created", "response.in_progress"));
    let deltas = events.iter().filter(|(name, _)| name == "response.output_text.delta");
    let said: String = deltas.map(|(_, event)| event["delta"].as_str().unwrap()).collect();
    assert_eq!(said, wanted);
    let (name, last) = events.last().unwrap();
    assert_eq!(
        (name.as_str(), &last["response"]["output"][0]["content"]),
        ("response.incomplete", &json!([part]))
    );

    // The conversation goes on with the items that came back.
    let items = json!([{"role": "user", "content": QUESTIONS[0]}, answer["output"][0], {"type": "message", "role": "user",
        "content": [{"type": "input_text", "text": "And at night?"}]}]);
    let (status, again) = server.post("/v1/responses", &json!({"input": items, "max_output_tokens": 4}));
    assert_eq!((status, &again["usage"]["output_tokens"]), (200, &json!(4)), "{again}");
    let format = json!({"type": "json_schema", "name": "x", "schema": {"enum": ["yes", "no"]}});
    let (_, form) = server.post("/v1/responses", &json!({"input": "Is it?", "text": {"format": format}}));
    let text = form["output"][0]["content"][0]["text"].as_str().unwrap();
    assert!(["\"yes\"", "\"no\""].contains(&text) && form["status"] == "completed", "{form}");
}

#[test]
fn what_responses_cannot_have_is_refused_by_name() {
    let server = Server::start(&[]);
    let body = json!({"input": [{"type": "input_image"}, {"role": "robot", "content": "x"}], "previous_response_id": "resp_1",
        "conversation": "c", "background": true, "include": ["x"], "truncation": "auto", "tools": [{"type": "web_search"}],
        "inputs": 1});
    let (status, answer) = server.post("/v1/responses", &body);
    let message = answer["error"]["message"].as_str().unwrap();
    assert_eq!(status, 400);
    for wanted in [
        "`input[0].type`",
        "`input[1].role`",
        "`previous_response_id`: answers are not kept here",
        "`conversation`",
        "`background`",
        "`include`",
        "`truncation`",
        "`tools[0].type`",
        "`inputs` is not supported here: did you mean `input`?",
    ] {
        assert!(message.contains(wanted), "{wanted}: {message}");
    }
    for input in [json!(null), json!([]), json!(5)] {
        let (status, answer) = server.post("/v1/responses", &json!({"input": input}));
        assert!(status == 400 && answer["error"]["param"] == "input", "{answer}");
    }
}

/// golden/serve_ollama.py asks with Ollama's own client.
#[test]
fn ollamas_clients_have_the_same_answers_in_lines() {
    let server = Server::start(&["--alias", "m"]);
    let wanted = alone(QUESTIONS[0], 24, false);
    let options = json!({"temperature": 0, "num_predict": 24, "num_ctx": 512, "num_thread": 8});
    let chat = json!({"model": "m:latest", "messages": [{"role": "user", "content": QUESTIONS[0]}], "options": options});
    let text = json!({"model": "m", "prompt": QUESTIONS[0], "options": options});
    for (path, body, pointer) in
        [("/api/chat", chat, "/message/content"), ("/api/generate", text, "/response")]
    {
        let (status, head, lines) = server.ask("POST", path, "", &body.to_string());
        assert!(status == 200 && head.contains("content-type: application/x-ndjson"), "{head}");
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let said: String =
            lines.iter().map(|line| line.pointer(pointer).unwrap().as_str().unwrap()).collect();
        assert_eq!(said, wanted);
        let last = lines.last().unwrap();
        assert!(lines[..lines.len() - 1].iter().all(|line| line["done"] == false), "{path}");
        assert_eq!(
            (&last["done"], &last["done_reason"], &last["eval_count"]),
            (&json!(true), &json!("length"), &json!(24))
        );
        let mut body = body.clone();
        body["stream"] = json!(false);
        let (_, whole) = server.post(path, &body);
        assert_eq!((whole.pointer(pointer), &whole["done"]), (Some(&json!(wanted)), &json!(true)), "{whole}");
    }
    for (body, wanted) in [
        (
            json!({"messages": [], "options": {"temperatur": 1}}),
            "`options.temperatur` is not supported here: did you mean `temperature`?",
        ),
        (
            json!({"messages": [{"role": "user", "content": "x"}], "options": {"num_ctx": 4096}}),
            "`options.num_ctx`: wanted a whole number from 1 to 512",
        ),
        (
            json!({"messages": [{"role": "user", "content": "x", "images": ["x"]}]}),
            "`messages[0].images`: is not supported here",
        ),
        (
            json!({"messages": [{"role": "user", "content": "x"}], "model": "other"}),
            "the model `other` is not served here",
        ),
    ] {
        let (status, answer) = server.post("/api/chat", &body);
        assert!(status >= 400 && answer["error"].as_str().unwrap().contains(wanted), "{answer}");
    }
    let get = |path: &str| serde_json::from_str::<Value>(&server.ask("GET", path, "", "").2).unwrap();
    let tag = &get("/api/tags")["models"][0];
    assert!(
        tag["model"] == "m" && tag["size"].as_u64() > Some(90_000_000) && tag["details"]["family"] == "llama",
        "{tag}"
    );
    // `ollama list` and `ollama ps` print the first twelve digits of a digest, and when the model leaves memory.
    let running = &get("/api/ps")["models"][0];
    for model in [tag, running] {
        let digest = model["digest"].as_str().unwrap();
        assert!(digest.len() == 64 && digest == tag["digest"], "{model}");
    }
    assert!(running["expires_at"].as_str() > Some("2100") && running["context_length"].is_u64(), "{running}");
    assert_eq!(tag["capabilities"], json!(["completion"]));
    assert!(get("/api/version")["version"].is_string());
    let (_, shown) = server.post("/api/show", &json!({"model": "m"}));
    assert_eq!(
        (&shown["capabilities"], &shown["model_info"]["llama.context_length"]),
        (&json!(["completion"]), &json!(8192)),
        "{shown}"
    );
    assert_eq!(server.post("/api/show", &json!({"model": "n"})).0, 404);
}

#[test]
fn ollamas_vectors_have_the_length_1() {
    let server = Server::of(&testkit::golden("embed/tiny"), &[]);
    let (status, answer) =
        server.post("/api/embed", &json!({"input": ["the cat", "cat ".repeat(5000)], "keep_alive": "5m"}));
    assert_eq!(status, 200, "{answer}");
    for vector in answer["embeddings"].as_array().unwrap() {
        let length: f64 = vector.as_array().unwrap().iter().map(|x| x.as_f64().unwrap().powi(2)).sum();
        assert!((length - 1.0).abs() < 1e-5, "{length}");
    }
    let (status, answer) =
        server.post("/api/embed", &json!({"input": "cat ".repeat(5000), "truncate": false}));
    assert!(
        status == 400 && answer["error"].as_str().unwrap().contains("hint: `\"truncate\": true` cuts texts"),
        "{answer}"
    );
}
