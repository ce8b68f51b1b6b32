//! Conversions through the library: written values equal those read, and a conversion that is stopped leaves nothing.

use std::ops::ControlFlow;
use std::path::Path;

use weighbridge::checkpoint::Io;
use weighbridge::convert::{Conversion, ConvertOptions, ConvertReport, Imatrix, OutputFormat};
use weighbridge::planner::plan_as_stored;
use weighbridge::{Checkpoint, LayoutKind, OpenOptions, Pool, open, open_with};

use crate::golden;

fn convert(
    source: &Checkpoint,
    layout: LayoutKind,
    format: OutputFormat,
    options: &ConvertOptions<'_>,
    to: &Path,
) -> Result<ConvertReport, weighbridge::convert::Error> {
    let mut each = |_: &weighbridge::convert::Progress<'_>| ControlFlow::Continue(());
    Conversion::new(source, layout, format, options)?.run(to, &mut Pool::new(2), &mut each)
}

fn rules(texts: &[&str]) -> ConvertOptions<'static> {
    let rules = texts.iter().map(|t| t.parse().unwrap()).collect();
    ConvertOptions { rules, ..ConvertOptions::default() }
}

/// The values of every tensor of a file, by name, decoded.
fn values(path: &Path) -> Vec<(String, Vec<f32>)> {
    let checkpoint = open(path).unwrap();
    let planned = plan_as_stored(&checkpoint).unwrap();
    let loaded = planned.load(&mut Pool::new(1)).unwrap();
    let mut all: Vec<(String, Vec<f32>)> = checkpoint
        .entries()
        .iter()
        .map(|e| {
            let tensor = loaded.get(&e.name).unwrap();
            let rows = usize::try_from(e.shape.elements().unwrap()).unwrap() / tensor.width();
            let mut out = vec![0.0; rows * tensor.width()];
            for (row, out) in out.chunks_exact_mut(tensor.width()).enumerate() {
                tensor.decode_row(row, out);
            }
            (e.name.clone(), out)
        })
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// Values survive a conversion to any format.
#[test]
fn values_survive_every_format() {
    let dir = tempfile::tempdir().unwrap();
    let gguf = golden().join("llama-tiny/model.gguf");
    let wanted = values(&gguf);
    for (name, format) in [
        ("a.npz", OutputFormat::Npz),
        ("a.safetensors", OutputFormat::Safetensors),
        ("a.gguf", OutputFormat::Gguf),
    ] {
        assert_eq!(OutputFormat::of_path(Path::new(name)), Some(format));
        let path = dir.path().join(name);
        let source = open(&gguf).unwrap();
        let report = convert(&source, LayoutKind::Source, format, &rules(&["*=f32"]), &path).unwrap();
        assert!(report.difference().is_none(), "f32 stays f32");
        assert!(values(&path) == wanted, "{name}");
    }
    let hf = golden().join("gemma3-tiny");
    for format in [OutputFormat::Hf, OutputFormat::Mlx] {
        let path = dir.path().join(format.name());
        convert(&open(&hf).unwrap(), LayoutKind::Source, format, &rules(&[]), &path).unwrap();
        assert!(values(&path) == values(&hf), "{}", format.name());
        assert!(weighbridge::describe(&open(&path).unwrap()).is_ok());
    }
}

/// Canonical names mean canonical values: GGUF's rows of q and k in another order, and HF's, come out the same.
#[test]
fn the_canonical_layout_is_the_same_from_gguf_and_from_hf() {
    let dir = tempfile::tempdir().unwrap();
    let mut found = vec![];
    for source in ["llama-tiny", "llama-tiny/model.gguf"] {
        let path = dir.path().join(format!("{}.npz", found.len()));
        let source = open(golden().join(source)).unwrap();
        convert(&source, LayoutKind::Canonical, OutputFormat::Npz, &rules(&[]), &path).unwrap();
        found.push(values(&path));
    }
    assert!(found[0] == found[1]);
    assert!(found[0].iter().any(|(name, _)| name == "layers.1.attention.k.weight"));
}

#[test]
fn rounding_is_measured_and_overflow_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("in.safetensors");
    let values = [1.0f32, 1.0 + 1.0 / 4096.0, -3.0, 7e4];
    let header = br#"{"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"n":{"dtype":"I64","shape":[1],"data_offsets":[16,24]}}"#;
    let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).chain([9; 8]).collect();
    std::fs::write(&file, [&(header.len() as u64).to_le_bytes()[..], header, &data].concat()).unwrap();
    let source = open(&file).unwrap();
    let to = dir.path().join("out.npz");
    let run =
        |options: &ConvertOptions<'_>| convert(&source, LayoutKind::Source, OutputFormat::Npz, options, &to);
    let error = run(&rules(&["*=f16"])).unwrap_err().to_string();
    assert!(error.starts_with("`w`: 1 of its values are too large for `f16`"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left");
    let allowed = ConvertOptions { allow_overflow: true, ..rules(&["*=f16"]) };
    let report = run(&allowed).unwrap();
    let w = report.tensors.iter().find(|t| t.name == "w").unwrap();
    assert_eq!((w.to.as_str(), w.rule.as_str()), ("f16", "*=f16"));
    let d = w.difference.unwrap();
    assert_eq!((d.overflowed, d.max.to_bits()), (1, (1.0f32 / 4096.0).to_bits()));
    let n = report.tensors.iter().find(|t| t.name == "n").unwrap();
    assert_eq!((n.to.as_str(), n.rule.as_str(), n.difference), ("i64", "not floats", None));
}

#[test]
fn a_conversion_that_is_ended_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let source = open(golden().join("llama-tiny")).unwrap();
    let options = ConvertOptions::default();
    let conversion = Conversion::new(&source, LayoutKind::Source, OutputFormat::Npz, &options).unwrap();
    let mut seen = vec![];
    let result = conversion.run(dir.path().join("x.npz"), &mut Pool::new(1), &mut |p| {
        seen.push((p.index, p.total));
        if p.index == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(result, Err(weighbridge::convert::Error::Interrupted { kept: None, .. })));
    assert_eq!(seen, [(0, 21), (1, 21), (2, 21), (3, 21)]);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// The file that llama.cpp's llama-imatrix would write, as far as it is read.
pub(crate) fn imatrix(path: &Path, name: &str, sums: &[f32], counts: &[f32]) {
    let experts = counts.len() as u64;
    let string = |s: &str| [&(s.len() as u64).to_le_bytes()[..], s.as_bytes()].concat();
    let info = |name: String, dims: [u64; 2], offset: u64| {
        let dims = dims.map(u64::to_le_bytes).concat();
        [
            string(&name),
            2u32.to_le_bytes().to_vec(),
            dims,
            0u32.to_le_bytes().to_vec(),
            offset.to_le_bytes().to_vec(),
        ]
        .concat()
    };
    let padded = (4 * sums.len() as u64).next_multiple_of(32);
    let mut file = [&b"GGUF"[..], &3u32.to_le_bytes(), &2u64.to_le_bytes(), &1u64.to_le_bytes()].concat();
    file.extend(string("imatrix.chunk_count"));
    file.extend([4u32.to_le_bytes(), 5u32.to_le_bytes()].concat());
    file.extend(info(format!("{name}.in_sum2"), [sums.len() as u64 / experts, experts], 0));
    file.extend(info(format!("{name}.counts"), [1, experts], padded));
    file.resize(file.len().next_multiple_of(32), 0);
    file.extend(sums.iter().flat_map(|s| s.to_le_bytes()));
    file.resize(file.len().next_multiple_of(32), 0);
    file.extend(counts.iter().flat_map(|c| c.to_le_bytes()));
    file.resize(file.len().next_multiple_of(32), 0);
    std::fs::write(path, file).unwrap();
}

#[test]
fn an_importance_matrix_is_means_by_name_and_must_fit() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("imatrix.gguf");
    imatrix(&path, "blk.0.attn_q.weight", &[2.0; 64], &[4.0]);
    let good = Imatrix::open(&path).unwrap();
    assert_eq!(good.get("blk.0.attn_q.weight"), Some(&[0.5f32; 64][..]));
    assert_eq!((good.len(), good.get("blk.1.attn_q.weight")), (1, None));
    let source = open(golden().join("llama-tiny/model.gguf")).unwrap();
    let new = |imatrix: &Imatrix| {
        let options = ConvertOptions { imatrix: Some(imatrix), ..rules(&["*=f16"]) };
        let made = Conversion::new(&source, LayoutKind::Source, OutputFormat::Gguf, &options);
        made.map(|c| c.bytes()).map_err(|e| e.to_string())
    };
    assert!(new(&good).is_ok());
    imatrix(&path, "blk.0.attn_q.weight", &[2.0; 32], &[4.0]);
    let error = new(&Imatrix::open(&path).unwrap()).unwrap_err();
    assert_eq!(error, "`blk.{n}.attn_q.weight` has 64 columns, but the importance matrix 32 for it");
    imatrix(&path, "another", &[2.0; 32], &[4.0]);
    assert!(new(&Imatrix::open(&path).unwrap()).unwrap_err().contains("names none of the parameters"));
    imatrix(&path, "x", &[f32::NAN; 32], &[4.0]);
    assert!(Imatrix::open(&path).is_err());
    std::fs::write(&path, "no matrix").unwrap();
    assert!(Imatrix::open(&path).is_err());
}

/// Weights in several files each, vectors among them, decoded bit for bit as by squish itself.
#[test]
fn squish_directories_hold_what_squish_reads_in_them() {
    let golden = golden().join("../squish");
    let wanted = values(&golden.join("values.npz"));
    assert_eq!(wanted.len(), 5);
    assert_eq!(values(&golden.join("directory")), wanted);
    assert_eq!(values(&golden.join("compressed")), wanted);
    let dir = tempfile::tempdir().unwrap();
    let (source, to) = (open(golden.join("directory")).unwrap(), dir.path().join("a.npz"));
    convert(&source, LayoutKind::Source, OutputFormat::Npz, &rules(&["*=f32"]), &to).unwrap();
    assert_eq!(values(&to), wanted);
}

/// Floats with the most significant byte first are read as gguf-py, numpy and torch read them.
#[test]
fn big_endian_files_hold_what_the_references_read_in_them() {
    let golden = golden().join("../big-endian");
    let wanted = values(&golden.join("values.npz"));
    let value = |name: &str| wanted.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for (file, names) in [
        (
            "arrays.npz",
            &[("f2", "npz.f2"), ("f4", "npz.f4"), ("f8", "npz.f8"), ("columns", "npz.columns")][..],
        ),
        ("storage.pt", &[("f32", "pt.f32"), ("bf16", "pt.bf16")]),
        ("squish", &[("a", "npz.f2"), ("b", "npz.columns")]),
    ] {
        let (source, to) = (open(golden.join(file)).unwrap(), dir.path().join(format!("{file}.npz")));
        let floats: Vec<String> = names.iter().map(|(name, _)| format!("{name}=f32")).collect();
        let floats: Vec<&str> = floats.iter().map(String::as_str).collect();
        convert(&source, LayoutKind::Source, OutputFormat::Npz, &rules(&floats), &to).unwrap();
        let found = values(&to);
        for (name, want) in names {
            let have = &found.iter().find(|(n, _)| n == name).unwrap().1;
            assert_eq!(have, &value(want), "{name} of {file}");
        }
    }
    let (big, plain) =
        (values(&golden.join("llama.gguf")), values(&golden.join("../models/llama-tiny/model.gguf")));
    assert_eq!(big.len(), plain.len());
    for ((name, big), (same, plain)) in big.iter().zip(&plain) {
        assert_eq!((name, big.len()), (same, plain.len()));
        // Matrices were rounded to f16.
        let near = |(a, b): (&f32, &f32)| (a - b).abs() <= b.abs() / 2048.0 + 3e-8;
        assert!(big.iter().zip(plain).all(near), "{name}");
        assert!(!name.contains("norm") || big == plain, "{name}");
    }
    // Written again, floats are in the usual order, and nothing else about them changes.
    let (source, to) = (open(golden.join("llama.gguf")).unwrap(), dir.path().join("little.gguf"));
    let report = convert(&source, LayoutKind::Source, OutputFormat::Gguf, &rules(&[]), &to).unwrap();
    assert!(report.tensors.iter().all(|t| t.rule == "byte order" && t.from == format!("{}.be", t.to)));
    assert_eq!(values(&to), big);
}

/// Views of a PyTorch file come out one after another, as torch's `contiguous()` has them.
#[test]
fn strided_views_become_dense() {
    let dir = tempfile::tempdir().unwrap();
    let pytorch = golden().join("../pytorch");
    let cases: serde_json::Value =
        serde_json::from_slice(&std::fs::read(pytorch.join("cases.json")).unwrap()).unwrap();
    for (file, io) in [("views.pt", Io::Mmap), ("views.pt", Io::Pread), ("views.bin", Io::Pread)] {
        let source = open_with(pytorch.join(file), &OpenOptions::with_io(io)).unwrap();
        assert!(source.entries().iter().any(|e| e.strides.is_some()));
        let path = dir.path().join(format!("{file}.{io:?}.safetensors"));
        convert(&source, LayoutKind::Source, OutputFormat::Safetensors, &rules(&[]), &path).unwrap();
        let written = open(&path).unwrap();
        let facts = cases[file].as_array().unwrap();
        assert_eq!(written.entries().len(), facts.len());
        for fact in facts {
            let entry = written.entry(fact["name"].as_str().unwrap()).unwrap();
            let at = &entry.planes[0];
            let mut bytes = vec![0; usize::try_from(at.bytes.end - at.bytes.start).unwrap()];
            written.file(at.file).source.read_at(at.bytes.start, &mut bytes).unwrap();
            let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(hex, fact["hex"], "{} of {file}", entry.name);
        }
    }
}

/// Tensors of GGUF begin where it is asked for, and the file says so.
#[test]
fn gguf_is_aligned_as_asked() {
    let dir = tempfile::tempdir().unwrap();
    let gguf = golden().join("llama-tiny/model.gguf");
    for (source, alignment) in [(gguf.clone(), 4096), (golden().join("llama-tiny"), 8)] {
        let to = dir.path().join(format!("{alignment}.gguf"));
        let options = ConvertOptions { alignment: Some(alignment), ..ConvertOptions::default() };
        let source = open(&source).unwrap();
        convert(&source, LayoutKind::Source, OutputFormat::Gguf, &options, &to).unwrap();
        let made = open(&to).unwrap();
        assert_eq!(made.metadata().gguf().unwrap().alignment(), u64::from(alignment));
        let starts = made.entries().iter().map(|e| e.planes[0].bytes.start);
        assert!(starts.into_iter().all(|at| at % u64::from(alignment) == 0));
        assert_eq!(values(&to), values(&gguf));
    }
    let refused = |format, alignment| {
        let options = ConvertOptions { alignment: Some(alignment), ..ConvertOptions::default() };
        let source = open(&gguf).unwrap();
        Conversion::new(&source, LayoutKind::Source, format, &options).err().unwrap().to_string()
    };
    assert_eq!(
        refused(OutputFormat::Gguf, 24),
        "gguf cannot be aligned to 24 bytes: wanted a power of two from 8 on"
    );
    assert_eq!(refused(OutputFormat::Npz, 64), "npz has no alignment to choose: only gguf has");
}

/// Floats are quantised, and what is quantised is decoded, moved or repacked; only other blocks are refused, by name.
#[test]
fn what_is_quantised_is_quantised_again_only_if_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let write = |source: &Path, to: &str, options: &ConvertOptions<'_>| {
        let to = dir.path().join(to);
        let report = convert(&open(source).unwrap(), LayoutKind::Source, OutputFormat::Gguf, options, &to);
        report.map(|report| (to, report.bytes()))
    };
    let (blocks, (before, after)) =
        write(&golden().join("llama-tiny/model.gguf"), "q8_0.gguf", &rules(&["*=q8_0"])).unwrap();
    assert!(after < before);
    let Err(weighbridge::convert::Error::Requantize { weights }) =
        write(&blocks, "q4_0.gguf", &rules(&["blk.*.attn_q.weight=q4_0", "blk.*.attn_k.weight=q4_0"]))
    else {
        panic!("it was quantised again")
    };
    let named = |w: &weighbridge::convert::Requantized| format!("{} {} {} {}", w.count, w.name, w.from, w.to);
    let named: Vec<String> = weights.iter().map(named).collect();
    assert_eq!(named, ["2 blk.{n}.attn_k.weight q8_0 q4_0", "2 blk.{n}.attn_q.weight q8_0 q4_0"]);
    assert!(!dir.path().join("q4_0.gguf").exists());
    // The same, floats, and if it is meant.
    write(&blocks, "same.gguf", &rules(&["*=q8_0"])).unwrap();
    let (_, (before, after)) = write(&blocks, "f16.gguf", &rules(&["*=f16"])).unwrap();
    assert!(after > before);
    let allowed = ConvertOptions { allow_requantize: true, ..rules(&["*=q4_0"]) };
    write(&blocks, "q4_0.gguf", &allowed).unwrap();
}
