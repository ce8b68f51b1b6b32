//! `weighbridge embed`: vectors of texts.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use weighbridge::Embedder;
use weighbridge::checkpoint::{Draft, Outgoing};
use weighbridge::embedder::Vectors;
use weighbridge::tensor::{Dtype, Scheme, Shape, counted};

use super::convert::free;
use crate::args::EmbedArgs;
use crate::cache;
use crate::failure::Failure;
use crate::json::{self, EmbedNote, EmbedVector};
use crate::progress::{Line, note};
use crate::style;
use crate::style::shown;
use crate::whole_file::WholeFile;

/// Texts that are in memory at once, to be sorted by length.
pub(super) const WINDOW: usize = 4096;

pub(crate) fn run(args: &EmbedArgs) -> Result<(), Failure> {
    let started = Instant::now();
    let form = args.out.as_deref().map(Form::of).transpose()?;
    if let Some(out) = &args.out {
        free(out, args.force)?;
    }
    let mut texts = Texts::open(args)?;
    let mut embedder = Embedder::open(&args.path, &args.runtime()?)?;
    cache::say_first(embedder.first_copy());
    let options = args.options();
    if !args.json {
        for remark in embedder.notes() {
            note(&remark.to_string());
        }
    }
    let load_seconds = started.elapsed().as_secs_f64();
    let width = embedder.width();
    let mut to = match (&args.out, form) {
        (Some(path), Some(Form::Lines)) => {
            Output::Lines { path, file: WholeFile::create(path).map_err(|e| unwritten(path, &e))? }
        }
        (Some(path), Some(form)) => Output::Matrix { path, form, bytes: vec![] },
        _ if args.json => Output::Document(vec![]),
        _ => Output::Stdout(BufWriter::new(std::io::stdout().lock())),
    };
    let line = Line::new();
    let (running, mut all) = (Instant::now(), Count::default());
    loop {
        let window = texts.next(WINDOW)?;
        if window.is_empty() {
            break;
        }
        let vectors = embedder.embed(&window, &options)?;
        to.put(all.texts, &vectors)?;
        all.add(&vectors);
        line.show(|| counted(all.texts, "text").to_string());
    }
    line.clear();
    let seconds = running.elapsed().as_secs_f64();
    let vectors = to.finish(width, all.texts, args.force)?;
    if args.json {
        return Ok(json::print(&json::Embed {
            model: shown(&args.path),
            family: embedder.model().family.name(),
            backend: embedder.backend(),
            width,
            max_tokens: embedder.longest(),
            pooling: embedder.pooling().iter().map(|way| way.name()).collect(),
            normalized: options.normalize.unwrap_or(embedder.normalizes()),
            similarity: embedder.similarity().name(),
            texts: all.texts,
            tokens: all.tokens,
            cut: all.cut,
            destination: args.out.as_deref().map(|path| path.display().to_string()),
            vectors,
            notes: EmbedNote::all(embedder.notes()),
            load_seconds,
            seconds,
            tokens_per_second: json::rate(all.tokens, seconds),
        })?);
    }
    if all.cut > 0 {
        let most = embedder.longest();
        note(&format!("{} cut at {most} tokens (`--max-tokens`)", counted_were(all.cut)));
    }
    if let Some(out) = &args.out {
        let rate = all.tokens as f64 / seconds.max(1e-9);
        let (texts, tokens) = (counted(all.texts, "vector"), counted(all.tokens, "token"));
        let said = format!(
            "{}\n  {texts} of {width} numbers, {tokens} in {seconds:.2} s, {rate:.0} tokens/s",
            style::heading(&format!("{} → {}", shown(&args.path), out.display())),
        );
        writeln!(std::io::stdout().lock(), "{said}")?;
    }
    Ok(())
}

pub(super) fn counted_were(n: usize) -> String {
    format!("{} {}", counted(n, "text"), if n == 1 { "was" } else { "were" })
}

/// Counts texts and tokens.
#[derive(Default)]
struct Count {
    texts: usize,
    tokens: usize,
    /// Texts that are too long.
    cut: usize,
}

impl Count {
    fn add(&mut self, vectors: &Vectors) {
        self.texts += vectors.len();
        for n in 0..vectors.len() {
            self.tokens += vectors.tokens(n);
            self.cut += usize::from(vectors.left_out(n) > 0);
        }
    }
}

/// Where texts come from.
pub(super) enum Texts<'a> {
    Arguments(std::slice::Iter<'a, String>),
    /// Lines of a file, or of standard input.
    Lines {
        from: Box<dyn BufRead>,
        shown: String,
        /// Lines read.
        number: usize,
        /// Lines are JSON objects with this field.
        field: Option<String>,
    },
}

impl<'a> Texts<'a> {
    fn open(args: &'a EmbedArgs) -> Result<Texts<'a>, Failure> {
        if !args.text.is_empty() {
            return Ok(Texts::Arguments(args.text.iter()));
        }
        Texts::of_file(args.file.as_deref(), args.field.as_ref())
    }

    /// The lines of a file, or of standard input.
    pub(super) fn of_file(path: Option<&Path>, field: Option<&String>) -> Result<Texts<'a>, Failure> {
        let path = path.filter(|path| *path != Path::new("-"));
        let is_jsonl = path.and_then(Path::extension).is_some_and(|ending| ending == "jsonl");
        let field = field.cloned().or_else(|| is_jsonl.then(|| "text".to_owned()));
        let (from, shown): (Box<dyn BufRead>, _) = match path {
            None => (Box::new(std::io::stdin().lock()), "standard input".to_owned()),
            Some(path) => {
                let shown = format!("`{}`", path.display());
                let file =
                    File::open(path).map_err(|e| Failure::Other(format!("cannot read {shown}: {e}")))?;
                (Box::new(BufReader::new(file)), shown)
            }
        };
        Ok(Texts::Lines { from, shown, number: 0, field })
    }

