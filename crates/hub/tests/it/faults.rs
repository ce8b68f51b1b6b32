//! Servers and networks that fail.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};

use crate::mock::{Asked, Mock, TOKEN, answer, random, sha256};
use crate::pull::{MIB, small};

fn is_weights(asked: &Asked) -> bool {
    asked.is_for_bytes() && asked.path.ends_with("model.safetensors")
}

/// A body that breaks off.
fn broken(bytes: Vec<u8>) -> Body {
    let cut = Err(std::io::Error::other("reset"));
    Body::new(Frames(vec![cut, Ok(Bytes::from(bytes))]))
}

/// Frames, last first.
struct Frames(Vec<Result<Bytes, std::io::Error>>);

impl axum::body::HttpBody for Frames {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, std::io::Error>>> {
        std::task::Poll::Ready(self.0.pop().map(|frame| frame.map(http_body::Frame::data)))
    }
}

#[test]
fn a_wrong_digest_is_refused_by_name() {
    let mock = Mock::new(&small()).with(|asked, _| {
        is_weights(asked).then(|| {
            answer(200, &[("etag", &format!("\"{}\"", sha256(&random(1, 50_000))))], random(9, 50_000))
        })
    });
    let said = mock.fails("hf:o/n");
    let (wanted, found) = (sha256(&random(1, 50_000)), sha256(&random(9, 50_000)));
    assert_eq!(
        said,
        format!(
            "`model.safetensors` has the wrong SHA-256: wanted {wanted}, found {found}\nhint: the file was removed; pull it again"
        )
    );
    let left = mock.files_of_cache();
    assert!(!left.iter().any(|file| file.contains(&wanted) && !file.ends_with(".lock")), "{left:?}");
    assert!(!left.iter().any(|file| file.contains("refs/")), "{left:?}");
    mock.content().before = None;
    assert_eq!(
        fs::read(mock.pull("hf:o/n").unwrap().path.join("model.safetensors")).unwrap(),
        random(1, 50_000)
    );
}

#[test]
fn a_wrong_digest_of_git_too() {
    let mock = Mock::new(&small()).with(|asked, _| {
        (asked.is_for_bytes() && asked.path.ends_with("c0/config.json"))
            .then(|| answer(200, &[], vec![b'x'; 23]))
    });
    let said = mock.fails("hf:o/n");
    assert!(said.starts_with("`config.json` has the wrong SHA-1 of git: wanted "), "{said}");
}

/// What an earlier process left may be wrong: then all is read again, once.
#[test]
fn a_part_that_was_damaged_is_begun_anew() {
    let weights = random(3, 20 * MIB);
    let mock = Mock::new(&[("model.safetensors", weights.clone())]);
    let blobs = mock.dir.path().join("cache/models--o--n/blobs");
    fs::create_dir_all(&blobs).unwrap();
    let part = blobs.join(format!("{}.weighbridge.incomplete", sha256(&weights)));
    fs::write(&part, vec![0; 20 * MIB]).unwrap();
    let journal = "weighbridge pieces 1: 20971520 bytes in pieces of 8388608\n0\n1\n";
    fs::write(part.with_extension("pieces"), journal).unwrap();
    let pulled = mock.pull("hf:o/n").unwrap();
    assert!(fs::read(pulled.path.join("model.safetensors")).unwrap() == weights);
    assert_eq!(mock.asked_for_bytes(), 1 + 3);
    assert_eq!(pulled.bytes_downloaded, 20 * MIB as u64);
}

