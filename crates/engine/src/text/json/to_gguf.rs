//! A checked `tokenizer.json` in the words of GGUF, and what these words do not say.
//!
//! Source: gguf-py/gguf/vocab.py@0c1e57098, `SpecialVocab`; conversion/base.py there, `get_vocab_base`.

mod unigram;
mod wordpiece;

use super::super::pretokenize::PreTokenizer;
use super::super::vocabulary::kinds;
use super::super::{Error, TokenizerLoss, VocabularyBuf};
use super::file::{Bpe, FILE, File, Model, Problems, steps};
use super::{LLAMA3, QWEN2, frame, spaces};

impl File {
    /// The vocabulary that GGUF would hold.
    pub(super) fn to_vocabulary(&self) -> Result<(VocabularyBuf, Vec<TokenizerLoss>), Error> {
        let (mut problems, mut losses) = (Problems::new(), vec![]);
        let vocabulary = match &self.model {
            Model::Bpe(model) => return self.bpe(model),
            Model::WordPiece { unk, prefix, longest } => {
                let unk = self.ids.get(unk.as_str()).copied();
                self.wordpiece(unk, prefix, *longest, &mut problems, &mut losses)
            }
            Model::Unigram { pieces, unk, byte_fallback } => {
                self.unigram(pieces, *unk, *byte_fallback, &mut problems, &mut losses)
            }
            Model::WordLevel { .. } => {
                problems.push(("model.type".to_owned(), "GGUF has no words for WordLevel".to_owned()));
                VocabularyBuf::default()
            }
        };
        self.flags(&mut losses);
        if problems.is_empty() {
            Ok((vocabulary, losses))
        } else {
            Err(Error::Refused { file: FILE, problems })
        }
    }

    /// The tokens with a role, and those around a text.
    fn roles(&self, losses: &mut Vec<TokenizerLoss>) -> VocabularyBuf {
        let roles = &self.roles;
        let mut vocabulary = VocabularyBuf {
            bos: roles.bos.or(roles.cls),
            eos: roles.eos.or(roles.sep),
            pad: roles.pad,
            unk: roles.unk,
            sep: roles.sep,
            cls: roles.cls,
            mask: roles.mask,
            ..VocabularyBuf::default()
        };
        self.frame(&mut vocabulary, losses);
        vocabulary
    }

    fn bpe(&self, model: &Bpe) -> Result<(VocabularyBuf, Vec<TokenizerLoss>), Error> {
        let refused = |problems| Error::Refused { file: FILE, problems };
        let mut losses = Vec::new();
        let spaces = spaces::prefix(self, model, &mut losses);
        let mut problems = Problems::new();
        let pre = if spaces.is_some() { None } else { self.cutting(&mut problems, &mut losses) };
        for (field, text) in
            [("continuing_subword_prefix", &model.prefix), ("end_of_word_suffix", &model.suffix)]
        {
            if !text.is_empty() {
                problems.push((format!("model.{field}"), format!("GGUF has no key for `{text}`")));
            }
        }
        if model.twice {
            problems.push(("model.merges".to_owned(), "GGUF takes the first of two equal merges".to_owned()));
        }
        let merges = merges(model, &mut problems);
        let (tokens, types) = self.tokens(&mut problems);
        if !problems.is_empty() {
            return Err(refused(problems));
        }
        let vocabulary = VocabularyBuf {
            model: "gpt2".to_owned(),
            pre: pre.map(str::to_owned),
            tokens,
            types: Some(types),
            merges,
            unk: model.unk.as_ref().and_then(|unk| self.ids.get(unk.as_str()).copied()).or(self.roles.unk),
            add_space_prefix: self.roles.add_prefix_space,
            ..self.roles(&mut losses)
        };
        self.flags(&mut losses);
        if let Some(name) = pre {
            whole_words(model, name, &mut losses);
        }
        match spaces {
            Some(prefix) => Ok((spaces::as_scores(vocabulary, prefix)?, losses)),
            None => Ok((vocabulary, losses)),
        }
    }

