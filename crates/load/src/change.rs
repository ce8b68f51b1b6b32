//! The steps of one parameter as one change of whole rows.

use std::fmt;
use std::sync::Arc;

use quant::{BadData, Codec, Difference, Encoder, Matrix};
use tensor::{Dtype, Rows, Scheme, Step};

use crate::codecs::is_repack;

/// What happens to rows between the plan's movement and the slot.
pub(crate) enum Change {
    /// Nothing: movement fills the slot.
    None,
    /// Rows interleaved or set apart again.
    Repack { from: Arc<Scheme>, to: Arc<Scheme> },
    /// Decoded to f32, plus a number, encoded again.
    Convert(Convert),
}

/// A change of values.
pub(crate) struct Convert {
    from: Arc<Scheme>,
    codec: &'static dyn Codec,
    add: f32,
    to: Arc<Scheme>,
    /// `None` if the result is f32.
    encode: Option<(&'static dyn Codec, &'static dyn Encoder)>,
}

/// Why a change could not be made.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The data cannot be meant.
    Data(BadData),
    /// Values that are no numbers, in something that is to be encoded.
    NotFinite(u64),
}

impl Change {
    /// The change that `steps` make to `moved`, or the pair of names that no codec joins.
    pub(crate) fn of(moved: &Arc<Scheme>, steps: &[Step]) -> Result<Change, (String, String)> {
        let refuse = |from: &Scheme, to: &str| Err((from.name.to_string(), to.to_owned()));
        let mut change = Change::None;
        for step in steps {
            change = match (change, step) {
                (Change::None, Step::To(to)) if is_repack(moved, to) => {
                    Change::Repack { from: Arc::clone(moved), to: Arc::clone(to) }
                }
                (Change::None, step) => match quant::codec(&moved.name) {
                    Some(codec) => {
                        let (from, to) = (Arc::clone(moved), Scheme::plain(Dtype::F32));
                        let convert = Convert { from, codec, add: 0.0, to, encode: None };
                        Change::Convert(convert.then(step)?)
                    }
                    None => return refuse(moved, &text(step)),
                },
                (Change::Convert(convert), step) => Change::Convert(convert.then(step)?),
                (Change::Repack { to, .. }, step) => return refuse(&to, &text(step)),
            };
        }
        Ok(change)
    }

    /// Rows that can be changed from `moved` to `target` together, of a matrix of so many: any multiple of this.
    pub(crate) fn band(moved: &Scheme, target: &Scheme, rows: u64) -> u64 {
        let per = |scheme: &Scheme, whole: Option<u64>| {
            let rows = scheme.planes.iter().map(|p| match scheme.rows_in(p) {
                Rows::Bands(per) => Some(per),
                Rows::Whole => whole,
                Rows::Scattered => None,
            });
            rows.collect::<Option<Vec<_>>>()
        };
        // Several bands may read one plane, but only one may write it.
        let (Some(reads), Some(writes)) = (per(moved, Some(1)), per(target, None)) else { return rows };
        reads.into_iter().chain(writes).fold(1, lcm).min(rows)
    }

    /// Values of f32 that changing so many takes beside what it reads and writes.
    pub(crate) fn values(&self, elements: u64) -> u64 {
        match self {
            Change::Convert(Convert { encode: Some(_), .. }) => elements.saturating_mul(2),
            _ => 0,
        }
    }

    /// Changes rows, whose planes are `src` and become `dst`; their sizes match. Says what an encoding loses.
    pub(crate) fn apply(
        &self,
        src: Matrix<'_>,
        importance: Option<&[f32]>,
        dst: &mut [&mut [u8]],
        scratch: &mut Vec<f32>,
    ) -> Result<Option<Difference>, Failed> {
        match self {
            Change::None => unreachable!("movement fills these slots"),
            Change::Repack { from, to } => {
                quant::repack(from, to, src.k, src.planes, dst);
                Ok(None)
            }
            Change::Convert(convert) => convert.apply(src, importance, dst, scratch),
        }
    }
}

impl Convert {
    /// This and then `step`.
    fn then(mut self, step: &Step) -> Result<Convert, (String, String)> {
        match (step, self.encode) {
            (Step::Add(n), None) => self.add += *n as f32,
            (Step::To(to), None) if to.dtype() == Some(Dtype::F32) => {}
            (Step::To(to), None) => {
                let codec = quant::codec(&to.name);
                let Some(encode) = codec.and_then(|c| Some((c, c.encoder()?))) else {
                    return Err((self.from.name.to_string(), to.name.to_string()));
                };
                (self.encode, self.to) = (Some(encode), Arc::clone(to));
            }
            (step, Some(_)) => return Err((self.to.name.to_string(), text(step))),
        }
        Ok(self)
    }

    fn apply(
        &self,
        src: Matrix<'_>,
        importance: Option<&[f32]>,
        dst: &mut [&mut [u8]],
        scratch: &mut Vec<f32>,
    ) -> Result<Option<Difference>, Failed> {
        self.codec.check(src).map_err(Failed::Data)?;
        let decode = |out: &mut [f32]| {
            self.codec.decode(src, 0..src.rows, out);
            if self.add != 0.0 {
                for x in out {
                    *x += self.add;
                }
            }
        };
        let Some((codec, encoder)) = self.encode else {
            decode(bytemuck::cast_slice_mut(dst[0]));
            return Ok(None);
        };
        let n = src.rows * src.k;
        scratch.clear();
        scratch.resize(2 * n, 0.0);
        let (values, back) = scratch.split_at_mut(n);
        decode(values);
        let bad = values.iter().filter(|x| !x.is_finite()).count();
        if bad > 0 && self.to.dtype().is_none() {
            return Err(Failed::NotFinite(bad as u64));
        }
        if n > 0 {
            encoder.encode(values, src.k, importance, dst);
            let planes: Vec<&[u8]> = dst.iter().map(|p| &**p).collect();
            codec.decode(Matrix { planes: &planes, ..src }, 0..src.rows, back);
        }
        Ok(Some(Difference::of(values, back)))
    }
}

impl fmt::Debug for Convert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} + {} to {}", self.from, self.add, self.to)
    }
}

fn text(step: &Step) -> String {
    match step {
        Step::To(to) => to.name.to_string(),
        Step::Add(_) => format!("f32 {step}"),
    }
}

fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x.max(1) * b
}
