//! Sampling equals its definition: a full sort, and exact probabilities.

use proptest::prelude::*;
use weighbridge_engine::sampler::{
    Dry, Error, MirostatOptions, Penalties, Sampler, SamplerOptions, Xtc, breakers,
};
use weighbridge_engine::text::{EncodeOptions, SpecialText, tokenizer};

/// Nothing but a draw.
fn all() -> SamplerOptions {
    SamplerOptions {
        temperature: 1.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        seed: 1,
        ..SamplerOptions::default()
    }
}

fn sampler(options: &SamplerOptions, vocab: usize) -> Sampler {
    Sampler::new(options, vocab).unwrap()
}

/// Which tokens may come, and how likely each is, by sorting everything.
fn naive(options: &SamplerOptions, logits: &[f32]) -> Vec<(u32, f64)> {
    let mut order: Vec<(u32, f64)> = logits.iter().zip(0..).map(|(l, id)| (id, f64::from(*l))).collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    if options.top_k > 0 {
        order.truncate(options.top_k);
    }
    let best = order[0].1;
    let total: f64 = order.iter().map(|c| (c.1 - best).exp()).sum();
    let mut sum = 0.0;
    let enough = order.iter().position(|c| {
        sum += (c.1 - best).exp();
        sum >= f64::from(options.top_p) * total
    });
    order.truncate(enough.map_or(order.len(), |i| i + 1));
    order.retain(|c| (c.1 - best).exp() >= f64::from(options.min_p));
    for c in &mut order {
        c.1 = ((c.1 - best) / f64::from(options.temperature)).exp();
    }
    let total: f64 = order.iter().map(|c| c.1).sum();
    for c in &mut order {
        c.1 /= total;
    }
    order
}

#[test]
fn temperature_0_takes_the_largest_and_the_lowest_of_equals() {
    let mut s = sampler(&SamplerOptions { temperature: 0.0, ..all() }, 5);
    assert_eq!(s.sample(&[1.0, 3.0, 2.0, 3.0, f32::NEG_INFINITY]), Ok(1));
    assert_eq!(s.sample(&[f32::NEG_INFINITY; 5]), Err(Error::NoToken));
}

#[test]
fn each_stage_alone_narrows_to_the_most_likely() {
    let logits: Vec<f32> = (0..100).map(|i| ((i * 37) % 100) as f32 / 10.0).collect();
    let best = 27; // 27 * 37 % 100 == 99
    for options in [
        SamplerOptions { top_k: 1, ..all() },
        SamplerOptions { top_p: 1e-6, ..all() },
        SamplerOptions { min_p: 1.0, ..all() },
        SamplerOptions { mirostat: Some(MirostatOptions { entropy: 0.0, rate: 0.0 }), ..all() },
    ] {
        let mut s = sampler(&options, 100);
        for _ in 0..50 {
            assert_eq!(s.sample(&logits), Ok(best), "{options:?}");
        }
    }
}

#[test]
fn draws_follow_the_probabilities() {
    let logits = [0.0, 1.0, 2.0, -1.0, 0.5, 2.0, -3.0, 1.5];
    for options in [
        SamplerOptions { seed: 7, ..all() },
        SamplerOptions { temperature: 0.5, top_k: 5, seed: 8, ..all() },
        SamplerOptions { top_p: 0.7, seed: 9, ..all() },
        SamplerOptions { min_p: 0.3, seed: 10, ..all() },
    ] {
        let mut s = sampler(&options, logits.len());
        let mut counts = [0u32; 8];
        let draws = 40_000;
        for _ in 0..draws {
            counts[s.sample(&logits).unwrap() as usize] += 1;
        }
        let exact = naive(&options, &logits);
        for (id, count) in counts.iter().enumerate() {
            let p = exact.iter().find(|c| c.0 as usize == id).map_or(0.0, |c| c.1);
            let found = f64::from(*count) / f64::from(draws);
            // Five standard deviations of a fixed seed: this either holds for good or never.
            let bound = 5.0 * (p * (1.0 - p) / f64::from(draws)).sqrt() + 1e-12;
            assert!((found - p).abs() <= bound, "{options:?}: token {id} came {found}, wanted {p}");
        }
    }
}

