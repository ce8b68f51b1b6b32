//! The shapes of `tokenizer.json` that known models have, read for our own BPE, which starts fast.
//!
//! Files taken here give results proven equal to the library's: `golden/tokenizer/random.py` and `shapes.py`.
//! Everything else goes to [`Reference`](super::super::reference::Reference).

use serde_json::{Value, json};

use super::super::bpe::{Bpe, Whole};
use super::super::built::{Reader, Writer};
use super::super::pretokenize::{Cutter, PreTokenizer, json as cuts};
use super::super::special::TextOrToken;
use super::super::store::{SPACE_MARK, Spelling, TokenStore, TokenType, byte_of};
use super::super::{EncodeOptions, Error, SpecialText};
use super::added::AddedTokens;
use super::file::{self, File, Model, Problems, has_byte_letters, steps};
use super::frame::{self, Frame};
use super::{LLAMA3, QWEN2};

/// How spaces change before merging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marks {
    /// They are bytes like others.
    None,
    /// They are marked.
    Replaced,
    /// They are marked, and every part of a text gets one before it.
    Prepended,
    /// The same, unless it begins with one.
    Always,
    /// The same, only where a text begins.
    First,
}

/// All of them. Their places are in built forms.
const MARKS: [Marks; 5] = [Marks::None, Marks::Replaced, Marks::Prepended, Marks::Always, Marks::First];

/// A tokenizer of one of the shapes.
pub(in super::super) struct Fast {
    store: TokenStore,
    bpe: Bpe,
    added: AddedTokens,
    marks: Marks,
    frame: Frame,
    /// Spaces taken off the beginning of decoded text.
    strip: usize,
}

/// The settings of a file that has one of the known shapes.
struct Shape {
    pre: PreTokenizer,
    marks: Marks,
    strip: usize,
}

impl Fast {
    /// The tokenizer of a file, or the parts of it that no shape has.
    pub(in super::super) fn new(file: &File) -> Result<Result<Fast, Problems>, Error> {
        let (shape, frame) = match shape(file) {
            Ok(shape) => shape,
            Err(reasons) => return Ok(Err(reasons)),
        };
        let Model::Bpe(model) = &file.model else { return Ok(Err(vec![])) };
        let (texts, types) = file.texts();
        let mut store = TokenStore::new(&texts, Some(&types))?;
        let merges = model.merges.iter().map(|(left, right)| Some((left.as_bytes(), right.as_bytes())));
        let by_bytes = shape.marks == Marks::None;
        let bpe = if by_bytes {
            Bpe::over_bytes(&store, shape.pre, merges)?
        } else {
            Bpe::over_chars(&store, shape.pre, merges)?
        };
        let whole = if model.ignore_merges { Whole::Always } else { Whole::Never };
        store.render(if by_bytes { Spelling::AnyByteLevel } else { Spelling::AnySpaceMark });
        let added = AddedTokens::new(&file.added);
        let (marks, strip) = (shape.marks, shape.strip);
        Ok(Ok(Fast { store, bpe: bpe.with(whole, file.outside()), added, marks, frame, strip }))
    }

    /// Appends all that cannot be found again faster.
    pub(in super::super) fn write(&self, out: &mut Writer) {
        let marks = MARKS.iter().position(|marks| *marks == self.marks).and_then(|at| u32::try_from(at).ok());
        // A number that is too great reads back as none.
        let strip = u32::try_from(self.strip).unwrap_or(u32::MAX);
        out.words(&[marks.unwrap_or(u32::MAX), strip].into_iter().collect());
        out.section(self.bpe.pre.name.as_bytes());
        out.words(&self.frame.0.iter().copied().collect());
        out.words(&self.frame.1.iter().copied().collect());
        self.added.write(out);
        self.store.write(out);
        self.bpe.write(out);
    }

    /// Reads it back; `None` if it is not whole.
    pub(in super::super) fn read(from: &mut Reader) -> Option<Fast> {
        let settings: Vec<u32> = from.words()?.iter().collect();
        let [marks, strip] = settings[..] else { return None };
        let marks = *MARKS.get(marks as usize)?;
        let strip = usize::try_from(strip).ok().filter(|_| strip != u32::MAX)?;
        let pre = cuts::named(&from.text()?)?;
        let frame = (from.words()?.iter().collect(), from.words()?.iter().collect());
        let (added, store) = (AddedTokens::read(from)?, TokenStore::read(from)?);
        let bpe = Bpe::read(from, &store, pre, marks != Marks::None)?;
        Some(Fast { store, bpe, added, marks, frame, strip })
    }

    /// The algorithm and its variant.
    pub(in super::super) fn name(&self) -> String {
        if self.marks == Marks::None { format!("bpe {}", self.bpe.pre.name) } else { "bpe chars".to_owned() }
    }

