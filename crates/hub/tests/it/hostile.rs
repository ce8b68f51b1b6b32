//! Servers that mean harm: nothing is written outside of the cache, and nothing takes for ever.

use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};

use crate::mock::{Mock, answer, random, sha256};
use crate::pull::small;

fn listing(siblings: &str) -> Vec<u8> {
    format!(r#"{{"sha": "{}", "siblings": [{siblings}]}}"#, "c0".repeat(20)).into_bytes()
}

/// Everything that was written lies in the cache.
fn nothing_outside(mock: &Mock) {
    for file in mock.files_of_cache() {
        assert!(
            file.starts_with("cache/models--o--n/")
                || file.starts_with("cache/.locks/")
                || file == "cache/CACHEDIR.TAG",
            "{file}"
        );
    }
}

#[test]
fn names_that_lead_elsewhere() {
    for name in [
        "a/../../../evil.json",
        "/tmp/evil.json",
        "a/../../evil.json",
        "a\\\\..\\\\evil.json",
        "a//b.json",
        "x\\u0000.json",
    ] {
        let mock = Mock::new(&small());
        mock.content().list = Some(listing(&format!(
            r#"{{"rfilename": "model.safetensors", "size": 1}}, {{"rfilename": "{name}", "size": 1}}"#
        )));
        let said = mock.fails("hf:o/n");
        assert!(
            said.contains("wanted the path of a file within the repository, found one that leads elsewhere"),
            "{said}"
        );
        assert!(mock.files_of_cache().is_empty(), "{name}");
    }
}

#[test]
fn commits_and_etags_that_lead_elsewhere() {
    let mock = Mock::new(&small());
    for sha in ["../../../../tmp/x", "main", "", "C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0C0"] {
        mock.content().list = Some(format!(r#"{{"sha": "{sha}", "siblings": []}}"#).into_bytes());
        let said = mock.fails("hf:o/n");
        assert!(said.contains("wanted a commit as `sha`, found"), "{said}");
    }
    mock.content().list = Some(listing(r#"{"rfilename": "model.safetensors", "size": 50000}"#));
    for etag in ["../../evil", "a/b", ".hidden", "", "a\u{7f}b"] {
        let quoted = format!("\"{etag}\"");
        let before = move |asked: &crate::mock::Asked, _| {
            (asked.method == "HEAD").then(|| {
                axum::http::Response::builder()
                    .header(
                        "etag",
                        axum::http::HeaderValue::from_bytes(quoted.as_bytes())
                            .unwrap_or(axum::http::HeaderValue::from_static("/")),
                    )
                    .header("x-linked-size", "50000")
                    .body(Body::empty())
                    .unwrap()
            })
        };
        mock.content().before = Some(Box::new(before));
        let said = mock.fails("hf:o/n");
        assert!(said.contains("wanted an `ETag` that can name a file, found"), "{etag}: {said}");
    }
    nothing_outside(&mock);
}

#[test]
fn an_index_that_names_files_elsewhere() {
    let index = br#"{"weight_map": {"a": "../../../evil.safetensors"}}"#;
    let mock = Mock::new(&[("model.safetensors.index.json", index.to_vec())]);
    let said = mock.fails("hf:o/n");
    assert!(said.starts_with("`o/n` has no file `../../../evil.safetensors`"), "{said}");
    nothing_outside(&mock);
}

#[test]
fn sizes_that_lie() {
    let weights = random(1, 50_000);
    // The list says less and more than what the file has.
    for size in [49_999, 50_001] {
        let mock = Mock::new(&[("model.safetensors", weights.clone())]);
        mock.content().list =
            Some(listing(&format!(r#"{{"rfilename": "model.safetensors", "size": {size}}}"#)));
        let said = mock.fails("hf:o/n");
        assert!(said.contains(&format!("wanted {size} bytes as listed, found 50000")), "{said}");
        nothing_outside(&mock);
    }
    // More bytes arrive than were said.
    let mock = Mock::new(&[("model.safetensors", weights.clone())])
        .with(|asked, _| asked.is_for_bytes().then(|| answer(200, &[], random(1, 60_000))));
    let said = mock.fails("hf:o/n");
    assert!(said.contains("more bytes than the 50000 that were wanted"), "{said}");
    // A digest that is not the list's.
    let mock = Mock::new(&[("model.safetensors", weights)]).with(|asked, _| {
        let etag = format!("\"{}\"", sha256(b"other"));
        (asked.method == "HEAD").then(|| answer(200, &[("etag", &etag), ("x-linked-size", "50000")], ""))
    });
    let said = mock.fails("hf:o/n");
    assert!(said.contains("wanted the `ETag` of the list, "), "{said}");
    // A negative size, and one that is no number.
    for size in ["-1", "1e30", "\"1\"", "[]"] {
        mock.content().list =
            Some(listing(&format!(r#"{{"rfilename": "model.safetensors", "size": {size}}}"#)));
        let said = mock.fails("hf:o/n");
        assert!(said.contains("wanted a list of files, "), "{said}");
    }
    nothing_outside(&mock);
}

/// A body without an end.
struct Endless;

impl HttpBody for Endless {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, std::io::Error>>> {
        std::task::Poll::Ready(Some(Ok(http_body::Frame::data(Bytes::from(vec![b' '; 65536])))))
    }
}

#[test]
fn bodies_without_end() {
    let started = Instant::now();
    let mock = Mock::new(&small())
        .with(|asked, _| asked.path.starts_with("/api").then(|| answer(200, &[], Body::new(Endless))));
    let said = mock.fails("hf:o/n");
    assert!(said.contains("wanted at most 67108864 bytes, found more"), "{said}");
    let mock = Mock::new(&small())
        .with(|asked, _| asked.is_for_bytes().then(|| answer(200, &[], Body::new(Endless))));
    let said = mock.fails("hf:o/n");
    assert!(said.contains("more bytes than the "), "{said}");
    assert!(started.elapsed() < Duration::from_mins(1));
}

#[test]
fn lists_without_measure() {
    let many = (0..1_000_000)
        .map(|n| format!(r#"{{"rfilename":"f{n}.json","size":1}}"#))
        .collect::<Vec<_>>()
        .join(",");
    let mock = Mock::new(&small());
    mock.content().list = Some(listing(&many));
    let said = mock.fails("hf:o/n");
    assert!(said.contains("wanted at most 100000 files, found 1000000"), "{said}");
    for (list, says) in [
        ("[".repeat(1 << 20), "wanted a list of files, "),
        (format!(r#"{{"sha": "x", "more": {}}}"#, "[".repeat(1 << 20)), "wanted a list of files, "),
        (String::new(), "wanted a list of files, EOF"),
        ("<html>".to_owned(), "hint: check that `HF_ENDPOINT` is the address of a hub"),
    ] {
        mock.content().list = Some(list.into_bytes());
        let said = mock.fails("hf:o/n");
        assert!(said.contains(says), "{said}");
        assert!(said.len() < 1000);
    }
    assert!(mock.files_of_cache().is_empty());
}

#[test]
fn redirects_without_end_or_aim() {
    for (to, says) in [
        ("/api/models/o/n/revision/main", "more than 10 redirects"),
        ("file:///etc/passwd", "a redirect to no address"),
        ("http://", "a redirect to no address"),
    ] {
        let mock = Mock::new(&small()).with(move |_, _| Some(answer(302, &[("location", to)], "")));
        let said = mock.fails("hf:o/n");
        assert!(said.contains(says), "{to}: {said}");
    }
    let mock = Mock::new(&small()).with(|_, _| Some(answer(302, &[], "")));
    assert!(mock.fails("hf:o/n").contains("a redirect to no address"));
}

/// What a server says reaches no terminal as it is.
#[test]
fn texts_of_the_server() {
    let mock = Mock::new(&small());
    mock.content().list = Some(listing(
        r#"{"rfilename": "\u001b[31m-Q4_0.gguf", "size": 1}, {"rfilename": "b-Q4_0.gguf", "size": 1}"#,
    ));
    let said = mock.fails("hf:o/n");
    assert!(said.contains("\\u{1b}[31m-Q4_0.gguf") && !said.contains('\u{1b}'), "{said}");
}
