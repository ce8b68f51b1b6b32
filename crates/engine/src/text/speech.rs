//! Vocabularies of Whisper, whose files have no tokenizer of their own in some forms.

use checkpoint::{Ctranslate2Metadata, Metadata, OpenaiMetadata};

use super::store::ByteTable;
use super::{Error, VocabularyBuf};
use crate::Error as EngineError;

/// The first token that steers.
const END: &str = "<|endoftext|>";

/// The tokens of CTranslate2, as a list.
const VOCABULARY: &str = "vocabulary.json";

/// The times that tokens stand for: 0 to 30 seconds.
const TIMES: usize = 1501;

/// The tokens of a Whisper that steer it, after those of text, if its vocabulary has `size` tokens; `None` if no Whisper has as many.
/// Source: openai/whisper, whisper/tokenizer.py@v20250625, `get_encoding`.
pub fn speech_tokens(size: u64) -> Option<Vec<String>> {
    let languages = match size {
        51_864 | 51_865 => LANGUAGES.len() - 1,
        // Cantonese since large-v3.
        51_866 => LANGUAGES.len(),
        _ => return None,
    };
    let languages = LANGUAGES.iter().take(languages).map(|(code, _)| *code);
    let names = ["endoftext", "startoftranscript"].into_iter().chain(languages);
    let names =
        names.chain(["translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps"]);
    let names = names.map(|name| format!("<|{name}|>"));
    let times = (0..TIMES).map(|step| format!("<|{}.{:02}|>", step / 50, step % 50 * 2));
    Some(names.chain(times).collect())
}

/// The vocabulary that CTranslate2 and whisper.cpp have for a model of speech; `None` if there is none.
///
/// # Errors
/// If it cannot be read, or is not of Whisper.
pub fn speech_vocabulary(metadata: &Metadata) -> Result<Option<VocabularyBuf>, EngineError> {
    match metadata {
        Metadata::Openai(openai) => Ok(of_openai(openai)),
        Metadata::Ctranslate2(ct2) => {
            of_ctranslate2(ct2, |source| EngineError::Text { path: VOCABULARY.to_owned(), source })
        }
        _ => Ok(None),
    }
}

/// The bytes of the tokens of text among those of a model of speech, which are spelled as byte-level vocabularies spell them and come
/// before those that steer.
///
/// # Errors
/// The number of a token with a character that stands for no byte. Without `<|endoftext|>`, that after the last.
pub fn bytes_of_text(tokens: &[String]) -> Result<Vec<Vec<u8>>, usize> {
    let text = tokens.iter().position(|token| token == END).ok_or(tokens.len())?;
    let table = ByteTable::new();
    let spelled = tokens.iter().take(text).enumerate();
    spelled.map(|(id, token)| token.chars().map(|c| table.byte(c)).collect::<Option<_>>().ok_or(id)).collect()
}

/// The vocabulary of a model of OpenAI, or of whisper.cpp; `None` if its file has none.
pub(super) fn of_openai(openai: &OpenaiMetadata) -> Option<VocabularyBuf> {
    let size = u64::try_from(openai.dim("n_vocab")?).ok()?;
    let special = speech_tokens(size)?;
    let text = usize::try_from(size).ok()?.checked_sub(special.len())?;
    // whisper.cpp has names of its own for what follows the text.
    let tokens = openai.tokens().get(..text)?;
    Some(VocabularyBuf::from_ranks(tokens, &special))
}

/// The tokens beside the weights of a CTranslate2 model as its `vocabulary.json` or `vocabulary.txt` spells them, and the name of that file;
/// `None` if there is neither.
///
/// # Errors
/// If the file cannot be read.
pub fn ctranslate2_tokens(
    ct2: &Ctranslate2Metadata,
) -> Result<Option<(&'static str, Vec<String>)>, EngineError> {
    let malformed = |name: &'static str, what: String| EngineError::Text {
        path: name.to_owned(),
        source: Error::malformed(name, what),
    };
    let (json, lines) = (VOCABULARY, "vocabulary.txt");
    if let Some(member) = ct2.member(json) {
        let tokens = serde_json::from_slice(&member.read()?);
        return Ok(Some((json, tokens.map_err(|e| malformed(json, format!("not a list of tokens: {e}")))?)));
    }
    let Some(member) = ct2.member(lines) else { return Ok(None) };
    let text = String::from_utf8(member.read()?).map_err(|_| malformed(lines, "not UTF-8".to_owned()))?;
    Ok(Some((lines, text.lines().map(str::to_owned).collect())))
}

