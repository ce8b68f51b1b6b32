//! What goes into each matrix of a model, and how much its predictions depend on each.
//!
//! [`calibrate`] runs a text. Of each matrix it sums the squares of the inputs, column by column, as llama.cpp's
//! `llama-imatrix` does (tools/imatrix/imatrix.cpp@0c1e57098): an encoder places its errors in the columns where they matter
//! least. If it is asked to, it then disturbs one matrix at a time, and measures how far that moves the predictions: so it is
//! known in which matrices errors matter least.
//!
//! # Sensitivity
//!
//! A matrix that is quantised is another matrix: `W + E`. If the elements of `E` are as good as random, the mean square of its
//! effect, `|E x|²`, is the sum over all elements of `E²` times the mean square of the input of their column. For small errors the
//! divergence of the predictions grows with that, by a factor that is the matrix's own: its sensitivity. It is measured with an `E`
//! whose elements are all `±σ`: the signs of a Hadamard matrix with rows and columns turned at random, which takes additions alone and
//! no memory.

mod hadamard;
mod probe;
mod stretch;

use std::ops::{ControlFlow, Range};

use quant::Gram;
use tensor::Pattern;

use crate::batch::BatchItem;
use crate::eval::{self, Predictor, ROWS};
use crate::{Error, Logits, Model};

use probe::{Grams, Noise, Sums};
pub(crate) use probe::{Probe, Probed};
pub(crate) use stretch::Stretch;
use stretch::first_branch;

/// The divergence that disturbances are made to have, in nats: small enough to grow with their squares, and large enough not to drown
/// in the rounding of activations.
const WANTED: f64 = 0.03;

/// The size of the first disturbance of a kind of matrix, as a share of the matrix's results, and of the largest.
const FIRST: f64 = 0.25;
const LARGEST: f64 = 0.5;

/// The size of a disturbance that only makes activations round elsewhere.
const TINY: f64 = 0.001;

/// Bytes of logits that are kept of the undisturbed model, at most, but for one row.
const KEPT: usize = 256 << 20;

/// How a model is calibrated.
#[derive(Clone, Copy, Debug)]
pub struct CalibrateOptions {
    /// Tokens of a chunk, at least 4.
    pub length: usize,
    /// Chunks to run at most; `None` for all.
    pub chunks: Option<usize>,
    /// The token that begins texts, if the tokenizer adds one.
    pub begin: Option<u32>,
    /// Tokens that each disturbed model is run on; `None` if sensitivities are not wanted. The text is used from its end: from its
    /// start, if it is no longer than that.
    pub disturbed: Option<usize>,
    /// Threads that compare probabilities, and sum products.
    pub threads: usize,
}

/// What a calibration found.
#[derive(Clone, Debug, Default)]
pub struct Calibration {
    /// Chunks that were run.
    pub chunks: usize,
    /// Tokens that were run.
    pub tokens: u64,
    /// Each matrix, in the order in which they run.
    pub matrices: Vec<Inputs>,
    /// The table of token embeddings.
    pub lookup: Lookup,
}

/// What goes into one matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Inputs {
    /// Its canonical name: `layers.0.attention.q.weight`.
    pub name: String,
    /// Rows of inputs.
    pub rows: u64,
    /// The sum of the squares of each column: `[in]`.
    pub squares: Vec<f64>,
    /// The sum of the squares of its results.
    pub results: f64,
    /// By how much predictions diverge, in nats a token, for each unit of the mean square of an error in the matrix's results.
    pub sensitivity: Option<f64>,
}

impl Inputs {
    /// By how much predictions diverge, in nats a token, if its results are off by a tenth of what they are; `None` if that was not
    /// measured.
    pub fn moved(&self) -> Option<f64> {
        Some(self.sensitivity? * 0.01 * self.results / self.rows.max(1) as f64)
    }
}

/// What is looked up in the table of token embeddings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lookup {
    /// Its canonical name.
    pub name: String,
    /// By how much predictions diverge, in nats a token, for each unit of the mean square of an error in a row.
    pub sensitivity: Option<f64>,
}

/// How far a calibration is.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// A chunk was run: its number from 1, and how many there are.
    Chunk(usize, usize),
    /// A matrix was disturbed: its number from 1, how many there are, and its name.
    Matrix(usize, usize, &'a str),
}

