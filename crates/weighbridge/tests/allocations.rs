//! The token loop allocates nothing: a binary of its own, since it counts what the whole process allocates.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test may stop where it stands")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::model;
use weighbridge::engine::Limits;
use weighbridge::engine::sampler::SamplerOptions;
use weighbridge::engine::text::SpecialText;
use weighbridge::planner::packed_layout;
use weighbridge::runtime::BackendKind;
use weighbridge::{LayoutKind, Runtime, RuntimeOptions, Sampler};

struct Counting;

static CALLS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it came; counting is all that is added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(p, layout) }
    }
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(p, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn the_token_loop_allocates_nothing() {
    for name in ["smollm2", "gemma3"] {
        for layout in [packed_layout().unwrap(), LayoutKind::InPlace] {
            for temperature in [0.0, 0.8] {
                let options = RuntimeOptions {
                    backend: BackendKind::Cpu,
                    layout: Some(layout),
                    threads: Some(2),
                    context: Some(256),
                    ..RuntimeOptions::default()
                };
                let mut runtime = Runtime::start(model(name), &options).unwrap();
                let vocab = runtime.shared().vocab();
                let sampling = SamplerOptions { temperature, seed: 7, ..SamplerOptions::default() };
                let mut sampler = Sampler::new(&sampling, vocab).unwrap();
                let tokenizer = Arc::clone(runtime.tokenizer().unwrap());
                let mut stream = tokenizer.stream(SpecialText::Shown);
                let mut bytes = 0;
                let mut at_token = Vec::with_capacity(64);
                let limits = Limits { tokens: 40, end: &|_| false };
                let stats = runtime
                    .generate(&mut sampler, &[1, 504, 3575, 282], &limits, &mut |token| {
                        bytes += stream.push(token).len();
                        at_token.push(CALLS.load(Ordering::Relaxed));
                        ControlFlow::Continue(())
                    })
                    .unwrap();
                assert_eq!((stats.tokens, at_token.len()), (40, 40));
                assert!(bytes > 0);
                // From the first token on; the prompt's batch may allocate what only a batch needs.
                assert_eq!(at_token[39], at_token[0], "{name}, {}, temperature {temperature}", layout.name());
            }
        }
    }
}
