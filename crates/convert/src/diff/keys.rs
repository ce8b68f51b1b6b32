//! Differences of two checkpoints beside their tensors: by keys, if both are of one ecosystem, else by tokenizer and
//! chat template.

use std::collections::BTreeSet;

use checkpoint::{Checkpoint, Metadata};
use engine::text::VocabularyBuf;

use check::{GGUF, Said, shortened};
use engine::text;

use crate::Error;

/// A key or value that differs between the checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyDifference {
    /// The file with the key, `metadata` for GGUF, or `tokenizer` where each has it in a form of its own.
    pub file: String,
    /// The key; empty for a whole file.
    pub key: String,
    /// A's value, cut; `None`: it says nothing.
    pub a: Option<String>,
    /// B's value, cut.
    pub b: Option<String>,
    /// Why it makes no other model, if it does not: it follows from how files are cut and tensors are encoded, or it is about
    /// the file.
    pub bookkeeping: Option<&'static str>,
}

const ENCODING: &str = "follows from the encoding of the tensors";
const FILES: &str = "is about how files are laid out";
const ABOUT: &str = "is about where the file comes from";

/// Keys that make no other model: the file (of a directory any, where it is empty), the key or what it begins with, why.
static BOOKKEEPING: &[(&str, &str, &str)] = &[
    (GGUF, "general.file_type", ENCODING),
    (GGUF, "general.quantization_version", ENCODING),
    (GGUF, "general.size_label", ABOUT),
    (GGUF, "general.alignment", FILES),
    (GGUF, "split.", FILES),
    (GGUF, "quantize.imatrix.", ENCODING),
    (GGUF, "general.quantized_by", ABOUT),
    ("config.json", "torch_dtype", ENCODING),
    ("config.json", "dtype", ENCODING),
    ("config.json", "text_config.torch_dtype", ENCODING),
    ("config.json", "text_config.dtype", ENCODING),
    ("config.json", "quantization_config", ENCODING),
    ("config.json", "quantization", ENCODING),
    ("config.json", "transformers_version", ABOUT),
    ("config.json", "_name_or_path", ABOUT),
    ("generation_config.json", "transformers_version", ABOUT),
];

fn bookkeeping(file: &str, key: &str) -> Option<&'static str> {
    let fits = |begin: &str| {
        key == begin
            || (begin.ends_with('.') && key.starts_with(begin))
            || key.strip_prefix(begin).is_some_and(|rest| rest.starts_with('.'))
    };
    BOOKKEEPING.iter().find(|(of, begin, _)| *of == file && fits(begin)).map(|(.., why)| *why)
}

/// Metadata keys of both, other than tensors and configurations.
pub(super) struct Compared {
    pub(super) differences: Vec<KeyDifference>,
    /// Why something was not compared.
    pub(super) not_compared: Vec<String>,
}

/// Compares the metadata of `a` and `b`.
///
/// # Errors
/// If a file beside the weights cannot be read.
pub(super) fn compare(a: &Checkpoint, b: &Checkpoint) -> Result<Compared, Error> {
    let said = (Said::of(a)?, Said::of(b)?);
    match (said.0.dialect, said.1.dialect) {
        (Some(x), Some(y)) if x == y => {
            let names: BTreeSet<_> = said.0.keys.keys().chain(said.1.keys.keys()).collect();
            let mut differences = vec![];
            for name in names {
                let (x, y) = (said.0.keys.get(name), said.1.keys.get(name));
                if x.map(|x| &x.blake3) == y.map(|y| &y.blake3) {
                    continue;
                }
                differences.push(KeyDifference {
                    file: name.0.clone(),
                    key: name.1.clone(),
                    a: x.map(|x| x.shown.clone()),
                    b: y.map(|y| y.shown.clone()),
                    bookkeeping: bookkeeping(&name.0, &name.1),
                });
            }
            Ok(Compared { differences, not_compared: vec![] })
        }
        (Some(_), Some(_)) => by_meaning(a, b),
        (None, None) => Ok(Compared { differences: vec![], not_compared: vec![] }),
        (x, _) => {
            let (which, of) = if x.is_none() { ("A", a) } else { ("B", b) };
            let why = format!(
                "metadata, tokenizer and template: {which} is {}, which says nothing beside its tensors",
                of.format()
            );
            Ok(Compared { differences: vec![], not_compared: vec![why] })
        }
    }
}

