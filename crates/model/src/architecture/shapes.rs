//! Whether the parameters of modules have the shapes that what the modules compute takes. An engine trusts them.

use std::collections::BTreeMap;

use super::{Architecture, MatrixNames};
use crate::computes::{
    Attention, AudioEncoder, Computes, CrossAttention, Decoder, Encoder, FeedForward, GatedDelta, Groups,
    LatentAttention, Mixture, NotRun, Relative,
};
use crate::module::Tree;

/// Reasons that are given; a model of many layers has each in every one.
const MOST: usize = 3;

/// Lists the shapes that do not fit.
pub(super) fn wrong(architecture: &Architecture, tree: &Tree) -> Vec<String> {
    let specs = tree.declared().iter().map(|declared| &declared.spec);
    let extents = specs.map(|spec| (&*spec.name, spec.axes.iter().map(|axis| axis.extent).collect()));
    let shapes = Shapes { architecture, extents: extents.collect() };
    let found = architecture.modules().filter_map(|(path, computes)| shapes.of(path, computes).err());
    let mut wrong: Vec<String> = found.map(|NotRun { why }| why).collect();
    let output = |decoder: &Decoder| shapes.matrix("output", &[decoder.vocab], shapes.hidden());
    wrong.extend(architecture.decoder().and_then(|decoder| output(decoder).err()).map(|NotRun { why }| why));
    wrong.truncate(MOST);
    wrong
}

struct Shapes<'a> {
    architecture: &'a Architecture,
    /// Of parameters, by name.
    extents: BTreeMap<&'a str, Vec<u64>>,
}

