//! Many requests at once: each has the tokens that it has alone, whoever comes and goes.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use testkit::Rng;
use weighbridge::engine::sampler::SamplerOptions;
use weighbridge::engine::schedule::{Bounds, Event, Request, RequestId, Scheduler};
use weighbridge::engine::{self, Batch, KvKind, Limits, Logits, Session, Stats, Stop};
use weighbridge::{Error, Runtime, RuntimeOptions, Sampler};

use crate::golden;

const CONTEXT: usize = 600;

fn start(model: &str, kv: KvKind) -> Runtime {
    start_at(&golden().join(model), kv, None)
}

fn start_at(path: &std::path::Path, kv: KvKind, kv_budget: Option<usize>) -> Runtime {
    let options = RuntimeOptions {
        threads: Some(2),
        context: Some(if path.ends_with("gpt2-tiny") { 64 } else { CONTEXT }),
        kv: Some(kv),
        kv_budget,
        ..RuntimeOptions::default()
    };
    Runtime::start(path, &options).unwrap()
}

/// What is asked, of which requests are made.
#[derive(Clone)]
struct Asked {
    prompt: Vec<u32>,
    tokens: usize,
    options: SamplerOptions,
    tells_prompt: bool,
}

impl Asked {
    fn request(&self, runtime: &Runtime) -> Request {
        Request {
            prompt: self.prompt.clone(),
            sampler: Sampler::new(&self.options, runtime.shared().vocab()).unwrap(),
            tokens: self.tokens,
            end: Box::new(|token| token == 5),
            positions: Some(CONTEXT),
            tells_prompt: self.tells_prompt,
        }
    }

    fn alone(&self, runtime: &mut Runtime) -> (Vec<u32>, Stop) {
        let mut sampler = Sampler::new(&self.options, runtime.shared().vocab()).unwrap();
        let limits = Limits { tokens: self.tokens, end: &|token| token == 5 };
        let mut said = vec![];
        runtime.truncate(0);
        let stats = runtime.generate(&mut sampler, None, &self.prompt, &limits, &mut |sampled| {
            said.push(sampled.token);
            ControlFlow::Continue(())
        });
        (said, stats.unwrap().stop)
    }
}

/// Prompts of one token to many, some of which begin alike.
fn asked(rng: &mut Rng, vocab: usize, count: usize) -> Vec<Asked> {
    let mut number = |below: usize| rng.index(below);
    let mut text = |n: usize| (0..n).map(|_| u32::try_from(number(vocab)).unwrap()).collect::<Vec<_>>();
    let common = text(300);
    (0..count)
        .map(|i| {
            let begin = &common[..[0, 40, 130, 300][i % 4]];
            let prompt = [begin, &text(1 + i * i * 7 % 230)].concat();
            let temperature = if i % 3 == 0 { 0.0 } else { 1.3 };
            let mut options = SamplerOptions { temperature, seed: i as u64, ..SamplerOptions::default() };
            // What was sampled counts, as the prompt does.
            options.penalties.repeat = [1.0, 1.4][i % 2];
            Asked { prompt, tokens: 1 + i * 5 % 30, options, tells_prompt: i % 4 == 1 }
        })
        .collect()
}

#[derive(Default)]
struct Told {
    said: BTreeMap<RequestId, Vec<u32>>,
    done: BTreeMap<RequestId, Stats>,
    /// Tokens of prompts with the logits before them.
    prompts: BTreeMap<RequestId, Vec<(u32, Vec<f32>)>>,
    ends: BTreeMap<RequestId, u32>,
}

impl Told {
    fn take(&mut self, id: RequestId, event: Event<'_>) -> ControlFlow<Stop> {
        match event {
            Event::Prompt(sampled) => {
                self.prompts.entry(id).or_default().push((sampled.token, sampled.logits.to_vec()));
            }
            Event::Token(sampled) => self.said.entry(id).or_default().push(sampled.token),
            Event::End(sampled) => {
                assert!(sampled.logits[sampled.token as usize].is_finite());
                assert_eq!(self.ends.insert(id, sampled.token), None, "{id:?} ended twice");
            }
            Event::Done(stats) => assert!(self.done.insert(id, stats).is_none(), "{id:?} ended twice"),
            Event::Failed(error) => panic!("{id:?}: {error}"),
        }
        ControlFlow::Continue(())
    }
}

