//! The steps of one parameter as one change of whole rows.

use std::sync::Arc;

use quant::{BadData, Codec, Difference, Encoder, Feedback, Matrix, Merger};
use tensor::{Dtype, Function, Lines, Scheme, Shape, SharedStage, StageInput, Step, band_unit, lcm};

use crate::codecs::{is_by_row, is_repack, merger};
use crate::sizes::size;
use crate::{Error, Guide};

/// The changes to rows between the plan's movement and the slot: one stage after the other, none if movement fills the
/// slot. Between two stages, only the rows of one band are held.
#[derive(Default)]
pub(crate) struct Change(Vec<Stage>);

/// A single change.
enum Stage {
    /// Rows interleaved or set apart again.
    Repack { from: Arc<Scheme>, to: Arc<Scheme> },
    /// The same codes, with scales of another dtype.
    Recast { from: Arc<Scheme>, to: Arc<Scheme>, exact: bool },
    /// Rows with a scale each get one in common.
    Merge { rows: &'static dyn Codec, to: Arc<Scheme>, merger: &'static dyn Merger },
    /// The way back.
    Spread { to: Arc<Scheme>, merger: &'static dyn Merger },
    /// Decoded to f32, changed number by number, encoded again.
    Convert(Convert),
    /// By a stage from outside.
    By { stage: SharedStage, to: Arc<Scheme> },
}

/// A change of values.
struct Convert {
    from: Arc<Scheme>,
    codec: &'static dyn Codec,
    /// It has one axis: a band of one row is not that.
    vector: bool,
    /// Done to each number, in order, before it is encoded.
    values: Vec<Value>,
    to: Arc<Scheme>,
    /// `None` if the result is f32.
    encode: Option<(&'static dyn Codec, &'static dyn Encoder)>,
}

/// A change of one number.
#[derive(Clone, Copy)]
enum Value {
    /// This is added.
    Plus(f32),
    /// This is made of it.
    Of(Function),
}

impl Value {
    /// Changes all of `values`. A number of which there is no such function is an error, not a NaN.
    fn change(self, values: &mut [f32]) -> Result<(), Failed> {
        match self {
            Value::Plus(n) => values.iter_mut().for_each(|x| *x += n),
            Value::Of(function) => {
                let mut undefined = 0;
                for x in values {
                    let y = function.of(*x);
                    undefined += u64::from(y.is_nan() && !x.is_nan());
                    *x = y;
                }
                if undefined > 0 {
                    return Err(Failed::Undefined(function, undefined));
                }
            }
        }
        Ok(())
    }
}

/// Where a band lies in its matrix.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BandPlace {
    /// Its first row, or its first column.
    pub(crate) first: usize,
    /// Rows of the whole matrix, and values of a row of it.
    pub(crate) whole: [usize; 2],
}

/// Why a change could not be made.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The data cannot be meant.
    Data(BadData),
    /// Values that are no numbers, in something that is to be encoded.
    NotFinite(u64),
    /// A function, and how many values have none.
    Undefined(Function, u64),
    /// A stage from outside, and why it cannot change this.
    Stage(String, String),
}

impl Failed {
    /// The error of a load: `param` could not be made in the scheme `to`.
    pub(crate) fn of(self, param: &str, to: &Scheme) -> Error {
        let param = param.to_owned();
        match self {
            Failed::Data(data) => Error::Data { param, data },
            Failed::NotFinite(count) => Error::NotFinite { param, to: to.name.to_string(), count },
            Failed::Undefined(function, count) => {
                Error::Undefined { param, function: function.to_string(), count }
            }
            Failed::Stage(stage, why) => Error::Stage { param, stage, why },
        }
    }
}

