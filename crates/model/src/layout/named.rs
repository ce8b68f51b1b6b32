//! The layouts of files: names and shapes as their readers want them.

use std::borrow::Cow;
use std::collections::HashSet;
use std::convert::Infallible;

use tensor::{Dtype, Expr, Made, OneWay, Pattern, Scheme, Target};

use super::{Layout, Param, RuntimeLayout};
use crate::dialect::Dialect;
use crate::{Along, Axis, DialectName, Model, Role, family};

/// Names and shapes of a dialect: the inverse of what its rules say, which is derived.
#[derive(Debug)]
pub struct Named(pub DialectName);

impl Layout for Named {
    fn name(&self) -> &'static str {
        match self.0 {
            DialectName::Gguf => "gguf",
            DialectName::Hf => "hf",
            DialectName::Ctranslate2 => "ctranslate2",
            DialectName::Openai => "openai",
        }
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn targets(&self, model: &Model, params: &[Param]) -> Result<RuntimeLayout, OneWay> {
        entries(self.0, false, model, params)
    }
}

/// Names and shapes of mlx-lm's directories: those of transformers, with the experts of a layer stacked.
#[derive(Debug)]
pub struct Mlx;

impl Layout for Mlx {
    fn name(&self) -> &'static str {
        "mlx"
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn targets(&self, model: &Model, params: &[Param]) -> Result<RuntimeLayout, OneWay> {
        entries(DialectName::Hf, true, model, params)
    }
}

/// The entries of a checkpoint of `name`, or of mlx-lm, for the parameters that are there.
///
/// In GGUF vectors and tables of positions are f32, as llama.cpp's kernels want them
/// (conversion/base.py@0c1e57098, `ModelBase.prepare_tensors`), and in OpenAI's names as whisper.cpp's do
/// (models/convert-pt-to-ggml.py of pywhispercpp 1.5.1).
fn entries(name: DialectName, mlx: bool, model: &Model, params: &[Param]) -> Result<RuntimeLayout, OneWay> {
    let Some(dialect) = family::dialect(model.family, name) else {
        let name = format!("the family {}", model.family.name());
        return Err(OneWay { name, why: "has no files of that kind in its ecosystem" });
    };
    let bindings = dialect.written(model.params(), model.config(), mlx).bindings;
    let own: HashSet<&str> = params.iter().filter(|p| p.tied_to.is_none()).map(|p| p.name.as_str()).collect();
    let named: HashSet<&str> = bindings.iter().map(|b| b.name.as_str()).collect();
    let nameless = params.iter().filter(|p| own.contains(p.name.as_str()));
    let nameless = nameless.filter(|p| !named.contains(p.name.as_str())).map(|p| p.name.clone()).collect();

    let floats: HashSet<String> = match name {
        DialectName::Gguf | DialectName::Openai => {
            let position = |axes: &[Along]| axes.first().is_some_and(|a| a.axis == Axis::Position);
            let floats = model.params().filter(|s| s.role == Role::Vector || position(&s.axes));
            floats.map(|s| s.name.clone()).collect()
        }
        _ => HashSet::new(),
    };
    let mut made: Vec<Made> = bindings
        .into_iter()
        .filter(|b| own.contains(b.name.as_str()))
        .map(|b| Made { name: b.name, shape: b.shape, expr: b.expr })
        .collect();
    let zeros = zeros(&dialect, &made);
    made.extend(zeros.iter().cloned());
    let mut inverse = tensor::take_apart(&made, &|_| None)?;
    inverse.padding.retain(|made| dialect.cut.iter().all(|(param, _)| *param != made.name));
    let targets = inverse.alone()?.into_iter().map(|entry| {
        let entry = Made { expr: filled(&entry.expr, &zeros), ..entry };
        let mut float = false;
        entry.expr.for_each_source(&mut |name| float |= floats.contains(name));
        Target { name: entry.name, expr: entry.expr, scheme: float.then(|| Scheme::plain(Dtype::F32)) }
    });
    Ok(RuntimeLayout {
        targets: targets.collect(),
        rope_order: model.family.rope_order(name),
        value_order: model.family.value_order(name),
        nameless,
    })
}

/// The parts of entries of `made` that no parameter has and that are zero, as tensors that are made of them. No parameter has their
/// names.
fn zeros(dialect: &Dialect, made: &[Made]) -> Vec<Made> {
    let mut found: Vec<Made> = vec![];
    for one in made {
        one.expr.for_each_source(&mut |entry| {
            let zeros = dialect.zeros.iter().find(|zeros| Pattern::new(zeros.entry).matches(entry));
            let name = format!("zeros of {entry}");
            if let (Some(zeros), Some(rows)) = (zeros, one.shape.first())
                && found.iter().all(|other| other.name != name)
            {
                let expr = Expr::source(entry).slice(0, zeros.part * rows..(zeros.part + 1) * rows);
                found.push(Made { name, shape: one.shape.clone(), expr });
            }
        });
    }
    found
}

/// `expr` with zeros for those of `zeros`.
fn filled(expr: &Expr, zeros: &[Made]) -> Expr {
    let zero = |name: &str| {
        zeros.iter().find(|zeros| zeros.name == name).map(|zeros| Expr::Zero(zeros.shape.clone()))
    };
    let filled = expr.substitute(&mut |name| {
        Ok::<_, Infallible>(Cow::Owned(zero(name).unwrap_or_else(|| Expr::source(name))))
    });
    match filled {
        Ok(filled) => filled,
        Err(never) => match never {},
    }
}
