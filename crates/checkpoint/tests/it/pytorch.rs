//! PyTorch checkpoints: torch's files are read as torch reads them (golden/pytorch.py), and files that it never writes
//! are rejected.
#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

mod assembler;
mod hostile;
mod models;
mod zips;

use std::path::PathBuf;

use checkpoint::{Checkpoint, OpenOptions};
use insta::assert_snapshot;
use serde_json::Value;
use tensor::TensorEntry;

use crate::{Dir, hex, open_both, plane};

fn golden(name: &str) -> PathBuf {
    testkit::golden("pytorch").join(name)
}

/// The elements of `entry`, in row-major order.
fn content(checkpoint: &Checkpoint, entry: &TensorEntry) -> Vec<u8> {
    let bytes = plane(checkpoint, &entry.planes[0]).unwrap();
    let Some(strides) = &entry.strides else { return bytes };
    let mut places = vec![0];
    for (n, stride) in entry.shape.iter().zip(strides) {
        places = places.into_iter().flat_map(|at| (0..*n).map(move |i| at + i * stride)).collect();
    }
    let size = entry.scheme.dtype().unwrap().bytes();
    let element = |at: u64| {
        let at = usize::try_from(at * size).unwrap();
        bytes[at..at + usize::try_from(size).unwrap()].to_vec()
    };
    places.into_iter().flat_map(element).collect()
}

/// Our name of a dtype of torch.
fn dtype(torch: &str) -> &str {
    match torch {
        "float64" => "f64",
        "float32" => "f32",
        "float16" => "f16",
        "bfloat16" => "bf16",
        "int64" => "i64",
        "int32" => "i32",
        "int16" => "i16",
        "int8" => "i8",
        "uint64" => "u64",
        "uint32" => "u32",
        "uint16" => "u16",
        "uint8" => "u8",
        "complex64" => "c64",
        "float8_e4m3fn" => "f8_e4m3",
        "float8_e5m2" => "f8_e5m2",
        "float8_e8m0fnu" => "f8_e8m0",
        "float8_e4m3fnuz" => "f8_e4m3fnuz",
        "float8_e5m2fnuz" => "f8_e5m2fnuz",
        other => other,
    }
}

