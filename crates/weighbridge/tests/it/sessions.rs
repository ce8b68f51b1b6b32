//! Many sessions of one model: beside each other, in one batch, forked, and put back.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use weighbridge::engine;
use weighbridge::engine::{KvKind, Logits};
use weighbridge::planner::packed_layout;
use weighbridge::runtime::BackendKind;
use weighbridge::{Batch, Error, LayoutKind, Runtime, RuntimeOptions, Session};

use crate::{argmax, golden};

fn start(path: &Path, backend: BackendKind, layout: LayoutKind, threads: usize) -> Runtime {
    let (layout, threads, context) = (Some(layout), Some(threads), Some(8));
    Runtime::start(path, &RuntimeOptions { backend, layout, threads, context, ..RuntimeOptions::default() })
        .unwrap()
}

fn oracle(model: &str) -> Runtime {
    start(&golden().join(model), BackendKind::Reference, LayoutKind::Canonical, 1)
}

/// `n` tokens, others for each `seed`.
fn tokens(runtime: &Runtime, seed: usize, n: usize) -> Vec<u32> {
    let vocab = runtime.shared().vocab();
    (0..n).map(|i| u32::try_from((i * 7 + seed * 31 + i * i * seed) % vocab).unwrap()).collect()
}

fn session(runtime: &Runtime, capacity: usize) -> Session {
    Session::new(runtime.shared(), KvKind::F16, capacity).unwrap()
}

