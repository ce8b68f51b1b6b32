//! Sizes as people read them.

use std::fmt;

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
