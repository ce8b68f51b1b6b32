//! What each fuzz target starts from: the corpus of malformed checkpoints, and what is sound.

use std::path::Path;

use super::build::Gguf;
use super::models::{self, absurd};
use super::{Made, corpus, pickle};

/// The seeds of the target `name`.
pub fn of(name: &str) -> Vec<Vec<u8>> {
    let named = |ends: &[&str]| {
        let cases = corpus().into_iter().flat_map(|case| case.made);
        let absurd =
            absurd().into_iter().flat_map(|m| m.made.into_iter().map(|(p, made)| (p.to_owned(), made)));
        let content = |(path, made): (String, Made)| match made {
            Made::File(content) if ends.iter().any(|end| path.ends_with(end)) => Some(content),
            _ => None,
        };
        cases.chain(absurd).filter_map(content).collect::<Vec<_>>()
    };
    let texts = |texts: &[&str]| texts.iter().map(|t| t.as_bytes().to_vec()).collect();
    let mut seeds: Vec<Vec<u8>> = match name {
        "gguf" => named(&[".gguf"]),
        "safetensors" => named(&[".safetensors"]),
        "index" => named(&["index.json"]),
        "config" => named(&["config.json"]),
        "pytorch" => {
            let mut all = named(&[".pt", ".bin"]);
            all.push(pickle::zip(&pickle::Pickle::dict("w", pickle::Pickle::fine)));
            all
        }
        "npy" => named(&[".npy"]),
        "npz" => named(&[".npz"]),
        "squish" => named(&["manifest.json"]),
        "ctranslate2" => {
            files("golden/whisper", &["ctranslate2-float16/model.bin", "ctranslate2-int8/model.bin"])
        }
        "ggml" => files("golden/whisper", &["ggml.bin"]),
        "audio" => {
            let names =
                ["deep.flac", "pipe.flac", "short.flac", "low.mp3", "tagged.mp3", "tone.mp3", "tone.ogg"];
            let mut all = files("crates/audio/tests/files", &names);
            let format = [1u16, 2].map(u16::to_le_bytes).concat();
            let rates = [8000u32, 32_000].map(u32::to_le_bytes).concat();
            all.push(
                [
                    b"RIFF\x44\0\0\0WAVEfmt \x10\0\0\0",
                    &format[..],
                    &rates,
                    b"\x04\0\x10\0data\x20\0\0\0",
                    &[7; 32],
                ]
                .concat(),
            );
            all
        }
        "tokenizer" => named(&["tokenizer.json"]),
        "template" => models::templates().into_iter().map(|(_, source, _)| source.into_bytes()).collect(),
        "rules" => texts(&[
            "*=q4_0",
            "layers.*.ffn.*=q6_k\nlayers.0.ffn.up.weight",
            "=",
            "a=b",
            "*****=f16\naaaa",
            "==f32",
        ]),
        "imatrix" => {
            // The form of before GGUF: entries of a name, calls and values; then calls and a data set.
            let name = b"blk.0.ffn_up.weight";
            let entry =
                [&19i32.to_le_bytes()[..], name, &1i32.to_le_bytes(), &4i32.to_le_bytes(), &[0; 16]].concat();
            let whole =
                [&1i32.to_le_bytes()[..], &entry, &1i32.to_le_bytes(), &1i32.to_le_bytes(), b"d"].concat();
            let gguf = Gguf::new()
                .str("general.type", "imatrix")
                .u32("imatrix.chunk_count", 1)
                .f32("blk.0.ffn_up.weight.in_sum2", &[1, 8])
                .f32("blk.0.ffn_up.weight.counts", &[1, 1]);
            vec![whole, gguf.build()]
        }
        _ => Vec::new(),
    };
    // What is long or often there is slow, and says little more.
    seeds.retain(|seed| seed.len() <= 64 << 10);
    seeds.sort();
    seeds.dedup();
    seeds
}

/// Files of this project that are no longer than a seed may be.
fn files(folder: &str, names: &[&str]) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    names.iter().filter_map(|name| std::fs::read(folder.join(name)).ok()).collect()
}
