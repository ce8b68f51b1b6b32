//! A mesh of ranks, and what each of them holds of a model.
//!
//! Ranks are counted as in `torch.distributed`: tensor-parallel neighbours are next to each other, then expert-parallel
//! groups, then the stages of a pipeline.

use std::fmt;
use std::ops::Range;

use tensor::{Expr, Shape};

use crate::param::{Along, Axis, ParamSpec, PipelinePlace};

/// How many ranks there are along each dimension of a mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mesh {
    /// Ranks that share each layer.
    pub tp: u64,
    /// Stages that the layers are dealt to.
    pub pp: u64,
    /// Groups that the experts are dealt to.
    pub ep: u64,
    /// How experts are dealt out.
    pub experts: ExpertPlacement,
    /// The ranks that share a layer hold whole experts instead of shares of each: vLLM's expert parallelism.
    pub whole_experts: bool,
}

impl fmt::Display for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = [("tp", self.tp), ("pp", self.pp), ("ep", self.ep)];
        let many: Vec<String> =
            sizes.iter().filter(|(_, n)| *n != 1).map(|(of, n)| format!("{of} {n}")).collect();
        f.write_str(if many.is_empty() { "one rank" } else { "" })?;
        f.write_str(&many.join(" × "))?;
        match self.experts {
            ExpertPlacement::RoundRobin if self.ep != 1 => f.write_str(", experts dealt in turn")?,
            _ => {}
        }
        f.write_str(if self.whole_experts { ", whole experts" } else { "" })
    }
}

/// How experts are dealt to expert-parallel groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpertPlacement {
    /// Neighbours together: group 0 has the first.
    #[default]
    Linear,
    /// One after the other, as cards are.
    RoundRobin,
}

/// One rank of a mesh, by its coordinates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rank {
    /// In its tensor-parallel group.
    pub tp: u64,
    /// Its stage.
    pub pp: u64,
    /// Its group of experts.
    pub ep: u64,
}

/// Which stages hold what comes before and after the layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ends {
    /// The first and the last.
    #[default]
    Own,
    /// All, though it is used there alone.
    Everywhere,
}

/// The shares of ranks, where layouts differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// The vocabulary is padded with zeros to a multiple of this many rows, also on a single rank.
    pub vocab: Option<u64>,
    /// All ranks hold what is added once to a sum over ranks; else the first does.
    pub once_everywhere: bool,
    /// Which stages hold what comes before and after the layers.
    pub ends: Ends,
}

/// Rows that a vocabulary is padded to where ranks share it.
///
/// Source: vllm/model_executor/layers/vocab_parallel_embedding.py, `DEFAULT_VOCAB_PADDING_SIZE`.
pub const VOCAB_PADDING: u64 = 64;

/// The share of a rank in a canonical parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// Its shape there.
    pub shape: Shape,
    /// How it is cut out of the canonical parameter, which is the source under its own name.
    pub expr: Expr,
}

/// A parameter cannot be shared as a mesh wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undivided {
    /// The parameter.
    pub name: String,
    /// The extent that cannot be divided: `2 heads of 128`, `300 elements`.
    pub what: String,
    /// Ranks that would share it.
    pub ranks: u64,
    /// The numbers of ranks that would do.
    pub wanted: String,
}

impl Default for Mesh {
    fn default() -> Mesh {
        Mesh { tp: 1, pp: 1, ep: 1, experts: ExpertPlacement::Linear, whole_experts: false }
    }
}

impl Mesh {
    /// All ranks together; `None` if one dimension is 0, or there are more than 2²⁰.
    pub fn ranks(&self) -> Option<u64> {
        let ranks = self.tp.checked_mul(self.pp)?.checked_mul(self.ep)?;
        (1..=1 << 20).contains(&ranks).then_some(ranks)
    }

    /// The coordinates of rank `index`.
    pub fn rank(&self, index: u64) -> Rank {
        let (tp, ep) = (self.tp.max(1), self.ep.max(1));
        Rank { tp: index % tp, ep: index / tp % ep, pp: index / tp / ep }
    }

    /// Whether there is more than one rank.
    pub fn is_many(&self) -> bool {
        [self.tp, self.pp, self.ep] != [1; 3]
    }

    /// Returns the stage that runs layer `layer` of `layers`. Layers left over after an equal division go to the stages
    /// before the last, which also computes the output.
    ///
    /// Source: vllm/distributed/utils.py, `get_pp_indices`.
    pub fn stage(&self, layer: u64, layers: u64) -> u64 {
        let (each, over) = (layers / self.pp, layers % self.pp);
        let mut end = 0;
        for stage in 0..self.pp {
            // The last but one is the first to get one more.
            let from_end = self.pp - stage;
            end += each + u64::from(from_end >= 2 && from_end < over + 2);
            if layer < end {
                return stage;
            }
        }
        self.pp - 1
    }

