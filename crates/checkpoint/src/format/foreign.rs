//! Files that are often met where a checkpoint is expected, and what to do about each.

use storage::Location;

use crate::error::Error;
use crate::fault::Fault;

/// A kind of file that is recognised so that it can be rejected by name.
pub(crate) struct Foreign {
    what: &'static str,
    starts: &'static [&'static [u8]],
    hint: &'static str,
}

const CONVERT: &str = "convert the weights to safetensors with the tool that wrote them";
const PAGE: &str = "this is a web page, perhaps a login or an error page: download the file itself";

static FOREIGN: &[Foreign] = &[
    Foreign {
        what: "a zip archive, neither PyTorch's nor numpy's",
        starts: &[b"PK\x03\x04"],
        hint: "name the file with the weights",
    },
    Foreign {
        what: "a Python pickle that `torch.save` did not write",
        starts: &[b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"],
        hint: CONVERT,
    },
    Foreign {
        what: "a tar archive, as the first versions of PyTorch wrote it",
        starts: &[b"sys_info\0", b"pickle\0", b"tensors\0", b"storages\0"],
        hint: "load it with an old PyTorch, and save it again",
    },
    Foreign { what: "an HDF5 file, as Keras writes it", starts: &[b"\x89HDF\r\n\x1a\n"], hint: CONVERT },
    Foreign {
        what: "a ggml file of before GGUF",
        starts: &[b"lmgg", b"fmgg", b"tjgg", b"algg"],
        hint: "get the model as GGUF",
    },
    Foreign {
        // `ir_version`, then `producer_name`: onnx.proto of onnx 1.23.2, `ModelProto`.
        what: "an ONNX model, which can be written but not read",
        starts: &[
            b"\x08\x03\x12",
            b"\x08\x04\x12",
            b"\x08\x05\x12",
            b"\x08\x06\x12",
            b"\x08\x07\x12",
            b"\x08\x08\x12",
            b"\x08\x09\x12",
            b"\x08\x0a\x12",
            b"\x08\x0b\x12",
            b"\x08\x0c\x12",
            b"\x08\x0d\x12",
            b"\x08\x0e\x12",
        ],
        hint: "open the checkpoint that it was made from, or save its initializers as safetensors",
    },
    Foreign {
        what: "a Git LFS pointer, not the file it stands for",
        starts: &[b"version https://git-lfs"],
        hint: "fetch the content: `git lfs pull` in the clone, or download the file from its page",
    },
    Foreign { what: "HTML", starts: &[b"<!doctype", b"<html"], hint: PAGE },
    Foreign { what: "gzip-compressed data", starts: &[b"\x1f\x8b"], hint: "decompress it first" },
    Foreign { what: "zstd-compressed data", starts: &[b"\x28\xb5\x2f\xfd"], hint: "decompress it first" },
    Foreign {
        what: "JSON",
        starts: &[b"{"],
        hint: "name the directory that holds it, or the file with the weights",
    },
];

/// Returns the format of a file that starts with `head`, if it is one of these. Letters match in either case.
pub(crate) fn recognise(head: &[u8]) -> Option<&'static Foreign> {
    // A small 64-bit number starts a safetensors file, for any low bytes.
    if head.get(2..8) == Some(&[0; 6]) {
        return None;
    }
    let starts = |start: &[u8]| head.get(..start.len()).is_some_and(|h| h.eq_ignore_ascii_case(start));
    FOREIGN.iter().find(|f| f.starts.iter().any(|s| starts(s)))
}

impl Foreign {
    pub(crate) fn refuse(&self, location: &Location) -> Error {
        let what = format!("the content is {}", self.what);
        Error::whole(location, Fault::Unsupported { what }).with_hint(self.hint)
    }
}
