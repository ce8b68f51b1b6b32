//! Parameters that lie ready in a mapped file.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use checkpoint::{ByteSource, Checkpoint};
use plan::LoadPlan;
use tensor::Arrangement;

use crate::memory::resident::peak_rss;
use crate::memory::slot::{Arena, Slot};
use crate::schedule::home::{Home, alignment, homes, planes_of};
use crate::{LoadReport, Loaded, Tensor};

/// See [`crate::Plan::lent`].
pub(crate) fn lent(
    plan: &LoadPlan,
    checkpoint: &Checkpoint,
    arrangement: &Arrangement,
    source: &Arc<dyn ByteSource>,
    at: impl Fn(usize, usize) -> Option<u64>,
) -> Option<Loaded> {
    let began = Instant::now();
    let homes = homes(plan, checkpoint, true).ok()?;
    let mut params: HashMap<String, Tensor> = HashMap::with_capacity(plan.params.len());
    let mut roots = HashMap::new();
    let mut borrowed = 0u64;
    for (index, (param, home)) in plan.params.iter().zip(homes).enumerate() {
        let slots: Vec<Slot> = match home {
            Home::Borrowed(slots) => slots,
            Home::Tied(root) => {
                // A tie names an earlier parameter, so it is there.
                let first = &plan.params.get(root)?.name;
                roots.insert(param.name.clone(), first.clone());
                params.get(first)?.slots().to_vec()
            }
            Home::Own(_) => {
                let planes = planes_of(param).ok()?.into_iter().enumerate().map(|(plane, bytes)| {
                    let start = at(index, plane)?;
                    Slot::borrow(source, start..start.checked_add(bytes as u64)?, alignment(param))
                });
                planes.collect::<Option<_>>()?
            }
        };
        if param.tied_to.is_none() {
            borrowed += slots.iter().map(|slot| slot.bytes().len() as u64).sum::<u64>();
        }
        let tensor = Tensor::new(param.shape.clone(), Arc::clone(&param.scheme), slots);
        params.insert(param.name.clone(), tensor);
    }
    let report = LoadReport {
        params: plan.params.len(),
        dropped: plan.dropped.len(),
        bytes_borrowed: borrowed,
        peak_rss: peak_rss(),
        threads: 1,
        seconds: began.elapsed().as_secs_f64(),
        ..LoadReport::default()
    };
    let nothing = Arc::new(Arena::new(0).ok()?);
    Some(Loaded::new(params, roots, nothing, report, Some(arrangement.clone())))
}