    pub(in super::super) fn encode(&self, text: &str, options: EncodeOptions) -> Vec<u32> {
        let mut out = Vec::with_capacity(text.len() / 3 + 2);
        if options.add_special {
            out.extend_from_slice(&self.frame.0);
        }
        let mut cutter = Cutter::default();
        let mut marked = String::new();
        let mut at_start = true;
        for part in self.added.cut(text, options.parse_special) {
            match part {
                TextOrToken::Token(id) => out.push(id),
                TextOrToken::Text(part) if self.marks == Marks::None => {
                    self.bpe.encode(&self.store, part, &mut cutter, &mut out);
                }
                TextOrToken::Text(part) => {
                    marked.clear();
                    let begins = part.starts_with(' ') || part.starts_with(SPACE_MARK);
                    let prefix = match self.marks {
                        Marks::None | Marks::Replaced => false,
                        Marks::Prepended => true,
                        Marks::Always => !begins,
                        Marks::First => !begins && at_start,
                    };
                    if prefix {
                        marked.push_str(SPACE_MARK);
                    }
                    for c in part.chars() {
                        if c == ' ' { marked.push_str(SPACE_MARK) } else { marked.push(c) }
                    }
                    self.bpe.encode(&self.store, &marked, &mut cutter, &mut out);
                }
            }
            at_start = false;
        }
        if options.add_special {
            out.extend_from_slice(&self.frame.1);
        }
        out
    }

    /// The text of `tokens`, as the decoders of the shapes give it.
    pub(in super::super) fn decode(&self, tokens: &[u32], special: SpecialText) -> String {
        if self.marks == Marks::None {
            let bytes: Vec<u8> =
                tokens.iter().flat_map(|token| self.bytes(*token, special)).copied().collect();
            return String::from_utf8_lossy(&bytes).into_owned();
        }
        let mut text = String::new();
        let mut run = Vec::new();
        let flush = |run: &mut Vec<u8>, text: &mut String| {
            match std::str::from_utf8(run) {
                Ok(whole) => text.push_str(whole),
                // A run that is not UTF-8 as a whole is lost as a whole.
                Err(_) => text.extend(run.iter().map(|_| char::REPLACEMENT_CHARACTER)),
            }
            run.clear();
        };
        for &token in tokens {
            let bytes = self.bytes(token, special);
            if self.store.text(token).and_then(byte_of).is_some() {
                run.extend_from_slice(bytes);
            } else if !bytes.is_empty() {
                flush(&mut run, &mut text);
                text.push_str(std::str::from_utf8(bytes).unwrap_or_default());
            }
        }
        flush(&mut run, &mut text);
        let spaces = text.bytes().take(self.strip).take_while(|byte| *byte == b' ').count();
        text.split_off(spaces)
    }

    /// The bytes of one token, wherever it stands.
    pub(in super::super) fn bytes(&self, token: u32, special: SpecialText) -> &[u8] {
        let steers = self.store.kind(token).is_some_and(TokenType::steers);
        if steers && special == SpecialText::Hidden {
            return &[];
        }
        self.store.bytes(token).unwrap_or_default()
    }

    /// Ids before and after a text.
    pub(in super::super) fn around(&self) -> &Frame {
        &self.frame
    }

    pub(in super::super) fn store(&self) -> &TokenStore {
        &self.store
    }
}

/// The shape and the frame of a file, or what of it none has.
fn shape(file: &File) -> Result<(Shape, Frame), Problems> {
    let mut reasons = Problems::new();
    let mut lacks = |path: &str, what: &str| reasons.push((path.to_owned(), what.to_owned()));
    let Model::Bpe(model) = &file.model else {
        lacks("model.type", "another model than BPE");
        return Err(reasons);
    };
    if model.twice {
        lacks("model.merges", "a pair that is merged twice");
    }
    if !model.prefix.is_empty() {
        lacks("model.continuing_subword_prefix", "a prefix inside of words");
    }
    if !model.suffix.is_empty() {
        lacks("model.end_of_word_suffix", "a suffix at the end of words");
    }
    for token in &file.added {
        for (flag, set) in
            [("lstrip", token.lstrip), ("rstrip", token.rstrip), ("single_word", token.single_word)]
        {
            if set {
                lacks(&format!("added_tokens.{flag}"), &format!("`{}` has it", token.content));
            }
        }
    }
    let frame = frame::of(&file.post_processor);
    if frame.is_none() {
        lacks("post_processor", "a text that does not stand once in its template");
    }
    let shape =
        if model.byte_fallback { over_chars(file, model, &mut lacks) } else { over_bytes(file, &mut lacks) };
    match (shape, frame) {
        (Some(shape), Some(frame)) if reasons.is_empty() => Ok((shape, frame)),
        _ => {
            reasons.truncate(8);
            Err(reasons)
        }
    }
}

