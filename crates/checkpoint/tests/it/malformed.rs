//! Broken files, one fault each: every one is refused, mapped and read alike, in words that name it.

mod gguf;
mod safetensors;

use checkpoint::Error;

use crate::build::safetensors;
use crate::{Dir, open_both};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Blame {
    Malformed,
    Mismatch,
    Unsupported,
}
use Blame::{Malformed, Mismatch, Unsupported};
use gguf::one;

/// A file, its extension, whose fault it is, and what the error must say.
type Case = (&'static str, Vec<u8>, Blame, &'static str);

fn check(extension: &str, cases: Vec<Case>) {
    let dir = Dir::new();
    for (name, content, blame, says) in cases {
        let path = dir.file(&format!("x.{extension}"), content);
        let Err(error) = open_both(&path) else { panic!("{name}: opens") };
        let found = match error {
            Error::Malformed(_) => Malformed,
            Error::Mismatch(_) => Mismatch,
            Error::Unsupported(_) => Unsupported,
            _ => panic!("{name}: {error}"),
        };
        let text = dir.text(&error);
        assert_eq!(found, blame, "{name}: {text}");
        assert!(text.contains(says), "{name}: wanted `{says}` in\n{text}");
        assert_eq!(error.path(), path, "{name}");
    }
}

#[test]
fn other_files_by_any_name() {
    let foreign: [(&str, &[u8], &str); 8] = [
        ("zip", b"PK\x03\x04\x14\0\0\0\0\0", "a zip archive"),
        ("pickle", b"\x80\x02}q\0(X\x05\0\0\0", "a Python pickle"),
        ("html", b"<!DOCTYPE html><html>", "HTML"),
        ("html", b"<html lang=\"en\">", "HTML"),
        ("lfs", b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
        ("ggjt", b"tjgg\x03\0\0\0", "a ggml file of before GGUF"),
        ("gzip", b"\x1f\x8b\x08\0\0\0\0\0", "gzip-compressed"),
        ("json", b"{\"weight_map\": {}}", "JSON"),
    ];
    for extension in ["gguf", "safetensors", "bin", ""] {
        check(
            extension,
            foreign.iter().map(|(name, head, says)| (*name, head.to_vec(), Unsupported, *says)).collect(),
        );
    }
    let gguf = ("gguf named safetensors", one().build(), Mismatch, "is named as safetensors, but holds gguf");
    check("safetensors", vec![gguf]);
    let safe =
        ("safetensors named gguf", safetensors("{}", 0), Mismatch, "is named as gguf, but holds safetensors");
    check("GGUF", vec![safe]);
    let text =
        ("text", b"hello, world".to_vec(), Unsupported, "of no known format, it starts with 68 65 6c 6c");
    check("txt", vec![text]);
}
