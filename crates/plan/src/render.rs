//! Expressions and steps as text.

use tensor::Expr;

/// `expr` in the notation of `plan --explain`: `q[16..32]`, `concat(0; a, b)`.
///
/// Of many parts only the first and the last are written.
pub(crate) fn expr_text(expr: &Expr) -> String {
    text(expr, crate::budget::DEPTH)
}

fn text(expr: &Expr, left: usize) -> String {
    let Some(left) = left.checked_sub(1) else { return "…".into() };
    match expr {
        Expr::Source(name) => name.clone(),
        Expr::Zero(shape) => format!("zero{shape}"),
        Expr::Concat { axis, parts } => format!("concat({axis}; {})", list(parts, left)),
        Expr::Stack(parts) => format!("stack({})", list(parts, left)),
        Expr::Slice { axis, range, of } => {
            let before = ":, ".repeat(*axis);
            format!("{}[{before}{}..{}]", text(of, left), range.start, range.end)
        }
        Expr::Split { axis, inner, of } => format!("split({axis}, {inner}; {})", text(of, left)),
        Expr::Merge { axis, of } => format!("merge({axis}; {})", text(of, left)),
        Expr::Permute { axes, of } if axes[..] == [1, 0] => format!("transpose({})", text(of, left)),
        Expr::Permute { axes, of } => format!("permute({axes:?}; {})", text(of, left)),
        Expr::Encode { step, of } => format!("({} {})", text(of, left), step),
    }
}

fn list(parts: &[Expr], left: usize) -> String {
    let one = |p: &Expr| text(p, left);
    match parts {
        [first, second, .., last] if parts.len() > 6 => {
            format!("{}, {}, … {} parts … {}", one(first), one(second), parts.len(), one(last))
        }
        _ => parts.iter().map(one).collect::<Vec<_>>().join(", "),
    }
}
