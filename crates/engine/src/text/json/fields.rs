//! Every field of a `tokenizer.json`, with its verdict: used, without effect, or refused unless it has the one value
//! that is supported. Fields that are not in these tables are unknown, and reported.
//!
//! Source: the serde forms in tokenizers/src/{models,normalizers,pre_tokenizers,processors,decoders}@v0.23.2.

use serde_json::Value;

use super::patterns;

/// The effect of a field.
#[derive(Clone, Copy)]
pub(super) enum Verdict {
    /// It changes tokens or text, and is followed.
    Used,
    /// It changes neither, for the reason given.
    Idle(&'static str),
    /// Only values that fit are supported.
    Only(fn(&Value) -> Result<(), String>),
}

/// One field of an object.
#[derive(Clone, Copy)]
pub(super) struct Field {
    name: &'static str,
    required: bool,
    wants: &'static str,
    fits: fn(&Value) -> bool,
    verdict: Verdict,
}

impl Field {
    const fn optional(mut self) -> Field {
        self.required = false;
        self
    }

    const fn idle(mut self, why: &'static str) -> Field {
        self.verdict = Verdict::Idle(why);
        self
    }

    const fn only(mut self, check: fn(&Value) -> Result<(), String>) -> Field {
        self.verdict = Verdict::Only(check);
        self
    }
}

const fn field(name: &'static str, wants: &'static str, fits: fn(&Value) -> bool) -> Field {
    Field { name, required: true, wants, fits, verdict: Verdict::Used }
}

const fn flag(name: &'static str) -> Field {
    field(name, "true or false", Value::is_boolean)
}

const fn text(name: &'static str) -> Field {
    field(name, "a string", Value::is_string)
}

const fn count(name: &'static str) -> Field {
    field(name, "a count", |v| v.as_u64().is_some())
}

const fn one_char(name: &'static str) -> Field {
    field(name, "one character", is_char)
}

const fn list(name: &'static str) -> Field {
    field(name, "an array", Value::is_array)
}

const fn object(name: &'static str) -> Field {
    field(name, "an object", Value::is_object)
}

const fn maybe_text(name: &'static str) -> Field {
    field(name, "a string or null", |v| v.is_null() || v.is_string()).optional()
}

const fn maybe_flag(name: &'static str) -> Field {
    field(name, "true, false or null", |v| v.is_null() || v.is_boolean()).optional()
}

const fn maybe_object(name: &'static str) -> Field {
    field(name, "an object or null", |v| v.is_null() || v.is_object()).optional()
}

/// A pair of a token and its id.
const fn role(name: &'static str) -> Field {
    field(
        name,
        "a token and its id",
        |v| matches!(v.as_array().map(Vec::as_slice), Some([Value::String(_), id]) if is_id(id)),
    )
}

const OFFSETS: &str = "offsets in the text are not asked for";

/// The whole file.
const FILE: &[Field] = &[
    text("version").optional().only(|v| match v.as_str() {
        Some("1.0") => Ok(()),
        _ => Err("only version `1.0` is known".to_owned()),
    }),
    maybe_object("truncation").idle("it is for batches; transformers turns it off unless a call asks for it"),
    maybe_object("padding").idle("it is for batches; transformers turns it off unless a call asks for it"),
    list("added_tokens").optional(),
    maybe_object("normalizer"),
    maybe_object("pre_tokenizer"),
    maybe_object("post_processor"),
    maybe_object("decoder"),
    object("model"),
];

/// One of `added_tokens`.
const ADDED: &[Field] = &[
    field("id", "an id", is_id),
    text("content"),
    flag("single_word"),
    flag("lstrip"),
    flag("rstrip"),
    flag("normalized"),
    flag("special"),
];

const BPE: &[Field] = &[
    text("type").optional(),
    field("dropout", "a number or null", |v| v.is_null() || v.is_number()).optional().only(|v| {
        match v.as_f64() {
            None | Some(0.0) => Ok(()),
            Some(_) => Err("merges left out by chance cannot be told beforehand; set it to null".to_owned()),
        }
    }),
    maybe_text("unk_token"),
    maybe_text("continuing_subword_prefix"),
    maybe_text("end_of_word_suffix"),
    maybe_flag("fuse_unk"),
    maybe_flag("byte_fallback"),
    maybe_flag("ignore_merges"),
    object("vocab"),
    list("merges"),
];

const WORD_PIECE: &[Field] = &[
    text("type"),
    text("unk_token"),
    text("continuing_subword_prefix"),
    count("max_input_chars_per_word"),
    object("vocab"),
];

const WORD_LEVEL: &[Field] = &[text("type"), text("unk_token"), object("vocab")];

const UNIGRAM: &[Field] = &[
    text("type"),
    field("unk_id", "an id or null", |v| v.is_null() || is_id(v)).optional(),
    flag("byte_fallback").optional(),
    list("vocab"),
];

/// The fields of `model`, by its type.
pub(super) const MODELS: &[Component] = &[
    Component { name: "BPE", fields: BPE, inner: None },
    Component { name: "WordPiece", fields: WORD_PIECE, inner: None },
    Component { name: "WordLevel", fields: WORD_LEVEL, inner: None },
    Component { name: "Unigram", fields: UNIGRAM, inner: None },
];

/// A component with a `type`.
pub(super) struct Component {
    /// The value of `type`.
    pub(super) name: &'static str,
    /// All fields but `type`.
    fields: &'static [Field],
    /// The field with components of the same section.
    inner: Option<&'static str>,
}

const fn part(name: &'static str, fields: &'static [Field]) -> Component {
    Component { name, fields, inner: None }
}

const fn sequence(inner: &'static str, fields: &'static [Field]) -> Component {
    Component { name: "Sequence", fields, inner: Some(inner) }
}

const REPLACE: Component = part("Replace", &[object("pattern").only(patterns::check), text("content")]);

const NORMALIZERS: &[Component] = &[
    part(
        "BertNormalizer",
        &[flag("clean_text"), flag("handle_chinese_chars"), maybe_flag("strip_accents"), flag("lowercase")],
    ),
    part("Strip", &[flag("strip_left"), flag("strip_right")]),
    part("StripAccents", &[]),
    part("NFC", &[]),
    part("NFD", &[]),
    part("NFKC", &[]),
    part("NFKD", &[]),
    part("Lowercase", &[]),
    part("Nmt", &[]),
    part("Precompiled", &[text("precompiled_charsmap")]),
    REPLACE,
    part("Prepend", &[text("prepend")]),
    part("ByteLevel", &[]),
    sequence("normalizers", &[list("normalizers")]),
];

const BEHAVIORS: &[&str] = &["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"];

const fn behavior() -> Field {
    field("behavior", "one of Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous", |v| {
        v.as_str().is_some_and(|b| BEHAVIORS.contains(&b))
    })
}

const METASPACE: Component = part(
    "Metaspace",
    &[
        one_char("replacement"),
        field("prepend_scheme", "first, always or never", |v| {
            matches!(v.as_str(), Some("first" | "always" | "never"))
        })
        .optional(),
        maybe_flag("split"),
        maybe_flag("add_prefix_space"),
        maybe_text("str_rep").idle("`replacement` says it"),
    ],
);

const PRE_TOKENIZERS: &[Component] = &[
    part("BertPreTokenizer", &[]),
    part(
        "ByteLevel",
        &[flag("add_prefix_space"), flag("trim_offsets").idle(OFFSETS), flag("use_regex").optional()],
    ),
    part("CharDelimiterSplit", &[one_char("delimiter")]),
    METASPACE,
    part("Whitespace", &[]),
    part("WhitespaceSplit", &[]),
    part("Split", &[object("pattern").only(patterns::check), behavior(), flag("invert")]),
    part("Punctuation", &[behavior().optional()]),
    part("Digits", &[flag("individual_digits")]),
    part("UnicodeScripts", &[]),
    part(
        "FixedLength",
        &[count("length").optional().only(|v| match v.as_u64() {
            Some(0) => Err("words have no characters".to_owned()),
            _ => Ok(()),
        })],
    ),
    sequence("pretokenizers", &[list("pretokenizers")]),
];

const PROCESSORS: &[Component] = &[
    part(
        "RobertaProcessing",
        &[
            role("sep"),
            role("cls"),
            flag("trim_offsets").idle(OFFSETS),
            flag("add_prefix_space").idle(OFFSETS),
        ],
    ),
    part("BertProcessing", &[role("sep"), role("cls")]),
    part(
        "ByteLevel",
        &[
            flag("add_prefix_space").idle(OFFSETS),
            flag("trim_offsets").idle(OFFSETS),
            flag("use_regex").idle(OFFSETS).optional(),
        ],
    ),
    part(
        "TemplateProcessing",
        &[
            list("single").only(|v| template(v, false)),
            list("pair").only(|v| template(v, true)),
            object("special_tokens"),
        ],
    ),
    sequence("processors", &[list("processors")]),
];

const DECODERS: &[Component] = &[
    part("BPEDecoder", &[text("suffix")]),
    part(
        "ByteLevel",
        &[
            flag("add_prefix_space").idle("bytes are bytes"),
            flag("trim_offsets").idle(OFFSETS),
            flag("use_regex").idle("bytes are bytes").optional(),
        ],
    ),
    part("WordPiece", &[text("prefix"), flag("cleanup")]),
    METASPACE,
    part("CTC", &[text("pad_token"), text("word_delimiter_token"), flag("cleanup")]),
    REPLACE,
    part("Fuse", &[]),
    part(
        "Strip",
        &[
            one_char("content"),
            count("start"),
            // tokenizers panics on a token with fewer characters than are cut off its end.
            count("stop").only(|v| match v.as_u64() {
                Some(0) => Ok(()),
                _ => Err("nothing can be cut off the end of tokens".to_owned()),
            }),
        ],
    ),
    part("ByteFallback", &[]),
    sequence("decoders", &[list("decoders")]),
];

/// The fields of a file, as read.
#[derive(Default)]
pub(super) struct Found {
    /// Paths and what is wrong with them.
    pub(super) problems: Vec<(String, String)>,
    /// Paths of fields that no table has.
    pub(super) unknown: Vec<String>,
    /// Fields that say something, and change nothing, with the reason.
    pub(super) idle: Vec<(String, &'static str)>,
}

/// How deep sequences may stand in each other.
const DEPTH: usize = 8;

impl Found {
    /// Compares all fields of a file with the tables.
    pub(super) fn of(file: &Value) -> Found {
        let mut found = Found::default();
        if !file.is_object() {
            found.problem("", "wanted an object");
            return found;
        }
        found.object(file, "", FILE, &[]);
        for (i, token) in file["added_tokens"].as_array().into_iter().flatten().enumerate() {
            found.object(token, &format!("added_tokens[{i}]"), ADDED, &[]);
        }
        found.component(&file["normalizer"], "normalizer", NORMALIZERS, DEPTH);
        found.component(&file["pre_tokenizer"], "pre_tokenizer", PRE_TOKENIZERS, DEPTH);
        found.component(&file["post_processor"], "post_processor", PROCESSORS, DEPTH);
        found.component(&file["decoder"], "decoder", DECODERS, DEPTH);
        found.model(&file["model"]);
        found
    }