impl Change {
    /// The change that `steps` make to a tensor of `axes` axes that is `moved`, or the pair of names that no codec joins.
    pub(crate) fn of(moved: &Arc<Scheme>, axes: usize, steps: &[Step]) -> Result<Change, (String, String)> {
        let mut stages: Vec<Stage> = vec![];
        for step in steps {
            let now = Arc::clone(stages.last().map_or(moved, Stage::to));
            match (stages.last_mut(), step) {
                (_, Step::By(stage)) => {
                    stages.push(Stage::By { stage: stage.clone(), to: stage.gives() });
                }
                (_, Step::To(to)) if is_repack(&now, to) => {
                    stages.push(Stage::Repack { from: now, to: Arc::clone(to) });
                }
                (_, Step::To(to)) if let Some(exact) = quant::recasts(&now, to) => {
                    stages.push(Stage::Recast { from: now, to: Arc::clone(to), exact });
                }
                (_, Step::To(to)) if is_by_row(&now, to) || is_by_row(to, &now) => {
                    let stage = Stage::scaled(&now, to);
                    stages.push(stage.ok_or_else(|| (now.name.to_string(), text(step)))?);
                }
                (Some(Stage::Convert(convert)), step) if convert.encode.is_none() => convert.then(step)?,
                (_, step) => {
                    let mut convert = Convert::of(now, axes < 2).map_err(|from| (from, text(step)))?;
                    convert.then(step)?;
                    stages.push(Stage::Convert(convert));
                }
            }
        }
        Ok(Change(stages))
    }

    /// Whether movement fills the slot.
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The schemes of rows between two stages, in order.
    fn between(&self) -> impl Iterator<Item = &Scheme> {
        let all = self.0.split_last().map_or(&[][..], |(_, before)| before);
        all.iter().map(|stage| &**stage.to())
    }

    /// How many of the last of `axes` axes are changed together, where `moved` becomes `target`. The matrices of a stack
    /// are quantised one by one: each may have an importance of its own.
    pub(crate) fn trailing(&self, moved: &Scheme, target: &Scheme, axes: usize) -> usize {
        let least = if axes > 2 && self.quantises() { 2 } else { 0 };
        self.between().map(|s| s.trailing).fold(least.max(moved.trailing).max(target.trailing), usize::max)
    }

    /// Whether values become blocks.
    fn quantises(&self) -> bool {
        let quantises = |c: &Convert| c.encode.is_some() && c.to.dtype().is_none();
        self.0.iter().any(|stage| matches!(stage, Stage::Convert(c) if quantises(c)))
    }

    /// The bands that it changes: of rows, or of columns.
    pub(crate) fn lines(&self) -> Lines {
        let columns =
            |stage: &Stage| matches!(stage, Stage::By { stage, .. } if stage.lines() == Lines::Columns);
        if !self.0.is_empty() && self.0.iter().all(columns) { Lines::Columns } else { Lines::Rows }
    }

    /// The unit of rows or columns that can be changed from `moved` to `target` together, in a matrix of `count` of them.
    pub(crate) fn band(&self, moved: &Scheme, target: &Scheme, count: u64) -> u64 {
        let lines = self.lines();
        let unit = band_unit(lines, moved, self.between().chain([target]), count);
        let own = self.0.iter().map(|stage| match stage {
            Stage::By { stage, .. } if stage.lines() == lines => stage.unit(),
            Stage::By { .. } => count,
            _ => 1,
        });
        own.map(|own| own.clamp(1, count.max(1))).fold(unit, |unit, own| lcm(unit, own).min(count))
    }

    /// The number of f32 values that changing `rows` rows of `k` takes beside what it reads and writes, with a feedback if it is `fed`.
    pub(crate) fn values(&self, rows: u64, k: u64, fed: bool) -> u64 {
        let compared = |stage: &Stage| match stage {
            Stage::Convert(convert) => convert.encode.is_some(),
            Stage::Recast { exact, .. } => !exact,
            _ => false,
        };
        let own_of_feedback = |stage: &Stage| match stage {
            Stage::Convert(Convert { encode: Some((codec, _)), .. }) if fed => {
                Feedback::scratch(size(k), *codec, rows)
            }
            _ => 0,
        };
        let fed = self.0.iter().map(own_of_feedback).max().unwrap_or(0);
        let coded = self.0.iter().any(compared);
        let own = if coded { rows.saturating_mul(k).saturating_mul(2) } else { 0 };
        let shape = Shape::from([rows, k]);
        let between = self.between().flat_map(|s| s.planes.iter().map(|p| s.plane_bytes(p, &shape)));
        between.fold(own.saturating_add(fed), |sum, bytes| {
            sum.saturating_add(bytes.unwrap_or(u64::MAX).div_ceil(4))
        })
    }

