//! Runs whole sequences: vectors of their tokens, not logits.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::backend::Backend;
use crate::forward::{Buffers, layers};
use crate::layer::{Pass, Segment, Sequences, Sessions};
use crate::rotary::{Rotary, Rotation, Turns};
use crate::state::{PAGE, State};
use crate::{BATCH, Error, KvCache, KvKind, KvShape, Model};

/// Sequences of one pass at most. Each begins at a page of its own, so that what comes out of it does not depend on those beside it.
const SEQUENCES: usize = 64;

/// Runs whole sequences through a model, and gives the vector of each token: what the last layer leaves, after the last norm of a
/// decoder. Nothing is kept of a sequence: the keys and values of one layer at a time are in memory.
///
/// Sequences of any lengths run together, one after the other without padding between them.
pub struct Sequencer {
    model: Arc<Model>,
    backend: Box<dyn Backend>,
    buffers: Buffers,
    rotations: Vec<Rotation>,
    turns: Vec<Turns>,
    /// Room for the keys and values of one layer, for each shape that layers have.
    states: Vec<State>,
    /// Which of these each branch uses.
    uses: Vec<usize>,
    /// Tokens of a sequence at most.
    longest: usize,
}

impl fmt::Debug for Sequencer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sequencer").field("longest", &self.longest).finish_non_exhaustive()
    }
}

/// A sequence whose first tokens are of the first type and the others of the second, if the model has types.
#[derive(Clone, Copy, Debug)]
pub struct Typed<'a> {
    /// All of them.
    pub tokens: &'a [u32],
    /// The number of the first ones.
    pub first: usize,
}

/// The sequences of a pass, as layers see them: they share the room for one layer.
struct Shared<'a> {
    states: &'a mut [State],
    uses: &'a [usize],
    /// Of each sequence.
    first_pages: &'a [usize],
}

impl Sessions for Shared<'_> {
    fn state(&self, _part: usize, branch: usize) -> (usize, &State) {
        (0, &self.states[self.uses[branch]])
    }

    fn states_mut<'s>(&'s mut self, branch: usize, each: &mut dyn FnMut(Range<usize>, usize, &'s mut State)) {
        each(0..self.first_pages.len(), 0, &mut self.states[self.uses[branch]]);
    }

    fn first_page(&self, part: usize) -> usize {
        self.first_pages[part]
    }
}

impl Sequencer {
    /// Rows of a pass at most, for sequences of up to `longest` tokens: the backend needs room for them.
    pub fn rows(longest: usize) -> usize {
        longest.max(BATCH)
    }

