//! One parameter of a plan, as text for people.

use std::fmt::Write as _;

use tensor::{Bytes, Expr, TensorEntry, counted, nearest};

use crate::budget::Budget;
use crate::codecs::Fidelity;
use crate::compile::{LoadPlan, PlannedParam};
use crate::piece::{Piece, PlannedPlane};
use crate::problem::Problem;
use crate::render::expr_text;
use crate::sources::Sources;
use crate::view::{Factor, Part, SOURCE, Side, TARGET, view};

/// Lines for parts or pieces before the rest is only counted.
const SHOWN: usize = 8;

/// Describes how `param` is made: its expression, the sources of its rows, its steps, and its pieces.
///
/// # Errors
/// [`Problem::Unknown`] if the plan has no such parameter.
pub fn explain(plan: &LoadPlan, entries: &[TensorEntry], param: &str) -> Result<String, Problem> {
    let Some((_, p)) = plan.find(param) else {
        let names = || plan.params.iter().map(|p| p.name.as_str());
        let near = made_of(plan, param).or_else(|| nearest(param, names())).map(str::to_string);
        return Err(Problem::Unknown { param: String::new(), name: param.into(), nearest: near });
    };
    let mut out = format!("{} {} {}", p.name, p.shape, p.scheme);
    if let Some(i) = p.tied_to {
        _ = write!(out, "\n  shares the slot of {}", plan.params[i].name);
        return Ok(out);
    }
    if !told_by_rows(&p.expr) {
        _ = write!(out, "\n  = {}", expr_text(&p.expr));
    }
    rows(&mut out, p, entries);
    let mut now = p.moved.name.to_string();
    for (step, fidelity) in p.steps.iter().zip(&p.step_fidelity) {
        let kind = match fidelity {
            Fidelity::Exact => "exact".to_string(),
            Fidelity::Lossy(why) => format!("lossy: {why}"),
        };
        _ = write!(out, "\n  then {now} {step} ({kind})");
        match step {
            tensor::Step::To(to) => now = to.name.to_string(),
            tensor::Step::By(stage) => now = stage.gives().name.to_string(),
            tensor::Step::Add(_) | tensor::Step::Apply(_) => {}
        }
    }
    for staged in p.staged.iter().filter(|staged| staged.moved != staged.scheme) {
        _ = write!(
            out,
            "\n  first, as it cannot be moved so: {} {} -> {}",
            staged.name, staged.moved, staged.scheme
        );
    }
    let staged: Vec<&str> = p.staged.iter().map(|s| s.name.as_str()).collect();
    let stored: Vec<&str>;
    let names = if staged.is_empty() {
        stored = entries.iter().map(|e| e.name.as_str()).collect();
        &stored
    } else {
        &staged
    };
    for plane in &p.planes {
        pieces(&mut out, p, plane, names);
    }
    Ok(out)
}

/// Whether the rows say all that there is to the expression.
fn told_by_rows(expr: &Expr) -> bool {
    match expr {
        Expr::Source(_) | Expr::Zero(_) => true,
        Expr::Concat { parts, .. } => parts.iter().all(told_by_rows),
        Expr::Slice { of, .. } => told_by_rows(of),
        _ => false,
    }
}

/// Where each part of the result comes from, in elements.
fn rows(out: &mut String, p: &PlannedParam, entries: &[TensorEntry]) {
    let sources = Sources::new(entries);
    let Ok(mut v) = view(&p.expr, &sources, &mut Budget::new(1 << 16)) else { return };
    v.parts.sort_by(|a, b| a.origin[TARGET].cmp(&b.origin[TARGET]));
    let lines: Vec<(String, String)> =
        v.parts.iter().take(SHOWN).map(|part| line(part, &p.shape, entries)).collect();
    let width = lines.iter().map(|l| l.0.len()).max().unwrap_or(0);
    for (to, from) in lines {
        _ = write!(out, "\n  {to:>width$} <- {from}");
    }
    if v.parts.len() > SHOWN {
        _ = write!(out, "\n  … {} in all", counted(v.parts.len(), "part"));
    }
}

