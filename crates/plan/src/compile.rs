//! Stage 2: lowers the runtime's targets to pieces, and proves that each slot is covered.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;

use tensor::{Dtype, Expr, FileId, PlaneData, Scheme, Shape, Step, Target, TensorEntry, nearest};

use crate::budget::{Budget, PARAM_STEPS, PLAN_STEPS};
use crate::codecs::{Codecs, Fidelity};
use crate::diagnose::{Tries, diagnose};
use crate::lower::lower_within;
use crate::piece::PlannedPlane;
use crate::problem::{Blame, Problem, Problems};
use crate::prove::{STEPS, Unproven, prove_within};
use crate::resolve::{Absent, Resolved, ResolvedParam, misfit, scheme_of, too_deep};
use crate::shapes::{shallow, shape_of};
use crate::sources::Sources;
use crate::steps::{Sunk, after, apply, effective, hoist, sink};

/// Refusals of different kinds that are looked into; the others are only stated.
const DIAGNOSES: usize = 64;

/// The work that fills every slot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadPlan {
    /// In the order of the targets.
    pub params: Vec<PlannedParam>,
    /// Entries that no parameter is made from, and why that is right.
    pub dropped: Vec<(String, String)>,
    /// Canonical parameters that no target takes: another rank's, or one that this runtime has no use for.
    pub unplaced: Vec<String>,
    /// Parameters that are not there, and may be absent.
    pub absent: Vec<Absent>,
}

/// One runtime parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedParam {
    /// The runtime's name.
    pub name: String,
    /// Logical shape.
    pub shape: Shape,
    /// How it is held in its slot.
    pub scheme: Arc<Scheme>,
    /// The scheme that movement yields: the same as `scheme` if there are no steps that re-encode.
    pub moved: Arc<Scheme>,
    /// The steps after movement, in order. Empty: movement goes straight into the slot.
    pub steps: Vec<Step>,
    /// One for each step.
    pub step_fidelity: Vec<Fidelity>,
    /// Of all steps together.
    pub fidelity: Fidelity,
    /// The planes of `moved`. Empty for an alias.
    pub planes: Vec<PlannedPlane>,
    /// Index of the earlier parameter whose slot this one shares.
    pub tied_to: Option<usize>,
    /// Each plane begins in memory at a multiple of this many bytes, a power of two, beside what its elements want.
    pub align: u64,
    /// Entries that must be decoded or encoded before they can be moved, each as a parameter of its own. If there are any,
    /// the pieces of `planes` come from these, by their place here, and not from entries.
    pub staged: Vec<PlannedParam>,
    /// Movement over entry names.
    pub expr: Expr,
}

impl LoadPlan {
    /// The parameter called `name`, with its index.
    pub fn find(&self, name: &str) -> Option<(usize, &PlannedParam)> {
        self.params.iter().enumerate().find(|(_, p)| p.name == name)
    }
}

impl PlannedParam {
    /// Bytes of its slot.
    pub fn slot_bytes(&self) -> u64 {
        // Checked when the plan was made.
        self.scheme.byte_len(&self.shape).unwrap_or(0)
    }

    /// The planes whose pieces come from entries.
    pub fn from_entries(&self) -> impl Iterator<Item = &PlannedPlane> {
        let own = if self.staged.is_empty() { &self.planes[..] } else { &[] };
        own.iter().chain(self.staged.iter().flat_map(|staged| &staged.planes))
    }

    /// How what it is made of is stored.
    pub fn stored(&self) -> impl Iterator<Item = &Arc<Scheme>> {
        let own = self.staged.is_empty().then_some(&self.moved);
        own.into_iter().chain(self.staged.iter().map(|s| &s.moved))
    }

    /// Whether every plane can be borrowed from a map and nothing is left to do.
    pub fn borrowable(&self) -> bool {
        self.tied_to.is_none()
            && self.steps.is_empty()
            && self.staged.is_empty()
            && self.planes.iter().all(|p| p.borrowable().is_some())
    }
}

