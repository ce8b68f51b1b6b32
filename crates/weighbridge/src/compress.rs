//! The smallest loss at a given size, from the source to what was measured of the result.
//!
//! [`choose`] runs the model on a text, if there is one, measures each matrix in every encoding, and chooses. [`Chosen::write`] writes
//! what was chosen, and compares the result with its source on the part of the text that was held back.
//!
//! ```no_run
//! # fn main() -> Result<(), weighbridge::Error> {
//! use std::ops::ControlFlow;
//! use std::path::Path;
//!
//! use weighbridge::compress::{self, CompressOptions, Text};
//! use weighbridge::convert::OutputFormat;
//! use weighbridge::convert::compress::Target;
//!
//! let checkpoint = weighbridge::open("model/")?;
//! let contents = std::fs::read_to_string("text.txt").expect("a text");
//! let text = Some(Text { name: "text.txt", contents: &contents });
//! let options = CompressOptions { text, ..CompressOptions::default() };
//! let each = |_: compress::Progress<'_>| ControlFlow::Continue(());
//! let chosen = compress::choose(&checkpoint, OutputFormat::Gguf, Target::Like(4), &options, &each)?;
//! let written = chosen.write(Path::new("small.gguf"), &each)?;
//! println!("{} bytes, KL divergence {:?}", written.bytes, written.agreement.map(|of| of.kl.mean()));
//! # Ok(())
//! # }
//! ```

mod held;

use std::cell::Cell;
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;

use checkpoint::{Checkpoint, Held, Location};
use convert::compress::{Compression, Measuring, Policy, Target};
use convert::{
    Compensation, Conversion, ConvertOptions, ConvertReport, Feedbacks, Imatrix, OutputFormat, Scaling,
};
use engine::calibrate;
use engine::eval::Agreement;
use load::Pool;
use tensor::Diagnostic;

use crate::Error;
use crate::runtime::Foreseen;
use held::HeldBack;

/// Tokens of the chunks in which a text is run.
pub const LENGTH: usize = 512;

/// A text, in UTF-8, of at least eight chunks. With three quarters of it the model is calibrated, on the last one the result is measured.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// Its name in the importance matrix.
    pub name: &'a str,
    /// The text itself.
    pub contents: &'a str,
}

/// How to compress.
#[derive(Clone, Debug, Default)]
pub struct CompressOptions<'a> {
    /// Runs the model. Without it, nothing is measured of the result.
    pub text: Option<Text<'a>>,
    /// Limits the encodings of each matrix.
    pub policy: Policy,
    /// Codes of a matrix are chosen so that errors of columns make each other good on the text, as GPTQ does.
    pub gptq: bool,
    /// Columns with strong inputs are made larger before they are encoded, and the norm before them smaller, as AWQ does.
    pub awq: bool,
    /// Threads [default: as many as the processor runs at once].
    pub threads: Option<usize>,
    /// How the result is written. With an importance matrix, the text is not calibrated with. A preset says which matrices are chosen for,
    /// and the encoding that has most bits. Rules, compensation and scaling are not used: what is chosen takes their place.
    pub convert: ConvertOptions<'a>,
}

/// How far the work is.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// The text is run, to calibrate.
    Calibrating(calibrate::Progress<'a>),
    /// A matrix is measured in each encoding.
    Measuring(&'a Measuring<'a>),
    /// The columns of a matrix are scaled.
    Scaling(&'a Measuring<'a>),
    /// The text is run, for the errors that make each other good.
    Compensating(calibrate::Progress<'a>),
    /// A tensor is written.
    Writing(&'a convert::Progress<'a>),
    /// A tensor is read back, and compared with what it should be.
    Verifying(&'a convert::Progress<'a>),
    /// Chunks of the text that were compared, and how many there are.
    Comparing(usize, usize),
}

/// Is told how far the work is, and may end it.
pub type Each<'a> = dyn Fn(Progress<'_>) -> ControlFlow<()> + 'a;

/// Calls the caller's function, and remembers that it ended the work: a calibration that is ended is no error.
struct Watch<'a> {
    each: &'a Each<'a>,
    is_ended: Cell<bool>,
}

impl<'a> Watch<'a> {
    fn new(each: &'a Each<'a>) -> Watch<'a> {
        Watch { each, is_ended: Cell::new(false) }
    }

    fn at(&self, progress: Progress<'_>) -> ControlFlow<()> {
        let flow = (self.each)(progress);
        self.is_ended.set(self.is_ended.get() || flow.is_break());
        flow
    }

    /// Fails if the work was ended; `written` is complete then.
    fn check(&self, written: Option<&Location>) -> Result<(), Error> {
        if self.is_ended.get() { Err(Error::Interrupted { written: written.cloned() }) } else { Ok(()) }
    }
}