    /// Returns the share of a parameter that `rank` holds, in a model with `layers` layers; `None` if it holds nothing.
    ///
    /// # Errors
    /// If an axis cannot be divided.
    pub fn share(
        &self,
        spec: &ParamSpec,
        layers: u64,
        rank: Rank,
        holding: Holding,
    ) -> Result<Option<Share>, Undivided> {
        let stage = match spec.place {
            PipelinePlace::Before | PipelinePlace::After if holding.ends == Ends::Everywhere => rank.pp,
            PipelinePlace::Before => 0,
            PipelinePlace::Layer(n) => self.stage(n, layers),
            PipelinePlace::After => self.pp - 1,
        };
        if stage != rank.pp || (spec.once && rank.tp > 0 && !holding.once_everywhere) {
            return Ok(None);
        }
        let mut share = Share { shape: spec.shape(), expr: Expr::source(&spec.name) };
        let expert = spec.axes.iter().any(|a| a.axis == Axis::Expert);
        let (mesh, rank) = if self.whole_experts && expert { self.of_experts(rank) } else { (*self, rank) };
        for (i, along) in spec.axes.iter().enumerate() {
            let cut = mesh.cut(along, rank, holding).map_err(|(what, ranks, wanted)| Undivided {
                name: spec.name.clone(),
                what,
                ranks,
                wanted,
            })?;
            share = share.cut(i, along.extent, &cut);
        }
        Ok(Some(share))
    }

    /// Returns the index of each row of several regions among the concatenated rows of all ranks. It puts logits that
    /// ranks compute in order. Padding is left out.
    ///
    /// Source: vllm/model_executor/layers/vocab_parallel_embedding.py, v0.33.0, `get_sharded_to_full_mapping`.
    ///
    /// # Errors
    /// If a region cannot be divided.
    pub fn gathered(&self, regions: &[Along], holding: Holding) -> Result<Vec<u64>, Undivided> {
        let mut rows: Vec<Vec<u64>> = vec![vec![]; regions.len()];
        let mut at = 0;
        for tp in 0..self.tp {
            for (region, rows) in regions.iter().zip(&mut rows) {
                let cut = self.cut(region, Rank { tp, pp: 0, ep: 0 }, holding);
                let (range, padding) = match cut {
                    Ok(Cut::Range { range, padding }) => (range, padding),
                    Ok(_) => (0..region.extent, 0),
                    Err((what, ranks, wanted)) => {
                        return Err(Undivided { name: "the vocabulary".to_owned(), what, ranks, wanted });
                    }
                };
                let held = range.end - range.start;
                rows.extend(at..at + held);
                at += held + padding;
            }
        }
        Ok(rows.concat())
    }

    /// The mesh of whole experts: groups of them, and within each a number of ranks that would share a layer.
    fn of_experts(&self, rank: Rank) -> (Mesh, Rank) {
        let mesh = Mesh { tp: 1, ep: self.ep * self.tp, ..*self };
        (mesh, Rank { tp: 0, ep: rank.ep * self.tp + rank.tp, ..rank })
    }

    fn cut(&self, along: &Along, rank: Rank, holding: Holding) -> Result<Cut, (String, u64, String)> {
        let unit = along.unit.max(1);
        let (units, tp) = (along.extent / unit, self.tp);
        let named = match unit {
            1 => format!("{units} elements"),
            unit => format!("{units} heads of {unit}"),
        };
        let even = |ranks: u64, at: u64| {
            if units.is_multiple_of(ranks) {
                let each = units / ranks * unit;
                Ok(Cut::Range { range: at * each..(at + 1) * each, padding: 0 })
            } else {
                Err((named.clone(), ranks, format!("a divisor of {units}")))
            }
        };
        match along.axis {
            Axis::Hidden | Axis::HeadDim | Axis::Latent | Axis::Position | Axis::Whole => Ok(Cut::Whole),
            Axis::Heads | Axis::Ffn | Axis::Divided => even(tp, rank.tp),
            Axis::KvHeads if units >= tp => even(tp, rank.tp),
            Axis::KvHeads if units > 0 && tp.is_multiple_of(units) => {
                let head = rank.tp / (tp / units);
                Ok(Cut::Range { range: head * unit..(head + 1) * unit, padding: 0 })
            }
            Axis::KvHeads => Err((named, tp, format!("a divisor or a multiple of {units}"))),
            Axis::Vocab => {
                let padding = holding.vocab.or((tp > 1).then_some(VOCAB_PADDING));
                let padded =
                    padding.and_then(|to| along.extent.checked_next_multiple_of(to)).unwrap_or(along.extent);
                if !padded.is_multiple_of(tp) {
                    return Err((
                        format!("{padded} rows (with padding)"),
                        tp,
                        format!("a divisor of {padded}"),
                    ));
                }
                let each = padded / tp;
                let (start, end) = (rank.tp * each, (rank.tp + 1) * each);
                let range = start.min(along.extent)..end.min(along.extent);
                let padding = each - (range.end - range.start);
                Ok(Cut::Range { range, padding })
            }
            Axis::Expert if self.ep > along.extent => {
                Err((format!("{} experts", along.extent), self.ep, format!("at most {}", along.extent)))
            }
            Axis::Expert => Ok(self.experts(along.extent, rank.ep)),
        }
    }

