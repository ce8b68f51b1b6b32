//! Linear attention by the gated delta rule.

use derive::Module;

use crate::module::{
    self, Computes, FusedPart, MergedColumnParallelLinear, RmsNorm, RowParallelLinear, Table,
};
use crate::param::Axis;
use crate::{Config, Delta};

/// Linear attention by the gated delta rule: [`module::GatedDelta`]. Ranks share its heads.
#[derive(Debug, Module)]
pub struct GatedDelta {
    #[module(flatten)]
    computes: Computes,
    /// Queries, keys, values, their gate, how much is written, and how much is kept.
    #[module(name = "in")]
    input: MergedColumnParallelLinear,
    /// `[channels, kernel]`.
    q_conv: Table,
    k_conv: Table,
    v_conv: Table,
    /// `[value_heads]`.
    decay: Table,
    norm: RmsNorm,
    #[module(name = "out")]
    output: RowParallelLinear,
}

impl GatedDelta {
    /// As the numbers in `delta` say.
    pub fn new(c: &Config, delta: &Delta) -> GatedDelta {
        let Delta { key_heads, value_heads, key, value, kernel, .. } = delta;
        let hidden = Axis::Hidden.of(*c.hidden);
        let keys = Axis::Heads.of_units(**key_heads, **key);
        let values = Axis::Heads.of_units(**value_heads, **value);
        let heads = Axis::Heads.of(**value_heads);
        let part = |name: &str, output| FusedPart::new(name, output).without_bias();
        let parts = vec![
            part("q_in", keys),
            part("k_in", keys),
            part("v_in", values),
            part("z_in", values),
            part("b_in", heads),
            FusedPart::new("a_in", heads),
        ];
        let conv = |channels| Table::of_axes([channels, (**kernel).into()]);
        GatedDelta {
            computes: Computes::GatedDelta(module::GatedDelta {
                key_heads: **key_heads,
                value_heads: **value_heads,
                key: **key,
                value: **value,
                kernel: **kernel,
                activation: *c.activation,
                unit_eps: *delta.unit_eps as f32,
            }),
            input: MergedColumnParallelLinear::new(hidden, parts).with_bias(),
            q_conv: conv(keys),
            k_conv: conv(keys),
            v_conv: conv(values),
            decay: Table::new(heads),
            norm: RmsNorm::new(Axis::HeadDim.of(**value)).with_eps(*c.norm_eps as f32),
            output: RowParallelLinear::new(values, hidden),
        }
    }
}
