//! Reading GGUF metadata: typed, lazily, with errors that name the key.

use checkpoint::{Checkpoint, Error, GgufMetadata, Io, OpenOptions, Value, ValueType};
use insta::assert_snapshot;

use crate::build::{Gguf, array, kind};
use crate::{Dir, open_both};

fn file() -> Gguf {
    let f32s: Vec<u8> = [0.5f32, -1.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let i32s: Vec<u8> = [1i32, -2, 3].iter().flat_map(|x| x.to_le_bytes()).collect();
    Gguf::new()
        .str("general.name", "héllo")
        .pair("u8", kind::U8, [200])
        .pair("i8", kind::I8, [0xff])
        .pair("u16", kind::U16, 60_000u16.to_le_bytes())
        .pair("i64", kind::I64, 5i64.to_le_bytes())
        .pair("u64", kind::U64, u64::MAX.to_le_bytes())
        .pair("f32", kind::F32, 1e-6f32.to_le_bytes())
        .pair("f64", kind::F64, 0.1f64.to_le_bytes())
        .pair("yes", kind::BOOL, [1])
        .pair("two", kind::BOOL, [2])
        .pair("f32s", kind::ARRAY, array(kind::F32, 2, f32s))
        .pair("i32s", kind::ARRAY, array(kind::I32, 3, i32s))
        .pair("none", kind::ARRAY, array(kind::STR, 0, []))
        .pair("bools", kind::ARRAY, array(kind::BOOL, 2, [1, 0]))
        .strs("tokens", &["<s>", "", "▁a"])
        .pair("latin", kind::STR, [&3u64.to_le_bytes()[..], b"a\xe9b"].concat())
        .pair("bytes", kind::ARRAY, array(kind::STR, 1, [&1u64.to_le_bytes()[..], b"\xff"].concat()))
}

fn with(check: impl FnOnce(&Dir, &GgufMetadata)) {
    let dir = Dir::new();
    let checkpoint: Checkpoint = open_both(&dir.file("x.gguf", file().build())).expect("sound");
    assert!(checkpoint.metadata().hf().is_none());
    check(&dir, checkpoint.metadata().gguf().expect("gguf"));
}

#[test]
fn typed_getters() {
    with(|_, m| {
        assert_eq!(m.str("general.name").unwrap(), Some("héllo"));
        assert_eq!(m.u64("u8").unwrap(), Some(200));
        assert_eq!(m.u64("u16").unwrap(), Some(60_000));
        assert_eq!(m.u64("i64").unwrap(), Some(5));
        assert_eq!(m.u64("u64").unwrap(), Some(u64::MAX));
        assert_eq!(m.f64("f32").unwrap(), Some(f64::from(1e-6f32)));
        assert_eq!(m.f64("f64").unwrap(), Some(0.1));
        assert_eq!((m.bool("yes").unwrap(), m.bool("two").unwrap()), (Some(true), Some(true)));
        assert_eq!(m.u64("absent").unwrap(), None);
        assert_eq!(m.str("general.nam").unwrap(), None);
        assert_eq!((m.version(), m.alignment(), m.len(), m.is_empty()), (3, 32, 17, false));
        assert_eq!(m.data_start(), file().build().len() as u64);
    });
}

#[test]
fn arrays() {
    with(|_, m| {
        assert_eq!(m.f32s("f32s").unwrap().unwrap().collect::<Vec<_>>(), [0.5, -1.0]);
        assert_eq!(m.i32s("i32s").unwrap().unwrap().collect::<Vec<_>>(), [1, -2, 3]);
        assert_eq!(m.bools("bools").unwrap().unwrap().collect::<Vec<_>>(), [true, false]);
        assert_eq!(
            m.strings("tokens").unwrap().unwrap().collect::<Vec<_>>(),
            ["<s>", "", "▁a"].map(str::as_bytes)
        );
        let texts: Vec<_> = m.strs("tokens").unwrap().unwrap().map(Result::unwrap).collect();
        assert_eq!(texts, ["<s>", "", "▁a"]);
        assert_eq!(m.strings("none").unwrap().unwrap().count(), 0);
        let array = m.array("i32s").unwrap().unwrap();
        assert_eq!((array.element(), array.len(), array.is_empty()), (ValueType::I32, 3, false));
        assert_eq!(array.bytes().len(), 12);
        assert_eq!(array.values().last(), Some(Value::I32(3)));
        assert!(m.f32s("absent").unwrap().is_none());
    });
}

#[test]
fn pairs_keep_the_order_of_the_file() {
    with(|_, m| {
        let keys: Vec<_> = m.keys().collect();
        assert_eq!(keys[..4], ["general.name", "u8", "i8", "u16"]);
        let shown: Vec<_> = m.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(
            shown.join(" "),
            "general.name=`héllo` u8=200 i8=-1 u16=60000 i64=5 u64=18446744073709551615 f32=0.000001 f64=0.1 \
             yes=true two=true f32s=[f32; 2] i32s=[i32; 3] none=[str; 0] bools=[bool; 2] tokens=[str; 3] \
             latin=`a\u{fffd}b` bytes=[str; 1]"
        );
    });
}

#[test]
fn a_value_of_another_type_is_named() {
    with(|dir, m| {
        let errors = [
            m.u64("general.name").map(|_| ()),
            m.u64("i8").map(|_| ()),
            m.f64("u8").map(|_| ()),
            m.bool("u8").map(|_| ()),
            m.str("tokens").map(|_| ()),
            m.i32s("f32s").map(|_| ()),
            m.strings("general.name").map(|_| ()),
            m.array("u8").map(|_| ()),
        ];
        let texts: Vec<_> = errors.iter().map(|e| dir.text(e.as_ref().expect_err("another type"))).collect();
        assert!(errors.iter().all(|e| matches!(e, Err(Error::Mismatch(_)))));
        assert_snapshot!(texts.join("\n"), @"
    mismatch in `DIR/x.gguf`: key `general.name`: wanted a whole number that is not negative, found str `héllo` (at byte 56)
    mismatch in `DIR/x.gguf`: key `i8`: wanted a whole number that is not negative, found i8 -1 (at byte 91)
    mismatch in `DIR/x.gguf`: key `u8`: wanted a float, found u8 200 (at byte 76)
    mismatch in `DIR/x.gguf`: key `u8`: wanted a bool, found u8 200 (at byte 76)
    mismatch in `DIR/x.gguf`: key `tokens`: wanted a string, found [str; 3] (at byte 394)
    mismatch in `DIR/x.gguf`: key `f32s`: wanted an array of i32, found [f32; 2] (at byte 257)
    mismatch in `DIR/x.gguf`: key `general.name`: wanted an array of str, found str `héllo` (at byte 56)
    mismatch in `DIR/x.gguf`: key `u8`: wanted an array, found u8 200 (at byte 76)
    ");
    });
}

#[test]
fn text_that_is_not_utf8_is_an_error_only_when_read_as_text() {
    with(|dir, m| {
        assert_eq!(m.get("latin"), Some(Value::Str(b"a\xe9b")));
        assert_eq!(m.strings("bytes").unwrap().unwrap().collect::<Vec<_>>(), [b"\xff"]);
        let error = m.str("latin").unwrap_err();
        assert!(matches!(error, Error::Malformed(_)));
        let element = m.strs("bytes").unwrap().unwrap().next().unwrap().unwrap_err();
        assert_snapshot!([dir.text(&error), dir.text(&element)].join("\n"), @"
    malformed `DIR/x.gguf`: key `latin`: the string is not UTF-8 (valid up to its byte 1) (at byte 450)
    malformed `DIR/x.gguf`: key `bytes`: the string is not UTF-8 (valid up to its byte 0) (at byte 482)
    ");
    });
}

#[test]
fn an_array_longer_than_what_is_read_at_once() {
    let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(1_000_003).collect();
    let long = array(kind::U8, bytes.len() as u64, &bytes);
    let texts = "x".repeat(700_001);
    let file = Gguf::new().pair("long", kind::ARRAY, long).str("text", &texts).f32("a", &[4]);
    let dir = Dir::new();
    let path = dir.file("x.gguf", file.build());
    let options = OpenOptions::with_io(Io::Pread);
    let checkpoint = checkpoint::open_with(&path, &options).expect("sound");
    let metadata = checkpoint.metadata().gguf().expect("gguf");
    assert_eq!(metadata.array("long").unwrap().unwrap().bytes(), bytes);
    assert_eq!(metadata.str("text").unwrap(), Some(texts.as_str()));
    assert!(open_both(&path).is_ok());
}
