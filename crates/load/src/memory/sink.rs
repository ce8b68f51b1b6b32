//! Who gives memory for parameters.

use std::sync::Arc;

use tensor::{Scheme, Shape};

/// A parameter that wants memory.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Its index in the plan.
    pub index: usize,
    /// Its name.
    pub name: &'a str,
    /// Its logical shape.
    pub shape: &'a Shape,
    /// How it is held.
    pub scheme: &'a Arc<Scheme>,
    /// The length of each plane of the scheme, in bytes.
    pub planes: &'a [usize],
    /// What the address of each plane has to be a multiple of: the size of a plain dtype, 1 for blocks.
    pub align: usize,
}

/// Gives memory for parameters, and is told when each is there. `'m` is how long the memory lives: longer than the
/// load, so that it can be read when that is over.
///
/// A parameter that is tied to another shares its memory: the sink is asked for the other alone.
///
/// ```
/// use std::error::Error;
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use weighbridge_load::{Place, Sink};
///
/// /// Parameters one after the other, in memory of the caller.
/// struct Packed<'m> {
///     rest: &'m mut [u8],
///     complete: AtomicUsize,
/// }
///
/// impl<'m> Sink<'m> for Packed<'m> {
///     fn place(&mut self, param: &Place<'_>) -> Result<Vec<&'m mut [u8]>, Box<dyn Error + Send + Sync>> {
///         let mut planes = Vec::new();
///         for len in param.planes {
///             let gap = self.rest.as_ptr().align_offset(param.align);
///             let rest = std::mem::take(&mut self.rest).split_at_mut_checked(gap).ok_or("full")?.1;
///             let (plane, rest) = rest.split_at_mut_checked(*len).ok_or("full")?;
///             self.rest = rest;
///             planes.push(plane);
///         }
///         Ok(planes)
///     }
///
///     fn done(&self, _: &Place<'_>) {
///         self.complete.fetch_add(1, Ordering::Relaxed);
///     }
/// }
/// ```
pub trait Sink<'m>: Sync {
    /// Memory for each plane of a parameter; what is in it does not matter. Asked in the order of the plan, before
    /// anything is read.
    ///
    /// # Errors
    /// Whatever is in the way: it ends the load.
    fn place(
        &mut self,
        param: &Place<'_>,
    ) -> Result<Vec<&'m mut [u8]>, Box<dyn std::error::Error + Send + Sync>>;

    /// All bytes of a parameter are written: once for each that was placed, from any thread, in no order. They can be
    /// read when the load is over. A load that fails has told of those that are complete.
    fn done(&self, param: &Place<'_>) {
        let _ = param;
    }
}
