//! `serve`: transcripts.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::serve::Server;

/// A Whisper of English alone with weights of no meaning: the one of golden/, with a tokenizer of 23 letters.
fn whisper(dir: &Path) {
    let golden = testkit::golden("models/whisper-small");
    std::fs::copy(golden.join("model.safetensors"), dir.join("model.safetensors")).unwrap();
    let mut config: Value =
        serde_json::from_slice(&std::fs::read(golden.join("config.json")).unwrap()).unwrap();
    let letters: Vec<String> = std::iter::once('Ġ').chain('a'..='v').map(String::from).collect();
    let marks =
        ["<|endoftext|>", "<|startoftranscript|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"];
    let times = (0..71).map(|n| format!("<|{:.2}|>", f64::from(n) * 0.02));
    let special: Vec<String> = marks.iter().map(|mark| (*mark).to_owned()).chain(times).collect();
    assert_eq!(letters.len() + special.len(), 99);
    for (key, value) in
        [("eos_token_id", 23), ("bos_token_id", 23), ("pad_token_id", 23), ("decoder_start_token_id", 24)]
    {
        config[key] = json!(value);
    }
    std::fs::write(dir.join("config.json"), config.to_string()).unwrap();
    let vocab: serde_json::Map<String, Value> =
        letters.iter().enumerate().map(|(id, letter)| (letter.clone(), json!(id))).collect();
    let added: Vec<Value> = special
        .iter()
        .enumerate()
        .map(|(n, text)| {
            json!({"id": letters.len() + n, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
                   "normalized": false, "special": true})
        })
        .collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
                  "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": []},
    });
    std::fs::write(dir.join("tokenizer.json"), tokenizer.to_string()).unwrap();
}

/// A wav of a tone, of 16 bits at 16 kHz.
fn tone(seconds: u32) -> Vec<u8> {
    let count = seconds * 16_000;
    let mut wav = b"RIFF".to_vec();
    wav.extend((36 + count * 2).to_le_bytes());
    wav.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    wav.extend(16_000u32.to_le_bytes());
    wav.extend(32_000u32.to_le_bytes());
    wav.extend(b"\x02\0\x10\0data");
    wav.extend((count * 2).to_le_bytes());
    let sample = |n: u32| if (n / 20).is_multiple_of(2) { 8000i16 } else { -8000 };
    wav.extend((0..count).flat_map(|n| sample(n).to_le_bytes()));
    wav
}

const PATH: &str = "/v1/audio/transcriptions";

fn form(path: &str, headers: &str, file: Option<&[u8]>, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut body = vec![];
    for (name, value) in fields {
        write!(body, "--xyz\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n").unwrap();
    }
    if let Some(file) = file {
        let head =
            "Content-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav";
        write!(body, "--xyz\r\n{head}\r\n\r\n").unwrap();
        body.extend(file);
        body.extend(b"\r\n");
    }
    body.extend(b"--xyz--\r\n");
    let length = body.len();
    let mut request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: multipart/form-data; boundary=xyz\r\n{headers}\
         Content-Length: {length}\r\n\r\n"
    )
    .into_bytes();
    request.extend(body);
    request
}

#[test]
fn a_sound_becomes_text_in_every_form() {
    let dir = tempfile::tempdir().unwrap();
    whisper(dir.path());
    let server = Server::of(dir.path(), &["--alias", "w"]);
    let sound = tone(3);
    let ask = |fields: &[(&str, &str)]| server.raw(&form(PATH, "", Some(&sound), fields));
    let (status, head, body) =
        ask(&[("model", "w"), ("temperature", "0.0"), ("language", "en"), ("prompt", "a b")]);
    assert!(status == 200 && head.contains("content-type: application/json"), "{head} {body}");
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(answer["usage"], json!({"type": "duration", "seconds": 3}));
    let (_, _, body) = ask(&[]);
    let text = serde_json::from_str::<Value>(&body).unwrap()["text"].as_str().unwrap().to_owned();

    let (status, head, body) = ask(&[("response_format", "text")]);
    assert_eq!((status, body.trim_end_matches('\n')), (200, text.as_str()));
    assert!(head.contains("content-type: text/plain"), "{head}");
    let verbose = [("response_format", "verbose_json"), ("timestamp_granularities[]", "segment")];
    let (_, _, body) = ask(&verbose);
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&answer["task"], &answer["language"], &answer["duration"]),
        (&json!("transcribe"), &json!("english"), &json!(3.0))
    );
    assert_eq!(answer["text"], text.as_str());
    let segments = answer["segments"].as_array().unwrap();
    let said: String = segments.iter().map(|segment| segment["text"].as_str().unwrap()).collect();
    assert_eq!(said.trim(), text);
    let (_, _, srt) = ask(&[("response_format", "srt")]);
    assert_eq!(srt.matches(" --> ").count(), segments.len(), "{srt}");
    let (_, head, vtt) = ask(&[("response_format", "vtt")]);
    assert!(vtt.starts_with("WEBVTT\n\n") && head.contains("content-type: text/vtt"), "{vtt}");

    let (_, head, stream) = ask(&[("stream", "true")]);
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    let mut events: Vec<&str> =
        stream.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
    assert_eq!(events.pop(), Some("[DONE]"));
    let events: Vec<Value> = events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let deltas: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
    let done = events.last().unwrap();
    assert_eq!((&done["type"], &done["text"]), (&json!("transcript.text.done"), &json!(deltas)));
    assert_eq!(deltas.trim(), text);
}