    /// The experts of a group. The first groups have one more if they cannot all have as many.
    ///
    /// Source: vllm/model_executor/layers/fused_moe/layer.py, `determine_expert_map`.
    fn experts(&self, experts: u64, group: u64) -> Cut {
        let (each, over) = (experts / self.ep, experts % self.ep);
        match self.experts {
            ExpertPlacement::Linear => {
                let start = group * each + group.min(over);
                Cut::Range { range: start..start + each + u64::from(group < over), padding: 0 }
            }
            ExpertPlacement::RoundRobin => Cut::Every { first: group, step: self.ep },
        }
    }
}

/// The part of one axis that is kept.
enum Cut {
    Whole,
    /// A range of elements, followed by zeros.
    Range {
        range: Range<u64>,
        padding: u64,
    },
    /// Every `step`th element from `first` on.
    Every {
        first: u64,
        step: u64,
    },
}

impl Share {
    fn cut(self, axis: usize, extent: u64, cut: &Cut) -> Share {
        let mut shape = self.shape.to_vec();
        match cut {
            Cut::Range { range, padding } if *range != (0..extent) || *padding > 0 => {
                let kept = range.end - range.start;
                shape[axis] = *padding;
                let zeros = (*padding > 0).then(|| Expr::Zero(shape.clone().into()));
                shape[axis] = kept + padding;
                let expr =
                    if *range == (0..extent) { self.expr } else { self.expr.slice(axis, range.clone()) };
                let expr = match zeros {
                    // Also where there is nothing else: it is the padding of this parameter, in its encoding.
                    Some(zeros) => Expr::concat(axis, vec![expr, zeros]),
                    None => expr,
                };
                Share { shape: shape.into(), expr }
            }
            Cut::Every { first, step } if *step > 1 => {
                let indices = (*first..extent).step_by(usize::try_from(*step).unwrap_or(usize::MAX));
                let one = |i: u64| self.expr.clone().slice(axis, i..i + 1);
                let parts: Vec<Expr> = indices.map(one).collect();
                shape[axis] = parts.len() as u64;
                Share { shape: shape.into(), expr: Expr::concat(axis, parts) }
            }
            Cut::Whole | Cut::Range { .. } | Cut::Every { .. } => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Holding = Holding { vocab: None, once_everywhere: false, ends: Ends::Own };

    fn mesh(tp: u64, pp: u64, ep: u64) -> Mesh {
        Mesh { tp, pp, ep, ..Mesh::default() }
    }

    fn share(mesh: Mesh, index: u64, axes: &[Along]) -> Result<Share, Undivided> {
        let spec = ParamSpec { name: "w".into(), ..ParamSpec::new(crate::Role::Matrix, axes) };
        mesh.share(&spec, 1, mesh.rank(index), PLAIN).map(Option::unwrap)
    }

    #[test]
    fn ranks_have_coordinates() {
        let mesh = mesh(2, 3, 4);
        assert_eq!(mesh.ranks(), Some(24));
        let all: Vec<Rank> = (0..24).map(|i| mesh.rank(i)).collect();
        assert_eq!(all[0], Rank { tp: 0, pp: 0, ep: 0 });
        assert_eq!(all[3], Rank { tp: 1, pp: 0, ep: 1 });
        assert_eq!(all[23], Rank { tp: 1, pp: 2, ep: 3 });
        assert_eq!(Mesh { tp: 0, ..mesh }.ranks(), None);
        assert_eq!(Mesh { tp: u64::MAX, ..mesh }.ranks(), None);
    }

    /// The examples in vLLM's `get_pp_indices`: 5 layers on 3 stages are 1, 2, 2 … before the last takes more.
    #[test]
    fn layers_left_over_go_to_the_stages_before_the_last() {
        let counts = |layers: u64, pp: u64| {
            let mesh = mesh(1, pp, 1);
            let stages: Vec<u64> = (0..layers).map(|n| mesh.stage(n, layers)).collect();
            assert!(stages.is_sorted());
            (0..pp).map(|s| stages.iter().filter(|x| **x == s).count()).collect::<Vec<_>>()
        };
        assert_eq!(counts(5, 3), [2, 2, 1]);
        assert_eq!(counts(61, 4), [15, 15, 16, 15]);
        assert_eq!(counts(30, 4), [7, 8, 8, 7]);
        assert_eq!(counts(8, 1), [8]);
    }

    #[test]
    fn heads_are_divided_and_the_few_repeated() {
        let q =
            |tp, i| share(mesh(tp, 1, 1), i, &[Axis::Heads.of_units(8, 16), Axis::Hidden.of(64)]).unwrap();
        assert_eq!(q(4, 3).expr, Expr::source("w").slice(0, 96..128));
        assert_eq!(q(1, 0).expr, Expr::source("w"));
        let kv = |tp, i| share(mesh(tp, 1, 1), i, &[Axis::KvHeads.of_units(2, 16), Axis::Hidden.of(64)]);
        assert_eq!(kv(8, 3).unwrap().expr, Expr::source("w").slice(0, 0..16));
        assert_eq!(kv(8, 4).unwrap().expr, Expr::source("w").slice(0, 16..32));
        assert_eq!(*kv(8, 4).unwrap().shape, [16, 64]);
        let why = kv(3, 0).unwrap_err();
        assert_eq!(
            (why.what.as_str(), why.wanted.as_str()),
            ("2 heads of 16", "a divisor or a multiple of 2")
        );
    }

    #[test]
    fn a_vocabulary_is_padded_with_zeros() {
        let rows = |tp, i| share(mesh(tp, 1, 1), i, &[Axis::Vocab.of(130), Axis::Hidden.of(8)]).unwrap();
        assert_eq!(rows(1, 0).expr, Expr::source("w"));
        assert_eq!(rows(2, 0).expr, Expr::source("w").slice(0, 0..96));
        let end = Expr::concat(0, vec![Expr::source("w").slice(0, 96..130), Expr::Zero([62, 8].into())]);
        assert_eq!(rows(2, 1).expr, end);
        let nothing = Expr::source("w").slice(0, 130..130);
        assert_eq!(rows(8, 7).expr, Expr::concat(0, vec![nothing, Expr::Zero([24, 8].into())]));
    }

    #[test]
    fn experts_are_dealt_out() {
        let axes = [Axis::Expert.of(10), Axis::Ffn.of(32), Axis::Hidden.of(8)];
        let linear = |i| share(mesh(2, 1, 4), i, &axes).unwrap();
        assert_eq!(linear(0).expr, Expr::source("w").slice(0, 0..3).slice(1, 0..16));
        assert_eq!(*linear(7).shape, [2, 16, 8]);
        let dealt = Mesh { experts: ExpertPlacement::RoundRobin, ..mesh(1, 1, 4) };
        let one = |i: u64| Expr::source("w").slice(0, i..i + 1);
        assert_eq!(share(dealt, 1, &axes).unwrap().expr, Expr::concat(0, vec![one(1), one(5), one(9)]));
        assert_eq!(*share(dealt, 3, &axes).unwrap().shape, [2, 32, 8]);
        let whole = Mesh { whole_experts: true, ..mesh(2, 1, 2) };
        assert_eq!(share(whole, 3, &axes).unwrap().expr, Expr::source("w").slice(0, 8..10));
    }

    #[test]
    fn what_is_added_once_is_held_once() {
        let spec = ParamSpec { once: true, ..ParamSpec::vector(Axis::Hidden.of(8)) };
        let held = |i: u64, once_everywhere| {
            let mesh = mesh(2, 1, 1);
            let holding = Holding { once_everywhere, ..PLAIN };
            mesh.share(&spec, 1, mesh.rank(i), holding).unwrap().is_some()
        };
        assert_eq!([held(0, false), held(1, false), held(1, true)], [true, false, true]);
    }

    #[test]
    fn ends_are_held_by_the_first_and_the_last_stage_or_by_all() {
        let held = |place, ends| -> Vec<bool> {
            let spec = ParamSpec { place, ..ParamSpec::vector(Axis::Hidden.of(8)) };
            let share = |stage| {
                let rank = Rank { pp: stage, ..Rank::default() };
                mesh(1, 3, 1).share(&spec, 3, rank, Holding { ends, ..PLAIN }).unwrap()
            };
            (0..3).map(|stage| share(stage).is_some()).collect()
        };
        assert_eq!(held(PipelinePlace::Before, Ends::Own), [true, false, false]);
        assert_eq!(held(PipelinePlace::After, Ends::Own), [false, false, true]);
        assert_eq!(held(PipelinePlace::Layer(1), Ends::Everywhere), [false, true, false]);
        for place in [PipelinePlace::Before, PipelinePlace::After] {
            assert_eq!(held(place, Ends::Everywhere), [true; 3]);
        }
    }
}