/// Lowers `targets`, over the parameters of `resolved`, to pieces of `entries`, and proves that these write
/// every byte of every slot exactly once.
///
/// # Errors
/// Every problem at once: unknown names, expressions that do not fit, movement that would break a cell,
/// re-encodings that no codec does.
pub fn compile(
    entries: &[TensorEntry],
    resolved: &Resolved,
    targets: &[Target],
    codecs: &dyn Codecs,
) -> Result<LoadPlan, Problems> {
    let mut compiler = Compiler {
        sources: Sources::new(entries),
        absent: resolved.absent.iter().map(|a| a.param.as_str()).collect(),
        canonical: resolved.params.iter().map(|p| (p.name.as_str(), p)).collect(),
        roots: resolved.params.iter().filter_map(|p| p.tied_to.as_deref()).collect(),
        codecs,
        left: PLAN_STEPS,
        diagnoses: HashMap::new(),
    };
    let (mut params, mut problems, mut seen) = (Vec::<PlannedParam>::new(), vec![], HashSet::new());
    let mut linked: Vec<(Expr, usize)> = vec![];
    for target in targets {
        if !seen.insert(target.name.as_str()) {
            problems.push(Problem::Duplicate { what: "target", name: target.name.clone() });
            continue;
        }
        let link = compiler.link(&target.expr);
        let alias = |param: &PlannedParam, params: &[PlannedParam]| {
            let link = link.as_ref()?;
            linked.iter().find(|(e, i)| e == link && params[*i].scheme == param.scheme).map(|(_, i)| *i)
        };
        match compiler.target(target, |param| alias(param, &params)) {
            Ok(param) => {
                if let Some(link) = link.filter(|_| param.tied_to.is_none()) {
                    linked.push((link, params.len()));
                }
                params.push(param);
            }
            Err(problem) => problems.push(problem),
        }
    }
    Problems::none(problems)?;
    let mut placed = HashSet::new();
    for target in targets {
        target.expr.for_each_source(&mut |n| {
            placed.insert(n);
        });
    }
    let unplaced = resolved.params.iter().filter(|p| !placed.contains(p.name.as_str()));
    let unplaced = unplaced.map(|p| p.name.clone()).collect();
    Ok(LoadPlan { params, dropped: resolved.dropped.clone(), unplaced, absent: resolved.absent.clone() })
}

struct Compiler<'a> {
    sources: Sources<'a>,
    canonical: HashMap<&'a str, &'a ResolvedParam>,
    /// Parameters that may be absent, and are.
    absent: HashSet<&'a str>,
    /// Parameters that others are tied to.
    roots: HashSet<&'a str>,
    codecs: &'a dyn Codecs,
    /// Steps left for the whole plan.
    left: u64,
    /// The guilty operations, by pattern of names and refusal: 30 layers fail alike.
    diagnoses: HashMap<(String, String), Problem>,
}