fn over_bytes(file: &File, lacks: &mut dyn FnMut(&str, &str)) -> Option<Shape> {
    if !has_byte_letters(&file.ids) {
        lacks("model.vocab", "bytes without a token");
    }
    if !steps(&file.normalizer, "normalizers").is_empty() {
        lacks("normalizer", &kinds_of(&file.normalizer, "normalizers"));
    }
    if file.decoder["type"] != "ByteLevel" {
        lacks("decoder", &kinds_of(&file.decoder, "decoders"));
    }
    let bytes = |step: &Value, regex: bool| {
        step["type"] == "ByteLevel"
            && step["add_prefix_space"] == false
            && step["use_regex"].as_bool().unwrap_or(true) == regex
    };
    let split = |step: &Value| {
        let regex = step["pattern"]["Regex"].as_str()?;
        let isolated = step["type"] == "Split" && step["behavior"] == "Isolated" && step["invert"] == false;
        let known = [(LLAMA3, &cuts::LLAMA3), (QWEN2, &cuts::QWEN2)];
        known.into_iter().find(|(known, _)| isolated && *known == regex).map(|(_, pre)| *pre)
    };
    let pre = match steps(&file.pre_tokenizer, "pretokenizers")[..] {
        [last] if bytes(last, true) => Some(cuts::BYTES),
        [first, last]
            if first["type"] == "Digits" && first["individual_digits"] == true && bytes(last, true) =>
        {
            Some(cuts::DIGITS)
        }
        [first, last] if bytes(last, false) => split(first),
        _ => None,
    };
    if pre.is_none() {
        lacks("pre_tokenizer", &kinds_of(&file.pre_tokenizer, "pretokenizers"));
    }
    Some(Shape { pre: pre?, marks: Marks::None, strip: 0 })
}

fn over_chars(file: &File, model: &file::Bpe, lacks: &mut dyn FnMut(&str, &str)) -> Option<Shape> {
    let spelled = |text: &str| text.len() == 6 && text.starts_with("<0x") && text.ends_with('>');
    if !model.has_all_bytes(&file.ids) || !file.ids.contains_key("<0x00>") {
        lacks("model.vocab", "bytes without a token");
    }
    let odd = |text: &str| spelled(text) && byte_of(text.as_bytes()).is_none();
    if file.ids.keys().chain(file.added.iter().map(|token| &token.content)).any(|text| odd(text)) {
        lacks("model.vocab", "a token that is almost a byte");
    }
    if model.merges.iter().any(|(left, right)| spelled(left) || spelled(right)) {
        lacks("model.merges", "bytes that are merged");
    }
    let normalizers = steps(&file.normalizer, "normalizers");
    let marks = |n: &Value| {
        n["type"] == "Replace" && n["pattern"]["String"] == " " && n["content"].as_str() == Some(SPACE_MARK)
    };
    let prepends = |n: &Value| n["type"] == "Prepend" && n["prepend"].as_str() == Some(SPACE_MARK);
    // Once spaces are marked, no plain space is left to cut at.
    let idle = |p: &Value| p["type"] == "Split" && p["pattern"]["String"] == " " && p["invert"] == false;
    let metaspace = |p: &Value| {
        let plain = p["type"] == "Metaspace"
            && p["replacement"].as_str() == Some(SPACE_MARK)
            && p["split"] == false
            && p["add_prefix_space"] != false;
        match p["prepend_scheme"].as_str() {
            Some("first") if plain => Some(Marks::First),
            None | Some("always") if plain => Some(Marks::Always),
            Some("never") if plain => Some(Marks::Replaced),
            _ => None,
        }
    };
    let marks = match (&normalizers[..], &steps(&file.pre_tokenizer, "pretokenizers")[..]) {
        ([first, second], []) if prepends(first) && marks(second) => Some(Marks::Prepended),
        ([only], []) if marks(only) => Some(Marks::Replaced),
        ([only], [cut]) if marks(only) && idle(cut) => Some(Marks::Replaced),
        ([], [cut]) => metaspace(cut),
        _ => None,
    };
    if marks.is_none() {
        let kinds =
            [kinds_of(&file.normalizer, "normalizers"), kinds_of(&file.pre_tokenizer, "pretokenizers")];
        lacks("pre_tokenizer", &format!("{} after the normalizer {}", kinds[1], kinds[0]));
    }
    if !normalizers.is_empty() && file.added.iter().any(|token| token.normalized) {
        lacks("added_tokens.normalized", "tokens that are looked for in normalized text");
    }
    let strip = decoding(&file.decoder);
    if strip.is_none() {
        lacks("decoder", &kinds_of(&file.decoder, "decoders"));
    }
    Some(Shape { pre: cuts::UNCUT, marks: marks?, strip: strip? })
}

/// The number of spaces that decoding takes off, if it is that of SentencePiece models.
fn decoding(decoder: &Value) -> Option<usize> {
    let plain = [
        json!({"type": "Replace", "pattern": {"String": SPACE_MARK}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    let steps = steps(decoder, "decoders");
    let (first, rest) = steps.split_at_checked(plain.len())?;
    if !first.iter().zip(&plain).all(|(step, plain)| *step == plain) {
        return None;
    }
    match rest {
        [] => Some(0),
        [strip] if strip["type"] == "Strip" && strip["content"] == " " => {
            strip["start"].as_u64().and_then(|n| usize::try_from(n).ok())
        }
        _ => None,
    }
}

fn kinds_of(component: &Value, inner: &str) -> String {
    let names: Vec<&str> =
        steps(component, inner).iter().map(|step| step["type"].as_str().unwrap_or("?")).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
