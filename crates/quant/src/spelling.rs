//! What the names of schemes that come in many sizes are made of: `gptq:b4,g128,f16`, `fp8:e4m3,b128x128,f32`.
//!
//! Whoever reads from a configuration how weights are quantised spells the name of their scheme with these.

pub use crate::scheme::{
    BNB_NESTED, BnbTable, FP8_SCALES, GPTQ_BITS, GptqVersion, MLX_BITS, MLX_GROUPS, REALS, Scope, bnb_name,
};
