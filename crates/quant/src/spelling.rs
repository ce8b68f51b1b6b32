//! Parts of the names of schemes that come in many sizes: `gptq:b4,g128,f16`, `fp8:e4m3,b128x128,f32`.
//!
//! Code that reads the quantisation from a configuration builds the scheme's name with these.

pub use crate::scheme::{
    BNB_NESTED, BnbTable, FP8_SCALES, GPTQ_BITS, GptqVersion, MLX_BITS, MLX_GROUPS, REALS, Scope, bnb_name,
};
