//! CTranslate2's `model.bin`: files of the library, of its older versions, and broken ones.

use std::fs;
use std::path::PathBuf;

use checkpoint::{Checkpoint, Error, Metadata};
use insta::assert_snapshot;
use tensor::{Dtype, TensorEntry};

use crate::{Dir, open_both, plane};

fn golden() -> PathBuf {
    testkit::golden("ctranslate2")
}

#[test]
fn every_variable_is_what_the_library_wrote() {
    let wanted = checkpoint::open(golden().join("values.npz")).expect("sound");
    let aliases = fs::read(golden().join("aliases.json")).unwrap();
    let aliases: serde_json::Value = serde_json::from_slice(&aliases).unwrap();
    for name in ["float32", "int8", "int8_float16", "int16"] {
        let found = open_both(&golden().join(name)).expect("sound");
        let Metadata::Ctranslate2(metadata) = found.metadata() else { panic!("{:?}", found.metadata()) };
        assert_eq!((found.format().name(), metadata.revision()), ("ctranslate2", 8));
        let variables: Vec<_> = wanted
            .entries()
            .iter()
            .filter_map(|e| Some((e, e.name.strip_prefix(&format!("{name}:"))?)))
            .collect();
        assert!(variables.len() > 25);
        let mut tensors = 0;
        for (want, key) in &variables {
            let bytes = plane(&wanted, &want.planes[0]).unwrap();
            // A scale is of the tensor that it scales.
            let scaled = key.strip_suffix("_scale");
            let have = scaled.or(Some(key)).and_then(|key| found.entry(key));
            let Some(have) = have else {
                let number = match bytes[..] {
                    [a] => i8::from_le_bytes([a]).into(),
                    [a, b] => i16::from_le_bytes([a, b]).into(),
                    [a, b, c, d] if want.scheme.dtype() == Some(Dtype::F32) => {
                        f32::from_le_bytes([a, b, c, d]).into()
                    }
                    _ => panic!("`{key}` of {name}"),
                };
                assert_eq!((want.shape.len(), metadata.attribute(key)), (0, Some(number)), "{key} of {name}");
                continue;
            };
            let is_code = found.entry(key).is_some() && have.planes.len() == 2;
            if scaled.is_none() {
                assert_eq!(have.shape, want.shape, "{key} of {name}");
                tensors += 1;
            }
            if !is_code && scaled.is_none() {
                assert_eq!(have.scheme, want.scheme, "{key} of {name}");
            }
            let own = &have.planes[usize::from(scaled.is_some())];
            assert_eq!(plane(&found, own).unwrap(), bytes, "{key} of {name}");
        }
        let aliases = aliases[name].as_object().unwrap();
        let mut ties = 0;
        for (alias, target) in aliases {
            let target = target.as_str().unwrap();
            let (Some(a), Some(b)) = (found.entry(alias), found.entry(target)) else { panic!("{alias}") };
            assert_eq!((&a.shape, &a.scheme, &a.planes), (&b.shape, &b.scheme, &b.planes));
            ties += 1;
        }
        assert_eq!((aliases.len(), found.ties().len(), ties), (1, 1, 1), "{name}");
        assert_eq!(found.entries().len(), tensors + ties);
        let alone = open_both(&golden().join(name).join("model.bin")).expect("sound");
        assert_eq!(alone.entries(), found.entries());
    }
}

/// Texts, numbers and data one after another.
#[derive(Default)]
struct Build(Vec<u8>);

impl Build {
    fn of(version: u32, variables: u32) -> Build {
        Build::default().u32(version).text("TinySpec").u32(3).u32(variables)
    }

