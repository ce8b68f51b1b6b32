//! How fast blocks become floats, beside ggml and candle: see `benches/decode.rs`.
