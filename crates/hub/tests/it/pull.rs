//! Pulls of a hub that does as it should.

use std::fs;
use std::ops::ControlFlow;
use std::sync::{Arc, Barrier, Mutex};

use weighbridge_hub::HubName;

use crate::mock::{LARGE, Mock, TOKEN, blob, random, sha256};

pub(crate) const MIB: usize = 1 << 20;

pub(crate) fn small() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("README.md", b"# A model".to_vec()),
        ("config.json", br#"{"model_type": "llama"}"#.to_vec()),
        ("1_Pooling/config.json", b"{}".to_vec()),
        ("model.safetensors", random(1, 50_000)),
        ("pytorch_model.bin", random(2, 50_000)),
    ]
}

#[test]
fn a_directory_is_pulled_into_the_layout_of_the_cache() {
    let mock = Mock::new(&small());
    let pulled = mock.pull("hf:o/n").unwrap();
    let commit = "c0".repeat(20);
    let repo = mock.dir.path().join("cache/models--o--n");
    assert_eq!((&pulled.path, &pulled.commit), (&repo.join("snapshots").join(&commit), &commit));
    let paths: Vec<&str> = pulled.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["1_Pooling/config.json", "config.json", "model.safetensors"]);
    assert_eq!((pulled.bytes_downloaded, pulled.bytes_there, pulled.from_cache), (50_025, 0, None));
    let (weights, config) = (random(1, 50_000), br#"{"model_type": "llama"}"#);
    assert_eq!(fs::read(pulled.path.join("model.safetensors")).unwrap(), weights);
    assert_eq!(fs::read(repo.join("blobs").join(blob(config))).unwrap(), config);
    assert_eq!(
        fs::read_link(pulled.path.join("model.safetensors")).unwrap().to_str().unwrap(),
        format!("../../blobs/{}", sha256(&weights))
    );
    assert_eq!(
        fs::read_link(pulled.path.join("1_Pooling/config.json")).unwrap().to_str().unwrap(),
        format!("../../../blobs/{}", blob(b"{}"))
    );
    assert_eq!(fs::read_to_string(repo.join("refs/main")).unwrap(), commit);
    assert!(
        mock.files_of_cache().iter().all(|file| !file.contains("weighbridge")),
        "{:?}",
        mock.files_of_cache()
    );
    let tokens =
        mock.content().asked.iter().filter(|asked| asked.headers.contains_key("authorization")).count();
    assert_eq!(tokens, mock.content().asked.len());

    // Again, nothing but the list is asked for.
    mock.content().asked.clear();
    let again = mock.pull("hf:o/n").unwrap();
    assert_eq!((again.bytes_downloaded, again.bytes_there, mock.content().asked.len()), (0, 50_025, 1));
    // A commit is a revision, and needs no name.
    assert_eq!(mock.pull(&format!("hf:o/n@{commit}")).unwrap().path, pulled.path);
    assert_eq!(fs::read_dir(repo.join("refs")).unwrap().count(), 1);
}

#[test]
fn an_index_names_what_is_pulled() {
    let index = br#"{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}"#;
    let mock = Mock::new(&[
        ("model.safetensors.index.json", index.to_vec()),
        ("model-00001-of-00002.safetensors", random(1, 20_000)),
        ("model-00002-of-00002.safetensors", random(2, 20_000)),
        ("consolidated.safetensors", random(3, 20_000)),
    ]);
    let pulled = mock.pull("hf:o/n").unwrap();
    assert_eq!(pulled.files.len(), 3);
    assert_eq!((pulled.bytes_downloaded, pulled.bytes_there), (40_000 + index.len() as u64, 0));
    assert!(pulled.path.join("model-00002-of-00002.safetensors").exists());
    assert!(!pulled.path.join("consolidated.safetensors").exists());
    let again = mock.pull("hf:o/n").unwrap();
    assert_eq!((again.bytes_downloaded, again.bytes_there), (0, 40_000 + index.len() as u64));
}