#[test]
fn each_request_has_the_tokens_that_it_has_alone() {
    for model in
        ["llama-tiny", "gemma3-tiny", "mixtral-tiny", "deepseek3-tiny", "phi3-long-tiny", "qwen35-tiny"]
    {
        for (kv, kv_budget) in
            [(KvKind::F16, None), (KvKind::Int8, None), (KvKind::F16, Some(80)), (KvKind::Int8, Some(200))]
        {
            let mut runtime = start_at(&golden().join(model), kv, kv_budget);
            let mut rng = Rng(7);
            let asked = asked(&mut rng, runtime.shared().vocab(), 26);
            let session = runtime.session().bytes() as u64;
            // Places for six and room for texts that are kept; or places for seven and memory for six.
            let (sequences, memory) = if kv == KvKind::F16 { (6, 9) } else { (7, 6) };
            let bounds = Bounds { sequences, waiting: 30, bytes: session * memory, kv_budget };
            let mut scheduler = Scheduler::new(kv, bounds);
            let (mut told, mut ids, mut cancelled) = (Told::default(), vec![], vec![]);
            let mut steps = 0;
            while ids.len() < asked.len() || !scheduler.is_idle() {
                // Some come at once, and others while these run.
                let come = if ids.is_empty() { 4 } else { rng.index(3) };
                for asked in &asked[ids.len()..asked.len().min(ids.len() + come)] {
                    ids.push(runtime.submit(&mut scheduler, asked.request(&runtime)).unwrap());
                }
                if steps % 9 == 8 {
                    let id = ids[rng.index(ids.len())];
                    if !told.done.contains_key(&id) && scheduler.cancel(id) {
                        cancelled.push(id);
                    }
                }
                runtime.step(&mut scheduler, &mut |id, event| told.take(id, event)).unwrap();
                assert!(scheduler.running() <= 6, "as many as there is memory for");
                steps += 1;
            }
            let mut known = 0;
            for (id, asked) in ids.iter().zip(&asked) {
                let said = told.said.remove(id).unwrap_or_default();
                let stats = told.done[id];
                let (alone, stop) = asked.alone(&mut runtime);
                let what = format!("{model}, {kv}, {kv_budget:?}, {id:?} of {} tokens", asked.prompt.len());
                if stats.stop == Stop::Interrupted {
                    assert!(cancelled.contains(id) && alone.starts_with(&said), "{what}");
                } else {
                    assert_eq!((said, stats.stop), (alone, stop), "{what}, {stats:?}");
                    assert_eq!(stats.prompt_tokens, asked.prompt.len());
                    let end = (stop == Stop::EndOfText).then_some(5);
                    assert_eq!(told.ends.remove(id), end, "{what}");
                }
                known += stats.known_tokens;
                let prompt = told.prompts.remove(id).unwrap_or_default();
                if !asked.tells_prompt || stats.stop == Stop::Interrupted {
                    assert!(asked.tells_prompt || prompt.is_empty(), "{what}");
                    continue;
                }
                let mut wanted = vec![];
                runtime.truncate(0);
                runtime.forward_each(&asked.prompt, |logits| wanted.push(logits.to_vec())).unwrap();
                wanted.pop();
                assert_eq!(
                    prompt,
                    asked.prompt[1..].iter().copied().zip(wanted).collect::<Vec<_>>(),
                    "{what}"
                );
            }
            assert!(cancelled.len() > 1, "{model}, {kv}, {kv_budget:?}");
            // A window is seldom reached back to, nor are positions before codes were made of them; linear attention goes on from
            // the end of a text alone.
            let seldom = kv == KvKind::Int8 || ["gemma3-tiny", "qwen35-tiny"].contains(&model);
            assert!(known > 100 || seldom, "{model}, {kv}, {kv_budget:?}: {known}");
        }
    }
}

/// Nobody waits for the whole of a long prompt: who is continued has a token of every step, and a short prompt that comes
/// after the long one is answered before it.
#[test]
fn a_long_prompt_holds_nobody_up() {
    let mut runtime = start("llama-tiny", KvKind::F16);
    let of = |n: u32, tokens| Asked {
        prompt: (0..n).map(|i| 7 + i % 50).collect(),
        tokens,
        options: SamplerOptions { temperature: 0.0, bias: vec![(5, -100.0)], ..SamplerOptions::default() },
        tells_prompt: false,
    };
    let mut scheduler =
        Scheduler::new(KvKind::F16, Bounds { sequences: 8, waiting: 8, bytes: 1 << 30, kv_budget: None });
    let first = runtime.submit(&mut scheduler, of(3, 100).request(&runtime)).unwrap();
    let mut told = Told::default();
    runtime.step(&mut scheduler, &mut |id, event| told.take(id, event)).unwrap();
    let long = runtime.submit(&mut scheduler, of(590, 2).request(&runtime)).unwrap();
    let short = runtime.submit(&mut scheduler, of(20, 2).request(&runtime)).unwrap();
    for step in 2..5 {
        runtime.step(&mut scheduler, &mut |id, event| told.take(id, event)).unwrap();
        assert_eq!(told.said[&first].len(), step, "a token of every step");
        if step == 2 {
            assert!(told.said.contains_key(&short) && !told.said.contains_key(&long));
        }
    }
    assert!(told.done.contains_key(&short) && told.said.contains_key(&long));
}

