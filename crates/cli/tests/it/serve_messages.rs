//! `serve`: the API of Anthropic.

use serde_json::{Value, json};

use crate::serve::{QUESTIONS, Server, alone};

/// Clients of Anthropic's API get the same answers in other shapes (golden/serve_anthropic.py asks with their own client).
#[test]
fn messages_have_the_answers_of_chats() {
    let server = Server::start(&["--api-key", "one"]);
    let ask = |path: &str, key: &str, body: &Value| {
        let (status, head, body) = server.ask("POST", path, key, &body.to_string());
        (status, head, body)
    };
    let key = "x-api-key: one\r\n";
    let body = json!({"messages": [{"role": "user", "content": [{"type": "text", "text": QUESTIONS[0]}]}], "max_tokens": 24,
                      "temperature": 0});
    let (status, _, answer) = ask("/v1/messages", key, &body);
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let wanted = alone(QUESTIONS[0], 24, false);
    assert_eq!((status, &answer["content"]), (200, &json!([{"type": "text", "text": wanted}])), "{answer}");
    assert_eq!(
        (&answer["stop_reason"], &answer["usage"]["output_tokens"]),
        (&json!("max_tokens"), &json!(24))
    );
    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    let (_, head, text) = ask("/v1/messages", key, &streamed);
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    let at = |name: &str| names.iter().position(|found| *found == name).unwrap();
    assert!(
        at("message_start") == 0 && at("content_block_start") == 1 && at("content_block_delta") == 2,
        "{names:?}"
    );
    assert_eq!(names[names.len() - 3..], ["content_block_stop", "message_delta", "message_stop"]);
    let deltas = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let deltas = deltas.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let said: String =
        deltas.filter_map(|event| event["delta"]["text"].as_str().map(str::to_owned)).collect();
    assert_eq!(said, wanted);
    let (status, _, counted) = ask("/v1/messages/count_tokens", key, &json!({"messages": body["messages"]}));
    let counted: Value = serde_json::from_str(&counted).unwrap();
    let usage = &answer["usage"];
    let prompt = usage["input_tokens"].as_u64().unwrap() + usage["cache_read_input_tokens"].as_u64().unwrap();
    assert_eq!((status, counted["input_tokens"].as_u64()), (200, Some(prompt)));
    assert_eq!(ask("/v1/messages", "x-api-key: two\r\n", &body).0, 401);
    let (status, _, refused) = ask(
        "/v1/messages",
        key,
        &json!({"messages": [{"role": "user", "content": [{"type": "image"}]}], "n": 2}),
    );
    let refused: Value = serde_json::from_str(&refused).unwrap();
    let said = refused["error"]["message"].as_str().unwrap();
    for wanted in
        ["`messages[0].content[0].type`: wanted `text`", "`n` is not supported here", "`max_tokens`: wanted"]
    {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    assert_eq!((status, &refused["type"]), (400, &json!("error")));
}