    fn u32(mut self, n: u32) -> Build {
        self.0.extend(n.to_le_bytes());
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Build {
        self.0.extend(bytes);
        self
    }

    fn text(self, text: &str) -> Build {
        let len = u16::try_from(text.len() + 1).expect("short");
        self.raw(&len.to_le_bytes()).raw(text.as_bytes()).raw(&[0])
    }

    /// `id` is the type, or the bytes of an element before version 4, and `number` counts bytes or elements.
    fn variable(self, name: &str, axes: &[u32], id: u8, number: u32, data: &[u8]) -> Build {
        let rank = u8::try_from(axes.len()).expect("few");
        let with_axes = axes.iter().fold(self.text(name).raw(&[rank]), |b, n| b.u32(*n));
        with_axes.raw(&[id]).u32(number).raw(data)
    }
}

fn list(checkpoint: &Checkpoint) -> String {
    let line = |e: &TensorEntry| {
        format!("{} {} {} {:?}", e.name, e.shape, e.scheme, plane(checkpoint, &e.planes[0]).expect("inside"))
    };
    checkpoint.entries().iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_older_versions_wrote() {
    let dir = Dir::new();
    let old = Build::of(3, 3).variable("a", &[2], 4, 2, &[1; 8]).variable("a/b", &[], 2, 1, &[2; 2]);
    let old = old.variable("c", &[3, 1], 1, 3, &[3; 3]).u32(1).text("d").text("c");
    assert_snapshot!(list(&open_both(&dir.file("old.bin", old.0)).expect("sound")), @"
    a [2] f32 [1, 1, 1, 1, 1, 1, 1, 1]
    c [3, 1] i8 [3, 3, 3]
    d [3, 1] i8 [3, 3, 3]
    ");
    let older = Build::of(2, 1).variable("a", &[1], 4, 1, &[1; 4]);
    assert_snapshot!(list(&open_both(&dir.file("m/model.bin", &older.0)).expect("sound")), @"a [1] f32 [1, 1, 1, 1]");
    // Beside safetensors it is what a Hugging Face directory has it for.
    dir.file("m/config.json", "{}");
    dir.file("m/x.safetensors", "");
    assert!(dir.error("m").contains("x.safetensors"));
    // Another file of this name is not taken for it.
    dir.file("m/model.bin", "\u{80}pickle");
    fs::remove_file(dir.path("m/x.safetensors")).unwrap();
    assert!(dir.error("m").contains("`model.safetensors` or `pytorch_model.bin`"));
}

#[test]
fn what_is_broken_is_said() {
    let dir = Dir::new();
    let one = |b: Build| b.variable("a", &[2], 0, 8, &[0; 8]);
    let codes = |axes: &[u32], scales: &[u32], id: u8| {
        let codes = Build::of(6, 2).variable("a", axes, 1, 6, &[0; 6]);
        codes.variable("a_scale", scales, id, 12, &[0; 12]).u32(0)
    };
    let cases = [
        Build::of(7, 0).u32(0),
        Build::of(6, 0).u32(0).raw(b"junk"),
        Build::of(6, u32::MAX).u32(0),
        one(Build::of(6, 1)).u32(u32::MAX),
        Build::of(6, 1).variable("a", &[2], 6, 8, &[0; 8]).u32(0),
        Build::of(3, 1).variable("a", &[2], 8, 2, &[0; 16]).u32(0),
        Build::of(6, 1).variable("a", &[3], 0, 8, &[0; 8]).u32(0),
        Build::of(6, 1).variable("a", &[u32::MAX; 4], 0, 8, &[0; 8]).u32(0),
        Build::of(6, 1).variable("a", &[0; 65], 0, 0, &[]).u32(0),
        Build::of(6, 1).variable("a", &[2], 0, u32::MAX, &[0; 8]).u32(0),
        one(one(Build::of(6, 2))).u32(0),
        one(Build::of(6, 1)).u32(1).text("a").text("a"),
        one(Build::of(6, 1)).u32(1).text("b").text("c"),
        Build::of(6, 1).variable("", &[2], 0, 8, &[0; 8]).u32(0),
        Build::of(6, 1).variable("a\0b", &[2], 0, 8, &[0; 8]).u32(0),
        Build::of(6, 1).raw(&[2, 0, b'a', b'b', 0]).u32(0).u32(0),
        // Codes whose scales are too few, or integers, or of a tensor of four axes.
        codes(&[2, 3], &[3], 0),
        codes(&[3, 2], &[3], 3),
        codes(&[3, 1, 1, 2], &[3], 0),
    ];
    let lines: Vec<String> = cases
        .into_iter()
        .map(|case| {
            let path = dir.file("model.bin", case.0);
            dir.text(&open_both(&path).expect_err("broken"))
        })
        .collect();
    assert_snapshot!(lines.join("\n"), @r#"
    unsupported `DIR/model.bin`: CTranslate2 version 7, wanted 2 to 6 (at byte 0)
    malformed `DIR/model.bin`: 4 bytes after the last tensor that no tensor uses (at byte 27)
    malformed `DIR/model.bin`: says it has 4294967295 variables, but the 4 bytes that are left hold at most 0 (at byte 19)
    malformed `DIR/model.bin`: says it has 4294967295 aliases, but the 0 bytes that are left hold at most 0 (at byte 45)
    malformed `DIR/model.bin`: tensor `a`: wanted a type from 0 to 5, found type 6 (at byte 32)
    malformed `DIR/model.bin`: tensor `a`: wanted elements of 1, 2 or 4 bytes, found 8 (at byte 32)
    malformed `DIR/model.bin`: tensor `a`: [3] f32 needs 12 bytes, the header gives 8 (at byte 32)
    malformed `DIR/model.bin`: tensor `a`: the size of [4294967295, 4294967295, 4294967295, 4294967295] overflows (at byte 44)
    malformed `DIR/model.bin`: tensor `a`: number of dimensions of 65, over the limit of 64 (at byte 27)
    malformed `DIR/model.bin`: tensor `a`: the file ends inside the data of a variable: 4294967295 bytes wanted, 12 left (at byte 37)
    hint: the download may be incomplete: download the file again
    malformed `DIR/model.bin`: tensor `a`: is there twice, first at byte 23 (at byte 45)
    malformed `DIR/model.bin`: tensor `a`: is there twice, first at byte 23 (at byte 49)
    malformed `DIR/model.bin`: tensor `b`: wanted the name of a variable, found `c`, which is none (at byte 49)
    malformed `DIR/model.bin`: tensor ``: the tensor name is empty (at byte 23)
    malformed `DIR/model.bin`: tensor `a\0b`: the name has a NUL character (at byte 23)
    malformed `DIR/model.bin`: wanted a text that ends with a NUL, found 2 bytes (at byte 23)
    mismatch in `DIR/model.bin`: tensor `a`: is [2, 3] i8, and its scale [3] f32, which is not read (at byte 23)
    mismatch in `DIR/model.bin`: tensor `a`: is [3, 2] i8, and its scale [3] i32, which is not read (at byte 23)
    mismatch in `DIR/model.bin`: tensor `a`: is [3, 1, 1, 2] i8, and its scale [3] f32, which is not read (at byte 23)
    "#);
}

/// Cut anywhere, any byte another: an error or a list, never a panic.
#[test]
fn no_damage_makes_it_panic() {
    let dir = Dir::new();
    let whole = fs::read(golden().join("int8/model.bin")).unwrap();
    for cut in (1..whole.len()).filter(|n| *n < 600 || n % 37 == 0) {
        assert!(checkpoint::open(dir.file("x", &whole[..cut])).is_err(), "{cut}");
    }
    for at in 0..500 {
        for to in [0, 1, 0x7f, 0xff] {
            let mut file = whole.clone();
            file[at] = to;
            let opened = checkpoint::open(dir.file("x", &file));
            assert!(!matches!(opened, Err(Error::Io { .. })), "byte {at}");
        }
    }
}
