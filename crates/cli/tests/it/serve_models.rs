//! `serve`: several models, which come into memory and leave it.

use std::io::Read;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::model;

#[cfg(unix)]
use crate::json::Schemas;
use crate::serve::{Server, alone};
use crate::{stdout, weighbridge};

const QUESTION: &str = "Why is the sky blue?";

fn chat(server: &Server, model: &str, tokens: u32) -> (u16, Value) {
    let body = json!({"model": model, "messages": [{"role": "user", "content": QUESTION}], "temperature": 0, "max_tokens": tokens});
    server.post("/v1/chat/completions", &body)
}

fn get(server: &Server, path: &str) -> Value {
    let (status, _, body) = server.ask("GET", path, "", "");
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

/// The names of the models, and whether they are in memory.
fn standing(server: &Server) -> Vec<(String, String)> {
    let models = get(server, "/v1/models");
    let of = |value: &Value| value.as_str().unwrap().to_owned();
    models["data"].as_array().unwrap().iter().map(|m| (of(&m["id"]), of(&m["status"]["value"]))).collect()
}

fn states(server: &Server) -> Vec<String> {
    standing(server).into_iter().map(|(_, state)| state).collect()
}

/// Bytes that a server with this model alone keeps.
fn bytes(server: &Server, name: &str) -> u64 {
    let models = get(server, "/api/ps");
    let model = models["models"].as_array().unwrap().iter().find(|model| model["name"] == name);
    model.unwrap()["size"].as_u64().unwrap()
}

fn named(name: &str, path: &Path) -> String {
    format!("{name}={}", path.display())
}

/// The text of a stream from its raw bytes.
fn streamed(raw: &str) -> String {
    let events = raw.lines().filter_map(|line| line.trim_start().strip_prefix("data: {"));
    let events = events.map(|event| serde_json::from_str::<Value>(&format!("{{{event}")).unwrap());
    events.filter_map(|event| event["choices"][0]["delta"]["content"].as_str().map(str::to_owned)).collect()
}

#[test]
fn each_request_has_the_model_that_it_names() {
    let (minilm, bert) = (model("minilm"), testkit::golden("embed/rerank/bert"));
    let more = [named("vectors", &minilm), named("two", &model("smollm2")), named("ranks", &bert)];
    let mut args: Vec<&str> = more.iter().map(String::as_str).collect();
    args.extend(["--ctx", "512"]);
    let server = Server::of(Path::new(&named("one", &model("smollm2"))), &args);
    let loaded = |name: &str| (name.to_owned(), "loaded".to_owned());
    assert_eq!(standing(&server), ["one", "vectors", "two", "ranks"].map(loaded));
    assert_eq!(get(&server, "/v1/models/vectors")["meta"]["task"], "vectors");
    assert_eq!(get(&server, "/api/tags")["models"].as_array().unwrap().len(), 4);

    // By name, or the first for the task; both at once.
    let wanted = alone(QUESTION, 24, false);
    thread::scope(|scope| {
        for name in ["one", "two"] {
            let (server, wanted) = (&server, &wanted);
            scope.spawn(move || {
                let (status, answer) = chat(server, name, 24);
                assert_eq!(status, 200, "{answer}");
                assert_eq!(answer["choices"][0]["message"]["content"], **wanted);
                assert_eq!(answer["model"], name);
            });
        }
        let server = &server;
        scope.spawn(move || {
            let text = "the cat";
            let out = stdout(&weighbridge(["embed", model("minilm").to_str().unwrap(), text]));
            let wanted = serde_json::from_str::<Value>(&out).unwrap();
            let (_, answer) = server.post("/v1/embeddings", &json!({"input": text}));
            assert_eq!(answer["data"][0]["embedding"], wanted["vector"]);
            assert_eq!(answer["model"], "vectors");
        });
    });
    let body = json!({"model": "two:latest", "prompt": "Once", "raw": true, "stream": false, "options": {"num_predict": 1}});
    let (status, answer) = server.post("/api/generate", &body);
    assert_eq!((status, &answer["model"]), (200, &json!("two")), "{answer}");
    let prompt = json!({"prompt": "Once", "max_tokens": 1});
    assert_eq!(server.post("/v1/completions", &prompt).1["model"], "one");
    let (status, answer) =
        server.post("/v1/rerank", &json!({"query": "a", "documents": ["b"], "model": "ranks"}));
    assert_eq!((status, answer["results"].as_array().map(Vec::len)), (200, Some(1)), "{answer}");

    // Names that are not here, or not for this path.
    let (status, answer) = chat(&server, "vectors", 1);
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(status == 404 && message.contains("`one`, `two` are"), "{message}");
    let (status, answer) = server.post("/api/chat", &json!({"model": "x", "messages": []}));
    assert!(status == 404 && answer["error"].as_str().unwrap().contains("`x`"), "{answer}");
    // The model says what is wrong with a request.
    let (status, answer) = server.post("/v1/chat/completions", &json!({"model": 7, "messages": 8}));
    assert_eq!((status, answer["error"]["problems"].as_array().map(Vec::len)), (400, Some(2)), "{answer}");
    let (status, _, text) = server.ask("POST", "/v1/chat/completions", "", "[1");
    assert!(status == 400 && text.contains("not JSON"), "{text}");
    let (status, _, text) = server.ask("POST", "/v1/audio/transcriptions", "", "{}");
    assert!(status == 404 && text.contains("text, vectors, scores"), "{text}");
    let api = get(&server, "/openapi.json");
    for path in ["/v1/chat/completions", "/v1/embeddings", "/v1/rerank", "/v1/models", "/api/ps"] {
        assert!(api["paths"][path].is_object(), "{path}");
    }
    let (_, _, metrics) = server.ask("GET", "/metrics", "", "");
    for line in ["model_loads_total{model=\"two\"} 1", "model_loaded{model=\"ranks\"} 1"] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    // Who has no key moves nothing.
    let (status, answer) = server.post("/models/unload", &json!({"model": "one"}));
    assert_eq!(status, 403, "{answer}");
}

#[test]
fn what_does_not_go_together_is_refused() {
    let smollm2 = model("smollm2");
    let path = smollm2.to_str().unwrap();
    for (args, wanted) in [
        (vec![path, path], "two models are called `smollm2`"),
        (vec![path, "x=y", "--alias", "z"], "--alias is for one model, and there are 2"),
        (vec![path, "x=/nowhere"], "/nowhere"),
        (vec![path, "*=x"], "no name"),
    ] {
        let out = weighbridge([&["serve", "--port", "0"], &args[..]].concat());
        let text = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && text.contains(wanted), "{text}");
    }
}

