//! The token loop allocates nothing: a binary of its own, since it counts what the whole process allocates.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test may stop where it stands")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use testkit::{golden, model};
use weighbridge::engine::draft::{Draft, PromptLookup};
use weighbridge::engine::logprobs::LogProbs;
use weighbridge::engine::sampler::{Dry, MirostatOptions, Penalties, SamplerOptions, Xtc};
use weighbridge::engine::schedule::{Bounds, Event, Request, Scheduler};
use weighbridge::engine::text::{SpecialText, StopStrings};
use weighbridge::engine::{KvKind, Limits};
use weighbridge::planner::packed_layout;
use weighbridge::runtime::BackendKind;
use weighbridge::{LayoutKind, Runtime, RuntimeOptions, Sampler, open};

struct Counting;

static CALLS: AtomicUsize = AtomicUsize::new(0);

/// The process's first thread, which allocates first. After a minute it reports that the test still runs, which allocates too.
static FIRST: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static HERE: Cell<u8> = const { Cell::new(0) };
}

fn count() {
    let here = HERE.with(|here| std::ptr::from_ref(here).addr());
    if FIRST.compare_exchange(0, here, Ordering::Relaxed, Ordering::Relaxed).is_err_and(|first| first != here)
    {
        CALLS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator as it came; counting is all that is added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(p, layout) }
    }
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(p, layout, size) }
    }
}

/// Held by a test while it counts.
static ALONE: Mutex<()> = Mutex::new(());

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Greedy, the usual options, each other sampler, and Mirostat.
fn options() -> [SamplerOptions; 4] {
    let usual = SamplerOptions { seed: 7, ..SamplerOptions::default() };
    let penalties = Penalties { repeat: 1.1, presence: 0.1, frequency: 0.1, last: usize::MAX };
    let dry =
        Dry { multiplier: 0.8, last: usize::MAX, breakers: vec![vec![198], vec![28, 198]], ..Dry::default() };
    [
        SamplerOptions { temperature: 0.0, ..usual.clone() },
        usual.clone(),
        SamplerOptions {
            bias: vec![(5, 1.0)],
            penalties,
            dry,
            top_k: 0,
            typical_p: 0.9,
            xtc: Xtc { probability: 0.5, threshold: 0.1 },
            ..usual.clone()
        },
        SamplerOptions { mirostat: Some(MirostatOptions::default()), ..usual },
    ]
}

#[test]
fn the_token_loop_allocates_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for name in ["smollm2", "gemma3"] {
        for layout in [packed_layout().unwrap(), LayoutKind::InPlace] {
            // The other samplers do not depend on the layout: once is enough.
            let other = name == "smollm2" && layout == LayoutKind::InPlace;
            let samplers = if other { 2..4 } else { 0..2 };
            for sampling in &options()[samplers] {
                let options = RuntimeOptions {
                    backend: BackendKind::Cpu,
                    layout: Some(layout),
                    threads: Some(2),
                    context: Some(256),
                    ..RuntimeOptions::default()
                };
                // The packed smollm2 has itself as its draft.
                let (mut runtime, mut draft_model) = if name == "smollm2" && !other {
                    let [a, b] = [0; 2].map(|_| open(model(name)).unwrap());
                    let (runtime, draft) = Runtime::start_with_draft(a, &options, b, &options).unwrap();
                    (runtime, Some(draft))
                } else {
                    (Runtime::start(model(name), &options).unwrap(), None)
                };
                let vocab = runtime.shared().vocab();
                let mut sampler = Sampler::new(sampling, vocab).unwrap();
                let tokenizer = Arc::clone(runtime.tokenizer().unwrap());
                let mut stream = tokenizer.stream(SpecialText::Shown);
                let (mut stops, mut logprobs) = (StopStrings::new(vec!["b.".to_owned()]), LogProbs::new(5));
                let mut bytes = 0;
                let mut at_token = Vec::with_capacity(64);
                let limits = Limits { tokens: 40, end: &|_| false };
                let mut lookup = PromptLookup::new();
                let draft: Option<&mut dyn Draft> = match &mut draft_model {
                    Some(draft) => Some(draft),
                    None if other => Some(&mut lookup),
                    None => None,
                };
                let stats = runtime
                    .generate(&mut sampler, draft, &[1, 504, 3575, 282], &limits, &mut |sampled| {
                        bytes += stream.push(sampled.token).len();
                        bytes += stops.push("ab").len() + logprobs.of(sampled.logits, sampled.token).1.len();
                        at_token.push(CALLS.load(Ordering::Relaxed));
                        ControlFlow::Continue(())
                    })
                    .unwrap();
                assert_eq!((stats.tokens, at_token.len()), (40, 40));
                assert!(bytes > 0 && (stats.guessed > 10 || draft_model.is_none()), "{stats:?}");
                // From the first token on; the prompt's batch may allocate what only a batch needs.
                assert_eq!(at_token[39], at_token[0], "{name}, {}, {sampling:?}", layout.name());
            }
        }
    }
}

/// Steps of several sequences: dense, with experts, with a latent cache, and with linear attention.
#[test]
fn steps_of_many_sequences_allocate_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let tiny = |name: &str| golden("models").join(name);
    let models = ["mixtral-tiny", "qwen3moe-tiny", "deepseek3-tiny", "qwen35-tiny"].map(tiny);
    let models = [&[model("smollm2")], &models[..]].concat();
    for (path, kv) in models.iter().flat_map(|path| [KvKind::F16, KvKind::Int4].map(|kv| (path, kv))) {
        let options = RuntimeOptions {
            backend: BackendKind::Cpu,
            threads: Some(2),
            context: Some(256),
            kv: Some(kv),
            ..RuntimeOptions::default()
        };
        let mut runtime = Runtime::start(path, &options).unwrap();
        // The system allocates where a thread begins, and a tiny model may be far before its second thread has.
        std::thread::sleep(Duration::from_millis(100));
        let bounds = Bounds { sequences: 5, waiting: 5, bytes: 1 << 30, kv_budget: None };
        let mut scheduler = Scheduler::new(kv, bounds);
        for n in 0..5 {
            let sampler = SamplerOptions { seed: u64::from(n), ..SamplerOptions::default() };
            let request = Request {
                prompt: (0..=21 * n).map(|i| 7 + i % 40).collect(),
                sampler: Sampler::new(&sampler, runtime.shared().vocab()).unwrap(),
                tokens: 100,
                end: Box::new(|_| false),
                positions: None,
                tells_prompt: false,
            };
            runtime.submit(&mut scheduler, request).unwrap();
        }
        let (mut tokens, mut at_step) = (0, Vec::with_capacity(128));
        while scheduler.running() + scheduler.waiting() == 5 {
            at_step.push(CALLS.load(Ordering::Relaxed));
            runtime
                .step(&mut scheduler, &mut |_, event| {
                    tokens += usize::from(matches!(event, Event::Token(_)));
                    ControlFlow::Continue(())
                })
                .unwrap();
        }
        // After the first tokens, with which prompts are kept: until the first request ends.
        let from = 4;
        assert!(at_step.len() > 90 && tokens >= 490, "{} steps, {tokens} tokens", at_step.len());
        assert_eq!(at_step[at_step.len() - 1], at_step[from], "{}, {kv}: {at_step:?}", path.display());
    }
}
