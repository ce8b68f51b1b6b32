//! Which elements of a matrix share a scale.

use tensor::{IN, OUT, PlaneAxis};

use super::plane::{each, number, shared};
use crate::codec::BadData;

/// The elements that share one scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The matrix.
    Tensor,
    /// A row.
    Row,
    /// This many consecutive inputs of a row; the last group may be shorter.
    Group(u64),
    /// A rectangle of rows and inputs; those at the edges may be smaller.
    Block(u64, u64),
    /// The inputs of a row that `g_idx` assigns to the same group; the number of groups.
    Act(u64),
}

impl Scope {
    /// As names spell it: `tensor`, `row`, `g128`, `b128x128`, `act32`.
    pub fn parse(text: &str) -> Option<Scope> {
        let sized = |text: &str, most: u64| number(text).filter(|n| (1..=most).contains(n));
        match text {
            "tensor" => return Some(Scope::Tensor),
            "row" => return Some(Scope::Row),
            _ => {}
        }
        if let Some(groups) = text.strip_prefix("act") {
            return Some(Scope::Act(sized(groups, 1 << 24)?));
        }
        if let Some(inputs) = text.strip_prefix('g') {
            return Some(Scope::Group(sized(inputs, u64::MAX)?));
        }
        let (rows, inputs) = text.strip_prefix('b')?.split_once('x')?;
        Some(Scope::Block(sized(rows, 1 << 20)?, sized(inputs, 1 << 20)?))
    }

    /// As names spell it.
    pub fn text(self) -> String {
        match self {
            Scope::Tensor => "tensor".to_owned(),
            Scope::Row => "row".to_owned(),
            Scope::Group(g) => format!("g{g}"),
            Scope::Block(rows, inputs) => format!("b{rows}x{inputs}"),
            Scope::Act(n) => format!("act{n}"),
        }
    }

    /// The scales of a matrix `[out, in]`: how many below each other, and how many in a row.
    pub fn cells(self, [out, inputs]: [u64; 2]) -> [u64; 2] {
        match self {
            Scope::Tensor => [1, 1],
            Scope::Row => [out, 1],
            Scope::Group(g) => [out, inputs.div_ceil(g)],
            Scope::Block(rows, columns) => [out.div_ceil(rows), inputs.div_ceil(columns)],
            Scope::Act(n) => [out, n],
        }
    }

    /// The number of scales in a row of `inputs` inputs.
    pub fn groups(self, inputs: u64) -> u64 {
        self.cells([1, inputs])[1]
    }

    /// The axes of a plane with one cell for each, `[out, in]`.
    pub(super) fn axes(self) -> Vec<PlaneAxis> {
        let rows = match self {
            Scope::Tensor => None,
            Scope::Block(rows, _) => Some(shared(OUT, rows)),
            Scope::Row | Scope::Group(_) | Scope::Act(_) => Some(each(OUT)),
        };
        rows.into_iter().chain(self.inputs()).collect()
    }

    /// The axes of a plane with one cell for each, `[in, out]`, with a given axis of outputs.
    pub(super) fn transposed(self, out: PlaneAxis) -> Vec<PlaneAxis> {
        self.inputs().into_iter().chain([out]).collect()
    }

    /// The same, of the inputs alone.
    pub(super) fn inputs(self) -> Option<PlaneAxis> {
        match self {
            Scope::Tensor | Scope::Row => None,
            Scope::Group(g) | Scope::Block(_, g) => Some(shared(IN, g)),
            Scope::Act(n) => Some(PlaneAxis::Table(n)),
        }
    }

    /// Whether a plane `g_idx` says which input has which scale.
    pub(super) fn indexed(self) -> bool {
        matches!(self, Scope::Act(_))
    }

    /// The rows and inputs that share a scale, where `g_idx` has no say.
    pub fn size(self) -> (usize, usize) {
        match self {
            Scope::Tensor => (usize::MAX, usize::MAX),
            Scope::Row => (1, usize::MAX),
            Scope::Group(g) => (1, g as usize),
            Scope::Block(rows, columns) => (rows as usize, columns as usize),
            Scope::Act(_) => (1, 1),
        }
    }

    /// Returns the group of input `i`; `g_idx` is its plane. A group that [`check_groups`] rejects becomes the nearest
    /// valid one.
    #[inline(always)]
    pub(super) fn group(self, i: usize, g_idx: Option<&[u8]>) -> usize {
        match (self, g_idx) {
            (Scope::Group(g) | Scope::Block(_, g), _) => i / g as usize,
            (Scope::Act(n), Some(g_idx)) => index_at(g_idx, i).clamp(0, n as i64 - 1) as usize,
            _ => 0,
        }
    }
}

/// Number `i` of an i32 plane.
#[inline(always)]
pub(super) fn index_at(plane: &[u8], i: usize) -> i64 {
    i64::from(i32::from_le_bytes(plane.as_chunks::<4>().0[i]))
}

/// Refuses an index of `k` inputs with a group that is not there.
pub(super) fn check_groups(role: &'static str, g_idx: &[u8], k: usize, groups: u64) -> Result<(), BadData> {
    let Some(at) = (0..k).find(|i| !(0..groups as i64).contains(&index_at(g_idx, *i))) else { return Ok(()) };
    let wants = format!("one of the {groups} groups, 0 to {}", groups - 1);
    Err(BadData { role, what: "a group index", at, wants, found: index_at(g_idx, at).to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_has_one_spelling() {
        for text in ["tensor", "row", "g128", "b128x64", "act32"] {
            assert_eq!(Scope::parse(text).map(Scope::text).as_deref(), Some(text));
        }
        for text in ["", "g0", "g+1", "g01", "b0x1", "b1", "b2097152x1", "act0", "act16777217", "128"] {
            assert_eq!(Scope::parse(text), None, "`{text}`");
        }
    }

    #[test]
    fn scales_are_counted_with_those_at_the_edges() {
        let cells = |text| Scope::parse(text).unwrap().cells([10, 33]);
        assert_eq!(
            ["tensor", "row", "g16", "b4x32", "act5"].map(cells),
            [[1, 1], [10, 1], [10, 3], [3, 2], [10, 5]]
        );
    }
}
