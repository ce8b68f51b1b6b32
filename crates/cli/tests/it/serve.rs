//! `weighbridge serve`, over real sockets, with a real model.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::model;

use crate::{NO_CACHE, stdout, weighbridge};

/// A server, which ends with this.
pub(crate) struct Server {
    child: Child,
    port: u16,
    /// What it writes after it listens.
    lines: Arc<std::sync::Mutex<String>>,
}

impl Server {
    pub(crate) fn start(more: &[&str]) -> Server {
        let ctx = if more.contains(&"--ctx") { &[][..] } else { &["--ctx", "512"] };
        Server::of(&model("smollm2"), &[ctx, more].concat())
    }

    /// A server of the model at `path`.
    pub(crate) fn of(path: &std::path::Path, more: &[&str]) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_weighbridge"))
            .env("WEIGHBRIDGE_CACHE", NO_CACHE)
            .env_remove("WEIGHBRIDGE_API_KEY")
            .args(["serve", path.to_str().unwrap(), "--port", "0", "--threads", "2"])
            .args(more)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        let mut said = String::new();
        let port = loop {
            line.clear();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "it ended: {said}");
            said.push_str(&line);
            if let Some((_, address)) = line.split_once("listening on http://") {
                break address.trim().rsplit_once(':').unwrap().1.parse().unwrap();
            }
        };
        let lines = Arc::new(std::sync::Mutex::new(said));
        let kept = Arc::clone(&lines);
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                kept.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        Server { child, port, lines }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(2))).unwrap();
        stream
    }

    /// Sends a request, and does not wait for the answer.
    pub(crate) fn begin(&self, path: &str, body: &Value) -> TcpStream {
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let mut stream = self.connect();
        stream.write_all((head + &body).as_bytes()).unwrap();
        stream
    }

    /// Sends a request as it is; returns its status, head and body.
    pub(crate) fn raw(&self, request: &[u8]) -> (u16, String, String) {
        let mut stream = self.connect();
        // One that is refused early may be refused while it is sent.
        let _ = stream.write_all(request);
        let mut bytes = vec![];
        let _ = stream.read_to_end(&mut bytes);
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head in {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = if head.to_lowercase().contains("transfer-encoding: chunked") {
            joined(body)
        } else {
            body.to_owned()
        };
        (status, head.to_lowercase(), body)
    }

    pub(crate) fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String, String) {
        let length = body.len();
        self.raw(
            format!(
                "{method} {path} HTTP/1.1\r\nHost: localhost:{}\r\nConnection: close\r\nContent-Type: application/json\r\n{headers}\
                 Content-Length: {length}\r\n\r\n{body}",
                self.port
            )
            .as_bytes(),
        )
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, _, body) = self.ask("POST", path, "", &body.to_string());
        (status, serde_json::from_str(&body).unwrap_or_else(|e| panic!("{e}: {body}")))
    }

    /// The events of a stream, without the mark of its end.
    pub(crate) fn events(&self, path: &str, body: &Value) -> Vec<Value> {
        let (status, head, text) = self.ask("POST", path, "", &body.to_string());
        assert!(status == 200 && head.contains("content-type: text/event-stream"), "{head} {text}");
        let mut events: Vec<&str> =
            text.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
        assert_eq!(events.pop(), Some("[DONE]"));
        events.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
    }
}