#[test]
fn a_quantisation_is_a_file() {
    let mock = Mock::new(&[
        ("q/m-Q8_0-00001-of-00002.gguf", random(1, 30_000)),
        ("q/m-Q8_0-00002-of-00002.gguf", random(2, 30_000)),
        ("m-Q4_K_M.gguf", random(3, 30_000)),
    ]);
    let pulled = mock.pull("hf:o/n/q8_0").unwrap();
    assert!(pulled.path.ends_with("q/m-Q8_0-00001-of-00002.gguf"), "{}", pulled.path.display());
    assert!(pulled.path.with_file_name("m-Q8_0-00002-of-00002.gguf").exists());
    assert_eq!(fs::read(mock.pull("hf:o/n/Q4_K_M").unwrap().path).unwrap(), random(3, 30_000));
    let said = mock.fails("hf:o/n");
    assert!(
        said.starts_with(
            "`o/n` has 2 models: choose one\n  29.3 KiB  hf:o/n/Q4_K_M\n  58.6 KiB  hf:o/n/Q8_0\n"
        ),
        "{said}"
    );
}

/// Large files come in ranges, from another host that must not see the token.
#[test]
fn a_large_file_comes_in_ranges_from_another_host() {
    let weights = random(1, 40 * MIB + 123);
    let cdn = Mock::new(&[("model.safetensors", weights.clone())]);
    let mock = Mock::new(&[("config.json", b"{}".to_vec()), ("model.safetensors", weights.clone())]);
    // Another name of the same machine is another host.
    mock.content().cdn = Some(cdn.address.replace("127.0.0.1", "localhost"));
    let seen = Mutex::new(vec![]);
    let watch = |progress: weighbridge_hub::Progress| {
        seen.lock().unwrap().push(progress);
        ControlFlow::Continue(())
    };
    let pulled = mock.builder().build().pull(&HubName::parse("hf:o/n").unwrap(), &watch).unwrap();
    assert!(fs::read(pulled.path.join("model.safetensors")).unwrap() == weights);
    let asked = &cdn.content().asked;
    assert_eq!(asked.len(), 6);
    for asked in asked {
        assert!(asked.headers.contains_key("range"), "{asked:?}");
        assert!(!asked.headers.contains_key("authorization"), "{asked:?}");
        assert!(!format!("{asked:?}").contains(TOKEN));
    }
    let last = *seen.lock().unwrap().last().unwrap();
    assert_eq!((last.done, last.total), (weights.len() as u64 + 2, weights.len() as u64 + 2));
}

