//! Guesses change how long a text takes, and never the text.

use std::ops::ControlFlow;
use std::path::Path;

use weighbridge::engine::draft::{Draft, MOST, ModelDraft, PromptLookup};
use weighbridge::engine::sampler::{MirostatOptions, Penalties, SamplerOptions};
use weighbridge::engine::{Error, KvKind, Limits, Sampled, Stats, Stop};
use weighbridge::runtime::BackendKind;
use weighbridge::{Runtime, RuntimeOptions, Sampler, open};

use crate::{argmax, golden};

/// Guesses what it was told, which is wrong at one place of each `wrong`.
struct Told {
    wrong: usize,
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
        let places = self.guesses.iter_mut().skip(self.wrong - 1 - start % self.wrong);
        for guess in places.step_by(self.wrong) {
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
                let mut told = Told { wrong: 7, text, read: 0, guesses: vec![] };
                let (said, stats) = say(&mut runtime, sampler, Some(&mut told), &prompt, 50);
                assert!(said == alone, "{what}");
                assert!(stats.right > 30 && stats.right < stats.guessed, "{what}: {stats:?}");

                told.wrong = 1;
                told.begin(&[]);
                let (said, stats) = say(&mut runtime, sampler, Some(&mut told), &prompt, 50);
                assert!(said == alone && stats.right == 0 && stats.guessed > 40, "{what}: {stats:?}");
            }
            // A context that fills up.
            let (alone, stats) = say(&mut runtime, &samplers[0], None, &prompt, 200);
            assert_eq!((stats.stop, alone.0.len()), (Stop::ContextFull, 96 - 30 + 1));
            let mut told =
                Told { wrong: 7, text: [&prompt[..], &alone.0].concat(), read: 0, guesses: vec![] };
            let (said, stats) = say(&mut runtime, &samplers[0], Some(&mut told), &prompt, 200);
            assert!(said == alone && stats.stop == Stop::ContextFull);
        }
    }
}

/// Linear attention cannot take a guess back: nothing is guessed, and the text is the same.
#[test]
fn nothing_is_guessed_for_linear_attention() {
    let options = RuntimeOptions { threads: Some(2), context: Some(96), ..RuntimeOptions::default() };
    let mut runtime = Runtime::start(golden().join("qwen35-tiny"), &options).unwrap();
    let prompt: Vec<u32> = (0..30).map(|i| 3 + i % 10).collect();
    let sampler = SamplerOptions { temperature: 0.0, ..SamplerOptions::default() };
    let (alone, _) = say(&mut runtime, &sampler, None, &prompt, 50);
    let mut lookup = PromptLookup::new();
    let (said, stats) = say(&mut runtime, &sampler, Some(&mut lookup), &prompt, 50);
    assert!(said == alone && stats.guessed == 0, "{stats:?}");
}

/// A model with a draft, neither with other options than these.
fn pair(model: &Path, draft: &Path, options: &RuntimeOptions) -> (Runtime, ModelDraft) {
    start(model, draft, options, options).unwrap()
}

fn start(
    model: &Path,
    draft: &Path,
    options: &RuntimeOptions,
    draft_options: &RuntimeOptions,
) -> Result<(Runtime, ModelDraft), weighbridge::Error> {
    Runtime::start_with_draft(open(model).unwrap(), options, open(draft).unwrap(), draft_options)
}

/// Checks that the guesses of a draft are those of its model on the text alone.
struct Held {
    draft: ModelDraft,
    /// Runs the draft's model.
    model: Runtime,
    text: Vec<u32>,
    /// Guesses that were checked.
    checked: usize,
}

impl Draft for Held {
    fn begin(&mut self, text: &[u32]) {
        self.text = text.to_vec();
        self.draft.begin(text);
    }

    fn read(&mut self, tokens: &[u32]) {
        self.text.extend_from_slice(tokens);
        self.draft.read(tokens);
    }

    fn reserve(&mut self, tokens: usize) -> Result<(), Error> {
        self.draft.reserve(tokens)
    }

    fn guess(&mut self, most: usize) -> Result<&[u32], Error> {
        let guesses = self.draft.guess(most)?;
        self.model.truncate(0);
        let mut tokens = self.text.clone();
        for guess in guesses {
            assert_eq!(*guess, argmax(self.model.forward(&tokens).unwrap()), "{} before", self.text.len());
            tokens = vec![*guess];
            self.checked += 1;
        }
        Ok(guesses)
    }

    fn judge(&mut self, guessed: usize, right: usize) {
        self.draft.judge(guessed, right);
    }
}