impl Server {
    /// Tells it to end, and waits until it has.
    #[cfg(unix)]
    pub(crate) fn terminate(&mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The body of its chunks.
fn joined(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        body.push_str(&after[..size]);
        rest = after[size..].trim_start_matches("\r\n");
    }
    body
}

/// What `run` answers to the same question, alone.
pub(crate) fn alone(question: &str, tokens: u32, raw: bool) -> String {
    let (model, tokens) = (model("smollm2"), tokens.to_string());
    let mut args = vec![
        "run",
        model.to_str().unwrap(),
        "-p",
        question,
        "-n",
        &tokens,
        "--temperature",
        "0",
        "--ctx",
        "512",
    ];
    args.extend(raw.then_some("--raw"));
    let out = weighbridge(args);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    stdout(&out)
}

pub(crate) const QUESTIONS: [&str; 6] = [
    "Why is the sky blue?",
    "Name three rivers.",
    "What is a prime number?",
    "Write a sentence about the sea.",
    "Why is the sea salty?",
    "Who wrote Hamlet?",
];

#[test]
fn each_request_has_the_answer_that_run_gives_whatever_the_others_do() {
    let server = Server::start(&["--parallel", "3"]);
    let wanted: Vec<(String, String)> =
        QUESTIONS.iter().map(|q| (alone(q, 24, false), alone(q, 24, true))).collect();
    thread::scope(|scope| {
        // Others that come and go: drawn, streamed, and left.
        scope.spawn(|| {
            for seed in 0..6 {
                let body = json!({"messages": [{"role": "user", "content": "Tell a long story."}], "seed": seed,
                                  "temperature": 1.2, "max_tokens": 200, "stream": true});
                let mut stream = server.begin("/v1/chat/completions", &body);
                let mut some = [0; 400];
                stream.read_exact(&mut some).unwrap();
            }
        });
        for (question, (chat, raw)) in QUESTIONS.iter().zip(&wanted) {
            let server = &server;
            scope.spawn(move || {
                let body = json!({"messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 24});
                for _ in 0..2 {
                    let (status, answer) = server.post("/v1/chat/completions", &body);
                    assert_eq!(status, 200, "{answer}");
                    assert_eq!(answer["choices"][0]["message"]["content"], *chat, "{question}");
                    assert_eq!(answer["usage"]["total_tokens"].as_u64().unwrap(),
                        answer["usage"]["prompt_tokens"].as_u64().unwrap() + answer["usage"]["completion_tokens"].as_u64().unwrap());
                }
                let body = json!({"prompt": question, "temperature": 0, "max_tokens": 24, "stream": true});
                let events = server.events("/v1/completions", &body);
                let text: String = events.iter().map(|e| e["choices"][0]["text"].as_str().unwrap()).collect();
                assert_eq!(text, *raw, "{question}");
            });
        }
    });
}

#[test]
fn shapes_are_those_of_openai() {
    let server = Server::start(&[]);
    let (status, _, health) = server.ask("GET", "/health", "", "");
    assert_eq!((status, health.as_str()), (200, r#"{"status":"ok"}"#));
    let (_, _, models) = server.ask("GET", "/v1/models", "", "");
    let models: Value = serde_json::from_str(&models).unwrap();
    let name = models["data"][0]["id"].as_str().unwrap();
    assert_eq!(
        (models["object"].as_str(), models["data"][0]["meta"]["n_ctx"].as_u64()),
        (Some("list"), Some(512))
    );
    assert_eq!(server.ask("GET", &format!("/v1/models/{name}"), "", "").0, 200);
    assert_eq!(server.ask("GET", "/v1/models/other", "", "").0, 404);

    let user = json!([{"role": "user", "content": [{"type": "text", "text": "Say hello."}]}]);
    let body = json!({"model": name, "messages": user, "temperature": 0, "max_completion_tokens": 6, "logprobs": true,
                      "top_logprobs": 2, "n": 2});
    let (status, answer) = server.post("/v1/chat/completions", &body);
    assert_eq!((status, answer["object"].as_str()), (200, Some("chat.completion")), "{answer}");
    assert_eq!(answer["choices"][0]["message"], answer["choices"][1]["message"]);
    let tokens = answer["choices"][1]["logprobs"]["content"].as_array().unwrap();
    assert_eq!((tokens.len(), tokens[0]["top_logprobs"].as_array().unwrap().len()), (6, 2));
    assert_eq!(tokens[0]["token"], tokens[0]["top_logprobs"][0]["token"], "greedy takes the most likely");
    let text: String = tokens.iter().map(|token| token["token"].as_str().unwrap()).collect();
    assert_eq!(text, answer["choices"][1]["message"]["content"]);
    assert_eq!(answer["choices"][0]["finish_reason"], "length");

    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    streamed["stream_options"] = json!({"include_usage": true});
    let events = server.events("/v1/chat/completions", &streamed);
    let (last, others) = events.split_last().unwrap();
    assert_eq!(
        (last["choices"].as_array().unwrap().len(), last["usage"]["completion_tokens"].as_u64()),
        (0, Some(12))
    );
    assert!(
        others.iter().all(|event| event["usage"].is_null() && event["object"] == "chat.completion.chunk")
    );
    for index in 0..2 {
        let own = || others.iter().filter(|event| event["choices"][0]["index"] == index);
        let said: String =
            own().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(said, answer["choices"][index]["message"]["content"]);
        assert_eq!(own().next().unwrap()["choices"][0]["delta"]["role"], "assistant");
        assert_eq!(own().next_back().unwrap()["choices"][0]["finish_reason"], "length");
    }

    // A text, its tokens, and a stop string that some of them make together.
    let (_, tokens) = server.post("/tokenize", &json!({"content": "Once upon a time"}));
    let (_, back) = server.post("/detokenize", &tokens);
    assert_eq!(back["content"], "Once upon a time");
    let of = |prompt: &Value, more: &Value| {
        let mut body = json!({"prompt": prompt, "temperature": 0, "max_tokens": 12});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post("/v1/completions", &body).1
    };
    let whole = of(&json!("Once upon a time"), &json!({}));
    let text = whole["choices"][0]["text"].as_str().unwrap();
    assert_eq!(of(&tokens["tokens"], &json!({}))["choices"][0]["text"], text);
    let both = of(&json!(["Once upon a time", tokens["tokens"]]), &json!({"echo": true}));
    for index in 0..2 {
        assert_eq!(both["choices"][index]["text"], format!("Once upon a time{text}"));
    }
    // What was said is as likely when it is given as a prompt.
    let said = of(&tokens["tokens"], &json!({"logprobs": 2}));
    let said = &said["choices"][0]["logprobs"];
    let given = json!(["Once upon a time", text].concat());
    for more in [json!({"max_tokens": 1}), json!({"max_tokens": 0})] {
        let mut more = more;
        more.as_object_mut().unwrap().extend([("echo".into(), true.into()), ("logprobs".into(), 2.into())]);
        let scored = of(&given, &more);
        assert_eq!(scored["usage"]["completion_tokens"], more["max_tokens"]);
        let scored = &scored["choices"][0]["logprobs"];
        let list = |name: &str| scored[name].as_array().unwrap().clone();
        let (count, begun) = (list("tokens").len(), tokens["tokens"].as_array().unwrap().len());
        assert!(scored["token_logprobs"][0].is_null() && scored["top_logprobs"][0].is_null(), "{scored}");
        assert_eq!((list("token_logprobs").len(), list("text_offset").len()), (count, count));
        for (at, token) in said["tokens"].as_array().unwrap().iter().enumerate() {
            assert_eq!(&scored["tokens"][begun + at], token);
            assert_eq!(scored["text_offset"][begun + at], said["text_offset"][at].as_u64().unwrap() + 16);
            let of = |all: &Value, at: usize| all["token_logprobs"][at].as_f64().unwrap();
            assert!((of(scored, begun + at) - of(said, at)).abs() < 2e-3, "{token}: {scored} {said}");
        }
    }
    let stop = &text[3..8];
    let cut = of(&json!("Once upon a time"), &json!({"stop": ["never", stop]}));
    assert_eq!(
        (&cut["choices"][0]["text"], &cut["choices"][0]["finish_reason"]),
        (&json!(text[..text.find(stop).unwrap()]), &json!("stop"))
    );
    let likely = of(&json!("Once upon a time"), &json!({"logprobs": 1}));
    let likely = &likely["choices"][0]["logprobs"];
    assert_eq!(likely["tokens"].as_array().unwrap().len(), 12);
    assert_eq!(
        (&likely["text_offset"][0], likely["top_logprobs"][3].as_object().unwrap().len()),
        (&json!(0), 1)
    );
    for (own, top) in
        likely["token_logprobs"].as_array().unwrap().iter().zip(likely["top_logprobs"].as_array().unwrap())
    {
        assert_eq!(Some(own), top.as_object().unwrap().values().next(), "greedy takes the likeliest");
    }
    // The token that ends a text is told, and is no part of it.
    let (_, end) = server.post("/tokenize", &json!({"content": "<|im_end|>", "parse_special": true}));
    let ended =
        of(&json!("Once"), &json!({"logprobs": 1, "logit_bias": {end["tokens"][0].to_string(): 100}}));
    let ended = &ended["choices"][0];
    assert_eq!((&ended["text"], &ended["finish_reason"]), (&json!(""), &json!("stop")), "{ended}");
    assert_eq!(ended["logprobs"]["tokens"], json!(["<|im_end|>"]));
    assert!(ended["logprobs"]["token_logprobs"][0].is_number());
    let banned = of(
        &json!("Once upon a time"),
        &json!({"logit_bias": {tokens["tokens"][0].to_string(): -100}, "seed": 1, "top_k": 1, "max_tokens": 2}),
    );
    assert_eq!(banned["usage"]["completion_tokens"], 2);
}

#[cfg(feature = "grammar")]
#[test]
fn answers_keep_to_a_schema() {
    let server = Server::start(&[]);
    let schema = json!({"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "big": {"type": "boolean"}},
                        "required": ["city", "big"], "additionalProperties": false});
    let mut body = json!({"messages": [{"role": "user", "content": "Name a city."}], "temperature": 1.5, "seed": 3, "n": 2,
        "response_format": {"type": "json_schema", "json_schema": {"name": "city", "schema": schema, "strict": true}}});
    let (status, answer) = server.post("/v1/chat/completions", &body);
    assert_eq!(status, 200, "{answer}");
    for choice in answer["choices"].as_array().unwrap() {
        let value: Value = serde_json::from_str(choice["message"]["content"].as_str().unwrap()).unwrap();
        assert!(value["city"].is_string() && value["big"].is_boolean(), "{value}");
        assert_eq!(choice["finish_reason"], "stop");
    }
    body["response_format"]["json_schema"]["schema"] = json!({"type": "strange"});
    let (status, answer) = server.post("/v1/chat/completions", &body);
    assert_eq!(status, 400, "{answer}");
}

#[test]
fn what_is_wrong_is_named_all_of_it() {
    let server = Server::start(&["--max-tokens", "100", "--body-limit", "20000"]);
    let (status, answer) = server.post(
        "/v1/chat/completions",
        &json!({"messages": [{"role": "wizard", "content": "x"}], "temperature": -1, "tools": [{}], "tempratur": 1, "max_tokens": 101,
                "logit_bias": {"x": 1}, "user": "me", "n": 1_000_000_000, "stream_options": {"include_usage": true}}),
    );
    let said = answer["error"]["message"].as_str().unwrap();
    assert_eq!((status, answer["error"]["type"].as_str()), (400, Some("invalid_request_error")));
    for wanted in [
        "`stream_options`: only with `stream`: true",
        "`n`: wanted a whole number from 1 to 128, found 1000000000",
        "`max_tokens`: wanted a whole number from 0 to 100, found 101",
        "`logit_bias`: wanted token ids below 49152",
        "`temperature`: wanted a number, 0 or more, found -1",
        "`messages[0].role`: wanted `system`",
        "`tools[0].type`: wanted `function`",
        "`tempratur` is not supported here: did you mean `temperature`?",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    let problems = answer["error"]["problems"].as_array().unwrap();
    assert!(problems.iter().all(|problem| problem["param"] != "user"), "{said}");
    let long = "word ".repeat(600);
    let (status, answer) = server.post("/v1/completions", &json!({"prompt": long}));
    assert_eq!((status, answer["error"]["code"].as_str()), (400, Some("context_length_exceeded")));
    assert_eq!(server.post("/v1/completions", &json!({"prompt": [49152]})).0, 400);
    assert_eq!(server.post("/v1/completions", &json!({"prompt": []})).0, 400);
    assert_eq!(server.post("/v1/completions", &json!({"prompt": "x", "model": "other"})).0, 404);
    assert_eq!(server.post("/v1/completions", &json!({"prompt": "x", "n": 100})).0, 400);
    assert_eq!(server.post("/v1/nothing", &json!({})).0, 404);
    assert_eq!(server.ask("GET", "/v1/completions", "", "").0, 405);
    assert_eq!(server.post("/v1/completions", &json!({"prompt": "x".repeat(30_000)})).0, 413);
    let host = |host: &str| {
        server.raw(format!("GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes()).0
    };
    assert_eq!(
        [host("evil.example"), host("127.0.0.1:8080"), host("[::1]"), host("localhost")],
        [421, 200, 200, 200]
    );
    let form = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}";
    assert_eq!(server.raw(form.as_bytes()).0, 415);
    for body in ["", "{", "[]", "null", "{\"prompt\": \"\\ud800\"}", &"[".repeat(10_000)] {
        assert_eq!(server.ask("POST", "/v1/completions", "", body).0, 400, "{body:.20}");
    }
    assert!(!server.raw(b"POST /v1/completions\r\n\r\n").1.is_empty());
    // Nothing of this has harmed it.
    assert_eq!(server.post("/v1/completions", &json!({"prompt": "x", "max_tokens": 1})).0, 200);
}

#[test]
fn keys_and_origins_are_checked() {
    let server = Server::start(&["--api-key", "one", "--api-key", "two", "--cors", "https://chat.example"]);
    let status = |headers: &str| server.ask("GET", "/v1/models", headers, "").0;
    assert_eq!(status(""), 401);
    assert_eq!(status("Authorization: Bearer three\r\n"), 401);
    assert_eq!(status("Authorization: Bearer on\r\n"), 401);
    assert_eq!(status("Authorization: Basic two\r\n"), 401);
    assert_eq!(status("Authorization: Bearer two\r\n"), 200);
    assert_eq!(status("authorization: bearer one\r\n"), 200);
    assert_eq!(server.ask("GET", "/health", "", "").0, 200);
    let preflight = |origin: &str| {
        let headers = format!("Origin: {origin}\r\nAccess-Control-Request-Method: POST\r\n");
        server.ask("OPTIONS", "/v1/completions", &headers, "").1
    };
    assert!(preflight("https://chat.example").contains("access-control-allow-origin: https://chat.example"));
    assert!(!preflight("https://evil.example").contains("access-control"));
    let prompt = json!({"prompt": "canary words", "max_tokens": 2}).to_string();
    assert_eq!(server.ask("POST", "/v1/completions", "Authorization: Bearer two\r\n", &prompt).0, 200);
    let begin = Instant::now();
    let lines = loop {
        let lines = server.lines.lock().unwrap().clone();
        if lines.contains("POST /v1/completions 200") {
            break lines;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "{lines}");
        thread::sleep(Duration::from_millis(20));
    };
    assert!(!lines.contains("canary") && !lines.contains("Bearer") && !lines.contains("two"), "{lines}");
}

/// The value of a header, in lower case as `head` is.
fn header<'a>(head: &'a str, name: &str) -> &'a str {
    let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    line.unwrap_or_else(|| panic!("no {name} in {head}"))
}

#[test]
fn pages_are_guarded_and_fresh_and_the_one_about_the_model_needs_the_key() {
    let server = Server::start(&["--api-key", "sesame"]);
    let get = |path: &str, headers: &str| server.ask("GET", path, headers, "");
    let (_, _, index) = get("/", "");
    let mut paths = vec!["/".to_owned(), "/page/model.css".to_owned(), "/page/model.js".to_owned()];
    // All that the page names, and the modules that those name.
    paths.extend(index.split('"').filter(|part| part.starts_with("page/")).map(|part| format!("/{part}")));
    paths.push("/page/vendor/marked.esm.js".to_owned());
    assert!(paths.len() >= 6, "{index}");
    let key = "Authorization: Bearer sesame\r\n";
    for (path, headers) in paths.iter().map(|path| (path.as_str(), "")).chain([("/model", key)]) {
        let (status, head, body) = get(path, headers);
        assert_eq!(status, 200, "{path}");
        assert!(!body.is_empty(), "{path}");
        let policy = header(&head, "content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'"),
            "{path}: {policy}"
        );
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(header(&head, "x-content-type-options"), "nosniff", "{path}");
        assert_eq!(header(&head, "referrer-policy"), "no-referrer", "{path}");
        let kept = if path == "/model" { "no-store" } else { "no-cache" };
        assert_eq!(header(&head, "cache-control"), kept, "{path}");
        let known = format!("{headers}If-None-Match: {}\r\n", header(&head, "etag"));
        let (status, head, body) = get(path, &known);
        assert!(status == 304 && body.is_empty(), "{path}: {status} {body}");
        assert!(head.contains("content-security-policy"), "{path}");
        assert_eq!(get(path, &format!("{headers}If-None-Match: \"other\"\r\n")).0, 200, "{path}");
    }
    let (status, head, locked) = get("/model", "");
    assert_eq!((status, header(&head, "www-authenticate")), (401, "bearer"));
    assert!(head.contains("content-security-policy") && locked.contains("page/locked.js"), "{locked}");
    assert!(!locked.contains("llama"), "it tells of the model: {locked}");
    let (_, _, page) = get("/model", key);
    for wanted in [
        "bits a weight",
        "4 requests of 512 positions together",
        "class=\"picture\"",
        "blk.{n}.attn_q.weight",
    ] {
        assert!(page.contains(wanted), "{wanted}");
    }
    // The browser would apply and run none of it.
    for inline in ["<style", " style=", "<script>"] {
        assert!(!page.contains(inline), "{inline}");
    }
    // A name that points here gets no page, and the API is as closed as it was.
    let other = b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    assert_eq!(server.raw(other).0, 421);
    assert_eq!(
        [get("/v1/models", "").0, get("/page/other.js", "").0, get("/page/other.js", key).0],
        [401, 401, 404]
    );
    assert_eq!(server.ask("POST", "/", "", "{}").0, 405);
}

#[test]
fn a_full_queue_says_when_to_come_back_and_who_leaves_makes_room() {
    let server = Server::start(&["--parallel", "1", "--queue", "1"]);
    let long = json!({"prompt": "Once", "max_tokens": 500, "temperature": 0, "stream": true, "logit_bias": {"0": -100, "2": -100}});
    let open = || {
        let mut stream = server.begin("/v1/completions", &long);
        let mut head = [0; 15];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 200 OK");
        stream
    };
    let (first, second) = (open(), open());
    let body = json!({"prompt": "x", "max_tokens": 1}).to_string();
    let (status, head, answer) = server.ask("POST", "/v1/completions", "", &body);
    assert!(status == 429 && head.contains("retry-after: "), "{status} {head} {answer}");
    drop((first, second));
    // Both are cancelled long before they could have ended.
    let begin = std::time::Instant::now();
    while server.ask("POST", "/v1/completions", "", &body).0 == 429 {
        assert!(begin.elapsed() < Duration::from_secs(20));
        thread::sleep(Duration::from_millis(20));
    }
}

/// The places of answers that nobody reads come free, and figures say what there was.
#[test]
fn who_does_not_read_holds_no_place_and_all_is_counted() {
    let server = Server::start(&["--parallel", "1", "--queue", "0"]);
    let body = json!({"messages": [{"role": "user", "content": "Tell a long story."}], "temperature": 0, "max_tokens": 400,
                      "logprobs": true, "top_logprobs": 20, "stream": true, "n": 1, "logit_bias": {"2": -100, "0": -100}});
    let stream = server.begin("/v1/chat/completions", &body);
    let figure = |name: &str| {
        let (status, head, text) = server.ask("GET", "/metrics", "", "");
        assert!(status == 200 && head.contains("openmetrics-text"), "{head} {text}");
        let own = format!("{name}{{model=\"smollm2\"}} ");
        let line = text.lines().find(|line| line.starts_with(&own) || line.starts_with(&format!("{name} ")));
        line.map_or(0, |line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
    };
    while figure("weighbridge_generated_tokens_total") < 400 {
        thread::sleep(Duration::from_millis(100));
    }
    let small = json!({"prompt": "x", "max_tokens": 2, "temperature": 0});
    // The place comes free a moment after the last token.
    let begin = Instant::now();
    while server.post("/v1/completions", &small).0 != 200 {
        assert!(begin.elapsed() < Duration::from_secs(20));
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(figure("weighbridge_generated_tokens_total"), 402);
    assert_eq!(figure("weighbridge_time_to_first_token_seconds_count"), 2);
    assert_eq!(figure("weighbridge_time_between_tokens_seconds_count"), 400);
    let ok = "weighbridge_requests_total{method=\"POST\",route=\"/v1/completions\",status=\"200\"}";
    assert_eq!(figure(ok), 1);
    // It is counted as running until the engine has sent its end.
    while figure("weighbridge_running_answers") > 0 {
        thread::sleep(Duration::from_millis(10));
    }
    drop(stream);
}

#[test]
fn the_deadline_ends_a_request() {
    let server = Server::start(&["--deadline", "1", "--ctx", "4096"]);
    let bias = json!({"0": -100, "2": -100});
    let body = json!({"prompt": "Once", "max_tokens": 4000, "temperature": 0, "logit_bias": bias, "n": 4});
    let (status, answer) = server.post("/v1/completions", &body);
    assert_eq!((status, answer["error"]["code"].as_str()), (504, Some("deadline_exceeded")), "{answer}");
}

#[cfg(unix)]
#[test]
fn sigterm_lets_answers_end() {
    use rustix::process::{Pid, Signal, kill_process};
    let mut server = Server::start(&[]);
    let body = json!({"prompt": "Once upon a time", "max_tokens": 60, "temperature": 0, "stream": true});
    let mut stream = server.begin("/v1/completions", &body);
    let mut some = [0; 300];
    stream.read_exact(&mut some).unwrap();
    kill_process(Pid::from_child(&server.child), Signal::TERM).unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("data: [DONE]"), "{rest}");
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn what_does_not_fit_or_cannot_listen_is_said_before() {
    let smollm2 = model("smollm2");
    let smollm2 = smollm2.to_str().unwrap();
    let out = weighbridge([
        "serve",
        smollm2,
        "--port",
        "0",
        "--parallel",
        "64",
        "--ctx",
        "8192",
        "--memory",
        "500MiB",
    ]);
    let said = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("for the KV cache of 65 sessions of 8192 positions"), "{said}");
    assert!(said.contains("hint: ask for at most") && said.contains("(`--ctx`)"), "{said}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let out = weighbridge(["serve", smollm2, "--port", &port]);
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains(&format!("cannot listen on 127.0.0.1, port {port}")), "{said}");
    assert!(said.contains("hint: another program listens there: `--port 0` takes a free port"), "{said}");
}
