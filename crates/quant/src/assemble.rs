//! Integers that a quantiser chose, assembled to the planes of a packed scheme.

use tensor::{Scheme, SchemeError, Shape};

use crate::codec::BadData;

/// A quantised matrix `[rows, k]` before it is assembled: `scale * (code - zero)`.
#[derive(Clone, Copy, Debug)]
pub struct Codes<'a> {
    /// Output features.
    pub rows: usize,
    /// Input features.
    pub k: usize,
    /// `[rows, k]`, row-major.
    pub codes: &'a [u8],
    /// `[rows, groups]`.
    pub scales: &'a [f32],
    /// `[rows, groups]`.
    pub zeros: &'a [u8],
    /// The group of each input, `[k]`, if the scheme does not say it.
    pub g_idx: Option<&'a [u32]>,
}

/// Why integers cannot be assembled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AssembleError {
    /// The scheme does not fit the matrix.
    #[error("`{scheme}` of {shape}: {why}")]
    Shape {
        /// The scheme.
        scheme: String,
        /// The matrix.
        shape: Shape,
        /// Why not.
        why: SchemeError,
    },
    /// A plane has the wrong number of values.
    #[error("`{what}`: wanted {wants} values, found {found}")]
    Count {
        /// Which.
        what: &'static str,
        /// How many there should be.
        wants: usize,
        /// How many there are.
        found: usize,
    },
    /// A value that has no place.
    #[error(transparent)]
    Value(#[from] BadData),
}

/// How given integers become a scheme's planes.
pub trait Assembler: Send + Sync {
    /// The planes, in the order of the scheme. Scales are rounded to the scheme's dtype.
    ///
    /// # Errors
    /// If a length does not fit another, or a code, a zero point or a group index is too large.
    fn assemble(&self, codes: &Codes<'_>) -> Result<Vec<Vec<u8>>, AssembleError>;
}

impl Codes<'_> {
    /// Empty planes of `scheme`, if the lengths fit it and codes have `bits` bits.
    pub(crate) fn planes(
        &self,
        scheme: &Scheme,
        bits: usize,
        groups: usize,
    ) -> Result<Vec<Vec<u8>>, AssembleError> {
        let count = |what, wants: usize, found| {
            if wants == found { Ok(()) } else { Err(AssembleError::Count { what, wants, found }) }
        };
        let indexed = scheme.planes.iter().any(|p| p.role == "g_idx");
        count("codes", self.rows * self.k, self.codes.len())?;
        count("scales", self.rows * groups, self.scales.len())?;
        count("zeros", self.rows * groups, self.zeros.len())?;
        count("g_idx", if indexed { self.k } else { 0 }, self.g_idx.map_or(0, <[u32]>::len))?;
        let most = (1u16 << bits) - 1;
        for (role, what, values) in [("codes", "a code", self.codes), ("zeros", "a zero point", self.zeros)] {
            if let Some((at, found)) = values.iter().enumerate().find(|(_, v)| u16::from(**v) > most) {
                let wants = format!("at most {most}");
                return Err(BadData { role, what, at, wants, found: found.to_string() }.into());
            }
        }
        let shape = Shape::from([self.rows as u64, self.k as u64]);
        let bytes =
            scheme.planes.iter().map(|p| scheme.plane_bytes(p, &shape)).collect::<Result<Vec<_>, _>>();
        match bytes {
            Ok(bytes) => Ok(bytes.into_iter().map(|n| vec![0; n as usize]).collect()),
            Err(why) => Err(AssembleError::Shape { scheme: scheme.name.to_string(), shape, why }),
        }
    }
}