/// Of several models that cannot be served, each is named: those that are not there, and those that do not load.
#[test]
fn all_that_is_wrong_with_the_models_is_said_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let tiny = testkit::golden("models/llama-tiny");
    let broken = |name: &str, from: &str, to: &str| {
        let at = dir.path().join(name);
        std::fs::create_dir(&at).unwrap();
        for file in std::fs::read_dir(&tiny).unwrap() {
            let file = file.unwrap().path();
            if file.extension().is_some_and(|ending| ending != "gguf") {
                std::fs::copy(&file, at.join(file.file_name().unwrap())).unwrap();
            }
        }
        let config = std::fs::read_to_string(at.join("config.json")).unwrap();
        assert!(config.contains(from), "{config}");
        std::fs::write(at.join("config.json"), config.replace(from, to)).unwrap();
        named(name, &at)
    };
    let deeper = broken("deeper", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3");
    let wider = broken("wider", "\"hidden_size\": 64", "\"hidden_size\": 128");
    let serve = |args: &[&str]| {
        let out = weighbridge([&["serve", "--port", "0"], args].concat());
        assert!(!out.status.success());
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    let said = serve(&[&named("good", &model("smollm2")), &deeper, &wider, "--ctx", "256"]);
    assert!(said.contains("layers.2.") && said.contains("128"), "{said}");
    let said = serve(&["a=/nowhere/a", "b=/nowhere/b", &named("good", &model("smollm2"))]);
    assert!(said.contains("/nowhere/a") && said.contains("/nowhere/b"), "{said}");
}

#[test]
fn models_that_do_not_fit_together_take_turns() {
    let (a, b) = (named("a", &model("smollm2")), named("b", &model("smollm2")));
    let room = {
        let server = Server::of(Path::new(&a), &["--ctx", "512"]);
        bytes(&server, "a") * 8 / 5
    };
    let memory = room.to_string();
    let server = Server::of(Path::new(&a), &[&b, "--ctx", "512", "--memory", &memory]);
    // The other one would be read from its file for each token.
    assert_eq!(states(&server), ["loaded", "unloaded"]);
    let long = alone(QUESTION, 120, false);
    let body = json!({"model": "a", "messages": [{"role": "user", "content": QUESTION}], "temperature": 0,
                      "max_tokens": 120, "stream": true});
    let mut stream = server.begin("/v1/chat/completions", &body);
    let mut text = vec![0; 300];
    stream.read_exact(&mut text).unwrap();
    // It comes when the answer of the other has ended; who asks for the other meanwhile waits in turn. A wrong name loads nothing.
    assert_eq!(chat(&server, "c", 1).0, 404);
    thread::scope(|scope| {
        let server = &server;
        let asked = [("b", 8), ("a", 8), ("b", 9)].map(|(name, tokens)| {
            thread::sleep(Duration::from_millis(30));
            scope.spawn(move || (tokens, chat(server, name, tokens)))
        });
        let mut rest = String::new();
        // The connection stays open: the end of the stream is its mark.
        let mut piece = [0; 1024];
        while !rest.contains("[DONE]") {
            let n = stream.read(&mut piece).unwrap();
            assert!(n > 0, "{rest}");
            rest.push_str(std::str::from_utf8(&piece[..n]).unwrap());
        }
        let all = String::from_utf8(text).unwrap() + &rest;
        assert_eq!(streamed(&all), long);
        for one in asked {
            let (tokens, (status, answer)) = one.join().unwrap();
            assert_eq!(status, 200, "{answer}");
            assert_eq!(answer["choices"][0]["message"]["content"], alone(QUESTION, tokens, false));
        }
    });
    assert_eq!(states(&server).iter().filter(|state| *state == "loaded").count(), 1);
}

#[test]
fn a_model_that_nobody_uses_leaves_memory_and_comes_back() {
    let path = model("smollm2");
    let wanted = alone(QUESTION, 12, false);
    let server = Server::of(&path, &["--ctx", "512", "--idle", "1"]);
    for _ in 0..2 {
        let (status, answer) = chat(&server, "smollm2", 12);
        assert_eq!((status, &answer["choices"][0]["message"]["content"]), (200, &json!(wanted)), "{answer}");
        let since = Instant::now();
        while states(&server) != ["unloaded"] {
            assert!(since.elapsed() < Duration::from_secs(20), "it stays");
            thread::sleep(Duration::from_millis(100));
        }
        assert!(get(&server, "/api/ps")["models"].as_array().unwrap().is_empty());
        // The server still knows the facts that loading told.
        assert_eq!(get(&server, "/v1/models")["data"][0]["meta"]["n_ctx"], 512);
        let (_, _, metrics) = server.ask("GET", "/metrics", "", "");
        assert!(metrics.contains("model_loaded{model=\"smollm2\"} 0"), "{metrics}");
    }
    let (_, _, metrics) = server.ask("GET", "/metrics", "", "");
    let name = "weighbridge_model_loads_total{model=\"smollm2\"} ";
    let loads = metrics.lines().find_map(|line| line.strip_prefix(name));
    assert!(loads.unwrap().parse::<u32>().unwrap() >= 2, "{metrics}");
}

#[test]
fn files_that_have_changed_are_read_anew_behind_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    std::fs::copy(model("smollm2"), &path).unwrap();
    let server = Server::of(&path, &["--ctx", "512", "--api-key", "k"]);
    let key = "Authorization: Bearer k\r\n";
    let ask = |path: &str, body: &Value| {
        let (status, _, text) = server.ask("POST", path, key, &body.to_string());
        (status, serde_json::from_str::<Value>(&text).unwrap())
    };
    let vocab = || {
        let (_, _, text) = server.ask("GET", "/v1/models", key, "");
        serde_json::from_str::<Value>(&text).unwrap()["data"][0]["meta"]["n_vocab"].as_u64().unwrap()
    };
    let own = vocab();
    assert_eq!(server.ask("POST", "/models/reload", "", r#"{"model": "m"}"#).0, 401);
    let (status, answer) = ask("/models/reload", &json!({"model": "other", "more": 1}));
    assert!(status == 400 && answer.to_string().contains("more"), "{answer}");

    // A text that runs goes on with the old weights.
    let long = alone(QUESTION, 100, true);
    let body = json!({"prompt": QUESTION, "temperature": 0, "max_tokens": 100});
    thread::scope(|scope| {
        let running = scope.spawn(|| ask("/v1/completions", &body));
        thread::sleep(Duration::from_millis(300));
        let new = folder.path().join("new.gguf");
        std::fs::copy(model("gemma3"), &new).unwrap();
        std::fs::rename(&new, &path).unwrap();
        let (status, answer) = ask("/models/reload", &json!({"model": "m"}));
        assert_eq!((status, answer), (200, json!({"success": true, "weights": 2})));
        let (_, answer) = running.join().unwrap();
        assert_eq!(answer["choices"][0]["text"], long);
    });
    assert_ne!(vocab(), own);
    let gemma = model("gemma3");
    let args = [
        "run",
        gemma.to_str().unwrap(),
        "-p",
        QUESTION,
        "-n",
        "8",
        "--temperature",
        "0",
        "--raw",
        "--ctx",
        "512",
    ];
    let wanted = stdout(&weighbridge(args));
    let body = json!({"prompt": QUESTION, "temperature": 0, "max_tokens": 8});
    assert_eq!(ask("/v1/completions", &body).1["choices"][0]["text"], wanted);

    // A file that cannot be read takes nothing away.
    let broken = folder.path().join("broken.gguf");
    std::fs::write(&broken, b"GGUF, but not really").unwrap();
    std::fs::rename(&broken, &path).unwrap();
    let (status, answer) = ask("/models/reload", &json!({"model": "m"}));
    assert_eq!((status, &answer["error"]["code"]), (503, &json!("model_not_loaded")), "{answer}");
    assert_eq!(ask("/v1/completions", &body).1["choices"][0]["text"], wanted);
    // Out of memory, it is gone.
    assert_eq!(ask("/models/unload", &json!({"model": "m"})).0, 200);
    assert_eq!(ask("/models/load", &json!({"model": "m"})).0, 503);
    assert_eq!(ask("/v1/completions", &body).0, 503);
    let back = folder.path().join("back.gguf");
    std::fs::copy(&gemma, &back).unwrap();
    std::fs::rename(&back, &path).unwrap();
    // It is not tried again at once, unless somebody says so.
    assert_eq!(ask("/v1/completions", &body).0, 503);
    assert_eq!(ask("/models/load", &json!({"model": "m"})).0, 200);
    assert_eq!(ask("/v1/completions", &body).1["choices"][0]["text"], wanted);
}

#[test]
fn answers_go_on_with_new_weights() {
    let folder = tempfile::tempdir().unwrap();
    let (path, own, other) =
        (folder.path().join("m.gguf"), model("smollm2"), folder.path().join("other.gguf"));
    let names = [own.to_str().unwrap(), other.to_str().unwrap()];
    let args = ["convert", names[0], names[1], "--preset", "q3_k_m", "--allow-requantize"];
    assert!(weighbridge(args).status.success());
    let put = |from: &Path| {
        let new = folder.path().join("new.gguf");
        std::fs::copy(from, &new).unwrap();
        std::fs::rename(&new, &path).unwrap();
    };
    let key = "Authorization: Bearer k\r\n";
    // A text that no model ends soon.
    let counting = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,";
    let body = |tokens: u32| json!({"prompt": counting, "temperature": 0, "max_tokens": tokens});
    // With room for both, and without.
    for memory in [&[][..], &["--memory", "160MB"]] {
        put(&own);
        let server = Server::of(&path, &[&["--ctx", "512", "--api-key", "k"], memory].concat());
        let ask = |path: &str, body: &Value| {
            let (status, _, text) = server.ask("POST", path, key, &body.to_string());
            (status, serde_json::from_str::<Value>(&text).unwrap())
        };
        let reload = |mode: &str| ask("/models/reload", &json!({"model": "m", "mode": mode}));
        let said = |(status, answer): (u16, Value)| {
            assert_eq!(status, 200, "{answer}");
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (text(&answer["choices"][0]["text"]), text(&answer["system_fingerprint"]))
        };
        // While an answer of `tokens` tokens is made, `act` is done.
        let beside = |tokens: u32, act: &dyn Fn()| {
            thread::scope(|scope| {
                let running = scope.spawn(|| ask("/v1/completions", &body(tokens)));
                thread::sleep(Duration::from_millis(100));
                act();
                running.join().unwrap()
            })
        };
        let (old, made) = said(ask("/v1/completions", &body(400)));
        assert_eq!(made, "weights-1");
        put(&other);
        let (text, made) =
            said(beside(400, &|| assert_eq!(reload("keep"), (200, json!({"success": true, "weights": 2})))));
        assert_eq!(made, "weights-1-2", "{text}");
        let same = text.bytes().zip(old.bytes()).take_while(|(a, b)| a == b).count();
        assert!(same > 0 && text != old, "{same} bytes of {text}");
        let (new, made) = said(ask("/v1/completions", &body(400)));
        assert_eq!(made, "weights-2");
        assert_ne!(new, old);
        // An answer of no tokens has them too.
        assert_eq!(said(ask("/v1/completions", &body(0))), (String::new(), "weights-2".to_owned()));
        assert_eq!(reload("sideways").0, 400);

        // Files of another model are refused: with room, nothing is lost; without, what runs is.
        put(&model("gemma3"));
        let (status, answer) = beside(400, &|| {
            let (status, answer) = reload("keep");
            assert_eq!((status, &answer["error"]["code"]), (409, &json!("other_model")), "{answer}");
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(
                message.contains("the tokenizer is another") && message.contains("`family`"),
                "{message}"
            );
        });
        if memory.is_empty() {
            assert_eq!(said((status, answer)), (new.clone(), "weights-2".to_owned()));
        } else {
            assert_eq!(status, 500, "{answer}");
            assert!(answer.to_string().contains("its new weights could not be loaded"), "{answer}");
        }
        put(&own);
        assert_eq!(reload("keep").0, 200);
        let (text, made) = said(ask("/v1/completions", &body(400)));
        assert_eq!((text, made), (old, "weights-3".to_owned()));
    }
}

#[cfg(unix)]
#[test]
fn a_command_has_a_model_read_anew_through_a_socket() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    let (folder, schemas) = (tempfile::tempdir().unwrap(), Schemas::read());
    let (link, socket) = (folder.path().join("policy.gguf"), folder.path().join("s.sock"));
    let at = socket.to_str().unwrap();
    let pointed = |to: &Path| {
        let new = folder.path().join("new");
        symlink(to, &new).unwrap();
        std::fs::rename(&new, &link).unwrap();
    };
    pointed(&model("smollm2"));
    let nobody = schemas.take("error", 1, &["reload", "--socket", at]);
    assert!(nobody["hint"].as_str().unwrap().contains("--socket"), "{nobody}");
    let policy = PathBuf::from(named("policy", &link));
    let server = Server::of(&policy, &["--ctx", "512", "--socket", at]);
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    // Who has no key cannot do it over the network.
    assert_eq!(server.post("/models/reload", &json!({"model": "policy"})).0, 403);
    let ask = || {
        let body = json!({"prompt": QUESTION, "temperature": 0, "max_tokens": 8});
        let (status, answer) = server.post("/v1/completions", &body);
        assert_eq!(status, 200, "{answer}");
        answer["system_fingerprint"].as_str().unwrap().to_owned()
    };
    assert_eq!(ask(), "weights-1");
    let made = schemas.take("reload", 0, &["reload", "--socket", at, "--keep"]);
    assert_eq!(
        (&made["model"], &made["weights"], &made["kept"]),
        (&json!("policy"), &json!(2), &json!(true))
    );
    assert_eq!(ask(), "weights-2");
    // The link points to another model now, which takes its turn when answers have ended.
    let family = || get(&server, "/v1/models")["data"][0]["meta"]["family"].clone();
    assert_eq!(family(), "llama");
    pointed(&model("gemma3"));
    let other = schemas.take("error", 2, &["reload", "policy", "--socket", at, "--keep"]);
    assert!(other["error"].as_str().unwrap().contains("differ in more than weights"), "{other}");
    let said = stdout(&weighbridge(["reload", "policy", "--socket", at]));
    assert!(said.starts_with("`policy` was read anew in ") && said.ends_with("with weights-3\n"), "{said}");
    assert_eq!(family(), "gemma3");
    let other = schemas.take("error", 2, &["reload", "none", "--socket", at]);
    assert!(other["error"].as_str().unwrap().contains("`none` is not served here"), "{other}");
    // Another server does not take its place, and what is no socket stays.
    let args = ["serve", link.to_str().unwrap(), "--port", "0", "--socket", at];
    let taken = weighbridge(args);
    assert_eq!(taken.status.code(), Some(2), "{}", String::from_utf8_lossy(&taken.stderr));
    assert_eq!(ask(), "weights-3");
    let mine = folder.path().join("mine");
    std::fs::write(&mine, "mine").unwrap();
    let args = ["serve", link.to_str().unwrap(), "--port", "0", "--socket", mine.to_str().unwrap()];
    assert_eq!(weighbridge(args).status.code(), Some(2));
    assert_eq!(std::fs::read(&mine).unwrap(), b"mine");
    // A killed server leaves its socket, which the next one takes; one that is told to end removes it.
    drop(server);
    assert!(socket.exists());
    let mut server = Server::of(&policy, &["--ctx", "512", "--socket", at]);
    assert_eq!(weighbridge(["reload", "--socket", at]).status.code(), Some(0));
    server.terminate();
    assert!(!socket.exists());
}
