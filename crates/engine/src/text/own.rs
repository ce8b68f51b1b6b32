//! The tokenizer that a GGUF file describes: it gives the tokens that llama.cpp gives.

use super::bpe::{self, Bpe};
use super::built::{Reader, Writer};
use super::pretokenize::{Cutter, LINES, PreTokenizer};
use super::special::{Specials, TextOrToken, find_ends};
use super::spm::Spm;
use super::store::{SPACE_MARK, Spelling, TokenStore, TokenType};
use super::{EncodeOptions, Error, SpecialText, Vocabulary};

enum Model {
    Bpe(Bpe),
    Spm(Spm),
}

/// A tokenizer with its vocabulary.
pub(super) struct Own {
    pub(super) name: String,
    store: TokenStore,
    model: Model,
    specials: Specials,
    pub(super) roles: Roles,
    /// Spaces are [`SPACE_MARK`] before a BPE sees them.
    mark_spaces: bool,
    /// Tokens that end a generation, sorted.
    pub(super) ends: Vec<u32>,
}

impl Own {
    /// Checks a vocabulary.
    ///
    /// # Errors
    /// [`Error::Malformed`] where lists disagree in length, an id is out of range, a merge names what is no
    /// token, a token is listed twice; [`Error::Unsupported`] for a model or pre-tokenizer that is not known.
    pub(super) fn new(vocabulary: &Vocabulary<'_>) -> Result<Own, Error> {
        let store = TokenStore::new(&vocabulary.tokens, vocabulary.types.as_deref())?;
        let pairs = vocabulary.merges.iter().map(|merge| bpe::split_merge(merge));
        let mut roles = Roles::of(vocabulary);
        let (name, model) = match vocabulary.model {
            "llama" => {
                let in_range = |id: u32| Some(id).filter(|id| (*id as usize) < store.len());
                roles.unk = roles.unk.or(in_range(0));
                roles.bos = roles.bos.or(in_range(1));
                roles.eos = roles.eos.or(in_range(2));
                roles.add_bos = vocabulary.add_bos.unwrap_or(true);
                let space_prefix = vocabulary.add_space_prefix.unwrap_or(true);
                let spm = Spm::new(&store, vocabulary.scores.as_deref(), space_prefix, roles.unk)?;
                ("spm".to_owned(), Model::Spm(spm))
            }
            "gpt2" => {
                let pre = PreTokenizer::named(vocabulary.pre.unwrap_or("default"))?;
                roles.add_bos = vocabulary.add_bos.unwrap_or(pre.add_bos);
                (format!("bpe {}", pre.name), Model::Bpe(Bpe::over_bytes(&store, pre, pairs)?))
            }
            "gemma4" => {
                // Files say `false` by mistake: https://github.com/ggml-org/llama.cpp/pull/21500
                roles.add_bos = true;
                (format!("bpe {}", LINES.name), Model::Bpe(Bpe::over_chars(&store, LINES, pairs)?))
            }
            other => {
                return Err(Error::Unsupported {
                    what: "tokenizer model",
                    found: other.to_owned(),
                    supported: "llama, gpt2, gemma4, bert, t5".to_owned(),
                });
            }
        };
        Own::assemble(name, store, model, roles)
    }

    fn assemble(name: String, mut store: TokenStore, model: Model, roles: Roles) -> Result<Own, Error> {
        roles.check(store.len())?;
        let ends = find_ends(&mut store, &[roles.eos, roles.eot, roles.eom]);
        let mark_spaces = matches!(&model, Model::Bpe(bpe) if bpe.atoms_are_chars());
        let by_bytes = matches!(&model, Model::Bpe(_)) && !mark_spaces;
        store.render(if by_bytes { Spelling::ByteLevel } else { Spelling::SpaceMark });
        let specials = Specials::new(&store);
        Ok(Own { name, store, model, specials, roles, mark_spaces, ends })
    }

    /// Appends all that cannot be found again faster.
    pub(super) fn write(&self, out: &mut Writer) {
        let (kind, pre) = match &self.model {
            Model::Spm(_) => (0, ""),
            Model::Bpe(bpe) => (if self.mark_spaces { 2 } else { 1 }, bpe.pre.name),
        };
        out.section(&[kind]);
        out.section(pre.as_bytes());
        out.section(self.name.as_bytes());
        self.roles.write(out);
        out.words(&self.ends.iter().copied().collect());
        self.store.write(out);
        match &self.model {
            Model::Bpe(bpe) => bpe.write(out),
            Model::Spm(spm) => spm.write(out),
        }
    }

    /// Reads it back; `None` if it is not whole.
    pub(super) fn read(from: &mut Reader) -> Option<Own> {
        let (kind, pre, name) = (from.section()?, from.text()?, from.text()?);
        let roles = Roles::read(from)?;
        let ends: Vec<u32> = from.words()?.iter().collect();
        let store = TokenStore::read(from)?;
        let model = match kind.bytes() {
            [0] => Model::Spm(Spm::read(from, &store, roles.unk)?),
            [1] => Model::Bpe(Bpe::read(from, &store, PreTokenizer::named(&pre).ok()?, false)?),
            [2] => Model::Bpe(Bpe::read(from, &store, LINES, true)?),
            _ => return None,
        };
        roles.check(store.len()).ok()?;
        let mark_spaces = matches!(&model, Model::Bpe(bpe) if bpe.atoms_are_chars());
        let specials = Specials::new(&store);
        ends.is_sorted().then_some(Own { name, store, model, specials, roles, mark_spaces, ends })
    }

