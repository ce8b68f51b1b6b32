//! Sizes as people read and write them.

use std::fmt;
use std::str::FromStr;

use crate::Diagnostic;

/// The units of sizes; alone as llama-gguf-split has them.
const UNITS: [(&str, u64); 13] = [
    ("", 1),
    ("B", 1),
    ("K", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KIB", 1 << 10),
    ("MIB", 1 << 20),
    ("GIB", 1 << 30),
];

/// Bytes for people: powers of 1024, three digits.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.0 as f64;
        for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
            if value < 999.5 || unit == "TiB" {
                let digits = usize::from(unit != "B" && value < 99.95);
                return write!(f, "{value:.digits$} {unit}");
            }
            value /= 1024.0;
        }
        Ok(())
    }
}

/// `500MB`, `2 GiB`, `1000`: a number of bytes, of which there is at least one.
impl FromStr for Bytes {
    type Err = Diagnostic;

    fn from_str(text: &str) -> Result<Bytes, Diagnostic> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim().to_ascii_uppercase();
        let unit = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, bytes)| *bytes);
        let bytes =
            unit.and_then(|unit| number.parse::<u64>().ok()?.checked_mul(unit)).filter(|bytes| *bytes > 0);
        bytes.map(Bytes).ok_or_else(|| Diagnostic::new("wanted a size such as 500MB or 2GiB"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_three_digits() {
        let show = |n| Bytes(n).to_string();
        assert_eq!(show(0), "0 B");
        assert_eq!(show(999), "999 B");
        assert_eq!(show(1000), "1.0 KiB");
        assert_eq!(show(98_362_432), "93.8 MiB");
        assert_eq!(show(253_113_024), "241 MiB");
        assert_eq!(show(u64::MAX), "16777216 TiB");
    }
}
