//! Where the elements of a tensor that is moved come from.

use plan::{Why, shape_of};
use tensor::{Expr, Shape};

/// An expression with the extents that its elements are found by.
#[derive(Debug)]
pub(crate) struct Origin {
    node: Node,
    /// The names of its sources.
    pub(crate) sources: Vec<String>,
    pub(crate) shape: Shape,
}

#[derive(Debug)]
enum Node {
    /// By its place in the list.
    Source(usize),
    Zero,
    /// Parts, and the extent of each along the axis.
    Concat {
        axis: usize,
        parts: Vec<(u64, Node)>,
    },
    Stack(Vec<Node>),
    Slice {
        axis: usize,
        start: u64,
        of: Box<Node>,
    },
    Split {
        axis: usize,
        inner: u64,
        of: Box<Node>,
    },
    Merge {
        axis: usize,
        inner: u64,
        of: Box<Node>,
    },
    Permute {
        axes: Vec<usize>,
        of: Box<Node>,
    },
}

impl Origin {
    /// Takes `expr` apart, where `find` gives the shapes of its sources. What codecs change stays in its place.
    ///
    /// # Errors
    /// If its operations do not fit its sources.
    pub(crate) fn of(expr: &Expr, find: &dyn Fn(&str) -> Option<Shape>) -> Result<Origin, Why> {
        let shape = shape_of(expr, find)?;
        let mut sources = vec![];
        let node = Node::of(expr, find, &mut sources)?;
        Ok(Origin { node, sources, shape })
    }

    /// Turns the place of an element into its place in a source. Returns which source; `None` for padding.
    pub(crate) fn find(&self, place: &mut Vec<u64>) -> Option<usize> {
        self.node.find(place)
    }
}

impl Node {
    fn of(expr: &Expr, find: &dyn Fn(&str) -> Option<Shape>, sources: &mut Vec<String>) -> Result<Node, Why> {
        let extent = |of: &Expr, axis: usize| -> Result<u64, Why> {
            Ok(shape_of(of, find)?.get(axis).copied().unwrap_or(1))
        };
        Ok(match expr {
            Expr::Source(name) => {
                let at = sources.iter().position(|known| known == name);
                Node::Source(at.unwrap_or_else(|| {
                    sources.push(name.clone());
                    sources.len() - 1
                }))
            }
            Expr::Zero(_) => Node::Zero,
            Expr::Concat { axis, parts } => {
                let mut all = vec![];
                for part in parts {
                    all.push((extent(part, *axis)?, Node::of(part, find, sources)?));
                }
                Node::Concat { axis: *axis, parts: all }
            }
            Expr::Stack(parts) => {
                Node::Stack(parts.iter().map(|part| Node::of(part, find, sources)).collect::<Result<_, _>>()?)
            }
            Expr::Slice { axis, range, of } => {
                Node::Slice { axis: *axis, start: range.start, of: Box::new(Node::of(of, find, sources)?) }
            }
            Expr::Split { axis, inner, of } => {
                Node::Split { axis: *axis, inner: *inner, of: Box::new(Node::of(of, find, sources)?) }
            }
            Expr::Merge { axis, of } => {
                let inner = extent(of, *axis + 1)?;
                Node::Merge { axis: *axis, inner, of: Box::new(Node::of(of, find, sources)?) }
            }
            Expr::Permute { axes, of } => {
                Node::Permute { axes: axes.clone(), of: Box::new(Node::of(of, find, sources)?) }
            }
            Expr::Encode { of, .. } => Node::of(of, find, sources)?,
        })
    }

    /// Axes are those of the shapes that were checked.
    fn find(&self, place: &mut Vec<u64>) -> Option<usize> {
        match self {
            Node::Source(at) => Some(*at),
            Node::Zero => None,
            Node::Concat { axis, parts } => {
                for (extent, part) in parts {
                    if place[*axis] < *extent {
                        return part.find(place);
                    }
                    place[*axis] -= extent;
                }
                None
            }
            Node::Stack(parts) => {
                let part = usize::try_from(place.remove(0)).ok()?;
                parts.get(part)?.find(place)
            }
            Node::Slice { axis, start, of } => {
                place[*axis] += start;
                of.find(place)
            }
            Node::Split { axis, inner, of } => {
                let within = place.remove(*axis + 1);
                place[*axis] = place[*axis] * inner + within;
                of.find(place)
            }
            Node::Merge { axis, inner, of } => {
                let at = place[*axis];
                place[*axis] = at / (*inner).max(1);
                place.insert(*axis + 1, at % (*inner).max(1));
                of.find(place)
            }
            Node::Permute { axes, of } => {
                let mut before = vec![0; axes.len()];
                for (at, axis) in place.iter().zip(axes) {
                    before[*axis] = *at;
                }
                *place = before;
                of.find(place)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(expr: &Expr, place: [u64; 2]) -> (Option<usize>, Vec<u64>) {
        let shape = |name: &str| Some(Shape::from(if name == "w" { [8, 3] } else { [2, 3] }));
        let mut place = place.to_vec();
        let origin = Origin::of(expr, &shape).unwrap();
        (origin.find(&mut place), place)
    }

    #[test]
    fn rotated_rows_are_found() {
        // Two heads of four: [2, 2, 2] with the inner axes swapped.
        let expr = Expr::source("w").split(0, 4).split(1, 2).permute(&[0, 2, 1, 3]).merge(1).merge(0);
        let rows: Vec<u64> = (0..8).map(|row| found(&expr, [row, 1]).1[0]).collect();
        assert_eq!(rows, [0, 2, 1, 3, 4, 6, 5, 7]);
        assert_eq!(found(&expr, [1, 1]), (Some(0), vec![2, 1]));
    }

    #[test]
    fn parts_and_padding_are_told_apart() {
        let zero = Expr::Zero(Shape::from([2, 3]));
        let expr = Expr::concat(0, vec![Expr::source("w").slice(0, 4..6), Expr::source("v"), zero]);
        assert_eq!(found(&expr, [1, 2]), (Some(0), vec![5, 2]));
        assert_eq!(found(&expr, [2, 2]), (Some(1), vec![0, 2]));
        assert_eq!(found(&expr, [4, 0]).0, None);
        assert_eq!(found(&Expr::source("w").transpose(), [2, 7]), (Some(0), vec![7, 2]));
    }
}
