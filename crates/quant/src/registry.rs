//! The table of schemes.

use std::sync::Arc;

use tensor::{Dtype, Scheme};

/// How a scheme's blocks become floats.
pub trait Codec: Sync {
    /// The name of the scheme: `q4_k`.
    fn name(&self) -> &'static str;

    /// Writes the values of the planes to `out`. One slice for each plane of the scheme, all of the same
    /// run of whole cells; `out.len()` is the number of elements in that run.
    fn decode(&self, planes: &[&[u8]], out: &mut [f32]);
}

/// The geometry of the scheme called `name`, whether or not it can be decoded.
pub fn scheme(name: &str) -> Option<Arc<Scheme>> {
    Dtype::ALL.iter().find(|d| d.name() == name).map(|d| Scheme::plain(*d))
}

/// The codec of the scheme called `name`, if it can be decoded.
pub fn codec(_name: &str) -> Option<&'static dyn Codec> {
    None
}
