//! A file cut at any byte is refused, and says that it is cut.

use checkpoint::Error;

use crate::build::{Gguf, array, kind, safetensors};
use crate::{Dir, open_both};

#[test]
fn a_gguf_cut_anywhere() {
    let whole = Gguf::new()
        .str("general.architecture", "llama")
        .u32("llama.block_count", 2)
        .pair("b", kind::BOOL, [1])
        .pair("x", kind::F64, 1f64.to_le_bytes())
        .pair("a", kind::ARRAY, array(kind::I32, 3, [0; 12]))
        .strs("tokens", &["", "a", "bc"])
        .f32("a.weight", &[2, 4])
        .f32("b.weight", &[8])
        .build();
    let dir = Dir::new();
    for len in 0..whole.len() {
        let error = open_both(&dir.file("x.gguf", &whole[..len])).expect_err("cut");
        assert!(matches!(error, Error::Malformed(_)), "{len}: {error}");
        if len >= 24 {
            assert!(
                error.hints().iter().any(|h| h.contains("download"))
                    || error.to_string().contains("hold at most"),
                "{len}: {error}"
            );
        }
    }
    assert!(open_both(&dir.file("x.gguf", &whole)).is_ok());
}

#[test]
fn a_safetensors_cut_anywhere() {
    let whole = safetensors(
        r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"I64","shape":[],"data_offsets":[8,16]}}  "#,
        16,
    );
    let dir = Dir::new();
    for len in 0..whole.len() {
        let error = open_both(&dir.file("x.safetensors", &whole[..len])).expect_err("cut");
        assert!(matches!(error, Error::Malformed(_)), "{len}: {error}");
        assert!(error.hints().iter().any(|h| h.contains("download")), "{len}: {error}");
    }
    assert!(open_both(&dir.file("x.safetensors", &whole)).is_ok());
}