#[test]
fn revisions_move() {
    let mock = Mock::new(&small());
    let first = mock.pull("hf:o/n").unwrap();
    {
        let mut content = mock.content();
        content.commit = "d1".repeat(20);
        content.revisions.push("feature/x".to_owned());
        content.files.insert("config.json".to_owned(), b"{\"new\": 1}".to_vec());
    }
    mock.asked_for_bytes();
    let second = mock.pull("hf:o/n@feature%2Fx").unwrap();
    assert_ne!(first.path, second.path);
    // Weights that are the same are not read again.
    assert_eq!((mock.asked_for_bytes(), second.bytes_downloaded), (1, 10));
    assert_eq!(fs::read(second.path.join("config.json")).unwrap(), b"{\"new\": 1}");
    assert_eq!(fs::read(first.path.join("config.json")).unwrap(), br#"{"model_type": "llama"}"#);
    let refs = mock.dir.path().join("cache/models--o--n/refs");
    assert_eq!(fs::read_to_string(refs.join("feature/x")).unwrap(), "d1".repeat(20));
    assert_eq!(fs::read_to_string(refs.join("main")).unwrap(), "c0".repeat(20));
}

#[test]
fn offline_the_cache_answers() {
    let mock = Mock::new(&small());
    let offline = mock.builder().offline(true).build();
    let pull = |name: &str| offline.pull(&HubName::parse(name).unwrap(), &|_| ControlFlow::Continue(()));
    let error = pull("hf:o/n").unwrap_err().diagnostics().to_string();
    assert!(error.starts_with("`hf:o/n` is not in the cache `"), "{error}");
    assert!(
        error.ends_with("it has no revision `main`\nhint: pull it once while the hub can be reached"),
        "{error}"
    );
    let pulled = mock.pull("hf:o/n").unwrap();
    mock.content().asked.clear();
    let there = pull("hf:o/n").unwrap();
    assert_eq!((&there.path, there.from_cache.as_deref()), (&pulled.path, Some("offline")));
    assert_eq!(there.files.len(), pulled.files.len());
    assert_eq!(pull(&format!("hf:o/n@{}", pulled.commit)).unwrap().path, pulled.path);
    assert!(pull("hf:o/n@other").unwrap_err().to_string().ends_with("it has no revision `other`"));
    let error = pull("hf:o/n/x.gguf").unwrap_err().to_string();
    assert!(error.ends_with("`o/n` has no file `x.gguf`"), "{error}");
    assert!(mock.content().asked.is_empty());
    // A blob that somebody has removed.
    fs::remove_file(fs::canonicalize(pulled.path.join("model.safetensors")).unwrap()).unwrap();
    assert!(pull("hf:o/n").unwrap_err().to_string().contains("has no weights"));
    assert_eq!(mock.pull("hf:o/n").unwrap().bytes_downloaded, 50_000);
}

#[test]
fn without_a_network_the_cache_answers_and_says_so() {
    let mock = Mock::new(&small());
    let pulled = mock.pull("hf:o/n").unwrap();
    // Nobody listens there.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = listener.local_addr().unwrap().to_string();
    drop(listener);
    let hub = mock.builder().endpoint(&format!("http://{nobody}")).build();
    let pull = |name: &str| hub.pull(&HubName::parse(name).unwrap(), &|_| ControlFlow::Continue(()));
    let there = pull("hf:o/n").unwrap();
    assert_eq!(there.path, pulled.path);
    let why = there.from_cache.unwrap();
    assert!(why.starts_with(&format!("cannot reach {nobody}: Connection refused")), "{why}");
    let error = pull("hf:o/other").unwrap_err().diagnostics().to_string();
    assert!(error.starts_with(&format!("cannot reach {nobody}: Connection refused")), "{error}");
    assert!(error.contains("\nhint: check the network"), "{error}");
    // A hub that is down is as one that is not there.
    let mock = mock.with(|_, _| Some(crate::mock::answer(503, &[], "")));
    assert_eq!(
        mock.pull("hf:o/n").unwrap().from_cache.unwrap(),
        format!(
            "{} answers with status 503 for `/api/models/o/n/revision/main`",
            mock.address.trim_start_matches("http://")
        )
    );
}

/// One downloads, the other waits for it.
#[test]
fn two_pulls_at_once() {
    let mock =
        Arc::new(Mock::new(&[("config.json", b"{}".to_vec()), ("model.safetensors", random(5, 30 * MIB))]));
    let start = Arc::new(Barrier::new(2));
    let pull = |mock: Arc<Mock>, start: Arc<Barrier>| {
        std::thread::spawn(move || {
            start.wait();
            mock.pull("hf:o/n").unwrap()
        })
    };
    let both =
        [pull(mock.clone(), start.clone()), pull(mock.clone(), start)].map(|pull| pull.join().unwrap());
    assert_eq!(both[0].path, both[1].path);
    assert_eq!(both[0].bytes_downloaded + both[1].bytes_downloaded, 30 * MIB as u64 + 2);
    // Four ranges and a small file, once.
    assert_eq!(mock.asked_for_bytes(), 5);
    assert!(fs::read(both[0].path.join("model.safetensors")).unwrap() == random(5, 30 * MIB));
}

#[test]
fn a_watcher_stops_a_pull_and_the_next_one_goes_on() {
    let weights = random(7, 64 * MIB);
    let mock = Mock::new(&[("model.safetensors", weights.clone())]);
    let hub = mock.builder().connections(1).build();
    let name = HubName::parse("hf:o/n").unwrap();
    let stop = |progress: weighbridge_hub::Progress| {
        if progress.done > 20 * MIB as u64 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    // A slow server: otherwise all is there before the watcher hears of anything.
    let mock = mock.with(|asked, _| {
        if asked.is_for_bytes() {
            std::thread::sleep(std::time::Duration::from_millis(60));
        }
        None
    });
    let error = hub.pull(&name, &stop).map(|pulled| pulled.path).unwrap_err();
    assert_eq!(error.to_string(), "interrupted");
    assert!(mock.asked_for_bytes() < 8);
    let pulled = hub.pull(&name, &|_| ControlFlow::Continue(())).unwrap();
    let asked = mock.asked_for_bytes();
    assert!((1..=6).contains(&asked), "{asked} of 8 pieces");
    assert_eq!(pulled.bytes_downloaded + pulled.bytes_there, weights.len() as u64);
    assert_eq!(pulled.bytes_downloaded, asked as u64 * 8 * MIB as u64);
    assert!(fs::read(pulled.path.join("model.safetensors")).unwrap() == weights);
    assert!(weights.len() > LARGE);
}
