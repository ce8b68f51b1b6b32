//! How a checkpoint is read beyond its dialect: user rules, and the parameters that may be absent.

use std::collections::HashMap;
use std::sync::Arc;

use checkpoint::Checkpoint;
use model::{Model, better_fit};
use plan::{Mapped, MappedTensor, Problem, Problems, ResolveOptions, Resolved};
use tensor::{Binding, Bindings, DropRule, Dtype, Expr, Mapping, Pattern, Presence, Target, TensorEntry};

use crate::error::{Error, shown};

/// Facts about a checkpoint that the user adds: rules for names, and tensors that may be absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adapter {
    /// How its entries become the tensors that a dialect, or one's own modules, look for.
    pub mapping: Option<Mapping>,
    /// How the model's parameters are made of the entries, where they are stored as no dialect says.
    pub bindings: Option<Arc<Bindings>>,
    /// Parameters, or entries, that may be absent; the plan lists those that are.
    pub allow_missing: Vec<Pattern>,
    /// Tensors that may stay in the checkpoint, and why nothing is lost; the plan lists them.
    pub drops: Vec<DropRule>,
}

impl Adapter {
    /// Matches what the checkpoint holds with the model's parameters.
    ///
    /// # Errors
    /// Every way in which the rules do not fit the checkpoint; then everything that is missing, unused or mis-shaped.
    pub fn resolve(&self, checkpoint: &Checkpoint, model: &Model) -> Result<Resolved, Error> {
        if checkpoint.entries().is_empty() {
            return Err(Error::NoTensors { path: checkpoint.location().to_string() });
        }
        let mapped = self.mapped(checkpoint)?;
        let names = names(checkpoint, mapped.as_ref());
        let bindings = self.bindings(checkpoint, model, &names)?;
        self.matched(checkpoint, mapped.as_ref(), bindings, Some(model.family.name())).map_err(|mut e| {
            if let Error::Misfit { fit, backbone, problems, .. } = &mut e {
                // Those that are zero are no problem.
                problems.blame_parts(&|entry| model.zeros_in(entry));
                let claimed = Some((model.family.name(), model.dialect));
                *fit = better_fit(names.iter().copied(), claimed).map(Box::new);
                *backbone = lacks_only_output(problems);
            }
            e
        })
    }

    /// The same, but that each parameter is made of tensors under the names that they have after the rules.
    pub(crate) fn resolve_named(&self, checkpoint: &Checkpoint, model: &Model) -> Result<Resolved, Error> {
        let mut resolved = self.resolve(checkpoint, model)?;
        let Some(mapped) = self.mapped(checkpoint)? else { return Ok(resolved) };
        let names = names(checkpoint, Some(&mapped));
        let bindings = self.bindings(checkpoint, model, &names)?.bindings;
        let mut made: HashMap<String, Expr> = bindings.into_iter().map(|b| (b.name, b.expr)).collect();
        for param in &mut resolved.params {
            param.expr = made.remove(&param.name).unwrap_or_else(|| param.expr.clone());
        }
        Ok(resolved)
    }

    /// Every tensor under the name that it has after the rules, as a parameter of its own.
    ///
    /// # Errors
    /// Every way in which the rules do not fit the checkpoint, and the checkpoint itself.
    pub(crate) fn as_stored(&self, checkpoint: &Checkpoint) -> Result<(Resolved, Vec<Target>), Error> {
        let mapped = self.mapped(checkpoint)?;
        let (bindings, targets) = match &mapped {
            None => plan::as_stored(checkpoint.entries()),
            Some(mapped) => {
                let binding = |t: &MappedTensor| Binding {
                    name: t.name.clone(),
                    shape: t.shape.clone(),
                    expr: Expr::source(&t.name),
                    presence: Presence::Required,
                };
                let target = |t: &MappedTensor| Target {
                    name: t.name.clone(),
                    expr: Expr::source(&t.name),
                    scheme: None,
                };
                let bindings = mapped.tensors().iter().map(binding).collect();
                let targets = mapped.tensors().iter().map(target).collect();
                (Bindings { bindings, drops: vec![] }, targets)
            }
        };
        Ok((self.matched(checkpoint, mapped.as_ref(), bindings, None)?, targets))
    }

    /// Returns the expressions that make the model's parameters of the tensors, under the names that these have after the rules.
    pub(crate) fn bound(&self, checkpoint: &Checkpoint, model: &Model) -> Result<Bindings, Error> {
        let mapped = self.mapped(checkpoint)?;
        self.bindings(checkpoint, model, &names(checkpoint, mapped.as_ref()))
    }

    /// Returns the expressions that make each of the parameters `names` from checkpoint entries.
    fn bindings(&self, checkpoint: &Checkpoint, model: &Model, names: &[&str]) -> Result<Bindings, Error> {
        match &self.bindings {
            Some(bindings) => Ok(Bindings::clone(bindings)),
            None => {
                let mut bindings = bindings(checkpoint, model, names)?;
                bindings.drops.extend(zeros(checkpoint, model)?);
                if self.mapping.is_none() {
                    tie(checkpoint, &mut bindings);
                }
                Ok(bindings)
            }
        }
    }