/// The vocabulary of such a model; `None` if it has none.
///
/// # Errors
/// If it cannot be read, or is not of Whisper.
pub(super) fn of_ctranslate2(
    ct2: &Ctranslate2Metadata,
    wrong: impl Fn(Error) -> EngineError,
) -> Result<Option<VocabularyBuf>, EngineError> {
    let Some((name, spelled)) = ctranslate2_tokens(ct2)? else { return Ok(None) };
    let malformed = |what: String| wrong(Error::malformed(name, what));
    let tokens = bytes_of_text(&spelled).map_err(|id| match spelled.get(id) {
        Some(_) => malformed(format!("token {id} has a character that stands for no byte")),
        None => malformed(format!("wanted a token `{END}`, found none")),
    })?;
    let special = spelled.get(tokens.len()..).unwrap_or_default();
    Ok(Some(VocabularyBuf::from_ranks(&tokens, special)))
}

/// The codes and English names of the languages, in the order of their tokens.
/// Source: openai/whisper, whisper/tokenizer.py@v20250625, `LANGUAGES`.
pub static LANGUAGES: &[(&str, &str)] = &[
    ("en", "english"),
    ("zh", "chinese"),
    ("de", "german"),
    ("es", "spanish"),
    ("ru", "russian"),
    ("ko", "korean"),
    ("fr", "french"),
    ("ja", "japanese"),
    ("pt", "portuguese"),
    ("tr", "turkish"),
    ("pl", "polish"),
    ("ca", "catalan"),
    ("nl", "dutch"),
    ("ar", "arabic"),
    ("sv", "swedish"),
    ("it", "italian"),
    ("id", "indonesian"),
    ("hi", "hindi"),
    ("fi", "finnish"),
    ("vi", "vietnamese"),
    ("he", "hebrew"),
    ("uk", "ukrainian"),
    ("el", "greek"),
    ("ms", "malay"),
    ("cs", "czech"),
    ("ro", "romanian"),
    ("da", "danish"),
    ("hu", "hungarian"),
    ("ta", "tamil"),
    ("no", "norwegian"),
    ("th", "thai"),
    ("ur", "urdu"),
    ("hr", "croatian"),
    ("bg", "bulgarian"),
    ("lt", "lithuanian"),
    ("la", "latin"),
    ("mi", "maori"),
    ("ml", "malayalam"),
    ("cy", "welsh"),
    ("sk", "slovak"),
    ("te", "telugu"),
    ("fa", "persian"),
    ("lv", "latvian"),
    ("bn", "bengali"),
    ("sr", "serbian"),
    ("az", "azerbaijani"),
    ("sl", "slovenian"),
    ("kn", "kannada"),
    ("et", "estonian"),
    ("mk", "macedonian"),
    ("br", "breton"),
    ("eu", "basque"),
    ("is", "icelandic"),
    ("hy", "armenian"),
    ("ne", "nepali"),
    ("mn", "mongolian"),
    ("bs", "bosnian"),
    ("kk", "kazakh"),
    ("sq", "albanian"),
    ("sw", "swahili"),
    ("gl", "galician"),
    ("mr", "marathi"),
    ("pa", "punjabi"),
    ("si", "sinhala"),
    ("km", "khmer"),
    ("sn", "shona"),
    ("yo", "yoruba"),
    ("so", "somali"),
    ("af", "afrikaans"),
    ("oc", "occitan"),
    ("ka", "georgian"),
    ("be", "belarusian"),
    ("tg", "tajik"),
    ("sd", "sindhi"),
    ("gu", "gujarati"),
    ("am", "amharic"),
    ("yi", "yiddish"),
    ("lo", "lao"),
    ("uz", "uzbek"),
    ("fo", "faroese"),
    ("ht", "haitian creole"),
    ("ps", "pashto"),
    ("tk", "turkmen"),
    ("nn", "nynorsk"),
    ("mt", "maltese"),
    ("sa", "sanskrit"),
    ("lb", "luxembourgish"),
    ("my", "myanmar"),
    ("bo", "tibetan"),
    ("tl", "tagalog"),
    ("mg", "malagasy"),
    ("as", "assamese"),
    ("tt", "tatar"),
    ("haw", "hawaiian"),
    ("ln", "lingala"),
    ("ha", "hausa"),
    ("ba", "bashkir"),
    ("jw", "javanese"),
    ("su", "sundanese"),
    ("yue", "cantonese"),
];
