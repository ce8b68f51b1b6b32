//! `weighbridge transcribe`: speech to text, with times.

use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use weighbridge::Transcriber;
use weighbridge::tensor::Diagnostic;
use weighbridge::transcriber::{
    Heard, Progress, Segment, Sound, Subtitles, Transcript, clock, language_name,
};

use crate::args::{FormArg, TranscribeArgs};
use crate::cache;
use crate::failure::Failure;
use crate::json;
use crate::progress::{Line, note};
use crate::style::shown;
use crate::whole_file::WholeFile;

/// Set by Ctrl-C.
static STOPPED: AtomicBool = AtomicBool::new(false);

pub(crate) fn run(args: &TranscribeArgs) -> Result<(), Failure> {
    let outputs = outputs(args)?;
    let sounds = open(&args.sounds)?;
    let _ = ctrlc::set_handler(|| {
        if STOPPED.swap(true, Ordering::Relaxed) {
            crate::progress::clear();
            std::process::exit(crate::failure::INTERRUPTED.into());
        }
    });
    let started = Instant::now();
    let mut transcriber = Transcriber::open(&args.path, &args.runtime()?)?;
    cache::say_first(transcriber.first_copy());
    let load_seconds = started.elapsed().as_secs_f64();
    let running = Instant::now();
    let (mut transcripts, mut heard_seconds) = (vec![], 0.0);
    for ((path, sound), output) in args.sounds.iter().zip(sounds).zip(&outputs) {
        let mut written = Written::begin(args.form(), output.as_deref(), args.json)?;
        let (transcript, heard) = if args.live {
            let mut live = transcriber.ear().live(sound)?;
            let mut news = News::new(path, &mut written, None);
            let transcript = transcriber
                .transcribe_live(&mut live, &args.options(), &mut |progress| news.take(progress))?;
            news.end()?;
            let heard = live.into_heard();
            say_notes(path, &heard);
            (transcript, heard)
        } else {
            let heard = transcriber.hear(sound)?;
            say_notes(path, &heard);
            let mut news = News::new(path, &mut written, Some(heard.seconds));
            let transcript =
                transcriber.transcribe_heard(&heard, &args.options(), &mut |progress| news.take(progress))?;
            news.end()?;
            (transcript, heard)
        };
        // Half a transcript gets no name, and no place in a document.
        if STOPPED.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted);
        }
        written.finish()?;
        heard_seconds += heard.seconds;
        if args.json {
            transcripts.push(document(path, heard, transcript, args.options().words));
        }
    }
    let seconds = running.elapsed().as_secs_f64();
    if args.json {
        json::print(&json::Transcribe {
            model: shown(&args.path),
            family: transcriber.model().family.name(),
            backend: transcriber.backend(),
            transcripts,
            load_seconds,
            seconds,
            speed: json::real(heard_seconds / seconds.max(f64::MIN_POSITIVE)),
        })?;
    }
    Ok(())
}

/// The file of each transcript; `None` for standard output.
fn outputs(args: &TranscribeArgs) -> Result<Vec<Option<PathBuf>>, Failure> {
    let many = args.sounds.len() > 1;
    let form = args.form();
    if many && args.out.is_some() {
        return Err(Failure::Usage(
            "--out takes the transcript of one sound; for several, give --out-dir DIR".to_owned(),
        ));
    }
    if many && !args.json && form != FormArg::Text && args.out_dir.is_none() {
        let what = format!("{} files of several sounds cannot be one; give --out-dir DIR", form.ending());
        return Err(Failure::Usage(what));
    }
    if args.sounds.iter().filter(|path| is_stdin(path)).count() > 1 {
        return Err(Failure::Usage("standard input (`-`) can be one of the sounds only".to_owned()));
    }
    let mut outputs: Vec<Option<PathBuf>> = vec![];
    for path in &args.sounds {
        let output = match (&args.out, &args.out_dir) {
            (Some(out), _) => Some(out.clone()),
            (_, Some(dir)) => {
                let stem =
                    if is_stdin(path) { "stdin".as_ref() } else { path.file_stem().unwrap_or_default() };
                let mut name = stem.to_owned();
                name.push(format!(".{}", form.ending()));
                Some(dir.join(name))
            }
            _ => None,
        };
        if let Some(output) = &output {
            if !args.force && output.exists() {
                return Err(Failure::Usage(format!("{} exists; --force replaces it", shown(output))));
            }
            if outputs.iter().flatten().any(|other| other == output) {
                return Err(Failure::Usage(format!("two sounds would both be written to {}", shown(output))));
            }
        }
        outputs.push(output);
    }
    Ok(outputs)
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Opens all sounds, before the model is: every one that cannot be read is named.
fn open(paths: &[PathBuf]) -> Result<Vec<Sound>, Failure> {
    let (mut sounds, mut problems) = (vec![], vec![]);
    for path in paths {
        let file = || File::open(path).map(|file| Box::new(file) as Box<dyn Read + Send>);
        let source =
            if is_stdin(path) { Ok(Box::new(std::io::stdin()) as Box<dyn Read + Send>) } else { file() };
        let problem = |what: &dyn fmt::Display| Diagnostic::new(format!("{}: {what}", shown(path)));
        match source.map(Sound::open) {
            Ok(Ok(sound)) => sounds.push(sound),
            Ok(Err(error)) => problems.push(problem(&error).with_hint(error.hint().map(str::to_owned))),
            Err(error) => problems.push(problem(&error)),
        }
    }
    if problems.is_empty() { Ok(sounds) } else { Err(Failure::Problems(problems.into_iter().collect())) }
}

/// Notes on a sound, for people.
fn notes(path: &Path, heard: &Heard) -> Vec<String> {
    let mut notes = vec![];
    if let Some(fault) = &heard.ended {
        notes.push(format!("{}: {fault}; the transcript is of what is before", shown(path)));
    }
    if heard.damaged > 0.0 {
        notes.push(format!("{}: {:.1} s are damaged, and are silence here", shown(path), heard.damaged));
    }
    if heard.seconds == 0.0 {
        notes.push(format!("{}: there is no sound in it", shown(path)));
    }
    notes
}

fn say_notes(path: &Path, heard: &Heard) {
    for remark in notes(path, heard) {
        note(&remark);
    }
}

/// Shows and writes a transcript while it is made.
struct News<'n> {
    path: &'n Path,
    written: &'n mut Written,
    /// Seconds of the sound, where they are known.
    seconds: Option<f64>,
    line: Line,
    started: Instant,
    failed: Option<std::io::Error>,
}

