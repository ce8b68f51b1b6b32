//! A small random Whisper: what its encoder makes and its logits equal transformers'.

use std::sync::Arc;

use serde_json::Value;
use weighbridge::engine::backend::{Backend, Cpu, Reference};
use weighbridge::engine::{Batch, KvKind, Logits, Model, Runner, Session};
use weighbridge::planner::packed_layout;
use weighbridge::quant::{Access, Isa};
use weighbridge::{LayoutKind, Pool, describe, open, plan};

use crate::golden;

fn floats(facts: &Value, name: &str) -> Vec<f32> {
    let path = golden().join("whisper-small").join(facts[name]["file"].as_str().unwrap());
    let bytes = std::fs::read(path).unwrap();
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// Largest difference over the largest value.
fn distance(got: &[f32], want: &[f32]) -> f32 {
    assert_eq!(got.len(), want.len());
    let largest = want.iter().fold(0f32, |m, x| m.max(x.abs()));
    got.iter().zip(want).fold(0f32, |m, (g, w)| m.max((g - w).abs())) / largest
}

fn runner(layout: LayoutKind, threads: Option<usize>) -> Runner {
    let checkpoint = open(golden().join("whisper-small")).unwrap();
    let described = describe(&checkpoint).unwrap();
    let mut pool = Pool::new(threads.unwrap_or(1));
    let loaded = plan(&checkpoint, &described, layout).unwrap().load(&mut pool).unwrap();
    let model = Arc::new(Model::new(&loaded, described.architecture().unwrap()).unwrap());
    let backend: Box<dyn Backend> = match threads {
        None => Box::new(Reference::new()),
        Some(_) => Box::new(Cpu::new(pool, Isa::detect().unwrap(), Access::detect(), &model).unwrap()),
    };
    Runner::new(&model, backend).unwrap()
}

#[test]
fn what_is_heard_and_said_is_as_in_transformers() {
    let text = std::fs::read(golden().join("whisper-small").join("expected.json")).unwrap();
    let facts: Value = serde_json::from_slice(&text).unwrap();
    let (mel, encoded, logits) = (floats(&facts, "mel"), floats(&facts, "encoded"), floats(&facts, "logits"));
    let ids: Vec<u32> = serde_json::from_value(facts["input_ids"].clone()).unwrap();
    for layout in [LayoutKind::Canonical, LayoutKind::InPlace, packed_layout().unwrap()] {
        for threads in [None, Some(1), Some(2), Some(3)] {
            let mut runner = runner(layout, threads);
            let what = format!("{}, {threads:?}", layout.name());
            let far = distance(runner.encode(&mel).unwrap(), &encoded);
            assert!(far < 1e-5, "{what}, encoder: {far:e}");
            for (kv, most) in [(KvKind::F32, 1e-5), (KvKind::F16, 1e-2), (KvKind::Int8, 1e-2)] {
                let heard = runner.hear(&mel, kv).unwrap();
                // All at once, one by one as in decoding, and in uneven batches.
                for batch in [ids.len(), 1, 7] {
                    let mut session = Session::new(&Arc::clone(runner.model()), kv, ids.len()).unwrap();
                    session.hear(&heard).unwrap();
                    let mut got = vec![];
                    for ids in ids.chunks(batch) {
                        runner
                            .forward_each(&mut session, ids, |logits| got.extend_from_slice(logits))
                            .unwrap();
                    }
                    let far = distance(&got, &logits);
                    assert!(far < most, "{what}, {kv}, batch {batch}: {far:e}");
                }
            }
        }
    }
}

#[test]
fn sessions_beside_each_other_hear_their_own() {
    let mut runner = runner(packed_layout().unwrap(), Some(2));
    let model = Arc::clone(runner.model());
    let (frames, mels) = model.hears().unwrap();
    let heard: Vec<_> = (1..4u32)
        .map(|n| {
            let mel: Vec<f32> = (0..frames * mels).map(|i| (i as f32 * 0.37 * n as f32).sin()).collect();
            runner.hear(&mel, KvKind::F16).unwrap()
        })
        .collect();
    let tokens: [&[u32]; 3] = [&[3, 17, 98, 50], &[3], &[3, 4, 9, 9, 9, 33, 21]];
    let session = |heard| {
        let mut session = Session::new(&model, KvKind::F16, 16).unwrap();
        session.hear(heard).unwrap();
        session
    };
    let alone: Vec<Vec<f32>> = heard
        .iter()
        .zip(tokens)
        .map(|(heard, tokens)| runner.forward(&mut session(heard), tokens).unwrap().to_vec())
        .collect();
    assert_ne!(alone[0], alone[1]);
    let mut sessions: Vec<Session> = heard.iter().map(session).collect();
    let mut batch = Batch::new();
    for (session, tokens) in sessions.iter_mut().zip(tokens) {
        batch.add(session, tokens, Logits::Last);
    }
    runner.run(batch, |part, _, logits| assert!(logits == alone[part], "part {part}")).unwrap();

    // A snapshot holds the sound that its session heard; another session goes on from it.
    let snapshot = sessions[2].snapshot();
    let mut other = session(&heard[0]);
    other.restore(&snapshot).unwrap();
    let next = runner.forward(&mut other, &[5]).unwrap().to_vec();
    assert!(runner.forward(&mut sessions[2], &[5]).unwrap() == next);
}

#[test]
fn a_session_that_has_heard_nothing_says_so() {
    let mut runner = runner(LayoutKind::Canonical, Some(1));
    let model = Arc::clone(runner.model());
    let mut session = Session::new(&model, KvKind::F32, 8).unwrap();
    let error = runner.forward(&mut session, &[3]).unwrap_err();
    assert_eq!(error.to_string(), "the model transcribes sound, and its session has heard none");
    let error = runner.hear(&[0.0; 24], KvKind::F32).unwrap_err();
    assert_eq!(error.to_string(), "a spectrogram of 2 frames, and the model hears 140 at once");
}
