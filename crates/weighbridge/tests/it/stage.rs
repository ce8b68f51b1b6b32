//! Stages of one's own: after movement, in the plan, and refused by name.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use weighbridge::tensor::{Dtype, Scheme, SharedStage, Stage, StageInput};
use weighbridge::{Checkpoint, LayoutKind, Plan, PlanBuilder, Pool, Shape, open};

use crate::golden;

/// f32 rows times a number, in bands of a number of rows that is remembered.
#[derive(Clone, Debug)]
struct Times {
    by: f32,
    unit: u64,
    seen: Arc<Mutex<BTreeSet<usize>>>,
}

impl Times {
    fn new(by: f32, unit: u64) -> Times {
        Times { by, unit, seen: Arc::default() }
    }
}

impl Stage for Times {
    fn name(&self) -> &'static str {
        "times"
    }

    fn identity(&self) -> Vec<u8> {
        self.by.to_le_bytes().to_vec()
    }

    fn takes(&self) -> Arc<Scheme> {
        Scheme::plain(Dtype::F32)
    }

    fn gives(&self) -> Arc<Scheme> {
        Scheme::plain(Dtype::F32)
    }

    fn loses(&self) -> Option<String> {
        Some("a product is rounded".to_owned())
    }

    fn fits(&self, shape: &Shape) -> Result<(), String> {
        if shape.len() == 2 { Ok(()) } else { Err("it is for matrices".to_owned()) }
    }

    fn unit(&self) -> u64 {
        self.unit
    }

    fn apply(&self, input: StageInput<'_>, planes: &mut [&mut [u8]]) -> Result<(), String> {
        self.seen.lock().unwrap().insert(input.rows);
        let values = input.planes[0].as_chunks::<4>().0;
        assert_eq!(values.len(), input.rows * input.k);
        for (from, to) in values.iter().zip(planes[0].as_chunks_mut::<4>().0) {
            *to = (f32::from_le_bytes(*from) * self.by).to_le_bytes();
        }
        Ok(())
    }
}

const UP: &str = "layers.0.ffn.up.weight";

fn plan(
    checkpoint: &Checkpoint,
    pattern: &str,
    stages: &[Times],
) -> Result<Plan, weighbridge::planner::Error> {
    let builder = PlanBuilder::new(checkpoint).layout(LayoutKind::Canonical);
    stages
        .iter()
        .fold(builder, |builder, stage| builder.stage(pattern, SharedStage::new(stage.clone())))
        .build()
}

fn values(plan: &Plan) -> Vec<f32> {
    let loaded = plan.load(&mut Pool::new(2)).unwrap();
    loaded.get(UP).unwrap().as_f32().to_vec()
}

#[test]
fn they_run_in_order_after_all_movement() {
    let source = open(golden().join("llama-tiny")).unwrap();
    let decoded = Times::new(1.0, 1);
    let wanted = values(&plan(&source, UP, &[decoded]).unwrap());
    let (twice, thrice) = (Times::new(2.0, 1), Times::new(3.0, u64::MAX));
    let staged = plan(&source, UP, &[twice, thrice.clone()]).unwrap();
    let found = values(&staged);
    assert!(found.iter().zip(&wanted).all(|(a, b)| a.to_bits() == (b * 2.0 * 3.0).to_bits()));
    // All rows together, as it asks.
    let rows = usize::try_from(staged.find(UP).unwrap().shape[0]).unwrap();
    assert_eq!(*thrice.seen.lock().unwrap(), BTreeSet::from([rows]));
    let said = staged.explain(UP).unwrap();
    assert_eq!(said.matches("by times (lossy: a product is rounded)").count(), 2, "{said}");
    let bands = Times::new(1.0, 8);
    values(&plan(&source, UP, std::slice::from_ref(&bands)).unwrap());
    assert!(bands.seen.lock().unwrap().iter().all(|rows| rows % 8 == 0));
}

#[test]
fn a_plan_is_of_its_stages() {
    let source = open(golden().join("llama-tiny")).unwrap();
    let digest = |by| plan(&source, UP, &[Times::new(by, 1)]).unwrap().digest();
    assert_eq!(digest(2.0), digest(2.0));
    assert_ne!(digest(2.0), digest(3.0));
    assert_ne!(digest(1.0), plan(&source, UP, &[]).unwrap().digest());
}

#[test]
fn a_stage_without_a_place_is_refused() {
    let source = open(golden().join("llama-tiny")).unwrap();
    let refused = |pattern| plan(&source, pattern, &[Times::new(1.0, 1)]).unwrap_err().to_string();
    let none = refused("layers.{n}.mlp.weight");
    assert!(none.contains("`times`") && none.contains("layers.{n}.mlp.weight"), "{none}");
    let norm = refused("layers.{n}.ffn_norm.weight");
    assert!(norm.contains("the stage `times` cannot change it: it is for matrices"), "{norm}");
}
