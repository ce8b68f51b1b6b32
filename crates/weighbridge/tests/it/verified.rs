//! What was written is compared with its source: every byte of every tensor.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use weighbridge::convert::{Conversion, ConvertOptions, Error, OutputFormat};
use weighbridge::planner::Preset;
use weighbridge::{LayoutKind, Pool, open};

use crate::golden;

/// Converts llama-tiny to `to` with a preset, lets `spoil` change it, and verifies it.
fn verified(format: OutputFormat, preset: &str, to: &Path, spoil: impl FnOnce()) -> Result<(), Error> {
    let source = open(golden().join("llama-tiny")).unwrap();
    let options = ConvertOptions { preset: Preset::named(preset), ..ConvertOptions::default() };
    let conversion = || Conversion::new(&source, LayoutKind::Source, format, &options).unwrap();
    let mut each = |_: &weighbridge::convert::Progress<'_>| ControlFlow::Continue(());
    let mut pool = Pool::new(2);
    conversion().run(to, &mut pool, &mut each).unwrap();
    spoil();
    conversion().verify(to, &mut pool, &mut each)
}

#[test]
fn every_format_is_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    for (n, (format, preset)) in [
        (OutputFormat::Gguf, "q4_0"),
        (OutputFormat::Mlx, "mlx-4bit"),
        (OutputFormat::Hf, "int8"),
        (OutputFormat::NpyDir, "squish-4bit"),
        (OutputFormat::NpyDir, "squish-int8"),
        (OutputFormat::Npz, "f16"),
        (OutputFormat::Safetensors, "bf16"),
    ]
    .into_iter()
    .enumerate()
    {
        let extension = if format.is_directory() { "d" } else { format.name() };
        let to = folder.path().join(format!("{n}.{extension}"));
        verified(format, preset, &to, || ()).unwrap_or_else(|error| panic!("{format:?}: {error}"));
    }
}

#[test]
fn a_bit_that_is_another_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("x.gguf");
    let flip = || {
        let mut bytes = fs::read(&to).unwrap();
        let last = bytes.len() - 40;
        bytes[last] ^= 1;
        fs::write(&to, bytes).unwrap();
    };
    let said = verified(OutputFormat::Gguf, "q8_0", &to, flip).unwrap_err().to_string();
    assert!(said.contains("is not what was written"), "{said}");
}