/// Checks that `checkpoint` holds the tensors that torch lists in `facts`, and nothing else. `digest` of a tensor's
/// bytes must be the fact of that name.
fn is_what_torch_says(checkpoint: &Checkpoint, facts: &Value, digest: (&str, fn(&[u8]) -> String)) {
    let facts = facts.as_array().unwrap();
    let mut names: Vec<_> = checkpoint.entries().iter().map(|e| e.name.as_str()).collect();
    let mut wanted: Vec<_> = facts.iter().map(|f| f["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(names, wanted);
    for fact in facts {
        let name = fact["name"].as_str().unwrap();
        let entry = checkpoint.entry(name).unwrap();
        let shape: Vec<u64> = serde_json::from_value(fact["shape"].clone()).unwrap();
        assert_eq!(entry.shape.to_vec(), shape, "{name}");
        assert_eq!(entry.scheme.name, dtype(fact["dtype"].as_str().unwrap()), "{name}");
        assert_eq!(digest.1(&content(checkpoint, entry)), fact[digest.0], "{name}");
    }
}

#[test]
fn what_torch_saves_is_read_as_torch_reads_it() {
    let cases: Value = serde_json::from_slice(&std::fs::read(golden("cases.json")).unwrap()).unwrap();
    let cases = cases.as_object().unwrap();
    assert_eq!(cases.len(), 19);
    for (file, facts) in cases {
        let checkpoint = open_both(&golden(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        assert_eq!((checkpoint.format().name(), checkpoint.metadata().hf().is_none()), ("pytorch", true));
        is_what_torch_says(&checkpoint, facts, ("hex", hex));
        let starts = checkpoint.entries().iter().map(|e| e.planes[0].bytes.start);
        assert!(starts.is_sorted(), "{file}");
    }
}

#[test]
fn a_view_is_dense_or_says_its_strides() {
    for file in ["views.pt", "views.bin"] {
        let checkpoint = open_both(&golden(file)).unwrap();
        let strides = |name: &str| checkpoint.entry(name).unwrap().strides.as_deref();
        let dense =
            ["base", "tied", "rows", "row", "element", "split", "scalar", "empty", "empty_slice", "one"];
        assert!(dense.iter().all(|name| strides(name).is_none()));
        assert_eq!(strides("transposed"), Some(&[1, 6][..]));
        assert_eq!(strides("columns"), Some(&[6, 1][..]));
        assert_eq!(strides("every_other"), Some(&[12, 3][..]));
        assert_eq!(strides("column"), Some(&[6][..]));
        assert_eq!(strides("expanded"), Some(&[6, 0][..]));
        assert_eq!(strides("windows"), Some(&[2, 1][..]));
        assert_eq!(strides("fortran"), Some(&[1, 3][..]));
        assert_eq!(strides("channels_last"), Some(&[0, 1, 8, 2][..]));
        // A view of 4 rows of 3 of the 6 columns ends at its last element.
        assert_eq!(checkpoint.entry("columns").unwrap().byte_len(), 2 * (3 * 6 + 3));
        let ties = checkpoint.ties();
        let ties: Vec<Vec<_>> = ties.iter().map(|t| t.iter().map(|e| e.name.as_str()).collect()).collect();
        assert_eq!(ties, [["base", "tied"]]);
    }
}

#[test]
fn objects_of_other_programs_are_listed_and_not_made() {
    for file in ["training.pt", "training.bin"] {
        let checkpoint = open_both(&golden(file)).unwrap();
        let ignored = checkpoint.ignored().iter().map(|i| format!("{}: {} {}\n", i.name, i.class, i.tensors));
        insta::allow_duplicates!(assert_snapshot!(ignored.collect::<String>(), @"
    hyper_parameters: argparse.Namespace 0
    space: types.SimpleNamespace 0
    average: __main__.Config 8
    "));
    }
    // Attributes of tensors are not looked at.
    assert_eq!(open_both(&golden("parameters.pt")).unwrap().ignored(), []);
}

#[test]
fn what_is_beyond_us_is_refused_by_name() {
    let dir = Dir::new();
    let error = |name: &str| {
        dir.file(name, std::fs::read(golden(name)).unwrap());
        dir.error(name)
    };
    assert_snapshot!(error("refused.pt"), @"
    unsupported `DIR/refused.pt`: 5 problems
      tensor `sparse`: is made by `torch._utils._rebuild_sparse_tensor`, which is not read (at byte 598)
      tensor `csr`: is made by `torch._utils._rebuild_sparse_tensor`, which is not read (at byte 813)
      tensor `quantized`: is made by `torch._utils._rebuild_qtensor`, which is not read (at byte 975)
      tensor `meta`: is made by `torch._utils._rebuild_meta_tensor_no_storage`, which is not read (at byte 1073)
      tensor `complex128`: has type `complex128`, which is not supported yet (at byte 323)
    ");
    assert_snapshot!(error("conjugate.pt"), @"unsupported `DIR/conjugate.pt`: a tensor whose values are the conjugates or negatives of what is stored: save it after `resolve_conj()` and `resolve_neg()` (at byte 252)");
    assert_snapshot!(error("module.pt"), @"
    unsupported `DIR/module.pt`: all tensors are in objects of classes of the program that saved them, such as `torch.nn.modules.linear.Linear`
    hint: save the object's `state_dict()` instead of the object
    ");
    assert_snapshot!(error("module.bin"), @"
    unsupported `DIR/module.bin`: all tensors are in objects of classes of the program that saved them, such as `torch.nn.modules.linear.Linear`
    hint: save the object's `state_dict()` instead of the object
    ");
    assert_snapshot!(error("nothing.pt"), @"unsupported `DIR/nothing.pt`: the file holds no tensors");
    assert_snapshot!(error("compressed.pt"), @"unsupported `DIR/compressed.pt`: `archive/byteorder` is compressed or encrypted, which is not read: make the archive anew with `zip -0`");
    assert_snapshot!(error("script.pt"), @"
    unsupported `DIR/script.pt`: a TorchScript program, not a checkpoint
    hint: save its weights: `torch.save(torch.jit.load(PATH).state_dict(), …)`
    ");
}

#[test]
fn a_directory_with_weights_in_one_file_or_several() {
    let dir = Dir::new();
    let copy = |from: &str, to: &str| {
        dir.file(to, std::fs::read(golden(from)).unwrap());
    };
    let names = || {
        let checkpoint = open_both(&dir.path("m")).unwrap();
        assert_eq!(checkpoint.format().name(), "hf");
        let file = |e: &TensorEntry| checkpoint.file(e.planes[0].file).location.file_name();
        let line = |e: &TensorEntry| format!("{} {}", e.name, file(e));
        checkpoint.entries().iter().map(line).collect::<Vec<_>>()
    };
    dir.file("m/config.json", "{}");
    copy("zip2.pt", "m/pytorch_model-00001-of-00002.bin");
    copy("legacy2.bin", "m/training_args.bin");
    // The second of two is missing.
    assert_snapshot!(dir.error("m"), @"
    mismatch in `DIR/m`: `pytorch_model-00002-of-00002.bin` is missing
    hint: the download may be incomplete: download the missing files
    ");
    copy("list.pt", "m/pytorch_model-00002-of-00002.bin");
    let both =
        ["w 1", "deep.b 1", "0 2", "1 2"].map(|n| n.replace(' ', " pytorch_model-0000") + "-of-00002.bin");
    assert_eq!(names(), both);
    let index = |wrong: &str| {
        let home = |name: &str, n: u8| format!("\"{name}\": \"pytorch_model-0000{n}-of-00002.bin\"");
        let map = [home("w", 1), home("deep.b", 1), home("0", 2), home(wrong, 2)].join(",");
        dir.file("m/pytorch_model.bin.index.json", format!("{{\"weight_map\": {{{map}}}}}"));
    };
    index("1");
    assert_eq!(names(), both);
    index("2");
    assert_snapshot!(dir.error("m"), @"
    mismatch in `DIR/m`: 2 problems
      tensor `2`: wanted it in `pytorch_model-00002-of-00002.bin` as the index says, found it nowhere
      tensor `1`: is in `pytorch_model-00002-of-00002.bin`, but not in the index
    ");
    // One file with all goes before, and safetensors before that.
    copy("views.pt", "m/pytorch_model.bin");
    assert_eq!(names().len(), 21);
    dir.file("m/model.safetensors", crate::build::safetensors("{}", 0));
    assert_eq!(names(), [""; 0]);
}

#[test]
fn the_tensors_below_a_key() {
    let file = golden("training.pt");
    let open = |key: &str| checkpoint::open_with(&file, &OpenOptions::default().with_key(key));
    let all = checkpoint::open(&file).unwrap();
    let names = |c: &Checkpoint| c.entries().iter().map(|e| e.name.clone()).collect::<Vec<_>>();
    let below = open("state_dict").unwrap();
    let wanted = names(&all).into_iter().filter_map(|n| Some(n.strip_prefix("state_dict.")?.to_owned()));
    assert_eq!(names(&below), wanted.collect::<Vec<_>>());
    assert_eq!(below.entry("a.weight").unwrap().planes, all.entry("state_dict.a.weight").unwrap().planes);
    assert!(below.entry("state_dict.a.weight").is_none() && below.ignored().is_empty());
    assert_eq!(names(&open("listed.1.1").unwrap()), ["x"]);
    let dir = Dir::new();
    dir.file("x.pt", std::fs::read(&file).unwrap());
    let wrong = |key: &str| {
        let options = OpenOptions::default().with_key(key);
        dir.text(&checkpoint::open_with(dir.path("x.pt"), &options).unwrap_err())
    };
    assert_snapshot!([wrong("state_dic"), wrong("state_dict.a.weight"), wrong("")].join("\n"), @"
    `DIR/x.pt`: no tensor is below the key `state_dic`
    hint: did you mean `state_dict`?
    `DIR/x.pt`: no tensor is below the key `state_dict.a.weight`
    hint: the first keys are `5`, `listed`, `optimizer`, `state_dict`
    `DIR/x.pt`: no tensor is below the key ``
    hint: the first keys are `5`, `listed`, `optimizer`, `state_dict`
    ");
}
