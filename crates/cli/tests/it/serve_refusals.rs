//! `serve`: what it refuses.

use serde_json::{Value, json};

use crate::serve::Server;

/// Numbers that leave no probability, names of hosts that look like ours, and bodies that break off.
#[test]
fn what_would_fail_later_is_refused_at_once() {
    let server = Server::start(&[]);
    let ask = |more: Value| {
        let mut body = json!({"prompt": "x", "max_tokens": 2});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post("/v1/completions", &body)
    };
    for (more, wanted) in [
        (json!({"repeat_penalty": 1e-38}), "`repeat_penalty`"),
        (json!({"frequency_penalty": -3e38}), "`frequency_penalty`"),
        (json!({"logit_bias": {"0": 3.4e38}}), "`logit_bias`"),
        (json!({"logit_bias": {"1": 1, "01": 1}}), "`logit_bias`"),
        (json!({"prompt": "word ".repeat(200_000)}), "there is room for 512 tokens"),
    ] {
        let (status, answer) = ask(more);
        let said = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(status == 400 && said.contains(wanted), "{wanted}: {answer}");
    }
    let (status, answer) = ask(json!({"temperature": 1e-45}));
    assert_eq!(status, 200, "{answer}");
    let get = |head: &str| server.raw(format!("GET {head}Connection: close\r\n\r\n").as_bytes()).0;
    assert_eq!(get("/health HTTP/1.1\r\nHost: localhost:80\r\n"), 200);
    assert_eq!(get("/health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n"), 400);
    assert_eq!(get("/health HTTP/1.1\r\nHost: localhost:80@evil.example\r\n"), 421);
    assert_eq!(get("/health HTTP/1.1\r\nHost: [::1].evil.example\r\n"), 421);
    assert_eq!(get("/health HTTP/1.1\r\nHost: [::1]:8080\r\n"), 200);
    assert_eq!(get("http://evil.example/health HTTP/1.1\r\nHost: localhost\r\n"), 421);
    let (status, _, said) = server.ask("GET", "/v1/models/%ff", "", "");
    assert!(status == 400 && said.contains("is not UTF-8"), "{said}");
    let chunks = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
                  Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n";
    assert_eq!(server.raw(chunks.as_bytes()).0, 400);
}
