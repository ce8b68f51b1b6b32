//! The state that vLLM's loader `sharded_state` expects in the files of a rank.
//!
//! It wants the whole state of the modules, and nothing else: each storage once, under the first of its names in the order of the
//! alphabet (`ShardedStateLoader._filter_subtensors`), and the scales of attention's cache, which a checkpoint need not have.
//!
//! Source: vllm/model_executor/model_loader/sharded_state_loader.py, v0.33.0; golden/vllm_stages.json lists what it
//! expects of each family.

use tensor::Template;

/// How the state of a family's modules differs from the parameters of its layers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardedState {
    /// Where attention is, and what has the scales of its cache there.
    pub(crate) attention: &'static [(&'static str, &'static str)],
    /// Modules that are part of two others: the parameters' names in the layers, and their names in the other module,
    /// which comes first.
    pub(crate) first: &'static [(&'static str, &'static str)],
}

impl ShardedState {
    /// The state of decoders after Llama.
    pub(crate) const DECODER: ShardedState =
        ShardedState { attention: &[("model.layers.{n}.self_attn.{rest..}", "attn")], first: &[] };

    /// The name in the state of what a layer calls each of `names`.
    pub(crate) fn names(&self, names: &mut [&mut String]) {
        let parsed =
            |(from, to): &(&str, &str)| Some((Template::parse(from).ok()?, Template::parse(to).ok()?));
        let first: Vec<(Template, Template)> = self.first.iter().filter_map(parsed).collect();
        for name in names {
            let found = first.iter().find_map(|(from, to)| {
                let captures = from.captures(name)?;
                to.fill(|hole| captures.iter().find(|(of, _)| *of == hole).map(|(_, value)| *value))
            });
            if let Some(found) = found {
                **name = found;
            }
        }
    }

    /// The modules with attention, given all parameters of a rank by name.
    pub(crate) fn attention<'a>(&self, names: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
        let mut modules = vec![];
        for (template, own) in self.attention {
            let Ok(template) = Template::parse(template) else { continue };
            for name in names.clone() {
                let Some(captures) = template.captures(name) else { continue };
                let rest = captures.last().map_or(0, |(_, rest)| rest.len());
                let module = format!("{}{own}", &name[..name.len() - rest]);
                if !modules.contains(&module) {
                    modules.push(module);
                }
            }
        }
        modules
    }
}
