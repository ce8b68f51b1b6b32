//! Export: rebuilds the entries from the parameters that ranks hold, by reading the pieces of their plans right to
//! left.

use std::collections::HashMap;
use std::sync::Arc;

use plan::{Fidelity, Piece, PlannedParam, Untaken, Whole};
use quant::Matrix;
use tensor::{Dtype, Scheme, Step, TensorEntry};

use crate::change::{BandPlace, Change};
use crate::sizes::size;
use crate::{Error, Guide, Loaded, Plan};

/// Rebuilds the entries of a checkpoint from the parameters of the ranks. Calls `each` for one entry after the other,
/// in the checkpoint's order, with the bytes of its planes. Entries that the plans dropped are left out.
///
/// Moved values come back bit for bit; so do values that were re-encoded by exact steps. Values that a step has rounded
/// come back as near as their encoding holds them; the names of such entries are returned.
///
/// # Errors
/// If the plans are not of one checkpoint; if the ranks do not hold all of an entry (every such entry at once), hold
/// parts of it that disagree, or a step cannot be inverted; and any error of `each`.
pub fn export<E: From<Error>>(
    ranks: &[(&Plan, &Loaded)],
    mut each: impl FnMut(&TensorEntry, &[Vec<u8>]) -> Result<(), E>,
) -> Result<Vec<String>, E> {
    let Some(((first, _), others)) = ranks.split_first() else { return Ok(vec![]) };
    if others.iter().any(|(plan, _)| !plan.checkpoint().is(first.checkpoint())) {
        return Err(Error::SeveralCheckpoints.into());
    }
    let entries = first.checkpoint().entries();
    let mut whole = Whole::default();
    for (plan, _) in ranks {
        whole.add(plan.pieces());
    }
    let missing: Vec<String> = whole.untaken(entries).iter().map(shown).collect();
    if !missing.is_empty() {
        return Err(Error::NotWhole { missing }.into());
    }
    // For each entry, the parameters that hold some of it; and of how many entries each parameter holds some.
    let mut holders: HashMap<usize, Vec<(usize, usize)>> = HashMap::new();
    let mut wanted: HashMap<(usize, usize), usize> = HashMap::new();
    for (r, (plan, _)) in ranks.iter().enumerate() {
        for (p, param) in plan.params().iter().enumerate() {
            let mut held: Vec<usize> = sources(param).map(|piece| piece.1.entry).collect();
            held.sort_unstable();
            held.dedup();
            wanted.insert((r, p), held.len());
            for entry in held {
                holders.entry(entry).or_default().push((r, p));
            }
        }
    }
    let (mut moved, mut rounded) = (HashMap::<(usize, usize), Vec<Vec<u8>>>::new(), vec![]);
    for (i, entry) in entries.iter().enumerate() {
        let Some(holders) = holders.get(&i) else { continue };
        let mut planes = entry
            .planes
            .iter()
            .map(|p| zeroed(entry, p.bytes.end - p.bytes.start).map(|bytes| (bytes.clone(), bytes)))
            .collect::<Result<Vec<_>, Error>>()?;
        for at in holders {
            let (plan, loaded) = ranks[at.0];
            let param = &plan.params()[at.1];
            if !moved.contains_key(at) {
                let (bytes, exact) = back(param, loaded)?;
                if !exact {
                    rounded.push(param.name.clone());
                }
                moved.insert(*at, bytes);
            }
            fill(i, entry, param, &moved[at], &mut planes)?;
            if let Some(left) = wanted.get_mut(at) {
                *left -= 1;
                if *left == 0 {
                    moved.remove(at);
                }
            }
        }
        let planes: Vec<Vec<u8>> = planes.into_iter().map(|(bytes, _)| bytes).collect();
        each(entry, &planes)?;
    }
    Ok(rounded)
}

fn shown(untaken: &Untaken) -> String {
    format!("`{}` ({})", untaken.entry, untaken.plane)
}

fn zeroed(entry: &TensorEntry, bytes: u64) -> Result<Vec<u8>, Error> {
    let too_large = || Error::TooLarge { param: entry.name.clone() };
    let bytes = usize::try_from(bytes).map_err(|_| too_large())?;
    let mut zeros = Vec::new();
    zeros.try_reserve_exact(bytes).map_err(|_| too_large())?;
    zeros.resize(bytes, 0);
    Ok(zeros)
}

/// The pieces of a parameter that come from entries, each with its plane's place.
fn sources(param: &PlannedParam) -> impl Iterator<Item = (usize, plan::PieceSource, &Piece)> {
    let pieces = param
        .planes
        .iter()
        .enumerate()
        .flat_map(|(i, plane)| plane.copy.iter().chain(&plane.equal).map(move |piece| (i, piece)));
    pieces.filter_map(|(i, piece)| Some((i, piece.source?, piece)))
}

