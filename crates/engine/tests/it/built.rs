//! A tokenizer that was read back is the one that was built.

use testkit::Rng;
use weighbridge_engine::text::{EncodeOptions, SpecialText, Tokenizer};

use crate::models;

const VOCABULARIES: [&str; 12] = [
    "gpt-2",
    "llama-spm",
    "starcoder",
    "refact",
    "llama-bpe",
    "qwen2",
    "qwen35",
    "falcon",
    "command-r",
    "deepseek-coder",
    "phi-3",
    "gemma-4",
];

/// What tokenizers stumble over.
const ODD: &[&str] = &[
    "",
    " ",
    "   \n\n\t  x",
    "Hello, world! 123456789 3.14",
    "na\u{ef}ve cafe\u{301} \u{fb01} \u{130}I\u{131}",
    "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}\u{200d}\u{1f466} \u{1f1e9}\u{1f1ea}",
    "\u{0}\u{1}\u{7f}\u{85}\u{a0}\u{ad}\u{feff}\u{fffd}\u{10ffff}",
    "\u{2581}\u{2581}a\u{2581} <0x0A> <0xZZ>",
    "<s></s><|im_start|>user<|im_end|><bos><eos><start_of_turn>",
    "\u{6f22}\u{5b57}\u{304b}\u{306a}\u{d55c}\u{ad6d}\u{c5b4} \u{5e9}\u{5dc}\u{5d5}\u{5dd} \u{645}\u{631}\u{62d}\u{628}\u{627}",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "fn main() { println!(\"{}\", 'x'); }\r\n\r\n",
];

fn all_options() -> impl Iterator<Item = EncodeOptions> {
    [(false, false), (false, true), (true, false), (true, true)]
        .into_iter()
        .map(|(add_special, parse_special)| EncodeOptions { add_special, parse_special })
}

/// Both give the same for `texts`, and for each token.
fn same(name: &str, a: &Tokenizer, b: &Tokenizer, texts: &[&str]) {
    assert_eq!(
        (a.name(), a.bos(), a.eos(), a.adds_bos()),
        (b.name(), b.bos(), b.eos(), b.adds_bos()),
        "{name}"
    );
    assert_eq!((a.end_of_generation(), a.vocab_size()), (b.end_of_generation(), b.vocab_size()), "{name}");
    assert_eq!(format!("{:?}", a.notes()), format!("{:?}", b.notes()), "{name}");
    for text in texts {
        for options in all_options() {
            let ids = a.encode(text, options).unwrap();
            assert_eq!(ids, b.encode(text, options).unwrap(), "{name}: {text:?}");
            for special in [SpecialText::Shown, SpecialText::Hidden] {
                assert_eq!(
                    a.decode(&ids, special).unwrap(),
                    b.decode(&ids, special).unwrap(),
                    "{name}: {text:?}"
                );
            }
        }
    }
    for id in 0..u32::try_from(a.vocab_size()).unwrap() + 2 {
        let spelling = a.token_spelling(id);
        assert_eq!(spelling, b.token_spelling(id), "{name}: {id}");
        assert_eq!(spelling.map(|s| a.token_id(s)), spelling.map(|s| b.token_id(s)), "{name}: {id}");
        for special in [SpecialText::Shown, SpecialText::Hidden] {
            assert_eq!(a.token_bytes(id, special), b.token_bytes(id, special), "{name}: {id}");
        }
    }
}

/// Texts made of pieces of others, and of any characters.
fn random(texts: &[&str]) -> Vec<String> {
    let mut rng = Rng(7);
    let all: Vec<char> = texts.concat().chars().collect();
    let mut any = || {
        let code = u32::try_from(rng.next() % 0x11_0000).unwrap();
        let at = usize::try_from(rng.next()).unwrap() % all.len();
        if rng.next().is_multiple_of(4) { char::from_u32(code).unwrap_or('x') } else { all[at] }
    };
    (0..200).map(|len| (0..len).map(|_| any()).collect()).collect()
}

