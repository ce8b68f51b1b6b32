//! The tokens themselves: text, kind, what they render as, and the way from text to id.

use super::Error;
use super::built::{Reader, Writer};
use super::table::{Seed, Strings, StringsBuf, Table, TableBuf};

/// The word boundary of SentencePiece vocabularies, U+2581.
pub(super) const SPACE_MARK: &str = "\u{2581}";

const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";

/// The kind of a token. Values are those of `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenType {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl TokenType {
    fn from_gguf(value: i32) -> Option<TokenType> {
        Some(match value {
            1 => TokenType::Normal,
            2 => TokenType::Unknown,
            3 => TokenType::Control,
            4 => TokenType::UserDefined,
            // 0 is "undefined"; like an unused token it has no text of its own.
            0 | 5 => TokenType::Unused,
            6 => TokenType::Byte,
            _ => return None,
        })
    }

    fn to_u8(self) -> u8 {
        match self {
            TokenType::Normal => 1,
            TokenType::Unknown => 2,
            TokenType::Control => 3,
            TokenType::UserDefined => 4,
            TokenType::Unused => 5,
            TokenType::Byte => 6,
        }
    }

    fn from_u8(value: u8) -> Option<TokenType> {
        TokenType::from_gguf(i32::from(value)).filter(|_| value > 0)
    }

    /// Whether the token steers the model and is not text: hidden from a reader, and recognised in a
    /// prompt only where that is asked for.
    pub(super) fn steers(self) -> bool {
        matches!(self, TokenType::Control | TokenType::Unknown)
    }
}

/// How the text of a normal token stands for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// Each byte is one printable character (GPT-2's table).
    ByteLevel,
    /// UTF-8, with [`SPACE_MARK`] for a space.
    SpaceMark,
    /// As the decoder `ByteLevel` of tokenizers has it, for tokens of any kind: bytes by GPT-2's table, or UTF-8 if a
    /// character is outside it.
    AnyByteLevel,
    /// As the decoders `Replace` and `ByteFallback` of tokenizers have it, for tokens of any kind.
    AnySpaceMark,
}

/// All tokens of a vocabulary.
pub(super) struct TokenStore {
    texts: Strings,
    rendered: Strings,
    kinds: Vec<TokenType>,
    seed: Seed,
    ids: Table,
}

impl TokenStore {
    /// Checks and indexes `tokens`; `types` as in [`Vocabulary::types`](super::Vocabulary::types).
    pub(super) fn new(tokens: &[&[u8]], types: Option<&[i32]>) -> Result<TokenStore, Error> {
        let too_many = || Error::malformed(TOKENS, "more tokens than a 32-bit id can name");
        if tokens.is_empty() {
            return Err(Error::malformed(TOKENS, "no tokens"));
        }
        if u32::try_from(tokens.len()).is_err() {
            return Err(too_many());
        }
        if let Some(types) = types.filter(|types| types.len() != tokens.len()) {
            let problem = format!("{} types for {} tokens", types.len(), tokens.len());
            return Err(Error::malformed(TYPES, problem));
        }
        let total = tokens.iter().map(|token| token.len()).sum();
        let mut texts = StringsBuf::with_capacity(tokens.len(), total);
        let mut kinds = Vec::with_capacity(tokens.len());
        for (id, text) in (0u32..).zip(tokens) {
            if std::str::from_utf8(text).is_err() {
                let text = String::from_utf8_lossy(text);
                return Err(Error::malformed(TOKENS, format!("token {id} `{text}` is not UTF-8")));
            }
            let kind = match types.map(|types| types[id as usize]) {
                None => TokenType::Normal,
                Some(value) => TokenType::from_gguf(value).ok_or_else(|| {
                    Error::malformed(TYPES, format!("token {id} has type {value}, types are 0 to 6"))
                })?,
            };
            if kind == TokenType::Byte && byte_of(text).is_none() {
                let text = String::from_utf8_lossy(text);
                let problem = format!("token {id} `{text}` is a byte token, whose text must be `<0xHH>`");
                return Err(Error::malformed(TYPES, problem));
            }
            kinds.push(kind);
            texts.bytes.extend_from_slice(text);
            texts.close().ok_or_else(|| Error::malformed(TOKENS, "more than 4 GiB of text"))?;
        }
        let texts = texts.finish();
        let seed = Seed::of(&texts);
        let mut ids = TableBuf::new(tokens.len()).ok_or_else(too_many)?;
        // An empty token stands for nothing that a text could hold: it has no way back.
        for id in (0u32..).take(texts.len()) {
            let text = texts.get(id).unwrap_or_default();
            if text.is_empty() {
                continue;
            }
            if let Some(other) = ids.insert(seed.text(text), id, |other| texts.get(other) == Some(text)) {
                let text = String::from_utf8_lossy(text);
                let problem = format!("tokens {other} and {id} are both `{text}`");
                return Err(Error::malformed(TOKENS, problem));
            }
        }
        Ok(TokenStore { texts, rendered: Strings::default(), kinds, seed, ids: ids.finish() })
    }