#[test]
fn what_cannot_run_is_refused_at_once() {
    let runtime = start("gpt2-tiny", KvKind::F16);
    let asked = |prompt: Vec<u32>, tokens| Asked {
        prompt,
        tokens,
        options: SamplerOptions::default(),
        tells_prompt: false,
    };
    let bounds =
        Bounds { sequences: 1, waiting: 1, bytes: runtime.session().bytes() as u64, kv_budget: None };
    let mut scheduler = Scheduler::new(KvKind::F16, bounds);
    let mut submit = |asked: Asked, positions| {
        let request = Request { positions, ..asked.request(&runtime) };
        runtime.submit(&mut scheduler, request)
    };
    let refused = |result: Result<RequestId, Error>| match result {
        Err(Error::Engine(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(matches!(refused(submit(asked(vec![], 1), None)), engine::Error::NoTokens));
    assert!(matches!(
        refused(submit(asked(vec![1, 60_000], 1), None)),
        engine::Error::Token { token: 60_000, .. }
    ));
    assert!(matches!(
        refused(submit(asked(vec![1; 30], 40), None)),
        engine::Error::Positions { wanted: 70, .. }
    ));
    assert!(matches!(refused(submit(asked(vec![1; 30], 40), Some(20))), engine::Error::ContextFull { .. }));
    submit(asked(vec![1; 3], 4), None).unwrap();
    submit(asked(vec![1; 3], 4), None).unwrap();
    let full = refused(submit(asked(vec![1; 3], 4), None));
    assert_eq!(full.to_string(), "2 requests are waiting already");
}

/// A model of other weights and the same shapes as `model`: its matrices are turned upside down, row by row.
fn turned(model: &str, dir: &std::path::Path) -> std::path::PathBuf {
    let (from, to) = (golden().join(model), dir.join(model));
    std::fs::create_dir(&to).unwrap();
    std::fs::copy(from.join("config.json"), to.join("config.json")).unwrap();
    let bytes = std::fs::read(from.join("model.safetensors")).unwrap();
    let source = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let rows = |view: &safetensors::tensor::TensorView<'_>| -> Vec<u8> {
        match view.shape() {
            [rows, ..] if view.shape().len() > 1 => {
                view.data().chunks_exact(view.data().len() / rows).rev().flatten().copied().collect()
            }
            _ => view.data().to_vec(),
        }
    };
    let other: Vec<_> =
        source.iter().map(|(name, view)| (name, view.dtype(), view.shape().to_vec(), rows(&view))).collect();
    let views = other.iter().map(|(name, dtype, shape, data)| {
        (name, safetensors::tensor::TensorView::new(*dtype, shape.clone(), data).unwrap())
    });
    safetensors::serialize_to_file(views, None, &to.join("model.safetensors")).unwrap();
    to
}

#[test]
fn requests_go_on_with_other_weights() {
    let dir = tempfile::tempdir().unwrap();
    for model in ["llama-tiny", "gemma3-tiny", "qwen35-tiny"] {
        let mut changed = 0;
        for steps in [0, 1, 2, 5, 9, 14, 20] {
            let mut old = start(model, KvKind::F16);
            let other = dir.path().join(format!("{model}-{steps}"));
            std::fs::create_dir(&other).unwrap();
            let mut new = start_at(&turned(model, &other), KvKind::F16, None);
            let vocab = old.shared().vocab();
            let all = asked(&mut Rng(steps), vocab, 9);
            let bounds = Bounds { sequences: 6, waiting: 9, bytes: 1 << 30, kv_budget: None };
            let mut scheduler = Scheduler::new(KvKind::F16, bounds);
            let mut told = Told::default();
            let ids: Vec<_> =
                all.iter().map(|asked| old.submit(&mut scheduler, asked.request(&old)).unwrap()).collect();
            for _ in 0..steps {
                old.step(&mut scheduler, &mut |id, event| told.take(id, event)).unwrap();
            }
            let before = told.said.clone();
            let (waiting, running) = (scheduler.waiting(), scheduler.running());
            let suspended = scheduler.suspend();
            assert_eq!(suspended.running(), running);
            drop(old);
            let mut scheduler = new.resume(suspended).unwrap();
            assert_eq!((scheduler.waiting(), scheduler.running()), (waiting, running));
            while !scheduler.is_idle() {
                new.step(&mut scheduler, &mut |id, event| told.take(id, event)).unwrap();
            }
            for (asked, id) in all.iter().zip(ids) {
                let said = told.said.get(&id).cloned().unwrap_or_default();
                let kept = before.get(&id).cloned().unwrap_or_default();
                assert!(said.starts_with(&kept));
                assert_eq!(
                    told.prompts.get(&id).map_or(0, Vec::len),
                    if asked.tells_prompt { asked.prompt.len() - 1 } else { 0 }
                );
                assert!(told.done.contains_key(&id));
                // As the new model goes on from this text, with a sampler that has chosen what was said.
                let rest = asked.tokens - kept.len();
                if asked.options.temperature > 0.0 || rest == 0 || told.ends.contains_key(&id) && said == kept
                {
                    continue;
                }
                let prompt = [&asked.prompt[..], &kept].concat();
                let alone = Asked { prompt, tokens: rest, ..asked.clone() };
                assert_eq!(said[kept.len()..], alone.alone(&mut new).0, "{model} after {steps} steps");
                changed += usize::from(!kept.is_empty());
            }
        }
        assert!(changed > 1, "{model}: {changed} answers went on");
    }
}

/// The most likely token after `tokens`.
fn next(runtime: &mut Runtime, session: &mut Session, tokens: &[u32]) -> u32 {
    let (mut batch, mut next) = (Batch::new(), 0);
    batch.add(session, tokens, Logits::Last);
    let most = |logits: &[f32]| logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0;
    runtime.run(batch, |_, _, logits| next = u32::try_from(most(logits)).unwrap()).unwrap();
    next
}

/// Returns what the model says after `prompt`, of which it keeps `budget` positions, and after `said`.
fn thinned(runtime: &mut Runtime, budget: usize, prompt: &[u32], said: &[u32], tokens: usize) -> Vec<u32> {
    let mut session = Session::new(runtime.shared(), KvKind::F16, CONTEXT).unwrap();
    session.set_kv_budget(Some(budget)).unwrap();
    let mut token = next(runtime, &mut session, prompt);
    runtime.evict(&mut session).unwrap();
    assert_eq!(session.kv_budget(), Some(budget));
    if !said.is_empty() {
        token = next(runtime, &mut session, said);
    }
    let mut all = said.to_vec();
    while all.len() < tokens {
        all.push(token);
        token = next(runtime, &mut session, &[token]);
    }
    all
}

/// A prompt is thinned where it ended, also where its text is run again with other weights and goes on behind it.
#[test]
fn prompts_are_thinned_at_their_ends_with_other_weights_too() {
    let dir = tempfile::tempdir().unwrap();
    let (model, budget) = ("llama-tiny", 70);
    let other = turned(model, dir.path());
    let mut differ = 0;
    for steps in [0, 1, 3, 4, 8] {
        let [mut old, mut new] =
            [golden().join(model), other.clone()].map(|path| start_at(&path, KvKind::F16, Some(budget)));
        let mut all = asked(&mut Rng(steps), old.shared().vocab(), 5);
        for (n, asked) in all.iter_mut().enumerate() {
            *asked = Asked {
                tokens: 12,
                options: SamplerOptions { temperature: 0.0, ..SamplerOptions::default() },
                ..asked.clone()
            };
            asked.tells_prompt = n == 1;
        }
        let bounds = Bounds { sequences: 4, waiting: 9, bytes: 1 << 30, kv_budget: Some(budget) };
        let (mut scheduler, mut told) = (Scheduler::new(KvKind::F16, bounds), Told::default());
        let request = |asked: &Asked| Request { end: Box::new(|_| false), ..asked.request(&old) };
        let requests: Vec<_> = all.iter().map(request).collect();
        let ids: Vec<_> =
            requests.into_iter().map(|request| old.submit(&mut scheduler, request).unwrap()).collect();
        for _ in 0..steps {
            old.step(&mut scheduler, &mut |id, event| told.take(id, event)).unwrap();
        }
        let before = told.said.clone();
        let mut scheduler = new.resume(scheduler.suspend()).unwrap();
        while !scheduler.is_idle() {
            new.step(&mut scheduler, &mut |id, event| told.take(id, event)).unwrap();
        }
        for (asked, id) in all.iter().zip(ids) {
            let kept = before.get(&id).cloned().unwrap_or_default();
            let wanted = thinned(&mut new, budget, &asked.prompt, &kept, asked.tokens);
            assert_eq!(told.said[&id], wanted, "{id:?} of {} tokens after {steps} steps", asked.prompt.len());
            differ += usize::from(wanted != thinned(&mut new, CONTEXT, &asked.prompt, &kept, asked.tokens));
        }
    }
    assert!(differ > 3, "{differ} answers are others than with all positions");
}
