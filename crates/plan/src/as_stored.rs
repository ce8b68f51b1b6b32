//! The plan that needs no model: every entry is a parameter of its own name, shape and scheme.

use tensor::{Binding, Bindings, Expr, Presence, Target, TensorEntry};

/// Returns a required parameter for each entry, made from it alone, and a target for each parameter.
///
/// Use with [`resolve`](crate::resolve) and [`compile`](crate::compile) for any architecture.
pub fn as_stored(entries: &[TensorEntry]) -> (Bindings, Vec<Target>) {
    let binding = |e: &TensorEntry| Binding {
        name: e.name.clone(),
        shape: e.shape.clone(),
        expr: Expr::source(&e.name),
        presence: Presence::Required,
    };
    let target = |e: &TensorEntry| Target { name: e.name.clone(), expr: Expr::source(&e.name), scheme: None };
    let bindings = Bindings { bindings: entries.iter().map(binding).collect(), drops: vec![] };
    (bindings, entries.iter().map(target).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tensor::{Dtype, FileId, PlaneData, Scheme};

    use super::*;
    use crate::{Codecs, Fidelity, compile, resolve};

    struct None;
    impl Codecs for None {
        fn fidelity(&self, _: &Scheme, _: &Scheme) -> Option<Fidelity> {
            Option::None
        }
    }

    #[test]
    fn every_entry_is_borrowed_in_its_order() {
        let q4 = Scheme::blocks("q4_k", 256, 144);
        let entry = |name: &str, scheme: &Arc<Scheme>, bytes: u64| TensorEntry {
            name: name.into(),
            shape: [2, 256].into(),
            scheme: Arc::clone(scheme),
            planes: vec![PlaneData { file: FileId(0), bytes: 64..64 + bytes }],
            strides: Option::None,
        };
        let entries = [entry("z", &q4, 288), entry("no.such.model", &Scheme::plain(Dtype::I64), 4096)];
        let (bindings, targets) = as_stored(&entries);
        let plan = compile(&entries, &resolve(&entries, &bindings).unwrap(), &targets, &None).unwrap();
        let names: Vec<_> = plan.params.iter().map(|p| (p.name.as_str(), &*p.scheme.name)).collect();
        assert_eq!(names, [("z", "q4_k"), ("no.such.model", "i64")]);
        assert!(plan.params.iter().all(crate::PlannedParam::borrowable));
    }
}