/// An encoding for each matrix, and what else was found on the way to it.
pub struct Chosen<'a> {
    /// The encodings.
    pub compression: Compression,
    /// Columns that are multiplied, with [`CompressOptions::awq`].
    pub scaling: Option<Scaling>,
    checkpoint: &'a Checkpoint,
    options: &'a CompressOptions<'a>,
    /// The one that the text was calibrated into.
    imatrix: Option<Imatrix>,
    held_back: Option<HeldBack>,
}

impl fmt::Debug for Chosen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chosen").field("compression", &self.compression).finish_non_exhaustive()
    }
}

/// A result that was written.
#[derive(Debug)]
pub struct Written {
    /// The results of the conversion.
    pub report: ConvertReport,
    /// Bytes of all its files.
    pub bytes: u64,
    /// How far it is from the source, on the text that was held back; `None` without a text.
    pub agreement: Option<Agreement>,
    /// How often the text was run to make errors good, with [`CompressOptions::gptq`].
    pub passes: Option<usize>,
    /// The memory that the largest step was foreseen to take.
    pub foreseen: Foreseen,
}

/// Measures every matrix of `checkpoint`, and chooses what each becomes in a file of `format`.
///
/// # Errors
/// If the conversion cannot be done, the text cannot be run, or no choice is small enough: then with the smallest size that there is. If
/// `each` ends it.
pub fn choose<'a>(
    checkpoint: &'a Checkpoint,
    format: OutputFormat,
    target: Target,
    options: &'a CompressOptions<'a>,
    each: &Each<'_>,
) -> Result<Chosen<'a>, Error> {
    let (text, given) = (options.text, options.convert.imatrix);
    if let Some(lacking) = lacking(options) {
        return Err(Error::Convert(convert::Error::Convert { what: lacking.into() }));
    }
    Compression::check(checkpoint, format, &options.convert)?;
    let watch = Watch::new(each);
    let mut held_back = text.map(|text| HeldBack::of(checkpoint, text, options, &watch)).transpose()?;
    let calibration = held_back.as_mut().and_then(|held_back| held_back.calibration.take());
    let imatrix =
        calibration.zip(text).map(|(calibration, text)| Imatrix::of(checkpoint, &calibration, text.name));
    let imatrix = imatrix.transpose()?;
    let mut convert = ConvertOptions { imatrix: imatrix.as_ref().or(given), ..options.convert.clone() };
    (convert.compensation, convert.scaling) = (None, None);
    let mut pool = Pool::new(options.threads());
    let mut measuring = |now: &Measuring<'_>| watch.at(Progress::Measuring(now));
    let compression =
        Compression::new(checkpoint, format, target, &options.policy, &convert, &mut pool, &mut measuring)?;
    let mut scaling = |now: &Measuring<'_>| watch.at(Progress::Scaling(now));
    let scaling = options
        .awq
        .then(|| compression.scaling(checkpoint, format, &convert, &mut pool, &mut scaling))
        .transpose()?;
    let chosen = Chosen { compression, scaling, checkpoint, options, imatrix, held_back };
    // What cannot be written is said before anybody waits for it.
    chosen.conversion(&chosen.convert_options(None))?;
    Ok(chosen)
}

/// The input that is missing, if one is.
fn lacking(options: &CompressOptions<'_>) -> Option<Diagnostic> {
    let (text, imatrix) = (options.text.is_some(), options.convert.imatrix.is_some());
    if options.gptq && !text {
        let what = "how inputs go together has to be known for errors to make each other good";
        return Some(Diagnostic::new(what).with_hint("give a text".to_owned()));
    }
    (options.awq && !text && !imatrix).then(|| {
        let what = "how strong inputs are has to be known for columns to be scaled";
        Diagnostic::new(what).with_hint("give a text or an importance matrix".to_owned())
    })
}

impl CompressOptions<'_> {
    fn threads(&self) -> usize {
        self.threads.unwrap_or_else(Pool::available)
    }
}

