//! Row-interleaved forms, `q4_1.r16` and the like, made for the processor.
//!
//! A matrix `[out, in]` is cut into groups of `r` rows, and each group along `in` into *units* of 64 elements (128 or
//! 256 if that many share a scale or a block). The bytes of one row in that stretch, in all planes, are taken as 32-bit
//! words. The unit holds them word by word, each word `r` times, once for each row: a *vector* of `4 * r` bytes that
//! loads into one register, lane `i` for row `i`. So a product with `r` rows needs no sum across lanes, and one
//! activation is met by `r` weights at once.
//!
//! A few fields are changed: scales of 16 bits are grouped, `r` of one kind and then `r` of another; scales that are
//! bare exponents (MXFP4) are widened to 16 bits; signed codes (Q8_0) are made unsigned by flipping their top bit; and
//! codes of four bits in the order of their bits (MLX) are rearranged within their word. No bit of a row is lost, so
//! the stored form can be restored exactly.
//!
//! Numbers for whole rows stay in a plane of their own.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use tensor::{Hold, IN, OUT, PlaneAxis, PlaneSpec, Scheme};

use crate::codec::{Codec, Matrix};
use crate::packing::{PLANES, Packing, RECORD_MAX, ROWS_MAX};
use crate::registry;
use crate::repack::unpack_unit;

/// A scheme that has row-interleaved forms.
pub(crate) struct Packed {
    pub(crate) packing: &'static Packing,
    forms: [Form; 2],
}

/// A row-interleaved form: its codec, for which a cell is a unit.
pub(crate) struct Form {
    name: String,
    /// Rows in a group.
    pub(crate) r: usize,
    /// The scheme as stored.
    pub(crate) stored: &'static dyn Codec,
    /// The layout.
    pub(crate) packing: &'static Packing,
    scheme: Arc<Scheme>,
}

impl Form {
    fn of(stored: &'static dyn Codec, packing: &'static Packing, r: usize) -> Form {
        let name = format!("{}.r{r}", stored.name());
        let axes = vec![
            PlaneAxis::Cells { axis: OUT, per: r as u64, hold: Hold::Packed },
            PlaneAxis::Cells { axis: IN, per: packing.unit as u64, hold: Hold::Packed },
        ];
        let bytes = (packing.vectors() * 4 * r) as u64;
        let mut planes = vec![PlaneSpec { axes: Cow::Owned(axes), ..PlaneSpec::new("units", bytes, &[]) }];
        planes.extend(packing.factor.map(|_| stored.scheme().planes[packing.planes()].clone()));
        let scheme = Scheme { name: Cow::Owned(name.clone()), trailing: 2, planes: Cow::Owned(planes) };
        Form { name, r, stored, packing, scheme: Arc::new(scheme) }
    }
}

/// Raised whenever rows are interleaved otherwise.
const REVISION: u32 = 1;

impl Codec for Form {
    fn name(&self) -> &str {
        &self.name
    }

    fn scheme(&self) -> Arc<Scheme> {
        Arc::clone(&self.scheme)
    }

    fn revision(&self) -> u32 {
        REVISION
    }

    fn decode(&self, matrix: Matrix<'_>, rows: Range<usize>, out: &mut [f32]) {
        let Form { r, packing, .. } = *self;
        let (k, units, unit) = (matrix.k, matrix.planes[0], packing.unit);
        assert!(k.is_multiple_of(unit), "{k} columns are not units of {unit}");
        assert_eq!(out.len(), rows.len() * k, "values of rows {rows:?}");
        let unit_bytes = packing.vectors() * 4 * r;
        let group_bytes = k / unit * unit_bytes;
        let mut records = [0; ROWS_MAX * RECORD_MAX];
        for group in rows.start / r..rows.end.div_ceil(r) {
            let units = &units[group * group_bytes..][..group_bytes];
            let ours = (group * r).max(rows.start)..((group + 1) * r).min(rows.end);
            for (u, bytes) in units.chunks_exact(unit_bytes).enumerate() {
                let mut parts = split(packing, r, &mut records);
                unpack_unit(packing, r, bytes, &mut parts);
                let mut planes = parts.map(|p| &*p);
                let mut count = packing.planes();
                if packing.factor.is_some() {
                    planes[count] = &matrix.planes[1][group * r * 4..][..r * 4];
                    count += 1;
                }
                let stored = Matrix { planes: &planes[..count], rows: r, k: unit };
                for row in ours.clone() {
                    let out = &mut out[(row - rows.start) * k + u * unit..][..unit];
                    self.stored.decode(stored, row % r..row % r + 1, out);
                }
            }
        }
    }
}