/// The tokenizer and the chat template of two ecosystems.
fn by_meaning(a: &Checkpoint, b: &Checkpoint) -> Result<Compared, Error> {
    let mut out = Compared { differences: vec![], not_compared: vec![] };
    let mut add = |key: &str, a: Option<String>, b: Option<String>| {
        let (file, key) = ("tokenizer".to_owned(), key.to_owned());
        out.differences.push(KeyDifference { file, key, a, b, bookkeeping: None });
    };
    let (template_a, template_b) = (template(a)?, template(b)?);
    if template_a != template_b {
        let at = match (&template_a, &template_b) {
            (Some(a), Some(b)) => a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count(),
            _ => 0,
        };
        let from = |text: String| {
            let rest = text.get(at..).unwrap_or(&text);
            let begins = if at > 0 { format!("from byte {at}: ") } else { String::new() };
            format!("{begins}{}", shortened(&format!("{rest:?}")))
        };
        add("chat_template", template_a.map(from), template_b.map(from));
    }
    let mut not_compared = vec![];
    match (vocabulary(a, &mut not_compared), vocabulary(b, &mut not_compared)) {
        (Ok(None), Ok(None)) => {}
        (Ok(Some(a)), Ok(Some(b))) => {
            lists("tokens", &a.tokens, &b.tokens, &mut add);
            lists("merges", &a.merges, &b.merges, &mut add);
            let id = |id: Option<u32>| id.map(|id| id.to_string());
            for (key, a, b) in [("bos", a.bos, b.bos), ("eos", a.eos, b.eos)] {
                if a.is_some() && b.is_some() && a != b {
                    add(key, id(a), id(b));
                }
            }
        }
        (Ok(a), Ok(b)) => {
            let has = |v: Option<VocabularyBuf>| v.map(|v| format!("{} tokens", v.tokens.len()));
            add("tokens", has(a), has(b));
        }
        (a, b) => {
            let why = [a.err(), b.err()].into_iter().flatten().next().map(|e| e.to_string());
            let why = why.unwrap_or_default();
            let why = why.lines().next().unwrap_or_default();
            not_compared.push(format!("the tokenizers: {why}"));
        }
    }
    out.not_compared = not_compared;
    Ok(out)
}

/// Two lists, as their lengths and the first place where they differ.
fn lists(key: &str, a: &[String], b: &[String], add: &mut impl FnMut(&str, Option<String>, Option<String>)) {
    if a == b {
        return;
    }
    let at = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let shown = |list: &[String]| {
        let first = list.get(at).map_or("ends".to_owned(), |s| shortened(&format!("{s:?}")));
        Some(format!("{} of them, number {at}: {first}", list.len()))
    };
    add(key, shown(a), shown(b));
}

fn template(checkpoint: &Checkpoint) -> Result<Option<String>, Error> {
    Ok(match checkpoint.metadata() {
        Metadata::Gguf(gguf) => gguf.str("tokenizer.chat_template")?.map(str::to_owned),
        Metadata::Hf(hf) => text::hf_template(hf)?,
        _ => None,
    })
}

/// Returns the vocabulary; `None` if there is none. Parts that have no comparable form are added to `not_compared`.
fn vocabulary(
    checkpoint: &Checkpoint,
    not_compared: &mut Vec<String>,
) -> Result<Option<VocabularyBuf>, Error> {
    match checkpoint.metadata() {
        Metadata::Gguf(gguf) => Ok(text::vocabulary(gguf)?.map(|v| {
            let strings = |list: &[&[u8]]| {
                list.iter().map(|s| String::from_utf8_lossy(s).into_owned()).collect::<Vec<_>>()
            };
            VocabularyBuf {
                tokens: strings(&v.tokens),
                merges: strings(&v.merges),
                bos: v.bos,
                eos: v.eos,
                ..VocabularyBuf::default()
            }
        })),
        Metadata::Hf(hf) => Ok(text::hf_vocabulary(hf, checkpoint)?.map(|(vocabulary, lost)| {
            not_compared.extend(lost.into_iter().map(|loss| {
                format!("`{}` of tokenizer.json, which GGUF has no words for", loss.field.escape_debug())
            }));
            vocabulary
        })),
        _ => Ok(None),
    }
}