impl Compiler<'_> {
    /// `expr` with tied parameters called by the name that they are tied to, if ties have anything to do
    /// with it: two targets with the same such expression may share a slot.
    fn link(&self, expr: &Expr) -> Option<Expr> {
        shallow(expr).ok()?;
        let mut tied = false;
        let root = expr.substitute::<Infallible>(&mut |name| {
            let to = self.canonical.get(name).and_then(|p| p.tied_to.as_deref());
            tied |= to.is_some() || self.roots.contains(name);
            Ok(Cow::Owned(Expr::source(to.unwrap_or(name))))
        });
        root.ok().filter(|_| tied)
    }

    fn target(
        &mut self,
        target: &Target,
        alias: impl FnOnce(&PlannedParam) -> Option<usize>,
    ) -> Result<PlannedParam, Problem> {
        let name = || target.name.clone();
        shallow(&target.expr).map_err(|why| too_deep(&target.name, why))?;
        let expr = target.expr.substitute(&mut |n| {
            let param = self.canonical.get(n).ok_or_else(|| {
                if self.absent.contains(n) {
                    return Problem::Torn { param: name(), absent: n.into() };
                }
                let near = nearest(n, self.canonical.keys().copied()).map(str::to_string);
                Problem::Unknown { param: name(), name: n.into(), nearest: near }
            })?;
            Ok(match &param.steps[..] {
                [] => Cow::Borrowed(&param.expr),
                steps => Cow::Owned(apply(param.expr.clone(), steps)),
            })
        })?;
        let canonical = |n: &str| self.canonical.get(n).map(|p| p.shape.clone());
        let shape = shape_of(&target.expr, &canonical).map_err(|why| {
            let mut sources = vec![];
            target.expr.for_each_source(&mut |n| sources.extend(canonical(n).map(|s| (n.to_string(), s))));
            Problem::Expression { param: name(), sources, why, blame: Blame::Misuse }
        })?;
        shallow(&expr).map_err(|why| too_deep(&target.name, why))?;
        let hoisted = match hoist(&expr) {
            Ok(hoisted) => hoisted,
            // Some of the parts are stored in what others are encoded to: each becomes that, and then they are moved.
            Err(clash) => {
                let sunk = sink(&expr).and_then(|sunk| self.encoding(target, &shape, sunk));
                return sunk.ok_or_else(|| Problem::Steps { param: name(), clash });
            }
        };
        let movement = hoisted.movement;
        shape_of(&movement, &|n| self.sources.shape(n))
            .map_err(|why| misfit(&target.name, &movement, &self.sources, why))?;

        let anew = target.scheme.is_some() || hoisted.steps.iter().any(|s| matches!(s, Step::To(_)));
        let direct = self.moving(target, &shape, movement.clone(), hoisted.steps.clone(), alias);
        match direct {
            // A tensor that cannot be moved as stored is decoded first, if it is re-encoded anyway.
            Err(problem @ (Problem::Mixed { .. } | Problem::Movement { .. })) if anew => {
                let decoded = self.decoding(target, &shape, movement, hoisted.steps);
                Ok(decoded.map_err(|_| problem)?)
            }
            direct => direct,
        }
    }

    /// Moved as it is stored, and changed then.
    fn moving(
        &mut self,
        target: &Target,
        shape: &Shape,
        movement: Expr,
        steps: Vec<Step>,
        alias: impl FnOnce(&PlannedParam) -> Option<usize>,
    ) -> Result<PlannedParam, Problem> {
        let (moved, planes) = self.moved(target, &movement, &steps)?;
        let mut param = self.param(target, shape, movement, moved, steps)?;
        if let Some(earlier) = alias(&param) {
            param.tied_to = Some(earlier);
            return Ok(param);
        }
        param.planes = planes;
        self.prove(&target.name, &param.planes)?;
        Ok(param)
    }

    /// Decoded to f32 entry by entry, moved then, and encoded. Of each entry, the rows that are used.
    fn decoding(
        &mut self,
        target: &Target,
        shape: &Shape,
        movement: Expr,
        steps: Vec<Step>,
    ) -> Result<PlannedParam, Problem> {
        let float = Scheme::plain(Dtype::F32);
        let mut entries: Vec<TensorEntry> = vec![];
        let mut names = HashSet::new();
        let mut problem = None;
        movement.for_each_source(&mut |name| {
            let Some((_, entry)) = self.sources.find(name).filter(|_| names.insert(name)) else { return };
            match float.byte_len(&entry.shape) {
                Ok(bytes) => entries.push(TensorEntry {
                    name: name.to_owned(),
                    shape: entry.shape.clone(),
                    scheme: Arc::clone(&float),
                    planes: vec![PlaneData { file: FileId(0), bytes: 0..bytes }],
                    strides: None,
                }),
                Err(why) => {
                    problem.get_or_insert(Problem::Encoding {
                        param: target.name.clone(),
                        from: Arc::clone(&entry.scheme),
                        to: Arc::clone(&float),
                        why: Some((entry.shape.clone(), why)),
                    });
                }
            }
        });
        if let Some(problem) = problem {
            return Err(problem);
        }
        let mut param = self.param(target, shape, movement, float, steps)?;
        let mut budget = Budget::new(PARAM_STEPS.min(self.left));
        let planes = lower_within(&param.expr, &Sources::new(&entries), &param.moved, &mut budget);
        self.left -= budget.spent();
        param.planes =
            planes.map_err(|_| Problem::TooFine { param: target.name.clone(), limit: PARAM_STEPS })?;
        self.prove(&target.name, &param.planes)?;
        for index in 0..entries.len() {
            self.stage(&mut param, &entries, index, &[])?;
        }
        Ok(param)
    }

    /// Encoded entry by entry, each as its own steps say, and moved then; `None` if they do not all end in one encoding, or
    /// cannot be moved in that.
    fn encoding(&mut self, target: &Target, shape: &Shape, sunk: Sunk) -> Option<PlannedParam> {
        let mut entries: Vec<TensorEntry> = vec![];
        for (name, steps) in &sunk.sources {
            let (_, entry) = self.sources.find(name)?;
            let scheme = after(&entry.scheme, steps);
            let mut end = 0;
            let planes = scheme.planes.iter().map(|plane| {
                let start = end;
                end += scheme.plane_bytes(plane, &entry.shape).ok()?;
                Some(PlaneData { file: FileId(0), bytes: start..end })
            });
            let planes = planes.collect::<Option<_>>()?;
            let (name, shape) = (name.clone(), entry.shape.clone());
            entries.push(TensorEntry { name, shape, scheme, planes, strides: None });
        }
        let moved = Arc::clone(&entries.first()?.scheme);
        if entries.iter().any(|entry| entry.scheme != moved) {
            return None;
        }
        let mut param = self.param(target, shape, sunk.movement, moved, vec![]).ok()?;
        let mut budget = Budget::new(PARAM_STEPS.min(self.left));
        let planes = lower_within(&param.expr, &Sources::new(&entries), &param.moved, &mut budget);
        self.left -= budget.spent();
        param.planes = planes.ok()?;
        self.prove(&target.name, &param.planes).ok()?;
        for (index, (_, steps)) in sunk.sources.iter().enumerate() {
            self.stage(&mut param, &entries, index, steps).ok()?;
        }
        let steps = param.staged.iter().flat_map(|staged| &staged.step_fidelity).chain(&param.step_fidelity);
        param.fidelity = together(&steps.cloned().collect::<Vec<_>>());
        Some(param)
    }

    /// Stages the entry at `index` of `entries`, made by `steps` from an entry of the checkpoint before `param` is
    /// moved: the rows that are used, or all rows if these cannot be read alone.
    fn stage(
        &mut self,
        param: &mut PlannedParam,
        entries: &[TensorEntry],
        index: usize,
        steps: &[Step],
    ) -> Result<(), Problem> {
        let entry = &entries[index];
        let name = &*entry.name;
        let whole = 0..entry.shape.first().copied().unwrap_or(1);
        let own = self.sources.find(name).map_or(&entry.scheme, |(_, e)| &e.scheme).clone();
        let mut one = |rows: &Range<u64>| {
            let (mut shape, mut expr) = (entry.shape.to_vec(), Expr::source(name));
            if *rows != whole {
                shape[0] = rows.end - rows.start;
                expr = expr.slice(0, rows.clone());
            }
            let shape = Shape::from(shape);
            let target = Target { name: name.to_owned(), expr, scheme: Some(Arc::clone(&entry.scheme)) };
            let (movement, steps) = (target.expr.clone(), steps.to_vec());
            let mut staged = self.param(&target, &shape, movement, Arc::clone(&own), steps)?;
            staged.planes = self.lower(name, &staged.expr, &staged.moved)?;
            self.prove(name, &staged.planes)?;
            Ok(staged)
        };
        let used = rows_used(index, entry, &param.planes);
        let (staged, first) = match one(&used) {
            Ok(staged) => (staged, used.start),
            Err(_) if used != whole => (one(&whole)?, 0),
            Err(problem) => return Err(problem),
        };
        param.staged.push(staged);
        for piece in param.planes.iter_mut().flat_map(|p| p.copy.iter_mut().chain(&mut p.equal)) {
            if let Some(source) = piece.source.filter(|source| source.entry == index) {
                piece.source_offset -= row_bytes(entry, source.plane).unwrap_or(0) * first;
            }
        }
        Ok(())
    }

    /// A parameter that movement yields in `moved`, without its planes.
    fn param(
        &self,
        target: &Target,
        shape: &Shape,
        movement: Expr,
        moved: Arc<Scheme>,
        steps: Vec<Step>,
    ) -> Result<PlannedParam, Problem> {
        let mut steps = effective(&moved, steps);
        if let Some(to) = &target.scheme
            && *to != after(&moved, &steps)
        {
            steps.push(Step::To(Arc::clone(to)));
        }
        let mut step_fidelity = self.fidelities(target, shape, &moved, &steps)?;
        if movement.is_constant() && is_small(&steps) {
            step_fidelity.fill(Fidelity::Exact);
        }
        Ok(PlannedParam {
            name: target.name.clone(),
            scheme: after(&moved, &steps),
            shape: shape.clone(),
            moved,
            steps,
            fidelity: together(&step_fidelity),
            step_fidelity,
            planes: vec![],
            tied_to: None,
            align: 1,
            staged: vec![],
            expr: movement,
        })
    }

    fn prove(&mut self, name: &str, planes: &[PlannedPlane]) -> Result<(), Problem> {
        for plane in planes {
            let steps = STEPS.min(self.left);
            let left = prove_within(plane, steps).map_err(|why| match why {
                Unproven::TooFine => Problem::TooFine { param: name.into(), limit: steps },
                Unproven::Uncovered { .. } => {
                    Problem::Unproven { param: name.into(), plane: plane.role, why }
                }
            })?;
            self.left -= steps - left;
        }
        Ok(())
    }

    /// The scheme that movement yields, and its planes.
    fn moved(
        &mut self,
        target: &Target,
        movement: &Expr,
        steps: &[Step],
    ) -> Result<(Arc<Scheme>, Vec<PlannedPlane>), Problem> {
        let found = scheme_of(movement, &self.sources);
        let goal = match steps {
            [] => target.scheme.as_ref(),
            [Step::To(first), ..] => Some(first),
            [Step::Add(_) | Step::Apply(_) | Step::By(_), ..] => None,
        };
        // Straight into another scheme, if its cells mean the same.
        if let Some(goal) = goal.filter(|g| found.as_ref().ok().and_then(Option::as_ref) != Some(g)) {
            let mut same = true;
            movement.for_each_source(&mut |n| {
                let from = self.sources.find(n).map(|(_, e)| &e.scheme);
                same &= from.is_some_and(|f| f == goal || self.codecs.same_cells(f, goal));
            });
            if same {
                match self.lowered(&target.name, movement, goal) {
                    Ok(moved) => return Ok(moved),
                    // A codec may still do it.
                    Err(problem) if !matches!(found, Ok(Some(_))) => return Err(problem),
                    Err(_) => {}
                }
            }
        }
        match found {
            Ok(scheme) => {
                let scheme = scheme.unwrap_or_else(|| Scheme::plain(Dtype::F32));
                self.lowered(&target.name, movement, &scheme)
            }
            Err(parts) => Err(Problem::Mixed { param: target.name.clone(), parts }),
        }
    }

    /// The planes of `expr` in `scheme`; or in the one like it in which each row has a scale, if parts cannot share one.
    fn lowered(
        &mut self,
        param: &str,
        expr: &Expr,
        scheme: &Arc<Scheme>,
    ) -> Result<(Arc<Scheme>, Vec<PlannedPlane>), Problem> {
        let problem = match self.lower(param, expr, scheme) {
            Ok(planes) => return Ok((Arc::clone(scheme), planes)),
            Err(problem) => problem,
        };
        let rows = self.codecs.by_row(scheme).ok_or_else(|| problem.clone())?;
        let planes = self.lower(param, expr, &rows).map_err(|_| problem)?;
        Ok((rows, planes))
    }

    fn lower(
        &mut self,
        param: &str,
        expr: &Expr,
        scheme: &Arc<Scheme>,
    ) -> Result<Vec<PlannedPlane>, Problem> {
        let mut budget = Budget::new(PARAM_STEPS.min(self.left));
        let lowered = lower_within(expr, &self.sources, scheme, &mut budget);
        self.left -= budget.spent();
        lowered.map_err(|refusal| {
            let key = (tensor::Pattern::of(param).to_string(), format!("{scheme} {refusal:?}"));
            let tries = if self.diagnoses.len() < DIAGNOSES { Tries::STEPS } else { 0 };
            let known = self.diagnoses.get(&key).cloned();
            let mut problem =
                known.unwrap_or_else(|| diagnose(param, expr, &self.sources, scheme, refusal, tries));
            if let Problem::Movement { param: p, .. } | Problem::TooFine { param: p, .. } = &mut problem {
                *p = param.into();
            }
            self.diagnoses.insert(key, problem.clone());
            problem
        })
    }

    fn fidelities(
        &self,
        target: &Target,
        shape: &Shape,
        moved: &Arc<Scheme>,
        steps: &[Step],
    ) -> Result<Vec<Fidelity>, Problem> {
        let mut now = Arc::clone(moved);
        let mut out = vec![];
        for step in steps {
            let to = match step {
                Step::To(to) => to,
                Step::By(stage) => {
                    let refuse = |why| Problem::Stage {
                        param: target.name.clone(),
                        stage: stage.name().to_owned(),
                        why,
                    };
                    stage.fits(shape).map_err(refuse)?;
                    stage.gives().byte_len(shape).map_err(|why| refuse(why.to_string()))?;
                    out.push(stage.loses().map_or(Fidelity::Exact, Fidelity::Lossy));
                    now = stage.gives();
                    continue;
                }
                Step::Apply(function) => {
                    out.push(Fidelity::Lossy(format!("{function}(w) is rounded to f32")));
                    continue;
                }
                Step::Add(n) => {
                    let sum = if *n < 0 { format!("w - {}", n.unsigned_abs()) } else { format!("{n} + w") };
                    out.push(Fidelity::Lossy(format!("{sum} is rounded to f32")));
                    continue;
                }
            };
            let refuse = |why| Problem::Encoding {
                param: target.name.clone(),
                from: Arc::clone(&now),
                to: Arc::clone(to),
                why,
            };
            to.byte_len(shape).map_err(|why| refuse(Some((shape.clone(), why))))?;
            out.push(self.codecs.fidelity(&now, to).ok_or_else(|| refuse(None))?);
            now = Arc::clone(to);
        }
        Ok(out)
    }
}