    /// Changes a band of a matrix, whose planes are `src` and become `dst`; their sizes match. Says what encoding it loses.
    pub(crate) fn apply(
        &self,
        src: Matrix<'_>,
        place: BandPlace,
        guide: Guide<'_>,
        dst: &mut [&mut [u8]],
        scratch: &mut Vec<f32>,
    ) -> Result<Option<Difference>, Failed> {
        let Matrix { rows, k, .. } = src;
        // The feedback allocates its own.
        scratch.resize(size(self.values(rows as u64, k as u64, false)).max(scratch.len()), 0.0);
        let mut room = &mut scratch[..];
        let mut before: Vec<&[u8]> = src.planes.to_vec();
        let mut lost: Option<Difference> = None;
        let (last, first) = self.0.split_last().unwrap_or_else(|| unreachable!("movement fills these slots"));
        for stage in first {
            let to = stage.to();
            let shape = Shape::from([rows as u64, k as u64]);
            let mut planes: Vec<&mut [u8]> = vec![];
            for plane in to.planes.iter() {
                let bytes = size(to.plane_bytes(plane, &shape).unwrap_or(u64::MAX));
                let (part, rest) = std::mem::take(&mut room).split_at_mut(bytes.div_ceil(4));
                room = rest;
                planes.push(&mut bytemuck::cast_slice_mut(part)[..bytes]);
            }
            let now = stage.apply(Matrix { planes: &before, rows, k }, place, guide, &mut planes, room)?;
            lost = lost.into_iter().chain(now).reduce(Difference::and);
            before = planes.into_iter().map(|plane| &*plane).collect();
        }
        let now = last.apply(Matrix { planes: &before, rows, k }, place, guide, dst, room)?;
        Ok(lost.into_iter().chain(now).reduce(Difference::and))
    }
}

impl Stage {
    /// Between a scale for each row and one for all.
    fn scaled(from: &Arc<Scheme>, to: &Arc<Scheme>) -> Option<Stage> {
        let to = Arc::clone(to);
        Some(match merger(&to) {
            Some(merger) => Stage::Merge { rows: quant::codec(&from.name)?, to, merger },
            None => Stage::Spread { to, merger: merger(from)? },
        })
    }

    /// The scheme that it gives.
    fn to(&self) -> &Arc<Scheme> {
        match self {
            Stage::Repack { to, .. }
            | Stage::Recast { to, .. }
            | Stage::Merge { to, .. }
            | Stage::Spread { to, .. }
            | Stage::By { to, .. } => to,
            Stage::Convert(convert) => &convert.to,
        }
    }

