//! Checks through the library: digests equal those of the bytes, and bad data is found in every encoding.

use std::io::{Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use weighbridge::check::{CheckOptions, CheckReport, Manifest, Wrong, check};
use weighbridge::convert::{Conversion, ConvertOptions, OutputFormat};
use weighbridge::planner::Preset;
use weighbridge::{LayoutKind, Pool, open};

use crate::{golden, model};

const DEEP: CheckOptions<'_> = CheckOptions { deep: true, digests: true, verify: None };

fn checked(path: &Path, options: &CheckOptions<'_>, threads: usize) -> CheckReport {
    check(&open(path).unwrap(), options, &mut Pool::new(threads), &|_, _| ControlFlow::Continue(())).unwrap()
}

fn manifest(path: &Path, threads: usize) -> Manifest {
    let options = CheckOptions { digests: true, ..CheckOptions::default() };
    checked(path, &options, threads).manifest.unwrap()
}

/// Tensors of many leaves, and of one; whoever reads them.
#[test]
fn digests_are_those_of_the_bytes() {
    let path = model("smollm2");
    let checkpoint = open(&path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let wanted = manifest(&path, 3);
    assert_eq!(wanted, manifest(&path, 1));
    assert_eq!(wanted.tensors().len(), checkpoint.entries().len());
    assert!(wanted.tensors().is_sorted_by(|a, b| a.name < b.name));
    for listed in wanted.tensors() {
        let plane = &checkpoint.entry(&listed.name).unwrap().planes[0].bytes;
        let range = usize::try_from(plane.start).unwrap()..usize::try_from(plane.end).unwrap();
        assert_eq!(listed.blake3, blake3::hash(&bytes[range]).to_hex().as_str(), "{}", listed.name);
    }
}

/// A manifest is written, read, and compared with the same tensors in another format.
#[test]
fn a_manifest_is_of_tensors_and_not_of_files() {
    let dir = tempfile::tempdir().unwrap();
    let (kept, moved) = (dir.path().join("m.json"), dir.path().join("moved.npz"));
    let source = golden().join("gpt2-tiny");
    manifest(&source, 2).write(&kept, false).unwrap();
    convert(&source, &moved, OutputFormat::Npz, &[], None);
    let wanted = Manifest::read(&kept).unwrap();
    let options = CheckOptions { verify: Some(&wanted), ..DEEP };
    let report = checked(&moved, &options, 2);
    assert!(report.is_good() && report.unknown.is_empty(), "{:?}", report.findings);
    assert_eq!(report.values, report.elements);
}

/// Views whose elements lie apart are what they are when these lie together.
#[test]
fn strided_tensors_have_the_digests_of_dense_ones() {
    let dir = tempfile::tempdir().unwrap();
    let (source, dense) = (golden().join("../pytorch/views.pt"), dir.path().join("dense.safetensors"));
    assert!(open(&source).unwrap().entries().iter().any(|e| e.strides.is_some()));
    convert(&source, &dense, OutputFormat::Safetensors, &[], None);
    assert_eq!(manifest(&source, 2), manifest(&dense, 2));
    let (strided, dense) = (checked(&source, &DEEP, 2), checked(&dense, &DEEP, 2));
    assert_eq!((strided.values, strided.findings), (dense.values, dense.findings));
}

fn convert(source: &Path, to: &Path, format: OutputFormat, rules: &[&str], preset: Option<&str>) {
    let options = ConvertOptions {
        rules: rules.iter().map(|r| r.parse().unwrap()).collect(),
        preset: preset.map(|name| Preset::named(name).unwrap()),
        ..ConvertOptions::default()
    };
    let source = open(source).unwrap();
    let conversion = Conversion::new(&source, LayoutKind::Source, format, &options).unwrap();
    conversion.run(to, &mut Pool::new(2), &mut |_| ControlFlow::Continue(())).unwrap();
}

/// Overwrites bytes of a plane of a tensor, from `offset` on.
fn poison(path: &Path, tensor: &str, role: &str, offset: u64, bytes: &[u8]) {
    let checkpoint = open(path).unwrap();
    let entry = checkpoint.entry(tensor).unwrap();
    let plane = entry.scheme.planes.iter().position(|p| p.role == role).unwrap();
    let file: PathBuf = checkpoint.file(entry.planes[plane].file).location.path().unwrap().to_owned();
    let mut file = std::fs::File::options().write(true).open(file).unwrap();
    file.seek(SeekFrom::Start(entry.planes[plane].bytes.start + offset)).unwrap();
    file.write_all(bytes).unwrap();
}

#[test]
fn scales_that_are_no_numbers_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let fp8 = dir.path().join("fp8");
    convert(&golden().join("llama-tiny"), &fp8, OutputFormat::Hf, &[], Some("fp8-block"));
    assert!(checked(&fp8, &DEEP, 2).is_good());
    let name = "model.layers.1.mlp.up_proj.weight";
    let role = open(&fp8).unwrap().entry(name).unwrap().scheme.planes[1].role;
    poison(&fp8, name, role, 0, &f32::INFINITY.to_le_bytes());
    let found = checked(&fp8, &DEEP, 2).findings;
    let [only] = &found[..] else { panic!("{found:?}") };
    let Wrong::Data(data) = &only.wrong else { panic!("{only}") };
    assert_eq!((only.tensor.as_str(), data.role, data.at, data.found.as_str()), (name, role, 0, "inf"));
}

/// A block's scale makes all of its values what it is.
#[test]
fn blocks_of_no_numbers_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let gguf = dir.path().join("q8.gguf");
    convert(&golden().join("llama-tiny/model.gguf"), &gguf, OutputFormat::Gguf, &["*ffn_up*=q8_0"], None);
    assert!(checked(&gguf, &DEEP, 1).is_good());
    // Row 3, second block: binary16 NaN.
    poison(&gguf, "blk.0.ffn_up.weight", "blocks", 34 * (3 * 2 + 1), &[0x01, 0x7E]);
    let found = checked(&gguf, &DEEP, 1).findings;
    let [only] = &found[..] else { panic!("{found:?}") };
    let wanted = Wrong::NotFinite { nan: 32, infinite: 0, of: 96 * 64, first: [3, 32].into() };
    assert_eq!((only.tensor.as_str(), &only.wrong), ("blk.0.ffn_up.weight", &wanted));
}