    /// Appends all of it.
    pub(super) fn write(&self, out: &mut Writer) {
        out.strings(&self.texts);
        out.strings(&self.rendered);
        out.section(&self.kinds.iter().map(|kind| kind.to_u8()).collect::<Vec<u8>>());
        out.section(&self.seed.bytes());
        out.words(&self.ids.slots);
    }

    /// Reads it back; `None` if it is not whole.
    pub(super) fn read(from: &mut Reader) -> Option<TokenStore> {
        let (texts, rendered) = (from.strings()?, from.strings()?);
        let kinds = from.section()?;
        let kinds: Option<Vec<TokenType>> =
            kinds.bytes().iter().map(|kind| TokenType::from_u8(*kind)).collect();
        let (kinds, seed) = (kinds?, Seed::read(from.section()?.bytes())?);
        let ids = Table::over(from.words()?, texts.len())?;
        let agree = texts.len() == kinds.len() && rendered.len() == kinds.len();
        let store = TokenStore { texts, rendered, kinds, seed, ids };
        // A table of other hashes than ours finds nothing: some tokens show that.
        let finds = |id: u32| {
            let text = store.text(id).unwrap_or_default();
            text.is_empty() || store.id(text) == Some(id)
        };
        (agree && samples(store.len()).all(finds)).then_some(store)
    }

    /// The numbers that its hashes depend on.
    pub(super) fn seed(&self) -> Seed {
        self.seed
    }

    /// Works out what each token renders as. Kinds are final from here on.
    pub(super) fn render(&mut self, spelling: Spelling) {
        let mut rendered = StringsBuf::with_capacity(self.kinds.len(), self.texts.bytes.bytes().len());
        let table = ByteTable::new();
        for (id, kind) in (0u32..).zip(&self.kinds) {
            let text = self.texts.get(id).unwrap_or_default();
            let out = &mut rendered.bytes;
            match kind {
                _ if spelling == Spelling::AnyByteLevel => table.decode_whole(text, out),
                _ if spelling == Spelling::AnySpaceMark => match byte_of(text) {
                    Some(byte) => out.push(byte),
                    None => unmark_spaces(text, out),
                },
                TokenType::Control | TokenType::Unknown | TokenType::UserDefined => {
                    out.extend_from_slice(text);
                }
                TokenType::Unused => {}
                TokenType::Byte => out.extend(byte_of(text)),
                TokenType::Normal if spelling == Spelling::ByteLevel => table.decode(text, out),
                TokenType::Normal => unmark_spaces(text, out),
            }
            // Never longer than the texts, whose ends fit.
            let _ = rendered.close();
        }
        self.rendered = rendered.finish();
    }

    /// The number of tokens.
    pub(super) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// The token spelled `text`.
    pub(super) fn id(&self, text: &[u8]) -> Option<u32> {
        self.ids.find(self.seed.text(text), |id| self.texts.get(id) == Some(text))
    }

    /// The token of a byte where bytes are spelled `<0xHH>`, or by themselves.
    pub(super) fn byte_id(&self, byte: u8) -> Option<u32> {
        self.id(format!("<0x{byte:02X}>").as_bytes()).or_else(|| self.id(&[byte]))
    }

    /// The spelling of a token.
    pub(super) fn text(&self, id: u32) -> Option<&[u8]> {
        self.texts.get(id)
    }

    /// The bytes that a token stands for; a steering token's name.
    pub(super) fn bytes(&self, id: u32) -> Option<&[u8]> {
        self.rendered.get(id)
    }

    /// Bytes of the longest token.
    pub(super) fn longest(&self) -> usize {
        self.rendered.longest()
    }

    pub(super) fn kind(&self, id: u32) -> Option<TokenType> {
        self.kinds.get(id as usize).copied()
    }

    pub(super) fn set_kind(&mut self, id: u32, kind: TokenType) {
        if let Some(slot) = self.kinds.get_mut(id as usize) {
            *slot = kind;
        }
    }

    /// Every token that is cut out of a text before anything else: steering and user-defined ones.
    pub(super) fn specials(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let cut = |kind: TokenType| kind.steers() || kind == TokenType::UserDefined;
        let ids = (0u32..).zip(&self.kinds).filter(move |(_, kind)| cut(**kind));
        ids.map(|(id, _)| (id, self.texts.get(id).unwrap_or_default())).filter(|(_, text)| !text.is_empty())
    }
}

/// Some indexes of a list, the first and the last among them.
pub(super) fn samples(len: usize) -> impl Iterator<Item = u32> {
    let last = len.checked_sub(1).and_then(|last| u32::try_from(last).ok());
    let step = usize::max(1, len / 64);
    (0u32..).take(len).step_by(step).chain(last)
}

/// The byte that `<0xHH>` names.
pub(super) fn byte_of(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    let &[high, low] = digits else { return None };
    let value = |digit: u8| char::from(digit).to_digit(16);
    u8::try_from(value(high)? << 4 | value(low)?).ok()
}

fn unmark_spaces(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(SPACE_MARK.as_bytes()) {
            out.push(b' ');
            rest = after;
        } else {
            out.push(*first);
            rest = after;
        }
    }
}

