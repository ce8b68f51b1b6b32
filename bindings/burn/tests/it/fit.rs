//! What does not fit, all of it at once, as burn reports it.

use burn::module::{Module, Param, ParamId};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::store::{ApplyError, KeyRemapper, ModuleSnapshot, ModuleStore, PathFilter};
use burn::tensor::{Device, Int, Tensor};
use weighbridge_burn::{CheckpointStore, Error};

/// Some of llama-tiny, with faults.
#[derive(Module, Debug)]
struct Faulty {
    /// Of another shape: the file has `[128, 64]`.
    embed_tokens: Embedding,
    /// As it is in the file, `[128, 64]`, turned.
    lm_head: Linear,
    /// Not there.
    projector: Linear,
    /// Of another kind: the file has floats.
    norm: Norm,
}

#[derive(Module, Debug)]
struct Norm {
    weight: Param<Tensor<1, Int>>,
}

fn faulty(device: &Device) -> Faulty {
    let linear = |from, to| LinearConfig::new(from, to).with_bias(false).init(device);
    Faulty {
        embed_tokens: EmbeddingConfig::new(130, 64).init(device),
        lm_head: linear(64, 128),
        projector: linear(64, 32),
        norm: Norm { weight: Param::initialized(ParamId::new(), Tensor::zeros([64], device)) },
    }
}

/// The names of llama-tiny without the segment that they begin with.
fn store() -> CheckpointStore {
    let remapper = KeyRemapper::new().add_pattern("^model\\.", "").unwrap();
    CheckpointStore::open(testkit::golden("models/llama-tiny")).unwrap().with_remapper(&remapper).unwrap()
}

#[test]
fn everything_is_reported_before_anything_is_read() {
    let mut module = faulty(&Device::default());
    let before = module.lm_head.weight.val().into_data();
    let error = module.load_from(&mut store()).unwrap_err();
    let text = error.to_string();
    let Error::Misfit { found, .. } = error else { panic!("{text}") };
    assert_eq!(found.missing, [("projector.weight".to_owned(), "Struct:Faulty.Struct:Linear".to_owned())]);
    let [
        ApplyError::ShapeMismatch { path, expected, found: shape },
        ApplyError::DTypeMismatch { path: other, .. },
    ] = &found.errors[..]
    else {
        panic!("{text}")
    };
    assert_eq!(
        (path.as_str(), &expected[..], &shape[..]),
        ("embed_tokens.weight", &[130, 64][..], &[128, 64][..])
    );
    assert_eq!(other, "norm.weight");
    assert_eq!(found.unused.len(), 18, "{:?}", found.unused);
    assert!(text.contains("embed_tokens.weight") && text.contains("projector.weight"), "{text}");
    assert_eq!(module.lm_head.weight.val().into_data(), before, "the module is as it was");
}

#[test]
fn the_report_is_the_one_that_burn_makes() {
    let device = Device::default();
    let store = store();
    let ours = store.fit(&faulty(&device));
    let mut store = store;
    let tensors = store.get_all_tensors().unwrap().values().cloned().collect();
    let adapter: Box<dyn burn::store::ModuleAdapter> = Box::new(burn::store::PyTorchToBurnAdapter);
    let theirs = faulty(&device).apply(tensors, None, Some(adapter), false);
    assert_eq!(ours.to_string(), theirs.to_string());
}

#[test]
fn parts_are_loaded_if_they_are_asked_for() {
    let mut module = faulty(&Device::default());
    let filter = PathFilter::new().with_full_path("lm_head.weight");
    let found = module.load_from(&mut store().with_filter(filter).allow_partial(true)).unwrap();
    assert_eq!(found.applied, ["lm_head.weight"]);
    assert_eq!(found.skipped, ["embed_tokens.weight", "norm.weight"]);
    // Linear layers of burn hold the matrix turned.
    let mut store = store();
    let stored = store.get_tensor("lm_head.weight").unwrap().unwrap().clone();
    let stored = Tensor::<2>::from_data(burn::store::bridge::into_data(stored).unwrap(), &Device::default());
    assert_eq!(module.lm_head.weight.val().into_data(), stored.transpose().into_data());
}

#[test]
fn no_tensor_is_lost_to_a_name() {
    let remapper = KeyRemapper::new().add_pattern("layers\\.[0-9]+", "layers.0").unwrap();
    let error = CheckpointStore::open(testkit::golden("models/llama-tiny")).unwrap().with_remapper(&remapper);
    assert!(matches!(&error, Err(Error::OneName { names }) if names.len() == 9), "{error:?}");
}

#[test]
fn a_checkpoint_is_not_written() {
    let error = store().collect_from(&faulty(&Device::default())).unwrap_err();
    assert!(matches!(error, Error::ReadOnly { .. }));
}
