//! Zip archives that are not what torch makes, and files that are not quite PyTorch's.

use insta::assert_snapshot;

use super::assembler::members;
use crate::{Dir, open_both};
use testkit::corpus::pickle::{Pickle, zip};

fn archive(extra: &[(&str, &[u8])]) -> Vec<u8> {
    let pickle = Pickle::dict("w", Pickle::fine);
    let mut all: Vec<(&str, &[u8])> = vec![("x/data.pkl", &pickle.0), ("x/data/0", &[0; 16])];
    all.extend_from_slice(extra);
    members(&all)
}

fn error(content: &[u8]) -> String {
    let dir = Dir::new();
    dir.file("x.pt", content);
    assert!(open_both(&dir.path("x.pt")).is_err());
    dir.error("x.pt")
}

#[test]
fn members_that_say_what_the_archive_is() {
    let dir = Dir::new();
    for fine in [
        archive(&[]),
        archive(&[("x/byteorder", b"little"), ("x/version", b"10")]),
        archive(&[("../../etc/passwd", b"x")]),
    ] {
        assert_eq!(open_both(&dir.file("x.pt", fine)).unwrap().entries().len(), 1);
    }
    assert_snapshot!(error(&archive(&[("x/byteorder", b"middle")])), @"malformed `DIR/x.pt`: key `x/byteorder`: wanted `little` or `big`, found `middle` (at byte 297)");
    assert_snapshot!(error(&archive(&[("x/byteorder", b"middle")])), @"malformed `DIR/x.pt`: key `x/byteorder`: wanted `little` or `big`, found `middle` (at byte 297)");
    assert_snapshot!(error(&archive(&[("x/version", b"11\n")])), @"unsupported `DIR/x.pt`: key `x/version`: version 11 of PyTorch's archives (at byte 295)");
    assert_snapshot!(error(&archive(&[("x/version", b"three")])), @"malformed `DIR/x.pt`: key `x/version`: wanted a number, found `three` (at byte 295)");
    assert_snapshot!(error(&archive(&[("x/constants.pkl", b"N.")])), @"
    unsupported `DIR/x.pt`: a TorchScript program, not a checkpoint
    hint: save its weights: `torch.save(torch.jit.load(PATH).state_dict(), …)`
    ");
    assert_snapshot!(error(&members(&[("word/document.xml", b"<w/>")])), @"unsupported `DIR/x.pt`: a zip archive without PyTorch's `data.pkl`, that starts with `word/document.xml`");
    assert_snapshot!(error(&members(&[("x/data/0", b""), ("y/data.pkl", b"N.")])), @"unsupported `DIR/x.pt`: a zip archive without PyTorch's `data.pkl`, that starts with `x/data/0`");
}

#[test]
fn members_that_do_not_fit_together() {
    let whole = zip(&Pickle::dict("w", Pickle::fine));
    let find = |what: &[u8], nth: usize| {
        whole.windows(what.len()).enumerate().filter(|(_, w)| *w == what).nth(nth).unwrap().0
    };
    let changed = |at: usize, to: &[u8]| {
        let mut bytes = whole.clone();
        bytes[at..at + to.len()].copy_from_slice(to);
        bytes
    };
    // The name in the local header, and in the directory.
    assert_snapshot!(error(&changed(find(b"archive/data/0", 0), b"archive/data/1")), @"
    malformed `DIR/x.pt`: the zip archive is broken: `archive/data/0` has another name in its own header (at byte 261)
    hint: the download may be incomplete: download the file again
    ");
    assert_snapshot!(error(&changed(find(b"archive/version", 1), b"archive/data/0x")), @"
    malformed `DIR/x.pt`: the zip archive is broken: `archive/data/0x` has another name in its own header (at byte 321)
    hint: the download may be incomplete: download the file again
    ");
    // Two members at one place.
    let header = |name: &[u8]| find(name, 1) - 46;
    let offset = |at: usize| at + 42;
    let mut bytes = whole.clone();
    let pickle: [u8; 4] = bytes[offset(header(b"archive/data/0"))..][..4].try_into().unwrap();
    let at = offset(header(b"archive/version"));
    bytes[at..at + 4].copy_from_slice(&pickle);
    assert_snapshot!(error(&bytes), @"
    malformed `DIR/x.pt`: the zip archive is broken: `archive/version` has another name in its own header (at byte 261)
    hint: the download may be incomplete: download the file again
    ");
    // A size that reaches into the next member, or out of the file.
    for (size, says) in [(40u32, "overlaps"), (1 << 30, "ends inside a member")] {
        let at = header(b"archive/data/0") + 20;
        let both = [size.to_le_bytes(), size.to_le_bytes()].concat();
        let text = error(&changed(at, &both));
        assert!(text.contains(says), "{text}");
    }
    let name = find(b"archive/byteorder", 1);
    let mut twice = changed(name, b"archive/data/0000");
    let local = find(b"archive/byteorder", 0);
    twice[local..local + 17].copy_from_slice(b"archive/data/0000");
    assert!(open_both(&Dir::new().file("x.pt", &twice)).is_ok());
}

#[test]
fn an_archive_cut_anywhere_or_changed_anywhere() {
    let dir = Dir::new();
    let whole = zip(&Pickle::dict("w", Pickle::fine));
    for end in 1..whole.len() {
        assert!(open_both(&dir.file("cut.pt", &whole[..end])).is_err(), "{end} of {}", whole.len());
    }
    for at in 0..whole.len() {
        for flip in [1, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            let Ok(checkpoint) = checkpoint::open(dir.file("flip.pt", &bytes)) else { continue };
            for entry in checkpoint.entries() {
                let range = entry.planes[0].bytes.clone();
                assert!(range.start <= range.end && range.end <= bytes.len() as u64);
            }
        }
    }
}

#[test]
fn files_that_are_not_quite_pytorchs() {
    let dir = Dir::new();
    dir.file("plain.pkl", b"\x80\x04}.");
    assert_snapshot!(dir.error("plain.pkl"), @"
    unsupported `DIR/plain.pkl`: the content is a Python pickle that `torch.save` did not write
    hint: convert the weights to safetensors with the tool that wrote them
    ");
    let mut tar = [0; 1024];
    tar[..9].copy_from_slice(b"sys_info\0");
    dir.file("old.pth", tar);
    assert_snapshot!(dir.error("old.pth"), @"
    unsupported `DIR/old.pth`: the content is a tar archive, as the first versions of PyTorch wrote it
    hint: load it with an old PyTorch, and save it again
    ");
    dir.file("named.pt", b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0");
    assert_snapshot!(dir.error("named.pt"), @"
    mismatch in `DIR/named.pt`: is named as pytorch, but holds gguf
    hint: rename the file to what it holds
    ");
}
