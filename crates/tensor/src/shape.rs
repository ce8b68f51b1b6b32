//! Logical shapes.

use std::fmt;
use std::ops::Deref;

/// A logical shape, slowest axis first (the order of torch and numpy): a linear weight is `[out, in]`.
///
/// GGUF stores dimensions fastest first; its reader reverses them, and nothing after it ever does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape(Vec<u64>);

impl Shape {
    /// The number of elements, or `None` if it does not fit in a `u64`.
    ///
    /// Every partial product must fit, so `[huge, huge, 0]` is refused like `[0, huge, huge]`.
    pub fn elements(&self) -> Option<u64> {
        let product = |axes: &[u64]| axes.iter().try_fold(1u64, |n, &axis| n.checked_mul(axis.max(1)));
        product(&self.0).map(|n| if self.0.contains(&0) { 0 } else { n })
    }

    /// The axes as a vector, to build another shape from.
    pub fn into_vec(self) -> Vec<u64> {
        self.0
    }
}

impl Deref for Shape {
    type Target = [u64];
    fn deref(&self) -> &[u64] {
        &self.0
    }
}

impl From<Vec<u64>> for Shape {
    fn from(axes: Vec<u64>) -> Self {
        Shape(axes)
    }
}

impl<const N: usize> From<[u64; N]> for Shape {
    fn from(axes: [u64; N]) -> Self {
        Shape(axes.to_vec())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, axis) in self.0.iter().enumerate() {
            write!(f, "{}{axis}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_refuses_a_product_that_wraps_wherever_the_zero_stands() {
        assert_eq!(Shape::from([3, 4]).elements(), Some(12));
        assert_eq!(Shape::from([]).elements(), Some(1));
        assert_eq!(Shape::from([0, 5]).elements(), Some(0));
        assert_eq!(Shape::from([0, u64::MAX, 2]).elements(), None);
        assert_eq!(Shape::from([u64::MAX, 2, 0]).elements(), None);
    }

    #[test]
    fn displays_as_torch_does() {
        assert_eq!(Shape::from([49152, 576]).to_string(), "[49152, 576]");
        assert_eq!(Shape::from([]).to_string(), "[]");
    }
}
