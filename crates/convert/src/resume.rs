//! What a conversion that continues another must know: that it is about the same, and what the other measured.

use std::fmt::Write;
use std::path::Path;

use checkpoint::Checkpoint;
use quant::Difference;
use serde_json::{Value, json};

use planner::LayoutKind;

use crate::{ConvertOptions, OutputFormat};

/// What the values that are written depend on, beyond their names, shapes and encodings: the files that they come
/// from, as long as nobody changes one and hides it, and how they are computed.
pub(crate) fn identity(
    checkpoint: &Checkpoint,
    layout: LayoutKind,
    format: OutputFormat,
    options: &ConvertOptions<'_>,
) -> Vec<u8> {
    let mesh = &options.mesh;
    let mut text = format!("{} {} {} {mesh:?}\n", layout.name(), format.name(), options.allow_overflow);
    if let Some(mapping) = &options.adapter.mapping {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "{:?}", mapping.rules);
    }
    for file in checkpoint.files() {
        let was = file.source.identity().map(|was| (was.len, was.modified));
        stamp(&mut text, &file.path, was);
    }
    if let Some(imatrix) = options.imatrix {
        text += &imatrix.digest();
    }
    text.into_bytes()
}

/// A file's place, and its length and time when it was opened.
fn stamp(text: &mut String, path: &Path, was: Option<(u64, (i64, i64))>) {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "{} {was:?}", real.display());
}

/// What was measured of a parameter, bit for bit.
pub(crate) fn note(difference: Option<Difference>) -> Value {
    difference.map_or(Value::Null, |d| {
        let floats = [d.squares, d.wanted, d.found, d.product].map(f64::to_bits);
        json!([d.count, d.max.to_bits(), d.overflowed, d.underflowed, floats])
    })
}

/// The way back; `None` if nothing was measured.
pub(crate) fn difference(note: &Value) -> Option<Difference> {
    let whole = |i: usize| note[i].as_u64();
    let float = |i: usize| note[4][i].as_u64().map(f64::from_bits);
    Some(Difference {
        count: whole(0)?,
        max: f32::from_bits(u32::try_from(whole(1)?).ok()?),
        overflowed: whole(2)?,
        underflowed: whole(3)?,
        squares: float(0)?,
        wanted: float(1)?,
        found: float(2)?,
        product: float(3)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_kept_bit_for_bit() {
        let measured = Difference::of(&[0.1, 0.2, -3.3], &[0.1, f32::INFINITY, -3.0]);
        let text = note(Some(measured)).to_string();
        let again = difference(&serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(format!("{measured:?}"), format!("{again:?}"));
        assert!(difference(&note(None)).is_none());
    }
}