impl Chosen<'_> {
    /// The memory that running the text was foreseen to take; `None` without a text.
    pub fn foreseen(&self) -> Option<Foreseen> {
        self.held_back.as_ref().map(|held_back| held_back.foreseen)
    }

    /// Writes what was chosen to `destination`, where nothing is before all of it is. If a process that did the same was ended before,
    /// this one continues.
    ///
    /// # Errors
    /// As [`Conversion::run`]; if the result cannot be compared with its source; if `each` ends it.
    pub fn write(mut self, destination: &Path, each: &Each<'_>) -> Result<Written, Error> {
        let watch = Watch::new(each);
        let (mut written, held) = self.convert(destination, false, &watch)?;
        held.release()?;
        self.compare(&mut written, destination, &watch)?;
        Ok(written)
    }

    /// As [`Chosen::write`], but reads the result back and compares it with what it should be, and keeps what a process needs to continue
    /// here until the result is released, or was used to [remove](Held::remove) the source.
    ///
    /// # Errors
    /// As [`Chosen::write`]; if the result is not what it should be.
    pub fn write_verified(mut self, destination: &Path, each: &Each<'_>) -> Result<(Written, Held), Error> {
        let watch = Watch::new(each);
        let (mut written, held) = self.convert(destination, true, &watch)?;
        self.compare(&mut written, destination, &watch)?;
        Ok((written, held))
    }

    /// Writes the result, and does not compare it with its source yet.
    fn convert(
        &mut self,
        destination: &Path,
        verify: bool,
        watch: &Watch<'_>,
    ) -> Result<(Written, Held), Error> {
        let threads = self.options.threads();
        let mut pool = Pool::new(threads);
        let model = self.held_back.as_mut().and_then(|held_back| held_back.model.take());
        let compensation = model.zip(self.held_back.as_ref()).map(|(model, held_back)| {
            held_back.compensation(self.checkpoint, model, &self.convert_options(None), threads, watch)
        });
        let compensation = compensation.transpose()?;
        let feedbacks = compensation.as_ref().map(|compensation| compensation as &dyn Feedbacks);
        let options = self.convert_options(feedbacks);
        let conversion = self.conversion(&options)?;
        // Those of the tokenizer too.
        let bytes = conversion.bytes();
        let mut writing = |now: &convert::Progress<'_>| watch.at(Progress::Writing(now));
        let (report, mut held) = conversion.run_and_hold(destination, &mut pool, &mut writing)?;
        if verify {
            let place = report.destination.path().unwrap_or(destination);
            let mut verifying = |now: &convert::Progress<'_>| watch.at(Progress::Verifying(now));
            held = sound(held, self.conversion(&options)?.verify(place, &mut pool, &mut verifying))?;
        }
        let tables = Foreseen::of_private(compensation.as_ref().map_or(0, Compensation::most_bytes));
        let running = self.foreseen().unwrap_or_default();
        let again = if compensation.is_some() { running + tables } else { running };
        let foreseen = again.max(Foreseen::of_private(report.foreseen_memory) + tables);
        let bytes = bytes.saturating_sub(report.zstd.saved);
        let passes = compensation.as_ref().map(Compensation::passes);
        Ok((Written { report, bytes, agreement: None, passes, foreseen }, held))
    }

    /// Measures how far the result is from its source, on the part of the text that was held back.
    fn compare(&self, written: &mut Written, destination: &Path, watch: &Watch<'_>) -> Result<(), Error> {
        let Some(held_back) = &self.held_back else { return Ok(()) };
        let place = written.report.destination.path().unwrap_or(destination);
        let (found, foreseen) = held_back.compare(self.checkpoint, place, self.options.threads(), watch)?;
        watch.check(Some(&written.report.destination))?;
        (written.agreement, written.foreseen) = (found, written.foreseen.max(foreseen));
        Ok(())
    }

    /// The options that encode each matrix as it was chosen.
    fn convert_options<'s>(&'s self, compensation: Option<&'s dyn Feedbacks>) -> ConvertOptions<'s> {
        let (rules, preset) = self.compression.encoding();
        ConvertOptions {
            rules,
            preset,
            imatrix: self.imatrix.as_ref().or(self.options.convert.imatrix),
            compensation,
            scaling: self.scaling.as_ref(),
            ..self.options.convert.clone()
        }
    }

    fn conversion<'s>(&'s self, options: &'s ConvertOptions<'s>) -> Result<Conversion<'s>, Error> {
        let format = self.compression.format;
        Ok(Conversion::new(self.checkpoint, format.compressed_layout(), format, options)?)
    }
}

/// The result, if it was `verified`: one that is not what it should be is not continued.
fn sound(result: Held, verified: Result<(), convert::Error>) -> Result<Held, Error> {
    match verified {
        Ok(()) => Ok(result),
        Err(error @ convert::Error::Interrupted { .. }) => Err(error.into()),
        Err(error) => {
            result.release()?;
            Err(error.into())
        }
    }
}
