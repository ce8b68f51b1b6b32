//! Runs sessions: owns the backend, and every buffer that a pass needs.

use std::fmt;
use std::sync::Arc;

use crate::BATCH;
use crate::adapter::{Adapted, AdaptedRows};
use crate::backend::{Backend, Ceiling};
use crate::batch::{BatchItem, Cursor};
use crate::calibrate::{Probe, Probed, Stretch};
use crate::forward::{Buffers, during, layers};
use crate::hearing::Hearing;
use crate::layer::{Pass, Segment, Sequences, Watch};
use crate::rotary::{Rotary, Rotation};
use crate::state::State;
use crate::stream::Stream;
use crate::{Batch, Error, Heard, KvKind, Logits, Model, Session, Streaming};

/// Rows that are multiplied with the output matrix at once.
const OUTPUTS: usize = 16;

/// Runs sessions of one model: it owns the backend, and so the threads, and the buffers of a pass.
///
/// A pass of one session allocates nothing.
pub struct Runner {
    model: Arc<Model>,
    backend: Box<dyn Backend>,
    /// What looks on while a calibration runs.
    pub(crate) probe: Option<Probe>,
    /// Some of the branches, while a calibration runs only these.
    pub(crate) stretch: Option<Stretch>,
    /// Brings in layers that are not all in memory.
    stream: Option<Stream>,
    buffers: Buffers,
    /// Products with the first factor of an adapter.
    ranks: Vec<f32>,
    /// `[1 to OUTPUTS, vocab]`.
    logits: Vec<f32>,
    /// For each rotary embedding of the model.
    rotations: Vec<Rotation>,
    /// Room for what is heard, if the model hears.
    hearing: Option<Hearing>,
    /// Keeps what some heads look at, while it is wanted.
    watch: Option<Watch>,
    /// Of the pass that runs.
    segments: Vec<Segment>,
    /// Of the pass that runs.
    adapted: Vec<AdaptedRows>,
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("backend", &self.backend.name()).finish_non_exhaustive()
    }
}

impl Runner {
    /// A runner of `model` by `backend`, which was made for it.
    ///
    /// # Errors
    /// If the buffers do not fit the address space, or the model is an encoder, which gives no logits: see
    /// [`Sequencer`](crate::Sequencer).
    pub fn new(model: &Arc<Model>, backend: Box<dyn Backend>) -> Result<Runner, Error> {
        let Some(_) = model.output() else { return Err(Error::NoLogits) };
        let buffers = Buffers::new(model, BATCH)?;
        let rotation = |rope: &Rotary| Rotation::new(BATCH, rope.pairs()).ok_or(Error::TooLarge);
        let rotations = model.ropes.iter().map(rotation).collect::<Result<_, Error>>()?;
        // A pass has no more segments than rows.
        let (segments, adapted) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
        Ok(Runner {
            model: Arc::clone(model),
            backend,
            probe: None,
            stretch: None,
            stream: None,
            buffers,
            ranks: vec![],
            logits: vec![0.0; model.vocab()],
            rotations,
            hearing: model.ear.as_ref().map(|ear| Hearing::new(ear, model.hidden())).transpose()?,
            watch: None,
            segments,
            adapted,
        })
    }

    /// The model that it runs.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// The backend's name.
    pub fn backend(&self) -> String {
        self.backend.name()
    }

    /// Holds at most `room` bytes of the weights that lie in a map in memory from here on: each pass reads the others again, ahead of
    /// their use. Returns what stays and what is read, or `None` if all may stay. Results are the same.
    ///
    /// # Errors
    /// If the largest layer is larger than `room`.
    pub fn stream(&mut self, room: u64) -> Result<Option<Streaming>, Error> {
        self.stream = Stream::new(&self.model, room)?;
        Ok(self.streaming())
    }

    /// What stays in memory and what each pass reads; `None` if all weights stay.
    pub fn streaming(&self) -> Option<Streaming> {
        self.stream.as_ref().map(Stream::about)
    }

