//! Options of a load.

use std::fmt;
use std::ops::ControlFlow;

use quant::Feedback;
use tensor::FileId;

/// The errors that encoding a parameter should rather make.
#[derive(Clone, Copy, Debug, Default)]
pub struct Guide<'a> {
    /// How much each column matters: one number for each element of the last axis, or for each element of the last axis of each
    /// matrix in a stack. See [`quant::Encoder::encode`].
    pub importance: Option<&'a [f32]>,
    /// How the errors of columns make each other good, in a matrix that is no stack; takes the place of the importance. Schemes whose
    /// codes cannot be chosen one by one do without it.
    pub feedback: Option<&'a Feedback>,
    /// The values of an input of a feedback that is not there yet: what encoding with it takes is foreseen.
    pub foreseen: Option<usize>,
}

impl Guide<'_> {
    /// The values of an input of its feedback.
    pub(crate) fn fed(&self) -> Option<usize> {
        self.feedback.map(Feedback::k).or(self.foreseen)
    }
}

/// The guide of the parameter with this name.
pub type Guides<'a> = dyn Fn(&str) -> Guide<'a> + Sync + 'a;

/// Is told how far a load is, by any thread, after every read; ends it by breaking.
pub type Watch<'a> = dyn Fn(Progress) -> ControlFlow<()> + Sync + 'a;

/// Is shown bytes of a file and their offset, by any thread: all that is read for parameters, gaps included, some of
/// it perhaps twice; and what is borrowed from maps.
pub type Observe<'a> = dyn Fn(FileId, u64, &[u8]) + Sync + 'a;

/// How far a load is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of slots that are filled.
    pub done: u64,
    /// Bytes of slots to fill; borrowed bytes are not counted.
    pub total: u64,
}

/// How to load.
#[derive(Clone, Copy, Default)]
pub struct Options<'a> {
    /// What encoders heed beside the values.
    pub guide: Option<&'a Guides<'a>>,
    /// Finite values may become infinite in a cast.
    pub allow_overflow: bool,
    /// Nothing is borrowed from a map: every parameter has memory of its own, which may be updated.
    pub owned: bool,
    /// The limit on bytes of buffers, all threads together: those for bytes that are read before they can be moved or
    /// changed, and those that a change needs. Slots are not counted, and bytes that are read straight into them need
    /// no buffer. Without a limit, a few MiB per thread, and the size of any matrix that cannot be changed in bands.
    pub memory: Option<u64>,
    /// Is told how far the load is.
    pub watch: Option<&'a Watch<'a>>,
    /// Is shown what is read.
    pub observe: Option<&'a Observe<'a>>,
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("owned", &self.owned)
            .field("memory", &self.memory)
            .field("allow_overflow", &self.allow_overflow)
            .finish_non_exhaustive()
    }
}
