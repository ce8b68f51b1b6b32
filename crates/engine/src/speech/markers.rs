//! The tokens that steer a model of speech.

use crate::text::{LANGUAGES, Tokenizer};

use super::SpeechError;

/// The tokens that steer a model of speech, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Markers {
    /// Ends a text. Tokens below it are text.
    pub end: u32,
    /// Begins a transcript.
    pub start: u32,
    /// Each language that the model knows, by its code; a model of English alone has none.
    pub languages: Vec<(&'static str, u32)>,
    /// The text is in the language of the speech; a model of English alone has no such token.
    pub transcribe: Option<u32>,
    /// The text is in English; a model of English alone has no such token.
    pub translate: Option<u32>,
    /// The text of earlier windows follows.
    pub previous: u32,
    /// There is no speech.
    pub no_speech: u32,
    /// No times follow.
    pub no_times: u32,
    /// Time 0; those after it are [`TIME_STEP`](super::TIME_STEP) apart.
    pub first_time: u32,
    /// All that steer: the first and the last of them.
    others: Vec<u32>,
}

impl Markers {
    /// Those of `tokenizer`.
    ///
    /// # Errors
    /// If it lacks one: it is not the tokenizer of such a model.
    pub fn of(tokenizer: &Tokenizer) -> Result<Markers, SpeechError> {
        let mut missing = vec![];
        let id = |spelling: &str| tokenizer.token_id(spelling);
        let mut wanted = |spellings: &[&str]| {
            let found = spellings.iter().find_map(|spelling| id(spelling));
            found.unwrap_or_else(|| {
                missing.push(spellings[0].to_owned());
                0
            })
        };
        let (end, start) = (wanted(&["<|endoftext|>"]), wanted(&["<|startoftranscript|>"]));
        let previous = wanted(&["<|startofprev|>"]);
        // Older tokenizers have another name for it.
        let no_speech = wanted(&["<|nospeech|>", "<|nocaptions|>"]);
        let no_times = wanted(&["<|notimestamps|>"]);
        if !missing.is_empty() {
            return Err(SpeechError::Markers { missing });
        }
        // Tokenizers of models of one language may have the tokens of all others, and the model has none: those are no more than a
        // place in its vocabulary. English alone begins at 50257, as GPT-2's vocabulary has one token fewer.
        let is_of_many = start > end && end == MULTILINGUAL_END;
        let languages = LANGUAGES.iter().filter_map(|(code, _)| Some((*code, id(&format!("<|{code}|>"))?)));
        let of_many = |spelling: &str| id(spelling).filter(|_| is_of_many);
        Ok(Markers {
            end,
            start,
            languages: languages.filter(|_| is_of_many).collect(),
            transcribe: of_many("<|transcribe|>"),
            translate: of_many("<|translate|>"),
            previous,
            no_speech,
            no_times,
            first_time: no_times + 1,
            others: ["<|transcribe|>", "<|translate|>", "<|startoflm|>"].into_iter().filter_map(id).collect(),
        })
    }

    /// Whether the model knows several languages.
    pub fn is_multilingual(&self) -> bool {
        !self.languages.is_empty()
    }

    /// The token of a language, by its code or its English name.
    ///
    /// # Errors
    /// If the model does not know it.
    pub fn language(&self, name: &str) -> Result<(&'static str, u32), SpeechError> {
        let lower = name.to_lowercase();
        let known = LANGUAGES.iter().find(|(code, full)| *code == lower || *full == lower);
        let known = known.and_then(|(code, _)| self.languages.iter().find(|(known, _)| known == code));
        known.copied().ok_or_else(|| {
            let names = LANGUAGES.iter().flat_map(|(code, full)| [*code, *full]);
            let near = tensor::nearest(&lower, names).map(str::to_owned);
            SpeechError::Language { name: name.to_owned(), near }
        })
    }

    /// The seconds that a token stands for, if it is a time.
    pub fn seconds(&self, token: u32) -> Option<f64> {
        token.checked_sub(self.first_time).map(|steps| f64::from(steps) * super::TIME_STEP)
    }

    /// Tokens that never come in a text, where the model's files do not list them: those that steer, and what stands for
    /// sounds and notes that nobody says.
    pub fn suppressed(&self, tokenizer: &Tokenizer) -> Vec<u32> {
        const SYMBOLS: &str = "\" # ( ) * + / : ; < = > @ [ \\ ] ^ _ ` { | } ~ 「 」 『 』 << >> <<< >>> -- --- -( -[ (' (\" \
                               (( )) ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪";
        const NOTES: &str = "♩ ♪ ♫ ♬ ♭ ♮ ♯";
        let encoded =
            |text: &str| tokenizer.encode(text, crate::text::EncodeOptions::default()).unwrap_or_default();
        let mut all: Vec<u32> =
            [" -", " '"].iter().filter_map(|text| encoded(text).first().copied()).collect();
        let symbols = SYMBOLS.split(' ').map(|symbol| (symbol, false));
        for (symbol, is_note) in symbols.chain(NOTES.split(' ').map(|note| (note, true))) {
            for text in [symbol.to_owned(), format!(" {symbol}")] {
                // A note may be several tokens, of which the first begins no word.
                match encoded(&text)[..] {
                    [one] => all.push(one),
                    [first, ..] if is_note => all.push(first),
                    _ => {}
                }
            }
        }
        all.extend([self.start, self.previous, self.no_speech]);
        all.extend(&self.others);
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Tokens that begin no text, where the model's files do not list them: a space alone, and the end.
    pub fn suppressed_first(&self, tokenizer: &Tokenizer) -> Vec<u32> {
        let mut all = tokenizer.encode(" ", crate::text::EncodeOptions::default()).unwrap_or_default();
        all.push(self.end);
        all
    }
}

/// `<|endoftext|>` of the vocabulary for many languages.
const MULTILINGUAL_END: u32 = 50_257;

/// The English name of the language with code `code`.
pub fn language_name(code: &str) -> Option<&'static str> {
    LANGUAGES.iter().find(|(known, _)| *known == code).map(|(_, name)| *name)
}