    /// Applies the rules to the checkpoint's entries; `None` if there are no rules.
    pub(crate) fn mapped(&self, checkpoint: &Checkpoint) -> Result<Option<Mapped>, Error> {
        let mapped = self.mapping.as_ref().map(|m| Mapped::of(checkpoint.entries(), m)).transpose();
        mapped.map_err(|problems| Error::Mapping { path: shown(checkpoint), problems })
    }

    /// Matches the checkpoint's entries with the parameters asked for.
    pub(crate) fn matched(
        &self,
        checkpoint: &Checkpoint,
        mapped: Option<&Mapped>,
        mut bindings: Bindings,
        family: Option<&'static str>,
    ) -> Result<Resolved, Error> {
        bindings.drops.extend(self.drops.iter().cloned());
        let reading = ResolveOptions { mapped, allow_missing: &self.allow_missing };
        plan::resolve_with(checkpoint.entries(), &bindings, &reading)
            .map_err(|problems| Error::misfit(checkpoint, family, problems))
    }
}

/// The result of matching `names` with the model.
fn bindings(checkpoint: &Checkpoint, model: &Model, names: &[&str]) -> Result<Bindings, Error> {
    model.bindings(names.iter().copied()).map_err(|source| Error::Ambiguous {
        path: shown(checkpoint),
        family: model.family.name(),
        source: Box::new(source),
    })
}

/// Ties the parameters that may be tied and whose entry is that of the other under another name: it is held once.
fn tie(checkpoint: &Checkpoint, bindings: &mut Bindings) {
    let entry = |binding: &Binding| match &binding.expr {
        Expr::Source(name) => checkpoint.entry(name),
        _ => None,
    };
    let same = |a: &TensorEntry, b: &TensorEntry| {
        a.name != b.name
            && (&a.planes, &a.shape, &a.scheme, &a.strides) == (&b.planes, &b.shape, &b.scheme, &b.strides)
    };
    let mut tied = vec![];
    for (i, binding) in bindings.bindings.iter().enumerate() {
        let Presence::TiedTo(root) = &binding.presence else { continue };
        let root = bindings.bindings.iter().find(|other| other.name == *root).and_then(entry);
        if let (Some(own), Some(root)) = (entry(binding), root)
            && same(own, root)
        {
            let why = format!("the same tensor as `{}`", root.name);
            bindings.drops.push(DropRule { pattern: Pattern::new(&own.name), why });
            tied.push(i);
        }
    }
    for i in tied {
        if let Some(binding) = bindings.bindings.get_mut(i) {
            // No entry has this name: what is tied has none of its own.
            binding.expr = Expr::source(&binding.name);
        }
    }
}

/// Rules for entries of which a part is zeros that the model does without, after a look at that part. An entry with another
/// value there gets no rule, and is a problem: it is used in part.
fn zeros(checkpoint: &Checkpoint, model: &Model) -> Result<Vec<DropRule>, Error> {
    let mut drops = vec![];
    for entry in checkpoint.entries() {
        let Some((part, of)) = model.zeros_in(&entry.name) else { continue };
        if is_zero(checkpoint, entry, part, of)? {
            let why = "a part that is zero, and that the model does without".to_owned();
            drops.push(DropRule { pattern: Pattern::new(&entry.name), why });
        }
    }
    Ok(drops)
}

/// True if part `part` of `of` equal parts of the vector `entry` is zero. Of encodings but plain floats, this is not known.
fn is_zero(checkpoint: &Checkpoint, entry: &TensorEntry, part: u64, of: u64) -> Result<bool, Error> {
    let (Some(dtype), [plane], [len]) = (entry.scheme.dtype(), &entry.planes[..], &entry.shape[..]) else {
        return Ok(false);
    };
    let is_float = matches!(dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16);
    if !is_float || entry.strides.is_some() || !len.is_multiple_of(of) {
        return Ok(false);
    }
    let bytes = len / of * dtype.bytes();
    let mut values = vec![0; usize::try_from(bytes).unwrap_or(0)];
    checkpoint.file(plane.file).read_at(plane.bytes.start + part * bytes, &mut values)?;
    // A zero may have a sign, which is the last bit.
    let mut numbers = values.chunks_exact(usize::try_from(dtype.bytes()).unwrap_or(1));
    Ok(numbers.all(|number| match number.split_last() {
        Some((last, rest)) => last | 0x80 == 0x80 && rest.iter().all(|byte| *byte == 0),
        None => true,
    }))
}

/// Whether the output matrix is all that is missing.
fn lacks_only_output(problems: &Problems) -> bool {
    problems.iter().all(|problem| match problem {
        Problem::Missing { params, .. } => params.iter().all(|param| param == "output.weight"),
        _ => false,
    })
}

/// The names that a dialect finds.
fn names<'a>(checkpoint: &'a Checkpoint, mapped: Option<&'a Mapped>) -> Vec<&'a str> {
    match mapped {
        Some(mapped) => mapped.tensors().iter().map(|t| t.name.as_str()).collect(),
        None => checkpoint.entries().iter().map(|e| e.name.as_str()).collect(),
    }
}
