//! The text of a compression, of which a part is held back.

use std::path::Path;

use checkpoint::Checkpoint;
use convert::{Compensation, CompensationOptions, ConvertOptions};
use engine::calibrate::{
    self, CalibrateOptions, Calibration, SharedInput, calibrate, held_bytes, products, shared_inputs,
};
use engine::eval::{Agreement, EvalOptions, evaluate, logits_bytes};
use load::available_memory;
use quant::Isa;

use super::{CompressOptions, LENGTH, Progress, Text, Watch};
use crate::runtime::{Foreseen, Passage};
use crate::{Error, Runtime, RuntimeOptions};

/// Chunks of the shortest text: two of the last quarter are compared.
const CHUNKS: usize = 8;

/// A text whose last quarter is held back.
pub(super) struct HeldBack {
    pub(super) calibration: Option<Calibration>,
    /// The model, if it is to run the text again.
    pub(super) model: Option<Runtime>,
    /// The memory that running the text was foreseen to take.
    pub(super) foreseen: Foreseen,
    passage: Passage,
    /// Tokens before the part that is held back.
    cut: usize,
    /// Bytes for tables of products.
    room: u64,
}

impl HeldBack {
    /// Runs the first three quarters of `text`, unless an importance matrix says already how strong inputs are.
    pub(super) fn of(
        checkpoint: &Checkpoint,
        text: Text<'_>,
        options: &CompressOptions<'_>,
        watch: &Watch<'_>,
    ) -> Result<HeldBack, Error> {
        let threads = options.threads();
        let mut model = start(checkpoint, threads)?;
        let passage = model.passage(text.contents)?;
        let (found, wanted) = (passage.tokens.len(), CHUNKS * LENGTH);
        if found < wanted {
            return Err(Error::ShortText { name: text.name.to_owned(), found, wanted });
        }
        let room = options.convert.memory.or_else(available_memory).unwrap_or(u64::MAX);
        if options.gptq {
            Compensation::check(&shared_inputs(model.predictor().runner.model()), room)?;
        }
        let (cut, foreseen) = (found - found / 4, model.foreseen());
        let mut held_back = HeldBack { calibration: None, model: None, foreseen, passage, cut, room };
        if options.convert.imatrix.is_none() {
            let options = held_back.options(threads);
            held_back.foreseen = foreseen + Foreseen::of_private(held_bytes(model.shared(), &options));
            let mut each = |now: calibrate::Progress<'_>| watch.at(Progress::Calibrating(now));
            let found = calibrate(&mut model.predictor(), held_back.calibrated(), &options, &mut each)?;
            watch.check(None)?;
            held_back.calibration = Some(found);
        }
        held_back.model = options.gptq.then_some(model);
        Ok(held_back)
    }

    /// How errors make each other good on the part that is calibrated with, as `model` runs it.
    pub(super) fn compensation<'w>(
        &'w self,
        checkpoint: &'w Checkpoint,
        mut model: Runtime,
        options: &ConvertOptions<'_>,
        threads: usize,
        watch: &'w Watch<'w>,
    ) -> Result<Compensation<'w>, Error> {
        let inputs = shared_inputs(model.predictor().runner.model());
        let calibration = self.options(threads);
        let settings = CompensationOptions { room: self.room, threads, text: self.identity() };
        let sum = move |inputs: &[&SharedInput]| {
            let mut each = |now: calibrate::Progress<'_>| watch.at(Progress::Compensating(now));
            let grams = products(&mut model.predictor(), inputs, self.calibrated(), &calibration, &mut each)?;
            let ended = convert::Error::Interrupted { kept: None, done: 0, total: 0 };
            if watch.is_ended.get() { Err(ended) } else { Ok(grams) }
        };
        let ConvertOptions { imatrix, scaling, .. } = *options;
        Ok(Compensation::new(checkpoint, inputs, imatrix, scaling, settings, Box::new(sum))?)
    }

    /// How far the model at `made` is from its source, on the tokens that were held back, and the memory that both were foreseen to take.
    pub(super) fn compare(
        &self,
        source: &Checkpoint,
        made: &Path,
        threads: usize,
        watch: &Watch<'_>,
    ) -> Result<(Option<Agreement>, Foreseen), Error> {
        let mut model = start(&checkpoint::open(made)?, threads)?;
        let mut reference = start(source, threads)?;
        let result = evaluate(
            &mut model.predictor(),
            Some(&mut reference.predictor()),
            &self.passage.tokens[self.cut..],
            &EvalOptions { length: LENGTH, chunks: None, begin: self.passage.begin, threads },
            &mut |so_far, total| watch.at(Progress::Comparing(so_far.chunks, total)),
        )?;
        let logits = Foreseen::of_private(2 * logits_bytes(model.shared().vocab()));
        Ok((result.against, model.foreseen() + reference.foreseen() + logits))
    }

    /// The tokens that are calibrated with.
    fn calibrated(&self) -> &[u32] {
        &self.passage.tokens[..self.cut]
    }

    fn options(&self, threads: usize) -> CalibrateOptions {
        let (begin, disturbed) = (self.passage.begin, Some(LENGTH));
        CalibrateOptions { length: LENGTH, chunks: None, begin, disturbed, threads }
    }

    /// Identifies the tokens that are calibrated with, and the way in which they are run.
    fn identity(&self) -> Vec<u8> {
        let tokens = self.calibrated().iter().chain(&self.passage.begin);
        let isa = Isa::detect().map_or("none", Isa::name);
        tokens.flat_map(|token| token.to_le_bytes()).chain(format!(" {LENGTH} {isa}").into_bytes()).collect()
    }
}

/// Starts the model in `checkpoint`, with room for a chunk.
fn start(checkpoint: &Checkpoint, threads: usize) -> Result<Runtime, Error> {
    let (threads, context) = (Some(threads), Some(LENGTH));
    let options = RuntimeOptions { threads, context, ..RuntimeOptions::default() };
    Runtime::start_from(checkpoint.clone(), &options)
}