    /// The tokens of `text`.
    pub(super) fn encode(&self, text: &str, options: EncodeOptions) -> Vec<u32> {
        let mut out = Vec::with_capacity(text.len() / 3 + 2);
        if options.add_special && self.roles.add_bos {
            out.extend(self.roles.bos);
        }
        let mut cutter = Cutter::default();
        let mut opens = true;
        for part in self.specials.cut(&self.store, text, options.parse_special) {
            match part {
                TextOrToken::Token(id) => {
                    out.push(id);
                    opens = true;
                }
                TextOrToken::Text(text) => {
                    match &self.model {
                        Model::Spm(spm) => spm.encode(&self.store, text, opens, &mut out),
                        Model::Bpe(bpe) if self.mark_spaces => {
                            bpe.encode(&self.store, &text.replace(' ', SPACE_MARK), &mut cutter, &mut out);
                        }
                        Model::Bpe(bpe) => bpe.encode(&self.store, text, &mut cutter, &mut out),
                    }
                    opens = false;
                }
            }
        }
        if options.add_special && self.roles.add_eos {
            out.extend(self.roles.eos);
        }
        out
    }

    /// The text of `tokens`; bytes that are no UTF-8 become U+FFFD.
    ///
    /// With the first token, the space that [`encode`](Self::encode) put before the text is taken away.
    pub(super) fn decode(&self, tokens: &[u32], special: SpecialText) -> String {
        let mut bytes = Vec::new();
        for token in tokens {
            bytes.extend_from_slice(self.bytes(*token, special));
        }
        let first = tokens.iter().copied().find(|token| Some(*token) != self.roles.bos);
        let put = matches!(&self.model, Model::Spm(spm) if spm.space_prefix);
        if put && first.is_some_and(|token| self.bytes(token, special).starts_with(b" ")) {
            let bos = tokens.iter().take_while(|token| Some(**token) == self.roles.bos);
            let at = bos.map(|token| self.bytes(*token, special).len()).sum::<usize>();
            bytes.remove(at);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The bytes that a token adds to a text: not always whole characters (see
    /// [`TextStream`]), none for a token outside the vocabulary.
    pub(super) fn bytes(&self, token: u32, special: SpecialText) -> &[u8] {
        let steers = self.store.kind(token).is_some_and(TokenType::steers);
        if steers && special == SpecialText::Hidden {
            return &[];
        }
        self.store.bytes(token).unwrap_or_default()
    }

    /// Ids before and after a text.
    pub(super) fn around(&self) -> (Vec<u32>, Vec<u32>) {
        let Roles { bos, eos, add_bos, add_eos, .. } = self.roles;
        let only = |id: Option<u32>, adds: bool| id.filter(|_| adds).into_iter().collect();
        (only(bos, add_bos), only(eos, add_eos))
    }

    pub(super) fn store(&self) -> &TokenStore {
        &self.store
    }
}

/// The tokens with a role, and which of them frame a text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Roles {
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    eot: Option<u32>,
    eom: Option<u32>,
    unk: Option<u32>,
    pad: Option<u32>,
    pub(super) add_bos: bool,
    add_eos: bool,
}

impl Roles {
    fn of(vocabulary: &Vocabulary<'_>) -> Roles {
        let Vocabulary { bos, eos, eot, eom, unk, pad, add_bos, add_eos, .. } = *vocabulary;
        let (add_bos, add_eos) = (add_bos.unwrap_or(false), add_eos.unwrap_or(false));
        Roles { bos, eos, eot, eom, unk, pad, add_bos, add_eos }
    }

    fn write(&self, out: &mut Writer) {
        let Roles { bos, eos, eot, eom, unk, pad, add_bos, add_eos } = *self;
        // No id is the greatest number: a vocabulary has fewer tokens.
        let ids = [bos, eos, eot, eom, unk, pad].map(|id| id.unwrap_or(u32::MAX));
        out.words(&ids.into_iter().chain([u32::from(add_bos), u32::from(add_eos)]).collect());
    }

    fn read(from: &mut Reader) -> Option<Roles> {
        let words: Vec<u32> = from.words()?.iter().collect();
        let [bos, eos, eot, eom, unk, pad, add_bos, add_eos] = words[..] else { return None };
        let [bos, eos, eot, eom, unk, pad] =
            [bos, eos, eot, eom, unk, pad].map(|id| Some(id).filter(|id| *id != u32::MAX));
        let (add_bos, add_eos) = (add_bos != 0, add_eos != 0);
        Some(Roles { bos, eos, eot, eom, unk, pad, add_bos, add_eos })
    }

    /// Every id must name one of `tokens` tokens, and what is to be added must exist.
    fn check(&self, tokens: usize) -> Result<(), Error> {
        let named = [
            ("tokenizer.ggml.bos_token_id", self.bos),
            ("tokenizer.ggml.eos_token_id", self.eos),
            ("tokenizer.ggml.eot_token_id", self.eot),
            ("tokenizer.ggml.eom_token_id", self.eom),
            ("tokenizer.ggml.unknown_token_id", self.unk),
            ("tokenizer.ggml.padding_token_id", self.pad),
        ];
        for (field, id) in named {
            if let Some(id) = id.filter(|id| *id as usize >= tokens) {
                return Err(Error::malformed(field, format!("{id}, and there are {tokens} tokens")));
            }
        }
        let added = [
            ("tokenizer.ggml.add_bos_token", self.add_bos, self.bos),
            ("tokenizer.ggml.add_eos_token", self.add_eos, self.eos),
        ];
        match added.into_iter().find(|(_, add, id)| *add && id.is_none()) {
            Some((field, ..)) => Err(Error::malformed(field, "true, and no such token is named")),
            None => Ok(()),
        }
    }
}
