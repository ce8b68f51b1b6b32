//! Sessions in files: what is read goes on as what was written would have, bit for bit, and nothing else is taken.

use std::path::Path;

use weighbridge::engine::{Batch, Error, KvKind, Logits, OBSERVED, SavedProblem, Session, Snapshot};
use weighbridge::runtime::BackendKind;
use weighbridge::{Runtime, RuntimeOptions};

use crate::golden;

fn start(model: &Path, backend: BackendKind, threads: usize) -> Runtime {
    let options =
        RuntimeOptions { backend, threads: Some(threads), context: Some(16), ..RuntimeOptions::default() };
    Runtime::start(model, &options).unwrap()
}

/// Tokens of its vocabulary, any of them.
fn tokens(runtime: &Runtime, seed: u32, count: usize) -> Vec<u32> {
    let vocab = u32::try_from(runtime.shared().vocab()).unwrap();
    (0..u32::try_from(count).unwrap()).map(|i| (seed * 7919 + i * i * 31 + i * 13) % vocab).collect()
}

/// The logits after each of `tokens`.
fn run(runtime: &mut Runtime, session: &mut Session, tokens: &[u32]) -> Vec<Vec<f32>> {
    let (mut batch, mut all) = (Batch::new(), vec![]);
    batch.add(session, tokens, Logits::All);
    runtime.run(batch, |_, _, logits| all.push(logits.to_vec())).unwrap();
    all
}

fn session(runtime: &Runtime, kind: KvKind, capacity: usize) -> Session {
    Session::new(runtime.shared(), kind, capacity).unwrap()
}

#[test]
fn a_session_goes_on_from_a_file_as_if_it_had_not_ended() {
    let dir = tempfile::tempdir().unwrap();
    for model in [
        "gpt2-tiny",
        "llama-tiny",
        "gemma3-tiny",
        "mistral-tiny",
        "gpt-oss-tiny",
        "deepseek3-tiny",
        "qwen35-tiny",
    ] {
        for (backend, kind) in [
            (BackendKind::Reference, KvKind::F32),
            (BackendKind::Cpu, KvKind::F16),
            (BackendKind::Cpu, KvKind::Int8),
            (BackendKind::Cpu, KvKind::Int4),
        ] {
            let path = golden().join(model);
            let [mut first, mut second] = [1, 2].map(|threads| start(&path, backend, threads));
            // At 192 positions a page is about to be read by its codes.
            for len in if model == "gpt2-tiny" { [1, 30, 50] } else { [64, 192, 233] } {
                let what = format!("{model}, {backend:?}, {kind}, {len}");
                let (history, next) = (tokens(&first, 1, len), tokens(&first, 2, 14));
                let mut one = session(&first, kind, len + 14);
                run(&mut first, &mut one, &history);
                let file = dir.path().join(&what);
                let bytes = one.save(&history, &file).unwrap();
                assert_eq!(bytes, file.metadata().unwrap().len(), "{what}");
                let wanted = run(&mut first, &mut one, &next);

                let mut other = session(&second, kind, len + 14);
                let (snapshot, found) = Snapshot::open(&file, &other).unwrap();
                assert_eq!((&found, snapshot.position()), (&history, len), "{what}");
                other.restore(&snapshot).unwrap();
                assert!(run(&mut second, &mut other, &next) == wanted, "{what}");
                // Again: nothing was written into what others share. And from a part of it, if it has that.
                let mut again = session(&second, kind, len + 14);
                let part = again.restore_first(&snapshot, len - 1).unwrap();
                assert_eq!(part == 0, !first.shared().goes_back() || len == 1, "{what}");
                run(&mut second, &mut again, &history[part..]);
                assert!(run(&mut second, &mut again, &next) == wanted, "{what}, from {part}");
            }
        }
    }
}

#[test]
fn what_was_left_out_of_a_prompt_is_left_out_in_its_file() {
    let dir = tempfile::tempdir().unwrap();
    for kind in KvKind::ALL {
        let [mut first, mut second] =
            [1, 2].map(|n| start(&golden().join("gemma3-tiny"), BackendKind::Cpu, n));
        let (prompt, next) = (tokens(&first, 3, 300), tokens(&first, 4, 90));
        let mut one = session(&first, kind, 400);
        one.set_kv_budget(Some(OBSERVED + 40)).unwrap();
        run(&mut first, &mut one, &prompt);
        first.evict(&mut one).unwrap();
        let file = dir.path().join(kind.name());
        one.save(&prompt, &file).unwrap();
        let wanted = run(&mut first, &mut one, &next);
        let mut other = session(&second, kind, 400);
        let (snapshot, _) = Snapshot::open(&file, &other).unwrap();
        other.restore(&snapshot).unwrap();
        assert!(other.has_left_out());
        assert!(run(&mut second, &mut other, &next) == wanted, "{kind}");
    }
}