#[test]
fn connections_that_break_are_continued() {
    let weights = random(4, 20 * MIB);
    let (bytes, tries) = (weights.clone(), Arc::new(AtomicUsize::new(0)));
    let counted = tries.clone();
    let mock = Mock::new(&[("config.json", b"{}".to_vec()), ("model.safetensors", weights.clone())]).with(
        move |asked, _| {
            // Each range is sent in four parts, and every fifth request breaks before its first byte.
            let range =
                asked.headers.get("range").filter(|_| is_weights(asked))?.to_str().unwrap().to_owned();
            let (from, to) = range.strip_prefix("bytes=")?.split_once('-')?;
            let (from, to) = (from.parse::<usize>().unwrap(), to.parse::<usize>().unwrap());
            let n = counted.fetch_add(1, Ordering::Relaxed);
            let end = if n % 5 == 4 { from } else { (from + 2 * MIB).min(to + 1) };
            let content = format!("bytes {from}-{to}/{}", bytes.len());
            let whole = end == to + 1;
            let body = bytes[from..end].to_vec();
            Some(answer(206, &[("content-range", &content)], if whole { body.into() } else { broken(body) }))
        },
    );
    let pulled = mock.pull("hf:o/n").unwrap();
    assert!(fs::read(pulled.path.join("model.safetensors")).unwrap() == weights);
    assert!(tries.load(Ordering::Relaxed) >= 10);
    assert_eq!(pulled.bytes_downloaded, 20 * MIB as u64 + 2);
}

#[test]
fn a_server_that_always_breaks_is_given_up() {
    let mock =
        Mock::new(&small()).with(|asked, _| is_weights(asked).then(|| answer(200, &[], broken(vec![]))));
    let said = mock.fails("hf:o/n");
    assert!(said.starts_with("cannot reach HUB: "), "{said}");
    let asked = std::mem::take(&mut mock.content().asked);
    assert_eq!(asked.iter().filter(|asked| is_weights(asked)).count(), 4);
}

#[test]
fn servers_are_asked_again_when_they_say() {
    let mock = Mock::new(&small()).with(|asked, count| match (asked.path.starts_with("/api"), count) {
        (true, 1) => Some(answer(429, &[("retry-after", "1")], "")),
        (false, 1) if is_weights(asked) => Some(answer(503, &[], "")),
        (false, 2) if is_weights(asked) => Some(answer(500, &[], "")),
        _ => None,
    });
    let started = Instant::now();
    mock.pull("hf:o/n").unwrap();
    assert!(started.elapsed() >= Duration::from_secs(1));
    let mock = mock.with(|_, _| Some(answer(429, &[("retry-after", "86400")], "")));
    let other = tempfile::tempdir().unwrap();
    let name = weighbridge_hub::HubName::parse("hf:o/n").unwrap();
    let hub = mock.builder().cache(other.path()).build();
    let error = hub.pull(&name, &|_| std::ops::ControlFlow::Continue(())).map(|p| p.path).unwrap_err();
    let said = error.diagnostics().to_string();
    assert!(said.contains("answers with status 429") && said.contains("\nhint: wait some minutes"), "{said}");
}

/// A server without ranges.
#[test]
fn a_whole_file_instead_of_a_range() {
    let weights = random(6, 20 * MIB);
    let bytes = weights.clone();
    let mock = Mock::new(&[("model.safetensors", weights.clone())]).with(move |asked, count| {
        let body = || if count == 1 { broken(bytes[..3 * MIB].to_vec()) } else { bytes.clone().into() };
        is_weights(asked).then(|| answer(200, &[], body()))
    });
    let pulled = mock.pull("hf:o/n").unwrap();
    assert!(fs::read(pulled.path.join("model.safetensors")).unwrap() == weights);
    assert_eq!((pulled.bytes_downloaded, mock.asked_for_bytes()), (20 * MIB as u64, 2));
}

/// The address of bytes expires, and is asked for again.
#[test]
fn an_address_that_expires() {
    let weights = random(8, 30 * MIB);
    let refused = Arc::new(Mutex::new(0));
    let count = refused.clone();
    let cdn = Mock::new(&[("model.safetensors", weights.clone())]).with(move |_, count_of_path| {
        (count_of_path == 2).then(|| {
            *count.lock().unwrap() += 1;
            answer(403, &[("x-error-code", "GatedRepo")], "")
        })
    });
    let mock = Mock::new(&[("model.safetensors", weights.clone())]);
    mock.content().cdn = Some(cdn.address.clone());
    let pulled = mock.pull("hf:o/n").unwrap();
    assert!(fs::read(pulled.path.join("model.safetensors")).unwrap() == weights);
    assert_eq!(*refused.lock().unwrap(), 1);
    let asked = std::mem::take(&mut mock.content().asked);
    assert_eq!(asked.iter().filter(|asked| asked.method == "HEAD").count(), 2);
}

