//! State that a conversion needs to continue another: proof that both have the same inputs, and the other's
//! measurements.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use checkpoint::{Checkpoint, Identity, Location};
use quant::Difference;
use serde_json::{Value, json};

use planner::LayoutKind;

use crate::{ConvertOptions, OutputFormat};

/// Returns the identity of everything that the written values depend on, beyond their names, shapes and encodings: the
/// source files (unless someone changes one and hides it), and the options of the computation.
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
        let was = file.source.identity();
        stamp(&mut text, &file.location, was.as_ref());
    }
    for adapter in &options.loras {
        text += &adapter.digest();
    }
    if let Some(imatrix) = options.imatrix {
        text += &imatrix.digest();
    }
    if let Some(scaling) = options.scaling {
        text += &scaling.digest();
    }
    if let Some(compensation) = options.compensation {
        text += compensation.identity();
    }
    text.into_bytes()
}

/// A file's place, and its length, time and inode, or its tag, when it was opened. Not its device: some file systems have another number
/// after a restart.
fn stamp(text: &mut String, location: &Location, was: Option<&Identity>) {
    let real =
        location.path().and_then(|path| path.canonicalize().ok()).map_or(location.clone(), Location::Path);
    // Writing to a `String` cannot fail.
    let _ = match was {
        Some(Identity::File { len, modified, inode, .. }) => {
            writeln!(text, "{real} {:?}", (len, modified, inode))
        }
        Some(other) => writeln!(text, "{real} {other:?}"),
        // Other bytes may be there next time: nothing that is half done can be continued.
        None => writeln!(text, "{real} {}", once()),
    };
}

/// Text that is another each time, in every process.
fn once() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("{} {now} {}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Stores the measurements of a parameter, bit for bit.
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
    fn only_files_that_can_be_told_are_the_same_again() {
        let stamped = |was: Option<&Identity>| {
            let mut text = String::new();
            stamp(&mut text, &Location::Named("x".to_owned()), was);
            text
        };
        let tagged = Identity::Tagged { len: 1, tag: "\"a\"".into() };
        assert_eq!(stamped(Some(&tagged)), stamped(Some(&tagged)));
        assert_ne!(stamped(None), stamped(None));
    }

    #[test]
    fn what_was_measured_is_kept_bit_for_bit() {
        let measured = Difference::of(&[0.1, 0.2, -3.3], &[0.1, f32::INFINITY, -3.0]);
        let text = note(Some(measured)).to_string();
        let again = difference(&serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(format!("{measured:?}"), format!("{again:?}"));
        assert!(difference(&note(None)).is_none());
    }
}