    fn apply(
        &self,
        src: Matrix<'_>,
        place: BandPlace,
        guide: Guide<'_>,
        dst: &mut [&mut [u8]],
        room: &mut [f32],
    ) -> Result<Option<Difference>, Failed> {
        match self {
            Stage::Repack { from, to } => {
                if src.k > 0 {
                    quant::repack(from, to, src.k, src.planes, dst);
                }
                Ok(None)
            }
            Stage::Recast { from, to, exact } => {
                let codec = |scheme: &Scheme| quant::codec(&scheme.name);
                if let Some(codec) = codec(from) {
                    codec.check(src).map_err(Failed::Data)?;
                }
                quant::recast(from, to, src, dst);
                let (Some(before), Some(after)) = (codec(from), codec(to)) else { return Ok(None) };
                if *exact {
                    return Ok(None);
                }
                let planes: Vec<&[u8]> = dst.iter().map(|plane| &**plane).collect();
                let (values, back) = room[..2 * src.rows * src.k].split_at_mut(src.rows * src.k);
                before.decode(src, 0..src.rows, values);
                after.decode(Matrix { planes: &planes, ..src }, 0..src.rows, back);
                Ok(Some(Difference::of(values, back)))
            }
            Stage::Merge { rows, merger, .. } => {
                rows.check(src).map_err(Failed::Data)?;
                Ok(Some(merger.merge(src, dst)))
            }
            Stage::Spread { merger, .. } => {
                merger.spread(src, dst);
                Ok(None)
            }
            Stage::Convert(convert) => convert.apply(src, guide, dst, room),
            Stage::By { stage, .. } => {
                let Matrix { planes, rows, k } = src;
                let BandPlace { first, whole } = place;
                let changed = stage.apply(StageInput { planes, first, rows, k, whole }, dst);
                changed.map(|()| None).map_err(|why| Failed::Stage(stage.name().to_owned(), why))
            }
        }
    }
}

impl Convert {
    /// Decodes `from`, or says its name if nothing does.
    fn of(from: Arc<Scheme>, vector: bool) -> Result<Convert, String> {
        let codec = quant::codec(&from.name).ok_or_else(|| from.name.to_string())?;
        Ok(Convert { from, codec, vector, values: vec![], to: Scheme::plain(Dtype::F32), encode: None })
    }

    /// This and then `step`, in f32 so far.
    fn then(&mut self, step: &Step) -> Result<(), (String, String)> {
        match step {
            Step::Add(n) => self.values.push(Value::Plus(*n as f32)),
            Step::Apply(function) => self.values.push(Value::Of(*function)),
            Step::By(_) => unreachable!("a stage is a change of its own"),
            Step::To(to) if to.dtype() == Some(Dtype::F32) => {}
            Step::To(to) => {
                let codec = quant::codec(&to.name);
                let Some(encode) = codec.and_then(|c| Some((c, c.encoder()?))) else {
                    return Err((self.from.name.to_string(), to.name.to_string()));
                };
                (self.encode, self.to) = (Some(encode), Arc::clone(to));
            }
        }
        Ok(())
    }

    fn apply(
        &self,
        src: Matrix<'_>,
        guide: Guide<'_>,
        dst: &mut [&mut [u8]],
        room: &mut [f32],
    ) -> Result<Option<Difference>, Failed> {
        self.codec.check(src).map_err(Failed::Data)?;
        let decode = |out: &mut [f32]| {
            self.codec.decode(src, 0..src.rows, out);
            self.values.iter().try_for_each(|value| value.change(out))
        };
        let Some((codec, encoder)) = self.encode else {
            decode(bytemuck::cast_slice_mut(dst[0]))?;
            return Ok(None);
        };
        let n = src.rows * src.k;
        let (values, back) = room[..2 * n].split_at_mut(n);
        decode(values)?;
        let bad = values.iter().filter(|x| !x.is_finite()).count();
        if bad > 0 && self.to.dtype().is_none() {
            return Err(Failed::NotFinite(bad as u64));
        }
        if n > 0 {
            let fed = |feedback: &Feedback| feedback.encode(codec, values, back, dst);
            if self.vector {
                encoder.encode_vector(values, guide.importance, dst);
            } else if !guide.feedback.is_some_and(fed) {
                encoder.encode(values, src.k, guide.importance, dst);
            }
            let planes: Vec<&[u8]> = dst.iter().map(|p| &**p).collect();
            codec.decode(Matrix { planes: &planes, ..src }, 0..src.rows, back);
        }
        Ok(Some(Difference::of(values, back)))
    }
}

fn text(step: &Step) -> String {
    match step {
        Step::To(to) => to.name.to_string(),
        Step::Add(_) | Step::Apply(_) | Step::By(_) => format!("f32 {step}"),
    }
}
