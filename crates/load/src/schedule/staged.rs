//! Parameters whose entries are decoded or encoded before they are moved: one parameter after the other, so that memory
//! holds the decoded entries of at most one.

use std::sync::Arc;

use checkpoint::{ByteSource, Checkpoint};
use plan::{LoadPlan, PlannedParam};
use tensor::{FileId, PlaneData, TensorEntry};

/// A parameter whose turn comes when all others are there, and its memory.
pub(crate) struct Later<'a, S> {
    pub(crate) index: usize,
    pub(crate) param: &'a PlannedParam,
    pub(crate) targets: Vec<S>,
}

/// Bytes of what the entries of a parameter become before it is moved.
pub(crate) fn staged_bytes(param: &PlannedParam) -> u64 {
    param.staged.iter().map(PlannedParam::slot_bytes).fold(0u64, u64::saturating_add)
}

/// The plan that makes them.
pub(crate) fn staging(param: &PlannedParam) -> LoadPlan {
    LoadPlan { params: param.staged.clone(), ..LoadPlan::default() }
}

/// Returns the staged tensors as a checkpoint in memory.
pub(crate) fn in_memory(
    param: &PlannedParam,
    source: impl Fn(&PlannedParam) -> Arc<dyn ByteSource>,
) -> Checkpoint {
    let sources = param.staged.iter().map(|staged| {
        let mut end = 0;
        let planes = staged.scheme.planes.iter().map(|plane| {
            // Checked when the plan was made.
            let (start, bytes) = (end, staged.scheme.plane_bytes(plane, &staged.shape).unwrap_or(0));
            end += bytes;
            PlaneData { file: FileId(0), bytes: start..end }
        });
        let entry = TensorEntry {
            name: staged.name.clone(),
            shape: staged.shape.clone(),
            scheme: Arc::clone(&staged.scheme),
            planes: planes.collect(),
            strides: None,
        };
        (entry, source(staged))
    });
    Checkpoint::in_memory(sources.collect())
}

/// The plan that makes the parameter of that.
pub(crate) fn moving(param: &PlannedParam) -> LoadPlan {
    LoadPlan { params: vec![PlannedParam { staged: vec![], ..param.clone() }], ..LoadPlan::default() }
}