    /// Makes room for the logits of `rows` tokens of one pass, so that a pass that wants these allocates nothing.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn reserve_logits(&mut self, rows: usize) -> Result<(), Error> {
        let (logits, wanted) = (&mut self.logits, rows.min(OUTPUTS) * self.model.vocab());
        if wanted > logits.len() {
            logits.try_reserve_exact(wanted - logits.len()).map_err(|_| Error::TooLarge)?;
            logits.resize(wanted, 0.0);
        }
        Ok(())
    }

    /// Makes room for the passes of `session`, so that a pass of it alone allocates nothing.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn reserve(&mut self, session: &Session) -> Result<(), Error> {
        self.reserve_for(std::iter::once(session))
    }

    /// Runs all parts of `batch`, and calls `each` with the number of a part, that of one of its tokens, and the logits after
    /// it, `[vocab]`: for every token that logits are wanted after, in order.
    ///
    /// # Errors
    /// If a part has no tokens, a token is outside the vocabulary, a session is of another model or has too little room, or
    /// memory runs out. Nothing has changed then, in any session.
    pub fn run(&mut self, batch: Batch<'_>, each: impl FnMut(usize, usize, &[f32])) -> Result<(), Error> {
        let Batch { mut parts } = batch;
        self.run_parts(&mut parts, each)
    }

    /// Runs `tokens` at the next positions of `session` and returns the logits after the last: `[vocab]`.
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub fn forward(&mut self, session: &mut Session, tokens: &[u32]) -> Result<&[f32], Error> {
        self.run_parts(&mut [BatchItem { session, tokens, logits: Logits::Last }], |_, _, _| ())?;
        Ok(&self.logits[..self.model.vocab()])
    }

    /// Runs `tokens` at the next positions of `session` and calls `each` with the logits after every one.
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub fn forward_each(
        &mut self,
        session: &mut Session,
        tokens: &[u32],
        mut each: impl FnMut(&[f32]),
    ) -> Result<(), Error> {
        self.run_parts(&mut [BatchItem { session, tokens, logits: Logits::All }], |_, _, logits| each(logits))
    }

    /// Leaves out what is beyond the budget of `session`, at the end of a prompt: each layer that looks at all positions keeps the last
    /// [`OBSERVED`](crate::OBSERVED), and as many others as the budget has room for, for each key head those that the last queries look at most. Nothing
    /// happens without a budget, or where no more positions are there. The session no longer goes back into its prompt, except to its beginning.
    ///
    /// # Errors
    /// If the session is of another model, or memory runs out: some layers may have left out their positions then, and the session is as good as
    /// before.
    pub fn evict(&mut self, session: &mut Session) -> Result<(), Error> {
        if !Arc::ptr_eq(session.model(), &self.model) {
            return Err(Error::OtherModel);
        }
        let Some(budget) = session.kv_budget() else { return Ok(()) };
        for (branch, state) in self.model.branches().iter().zip(&mut session.states) {
            let (State::Kv(cache), Some(width)) = (state, branch.layer.observed()) else { continue };
            let Some(how) = branch.layer.attends(width) else { continue };
            cache
                .evict(budget, |cache, queries, to| self.backend.attention_sums(&how, cache, queries, to))?;
        }
        Ok(())
    }

    /// Makes of a spectrogram what sessions then look at when they [hear](Session::hear) it: of `mel`, frame by frame,
    /// `[frames, mels]` as [`Model::hears`] has them. `kind` says how keys and values are kept; what would have codes is binary16.
    ///
    /// # Errors
    /// If the model does not listen, or `mel` has another number of frames, or memory runs out.
    pub fn hear(&mut self, mel: &[f32], kind: KvKind) -> Result<Heard, Error> {
        let Runner { model, backend, hearing: Some(hearing), buffers, .. } = self else {
            return Err(Error::NoEar);
        };
        let Some(ear) = &model.ear else { return Err(Error::NoEar) };
        backend.reserve(ear.context)?;
        let vectors = hearing.run(ear, &mut **backend, mel)?;
        let cross = model.branches().iter().filter_map(|branch| branch.layer.cross());
        let caches =
            cross.map(|cross| cross.hear(&mut **backend, vectors, kind, &mut buffers.wide).map(Arc::new));
        Ok(Heard { caches: caches.collect::<Result<_, Error>>()?, model: Arc::clone(model) })
    }

    /// The vectors that the audio encoder makes of a spectrogram: `[frames / 2, hidden]`. For tests of it alone.
    ///
    /// # Errors
    /// As [`Runner::hear`].
    pub fn encode(&mut self, mel: &[f32]) -> Result<&[f32], Error> {
        let (Some(hearing), Some(ear)) = (&mut self.hearing, &self.model.ear) else {
            return Err(Error::NoEar);
        };
        self.backend.reserve(ear.context)?;
        hearing.run(ear, &mut *self.backend, mel)
    }

    /// As [`Runner::forward_each`], of a session that hears. Returns what `heads` look at, each a layer of the decoder and a head of its
    /// cross-attention: the products of queries and keys, `[heads, tokens, vectors heard]`.
    ///
    /// # Errors
    /// As [`Runner::run`].
    ///
    /// # Panics
    /// If there is no such layer.
    pub fn forward_watched(
        &mut self,
        session: &mut Session,
        tokens: &[u32],
        heads: &[(usize, usize)],
        each: impl FnMut(&[f32]),
    ) -> Result<Vec<f32>, Error> {
        let crosses =
            self.model.branches().iter().enumerate().filter(|(_, branch)| branch.layer.cross().is_some());
        let crosses: Vec<usize> = crosses.map(|(branch, _)| branch).collect();
        let heads: Vec<(usize, usize)> = heads.iter().map(|(layer, head)| (crosses[*layer], *head)).collect();
        self.watch = Some(Watch { products: vec![vec![]; heads.len()], heads });
        let done = self.forward_each(session, tokens, each);
        let watched = self.watch.take().map_or_else(Vec::new, |watch| watch.products);
        done.map(|()| watched.concat())
    }

    /// Runs only the products of a prompt of `tokens` tokens: their time is a lower bound for the prompt's.
    pub fn products(&mut self, tokens: usize) {
        let Buffers { wide, narrow, h, .. } = &mut self.buffers;
        for start in (0..tokens).step_by(BATCH) {
            let rows = (tokens - start).min(BATCH);
            for (n, branch) in self.model.branches().iter().enumerate() {
                during(self.stream.as_ref(), n, || {
                    for projection in branch.layer.projections() {
                        let rows = usize::try_from(projection.share_of(rows as u64)).unwrap_or(rows);
                        let x = &narrow[..rows * projection.input];
                        self.backend.linear(projection, x, rows, &mut wide[..rows * projection.out]);
                    }
                });
            }
        }
        let (hidden, vocab) = (self.model.hidden(), self.model.vocab());
        let logits = &mut self.logits[..vocab];
        output(&self.model, self.stream.as_ref(), &mut *self.backend, &h[..hidden], 1, logits);
    }

    /// Measures how fast the machine could be at most at reading all weights and the keys and values of `sessions`, up to 2 GiB in all, and
    /// at multiplying; `None` for a backend that is its own bound.
    pub fn ceiling(&mut self, sessions: &[Session]) -> Option<Ceiling> {
        let linears = self.model.projections().flat_map(|projection| &projection.parts);
        let weights = linears.flat_map(|linear| linear.weight.planes().to_vec());
        let memory: Vec<&[u8]> = weights.chain(sessions.iter().flat_map(Session::memory)).collect();
        self.backend.ceiling(&memory)
    }

    pub(crate) fn run_parts(
        &mut self,
        parts: &mut [BatchItem<'_>],
        mut each: impl FnMut(usize, usize, &[f32]),
    ) -> Result<(), Error> {
        self.prepare(parts)?;
        let mut cursor = Cursor::default();
        loop {
            let rows = cursor.next_pass(parts, BATCH, &mut self.segments);
            if rows == 0 {
                return Ok(());
            }
            self.pass(parts, rows);
            self.outputs(parts, &mut each);
        }
    }

    /// Checks all parts, and makes room for what they need.
    fn prepare(&mut self, parts: &[BatchItem<'_>]) -> Result<(), Error> {
        if parts.is_empty() {
            return Err(Error::NoTokens);
        }
        for part in parts {
            if !Arc::ptr_eq(part.session.model(), &self.model) {
                return Err(Error::OtherModel);
            }
            part.check(self.model.vocab())?;
        }
        self.reserve_for(parts.iter().map(|part| &*part.session))?;
        self.reserve_logits(parts.iter().map(BatchItem::wanted).sum())
    }

    /// Makes room for what a pass of `sessions` needs beside logits.
    fn reserve_for<'s>(&mut self, sessions: impl Iterator<Item = &'s Session> + Clone) -> Result<(), Error> {
        let heard = self.model.ear.as_ref().map_or(0, |ear| ear.context);
        self.backend.reserve(sessions.clone().map(Session::capacity).max().unwrap_or(0).max(heard))?;
        let ranks = sessions.filter_map(Session::adapter).map(|adapter| adapter.room()).max().unwrap_or(0);
        self.ranks.resize(ranks.max(self.ranks.len()), 0.0);
        Ok(())
    }

    /// The rows of `segments` through all layers; the residual stream is left in `x`.
    fn pass(&mut self, mut parts: &mut [BatchItem<'_>], rows: usize) {
        let Runner {
            model,
            backend,
            probe,
            stretch,
            stream,
            buffers,
            ranks,
            rotations,
            segments,
            adapted,
            watch,
            ..
        } = self;
        let Buffers { x, h, added, beside, wide, narrow, routes } = buffers;
        for segment in &*segments {
            let adapter = parts[segment.part].session.adapter.clone();
            adapted.extend(adapter.map(|adapter| (segment.rows(), adapter)));
        }
        let (hidden, mut probed) = (model.hidden(), Probed::new(&mut **backend, probe.as_mut()));
        let mut changed = Adapted::new(probed.backend(), adapted, rows, ranks);
        let backend = changed.backend();
        let [x, h, added] = [x, h, added].map(|buffer| &mut buffer[..rows * hidden]);

        let (table, scale) = &model.token_embedding;
        for segment in &*segments {
            let (part, count) = (&parts[segment.part], segment.tokens.len());
            let (tokens, position) = (&part.tokens[segment.tokens.clone()], part.session.position());
            let within = segment.row * hidden..segment.rows().end * hidden;
            let (x, h) = (&mut x[within.clone()], &mut h[within]);
            if let Some(known) = stretch.as_ref().and_then(|stretch| stretch.before(position, count)) {
                x.copy_from_slice(known);
            } else {
                backend.embed(table, tokens, *scale, x);
                if let Some(table) = &model.position_embedding {
                    for (h, position) in h.chunks_exact_mut(hidden).zip(position..) {
                        table.decode_row(position, h);
                    }
                    backend.add(x, h, 1.0);
                }
            }
            for (rotation, turns) in rotations.iter_mut().zip(&part.session.turns) {
                rotation.fill(turns, segment.row, position, count);
            }
        }
        let stream = stream.as_ref();
        stream.into_iter().for_each(Stream::embedded);
        let sessions = &mut parts;
        let sequences = Sequences { sessions, segments, branch: 0 };
        let mut pass =
            Pass { backend, sequences, rows, rotations, wide, narrow, routes, watch: watch.as_mut() };
        let branches = stretch.as_ref().map_or(0..model.branches().len(), |stretch| stretch.branches.clone());
        layers(model.branches(), branches, stream, &mut pass, [&mut *x, h, added], beside);
        if let Some(stretch) = stretch {
            for segment in &*segments {
                let position = parts[segment.part].session.position();
                stretch.keep(position, &x[segment.row * hidden..segment.rows().end * hidden]);
            }
        }
        // Only once every layer has its state: a pass that fails on the way changes nothing that counts.
        for segment in &*segments {
            parts[segment.part].session.position += segment.tokens.len();
        }
        adapted.clear();
    }

    /// Hands on the logits of the rows of the last pass that some are wanted of.
    fn outputs(&mut self, parts: &[BatchItem<'_>], each: &mut impl FnMut(usize, usize, &[f32])) {
        let Runner { model, backend, probe, stream, buffers, ranks, logits, segments, .. } = self;
        let (Some(norm), Some(matrix)) = (&model.output_norm, model.output()) else { return };
        let (hidden, vocab) = (model.hidden(), model.vocab());
        let mut probed = Probed::new(&mut **backend, probe.as_mut());
        let backend = probed.backend();
        let Buffers { x, h, .. } = buffers;
        let rows = segments.iter().flat_map(|segment| {
            let wanted = parts[segment.part].wanted_in(&segment.tokens);
            wanted.map(move |token| (segment.part, token, segment.row + token - segment.tokens.start))
        });
        let mut rows = rows.peekable();
        while rows.peek().is_some() {
            let mut group = [(0, 0); OUTPUTS];
            let mut count = 0;
            // The place first: a row that is taken is not put back.
            for (place, (part, token, row)) in group.iter_mut().zip(rows.by_ref()) {
                let (x, h) = (&x[row * hidden..][..hidden], &mut h[count * hidden..][..hidden]);
                backend.norm(norm, x, h);
                *place = (part, token);
                count += 1;
            }
            let logits = &mut logits[..count * vocab];
            output(model, stream.as_ref(), backend, &h[..count * hidden], count, logits);
            let rows = h.chunks_exact(hidden).zip(logits.chunks_exact_mut(vocab));
            for ((part, _), (h, logits)) in group.iter().zip(rows) {
                if let Some(adapter) = parts[*part].session.adapter() {
                    adapter.add(matrix, h, logits, ranks);
                }
            }
            let decoder = model.architecture().decoder();
            if let Some(divisor) = decoder.and_then(|decoder| decoder.logit_divisor) {
                for l in logits.iter_mut() {
                    *l /= divisor;
                }
            }
            if let Some(cap) = decoder.and_then(|decoder| decoder.logit_soft_cap) {
                for l in logits.iter_mut() {
                    *l = cap * (*l / cap).tanh();
                }
            }
            for ((part, token), logits) in group.into_iter().zip(logits.chunks_exact(vocab)) {
                each(part, token, logits);
            }
        }
    }
}

/// The products of `rows` rows of `x` with the output matrix.
fn output(
    model: &Model,
    stream: Option<&Stream>,
    backend: &mut dyn Backend,
    x: &[f32],
    rows: usize,
    logits: &mut [f32],
) {
    match stream {
        Some(stream) => stream.output(backend, x, rows, logits),
        None => {
            if let Some(matrix) = model.output() {
                backend.linear(matrix, x, rows, logits);
            }
        }
    }
}