/// A mirror that answers itself for lists alone.
#[test]
fn a_mirror_that_sends_to_another_hub() {
    let files = [("config.json", b"{}".to_vec()), ("model.safetensors", random(13, 20 * MIB))];
    let other = Mock::new(&files);
    let address = other.address.clone();
    let mock = Mock::new(&files).with(move |asked, _| {
        let location = format!("{address}{}", asked.path);
        asked.path.contains("/resolve/").then(|| answer(308, &[("location", &location)], ""))
    });
    let pulled = mock.pull("hf:o/n").unwrap();
    assert!(fs::read(pulled.path.join("model.safetensors")).unwrap() == files[1].1);
    let asked = &other.content().asked;
    assert!(
        asked.len() >= 6 && asked.iter().all(|asked| !asked.headers.contains_key("authorization")),
        "{asked:?}"
    );
}

/// The server has another file than it said, in the middle of it.
#[test]
fn a_file_that_changes_on_the_way_is_begun_anew() {
    let (old, new) = (random(10, 30 * MIB), random(11, 30 * MIB));
    let list = |bytes: &[u8]| {
        // The list of this server knows no digests.
        format!(
            r#"{{"sha": "{}", "siblings": [{{"rfilename": "model.safetensors", "size": {}}}]}}"#,
            "c0".repeat(20),
            bytes.len()
        )
    };
    let mock = Mock::new(&[("model.safetensors", new.clone())]);
    mock.content().list = Some(list(&new).into_bytes());
    let first = old.clone();
    let mock = mock.with(move |asked, count| {
        let etag = format!("\"{}\"", sha256(&first));
        let size = first.len().to_string();
        if asked.method == "HEAD" && count == 1 {
            return Some(answer(200, &[("etag", &etag), ("x-linked-size", &size)], ""));
        }
        let is_first = is_weights(asked) && count <= 2;
        let range = asked.headers.get("range").filter(|_| is_first)?.to_str().unwrap().to_owned();
        let (from, to) = range.strip_prefix("bytes=")?.split_once('-')?;
        let (from, to) = (from.parse::<usize>().unwrap(), to.parse::<usize>().unwrap());
        let content = format!("bytes {from}-{to}/{size}");
        Some(answer(206, &[("content-range", &content), ("etag", &etag)], first[from..=to].to_vec()))
    });
    let pulled = mock.pull("hf:o/n").unwrap();
    assert!(fs::read(pulled.path.join("model.safetensors")).unwrap() == new);
    let left = mock.files_of_cache();
    assert!(!left.iter().any(|file| file.contains(".weighbridge.")), "{left:?}");
    assert!(!left.iter().any(|file| file.ends_with(&format!("blobs/{}", sha256(&old)))), "{left:?}");
}

/// A file that changes for ever ends, too.
#[test]
fn a_file_that_never_stays_the_same() {
    let bytes = random(12, 20_000);
    let mock = Mock::new(&[("model.safetensors", bytes.clone())]);
    mock.content().list = Some(
        format!(r#"{{"sha": "{}", "siblings": [{{"rfilename": "model.safetensors"}}]}}"#, "c0".repeat(20))
            .into_bytes(),
    );
    let mock = mock.with(move |asked, count| {
        let etag = format!("\"{}\"", sha256(format!("{}{count}", asked.method).as_bytes()));
        let headers = [("etag", etag.as_str()), ("x-linked-size", "20000")];
        asked
            .path
            .contains("resolve")
            .then(|| answer(200, &headers, if asked.method == "HEAD" { vec![] } else { bytes.clone() }))
    });
    let said = mock.fails("hf:o/n");
    assert!(said.contains("the file changes while it is read"), "{said}");
    assert!(!said.contains(TOKEN));
}
