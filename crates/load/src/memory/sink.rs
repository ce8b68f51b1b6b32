//! Where parameters go.

use std::sync::Arc;

use tensor::{Scheme, Shape};

/// A parameter that wants a place.
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
    /// The address of each plane must be a multiple of this many bytes: the size of a plain dtype, 1 for blocks.
    pub align: usize,
}

/// Where a [`Sink`] wants the planes of one parameter. `'m` is how long lent memory lives.
#[derive(Debug)]
pub enum Destination<'m> {
    /// In this memory, one slice per plane. Its contents do not matter. The fastest way: files are read straight into
    /// it.
    Memory(Vec<&'m mut [u8]>),
    /// The sink has no memory to lend: it takes each byte once, by [`Sink::write`].
    Write,
}

/// Takes parameters: memory of the caller's, or a file, a device, another process, that are written to.
///
/// A parameter that is tied to another has no bytes of its own: the sink is asked for the other alone.
///
/// Memory that is lent:
///
/// ```
/// use std::error::Error;
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use weighbridge_load::{Destination, Place, Sink};
///
/// /// Parameters one after the other, in memory of the caller.
/// struct Packed<'m> {
///     rest: &'m mut [u8],
///     complete: AtomicUsize,
/// }
///
/// impl<'m> Sink<'m> for Packed<'m> {
///     fn place(&mut self, param: &Place<'_>) -> Result<Destination<'m>, Box<dyn Error + Send + Sync>> {
///         let mut planes = Vec::new();
///         for len in param.planes {
///             let gap = self.rest.as_ptr().align_offset(param.align);
///             let rest = std::mem::take(&mut self.rest).split_at_mut_checked(gap).ok_or("full")?.1;
///             let (plane, rest) = rest.split_at_mut_checked(*len).ok_or("full")?;
///             self.rest = rest;
///             planes.push(plane);
///         }
///         Ok(Destination::Memory(planes))
///     }
///
///     fn done(&self, _: &Place<'_>) {
///         self.complete.fetch_add(1, Ordering::Relaxed);
///     }
/// }
/// ```
///
/// A file that is written to, one plane after the other:
///
/// ```
/// use std::error::Error;
/// use std::fs::File;
/// use std::os::unix::fs::FileExt;
/// use weighbridge_load::{Destination, Place, Sink};
///
/// struct Flat {
///     file: File,
///     /// Where the planes of each parameter begin.
///     starts: Vec<Vec<u64>>,
///     end: u64,
/// }
///
/// impl Sink<'static> for Flat {
///     fn place(&mut self, param: &Place<'_>) -> Result<Destination<'static>, Box<dyn Error + Send + Sync>> {
///         self.starts.resize(param.index + 1, vec![]);
///         for len in param.planes {
///             self.starts[param.index].push(self.end);
///             self.end += *len as u64;
///         }
///         Ok(Destination::Write)
///     }
///
///     fn write(&self, param: &Place<'_>, plane: usize, at: u64, bytes: &[u8]) -> Result<(), Box<dyn Error + Send + Sync>> {
///         Ok(self.file.write_all_at(bytes, self.starts[param.index][plane] + at)?)
///     }
///
///     fn finish(&mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
///         Ok(self.file.sync_all()?)
///     }
/// }
/// ```
pub trait Sink<'m>: Sync {
    /// Where the planes of a parameter go. Asked in the order of the plan, before anything is read.
    ///
    /// # Errors
    /// Any error ends the load: [`Error::Sink`](crate::Error::Sink).
    fn place(
        &mut self,
        param: &Place<'_>,
    ) -> Result<Destination<'m>, Box<dyn std::error::Error + Send + Sync>>;

    /// Takes `bytes`, which begin at byte `at` of plane `plane` of a parameter that is at [`Destination::Write`]. Called from
    /// any thread, in any order; each byte of each plane comes once, in runs of up to some MiB, whose buffers count towards
    /// [`Options::memory`](crate::Options::memory).
    ///
    /// # Errors
    /// Any error ends the load: [`Error::Write`](crate::Error::Write).
    fn write(
        &self,
        param: &Place<'_>,
        plane: usize,
        at: u64,
        bytes: &[u8],
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let _ = (param, plane, at, bytes);
        Err("this sink takes no bytes by `write`".into())
    }

    /// All bytes of a parameter are there: once for each that was placed, from any thread, in no order. Lent memory can be
    /// read when the load is over. A load that fails has told of the parameters that are complete.
    fn done(&self, param: &Place<'_>) {
        let _ = param;
    }

    /// All parameters are there, and no file of the checkpoint has changed while it was read. Called once, at the end of a
    /// load that has not failed.
    ///
    /// # Errors
    /// Any error is the load's: [`Error::Unfinished`](crate::Error::Unfinished).
    fn finish(&mut self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(())
    }
}
