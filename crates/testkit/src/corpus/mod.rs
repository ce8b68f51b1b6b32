//! Malformed checkpoints, one fault each, as data: the library's tests open them, and those of the command line
//! run the program on them.

#![allow(
    clippy::return_self_not_must_use,
    clippy::new_without_default,
    reason = "tests build files step by step, and what they drop they see"
)]

pub mod archives;
pub mod build;
mod folders;
pub mod gguf;
pub mod models;
pub mod pickle;
mod pickles;
mod quantized;
pub mod safetensors;
pub mod seeds;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use build::safetensors as safetensors_file;

/// Whose fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The file contradicts itself.
    Malformed,
    /// The files contradict each other, or the model.
    Mismatch,
    /// It is well-formed, and nothing here reads it.
    Unsupported,
    /// The caller's, who named what is no file.
    Misuse,
    /// The operating system's, as it says.
    Io,
}
use Blame::{Mismatch, Unsupported};

/// One file: what is wrong, its content, whose fault it is, and what the error must say.
pub type OneFile = (&'static str, Vec<u8>, Blame, &'static str);

/// A broken checkpoint.
#[derive(Debug)]
pub struct Case {
    /// What kind of fault it is.
    pub family: &'static str,
    /// What is wrong with it.
    pub name: String,
    /// Paths and what is made there, in this order.
    pub made: Vec<(String, Made)>,
    /// The path that is opened, one of those or a directory above them.
    pub path: String,
    /// Whose fault it is.
    pub blame: Blame,
    /// What the error must say.
    pub says: String,
}

/// What is made at a path.
#[derive(Debug)]
pub enum Made {
    /// A file of this content.
    File(Vec<u8>),
    /// A file that starts so, and is zeros up to this length in bytes.
    Long(Vec<u8>, u64),
    /// A symbolic link to that path, `DIR` being the directory of the case.
    Link(&'static str),
    /// A named pipe.
    Pipe,
    /// A directory.
    Folder,
}

impl Case {
    /// Makes it in the empty directory `dir`, and gives the path to open.
    pub fn make(&self, dir: &Path) -> PathBuf {
        for (path, made) in &self.made {
            made.make(dir, path);
        }
        dir.join(&self.path)
    }
}

impl Made {
    /// Makes it at `path` below `dir`.
    pub fn make(&self, dir: &Path, path: &str) {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories are made");
        match self {
            Made::File(content) => fs::write(&path, content).expect("a file is written"),
            Made::Long(start, len) => {
                let mut file = File::create(&path).expect("a file is made");
                file.write_all(start).expect("a file is written");
                file.set_len(*len).expect("a sparse file");
            }
            Made::Link(to) => {
                let to = to.replace("DIR", &dir.display().to_string());
                std::os::unix::fs::symlink(to, &path).expect("a link is made");
            }
            Made::Pipe => {
                let made = Command::new("mkfifo").arg(&path).status().expect("mkfifo runs");
                assert!(made.success());
            }
            Made::Folder => fs::create_dir(&path).expect("a directory is made"),
        }
    }
}

/// All of them.
pub fn corpus() -> Vec<Case> {
    let mut all = Vec::new();
    let mut files = |family: &'static str, extension: &str, cases: Vec<OneFile>| {
        all.extend(
            cases
                .into_iter()
                .map(|(name, content, blame, says)| case(family, extension, name, content, blame, says)),
        );
    };
    files("gguf openings", "gguf", gguf::openings());
    files("gguf pairs", "gguf", gguf::pairs());
    files("gguf tensors", "gguf", gguf::tensors());
    files("safetensors openings", "safetensors", safetensors::openings());
    files("safetensors headers", "safetensors", safetensors::headers());
    for extension in ["gguf", "safetensors", "bin", ""] {
        files("other files", extension, foreign());
    }
    files("npy", "npy", archives::arrays());
    files("npz", "npz", archives::archives());
    files(
        "names",
        "safetensors",
        vec![(
            "gguf named safetensors",
            gguf::one().build(),
            Mismatch,
            "is named as safetensors, but holds gguf",
        )],
    );
    files(
        "names",
        "GGUF",
        vec![(
            "safetensors named gguf",
            safetensors_file("{}", 0),
            Mismatch,
            "is named as gguf, but holds safetensors",
        )],
    );
    files(
        "names",
        "txt",
        vec![(
            "text",
            b"hello, world".to_vec(),
            Unsupported,
            "of no known format, it starts with 68 65 6c 6c",
        )],
    );
    all.extend(pickles::pickles());
    all.extend(folders::paths());
    all.extend(folders::splits());
    all.extend(folders::indices());
    all.extend(folders::models());
    all.extend(folders::squish());
    all.extend(quantized::models());
    all
}

/// One file.
fn case(
    family: &'static str,
    extension: &str,
    name: &str,
    content: Vec<u8>,
    blame: Blame,
    says: &str,
) -> Case {
    let path = format!("x.{extension}");
    Case {
        family,
        name: name.to_owned(),
        made: vec![(path.clone(), Made::File(content))],
        path,
        blame,
        says: says.to_owned(),
    }
}

/// Other files, whatever they are called.
fn foreign() -> Vec<OneFile> {
    [
        ("zip", &b"PK\x03\x04\x14\0\0\0\0\0"[..], "a zip archive"),
        ("pickle", b"\x80\x02}q\0(X\x05\0\0\0", "a Python pickle"),
        ("html", b"<!DOCTYPE html><html>", "HTML"),
        ("html", b"<html lang=\"en\">", "HTML"),
        ("lfs", b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
        ("ggjt", b"tjgg\x03\0\0\0", "a ggml file of before GGUF"),
        ("gzip", b"\x1f\x8b\x08\0\0\0\0\0", "gzip-compressed"),
        ("json", b"{\"weight_map\": {}}", "JSON"),
    ]
    .map(|(name, head, says)| (name, head.to_vec(), Unsupported, says))
    .into()
}
