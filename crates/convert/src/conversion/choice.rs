//! The scheme that each parameter of a conversion gets.

use std::collections::HashMap;
use std::sync::Arc;

use load::Plan;
use plan::{PlannedParam, ResolvedParam};
use planner::encoding::{Choice, Holder, fits};
use planner::{Encoding, LayoutKind, Ranks, Request};
use tensor::{Dtype, Scheme};

use crate::format::is_of_one_reader;
use crate::names::Names;
use crate::{ConvertOptions, Error, OutputFormat};

/// Decodes targets from another ecosystem that cannot be written as stored, or whose parts have different schemes. What the format
/// has the same codes for gets these.
pub(super) fn decode(request: &mut Request, format: OutputFormat, layout: LayoutKind) {
    let decodes = matches!(layout, LayoutKind::Named(_) | LayoutKind::Mlx | LayoutKind::Of(_));
    let by_name: HashMap<&str, &ResolvedParam> =
        request.resolved.params.iter().map(|p| (p.name.as_str(), p)).collect();
    for target in request.targets.iter_mut().filter(|t| t.scheme.is_none()) {
        let mut parts: Vec<&ResolvedParam> = vec![];
        target.expr.for_each_source(&mut |name| parts.extend(by_name.get(name)));
        let alike = parts.windows(2).all(|p| p[0].scheme == p[1].scheme);
        if alike && parts.iter().all(|p| format.holds(&p.scheme, &p.shape)) {
            continue;
        }
        // Squish's names may be those of the format, its encodings are no other's.
        let foreign = || format.layout().is_some() && parts.iter().any(|p| is_of_one_reader(&p.scheme));
        target.scheme = match &parts[..] {
            [first, ..] if alike && let Some(like) = format.like(&first.scheme, &first.shape) => Some(like),
            _ if decodes || foreign() => Some(Scheme::plain(Dtype::F32)),
            _ => None,
        };
    }
}

/// The same floats in the byte order that is written, if `scheme` has them in the other: every value is kept.
fn little(scheme: &Scheme) -> Option<Arc<Scheme>> {
    let name = scheme.name.strip_suffix(".be")?;
    let kept = [Dtype::F32, Dtype::F16, Dtype::BF16].into_iter().map(Scheme::plain);
    kept.into_iter().find(|plain| *plain.name == *name)
}

/// Returns the choice for each parameter: rules first, then the preset, else the layout's own scheme.
pub(super) fn choose(
    ranks: &Ranks,
    format: OutputFormat,
    layout: LayoutKind,
    requests: &[Request],
    plans: &[Plan],
    names: &Names,
    options: &ConvertOptions<'_>,
) -> Result<Vec<Choice>, Error> {
    let is_guided = options.imatrix.is_some();
    let encoding = Encoding { rules: options.rules.clone(), preset: options.preset, is_guided };
    let holder = Holder { name: format.name(), holds: &|scheme, shape| format.takes(scheme, shape) };
    let chosen = ranks.choices(&encoding, requests, plans, holder, |params, misfits| {
        if let Some(imatrix) = options.imatrix {
            imatrix.check(params, names, misfits);
        }
    })?;
    let kept = |why: &str| Choice { scheme: None, rule: why.to_owned() };
    let params = plans.iter().flat_map(Plan::params);
    let choices = params.zip(chosen).map(|(param, chosen)| {
        let PlannedParam { shape, scheme, moved, staged, .. } = param;
        match chosen {
            Some(choice) => choice,
            None if quant::recasts(moved, scheme).is_some() => kept("the same codes"),
            None if (scheme != moved || !staged.is_empty())
                && let Some(stored) = param.stored().find(|s| !format.holds(s, shape)) =>
            {
                kept(&format!("decoded: {} has no {stored}", format.name()))
            }
            None if !staged.is_empty() => kept("decoded: its parts have different encodings"),
            None if let Some(plain) = little(scheme) => {
                Choice { scheme: Some(plain), rule: "byte order".to_owned() }
            }
            None if scheme != moved => kept(layout.name()),
            None => kept("as stored"),
        }
    });
    let mut choices: Vec<Choice> = choices.collect();
    if format == OutputFormat::Ggml {
        let params: Vec<&PlannedParam> = plans.iter().flat_map(Plan::params).collect();
        settle(&mut choices, &params, options);
    }
    Ok(choices)
}

/// Gives tensors what whisper.cpp reads, where no rule of the user says otherwise: matrices the one scheme of the preset, convolutions f32
/// beside matrices of f32, and f16 beside all others.
fn settle(choices: &mut [Choice], params: &[&PlannedParam], options: &ConvertOptions<'_>) {
    let free = |param: &PlannedParam| !options.rules.iter().any(|rule| rule.matches(&param.name));
    let is_matrix =
        |param: &PlannedParam| param.shape.len() == 2 && !param.name.ends_with("positional_embedding");
    let (mut of_f32, mut others) = (0, 0);
    for (choice, param) in choices.iter_mut().zip(params).filter(|(_, param)| is_matrix(param)) {
        if let Some(preset) = options.preset
            && let Some(base) = preset.base().filter(|base| free(param) && fits(base, &param.shape).is_ok())
        {
            *choice = Choice { scheme: Some(base), rule: format!("{}: matrices", preset.name()) };
        }
        let is_f32 = *scheme(choice, param).name == *"f32";
        *(if is_f32 { &mut of_f32 } else { &mut others }) += 1;
    }
    let floats = Scheme::plain(if of_f32 > others { Dtype::F32 } else { Dtype::F16 });
    for (choice, param) in choices.iter_mut().zip(params).filter(|(_, param)| param.shape.len() == 3) {
        if free(param) && scheme(choice, param).name != floats.name {
            *choice = Choice { scheme: Some(Arc::clone(&floats)), rule: "whisper.cpp".to_owned() };
        }
    }
}

/// The scheme that a choice gives a parameter.
fn scheme(choice: &Choice, param: &PlannedParam) -> Arc<Scheme> {
    choice.scheme.clone().unwrap_or_else(|| Arc::clone(&param.scheme))
}
