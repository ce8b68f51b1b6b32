//! The layout of the modules themselves.

use std::collections::HashSet;

use tensor::{Expr, OneWay, RopeOrder, Target};

use super::{Layout, Param, RuntimeLayout};
use crate::Model;

/// The parameters of a model's modules, under their own names, encoded as stored.
#[derive(Debug)]
pub struct Modules;

impl Layout for Modules {
    fn name(&self) -> &'static str {
        "modules"
    }

    fn targets(&self, model: &Model, params: &[Param]) -> Result<RuntimeLayout, OneWay> {
        let there: HashSet<&str> = params.iter().map(|p| p.name.as_str()).collect();
        let mut targets = Vec::with_capacity(params.len());
        for held in model.tree().held() {
            let parts = held.parts();
            if parts.iter().all(|part| there.contains(part)) {
                targets.push(Target { name: held.name.clone(), expr: held.expr.clone(), scheme: None });
            } else {
                // Parts that cannot be fused because one is missing stay apart.
                let alone = parts.iter().filter(|part| there.contains(**part));
                let target = |part: &&str| Target {
                    name: (*part).to_owned(),
                    expr: Expr::source(*part),
                    scheme: None,
                };
                targets.extend(alone.map(target));
            }
        }
        Ok(RuntimeLayout::of_all(targets, RopeOrder::Half))
    }
}
