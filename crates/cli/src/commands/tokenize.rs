//! `weighbridge tokenize`: the tokens of a text, or the text of tokens.

use std::io::{Read, Write};

use weighbridge::engine::text::{self, EncodeOptions, SpecialText, Tokenizer};

use crate::args::{TokenizeArgs, looking};
use crate::failure::Failure;
use crate::json;
use crate::style;
use crate::style::shown;

pub(crate) fn run(args: &TokenizeArgs) -> Result<(), Failure> {
    let tokenizer = weighbridge::engine::text::open_tokenizer(&args.path, &looking(args.io.io()))?;
    let text = match args.text.as_deref() {
        Some(text) if text != "-" => text.to_owned(),
        _ => {
            let mut bytes = Vec::new();
            std::io::stdin().lock().read_to_end(&mut bytes)?;
            let wrong = |_| Failure::Usage("standard input is not UTF-8".to_owned());
            String::from_utf8(bytes).map_err(wrong)?
        }
    };
    let notes = tokenizer.notes();
    if !args.json {
        for note in notes {
            let line = format!("{} `{}`: {}", note.file, note.field, note.why);
            // Side information. If stderr is gone, it is not missed.
            let _ = writeln!(std::io::stderr().lock(), "{}", style::note(&line));
        }
    }
    let wrong = |e: text::Error| Failure::Other(format!("`{}`: {}", shown(&args.path), e.diagnostics()));
    if args.decode {
        let ids = ids(&text, &tokenizer)?;
        let special = if args.no_special { SpecialText::Hidden } else { SpecialText::Shown };
        let text = tokenizer.decode(&ids, special).map_err(wrong)?;
        if args.json {
            json::print(&json::Tokenize::of(&tokenizer, &text, &ids))?;
        } else {
            writeln!(std::io::stdout().lock(), "{text}")?;
        }
        return Ok(());
    }
    let options = EncodeOptions { add_special: !args.no_special, parse_special: !args.special_as_text };
    let ids = tokenizer.encode(&text, options).map_err(wrong)?;
    if args.json {
        return Ok(json::print(&json::Tokenize::of(&tokenizer, &text, &ids))?);
    }
    let mut out = std::io::stdout().lock();
    let width = ids.iter().max().map_or(1, |id| id.to_string().len());
    for id in ids {
        writeln!(out, "{id:width$}  {}", escaped(tokenizer.token_spelling(id).unwrap_or_default()))?;
    }
    Ok(())
}

/// Ids with commas or spaces between.
fn ids(text: &str, tokenizer: &Tokenizer) -> Result<Vec<u32>, Failure> {
    let words = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty());
    let size = tokenizer.vocab_size();
    let id = |word: &str| {
        let id = word.parse::<u32>().ok().filter(|id| (*id as usize) < size);
        id.ok_or_else(|| Failure::Usage(format!("`{word}` is not a token id: wanted a number below {size}")))
    };
    words.map(id).collect()
}

/// A spelling that is one line, and does nothing to a terminal.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // Marks that turn the direction of text around are no control characters.
        let turns = matches!(c, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}');
        if c.is_control() || turns || c == '\\' {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}
