//! The numbers of linear attention by the gated delta rule, and which layers have it.

use super::keys::OF_TRANSFORMERS;
use super::parts::{Shown, shown};
use super::{Config, ConfigProblem, Field, Keys, LARGEST_HEAD, Origin, Reader};
use crate::{DialectName, Fact};

const KEY_HEADS: Keys = Keys::new("delta_key_heads", &["ssm.group_count"], &["linear_num_key_heads"]);
const VALUE_HEADS: Keys =
    Keys::new("delta_value_heads", &["ssm.time_step_rank"], &["linear_num_value_heads"]);
const KEY: Keys = Keys::new("delta_key", &["ssm.state_size"], &["linear_key_head_dim"]);
const VALUE: Keys = Keys::new("delta_value", &[], &["linear_value_head_dim"]);
/// All values of a token together.
const INNER: Keys = Keys::new("delta_value", &["ssm.inner_size"], &[]);
const KERNEL: Keys = Keys::new("delta_kernel", &["ssm.conv_kernel"], &["linear_conv_kernel_dim"]);
const TYPES: Keys = Keys::new("delta_layers", &["attention.recurrent_layers"], &["layer_types"]);
const INTERVAL: Keys = Keys::new("delta_layers", &["full_attention_interval"], &["full_attention_interval"]);

/// The addend that transformers has for the squares of a query or a key: `use_qk_l2norm_in_kernel`, modeling_qwen3_5.py@v5.23.
pub(crate) const UNIT_EPS: f64 = 1e-6;

/// No convolution sees more rows.
const LONGEST: u64 = 64;

/// Layers of linear attention by the gated delta rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Delta {
    /// Heads of queries and of keys.
    pub key_heads: Field<u64>,
    /// Heads of values.
    pub value_heads: Field<u64>,
    /// Elements of a query and of a key.
    pub key: Field<u64>,
    /// Elements of a value.
    pub value: Field<u64>,
    /// Rows that the convolution sees.
    pub kernel: Field<u64>,
    /// Added to the squares of a query or a key before it is made of length 1.
    pub unit_eps: Field<f64>,
    /// One flag per layer: true if the layer has it; the others attend.
    pub layers: Field<Vec<bool>>,
}

impl Delta {
    /// Reads the numbers of the model that `base` is read of. Every fourth layer attends if no key says otherwise.
    pub(crate) fn read(r: &mut Reader, base: &Config) -> Delta {
        let gguf = r.dialect() == DialectName::Gguf;
        let count = |r: &mut Reader, keys: Keys, absent: u64| {
            if gguf {
                r.required_count(keys)
            } else {
                r.count(keys, 1).unwrap_or(Field::default(absent, OF_TRANSFORMERS))
            }
        };
        let (key_heads, value_heads) = (count(r, KEY_HEADS, 16), count(r, VALUE_HEADS, 32));
        let (key, kernel) = (count(r, KEY, 128), count(r, KERNEL, 4));
        let value = if gguf {
            let inner = r.required_count(INNER);
            if !inner.is_multiple_of(*value_heads) {
                wrong(r, &inner, &format!("a multiple of the {} heads of values", *value_heads));
            }
            Field { value: (*inner / *value_heads).max(1), origin: inner.origin }
        } else {
            count(r, VALUE, 128)
        };
        if !value_heads.is_multiple_of(*key_heads) {
            wrong(r, &value_heads, &format!("a multiple of the {} heads of keys", *key_heads));
        }
        for size in [&key, &value] {
            if **size >= LARGEST_HEAD {
                wrong(r, size, &format!("less than {LARGEST_HEAD}"));
            }
        }
        if *kernel > LONGEST {
            wrong(r, &kernel, &format!("at most {LONGEST}"));
        }
        // The reference has a number in its code; llama.cpp takes that of the norms.
        let unit_eps =
            if gguf { base.norm_eps.clone() } else { Field::default(UNIT_EPS, "as the reference has it") };
        let layers = which(r, base);
        Delta { key_heads, value_heads, key, value, kernel, unit_eps, layers }
    }

    /// True if layer `n` has it.
    pub(crate) fn is_in(&self, n: u64) -> bool {
        usize::try_from(n).ok().and_then(|n| self.layers.get(n).copied()).unwrap_or(false)
    }

    pub(super) fn fields(&self) -> Vec<Shown<'_>> {
        vec![
            shown("delta_key_heads", &self.key_heads),
            shown("delta_value_heads", &self.value_heads),
            shown("delta_key", &self.key),
            shown("delta_value", &self.value),
            shown("delta_kernel", &self.kernel),
            ("delta_unit_eps", format!("{:e}", *self.unit_eps as f32), &self.unit_eps.origin),
            ("delta_layers", super::windows::shown(&self.layers), &self.layers.origin),
        ]
    }
}

/// Reads which layers have it: as a list says, or all but every `interval`th.
fn which(r: &mut Reader, base: &Config) -> Field<Vec<bool>> {
    // More are reported elsewhere.
    let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).min(4096);
    let (count, all) = (size(*base.layers), size(base.layers.saturating_add(*base.next_layers)));
    if let Some((key, fact)) = r.fact(TYPES) {
        let is_linear = |one: &Fact| match one {
            Fact::Bool(linear) => Some(*linear),
            // The second names are old ones, which transformers replaces.
            Fact::Str(kind) if ["linear_attention", "mamba"].contains(&&**kind) => Some(true),
            Fact::Str(kind) if ["full_attention", "attention"].contains(&&**kind) => Some(false),
            _ => None,
        };
        let said = match &fact {
            Fact::List(list) => list.iter().map(is_linear).collect::<Option<Vec<bool>>>(),
            _ => None,
        };
        r.overridden(INTERVAL, "the list of layers says it");
        // Those that predict further tokens attend.
        if let Some(mut value) = said.filter(|list| list.len() == all && !list[count..].contains(&true)) {
            value.truncate(count);
            return Field { value, origin: Origin::Key(key) };
        }
        let wanted = format!("`linear_attention` or `full_attention` for each of {all} layers");
        r.problem(ConfigProblem::Invalid { key, wanted, found: fact.to_string() });
        return Field::default(vec![false; count], "refused");
    }
    let interval = r.count(INTERVAL, 1).unwrap_or(Field::default(4, OF_TRANSFORMERS));
    let linear = |n: usize| !(n as u64 + 1).is_multiple_of(*interval);
    Field { value: (0..count).map(linear).collect(), origin: interval.origin }
}

fn wrong(r: &mut Reader, field: &Field<u64>, wanted: &str) {
    let key = match &field.origin {
        Origin::Key(key) => key.clone(),
        Origin::Default(_) => "linear attention".to_owned(),
    };
    r.problem(ConfigProblem::Invalid { key, wanted: wanted.to_owned(), found: field.to_string() });
}