/// All that is wrong, as it is said.
fn said(file: &Path, session: &Session) -> String {
    let error = Snapshot::open(file, session).unwrap_err();
    let said = error.diagnostics().to_string().replace(&file.display().to_string(), "FILE");
    said.replace(&session.model().digest().to_string()[..12], "ITS OWN")
}

#[test]
fn a_session_of_something_else_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let model = golden().join("llama-tiny");
    let mut runtime = start(&model, BackendKind::Cpu, 1);
    let history = tokens(&runtime, 1, 70);
    let mut one = session(&runtime, KvKind::F16, 100);
    run(&mut runtime, &mut one, &history);
    let file = dir.path().join("saved");
    assert!(matches!(one.save(&history[1..], &file), Err(Error::SavedTokens { wanted: 70, found: 69 })));
    one.save(&history, &file).unwrap();
    // A file that is there is not replaced.
    let before = std::fs::read(&file).unwrap();
    assert!(one.save(&history, &file).is_err());
    assert!(std::fs::read(&file).unwrap() == before);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);

    // A bit of one weight is another.
    let other = dir.path().join("other");
    std::fs::create_dir(&other).unwrap();
    for entry in std::fs::read_dir(&model).unwrap() {
        let entry = entry.unwrap();
        let mut bytes = std::fs::read(entry.path()).unwrap();
        if entry.file_name() == "model.safetensors" {
            *bytes.last_mut().unwrap() ^= 1;
        }
        std::fs::write(other.join(entry.file_name()), bytes).unwrap();
    }
    let stranger = start(&other, BackendKind::Cpu, 1);
    assert_ne!(stranger.shared().digest(), runtime.shared().digest());
    let found = runtime.shared().digest().to_string();
    let refused = said(&file, &session(&stranger, KvKind::Int8, 100)).replace(&found[..12], "ANOTHER");
    insta::assert_snapshot!(refused, @"
    `FILE`: it is of another model: wanted ITS OWN, found ANOTHER
    `FILE`: it is of another form of keys and values: wanted int8, found f16
    hint: a saved session is of one model, prepared in one way: run its text again, and save that to another file
    ");
    // Of the same content under another name it is taken.
    let copy = start(&model, BackendKind::Cpu, 1);
    assert_eq!(copy.shared().digest(), runtime.shared().digest());
    let (snapshot, _) = Snapshot::open(&file, &session(&copy, KvKind::F16, 100)).unwrap();
    assert!(matches!(
        session(&copy, KvKind::F16, 60).restore(&snapshot),
        Err(Error::ContextFull { wanted: 70, capacity: 60 })
    ));
    insta::assert_snapshot!(said(&model.join("model.safetensors"), &one), @"
    `FILE`: it is no saved session
    hint: give the path of a file that a session was saved to
    ");
}

#[test]
fn no_byte_of_a_file_can_be_another() {
    let dir = tempfile::tempdir().unwrap();
    let mut runtime = start(&golden().join("llama-tiny"), BackendKind::Cpu, 1);
    let history = tokens(&runtime, 1, 5);
    let mut one = session(&runtime, KvKind::F16, 100);
    run(&mut runtime, &mut one, &history);
    let file = dir.path().join("saved");
    one.save(&history, &file).unwrap();
    let bytes = std::fs::read(&file).unwrap();
    let header = 8 + usize::try_from(u64::from_le_bytes(*bytes.first_chunk().unwrap())).unwrap();
    let changed = dir.path().join("changed");
    let refused = |bytes: &[u8], what: &str| {
        std::fs::write(&changed, bytes).unwrap();
        let opened = Snapshot::open(&changed, &one);
        assert!(matches!(opened, Err(Error::Saved { .. } | Error::Checkpoint(_))), "{what}: {opened:?}");
    };
    for at in (0..header).chain((header..bytes.len()).step_by(97)) {
        let mut other = bytes.clone();
        other[at] ^= 1 << (at % 7);
        refused(&other, &format!("byte {at} of {}", bytes.len()));
    }
    for len in (0..header).step_by(11).chain([header, bytes.len() - 1]) {
        refused(&bytes[..len], &format!("{len} bytes of {}", bytes.len()));
    }
    refused(&[&bytes[..], &[0]].concat(), "a byte more");
    std::fs::write(&changed, &bytes).unwrap();
    let (snapshot, _) = Snapshot::open(&changed, &one).unwrap();
    assert_eq!(snapshot.position(), 5);
    let mut other = bytes.clone();
    *other.last_mut().unwrap() ^= 1;
    std::fs::write(&changed, &other).unwrap();
    let Err(Error::Saved { problems, .. }) = Snapshot::open(&changed, &one) else { panic!("it was taken") };
    assert!(matches!(&problems[..], [SavedProblem::Damaged { .. }]), "{problems:?}");
}