    /// GGUF's name for the pre-tokenizer.
    fn cutting(&self, problems: &mut Problems, losses: &mut Vec<TokenizerLoss>) -> Option<&'static str> {
        let kinds = |of: &serde_json::Value, inner: &str| {
            let kinds: Vec<String> =
                steps(of, inner).iter().map(|s| s["type"].as_str().unwrap_or("?").to_owned()).collect();
            if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") }
        };
        match &steps(&self.normalizer, "normalizers")[..] {
            [] => {}
            [only] if only["type"] == "NFC" => {
                losses.push(TokenizerLoss::new("normalizer", "text that is not in NFC gets other tokens"));
            }
            _ => {
                let said = format!("GGUF has no key for {}", kinds(&self.normalizer, "normalizers"));
                problems.push(("normalizer".to_owned(), said));
            }
        }
        let by_bytes = |step: &serde_json::Value, regex: bool| {
            step["type"] == "ByteLevel"
                && step["add_prefix_space"] == false
                && step["use_regex"].as_bool().unwrap_or(true) == regex
        };
        let name = match steps(&self.pre_tokenizer, "pretokenizers")[..] {
            [bytes] if by_bytes(bytes, true) => Some("gpt-2"),
            [digits, bytes]
                if digits["type"] == "Digits"
                    && digits["individual_digits"] == true
                    && by_bytes(bytes, true) =>
            {
                Some("smollm")
            }
            [split, bytes]
                if split["type"] == "Split"
                    && split["behavior"] == "Isolated"
                    && split["invert"] == false
                    && by_bytes(bytes, false) =>
            {
                let regex = split["pattern"]["Regex"].as_str().unwrap_or_default();
                [(LLAMA3, "llama-bpe"), (QWEN2, "qwen2")]
                    .into_iter()
                    .find(|(r, _)| *r == regex)
                    .map(|(_, n)| n)
            }
            _ => None,
        };
        if name.is_none() {
            let known = "ByteLevel alone, after Digits, or after the Split of Llama 3 or Qwen 2; Metaspace";
            let said = format!(
                "{} is no way of cutting text that is known of GGUF, only {known}",
                kinds(&self.pre_tokenizer, "pretokenizers")
            );
            problems.push(("pre_tokenizer".to_owned(), said));
        }
        name
    }

    /// The tokens by id, and what each is, as GGUF numbers it.
    fn tokens(&self, problems: &mut Problems) -> (Vec<String>, Vec<i32>) {
        let mut tokens: Vec<Option<&str>> = vec![None; self.size()];
        let mut types = vec![kinds::NORMAL; tokens.len()];
        let added = self.added.iter().map(|token| (&token.content, &token.id));
        for (text, id) in self.ids.iter().chain(added) {
            if let Some(slot) = tokens.get_mut(*id as usize) {
                *slot = Some(text);
            }
        }
        for token in &self.added {
            if let Some(kind) = types.get_mut(token.id as usize) {
                *kind = if token.special { kinds::CONTROL } else { kinds::USER_DEFINED };
            }
        }
        if let Some(id) = tokens.iter().position(Option::is_none) {
            problems.push(("model.vocab".to_owned(), format!("no token has the id {id}")));
        }
        (tokens.into_iter().map(|text| text.unwrap_or_default().to_owned()).collect(), types)
    }

    /// Which of BOS and EOS stand around a text.
    fn frame(&self, vocabulary: &mut VocabularyBuf, losses: &mut Vec<TokenizerLoss>) {
        let Some((before, after)) = frame::of(&self.post_processor) else {
            losses.push(TokenizerLoss::new(
                "post_processor",
                "a text stands several times in its template, or never",
            ));
            return;
        };
        // A file without a configuration names no roles; the token put before a text is then BOS.
        vocabulary.bos = vocabulary.bos.or(before.first().copied());
        vocabulary.eos = vocabulary.eos.or(after.first().copied());
        let is = |side: &[u32], id: Option<u32>| matches!((side, id), ([only], Some(id)) if *only == id);
        vocabulary.add_bos = Some(is(&before, vocabulary.bos));
        vocabulary.add_eos = Some(is(&after, vocabulary.eos));
        let between = frame::of_pair(&self.post_processor).map_or(0, |pair| pair.between.len());
        vocabulary.add_sep = (between > 0).then_some(between == 2);
        for (side, id, at) in [(&before, vocabulary.bos, "before"), (&after, vocabulary.eos, "after")] {
            if !side.is_empty() && !is(side, id) {
                let effect = format!("the tokens {side:?} {at} a text are left out");
                losses.push(TokenizerLoss::new("post_processor", effect));
            }
        }
    }

    fn flags(&self, losses: &mut Vec<TokenizerLoss>) {
        let with = |of: fn(&super::file::Added) -> bool| -> Vec<String> {
            let tokens = self.added.iter().filter(|token| of(token));
            tokens.map(|token| format!("`{}`", token.content)).take(4).collect()
        };
        for (field, tokens, effect) in [
            ("lstrip", with(|t| t.lstrip), "spaces before it become tokens"),
            ("rstrip", with(|t| t.rstrip), "spaces after it become tokens"),
            ("single_word", with(|t| t.single_word), "it is found inside of words"),
        ] {
            if !tokens.is_empty() {
                let effect = format!("{effect} ({})", tokens.join(", "));
                losses.push(TokenizerLoss::new(&format!("added_tokens.{field}"), effect));
            }
        }
    }
}

/// `left right` for each merge.
fn merges(model: &Bpe, problems: &mut Problems) -> Vec<String> {
    if let Some((left, right)) =
        model.merges.iter().find(|(left, right)| left.contains(' ') || right.contains(' '))
    {
        let said = format!("GGUF has a space between `{left}` and `{right}`, and none in them");
        problems.push(("model.merges".to_owned(), said));
    }
    model.merges.iter().map(|(left, right)| format!("{left} {right}")).collect()
}

/// Whether words that are tokens are taken whole is said by the name of the pre-tokenizer.
fn whole_words(model: &Bpe, name: &str, losses: &mut Vec<TokenizerLoss>) {
    let whole = PreTokenizer::named(name).is_ok_and(|pre| pre.whole_words);
    if whole != model.ignore_merges {
        let effect = if whole {
            "words that are tokens are taken whole, also where no merge makes them"
        } else {
            "words that are tokens are merged, and may become others"
        };
        losses.push(TokenizerLoss::new("model.ignore_merges", effect));
    }
}
