//! Guesses change how long a text takes, and never the text.

use std::ops::ControlFlow;

use weighbridge::engine::draft::{Draft, MOST, PromptLookup};
use weighbridge::engine::sampler::{MirostatOptions, Penalties, SamplerOptions};
use weighbridge::engine::{Error, Limits, Stats, Stop};
use weighbridge::runtime::BackendKind;
use weighbridge::{Runtime, RuntimeOptions, Sampler};

use crate::golden;

/// Guesses what it was told, which is sometimes right.
struct Told {
    text: Vec<u32>,
    read: usize,
    guesses: Vec<u32>,
}

impl Draft for Told {
    fn begin(&mut self, text: &[u32]) {
        self.read = text.len();
    }

    fn read(&mut self, tokens: &[u32]) {
        self.read += tokens.len();
    }

    fn reserve(&mut self, _: usize) -> Result<(), Error> {
        Ok(())
    }

    fn guess(&mut self, most: usize) -> Result<&[u32], Error> {
        let start = self.read.min(self.text.len());
        self.guesses = self.text[start..].iter().copied().take(most).collect();
        // Of seven, one is wrong.
        for guess in self.guesses.iter_mut().skip(6 - start % 7).step_by(7) {
            *guess = if *guess == 0 { 1 } else { *guess - 1 };
        }
        Ok(&self.guesses)
    }

    fn judge(&mut self, guessed: usize, right: usize) {
        assert!(right <= guessed && guessed <= MOST);
    }
}

/// The tokens, and their logits' bits.
type Said = (Vec<u32>, Vec<Vec<u32>>);

fn say(
    runtime: &mut Runtime,
    options: &SamplerOptions,
    draft: Option<&mut dyn Draft>,
    prompt: &[u32],
    tokens: usize,
) -> (Said, Stats) {
    runtime.truncate(0);
    let mut sampler = Sampler::new(options, runtime.shared().vocab()).unwrap();
    let mut said: Said = (vec![], vec![]);
    let limits = Limits { tokens, end: &|_| false };
    let stats = runtime
        .generate(&mut sampler, draft, prompt, &limits, &mut |sampled| {
            said.0.push(sampled.token);
            said.1.push(sampled.logits.iter().map(|x| x.to_bits()).collect());
            ControlFlow::Continue(())
        })
        .unwrap();
    // The last token has not been run.
    assert_eq!(runtime.session().position(), prompt.len() + said.0.len() - 1);
    (said, stats)
}

#[test]
fn a_text_is_the_same_with_guesses() {
    let usual = SamplerOptions { seed: 11, ..SamplerOptions::default() };
    let penalties = Penalties { repeat: 1.2, last: usize::MAX, ..Penalties::default() };
    let samplers = [
        SamplerOptions { temperature: 0.0, ..usual.clone() },
        usual.clone(),
        SamplerOptions { temperature: 1.5, penalties, ..usual.clone() },
        SamplerOptions { mirostat: Some(MirostatOptions::default()), ..usual },
    ];
    let tiny =
        ["llama-tiny", "gemma3-tiny", "mixtral-tiny", "deepseek3-tiny"].map(|name| golden().join(name));
    for path in tiny.into_iter().chain([testkit::model("smollm2")]) {
        for backend in [BackendKind::Reference, BackendKind::Cpu] {
            if backend == BackendKind::Reference && !path.starts_with(golden()) {
                continue;
            }
            let options =
                RuntimeOptions { backend, threads: Some(2), context: Some(96), ..RuntimeOptions::default() };
            let mut runtime = Runtime::start(&path, &options).unwrap();
            let prompt: Vec<u32> = (0..30).map(|i| 3 + i % 10).collect();
            for sampler in &samplers {
                let (alone, stats) = say(&mut runtime, sampler, None, &prompt, 50);
                assert_eq!((stats.guessed, stats.right), (0, 0));
                let what = format!("{}, {backend:?}, {sampler:?}", path.display());

                let mut lookup = PromptLookup::new();
                let (said, _) = say(&mut runtime, sampler, Some(&mut lookup), &prompt, 50);
                assert!(said == alone, "{what}");

                let text = [&prompt[..], &alone.0].concat();
                let mut told = Told { text, read: 0, guesses: vec![] };
                let (said, stats) = say(&mut runtime, sampler, Some(&mut told), &prompt, 50);
                assert!(said == alone, "{what}");
                assert!(stats.right > 30 && stats.right < stats.guessed, "{what}: {stats:?}");
            }
            // A context that fills up.
            let (alone, stats) = say(&mut runtime, &samplers[0], None, &prompt, 200);
            assert_eq!((stats.stop, alone.0.len()), (Stop::ContextFull, 96 - 30 + 1));
            let mut told = Told { text: [&prompt[..], &alone.0].concat(), read: 0, guesses: vec![] };
            let (said, stats) = say(&mut runtime, &samplers[0], Some(&mut told), &prompt, 200);
            assert!(said == alone && stats.stop == Stop::ContextFull);
        }
    }
}