fn is_the_same_when_read_back(name: &str, tokenizer: &Tokenizer, beside: &[&str]) {
    let bytes = tokenizer.built().unwrap();
    let read = Tokenizer::from_built(bytes.clone()).unwrap();
    assert!(read.built().unwrap() == bytes, "{name}: written again it is another");
    let texts = [ODD, beside].concat();
    let random = random(&texts);
    let texts: Vec<&str> = texts.iter().copied().chain(random.iter().map(String::as_str)).collect();
    same(name, tokenizer, &read, &texts);
}

#[test]
fn those_of_llama_cpp_are_the_same_when_they_are_read_back() {
    for name in VOCABULARIES {
        let file = |suffix: &str| models::path("ggml-vocabs", &format!("ggml-vocab-{name}.gguf{suffix}"));
        let checkpoint = checkpoint::open(file("")).unwrap();
        let tokenizer = models::tokenizer(&checkpoint);
        let texts = std::fs::read_to_string(file(".inp")).unwrap();
        let texts: Vec<&str> = texts.split("\n__ggml_vocab_test__\n").collect();
        is_the_same_when_read_back(name, &tokenizer, &texts);
        assert!(
            models::tokenizer(&checkpoint).built() == tokenizer.built(),
            "{name}: built again it is another"
        );
    }
}

#[test]
fn those_of_models_are_the_same_when_they_are_read_back() {
    for name in ["smollm2", "gemma3"] {
        is_the_same_when_read_back(name, &models::tokenizer(&models::open(name)), &[]);
    }
}

#[test]
fn a_tokenizer_json_is_the_same_when_it_is_read_back() {
    let file = |name: &str| models::path("ggml-vocabs", &format!("ggml-vocab-{name}.gguf"));
    let checkpoints = VOCABULARIES.map(|name| (name, checkpoint::open(file(name)).unwrap())).into_iter();
    let models = ["smollm2", "gemma3"].map(|name| (name, models::open(name)));
    let mut kept = vec![];
    for (name, checkpoint) in checkpoints.chain(models) {
        let vocabulary = models::vocabulary(checkpoint.metadata().gguf().unwrap());
        let Ok(json) = vocabulary.to_tokenizer_json() else { continue };
        let config = vocabulary.to_tokenizer_config(None, 1024).unwrap().to_string();
        let tokenizer = Tokenizer::from_json(&json, Some(config.as_bytes())).unwrap();
        if tokenizer.built().is_none() {
            assert!(tokenizer.name().starts_with("tokenizers "), "{name}: {}", tokenizer.name());
            continue;
        }
        is_the_same_when_read_back(name, &tokenizer, &[]);
        kept.push(name);
    }
    assert_eq!(kept, ["gpt-2", "llama-spm", "llama-bpe", "qwen2", "command-r", "phi-3", "gemma3"]);
}

#[test]
fn bytes_that_are_damaged_are_refused_or_do_no_harm() {
    let file = models::path("ggml-vocabs", "ggml-vocab-phi-3.gguf");
    let spm = models::tokenizer(&checkpoint::open(file).unwrap());
    let file = models::path("ggml-vocabs", "ggml-vocab-gpt-2.gguf");
    let bpe = models::tokenizer(&checkpoint::open(file).unwrap());
    let mut rng = Rng(11);
    for tokenizer in [spm, bpe] {
        let bytes = tokenizer.built().unwrap();
        let mut below = |n: usize| usize::try_from(rng.next()).unwrap() % n;
        for _ in 0..40 {
            assert!(Tokenizer::from_built(bytes[..below(bytes.len())].to_vec()).is_none());
        }
        assert!(Tokenizer::from_built([&bytes[..], &[0]].concat()).is_none());
        for round in 0..80 {
            let mut damaged = bytes.clone();
            // Near the front, where lengths and settings are, and anywhere.
            let at = below(if round % 2 == 0 { 400 } else { bytes.len() });
            damaged[at] ^= 1 << below(8);
            let Some(tokenizer) = Tokenizer::from_built(damaged) else { continue };
            for text in ODD {
                for options in all_options() {
                    let ids = tokenizer.encode(text, options).unwrap();
                    tokenizer.decode(&ids, SpecialText::Shown).unwrap();
                }
            }
        }
    }
}