impl Shapes<'_> {
    fn hidden(&self) -> u64 {
        self.architecture.hidden()
    }

    /// Checks the parameters of the module at `path`.
    fn of(&self, path: &str, computes: &Computes) -> Result<(), NotRun> {
        match computes {
            Computes::Embedding { .. } if path == "token_embedding" => {
                self.shape(&format!("{path}.weight"), &[Some(self.architecture.vocab()), Some(self.hidden())])
            }
            Computes::Embedding { .. } => self.shape(&format!("{path}.weight"), &[None, Some(self.hidden())]),
            Computes::Attention(attention) => self.attention(path, attention),
            Computes::AudioEncoder(encoder) => self.audio_encoder(path, *encoder),
            Computes::CrossAttention(attention) => self.cross_attention(path, *attention),
            Computes::LatentAttention(attention) => self.latent_attention(path, attention),
            Computes::GatedDelta(delta) => self.gated_delta(path, *delta),
            Computes::FeedForward(ffn) => self.feed_forward(path, *ffn),
            Computes::Mixture(mixture) => self.mixture(path, mixture),
            Computes::Residual(branches) => {
                if branches.first().is_some_and(|branch| branch.parallel) {
                    return Err(NotRun::new(format!("`{path}` begins with a branch beside another")));
                }
                for branch in branches {
                    for norm in [branch.norm, branch.post_norm, branch.sum_norm].into_iter().flatten() {
                        self.shape(&format!("{path}.{norm}.weight"), &[Some(self.hidden())])?;
                    }
                }
                Ok(())
            }
            Computes::Decoder(_) => self.shape("output_norm.weight", &[Some(self.hidden())]),
            Computes::Encoder(encoder) => self.encoder(encoder),
            Computes::Score(score) => {
                self.matrix(&format!("{path}.dense"), &[self.hidden()], self.hidden())?;
                self.matrix(&format!("{path}.output"), &[score.labels], self.hidden())?;
                match self.architecture.get(&format!("{path}.norm")) {
                    Some(_) => self.shape(&format!("{path}.norm.weight"), &[Some(self.hidden())]),
                    None => Ok(()),
                }
            }
            Computes::Norm(_) | Computes::Convolution => Ok(()),
        }
    }

    fn encoder(&self, encoder: &Encoder) -> Result<(), NotRun> {
        if self.architecture.get("embedding_norm").is_some() {
            self.shape("embedding_norm.weight", &[Some(self.hidden())])?;
        }
        let positions = "position_embedding.weight";
        let before = encoder.padding.map_or(0, |padding| padding.saturating_add(1));
        let wanted = encoder.context.saturating_add(before);
        match self.extents.get(positions).and_then(|extents| extents.first()) {
            Some(rows) if *rows < wanted => {
                Err(NotRun::new(format!("`{positions}` has {rows} rows, wanted {wanted}")))
            }
            _ => Ok(()),
        }
    }

    fn audio_encoder(&self, path: &str, encoder: AudioEncoder) -> Result<(), NotRun> {
        if path != Architecture::AUDIO_ENCODER {
            return Err(NotRun::new(format!(
                "`{path}` encodes sound, and is not `{}`",
                Architecture::AUDIO_ENCODER
            )));
        }
        let hidden = Some(self.hidden());
        for (conv, input) in [("conv1", encoder.mels), ("conv2", self.hidden())] {
            self.shape(&format!("{path}.{conv}.weight"), &[hidden, Some(input), Some(3)])?;
            self.shape(&format!("{path}.{conv}.bias"), &[hidden])?;
        }
        self.shape(&format!("{path}.position_embedding.weight"), &[Some(encoder.context), hidden])?;
        self.shape(&format!("{path}.output_norm.weight"), &[hidden])
    }

    fn cross_attention(&self, path: &str, attention: CrossAttention) -> Result<(), NotRun> {
        let CrossAttention { heads, head_dim, .. } = attention;
        if heads == 0 || head_dim == 0 || !head_dim.is_multiple_of(2) {
            return Err(NotRun::new(format!("`{path}` has {heads} heads of {head_dim} elements")));
        }
        if self.architecture.audio_encoder().is_none() {
            return Err(NotRun::new(format!("`{path}` looks at an encoder that is not there")));
        }
        let inner = heads.saturating_mul(head_dim);
        self.matrix(&format!("{path}.q"), &[inner], self.hidden())?;
        self.matrix(&format!("{path}.kv"), &[inner, inner], self.hidden())?;
        self.matrix(&format!("{path}.output"), &[self.hidden()], inner)
    }

    fn attention(&self, path: &str, attention: &Attention) -> Result<(), NotRun> {
        let Attention { heads, kv_heads, head_dim, .. } = *attention;
        if kv_heads == 0 || !heads.is_multiple_of(kv_heads) || head_dim == 0 || !head_dim.is_multiple_of(2) {
            let why =
                format!("`{path}` has {heads} heads of {head_dim} elements, {kv_heads} of keys and values");
            return Err(NotRun::new(why));
        }
        let fits = |dims: &u64| *dims > 0 && *dims <= head_dim && dims.is_multiple_of(2);
        if let Some(dims) = attention.rope.as_ref().map(|rope| rope.dims).filter(|dims| !fits(dims)) {
            return Err(NotRun::new(format!("`{path}` rotates {dims} of {head_dim} elements of a head")));
        }
        let q = heads.saturating_mul(head_dim);
        let kv = kv_heads.saturating_mul(head_dim);
        let parts = [q, kv, kv, q];
        self.matrix(&format!("{path}.qkv"), &parts[..if attention.gated { 4 } else { 3 }], self.hidden())?;
        self.matrix(&format!("{path}.output"), &[self.hidden()], q)?;
        if let Some(relative) = attention.relative {
            let rows = self.extents.get(Relative::TABLE).and_then(|extents| extents.first()).copied();
            let wanted = rows.unwrap_or(0).max(relative.buckets);
            self.shape(Relative::TABLE, &[Some(wanted), Some(heads)])?;
            if relative.buckets < 4 || relative.farthest <= relative.buckets / 4 {
                return Err(NotRun::new(format!("`{path}` has addends for no distances")));
            }
        }
        let sinks = format!("{path}.sinks.weight");
        if self.extents.contains_key(&*sinks) {
            self.shape(&sinks, &[Some(heads)])?;
        }
        for (norm, all) in [("q_norm", q), ("k_norm", kv)] {
            if self.architecture.get(&format!("{path}.{norm}")).is_some() {
                let weight = format!("{path}.{norm}.weight");
                // All heads together, or each.
                self.shape(&weight, &[Some(all)]).or_else(|_| self.shape(&weight, &[Some(head_dim)]))?;
            }
        }
        Ok(())
    }

    fn feed_forward(&self, path: &str, ffn: FeedForward) -> Result<(), NotRun> {
        let down = format!("{path}.down");
        let Some(inner) = self.architecture.matrix(&down).map(|matrix| matrix.input) else {
            return Err(absent(&down));
        };
        self.matrix(&down, &[self.hidden()], inner)?;
        if ffn.gated {
            self.matrix(&format!("{path}.gate_up"), &[inner, inner], self.hidden())
        } else {
            self.matrix(&format!("{path}.up"), &[inner], self.hidden())
        }
    }

    fn latent_attention(&self, path: &str, attention: &LatentAttention) -> Result<(), NotRun> {
        let LatentAttention { heads, latent, q_latent, nope, value, .. } = *attention;
        let rope = attention.rope.dims;
        if heads == 0 || rope == 0 || !rope.is_multiple_of(2) || latent < value || nope == 0 || value == 0 {
            let why = format!(
                "`{path}` has {heads} heads of {nope} and {rope} elements, and values of {value} out of {latent}"
            );
            return Err(NotRun::new(why));
        }
        let queries = heads.saturating_mul(nope.saturating_add(rope));
        let kv_a = latent.saturating_add(rope);
        if let Some(q_latent) = q_latent {
            self.matrix(&format!("{path}.qkv_a"), &[q_latent, kv_a], self.hidden())?;
            self.shape(&format!("{path}.q_a_norm.weight"), &[Some(q_latent)])?;
            self.matrix(&format!("{path}.q_b"), &[queries], q_latent)?;
        } else {
            self.matrix(&format!("{path}.q"), &[queries], self.hidden())?;
            self.matrix(&format!("{path}.kv_a"), &[kv_a], self.hidden())?;
        }
        self.shape(&format!("{path}.kv_a_norm.weight"), &[Some(latent)])?;
        self.shape(&format!("{path}.k_b.weight"), &[Some(heads), Some(latent), Some(nope)])?;
        self.shape(&format!("{path}.v_b.weight"), &[Some(heads), Some(value), Some(latent)])?;
        self.matrix(&format!("{path}.output"), &[self.hidden()], heads.saturating_mul(value))
    }

    fn gated_delta(&self, path: &str, delta: GatedDelta) -> Result<(), NotRun> {
        let GatedDelta { key_heads, value_heads, key, value, kernel, .. } = delta;
        if key_heads == 0 || value_heads == 0 || !value_heads.is_multiple_of(key_heads) || kernel == 0 {
            let why = format!(
                "`{path}` has {key_heads} heads of keys, {value_heads} of values, and a convolution of {kernel} rows"
            );
            return Err(NotRun::new(why));
        }
        if key == 0 || value == 0 {
            return Err(NotRun::new(format!("`{path}` has keys of {key} elements and values of {value}")));
        }
        let (keys, values) = (key_heads.saturating_mul(key), value_heads.saturating_mul(value));
        let parts = [keys, keys, values, values, value_heads, value_heads];
        self.matrix(&format!("{path}.in"), &parts, self.hidden())?;
        self.shape(&format!("{path}.a_in.bias"), &[Some(value_heads)])?;
        for (conv, channels) in [("q_conv", keys), ("k_conv", keys), ("v_conv", values)] {
            self.shape(&format!("{path}.{conv}.weight"), &[Some(channels), Some(kernel)])?;
        }
        self.shape(&format!("{path}.decay.weight"), &[Some(value_heads)])?;
        self.shape(&format!("{path}.norm.weight"), &[Some(value)])?;
        self.matrix(&format!("{path}.out"), &[self.hidden()], values)
    }

    fn mixture(&self, path: &str, mixture: &Mixture) -> Result<(), NotRun> {
        let Mixture { experts, ffn, routing, .. } = *mixture;
        let (all, each) = (routing.groups, |groups: Groups| experts.checked_div(groups.all).unwrap_or(0));
        let grouped = |groups: Groups| {
            experts.is_multiple_of(groups.all.max(1))
                && (1..=groups.all).contains(&groups.used)
                && (1..=each(groups)).contains(&groups.best)
                && routing.used <= groups.used.saturating_mul(each(groups))
        };
        if !(1..=experts).contains(&routing.used) || !all.is_none_or(grouped) {
            let groups = all
                .map_or_else(String::new, |Groups { all, used, .. }| format!(" in {used} of {all} groups"));
            let why = format!("`{path}` sends a token to {} of {experts} experts{groups}", routing.used);
            return Err(NotRun::new(why));
        }
        self.matrix(&format!("{path}.router"), &[experts], self.hidden())?;
        let correction = format!("{path}.router.correction.bias");
        if self.extents.contains_key(&*correction) {
            self.shape(&correction, &[Some(experts)])?;
        }
        let (stack, hidden) = (Some(experts), Some(self.hidden()));
        for name in ["gate", "up"] {
            self.shape(&format!("{path}.experts.{name}.weight"), &[stack, Some(ffn), hidden])?;
        }
        self.shape(&format!("{path}.experts.down.weight"), &[stack, hidden, Some(ffn)])
    }

    /// Checks the matrix that the module at `path` holds: output features of its parts, which may be one that is fused, and
    /// input features.
    fn matrix(&self, path: &str, outs: &[u64], input: u64) -> Result<(), NotRun> {
        let Some(MatrixNames { parts, input: found }) = self.architecture.matrix(path) else {
            return Err(absent(path));
        };
        let sum = |outs: &[u64]| outs.iter().copied().fold(0, u64::saturating_add);
        let rows: Vec<u64> = parts.iter().map(|part| part.1).collect();
        let (all, wanted) = (sum(&rows), sum(outs));
        if (all, *found) != (wanted, input) {
            return Err(NotRun::new(format!("`{path}` is [{all}, {found}], wanted [{wanted}, {input}]")));
        }
        if rows.len() == 1 || rows == outs {
            return Ok(());
        }
        Err(NotRun::new(format!("`{path}` has parts of {rows:?} rows, wanted {outs:?}")))
    }

    /// Checks the extents of the parameter called `name`, where they are given.
    fn shape(&self, name: &str, wanted: &[Option<u64>]) -> Result<(), NotRun> {
        let Some(found) = self.extents.get(name) else { return Err(absent(name)) };
        let fits = found.len() == wanted.len()
            && found.iter().zip(wanted).all(|(found, wanted)| wanted.is_none_or(|wanted| wanted == *found));
        if fits {
            return Ok(());
        }
        let wanted = wanted.iter().map(|n| n.map_or("any".to_owned(), |n| n.to_string()));
        let wanted = wanted.collect::<Vec<_>>().join(", ");
        Err(NotRun::new(format!("`{name}` is {found:?}, wanted [{wanted}]")))
    }
}

fn absent(name: &str) -> NotRun {
    NotRun::new(format!("no module owns `{name}`"))
}