    fn problem(&mut self, path: &str, said: impl Into<String>) {
        // A broken file may have as many problems as tokens.
        if self.problems.len() < 20 {
            self.problems.push((path.to_owned(), said.into()));
        }
    }

    fn object(&mut self, value: &Value, path: &str, fields: &[Field], also: &[&str]) {
        let Some(map) = value.as_object() else {
            return self.problem(path, "wanted an object");
        };
        let at = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        for field in fields {
            let Some(value) = map.get(field.name) else {
                if field.required {
                    self.problem(&at(field.name), format!("missing, wanted {}", field.wants));
                }
                continue;
            };
            if !(field.fits)(value) {
                self.problem(&at(field.name), format!("wanted {}, found {}", field.wants, short(value)));
                continue;
            }
            match field.verdict {
                Verdict::Used => {}
                Verdict::Idle(why) => {
                    if !value.is_null() {
                        self.idle.push((at(field.name), why));
                    }
                }
                Verdict::Only(check) => {
                    if let Err(said) = check(value) {
                        self.problem(&at(field.name), said);
                    }
                }
            }
        }
        for name in map.keys() {
            if !fields.iter().any(|f| f.name == name) && !also.contains(&name.as_str()) {
                self.unknown.push(at(name));
            }
        }
    }

    fn component(&mut self, value: &Value, path: &str, parts: &[Component], depth: usize) {
        if !value.is_object() {
            return;
        }
        let Some(part) = value["type"].as_str().and_then(|t| parts.iter().find(|p| p.name == t)) else {
            let known: Vec<&str> = parts.iter().map(|p| p.name).collect();
            let said = format!("{} is not supported, only {}", short(&value["type"]), known.join(", "));
            return self.problem(&format!("{path}.type"), said);
        };
        self.object(value, path, part.fields, &["type"]);
        let Some(inner) = part.inner else { return };
        if depth == 0 {
            return self.problem(path, format!("over {DEPTH} sequences in each other"));
        }
        for (i, step) in value[inner].as_array().into_iter().flatten().enumerate() {
            let path = format!("{path}.{inner}[{i}]");
            if step.is_object() {
                self.component(step, &path, parts, depth - 1);
            } else {
                self.problem(&path, "wanted an object");
            }
        }
    }