/// Runs `tokens` by `model`. `each` is told how far it is, and may end it: the rest is then not measured.
///
/// # Errors
/// If there is not a chunk of tokens; if the session is too short, or logits are not numbers.
pub fn calibrate(
    model: &mut Predictor<'_>,
    tokens: &[u32],
    options: &CalibrateOptions,
    each: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Result<Calibration, Error> {
    let length = options.length.max(4);
    if tokens.len() < length {
        return Err(Error::ShortText { found: tokens.len(), wanted: length });
    }
    model.runner.probe = Some(Probe::Sums(Sums::default()));
    let ran = sum(model, tokens, length, options, each);
    let Some(Probe::Sums(sums)) = model.runner.probe.take() else { unreachable!("it was put there") };
    let (chunks, flow) = ran?;
    let parts = parts(model.runner.model());
    let mut found = Calibration {
        chunks,
        tokens: (chunks * length) as u64,
        matrices: parts.iter().map(|part| sums.inputs(part)).collect(),
        lookup: Lookup { name: "token_embedding.weight".to_owned(), sensitivity: None },
    };
    if let (Some(wanted), ControlFlow::Continue(())) = (options.disturbed, flow) {
        let mut quiet = Quiet::of(model, tokens, wanted, options)?;
        let disturbed = disturb(model, &mut quiet, &parts, &sums, options.threads, &mut found, each);
        (model.runner.probe, model.runner.stretch) = (None, None);
        disturbed?;
    }
    Ok(found)
}

/// The input of one or more matrices.
#[derive(Clone, Debug, Default)]
pub struct SharedInput {
    /// The canonical names of the matrices.
    pub names: Vec<String>,
    /// Their rows, together.
    pub rows: usize,
    /// The number of its values.
    pub k: usize,
    /// The path of the projection.
    path: String,
}

/// Bytes of logits and of residual streams that [`calibrate`] holds of `model` at most.
pub fn held_bytes(model: &Model, options: &CalibrateOptions) -> u64 {
    let (vocab, hidden) = (model.vocab(), model.hidden());
    let tokens = options.disturbed.map_or(0, |wanted| wanted.min(Quiet::most(vocab)));
    eval::logits_bytes(vocab) + 4 * (tokens.div_ceil(2) * vocab + tokens * hidden) as u64
}

/// The inputs of all matrices of `model`, in the order in which they run.
pub fn shared_inputs(model: &Model) -> Vec<SharedInput> {
    let mut inputs: Vec<SharedInput> = vec![];
    for part in parts(model) {
        let Some(projection) = model.projections().find(|p| p.path == part.path) else { continue };
        let at = inputs.iter().position(|input| input.path == part.path).unwrap_or_else(|| {
            let (path, k) = (part.path.clone(), projection.input);
            inputs.push(SharedInput { k, path, ..SharedInput::default() });
            inputs.len() - 1
        });
        inputs[at].rows += part.out.len();
        inputs[at].names.push(part.name);
    }
    inputs
}

/// Runs `tokens` by `model`, and sums how the columns of each of `inputs` go together: `Σ x xᵀ`, of the same bits whatever the other
/// inputs are. That takes [`Gram::bytes`] for each. `each` is told how far it is, and may end it: what was run until then is summed.
///
/// # Errors
/// As [`calibrate`], and if there is not enough memory.
pub fn products(
    model: &mut Predictor<'_>,
    inputs: &[&SharedInput],
    tokens: &[u32],
    options: &CalibrateOptions,
    each: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Result<Vec<Gram>, Error> {
    let length = options.length.max(4);
    if tokens.len() < length {
        return Err(Error::ShortText { found: tokens.len(), wanted: length });
    }
    let empty = |input: &&SharedInput| Some((input.path.clone(), Gram::new(input.k)?));
    let sums = inputs.iter().map(empty).collect::<Option<_>>().ok_or(Error::TooLarge)?;
    model.runner.probe = Some(Probe::Grams(Grams { threads: options.threads, sums }));
    let ran = sum(model, tokens, length, options, each);
    let Some(Probe::Grams(mut grams)) = model.runner.probe.take() else { unreachable!("it was put there") };
    // Whoever ended it has what was summed.
    let _ = ran?;
    Ok(inputs.iter().filter_map(|input| grams.sums.remove(&input.path)).collect())
}

/// A canonical matrix: its name, and where its results are among those of a projection.
struct Part {
    name: String,
    path: String,
    out: Range<usize>,
}

impl Part {
    /// What says which layer it is in: `layers.0`.
    fn layer(&self) -> &str {
        let mut dots = self.path.match_indices('.').map(|(at, _)| at);
        dots.nth(1).map_or(&self.path, |at| &self.path[..at])
    }
}

/// The matrices of a model, in the order in which they run. One that several layers share is there once.
fn parts(model: &Model) -> Vec<Part> {
    let mut parts: Vec<Part> = vec![];
    for projection in model.projections() {
        let Some(matrix) = model.architecture().matrix(&projection.path) else { continue };
        let mut at = 0;
        for (stem, out) in &matrix.parts {
            let out = at..at + usize::try_from(*out).unwrap_or(usize::MAX);
            at = out.end;
            let name = format!("{stem}.weight");
            if parts.iter().all(|part| part.name != name) {
                parts.push(Part { name, path: projection.path.clone(), out });
            }
        }
    }
    parts
}

/// Runs all chunks while the probe sums; returns how many there were.
fn sum(
    model: &mut Predictor<'_>,
    tokens: &[u32],
    length: usize,
    options: &CalibrateOptions,
    each: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Result<(usize, ControlFlow<()>), Error> {
    let total = (tokens.len() / length).min(options.chunks.unwrap_or(usize::MAX));
    let mut chunk = vec![];
    for (n, whole) in tokens.chunks_exact(length).take(total).enumerate() {
        begun(&mut chunk, whole, options.begin);
        model.session.truncate(0);
        // After every token: the output matrix sees each of them, as llama-imatrix has it.
        model.runner.forward_each(model.session, &chunk, |_| ())?;
        if each(Progress::Chunk(n + 1, total)).is_break() {
            return Ok((n + 1, ControlFlow::Break(())));
        }
    }
    Ok((total, ControlFlow::Continue(())))
}

/// `chunk` becomes `whole`, but for the token that begins texts.
fn begun(chunk: &mut Vec<u32>, whole: &[u32], begin: Option<u32>) {
    chunk.clear();
    chunk.extend_from_slice(whole);
    if let (Some(first), Some(begin)) = (chunk.first_mut(), begin) {
        *first = begin;
    }
}

/// Some chunks, and what the model predicts where nothing is disturbed.
struct Quiet {
    chunks: Vec<Chunk>,
}

struct Chunk {
    tokens: Vec<u32>,
    /// Of its second half: `[scored, vocab]`.
    logits: Vec<f32>,
    /// The branches that a disturbed model runs. `None` if it runs all of them, as a model whose weights are streamed does.
    stretch: Option<Stretch>,
}

impl Quiet {
    /// Tokens of a chunk, at most.
    const LENGTH: usize = 256;

    /// Tokens of all chunks, at most.
    fn most(vocab: usize) -> usize {
        (KEPT / (4 * vocab.max(1))).max(2) * 2
    }

    fn of(
        model: &mut Predictor<'_>,
        tokens: &[u32],
        wanted: usize,
        options: &CalibrateOptions,
    ) -> Result<Quiet, Error> {
        let vocab = model.runner.model().vocab();
        let is_streamed = model.runner.streaming().is_some();
        let wanted = wanted.min(Quiet::most(vocab)).clamp(4, tokens.len());
        let length = Quiet::LENGTH.min(wanted).min(model.session.capacity());
        let mut quiet = Quiet { chunks: vec![] };
        for whole in tokens[tokens.len() - wanted..].chunks_exact(length) {
            let mut tokens = vec![];
            begun(&mut tokens, whole, options.begin);
            let (context, scored) = tokens.split_at(length / 2);
            eval::begin(model, context)?;
            let mut logits = Vec::new();
            logits.try_reserve_exact(scored.len() * vocab).map_err(|_| Error::TooLarge)?;
            model.runner.forward_each(model.session, scored, |row| logits.extend_from_slice(row))?;
            let stretch = if is_streamed {
                None
            } else {
                Some(Stretch::all(model.runner.model(), length).ok_or(Error::TooLarge)?)
            };
            quiet.chunks.push(Chunk { tokens, logits, stretch });
        }
        Ok(quiet)
    }

    /// Lets the next passes begin at `branch`: nothing before it is disturbed.
    fn undisturbed_before(&mut self, model: &mut Predictor<'_>, branch: usize) -> Result<(), Error> {
        model.runner.probe = None;
        for chunk in &mut self.chunks {
            let Some(mut stretch) = chunk.stretch.take() else { continue };
            if stretch.until(branch) {
                model.runner.stretch = Some(stretch);
                model.session.truncate(0);
                // As many rows in each pass as `divergence` has: sums have the same bits then.
                let (context, scored) = chunk.tokens.split_at(chunk.tokens.len() / 2);
                for tokens in std::iter::once(context).chain(scored.chunks(ROWS)) {
                    let part = BatchItem { session: model.session, tokens, logits: Logits::None };
                    model.runner.run_parts(&mut [part], |_, _, _| ())?;
                }
                let Some(ran) = model.runner.stretch.take() else { unreachable!("it was put there") };
                stretch = ran;
            }
            stretch.go_on();
            chunk.stretch = Some(stretch);
        }
        Ok(())
    }

    /// The mean divergence of what the model predicts now.
    fn divergence(&mut self, model: &mut Predictor<'_>, threads: usize) -> Result<f64, Error> {
        let vocab = model.runner.model().vocab();
        let (mut sum, mut count, mut ours) = (0.0, 0usize, vec![]);
        for Chunk { tokens, logits, stretch } in &mut self.chunks {
            let (context, scored) = tokens.split_at(tokens.len() / 2);
            model.runner.stretch = stretch.take();
            eval::begin(model, context)?;
            for (run, theirs) in scored.chunks(ROWS).zip(logits.chunks(ROWS * vocab)) {
                eval::logits(model, run, &mut ours)?;
                // Which token comes next does not matter to a divergence.
                let rows = eval::compare((&ours, theirs), run, vocab, threads)?;
                sum += rows.iter().filter_map(|row| row.against).map(|beside| beside.kl).sum::<f64>();
                count += rows.len();
            }
            *stretch = model.runner.stretch.take();
        }
        Ok(sum / count.max(1) as f64)
    }
}

/// Disturbs one matrix after the other, and last what is looked up.
fn disturb(
    model: &mut Predictor<'_>,
    quiet: &mut Quiet,
    parts: &[Part],
    sums: &Sums,
    threads: usize,
    found: &mut Calibration,
    each: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Result<(), Error> {
    let total = parts.len() + 1;
    let branches: Vec<usize> = parts.iter().map(|part| first_branch(model.runner.model(), part)).collect();
    let mut divergence = |branch: usize, noise: Noise| {
        quiet.undisturbed_before(model, branch)?;
        model.runner.probe = Some(Probe::Noise(noise));
        quiet.divergence(model, threads)
    };
    // What rounding elsewhere makes of any change, by layer.
    let (mut layer, mut floor, mut first_floor) = (None, 0.0, None);
    // The divergence per unit of the squared size, of the matrices of a kind so far.
    let mut kinds: Vec<(Pattern, f64)> = vec![];
    for (n, ((part, branch), inputs)) in parts.iter().zip(branches).zip(&mut found.matrices).enumerate() {
        // `|E x|²` for `σ = 1`, and `|W x|²`: means of the rows.
        let rows = inputs.rows.max(1) as f64;
        let unit = part.out.len() as f64 * inputs.squares.iter().sum::<f64>() / rows;
        let result = inputs.results / rows;
        let sigma = |size: f64| size * (result / unit).sqrt();
        let noise = |size: f64| {
            Noise::in_product(&part.path, part.out.clone(), inputs.squares.len(), sigma(size) as f32)
        };
        if sigma(FIRST).is_normal() {
            if layer != Some(part.layer()) {
                (layer, floor) = (Some(part.layer()), divergence(branch, noise(TINY))?);
                first_floor.get_or_insert(floor);
            }
            let kind = Pattern::of(&part.name);
            let known = kinds.iter_mut().find(|(known, _)| *known == kind);
            let guess = known.as_ref().map_or(FIRST, |(_, growth)| (WANTED / growth).sqrt().min(LARGEST));
            let (size, moved) = measured(guess, floor, &mut |size| divergence(branch, noise(size)))?;
            match known {
                Some((_, growth)) => *growth = moved / (size * size),
                None => kinds.push((kind, moved / (size * size))),
            }
            inputs.sensitivity = Some(moved / (sigma(size) * sigma(size) * unit));
        }
        if each(Progress::Matrix(n + 1, total, &part.name)).is_break() {
            return Ok(());
        }
    }
    let width = sums.lookup_width() as f64;
    let sigma = |size: f64| size * (sums.looked_up() / width).sqrt();
    if sigma(FIRST).is_normal() {
        let noise = |size: f64| Noise::in_lookup(sigma(size) as f32);
        let floor = first_floor.unwrap_or_default();
        let (size, moved) = measured(FIRST, floor, &mut |size| divergence(0, noise(size)))?;
        found.lookup.sensitivity = Some(moved / (sigma(size) * sigma(size) * width));
    }
    // It is the last: there is nothing left to end.
    let _ = each(Progress::Matrix(total, total, &found.lookup.name));
    Ok(())
}

/// Tries sizes from `guess` on until the divergence is about what is wanted; returns the size, and the divergence beyond `floor`.
fn measured(
    guess: f64,
    floor: f64,
    divergence: &mut dyn FnMut(f64) -> Result<f64, Error>,
) -> Result<(f64, f64), Error> {
    let mut size = guess;
    for last in [false, false, true] {
        // Below the floor there is nothing to be known, but that it is not more.
        let moved = (divergence(size)? - floor).max(0.1 * floor).max(1e-9);
        let fits = (WANTED / 3.0..WANTED * 3.0).contains(&moved);
        let next = (size * (WANTED / moved).sqrt()).min(LARGEST);
        if last || fits || (next - size).abs() < 0.01 * size {
            return Ok((size, moved));
        }
        size = next;
    }
    unreachable!("the last size is returned")
}
