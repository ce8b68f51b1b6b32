//! Pickles made to hurt that are too large or too many for the corpus: each is refused in bounded time, mapped and read
//! alike, in words that say where.

use checkpoint::Error;

use crate::{Dir, open_both, timed};
use testkit::corpus::pickle::{Pickle, legacy, zip};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Blame {
    Malformed,
    Unsupported,
}
use Blame::{Malformed, Unsupported};

#[track_caller]
fn check(name: &str, file: &[u8], blame: Blame, says: &str) {
    let dir = Dir::new();
    let path = dir.file("x.pt", file);
    let (result, took) = timed(|| open_both(&path));
    let Err(error) = result else { panic!("{name}: opens") };
    let found = match error {
        Error::Malformed(_) => Malformed,
        Error::Unsupported(_) => Unsupported,
        _ => panic!("{name}: {error}"),
    };
    let text = dir.text(&error);
    assert_eq!(found, blame, "{name}: {text}");
    assert!(text.contains(says), "{name}: wanted `{says}` in\n{text}");
    assert!(text.contains("(at byte ") || text.contains("holds no tensors"), "{name}: {text}");
    // Only what is shipped has to be fast.
    let limit = if cfg!(target_arch = "x86_64") { 20 } else { 300 };
    assert!(text.len() < 10_000 && (took.as_secs() < limit || cfg!(debug_assertions)), "{name}: {took:?}");
}

fn p() -> Pickle {
    Pickle::new()
}

#[test]
fn the_assembler_makes_what_opens() {
    let dir = Dir::new();
    let path = dir.file("x.pt", zip(&Pickle::dict("w", Pickle::fine)));
    let checkpoint = open_both(&path).unwrap();
    assert_eq!((checkpoint.entries().len(), &*checkpoint.entries()[0].name), (1, "w"));
    let keys = p().op(b"]").text("0").op(b"a.");
    let storage = [&4u64.to_le_bytes()[..], &[0; 16]].concat();
    let path = dir.file("y.pt", legacy(&Pickle::dict("w", Pickle::fine), &keys, &storage));
    assert_eq!(open_both(&path).unwrap().entries()[0].shape, [2, 2].into());
}

#[test]
fn every_opcode_is_an_error_or_takes_nothing() {
    for code in 0..=u8::MAX {
        // Only `N.` follows.
        let file = zip(&p().op(&[code]).op(b"N."));
        check("any", &file, if code == 0x80 { Unsupported } else { any_blame(&file) }, "");
    }
}

fn any_blame(file: &[u8]) -> Blame {
    let dir = Dir::new();
    match open_both(&dir.file("x.pt", file)) {
        Err(Error::Unsupported(_)) => Unsupported,
        _ => Malformed,
    }
}

#[test]
fn names_of_harm_refuse_the_file() {
    let dir = Dir::new();
    dir.file("x.pt", zip(&Pickle::dict("w", |p| p.global("os", "system").text("id").op(b"\x85R"))));
    insta::assert_snapshot!(dir.error("x.pt"), @"
    malformed `DIR/x.pt`: the pickle names `os.system`, which no checkpoint needs: it was not run (at byte 55)
    hint: do not open this file with `torch.load` or `pickle`, which would run it
    ");
    check("no text", &zip(&p().op(b"NN\x93.")), Malformed, "the name of a class is None");
}

#[test]
fn values_that_grow() {
    check(
        "many values",
        &zip(&p().op(b"]").repeat(17 << 20, b"N")),
        Malformed,
        "number of values in the pickle",
    );
    check("many marks", &zip(&p().repeat(17 << 20, b"(")), Malformed, "number of values in the pickle");
    check(
        "many objects",
        &zip(&p().global("a", "B").op(b"q\x01").repeat(6 << 20, b"h\x01)R0")),
        Malformed,
        "number of values",
    );
    let items = p()
        .op(b"](")
        .repeat(1000, b"NN\x86")
        .op(b"e\x85q\x01")
        .global("collections", "OrderedDict")
        .op(b"q\x02");
    check(
        "a list copied often",
        &zip(&items.repeat(100_000, b"h\x02h\x01R0").op(b".")),
        Malformed,
        "number of values",
    );
}

#[test]
fn old_files() {
    let object = Pickle::dict("w", Pickle::fine);
    let keys = |keys: &[&str]| keys.iter().fold(p().op(b"]"), |p, k| p.text(k).op(b"a")).op(b".");
    let fine = [&4u64.to_le_bytes()[..], &[0; 16]].concat();
    let whole = legacy(&object, &keys(&["0"]), &fine);
    for end in 15..whole.len() {
        check("cut", &whole[..end], Malformed, "ends inside");
    }
    let mut other = whole.clone();
    other[18] = 0xe8;
    check("version", &other, Malformed, "wanted the version 1001");
    // More than is read at first, so that the pickles are read again.
    let big = Pickle::dict("w", |p| p.fine().op(b"s").text("pad").text(&"x".repeat(3 << 20)));
    let dir = Dir::new();
    let path = dir.file("big.bin", legacy(&big, &keys(&["0"]), &fine));
    assert_eq!(open_both(&path).unwrap().entries().len(), 1);
}