    /// The next texts, `most` at most; none at the end.
    pub(super) fn next(&mut self, most: usize) -> Result<Vec<String>, Failure> {
        match self {
            Texts::Arguments(left) => Ok(left.by_ref().take(most).cloned().collect()),
            Texts::Lines { from, shown, number, field } => {
                let mut texts = vec![];
                let mut bytes = vec![];
                while texts.len() < most {
                    bytes.clear();
                    let read = from.read_until(b'\n', &mut bytes);
                    if read.map_err(|e| Failure::Other(format!("cannot read {shown}: {e}")))? == 0 {
                        break;
                    }
                    *number += 1;
                    if let Some(text) = text(&bytes, field.as_deref())
                        .map_err(|why| Failure::Other(format!("{shown}, line {number}: {why}")))?
                    {
                        texts.push(text);
                    }
                }
                Ok(texts)
            }
        }
    }
}

/// The text of a line; a blank line between JSON objects has none.
fn text(line: &[u8], field: Option<&str>) -> Result<Option<String>, String> {
    let line = std::str::from_utf8(line).map_err(|_| "the line is not UTF-8".to_owned())?;
    let line = line.strip_suffix('\n').unwrap_or(line);
    let line = line.strip_suffix('\r').unwrap_or(line);
    let Some(field) = field else { return Ok(Some(line.to_owned())) };
    if line.trim().is_empty() {
        return Ok(None);
    }
    let value: serde_json::Value = serde_json::from_str(line).map_err(|e| format!("not JSON: {e}"))?;
    match value.get(field) {
        Some(serde_json::Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("the field `{field}` is no string")),
        None => Err(format!("no field `{field}`\nhint: `--field NAME` names the field of the text")),
    }
}

/// The format of a file of vectors.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Lines,
    Npy,
    Safetensors,
}

impl Form {
    fn of(path: &Path) -> Result<Form, Failure> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("jsonl") => Ok(Form::Lines),
            Some("npy") => Ok(Form::Npy),
            Some("safetensors") => Ok(Form::Safetensors),
            _ => Err(Failure::Usage(format!(
                "`{}` ends neither with .jsonl nor with .npy or .safetensors",
                path.display()
            ))),
        }
    }
}

/// Where vectors go.
enum Output<'a> {
    Stdout(BufWriter<std::io::StdoutLock<'static>>),
    Document(Vec<EmbedVector>),
    Lines {
        path: &'a Path,
        file: WholeFile,
    },
    /// All of them are in memory until the end: numbers of 4 bytes.
    Matrix {
        path: &'a Path,
        form: Form,
        bytes: Vec<u8>,
    },
}

impl Output<'_> {
    /// Takes the vectors of texts from number `first` on.
    fn put(&mut self, first: usize, vectors: &Vectors) -> Result<(), Failure> {
        match self {
            Output::Document(all) => all.extend(EmbedVector::all(first, vectors)),
            Output::Matrix { bytes, .. } => {
                bytes.extend(vectors.values().iter().flat_map(|value| value.to_le_bytes()));
            }
            Output::Stdout(out) => {
                lines(out, first, vectors)?;
                out.flush()?;
            }
            Output::Lines { file, .. } => lines(file, first, vectors)?,
        }
        Ok(())
    }

    /// Completes what is written; returns the vectors of a document.
    fn finish(self, width: usize, texts: usize, force: bool) -> Result<Option<Vec<EmbedVector>>, Failure> {
        match self {
            Output::Document(all) => return Ok(Some(all)),
            Output::Stdout(_) => {}
            Output::Lines { path, file } => {
                free(path, force)?;
                file.finish().map_err(|e| unwritten(path, &e))?;
            }
            Output::Matrix { path, form, bytes } => {
                let shape = Shape::from([texts as u64, width as u64]);
                let name = "embeddings".to_owned();
                let one = Outgoing { name, shape, scheme: Scheme::plain(Dtype::F32) };
                let draft = if form == Form::Npy { Draft::npy(one)? } else { Draft::safetensors(vec![one])? };
                let mut writer = draft.create(path, force)?;
                writer.tensor(&[&bytes[..]])?;
                writer.finish()?;
            }
        }
        Ok(None)
    }
}

fn lines(out: &mut impl Write, first: usize, vectors: &Vectors) -> Result<(), Failure> {
    for vector in EmbedVector::all(first, vectors) {
        serde_json::to_writer(&mut *out, &vector).map_err(std::io::Error::from)?;
        writeln!(out)?;
    }
    Ok(())
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Other(format!("cannot write `{}`: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_text_or_has_it_in_a_field() {
        assert_eq!(text(b"a b\r\n", None), Ok(Some("a b".to_owned())));
        assert_eq!(text(b"\n", None), Ok(Some(String::new())));
        assert_eq!(text(b" \n", Some("t")), Ok(None));
        assert_eq!(text(br#"{"t": "x"}"#, Some("t")), Ok(Some("x".to_owned())));
        assert_eq!(text(br#"{"t": 1}"#, Some("t")), Err("the field `t` is no string".to_owned()));
        assert!(text(b"{", Some("t")).unwrap_err().starts_with("not JSON"));
        assert!(text(b"\xff", None).is_err());
    }
}