/// Bytes of a row of the first axis in a plane of an entry; `None` if rows do not lie one after the other there.
fn row_bytes(entry: &TensorEntry, plane: usize) -> Option<u64> {
    let rows = entry.shape.first().copied().filter(|rows| *rows > 0)?;
    let bytes = entry.planes.get(plane).map(|plane| plane.bytes.end - plane.bytes.start)?;
    let (mut shape, spec) = (entry.shape.to_vec(), entry.scheme.planes.get(plane)?);
    shape[0] = 1;
    let row = entry.scheme.plane_bytes(spec, &shape.into()).ok()?;
    (row > 0 && row.checked_mul(rows) == Some(bytes)).then_some(row)
}

/// The first to the last row of the first axis that pieces take of the entry at `index`; all, where rows are not apart.
fn rows_used(index: usize, entry: &TensorEntry, planes: &[PlannedPlane]) -> Range<u64> {
    let whole = 0..entry.shape.first().copied().unwrap_or(1);
    let pieces = planes.iter().flat_map(|p| p.copy.iter().chain(&p.equal));
    let (mut start, mut end) = (u64::MAX, 0);
    for (piece, source) in pieces.filter_map(|p| Some((p, p.source.filter(|s| s.entry == index)?))) {
        let Some(row) = row_bytes(entry, source.plane) else { return whole };
        let last: u64 = piece.dims.iter().map(|d| (d.extent - 1) * d.source_stride).sum();
        start = start.min(piece.source_offset / row);
        end = end.max((piece.source_offset + last + piece.run).div_ceil(row));
    }
    if start >= end { whole } else { start..end }
}

/// Whether zeros after `steps` are a number that every float of 16 bits or more holds.
fn is_small(steps: &[Step]) -> bool {
    let mut sum = 0i64;
    steps.iter().all(|step| match step {
        Step::Add(n) => {
            sum += i64::from(*n);
            sum.abs() <= 256
        }
        Step::To(to) => matches!(to.dtype(), Some(Dtype::F32 | Dtype::F16 | Dtype::BF16)),
        Step::Apply(_) | Step::By(_) => false,
    })
}

/// Exact if every step is.
fn together(steps: &[Fidelity]) -> Fidelity {
    let why = |f: &Fidelity| match f {
        Fidelity::Exact => None,
        Fidelity::Lossy(why) => Some(why.clone()),
    };
    let lossy: Vec<String> = steps.iter().filter_map(why).collect();
    if lossy.is_empty() { Fidelity::Exact } else { Fidelity::Lossy(lossy.join("; ")) }
}