#[test]
fn a_text_is_the_same_with_a_draft_model() {
    let usual = SamplerOptions { seed: 5, ..SamplerOptions::default() };
    let penalties = Penalties { repeat: 1.2, last: usize::MAX, ..Penalties::default() };
    let samplers = [
        SamplerOptions { temperature: 0.0, ..usual.clone() },
        SamplerOptions { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..usual.clone() },
        SamplerOptions { temperature: 0.7, bias: vec![(9, 2.0), (5, f32::NEG_INFINITY)], penalties, ..usual },
    ];
    // The same weights, and others; windows in the model, in the draft, in both; mixtures, latent attention.
    let pairs = [
        ("llama-tiny", "llama-tiny"),
        ("llama-tiny", "gemma3-tiny"),
        ("gemma3-tiny", "llama-tiny"),
        ("gemma2-tiny", "gemma3-tiny"),
        ("mixtral-tiny", "mistral-tiny"),
        ("deepseek3-tiny", "deepseek3-tiny"),
    ];
    for (n, (model, draft)) in pairs.into_iter().enumerate() {
        let kinds = [KvKind::F16, KvKind::Int8, KvKind::F32, KvKind::Int4];
        let (kind, backend) = (kinds[n % 4], [BackendKind::Cpu, BackendKind::Reference][n % 3 / 2]);
        let options = RuntimeOptions {
            backend,
            kv: Some(kind),
            threads: Some(2),
            context: Some(240),
            ..RuntimeOptions::default()
        };
        let path = |name: &str| golden().join(name);
        let (mut runtime, draft_model) = pair(&path(model), &path(draft), &options);
        let alone_model = Runtime::start(path(draft), &options).unwrap();
        let mut held = Held { draft: draft_model, model: alone_model, text: vec![], checked: 0 };
        // Longer than what int8 and int4 keep as f16, shorter than the context.
        let prompt: Vec<u32> = (0..150).map(|i| 3 + i % 10).collect();
        let (mut guessed, mut right) = (0, 0);
        for sampler in &samplers {
            let (alone, _) = say(&mut runtime, sampler, None, &prompt, 60);
            held.begin(&[]);
            let (said, stats) = say(&mut runtime, sampler, Some(&mut held), &prompt, 60);
            let what = format!("{model}, {draft}, {backend:?}, {kind:?}, {sampler:?}: {stats:?}");
            assert!(said == alone, "{what}");
            if model == draft && sampler.temperature == 0.0 {
                assert!(stats.right == stats.guessed && stats.right > 10, "{what}");
            }
            guessed += stats.guessed;
            right += stats.right;
        }
        assert!(held.checked > 20 && right < guessed, "{model}, {draft}: {right} of {guessed}");
        // A context that fills up.
        let (alone, stats) = say(&mut runtime, &samplers[0], None, &prompt, 200);
        held.begin(&[]);
        let (said, filled) = say(&mut runtime, &samplers[0], Some(&mut held), &prompt, 200);
        assert!(said == alone && (stats.stop, filled.stop) == (Stop::ContextFull, Stop::ContextFull));
    }
}

#[test]
fn a_draft_goes_on_from_what_two_texts_share() {
    let options = RuntimeOptions {
        threads: Some(1),
        context: Some(200),
        kv: Some(KvKind::F32),
        ..RuntimeOptions::default()
    };
    let path = golden().join("llama-tiny");
    let (mut runtime, draft) = pair(&path, &path, &options);
    let mut held = Held { draft, model: Runtime::start(&path, &options).unwrap(), text: vec![], checked: 0 };
    let greedy = SamplerOptions { temperature: 0.0, ..SamplerOptions::default() };
    let prompt: Vec<u32> = (3..43).collect();
    let ((first, _), _) = say(&mut runtime, &greedy, Some(&mut held), &prompt, 20);
    for other in [0, 1, 20, 40, 50, 59] {
        let mut text = [&prompt[..], &first].concat();
        text.truncate(other);
        text.extend([7, 8, 7]);
        let (alone, _) = say(&mut runtime, &greedy, None, &text, 20);
        held.begin(&text[..other]);
        runtime.truncate(0);
        runtime.forward(&text[..other.max(1)]).unwrap();
        runtime.truncate(other);
        let mut sampler = Sampler::new(&greedy, runtime.shared().vocab()).unwrap();
        sampler.begin(&text[..other]);
        let (mut said, limits) = (vec![], Limits { tokens: 20, end: &|_| false });
        let mut each = |sampled: Sampled<'_>| {
            said.push(sampled.token);
            ControlFlow::Continue(())
        };
        let stats =
            runtime.generate(&mut sampler, Some(&mut held), &text[other..], &limits, &mut each).unwrap();
        assert!(said == alone.0 && stats.right == stats.guessed && stats.right > 4, "{other}: {stats:?}");
    }
}