/// Runs `tokens` in `session` alone: the bits of the logits after each.
fn alone(runtime: &mut Runtime, session: &mut Session, tokens: &[u32]) -> Vec<Vec<u32>> {
    let mut rows = vec![];
    let mut batch = Batch::new();
    batch.add(session, tokens, Logits::All);
    runtime.run(batch, |_, _, logits| rows.push(bits(logits))).unwrap();
    rows
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

/// Models that cover every kind of positions, of norms, of attention and of feed-forward network, floats and blocks.
fn models() -> Vec<PathBuf> {
    let dense = ["gpt2-tiny", "llama-tiny", "gemma3-tiny", "qwen3-tiny", "qwen35-tiny", "phi3-long-tiny"];
    let experts = ["mixtral-tiny", "gpt-oss-tiny", "deepseek3-tiny"];
    let tiny = dense.into_iter().chain(experts).map(|name| golden().join(name));
    tiny.chain([testkit::model("smollm2"), testkit::model("gemma3")]).collect()
}

/// Each session has a history of its own length, and takes a number of tokens of its own: a batch gives each row the bits
/// that its session gives alone, of any number of rows at once.
#[test]
fn a_batch_gives_what_each_session_gives_alone() {
    // Tokens before, and tokens now: together more than one pass holds.
    let long = [(0, 7), (3, 1), (40, 1), (5, 130), (1, 2), (0, 150), (17, 19), (2, 1)];
    let short = [(0, 7), (3, 1), (12, 5), (1, 1)];
    for path in models() {
        let real = !path.starts_with(golden());
        for backend in [BackendKind::Reference, BackendKind::Cpu] {
            let layouts = match backend {
                BackendKind::Reference => vec![LayoutKind::Canonical],
                BackendKind::Cpu => vec![LayoutKind::InPlace, packed_layout().unwrap()],
            };
            for (layout, threads) in layouts.into_iter().flat_map(|layout| [(layout, 1), (layout, 3)]) {
                if backend == BackendKind::Reference && (real || threads > 1) {
                    continue;
                }
                let mut runtime = start(&path, backend, layout, threads);
                // The positions that GPT-2 has learned bound its sessions.
                let learned = path.ends_with("gpt2-tiny");
                let parts = if real || learned { &short[..] } else { &long };
                let mut sessions: Vec<Session> = vec![];
                let mut wanted = vec![];
                let mut now = vec![];
                for (seed, (before, count)) in parts.iter().enumerate() {
                    let history = tokens(&runtime, seed, *before);
                    let mut one = session(&runtime, before + count);
                    let mut other = session(&runtime, before + count);
                    if *before > 0 {
                        alone(&mut runtime, &mut one, &history);
                        alone(&mut runtime, &mut other, &history);
                    }
                    now.push(tokens(&runtime, seed + 100, *count));
                    // Token by token, as in decoding.
                    let each = now[seed].chunks(1).flat_map(|t| alone(&mut runtime, &mut one, t));
                    wanted.push(each.collect::<Vec<_>>());
                    sessions.push(other);
                }
                let mut batch = Batch::new();
                for (session, now) in sessions.iter_mut().zip(&now) {
                    batch.add(session, now, Logits::All);
                }
                let mut next = vec![0; parts.len()];
                let what = format!("{}, {backend:?}, {}, {threads} threads", path.display(), layout.name());
                runtime
                    .run(batch, |part, row, logits| {
                        assert_eq!(row, next[part]);
                        next[part] += 1;
                        assert!(bits(logits) == wanted[part][row], "{what}: part {part}, row {row}");
                    })
                    .unwrap();
                let counts: Vec<usize> = parts.iter().map(|part| part.1).collect();
                assert_eq!(next, counts, "{what}");
            }
        }
    }
}

/// Of a batch, the rows asked for come and no others.
#[test]
fn logits_come_for_the_rows_that_want_them() {
    let mut runtime = oracle("llama-tiny");
    let [mut a, mut b, mut c] = [0, 1, 2].map(|_| session(&runtime, 300));
    let (long, short) = (tokens(&runtime, 1, 280), tokens(&runtime, 2, 40));
    let mut batch = Batch::new();
    batch.add(&mut a, &long, Logits::Last);
    batch.add(&mut b, &short, Logits::None);
    batch.add(&mut c, &short[..20], Logits::All);
    let mut rows = vec![];
    runtime.run(batch, |part, row, _| rows.push((part, row))).unwrap();
    let wanted: Vec<_> = [(0, 279)].into_iter().chain((0..20).map(|row| (2, row))).collect();
    assert_eq!(rows, wanted);
    assert_eq!([a.position(), b.position(), c.position()], [280, 40, 20]);
}

/// The most likely tokens of three prompts, in one batch a step and each alone.
#[test]
fn batched_decoding_chooses_the_same_tokens() {
    let mut runtime = start(&testkit::model("smollm2"), BackendKind::Cpu, packed_layout().unwrap(), 2);
    let prompts: [&[u32]; 3] = [&[504, 3575, 282], &[1, 504], &[28, 57, 1042, 260, 1438]];
    let alone = prompts.map(|prompt| {
        let mut one = session(&runtime, 64);
        let mut found = vec![];
        let mut take = prompt.to_vec();
        for _ in 0..12 {
            let mut batch = Batch::new();
            batch.add(&mut one, &take, Logits::Last);
            let mut next = 0;
            runtime.run(batch, |_, _, logits| next = argmax(logits)).unwrap();
            found.push(next);
            take = vec![next];
        }
        found
    });
    let mut sessions = prompts.map(|_| session(&runtime, 64));
    let mut together = [vec![], vec![], vec![]];
    let mut take = prompts.map(<[u32]>::to_vec);
    for _ in 0..12 {
        let mut batch = Batch::new();
        for (session, take) in sessions.iter_mut().zip(&take) {
            batch.add(session, take, Logits::Last);
        }
        let mut next = [0; 3];
        runtime.run(batch, |part, _, logits| next[part] = argmax(logits)).unwrap();
        for (part, next) in next.into_iter().enumerate() {
            together[part].push(next);
            take[part] = vec![next];
        }
    }
    assert_eq!(alone, together);
}

/// Two sessions take turns, and each gives what it would alone; so do sessions that begin with a snapshot of a common
/// prefix, whatever happens to the snapshot's source.
#[test]
fn sessions_of_one_model_do_not_disturb_each_other() {
    for model in ["gpt2-tiny", "llama-tiny", "gemma3-tiny", "qwen35-tiny"] {
        for backend in [BackendKind::Reference, BackendKind::Cpu] {
            let mut runtime = start(&golden().join(model), backend, LayoutKind::InPlace, 2);
            let prefix = tokens(&runtime, 5, 13);
            let ends = [tokens(&runtime, 6, 11), tokens(&runtime, 7, 9)];
            let whole = ends.each_ref().map(|end| {
                let mut one = session(&runtime, 40);
                alone(&mut runtime, &mut one, &[&prefix[..], end].concat()).split_off(prefix.len())
            });

            let mut turns = [0, 1].map(|_| session(&runtime, 40));
            for session in &mut turns {
                alone(&mut runtime, session, &prefix);
            }
            let mut found = [vec![], vec![]];
            for i in 0..11 {
                for (part, end) in ends.iter().enumerate() {
                    let token = &end[i.min(end.len())..end.len().min(i + 1)];
                    if !token.is_empty() {
                        found[part].extend(alone(&mut runtime, &mut turns[part], token));
                    }
                }
            }
            assert!(found == whole, "{model}, {backend:?}: in turns");

            let mut first = session(&runtime, 40);
            alone(&mut runtime, &mut first, &prefix);
            let snapshot = first.snapshot();
            assert_eq!(snapshot.position(), prefix.len());
            assert_eq!(snapshot.bytes(), first.bytes(), "a page of each layer is copied");
            first.truncate(2);
            alone(&mut runtime, &mut first, &ends[0]);
            drop(first);
            // Sessions of other sizes take it, too.
            let found = [(0, 24), (1, 60)].map(|(part, capacity)| {
                let capacity = if model == "gpt2-tiny" { capacity.min(64) } else { capacity };
                let mut fork = session(&runtime, capacity);
                fork.restore(&snapshot.clone()).unwrap();
                alone(&mut runtime, &mut fork, &ends[part])
            });
            assert!(found == whole, "{model}, {backend:?}: forked");
        }
    }
}

#[test]
fn a_session_goes_on_from_where_it_is_put_back_to() {
    let both = [BackendKind::Reference, BackendKind::Cpu];
    for (model, backend) in ["gemma3-tiny", "qwen35-tiny"].into_iter().flat_map(|m| both.map(|b| (m, b))) {
        let mut runtime = start(&golden().join(model), backend, packed_layout().unwrap(), 2);
        let (history, next) = (tokens(&runtime, 1, 21), tokens(&runtime, 2, 10));
        let mut one = session(&runtime, 64);
        alone(&mut runtime, &mut one, &history);
        let snapshot = one.snapshot();
        let wanted = alone(&mut runtime, &mut one, &next);
        one.restore(&snapshot).unwrap();
        assert_eq!(one.position(), history.len());
        assert!(alone(&mut runtime, &mut one, &next) == wanted, "{model}, {backend:?}: restored");
        one.truncate(0);
        let other = tokens(&runtime, 3, 40);
        alone(&mut runtime, &mut one, &other);
        one.restore(&snapshot).unwrap();
        assert!(alone(&mut runtime, &mut one, &next) == wanted, "{model}, {backend:?}: restored over others");
        if one.truncate(history.len()) == 0 {
            assert!(!runtime.shared().goes_back(), "{model} keeps positions");
            alone(&mut runtime, &mut one, &history);
        }
        assert!(alone(&mut runtime, &mut one, &next) == wanted, "{model}, {backend:?}: truncated");
        // Of a snapshot, linear attention has the last position alone.
        let first = one.restore_first(&snapshot, 5).unwrap();
        assert_eq!(first, if runtime.shared().goes_back() { 5 } else { 0 });
    }
}

/// With one bad part, no session of the batch moves: later steps run as if it had never been requested.
#[test]
fn a_batch_that_is_refused_changes_nothing() {
    for backend in [BackendKind::Reference, BackendKind::Cpu] {
        let mut runtime = start(&golden().join("llama-tiny"), backend, LayoutKind::InPlace, 2);
        let (history, next) = (tokens(&runtime, 1, 9), tokens(&runtime, 2, 3));
        let mut good = session(&runtime, 32);
        let mut small = session(&runtime, 10);
        let mut same = session(&runtime, 32);
        for session in [&mut good, &mut small, &mut same] {
            alone(&mut runtime, session, &history);
        }
        let wanted = alone(&mut runtime, &mut same, &next);

        let another = start(&golden().join("llama-tiny"), backend, LayoutKind::InPlace, 1);
        let mut stranger = session(&another, 32);
        let vocab = u32::try_from(runtime.shared().vocab()).unwrap();
        let refused = |runtime: &mut Runtime, good: &mut Session, bad: &mut Session, tokens: &[u32]| {
            let mut batch = Batch::new();
            batch.add(good, &next, Logits::All);
            batch.add(bad, tokens, Logits::All);
            let was = runtime.run(batch, |_, _, _| panic!("no logits come of a batch that is refused"));
            let Err(Error::Engine(error)) = was else { panic!("{was:?}") };
            error
        };
        let error = refused(&mut runtime, &mut good, &mut small, &[1, vocab]);
        assert!(matches!(error, engine::Error::Token { token, .. } if token == vocab), "{error}");
        let error = refused(&mut runtime, &mut good, &mut small, &[1, 2]);
        assert!(matches!(error, engine::Error::ContextFull { wanted: 11, capacity: 10 }), "{error}");
        assert_eq!(error.hints(), ["ask for more positions"]);
        let error = refused(&mut runtime, &mut good, &mut small, &[]);
        assert!(matches!(error, engine::Error::NoTokens), "{error}");
        let error = refused(&mut runtime, &mut good, &mut stranger, &[1]);
        assert!(matches!(error, engine::Error::OtherModel), "{error}");
        let empty = runtime.run(Batch::new(), |_, _, _| ());
        assert!(matches!(empty, Err(Error::Engine(engine::Error::NoTokens))));
        assert_eq!([good.position(), small.position(), stranger.position()], [9, 9, 0]);

        assert!(matches!(stranger.restore(&good.snapshot()), Err(engine::Error::OtherModel)));
        let mut tiny = session(&runtime, 4);
        assert!(matches!(
            tiny.restore(&good.snapshot()),
            Err(engine::Error::ContextFull { wanted: 9, capacity: 4 })
        ));
        assert_eq!([stranger.position(), tiny.position()], [0, 0]);
        assert!(alone(&mut runtime, &mut good, &next) == wanted, "{backend:?}");
        assert!(alone(&mut runtime, &mut small, &next[..1]) == wanted[..1], "{backend:?}");
    }
}

#[test]
fn a_session_that_cannot_be_is_an_error() {
    let learned = oracle("gpt2-tiny");
    assert!(matches!(
        Session::new(learned.shared(), KvKind::F16, 65),
        Err(engine::Error::Positions { wanted: 65, learned: 64 })
    ));
    let runtime = oracle("llama-tiny");
    for capacity in [1 << 40, usize::MAX / 64, usize::MAX] {
        let error = Session::new(runtime.shared(), KvKind::F16, capacity).unwrap_err();
        assert!(matches!(error, engine::Error::CacheTooLarge { .. }), "{capacity}: {error}");
    }
    assert_eq!(Arc::strong_count(runtime.shared()), 2, "the runner, its session, and nobody else");
}