impl News<'_> {
    fn new<'n>(path: &'n Path, written: &'n mut Written, seconds: Option<f64>) -> News<'n> {
        News { path, written, seconds, line: Line::new(), started: Instant::now(), failed: None }
    }

    fn take(&mut self, progress: Progress<'_>) -> ControlFlow<()> {
        match progress {
            Progress::Language(code, probability) => {
                let name = language_name(code).unwrap_or(code);
                self.line.clear();
                note(&format!("{}: {name} ({:.0} %)", shown(self.path), 100.0 * probability));
            }
            Progress::Segment(segment) => {
                self.line.clear();
                self.failed = self.written.segment(segment).err();
            }
            Progress::Done(done) => {
                let speed = done / self.started.elapsed().as_secs_f64();
                let of = self.seconds.map_or(String::new(), |all| format!(" of {}", clock(all, '.')));
                self.line.show(|| format!("{}{of}, {speed:.1}× real time", clock(done, '.')));
            }
        }
        if self.failed.is_some() || STOPPED.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn end(self) -> std::io::Result<()> {
        self.line.clear();
        self.failed.map_or(Ok(()), Err)
    }
}

/// A transcript that is written, segment by segment.
struct Written {
    form: FormArg,
    out: Out,
    cues: usize,
}

/// The place of its text.
enum Out {
    File(WholeFile),
    Stdout,
    /// The document of `--json` has it.
    Nowhere,
}

impl Written {
    fn begin(form: FormArg, output: Option<&Path>, json: bool) -> Result<Written, Failure> {
        let out = match output {
            Some(path) => Out::File(WholeFile::create(path)?),
            None if json => Out::Nowhere,
            None => Out::Stdout,
        };
        let mut written = Written { form, out, cues: 0 };
        if form == FormArg::Vtt {
            written.write(Subtitles::Vtt.head())?;
        }
        Ok(written)
    }

    fn write(&mut self, text: &str) -> std::io::Result<()> {
        match &mut self.out {
            Out::File(file) => file.write_all(text.as_bytes()),
            Out::Stdout => {
                let mut out = std::io::stdout().lock();
                out.write_all(text.as_bytes())?;
                // Each line is read as it comes.
                out.flush()
            }
            Out::Nowhere => Ok(()),
        }
    }

    fn segment(&mut self, segment: &Segment) -> std::io::Result<()> {
        if self.form == FormArg::Text {
            return self.write(&format!("{}\n", segment.text.trim()));
        }
        if segment.words.is_empty() {
            return self.cue(segment.start, segment.end, &segment.text);
        }
        segment.words.iter().try_for_each(|word| self.cue(word.start, word.end, &word.text))
    }

    fn cue(&mut self, start: f64, end: f64, text: &str) -> std::io::Result<()> {
        self.cues += 1;
        let form = if self.form == FormArg::Srt { Subtitles::Srt } else { Subtitles::Vtt };
        self.write(&form.cue(self.cues, start, end, text))
    }

    /// Gives a file its name. One that is dropped before that is not there.
    fn finish(self) -> std::io::Result<()> {
        match self.out {
            Out::File(file) => file.finish(),
            Out::Stdout | Out::Nowhere => Ok(()),
        }
    }
}

fn document(path: &Path, heard: Heard, transcript: Transcript, words: bool) -> json::Transcript {
    let text = transcript.text().trim().to_owned();
    let segment = |segment: Segment| json::Segment {
        start: segment.start,
        end: segment.end,
        text: segment.text.trim().to_owned(),
        tokens: segment.tokens,
        temperature: segment.temperature,
        avg_logprob: segment.mean_log_probability,
        compression_ratio: segment.compression,
        no_speech_prob: segment.no_speech,
        words: words.then(|| {
            let word = |word: weighbridge::transcriber::Word| json::Word {
                start: word.start,
                end: word.end,
                word: word.text,
                probability: word.probability,
            };
            segment.words.into_iter().map(word).collect()
        }),
    };
    json::Transcript {
        sound: shown(path),
        duration: heard.seconds,
        damaged: heard.damaged,
        ended: heard.ended.map(|fault| fault.to_string()),
        language: transcript.language,
        language_probability: transcript.language_probability,
        text,
        segments: transcript.segments.into_iter().map(segment).collect(),
    }
}