/// Writes what `param` holds of entry `index` to its planes; the second of each is set where something was written.
fn fill(
    index: usize,
    entry: &TensorEntry,
    param: &PlannedParam,
    moved: &[Vec<u8>],
    planes: &mut [(Vec<u8>, Vec<u8>)],
) -> Result<(), Error> {
    let mut wrong = None;
    for (plane, source, piece) in sources(param).filter(|(_, source, _)| source.entry == index) {
        let (Some(back), Some(from)) = (piece.reversed(), moved.get(plane)) else { continue };
        let (to, written) = &mut planes[source.plane];
        back.runs(|s, t| {
            let at = |start: u64| Some(usize::try_from(start).ok()?..usize::try_from(start + back.run).ok()?);
            // The plan has proved that both lie inside.
            let (Some(s), Some(t)) = (at(s), at(t)) else { return };
            let (bytes, seen) = (&from[s], &mut written[t.clone()]);
            if seen.iter().zip(bytes).zip(&to[t.clone()]).any(|((seen, new), old)| *seen != 0 && new != old) {
                wrong.get_or_insert(t.start);
            }
            seen.fill(1);
            to[t].copy_from_slice(bytes);
        });
    }
    match wrong {
        Some(at) => {
            Err(Error::Conflict { entry: entry.name.clone(), param: param.name.clone(), at: at as u64 })
        }
        None => Ok(()),
    }
}

/// The bytes that movement gave, from what the steps made of them; and whether that is certain.
fn back(param: &PlannedParam, loaded: &Loaded) -> Result<(Vec<Vec<u8>>, bool), Error> {
    let tensor = loaded
        .get(&param.name)
        .ok_or_else(|| Error::NotWhole { missing: vec![format!("`{}`", param.name)] })?;
    let planes: Vec<&[u8]> = tensor.slots().iter().map(crate::Slot::bytes).collect();
    if !param.staged.is_empty() {
        // Its sources were stored in another scheme than they are moved in.
        return Err(Error::Codec {
            param: param.name.clone(),
            from: param.scheme.name.to_string(),
            to: param.staged.iter().map(|s| s.moved.name.as_ref()).collect::<Vec<_>>().join(", "),
        });
    }
    if param.steps.is_empty() {
        return Ok((planes.into_iter().map(<[u8]>::to_vec).collect(), true));
    }
    // Changes of numbers are undone first, and the original scheme comes last.
    let undone = |step: &Step| match step {
        Step::Add(n) => Some(Step::Add(-n)),
        Step::Apply(function) => Some(Step::Apply(function.inverse())),
        Step::To(_) | Step::By(_) => None,
    };
    if let Some(Step::By(stage)) = param.steps.iter().find(|step| matches!(step, Step::By(_))) {
        return Err(Error::Codec {
            param: param.name.clone(),
            from: param.scheme.name.to_string(),
            to: format!("what was before {}", stage.name()),
        });
    }
    let mut steps: Vec<Step> = param.steps.iter().rev().filter_map(undone).collect();
    if !steps.is_empty() {
        steps.insert(0, Step::To(Scheme::plain(Dtype::F32)));
    }
    steps.push(Step::To(Arc::clone(&param.moved)));
    let refuse = |(from, to)| Error::Codec { param: param.name.clone(), from, to };
    let change = Change::of(&param.scheme, param.shape.len(), &steps).map_err(refuse)?;
    let mut out = param.moved.planes.iter().map(|spec| {
        let bytes = param.moved.plane_bytes(spec, &param.shape).unwrap_or(u64::MAX);
        usize::try_from(bytes).ok().filter(|n| *n < usize::MAX / 2).map(|n| vec![0u8; n])
    });
    let mut out: Vec<Vec<u8>> =
        out.by_ref().collect::<Option<_>>().ok_or_else(|| Error::TooLarge { param: param.name.clone() })?;
    // The last two axes are matrices if any scheme on the way says so, else all but the last are rows.
    let matrices = param.shape.matrices(change.trailing(&param.scheme, &param.moved, param.shape.len()));
    let (matrices, rows, k) = matrices.ok_or_else(|| Error::TooLarge { param: param.name.clone() })?;
    let (matrices, rows, k) = (size(matrices).max(1), size(rows), size(k));
    // Values rounded during the load are not the original ones, even if the inverse steps are exact.
    let (mut values, mut exact) = (vec![], param.fidelity == Fidelity::Exact);
    for m in 0..matrices {
        let part = |bytes: usize| m * (bytes / matrices)..(m + 1) * (bytes / matrices);
        let src: Vec<&[u8]> = planes.iter().map(|p| &p[part(p.len())]).collect();
        let mut dst: Vec<&mut [u8]> = out
            .iter_mut()
            .map(|p| {
                let range = part(p.len());
                &mut p[range]
            })
            .collect();
        let changed = change.apply(
            Matrix { planes: &src, rows, k },
            BandPlace { first: 0, whole: [rows, k] },
            Guide::default(),
            &mut dst,
            &mut values,
        );
        let changed = changed.map_err(|why| why.of(&param.name, &param.moved))?;
        exact &= changed.is_none_or(|d| d.squares == 0.0 && d.overflowed == 0);
    }
    Ok((out, exact))
}
