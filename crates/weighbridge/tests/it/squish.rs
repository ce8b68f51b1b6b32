//! Directories written for squish: what is in which array, and the way to MLX and back. `golden/squish_read.py` holds such
//! directories to squish itself.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use weighbridge::convert::{Conversion, ConvertOptions, Error, OutputFormat};
use weighbridge::planner::Preset;
use weighbridge::{LayoutKind, Loaded, PlanBuilder, Pool, open};

use crate::golden;

fn convert(from: &Path, format: OutputFormat, options: &ConvertOptions<'_>, to: &Path) -> Result<(), Error> {
    let source = open(from).unwrap();
    let mut each = |_: &weighbridge::convert::Progress<'_>| ControlFlow::Continue(());
    Conversion::new(&source, LayoutKind::Source, format, options)?.run(to, &mut Pool::new(2), &mut each)?;
    Ok(())
}

fn preset(name: &str) -> ConvertOptions<'static> {
    ConvertOptions { preset: Some(Preset::named(name).unwrap()), ..ConvertOptions::default() }
}

fn rules(rules: &[&str]) -> ConvertOptions<'static> {
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    ConvertOptions { rules, ..ConvertOptions::default() }
}

fn load(path: &Path) -> Loaded {
    PlanBuilder::new(&open(path).unwrap())
        .layout(LayoutKind::Source)
        .build()
        .unwrap()
        .load(&mut Pool::new(1))
        .unwrap()
}

/// Plane `at` of a tensor, as it lies in memory.
fn plane(loaded: &Loaded, name: &str, at: usize) -> Vec<u8> {
    loaded.get(name).unwrap().slots()[at].bytes().to_vec()
}

/// The values of an array of squish, and what its header says of them.
fn array(dir: &Path, key: &str) -> (String, Vec<u8>) {
    let bytes = fs::read(dir.join("tensors").join(format!("{key}.npy"))).unwrap();
    let head = usize::from(u16::from_le_bytes([bytes[8], bytes[9]])) + 10;
    (String::from_utf8(bytes[10..head].to_vec()).unwrap(), bytes[head..].to_vec())
}

#[test]
fn codes_of_four_bits_are_the_same_in_mlx_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let (squish, mlx, back) = (folder.path().join("s"), folder.path().join("m"), folder.path().join("b"));
    convert(&golden().join("llama-tiny"), OutputFormat::NpyDir, &preset("squish-4bit"), &squish).unwrap();
    convert(&squish, OutputFormat::Mlx, &ConvertOptions::default(), &mlx).unwrap();
    convert(&mlx, OutputFormat::NpyDir, &ConvertOptions::default(), &back).unwrap();
    let (name, key) = ("model.layers.0.mlp.down_proj.weight", "model__layers__0__mlp__down_proj__weight");
    let (head, codes) = array(&squish, &format!("{key}__q4a"));
    assert!(head.contains("'|u1'") && head.contains("(64, 48)"), "{head}");
    let (head, scales) = array(&squish, &format!("{key}__s4a"));
    assert!(head.contains("'<f4'") && head.contains("(64, 3)"), "{head}");
    let (head, shape) = array(&squish, &format!("{key}__shape"));
    assert!(head.contains("'<i8'") && head.contains("(2,)"), "{head}");
    assert_eq!(shape, [64_u64, 96].map(u64::to_le_bytes).concat());
    let there = load(&mlx);
    assert_eq!(&*there.get(name).unwrap().scheme().name, "mlx-affine:b4,g32,f16");
    assert_eq!(plane(&there, name, 0), codes);
    assert_eq!(array(&back, &format!("{key}__q4a")).1, codes);
    // The scales were rounded once, to 16 bits.
    let float = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
    let rounded = array(&back, &format!("{key}__s4a")).1;
    for (a, b) in scales.chunks(4).zip(rounded.chunks(4)) {
        let (a, b) = (float(a), float(b));
        assert!(a.is_normal() && (a - b).abs() <= a.abs() / 2048.0, "{a} became {b}");
    }
}

#[test]
fn eight_bits_of_squish_are_decoded_for_others() {
    let folder = tempfile::tempdir().unwrap();
    let (squish, mlx) = (folder.path().join("s"), folder.path().join("m"));
    convert(&golden().join("llama-tiny"), OutputFormat::NpyDir, &preset("squish-int8"), &squish).unwrap();
    convert(&squish, OutputFormat::Mlx, &ConvertOptions::default(), &mlx).unwrap();
    let (before, after) = (load(&squish), load(&mlx));
    // One group of 64 is a whole row of the one, and no part of a row of the other.
    for name in ["lm_head.weight", "model.layers.1.mlp.down_proj.weight"] {
        let (before, after) = (before.get(name).unwrap(), after.get(name).unwrap());
        assert_eq!((&*before.scheme().name, &*after.scheme().name), ("squish-int8:row", "f32"));
        let row = |tensor: &weighbridge::load::Tensor, row: usize| {
            let mut out = vec![0.0; tensor.width()];
            tensor.decode_row(row, &mut out);
            out
        };
        assert!((0..before.rows()).all(|n| row(before, n) == row(after, n)), "{name}");
    }
}

/// squish computes the size of a group from the shapes of the arrays.
#[test]
fn groups_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    let options = rules(&["*.down_proj.weight=squish-q4a:g64"]);
    let refused =
        convert(&golden().join("llama-tiny"), OutputFormat::NpyDir, &options, &folder.path().join("s"));
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("its 96 columns are no whole groups of 64"), "{said}");
}

#[test]
fn compressed_arrays_are_the_same_arrays() {
    let folder = tempfile::tempdir().unwrap();
    let (plain, packed) = (folder.path().join("plain"), folder.path().join("packed"));
    let squish = preset("squish-int8");
    let zstd = ConvertOptions { zstd: true, ..squish.clone() };
    convert(&golden().join("llama-tiny"), OutputFormat::NpyDir, &squish, &plain).unwrap();
    convert(&golden().join("llama-tiny"), OutputFormat::NpyDir, &zstd, &packed).unwrap();
    let names = fs::read_dir(packed.join("tensors")).unwrap().map(|e| e.unwrap().file_name());
    let ends = |names: &[std::ffi::OsString], end: &str| {
        names.iter().filter(|name| name.to_str().unwrap().ends_with(end)).count()
    };
    let names: Vec<_> = names.collect();
    assert!(ends(&names, "__q.npy.zst") > 0 && ends(&names, ".npy") > 0, "{names:?}");
    let (wanted, found) = (load(&plain), load(&packed));
    for name in ["model.layers.0.mlp.down_proj.weight", "model.norm.weight", "model.embed_tokens.weight"] {
        let slots = |loaded: &Loaded| loaded.get(name).unwrap().slots().len();
        assert_eq!(slots(&wanted), slots(&found));
        for at in 0..slots(&wanted) {
            assert!(plane(&wanted, name, at) == plane(&found, name, at), "{name}");
        }
    }
    // It is replaced, as any other result of a conversion is.
    let again = ConvertOptions { overwrite: true, ..squish };
    convert(&golden().join("llama-tiny"), OutputFormat::NpyDir, &again, &packed).unwrap();
    let refused = convert(
        &golden().join("llama-tiny"),
        OutputFormat::Mlx,
        &ConvertOptions { zstd: true, ..ConvertOptions::default() },
        &folder.path().join("mlx"),
    );
    let refused = refused.unwrap_err().to_string();
    assert_eq!(refused, "mlx is not compressed with zstd: only npy-dir is");
}
