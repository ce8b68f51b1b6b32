//! Means with their confidence intervals, as people read them.

/// Standard errors on each side of a mean that 95 % of means are within.
pub(crate) const CONFIDENCE: f64 = 1.96;

/// `15.92 ± 0.71`: a mean and half the width of its interval, from the mean and its standard error, both times `unit`.
pub(crate) fn interval((value, error): (f64, f64), digits: usize, unit: f64) -> String {
    format!("{:.digits$} ± {:.digits$}", value * unit, error * unit * CONFIDENCE)
}