#[test]
fn the_seed_decides() {
    let logits: Vec<f32> = (0..1000).map(|i| ((i * 7) % 13) as f32 / 4.0).collect();
    let draw = |seed| {
        let mut s = sampler(&SamplerOptions { seed, ..all() }, 1000);
        (0..20).map(|_| s.sample(&logits).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(draw(3), draw(3));
    assert_ne!(draw(3), draw(4));
}

#[test]
fn what_cannot_be_is_an_error() {
    let nan = f32::NAN;
    let penalties = |repeat, presence, frequency| Penalties { repeat, presence, frequency, last: 64 };
    for wrong in [
        SamplerOptions { temperature: -0.1, ..all() },
        SamplerOptions { temperature: nan, ..all() },
        SamplerOptions { temperature: f32::INFINITY, ..all() },
        SamplerOptions { top_p: 0.0, ..all() },
        SamplerOptions { top_p: 1.1, ..all() },
        SamplerOptions { min_p: -0.1, ..all() },
        SamplerOptions { min_p: nan, ..all() },
        SamplerOptions { typical_p: 0.0, ..all() },
        SamplerOptions { xtc: Xtc { probability: 1.1, threshold: 0.1 }, ..all() },
        SamplerOptions { xtc: Xtc { probability: 0.5, threshold: -0.1 }, ..all() },
        SamplerOptions { penalties: penalties(0.0, 0.0, 0.0), ..all() },
        SamplerOptions { penalties: penalties(1e-39, 0.0, 0.0), ..all() },
        SamplerOptions { penalties: penalties(1.0, nan, 0.0), ..all() },
        SamplerOptions { penalties: penalties(1.0, 0.0, f32::INFINITY), ..all() },
        SamplerOptions { dry: Dry { multiplier: -1.0, ..Dry::default() }, ..all() },
        SamplerOptions { dry: Dry { base: 0.9, ..Dry::default() }, ..all() },
        SamplerOptions { mirostat: Some(MirostatOptions { entropy: -1.0, rate: 0.1 }), ..all() },
        SamplerOptions { mirostat: Some(MirostatOptions { entropy: 1.0, rate: nan }), ..all() },
        SamplerOptions { bias: vec![(4, 1.0)], ..all() },
        SamplerOptions { bias: vec![(3, f32::INFINITY)], ..all() },
    ] {
        assert!(matches!(Sampler::new(&wrong, 4), Err(Error::Options { .. })), "{wrong:?}");
    }
    let wrong = SamplerOptions { top_p: 0.0, min_p: 2.0, bias: vec![(9, 1.0), (1, nan)], ..all() };
    assert_eq!(
        Sampler::new(&wrong, 4).unwrap_err().to_string(),
        "`top-p` must be above 0 and at most 1, found 0\n\
         `min-p` must be from 0 to 1, found 2\n\
         `logit bias` must be a finite number or −∞, found NaN\n\
         `token of a logit bias` must be below 4, found 9"
    );
    let mut s = sampler(&all(), 4);
    assert_eq!(s.sample(&[0.0, f32::NAN, f32::NAN, 0.0]), Err(Error::NotNumbers { count: 2, vocab: 4 }));
    assert_eq!(s.sample(&[0.0, f32::INFINITY, 0.0, 0.0]), Err(Error::NotNumbers { count: 1, vocab: 4 }));
    assert_eq!(s.sample(&[f32::NEG_INFINITY; 4]), Err(Error::NoToken));
    assert_eq!(s.sample(&[0.0; 3]), Err(Error::Vocabulary { wanted: 4, found: 3 }));
}

#[test]
fn a_token_that_must_not_come_does_not_whatever_the_options() {
    let logits: Vec<f32> = (0..200).map(|i| ((i * 7) % 13) as f32 / 4.0).collect();
    let bias: Vec<(u32, f32)> = (0..200).filter(|id| id % 5 != 3).map(|id| (id, f32::NEG_INFINITY)).collect();
    let penalties = Penalties { repeat: 1.3, presence: 0.2, frequency: -0.1, last: 10 };
    let dry = Dry { multiplier: 1.0, breakers: vec![vec![8]], ..Dry::default() };
    for options in [
        SamplerOptions { temperature: 0.0, ..all() },
        SamplerOptions { top_k: 100, ..all() },
        SamplerOptions { typical_p: 0.999, top_p: 0.999, min_p: 1e-6, ..all() },
        SamplerOptions { xtc: Xtc { probability: 0.9, threshold: 0.01 }, ..all() },
        SamplerOptions { mirostat: Some(MirostatOptions::default()), ..all() },
        SamplerOptions { penalties, dry, temperature: 50.0, ..all() },
    ] {
        let options = SamplerOptions { bias: bias.clone(), ..options };
        let mut s = sampler(&options, 200);
        for _ in 0..200 {
            let token = s.sample(&logits).unwrap();
            s.accept(token);
            assert_eq!(token % 5, 3, "{options:?}");
        }
    }
}

#[test]
fn penalties_look_at_the_last_tokens_of_one_text() {
    let penalties = Penalties { presence: 10.0, last: 2, ..Penalties::default() };
    let mut s = sampler(&SamplerOptions { temperature: 0.0, penalties, ..all() }, 4);
    let logits = [4.0, 3.0, 2.0, 1.0];
    let next = |s: &mut Sampler| {
        let token = s.sample(&logits).unwrap();
        s.accept(token);
        token
    };
    assert_eq!([(); 5].map(|()| next(&mut s)), [0, 1, 2, 0, 1]);
    s.begin(&[0, 9]);
    assert_eq!([(); 3].map(|()| next(&mut s)), [1, 0, 2]);
    s.begin(&[]);
    assert_eq!(next(&mut s), 0);
}

proptest! {
    /// Selection never lets through what a full sort would not.
    #[test]
    fn only_what_a_full_sort_keeps_comes(
        logits in prop::collection::vec(-20f32..20.0, 1..600),
        temperature in 0.05f32..3.0,
        top_k in 0usize..700,
        top_p in 0.01f32..=1.0,
        min_p in 0f32..0.9,
        seed: u64,
    ) {
        let options = SamplerOptions { temperature, top_k, top_p, min_p, seed, ..all() };
        let mut s = sampler(&options, logits.len());
        // Rounding at a threshold may let one more or one less through.
        let loose = SamplerOptions { top_p: (top_p * 1.0001 + 1e-5).min(1.0), min_p: min_p * 0.9999, ..options.clone() };
        let kept = naive(&loose, &logits);
        for _ in 0..8 {
            let id = s.sample(&logits).unwrap();
            prop_assert!(kept.iter().any(|c| c.0 == id), "{id} of {kept:?}");
        }
    }
}

#[test]
fn the_breakers_of_a_text_are_all_tokens_that_begin_it_or_have_it() {
    let tokenizer = tokenizer(&checkpoint::open(testkit::model("smollm2")).unwrap()).unwrap();
    for text in ["\n", "\"", "é", "USER:"] {
        let found = breakers(&tokenizer, text).unwrap();
        let spelled = |tokens: &[u32]| -> Vec<u8> {
            tokens.iter().flat_map(|t| tokenizer.token_bytes(*t, SpecialText::Shown).into_owned()).collect()
        };
        let has = |bytes: &[u8]| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        for tokens in &found {
            assert!(has(&spelled(tokens)), "{text:?}: {tokens:?}");
            assert!(tokens.len() == 1 || !has(&spelled(&tokens[..1])), "{text:?}: {tokens:?}");
        }
        let single = (0..u32::try_from(tokenizer.vocab_size()).unwrap()).filter(|t| has(&spelled(&[*t])));
        assert!(
            single.eq(found.iter().filter(|tokens| tokens.len() == 1).map(|tokens| tokens[0])),
            "{text:?}"
        );
        let own = tokenizer.encode(text, EncodeOptions::default()).unwrap();
        assert!(found.contains(&own), "{text:?}: {own:?} of {found:?}");
    }
}
