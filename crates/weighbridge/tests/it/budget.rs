//! Prompts of which a part is kept: logits behind them equal those that KVPress gives (golden/kv_budget.py).

use serde::Deserialize;
use weighbridge::engine::{self, Batch, KvKind, Logits, OBSERVED, Session};
use weighbridge::runtime::BackendKind;
use weighbridge::{Error, Runtime, RuntimeOptions};

use crate::golden;

#[derive(Deserialize)]
struct Case {
    model: String,
    ids: Vec<u32>,
    /// Tokens of the prompt.
    prompt: usize,
    /// Positions that are kept of it.
    kept: usize,
    /// After the last token of the prompt, and after each that follows it.
    logits: Vec<Vec<f32>>,
}

fn cases() -> Vec<Case> {
    serde_json::from_slice(&std::fs::read(testkit::golden("kv_budget.json")).unwrap()).unwrap()
}

fn start(case: &Case, backend: BackendKind, threads: usize) -> Runtime {
    let options = RuntimeOptions {
        backend,
        threads: Some(threads),
        context: Some(case.ids.len()),
        ..RuntimeOptions::default()
    };
    Runtime::start(golden().join(&case.model), &options).unwrap()
}

/// The logits after the prompt, which comes in passes of `pass` tokens, and after each token behind it.
fn logits(case: &Case, runtime: &mut Runtime, kv: KvKind, kept: usize, pass: usize) -> Vec<Vec<f32>> {
    let mut session = Session::new(runtime.shared(), kv, case.ids.len()).unwrap();
    session.set_kv_budget(Some(kept)).unwrap();
    let mut run = |tokens: &[u32], session: &mut Session| {
        let (mut batch, mut last) = (Batch::new(), vec![]);
        batch.add(session, tokens, Logits::Last);
        runtime.run(batch, |_, _, logits| last = logits.to_vec()).unwrap();
        last
    };
    let (prompt, rest) = case.ids.split_at(case.prompt);
    let after = prompt.chunks(pass).map(|tokens| run(tokens, &mut session)).last().unwrap();
    runtime.evict(&mut session).unwrap();
    let mut all = vec![after];
    for token in rest {
        let mut batch = Batch::new();
        batch.add(&mut session, std::slice::from_ref(token), Logits::Last);
        runtime.run(batch, |_, _, logits| all.push(logits.to_vec())).unwrap();
    }
    all
}

/// The largest difference over the largest logit.
fn distance(found: &[Vec<f32>], wanted: &[Vec<f32>]) -> f32 {
    assert_eq!(found.len(), wanted.len());
    let largest = wanted.iter().flatten().fold(0f32, |most, x| most.max(x.abs()));
    let pairs = found.iter().zip(wanted).flat_map(|(found, wanted)| found.iter().zip(wanted));
    pairs.fold(0f32, |most, (found, wanted)| most.max((found - wanted).abs())) / largest
}

#[test]
fn logits_behind_what_is_kept_equal_those_of_kvpress() {
    for case in cases() {
        for backend in [BackendKind::Reference, BackendKind::Cpu] {
            for threads in [1, 3] {
                let mut runtime = start(&case, backend, threads);
                for pass in [case.prompt, 7, 1] {
                    let found = logits(&case, &mut runtime, KvKind::F32, case.kept, pass);
                    let apart = distance(&found, &case.logits);
                    let what = format!("{}, {} of {}", case.model, case.kept, case.prompt);
                    assert!(
                        apart < 1e-4,
                        "{what}, {}, {threads} threads, passes of {pass}: {apart:e}",
                        runtime.backend()
                    );
                }
                // One more or less is something else.
                for other in [case.kept - 1, case.kept + 1, case.prompt].into_iter().filter(|n| *n > OBSERVED)
                {
                    let found = logits(&case, &mut runtime, KvKind::F32, other, case.prompt);
                    assert!(distance(&found, &case.logits) > 1e-4, "{}, {other}", case.model);
                }
            }
        }
    }
}

#[test]
fn what_is_kept_in_fewer_bits_is_nearly_the_same() {
    // A router may take the other of two experts that are nearly as good.
    for case in cases().into_iter().filter(|case| case.model != "gpt-oss-tiny") {
        let mut runtime = start(&case, BackendKind::Cpu, 2);
        for (kind, most) in [(KvKind::F16, 1e-2), (KvKind::Int8, 3e-2)] {
            let found = logits(&case, &mut runtime, kind, case.kept, 40);
            let apart = distance(&found, &case.logits);
            assert!(apart < most, "{}, {kind}: {apart}", case.model);
        }
    }
}

#[test]
fn a_budget_is_said_before_there_are_positions_and_is_large_enough() {
    let case = &cases()[0];
    let mut runtime = start(case, BackendKind::Cpu, 1);
    let mut session = Session::new(runtime.shared(), KvKind::F16, 100).unwrap();
    let error = session.set_kv_budget(Some(OBSERVED)).unwrap_err();
    assert!(matches!(error, engine::Error::KvBudget { wanted: OBSERVED }), "{error}");
    session.set_kv_budget(Some(OBSERVED + 1)).unwrap();
    session.set_kv_budget(None).unwrap();
    let mut batch = Batch::new();
    batch.add(&mut session, &case.ids[..80], Logits::None);
    runtime.run(batch, |_, _, _| ()).unwrap();
    assert!(matches!(session.set_kv_budget(Some(80)), Err(engine::Error::LateKvBudget)));
    // Nothing is left out without a budget.
    let bytes = session.reads(80);
    runtime.evict(&mut session).unwrap();
    assert_eq!(session.reads(80), bytes);
    // All layers of this one have windows.
    let windows = RuntimeOptions { kv_budget: Some(100), ..RuntimeOptions::default() };
    let refused = Runtime::start(golden().join("mistral-tiny"), &windows);
    assert!(matches!(refused, Err(Error::Engine(engine::Error::NoKvBudget))), "{refused:?}");
    let options = RuntimeOptions { kv_budget: Some(1), ..RuntimeOptions::default() };
    let refused = Runtime::start(golden().join(&case.model), &options);
    assert!(matches!(refused, Err(Error::Engine(engine::Error::KvBudget { wanted: 1 }))), "{refused:?}");
}

#[test]
fn a_token_reads_what_was_kept() {
    let case = &cases()[0];
    let mut runtime = start(case, BackendKind::Cpu, 1);
    let mut session = Session::new(runtime.shared(), KvKind::F32, 158).unwrap();
    session.set_kv_budget(Some(70)).unwrap();
    let mut batch = Batch::new();
    batch.add(&mut session, &case.ids[..150], Logits::None);
    runtime.run(batch, |_, _, _| ()).unwrap();
    let before = session.reads(150);
    runtime.evict(&mut session).unwrap();
    // 151 positions, and 71.
    assert_eq!(session.reads(150) * 151, before * 71);
    assert_eq!(session.position(), 150);
    // Into the prompt there is no way back, but to its beginning.
    let snapshot = session.snapshot();
    assert_eq!(session.truncate(149), 0);
    session.restore(&snapshot).unwrap();
    assert_eq!((session.position(), session.reads(150) * 151), (150, before * 71));
}
