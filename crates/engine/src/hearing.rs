//! Runs the audio encoder of a model that transcribes: from a log-mel spectrogram to what the layers of its decoder look at.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use ::model::Activation;

use crate::backend::Backend;
use crate::ear::{Ear, KERNEL, STRIDE};
use crate::forward::{Buffers, layers};
use crate::layer::{Pass, Segment, Sequences, Sessions};
use crate::state::State;
use crate::weights::Projection;
use crate::{Error, KvCache, KvKind, Model};

/// The keys and values of a sound, for the layers of a decoder. Any number of sessions share them.
#[derive(Clone)]
pub struct Heard {
    pub(crate) model: Arc<Model>,
    /// Of each layer that looks at it.
    pub(crate) caches: Vec<Arc<KvCache>>,
}

impl fmt::Debug for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heard").field("layers", &self.caches.len()).finish_non_exhaustive()
    }
}

/// The buffers of an [`Ear`].
pub(crate) struct Hearing {
    /// The result of the first convolution: `[2 · context, hidden]`.
    first: Vec<f32>,
    buffers: Buffers,
    /// Keys and values of one layer at a time.
    state: State,
}

/// One sequence, whose layers share the room for one.
struct Alone<'a>(&'a mut State);

impl Sessions for Alone<'_> {
    fn state(&self, _: usize, _: usize) -> (usize, &State) {
        (0, self.0)
    }

    fn states_mut<'s>(&'s mut self, _: usize, each: &mut dyn FnMut(Range<usize>, usize, &'s mut State)) {
        each(0..1, 0, self.0);
    }
}

impl Hearing {
    /// Room for `ear`, which gives vectors of `hidden` elements.
    ///
    /// # Errors
    /// If memory runs out.
    pub(crate) fn new(ear: &Ear, hidden: usize) -> Result<Hearing, Error> {
        let first = ear.context.checked_mul(STRIDE).and_then(|frames| frames.checked_mul(hidden));
        let shape = ear.branches().iter().find_map(|branch| branch.layer.cached());
        Ok(Hearing {
            first: vec![0.0; first.ok_or(Error::TooLarge)?],
            buffers: Buffers::of(hidden, ear.room(), false, ear.context)?,
            state: match shape {
                Some(shape) => State::Kv(Box::new(KvCache::new(shape, KvKind::F32, ear.context)?)),
                None => State::None,
            },
        })
    }

    /// The vectors of `mel`, `[2 · context, mels]`: `[context, hidden]`.
    ///
    /// # Errors
    /// If it has another number of frames.
    pub(crate) fn run(&mut self, ear: &Ear, backend: &mut dyn Backend, mel: &[f32]) -> Result<&[f32], Error> {
        let (wanted, found) = (STRIDE * ear.context, mel.len() / ear.mels);
        if mel.len() != wanted * ear.mels {
            return Err(Error::Frames { wanted, found });
        }
        let Hearing { first, buffers, state } = self;
        let Buffers { x, h, added, beside, wide, narrow, routes } = buffers;
        let (rows, hidden) = (ear.context, ear.conv1.out);
        for half in 0..STRIDE {
            convolve(backend, &ear.conv1, mel, (half * rows, 1), rows, narrow, wide);
            first[half * rows * hidden..][..rows * hidden].copy_from_slice(&narrow[..rows * hidden]);
        }
        convolve(backend, &ear.conv2, first, (0, STRIDE), rows, narrow, wide);
        let [x, h, added] = [x, h, added].map(|buffer| &mut buffer[..rows * hidden]);
        x.copy_from_slice(&narrow[..rows * hidden]);
        for (row, h) in h.chunks_exact_mut(hidden).enumerate() {
            ear.positions.decode_row(row, h);
        }
        backend.add(x, h, 1.0);

        let segments = [Segment { part: 0, tokens: 0..rows, row: 0 }];
        let mut alone = Alone(state);
        let sequences = Sequences { sessions: &mut alone, segments: &segments, branch: 0 };
        let mut pass = Pass { backend, sequences, rows, rotations: &[], wide, narrow, routes, watch: None };
        layers(ear.branches(), 0..ear.branches().len(), None, &mut pass, [&mut *x, &mut *h, added], beside);
        pass.backend.norm(&ear.norm, x, h);
        Ok(h)
    }
}

/// `narrow[row] = gelu(W [x[at - 1], x[at], x[at + 1]] + b)`, where `at` is `first + row · stride`: `[rows, out]`. What is beyond `x` is 0.
fn convolve(
    backend: &mut dyn Backend,
    convolution: &Arc<Projection>,
    x: &[f32],
    (first, stride): (usize, usize),
    rows: usize,
    narrow: &mut [f32],
    wide: &mut [f32],
) {
    let (input, out) = (convolution.input, convolution.out);
    let width = input / KERNEL;
    for (row, side_by_side) in narrow[..rows * input].chunks_exact_mut(input).enumerate() {
        for tap in 0..KERNEL {
            let frame = (first + row * stride + tap).checked_sub(KERNEL / 2);
            let frame = frame.and_then(|frame| x.get(frame * width..(frame + 1) * width));
            // The weight has the taps of one channel beside each other.
            let places = side_by_side[tap..].iter_mut().step_by(KERNEL);
            match frame {
                Some(frame) => places.zip(frame).for_each(|(place, x)| *place = *x),
                None => places.for_each(|place| *place = 0.0),
            }
        }
    }
    let wide = &mut wide[..rows * out];
    backend.linear(convolution, &narrow[..rows * input], rows, wide);
    backend.activate(Activation::Gelu, false, wide, rows, &mut narrow[..rows * out]);
}