    fn model(&mut self, model: &Value) {
        if !model.is_object() {
            return;
        }
        // Old files leave the type out, and only BPE has merges.
        let name = match &model["type"] {
            Value::String(name) => name,
            Value::Null if model["merges"].is_array() => "BPE",
            other => {
                return self.problem("model.type", format!("wanted a model's name, found {}", short(other)));
            }
        };
        match MODELS.iter().find(|part| part.name == name) {
            Some(part) => self.object(model, "model", part.fields, &[]),
            None => {
                let known: Vec<&str> = MODELS.iter().map(|p| p.name).collect();
                self.problem("model.type", format!("`{name}` is not supported, only {}", known.join(", ")));
            }
        }
    }
}

/// A piece of a template: a sequence or special tokens, and nothing else.
fn template(pieces: &Value, pair: bool) -> Result<(), String> {
    for piece in pieces.as_array().into_iter().flatten() {
        let one = piece.as_object().filter(|o| o.len() == 1).and_then(|o| o.iter().next());
        let Some((kind, inner)) = one else { return Err("a piece has not one kind".to_owned()) };
        let typed = inner["type_id"].as_u64().is_some_and(|n| u32::try_from(n).is_ok());
        let fits = match kind.as_str() {
            "Sequence" => matches!(inner["id"].as_str(), Some("A")) || pair && inner["id"] == "B",
            "SpecialToken" => inner["id"].is_string(),
            _ => false,
        };
        if !fits || !typed {
            return Err(format!("the piece {} is not understood", short(piece)));
        }
    }
    Ok(())
}

pub(super) fn is_id(value: &Value) -> bool {
    value.as_u64().is_some_and(|id| u32::try_from(id).is_ok())
}

fn is_char(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.chars().count() == 1)
}

/// A value as it is told, cut short.
pub(super) fn short(value: &Value) -> String {
    let text = match value {
        Value::Null => return "nothing".to_owned(),
        Value::Array(_) => return "an array".to_owned(),
        Value::String(text) => format!("`{text}`"),
        other => format!("`{other}`"),
    };
    if text.chars().count() <= 80 { text } else { text.chars().take(77).collect::<String>() + "…`" }
}
