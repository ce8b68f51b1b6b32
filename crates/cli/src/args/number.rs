//! Numbers with their limits.

use std::fmt::Display;
use std::str::FromStr;

/// Parses a whole number from `least` on, and up to `most` if there is such a limit.
pub(super) fn whole<T>(least: T, most: Option<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Copy,
{
    move |text| {
        let number = text.parse::<T>().ok().filter(|n| *n >= least && most.is_none_or(|most| *n <= most));
        number.ok_or_else(|| match most {
            Some(most) => format!("wanted a whole number from {least} to {most}"),
            None => format!("wanted a whole number, {least} or more"),
        })
    }
}

/// Parses a number of at least 0, and at most `most` if there is such a limit.
pub(super) fn real(most: Option<f32>) -> impl Fn(&str) -> Result<f32, String> + Clone {
    move |text| {
        let number = text.parse::<f32>().ok().filter(|n| n.is_finite() && *n >= 0.0);
        number.filter(|n| most.is_none_or(|most| *n <= most)).ok_or_else(|| match most {
            Some(most) => format!("wanted a number from 0 to {most}"),
            None => "wanted a number, 0 or more".to_owned(),
        })
    }
}

/// Parses any finite number.
pub(super) fn finite(text: &str) -> Result<f32, String> {
    text.parse::<f32>().ok().filter(|n| n.is_finite()).ok_or_else(|| "wanted a number".to_owned())
}