#[test]
fn what_cannot_be_heard_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    whisper(dir.path());
    let server = Server::of(dir.path(), &["--sound-limit", "1MiB", "--sound-seconds", "10"]);
    let sound = tone(1);
    for (path, headers, file, fields, status, wanted) in [
        (PATH, "", None, &[][..], 400, "`file`: wanted a sound file"),
        (
            PATH,
            "",
            Some(&b"no sound"[..]),
            &[],
            400,
            "`file`: not a sound file: wanted wav, flac, ogg or mp3",
        ),
        (PATH, "", Some(&sound[..20_000]), &[], 400, "`file`: the wav is cut off"),
        (PATH, "", Some(&tone(11)), &[], 400, "`file`: the sound is longer than 10 s"),
        (PATH, "", Some(&tone(40)), &[], 413, "the form is larger than 1048576 bytes"),
        (PATH, "", Some(&sound), &[("model", "other")], 404, "the model `other` is not served here"),
        (
            PATH,
            "",
            Some(&sound),
            &[("langauge", "en")],
            400,
            "`langauge` is not supported here: did you mean `language`?",
        ),
        (
            PATH,
            "",
            Some(&sound),
            &[("language", "fr")],
            400,
            "`language`: the model does not know the language `fr`",
        ),
        (PATH, "", Some(&sound), &[("temperature", "2")], 400, "`temperature`: wanted a number from 0 to 1"),
        (
            PATH,
            "",
            Some(&sound),
            &[("response_format", "xml")],
            400,
            "`response_format`: wanted `json`, `text`",
        ),
        (
            PATH,
            "",
            Some(&sound),
            &[("timestamp_granularities[]", "word")],
            400,
            "only with `response_format`: `verbose_json`",
        ),
        (
            PATH,
            "",
            Some(&sound),
            &[("stream", "true"), ("response_format", "srt")],
            400,
            "`stream`: only with",
        ),
        (PATH, "Origin: https://evil.example\r\n", Some(&sound), &[], 403, "a page of another origin"),
        (
            "/v1/audio/translations",
            "",
            Some(&sound),
            &[],
            400,
            "the model knows English alone: it cannot translate",
        ),
    ] {
        let (found, _, body) = server.raw(&form(path, headers, file, fields));
        let answer: Value = serde_json::from_str(&body).unwrap_or_else(|e| panic!("{e}: {body}"));
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(found == status && message.contains(wanted), "{found} {message}");
    }
    let (status, body) = server.post(PATH, &json!({}));
    assert!(
        status == 415 && body["error"]["message"].as_str().unwrap().contains("multipart/form-data"),
        "{body}"
    );
    assert_eq!(server.post("/v1/chat/completions", &json!({})).0, 404);
    // The page's own origin is no other one, and the server still hears.
    let own = form(PATH, "Origin: http://localhost\r\n", Some(&sound), &[]);
    assert_eq!(server.raw(&own).0, 200);
}

/// Sounds wait for their turn; one that is left makes room.
#[test]
fn sounds_wait_in_a_queue() {
    let dir = tempfile::tempdir().unwrap();
    whisper(dir.path());
    let server = Server::of(dir.path(), &["--queue", "2"]);
    let sound = tone(60);
    thread::scope(|scope| {
        let all: Vec<_> =
            (0..3).map(|_| scope.spawn(|| server.raw(&form(PATH, "", Some(&sound), &[])).0)).collect();
        for one in all {
            assert_eq!(one.join().unwrap(), 200);
        }
    });
    let request = form(PATH, "", Some(&tone(1500)), &[]);
    let mut left: Vec<_> = (0..3)
        .map(|_| {
            let mut stream = server.connect();
            stream.write_all(&request).unwrap();
            stream
        })
        .collect();
    thread::sleep(Duration::from_millis(300));
    left[0].set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    if left[0].read(&mut [0]).is_err() {
        assert_eq!(server.raw(&form(PATH, "", Some(&tone(1)), &[])).0, 429);
    }
    drop(left);
    thread::sleep(Duration::from_millis(1500));
    assert_eq!(server.raw(&form(PATH, "", Some(&tone(1)), &[])).0, 200);
}