/// GPT-2's bijection between bytes and printable characters.
///
/// Source: `bytes_to_unicode`, src/encoder.py@<https://github.com/openai/gpt-2/tree/9b63575>: printable
/// Latin-1 stands for itself, the other 68 bytes are U+0100 and up, in order.
pub(super) struct ByteTable {
    chars: [char; 256],
    /// Byte of the characters below U+0144.
    bytes: [Option<u8>; 0x144],
}

impl ByteTable {
    pub(super) fn new() -> ByteTable {
        let mut table = ByteTable { chars: ['\0'; 256], bytes: [None; 0x144] };
        let mut next = 0x100u32;
        for byte in 0..=255u8 {
            let code = if matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF) {
                u32::from(byte)
            } else {
                next += 1;
                next - 1
            };
            table.chars[usize::from(byte)] = char::from_u32(code).unwrap_or('\0');
            table.bytes[code as usize] = Some(byte);
        }
        table
    }

    /// The character that stands for a byte.
    pub(super) fn char(&self, byte: u8) -> char {
        self.chars[usize::from(byte)]
    }

    /// The byte that a character stands for, if it does.
    pub(super) fn byte(&self, c: char) -> Option<u8> {
        self.bytes.get(c as usize).copied().flatten()
    }

    /// The bytes that `text` stands for, or itself if it has a character outside the table.
    fn decode_whole(&self, text: &[u8], out: &mut Vec<u8>) {
        let chars = std::str::from_utf8(text).unwrap_or_default().chars();
        let from = out.len();
        for c in chars {
            match self.byte(c) {
                Some(byte) => out.push(byte),
                None => {
                    out.truncate(from);
                    out.extend_from_slice(text);
                    return;
                }
            }
        }
    }

    /// Writes the bytes that `text` stands for; a character outside the table stands for itself.
    fn decode(&self, text: &[u8], out: &mut Vec<u8>) {
        let mut rest = text;
        while let [first, after @ ..] = rest {
            let (code, next) = match after {
                [second, next @ ..] if (0xC2..0xE0).contains(first) => {
                    (usize::from(first & 0x1F) << 6 | usize::from(second & 0x3F), next)
                }
                _ => (usize::from(*first), after),
            };
            // Three- and four-byte characters begin at 0xE0, which here is no character of the table.
            let known = self.bytes.get(code).copied().flatten().filter(|_| *first < 0xE0 && !is_tail(*first));
            match known {
                Some(byte) => out.push(byte),
                None => out.extend_from_slice(&rest[..rest.len() - next.len()]),
            }
            rest = next;
        }
    }
}

/// Whether a byte continues a UTF-8 character.
fn is_tail(byte: u8) -> bool {
    byte & 0xC0 == 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_table_is_gpt2s() {
        let table = ByteTable::new();
        assert_eq!(table.char(b' '), 'Ġ');
        assert_eq!(table.char(b'\n'), 'Ċ');
        assert_eq!(table.char(b'A'), 'A');
        assert_eq!(table.char(0xAD), 'Ń');
        let mut out = Vec::new();
        for byte in 0..=255 {
            out.clear();
            table.decode(table.char(byte).to_string().as_bytes(), &mut out);
            assert_eq!(out, [byte]);
        }
        out.clear();
        table.decode("Ġa 漢\u{144}👍é".as_bytes(), &mut out);
        assert_eq!(out, [" a 漢\u{144}👍".as_bytes(), b"\xE9"].concat());
    }

    #[test]
    fn tokens_are_found_and_rendered() {
        let tokens: [&[u8]; 5] = [b"<s>", "\u{2581}a".as_bytes(), b"<0x0A>", b"", b"x"];
        let mut store = TokenStore::new(&tokens, Some(&[3, 1, 6, 1, 5])).unwrap();
        store.render(Spelling::SpaceMark);
        assert_eq!(store.id(b"<s>"), Some(0));
        assert_eq!(store.id(b""), None);
        assert_eq!(store.byte_id(b'\n'), Some(2));
        let rendered: Vec<_> = (0..6).map(|id| store.bytes(id)).collect();
        assert_eq!(rendered, [Some(&b"<s>"[..]), Some(b" a"), Some(b"\n"), Some(b""), Some(b""), None]);
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let said = |tokens: &[&[u8]], types: Option<&[i32]>| {
            TokenStore::new(tokens, types).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert_eq!(said(&[], None), "`tokenizer.ggml.tokens`: no tokens");
        assert_eq!(said(&[b"a", b"b", b"a"], None), "`tokenizer.ggml.tokens`: tokens 0 and 2 are both `a`");
        assert_eq!(said(&[b"a"], Some(&[1, 1])), "`tokenizer.ggml.token_type`: 2 types for 1 tokens");
        assert!(said(&[b"a"], Some(&[7])).ends_with("token 0 has type 7, types are 0 to 6"));
        assert!(said(&[b"<0xZZ>"], Some(&[6])).contains("is a byte token"));
        assert!(said(&[b"\xFF"], None).contains("is not UTF-8"));
    }
}