#[test]
fn a_draft_guesses_from_the_text_after_wrong_guesses() {
    let options = RuntimeOptions {
        threads: Some(1),
        context: Some(200),
        kv: Some(KvKind::F32),
        ..RuntimeOptions::default()
    };
    let path = golden().join("llama-tiny");
    let (_, draft) = pair(&path, &path, &options);
    let mut held = Held { draft, model: Runtime::start(&path, &options).unwrap(), text: vec![], checked: 0 };
    held.begin(&[]);
    held.read(&(3..43).collect::<Vec<_>>());
    for (right, others) in [(0, 1), (0, 3), (1, 2), (2, 5), (1, 1)].into_iter().cycle().take(40) {
        let guesses = held.guess(MOST).unwrap().to_vec();
        held.judge(MOST, MOST);
        held.read(&guesses[..right.min(guesses.len())]);
        // The first of these is not what was guessed. The second is, but behind another token.
        let next = guesses.get(right).map_or(9, |guess| (guess + 1) % 128);
        let second = guesses.get(right + 1).copied().unwrap_or(11);
        held.read(&[next, second, 5, next, 7][..others]);
    }
    assert!(held.checked > 20, "{}", held.checked);
}

#[test]
fn an_answer_ends_amid_guesses_as_without_them() {
    let options = RuntimeOptions { threads: Some(1), context: Some(96), ..RuntimeOptions::default() };
    let path = golden().join("llama-tiny");
    let (mut runtime, mut draft) = pair(&path, &path, &options);
    let prompt: Vec<u32> = (3..33).collect();
    let greedy = SamplerOptions { temperature: 0.0, ..SamplerOptions::default() };
    let ((alone, _), _) = say(&mut runtime, &greedy, None, &prompt, 30);
    for end in 1..30 {
        runtime.truncate(0);
        draft.begin(&[]);
        let mut sampler = Sampler::new(&greedy, runtime.shared().vocab()).unwrap();
        let (mut said, limits) = (vec![], Limits { tokens: 40, end: &|_| false });
        let mut each = |sampled: Sampled<'_>| {
            said.push(sampled.token);
            if said.len() == end { ControlFlow::Break(Stop::StopString) } else { ControlFlow::Continue(()) }
        };
        let stats = runtime.generate(&mut sampler, Some(&mut draft), &prompt, &limits, &mut each).unwrap();
        assert_eq!((&said[..], stats.stop, stats.tokens), (&alone[..end], Stop::StopString, end));
        // What was run ahead is forgotten: the next token is the one that would have followed.
        assert_eq!(runtime.session().position(), prompt.len() + end - 1);
        assert_eq!(argmax(runtime.forward(&[alone[end - 1]]).unwrap()), alone[end]);
    }
}

#[test]
fn a_draft_stops_guessing_where_its_context_ends() {
    let options = RuntimeOptions { threads: Some(1), context: Some(96), ..RuntimeOptions::default() };
    let path = golden().join("llama-tiny");
    let prompt: Vec<u32> = (3..33).collect();
    let greedy = SamplerOptions { temperature: 0.0, ..SamplerOptions::default() };
    for (context, guesses) in [(20, false), (29, false), (30, false), (31, true), (47, true)] {
        let shorter = RuntimeOptions { context: Some(context), ..options.clone() };
        let (mut runtime, mut draft) = start(&path, &path, &options, &shorter).unwrap();
        let (alone, _) = say(&mut runtime, &greedy, None, &prompt, 200);
        let (said, stats) = say(&mut runtime, &greedy, Some(&mut draft), &prompt, 200);
        assert!(said == alone && stats.stop == Stop::ContextFull);
        assert_eq!(draft.session().capacity(), context);
        // The last guess needs no position: of the text after the first token, all up to the capacity is guessed, and one more.
        let most = (context + 1).saturating_sub(prompt.len() + 1);
        assert_eq!(stats.guessed > 0, guesses, "{context}: {stats:?}");
        assert!(stats.right == stats.guessed && stats.guessed <= most, "{context}: {stats:?}");
    }
    // It has no more positions than it was trained for.
    let long = RuntimeOptions { context: Some(400), ..options };
    let (runtime, draft) = pair(&golden().join("gemma3-tiny"), &path, &long);
    assert_eq!((runtime.session().capacity(), draft.session().capacity()), (400, 256));
}

#[test]
fn a_draft_of_another_vocabulary_is_refused() {
    let options = RuntimeOptions { threads: Some(1), context: Some(32), ..RuntimeOptions::default() };
    let (model, draft) = (golden().join("llama-tiny"), golden().join("mixtral-tiny"));
    let error = start(&model, &draft, &options, &options).unwrap_err();
    assert_eq!(
        error.diagnostics().to_string(),
        "the draft has another vocabulary: the model has 128 tokens, the draft 96\n\
         hint: use a smaller model of the same family as the draft"
    );
    assert!(error.is_misuse());
}
