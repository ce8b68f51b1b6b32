//! A limit on work: a hostile or ragged expression is rejected instead of taking forever.

use crate::why::Why;

/// Steps that one parameter may take to lower: parts made and partly covered cells counted. A regrouping
/// of 4099 ragged rows takes some 60,000, a vocabulary of 262,144 rows with a scale each, cut and joined
/// again, some 525,000.
pub(crate) const PARAM_STEPS: u64 = 1 << 20;
/// Pieces that one plane may have.
pub(crate) const PLANE_PIECES: usize = 1 << 18;
/// Steps that a whole plan may take.
pub(crate) const PLAN_STEPS: u64 = 1 << 26;
/// How deep an expression may nest. Real ones stay under 20.
pub(crate) const DEPTH: usize = 100;

/// Counts steps down.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    left: u64,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Budget {
        Budget { limit, left: limit }
    }

    /// Takes `steps` away.
    ///
    /// # Errors
    /// [`Why::TooFine`] if they are not there.
    pub(crate) fn spend(&mut self, steps: u64) -> Result<(), Why> {
        self.left = self.left.checked_sub(steps).ok_or(Why::TooFine { limit: self.limit })?;
        Ok(())
    }

    pub(crate) fn spent(&self) -> u64 {
        self.limit - self.left
    }
}
