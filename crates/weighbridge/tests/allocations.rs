//! The token loop allocates nothing: a binary of its own, since it counts what the whole process allocates.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test may stop where it stands")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::model;
use weighbridge::engine::Limits;
use weighbridge::engine::draft::{Draft, PromptLookup};
use weighbridge::engine::logprobs::LogProbs;
use weighbridge::engine::sampler::{Dry, MirostatOptions, Penalties, SamplerOptions, Xtc};
use weighbridge::engine::text::{SpecialText, StopStrings};
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