/// Room for the records of `r` rows, plane by plane.
pub(crate) fn split<'a>(packing: &Packing, r: usize, mut room: &'a mut [u8]) -> [&'a mut [u8]; PLANES] {
    packing.stored.map(|bytes| {
        let (part, rest) = std::mem::take(&mut room).split_at_mut(r * bytes);
        room = rest;
        part
    })
}

/// Schemes whose forms were asked for. They live as long as the process, like the members of families.
static PACKED: LazyLock<Mutex<HashMap<String, &'static Packed>>> = LazyLock::new(Mutex::default);

/// Returns the kernels' description of the scheme called `stored`, if they can multiply it.
pub(crate) fn packed(stored: &str) -> Option<&'static Packed> {
    let known = || PACKED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(packed) = known().get(stored) {
        return Some(packed);
    }
    let codec = registry::stored(stored)?;
    let packing: &'static Packing = Box::leak(Box::new(codec.packing()?));
    let forms = [8, 16].map(|r| Form::of(codec, packing, r));
    let packed = Box::leak(Box::new(Packed { packing, forms }));
    Some(known().entry(stored.to_owned()).or_insert(packed))
}

/// The form called `name`, if it is an interleaved one.
pub(crate) fn form(name: &str) -> Option<&'static Form> {
    let (stored, r) = name.rsplit_once(".r")?;
    packed(stored)?.forms.iter().find(|f| f.name[stored.len() + 2..] == *r)
}

/// The interleaved form of the scheme called `stored` with `r` rows in a group, if it has one. `r` is 8 or 16;
/// see [`crate::Isa::interleave`].
///
/// A matrix can only take this form if its rows are a multiple of `r` and its columns one of the unit (64, 128
/// or 256): [`Scheme::byte_len`] says so, and the caller keeps the stored form.
pub fn interleaved(stored: &str, r: usize) -> Option<Arc<Scheme>> {
    packed(stored)?.forms.iter().find(|f| f.r == r).map(Codec::scheme)
}

#[cfg(test)]
mod tests {
    use tensor::{SchemeError, Shape};

    use super::*;
    use crate::packing::{At, Field};

    fn all() -> impl Iterator<Item = &'static Packed> {
        registry::names().filter_map(|name| packed(&name))
    }

    #[test]
    fn names_say_the_scheme_and_the_rows_and_the_geometry_refuses_a_ragged_matrix() {
        assert!(all().count() >= 13);
        for f in all().flat_map(|p| &p.forms) {
            assert_eq!(f.name, format!("{}.r{}", f.stored.name(), f.r));
            assert_eq!(interleaved(f.stored.name(), f.r).unwrap().name, f.name);
            assert_eq!(form(&f.name).unwrap().name, f.name);
        }
        let (rows, columns) = (Shape::from([15, 64]), Shape::from([16, 96]));
        let q4_0 = interleaved("q4_0", 16).unwrap();
        assert_eq!(q4_0.byte_len(&rows), Err(SchemeError::Ragged { axis: 0, extent: 15, per: 16 }));
        assert_eq!(q4_0.byte_len(&columns), Err(SchemeError::Ragged { axis: 1, extent: 96, per: 64 }));
        assert!(interleaved("q4_0", 4).is_none() && form("q4_0.r4").is_none());
        assert!(interleaved("f16", 16).is_none() && form("q4_0.r16.r16").is_none());
    }

    #[test]
    fn fields_take_every_stored_byte_once_and_units_of_sixteen_rows_keep_cache_lines() {
        for Packed { packing, forms } in all() {
            let (stored, name) = (forms[0].stored, forms[0].stored.name());
            let mut seen = packing.stored.map(|bytes| vec![0; bytes]);
            for field in &*packing.fields {
                let mut take = |at: At, n: usize| seen[at.0][at.1..at.1 + n].iter_mut().for_each(|n| *n += 1);
                match *field {
                    Field::Scales(first, second) => {
                        take(first, 2);
                        if let Some(second) = second {
                            take(second, 2);
                        }
                    }
                    Field::Powers(first, second, _) => {
                        take(first, 1);
                        take(second, 1);
                    }
                    Field::Word(at) | Field::Fifths(at) => take(at, 4),
                    Field::Words(at, n, _) => {
                        assert!(n >= 4, "`{name}`: whole gathers");
                        take(at, 4 * n);
                    }
                }
            }
            assert!(seen.iter().flatten().all(|&n| n == 1), "`{name}`: {seen:?}");
            assert!(packing.stored.iter().sum::<usize>() <= RECORD_MAX, "`{name}`");
            assert!(packing.unit.is_multiple_of(packing.per), "`{name}`");
            let planes = packing.planes();
            assert!(packing.stored[planes..].iter().all(|n| *n == 0), "`{name}`");
            assert_eq!(
                planes + usize::from(packing.factor.is_some()),
                stored.scheme().planes.len(),
                "`{name}`"
            );
        }
    }
}