/// Whether `p` is made of the entry `name`, directly or through a tensor that is encoded first.
fn uses(p: &PlannedParam, name: &str) -> bool {
    let mut found = false;
    p.expr.for_each_source(&mut |source| found |= source == name);
    found || p.staged.iter().any(|staged| uses(staged, name))
}

/// The first parameter that is made of the entry `name`.
fn made_of<'a>(plan: &'a LoadPlan, name: &str) -> Option<&'a str> {
    plan.params.iter().find(|p| uses(p, name)).map(|p| p.name.as_str())
}

fn line(part: &Part, shape: &tensor::Shape, entries: &[TensorEntry]) -> (String, String) {
    let to = region(part, TARGET, shape);
    let to = match (&to[..], shape.len()) {
        ("", _) => "all".to_string(),
        (to, _) if !to.contains(',') && shape.len() <= 2 => format!("rows {to}"),
        (to, _) => format!("[{to}]"),
    };
    let Some(source) = part.source else { return (to, "zeros".into()) };
    let entry = &entries[source];
    let from = region(part, SOURCE, &entry.shape);
    let from = if from.is_empty() { entry.name.clone() } else { format!("{}[{from}]", entry.name) };
    let moved = if reordered(part) { ", reordered" } else { "" };
    (to, format!("{from}{moved}"))
}

/// The box that a part spans, axis by axis; empty if it is everything.
fn region(part: &Part, side: Side, shape: &tensor::Shape) -> String {
    let span = |axis: usize| {
        let on = |f: &&Factor| f.axis[side] == axis;
        let (mut reach, mut steps) = (0, 1);
        for f in part.factors.iter().filter(on) {
            reach += (f.extent - 1) * f.stride[side];
            steps *= f.extent;
        }
        let start = part.origin[side][axis];
        let end = start + reach + 1;
        let every = if steps == reach + 1 { String::new() } else { format!(" ({steps} of {})", reach + 1) };
        (start..end, every)
    };
    let whole = |axis: &usize| span(*axis) == (0..shape[*axis], String::new());
    let Some(last) = (0..shape.len()).rev().find(|a| !whole(a)) else { return String::new() };
    let text = |axis| {
        let (r, every) = span(axis);
        if whole(&axis) { ":".into() } else { format!("{}..{}{every}", r.start, r.end) }
    };
    (0..=last).map(text).collect::<Vec<_>>().join(", ")
}

/// Whether elements that follow each other in the source do not in the target.
fn reordered(part: &Part) -> bool {
    let key = |f: &Factor, side: Side| (std::cmp::Reverse(f.axis[side]), f.stride[side]);
    let mut factors = part.factors.clone();
    factors.sort_by_key(|f| key(f, SOURCE));
    !factors.is_sorted_by_key(|f| key(f, TARGET))
}

fn pieces(out: &mut String, param: &PlannedParam, plane: &PlannedPlane, names: &[&str]) {
    _ = write!(out, "\n  {}: {}, ", plane.role, Bytes(plane.bytes));
    if let Some((entry, _, at)) = plane.borrowable() {
        let borrowed = if param.steps.is_empty() && param.staged.is_empty() { ": can be mapped" } else { "" };
        _ = write!(out, "one run of {} at byte {at}{borrowed}", names[entry]);
        return;
    }
    _ = write!(out, "{}", counted(plane.copy.len(), "piece"));
    if !plane.equal.is_empty() {
        _ = write!(out, ", {} to compare", plane.equal.len());
    }
    for piece in plane.copy.iter().take(SHOWN) {
        _ = write!(out, "\n    {}", piece_text(piece, names));
    }
    if plane.copy.len() > SHOWN {
        _ = write!(out, "\n    … and {} more", plane.copy.len() - SHOWN);
    }
}

fn piece_text(piece: &Piece, names: &[&str]) -> String {
    let from = match piece.source {
        Some(s) => format!("{} at {}", names[s.entry], piece.source_offset),
        None => "zeros".into(),
    };
    let times: Vec<String> = piece
        .dims
        .iter()
        .map(|d| d.extent.to_string())
        .chain([counted(piece.run, "byte").to_string()])
        .collect();
    format!("{} <- {from}: {}", piece.target_offset, times.join(" × "))
}