    /// Runs sequences of up to `longest` tokens through `model` by `backend`, which was made for it and for passes of
    /// [`Sequencer::rows`].
    ///
    /// # Errors
    /// If the model has learned fewer positions, or transcribes sounds, or memory runs out.
    pub fn new(
        model: &Arc<Model>,
        mut backend: Box<dyn Backend>,
        longest: usize,
    ) -> Result<Sequencer, Error> {
        if model.hears().is_some() {
            return Err(Error::NothingHeard);
        }
        if let Some(learned) = model.learned_positions().filter(|learned| longest > *learned) {
            return Err(Error::Positions { wanted: longest, learned });
        }
        let rows = Sequencer::rows(longest);
        let too_large = || Error::CacheTooLarge { capacity: rows };
        let positions = rows.checked_next_multiple_of(PAGE).and_then(|n| n.checked_add(SEQUENCES * PAGE));
        let positions = positions.ok_or_else(too_large)?;
        let (mut states, mut shapes, mut uses) = (vec![State::None], vec![None], vec![]);
        for branch in model.branches() {
            if branch.layer.recurrent().is_some() {
                // One for all sequences, each of which begins anew.
                uses.push(states.len());
                shapes.push(None);
                states.push(branch.layer.state(KvKind::F32, positions)?);
                continue;
            }
            let Some(shape) = branch.layer.cached() else {
                uses.push(0);
                continue;
            };
            // All positions of a pass are there, whatever a layer looks at.
            let shape = Some(KvShape { window: None, ..shape });
            let known = shapes.iter().position(|known| *known == shape);
            uses.push(known.unwrap_or(shapes.len()));
            if let (None, Some(shape)) = (known, shape) {
                shapes.push(Some(shape));
                states.push(State::Kv(Box::new(KvCache::new(shape, KvKind::F32, positions)?)));
            }
        }
        backend.reserve(longest)?;
        let rotation = |rope: &Rotary| Rotation::new(rows, rope.pairs()).ok_or(Error::TooLarge);
        Ok(Sequencer {
            backend,
            buffers: Buffers::new(model, rows)?,
            rotations: model.ropes.iter().map(rotation).collect::<Result<_, Error>>()?,
            turns: model.ropes.iter().map(|rope| rope.turns(longest)).collect(),
            model: Arc::clone(model),
            states,
            uses,
            longest,
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

    /// Tokens of a sequence at most.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Runs `sequences`, and calls `each` with the number of a sequence and the vectors of its tokens, `[tokens, hidden]`: once for
    /// each, in order. Sequences that follow each other go in one pass as far as there is room. A vector does not depend on the sequences beside
    /// its own, bit for bit.
    ///
    /// # Errors
    /// If a sequence has no tokens or too many, or a token is outside the vocabulary. Nothing has run then.
    pub fn run(&mut self, sequences: &[&[u32]], each: &mut dyn FnMut(usize, &[f32])) -> Result<(), Error> {
        let whole: Vec<Typed<'_>> =
            sequences.iter().map(|tokens| Typed { tokens, first: tokens.len() }).collect();
        self.run_typed(&whole, each)
    }

    /// The scores of sequences by the head that the model has for them: `[sequences, labels]`.
    ///
    /// # Errors
    /// As [`Sequencer::run`], and if the model scores no texts.
    pub fn score(&mut self, sequences: &[Typed<'_>]) -> Result<Vec<f32>, Error> {
        let model = Arc::clone(&self.model);
        let Some(score) = &model.score else { return Err(Error::NoScores) };
        let mut pooled = vec![];
        self.run_typed(sequences, &mut |_, vectors| score.pool(vectors, &mut pooled))?;
        Ok(score.run(&mut *self.backend, &pooled, Sequencer::rows(self.longest)))
    }

    /// As [`Sequencer::run`], of tokens of several types.
    ///
    /// # Errors
    /// As [`Sequencer::run`].
    pub fn run_typed(
        &mut self,
        sequences: &[Typed<'_>],
        each: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), Error> {
        for sequence in sequences {
            self.check(sequence.tokens)?;
        }
        let mut first = 0;
        while first < sequences.len() {
            let rest = &sequences[first..];
            let mut rows = 0;
            let fits = |sequence: &&Typed<'_>| {
                rows += sequence.tokens.len();
                rows <= Sequencer::rows(self.longest)
            };
            let count = rest.iter().take(SEQUENCES).take_while(fits).count();
            self.pass(&rest[..count]);
            let (hidden, mut row) = (self.model.hidden(), 0);
            let vectors = match &self.model.output_norm {
                Some(_) => &self.buffers.h,
                None => &self.buffers.x,
            };
            for (n, Typed { tokens, .. }) in rest[..count].iter().enumerate() {
                each(first + n, &vectors[row * hidden..][..tokens.len() * hidden]);
                row += tokens.len();
            }
            first += count;
        }
        Ok(())
    }

    fn check(&self, tokens: &[u32]) -> Result<(), Error> {
        let vocab = self.model.vocab();
        if tokens.is_empty() {
            return Err(Error::NoTokens);
        }
        if tokens.len() > self.longest {
            return Err(Error::ContextFull { wanted: tokens.len(), capacity: self.longest });
        }
        match tokens.iter().find(|token| **token as usize >= vocab) {
            Some(token) => Err(Error::Token { token: *token, vocab }),
            None => Ok(()),
        }
    }

    /// One pass of all `sequences`. The vectors are left in `x`, or after the last norm in `h`.
    fn pass(&mut self, sequences: &[Typed<'_>]) {
        let Sequencer { model, backend, buffers, rotations, turns, states, uses, .. } = self;
        let Buffers { x, h, added, beside, wide, narrow, routes } = buffers;
        let (backend, hidden) = (&mut **backend, model.hidden());
        let (mut segments, mut first_pages) = (vec![], vec![]);
        let (mut row, mut page) = (0, 0);
        for (part, Typed { tokens, .. }) in sequences.iter().enumerate() {
            segments.push(Segment { part, tokens: 0..tokens.len(), row });
            first_pages.push(page);
            row += tokens.len();
            page += tokens.len().div_ceil(PAGE);
        }
        let rows = row;
        let [x, h, added] = [x, h, added].map(|buffer| &mut buffer[..rows * hidden]);
        for (Typed { tokens, .. }, segment) in sequences.iter().zip(&segments) {
            let within = segment.row * hidden..segment.rows().end * hidden;
            let (table, scale) = &model.token_embedding;
            backend.embed(table, tokens, *scale, &mut x[within.clone()]);
            if let Some(table) = &model.position_embedding {
                let rows = h[within].chunks_exact_mut(hidden).zip(model.position_rows(tokens));
                rows.for_each(|(h, row)| table.decode_row(row, h));
            }
            for (rotation, turns) in rotations.iter_mut().zip(&*turns) {
                rotation.fill(turns, segment.row, 0, tokens.len());
            }
        }
        if model.position_embedding.is_some() {
            backend.add(x, h, 1.0);
        }
        if let Some(table) = &model.token_type_embedding {
            let (first, rest) = h.split_at_mut(hidden);
            table.decode_row(0, first);
            // A table of one type has it for all.
            let second = if rest.is_empty() || table.rows() < 2 {
                &*first
            } else {
                table.decode_row(1, &mut rest[..hidden]);
                &rest[..hidden]
            };
            let types = sequences.iter().flat_map(|s| (0..s.tokens.len()).map(|n| n >= s.first));
            for (x, is_second) in x.chunks_exact_mut(hidden).zip(types) {
                backend.add(x, if is_second { second } else { first }, 1.0);
            }
        }
        if let Some(norm) = &model.embedding_norm {
            backend.norm(norm, x, h);
            x.copy_from_slice(h);
        }
        let mut shared = Shared { states, uses, first_pages: &first_pages };
        let sequences = Sequences { sessions: &mut shared, segments: &segments, branch: 0 };
        let mut pass = Pass { backend, sequences, rows, rotations, wide, narrow, routes, watch: None };
        layers(
            model.branches(),
            0..model.branches().len(),
            None,
            &mut pass,
            [&mut *x, &mut *h, added],
            beside,
        );
        if let Some(norm) = &model.output_norm {
            pass.backend.norm(norm, x, h);
        }
    }
}
