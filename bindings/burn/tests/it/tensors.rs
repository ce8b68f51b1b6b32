//! Tensors one by one.

use burn::store::ModuleStore;
use burn::store::bridge::to_data;
use burn::tensor::DType;
use weighbridge::{Dtype, LayoutKind};
use weighbridge_burn::{CheckpointStore, Error};

#[test]
fn tensors_that_are_stored_as_they_are_wanted_stay_in_the_file() {
    let mut store = CheckpointStore::open(testkit::golden("models/llama-tiny")).unwrap();
    let tensor = store.get_tensor("model.embed_tokens.weight").unwrap().unwrap();
    assert_eq!((tensor.dtype, &tensor.shape[..]), (DType::F32, &[128, 64][..]));
    let [one, mut other] = [(); 2].map(|()| tensor.to_bytes().unwrap());
    assert_eq!(one.as_ptr(), other.as_ptr(), "both look at the file");
    // Bytes are copied when somebody writes.
    other[0] ^= 1;
    assert_ne!(one.as_ptr(), other.as_ptr());
    assert_eq!(tensor.to_bytes().unwrap()[..], one[..]);
}

#[test]
fn tensors_become_the_dtype_that_is_asked_for() {
    let checkpoint = weighbridge::open(testkit::golden("models/llama-tiny/model.gguf")).unwrap();
    let name = "model.layers.1.self_attn.q_proj.weight";
    let data = |dtype| {
        let mut store = CheckpointStore::planned(&checkpoint, dtype, |builder| builder).unwrap();
        to_data(store.get_tensor(name).unwrap().unwrap()).unwrap()
    };
    let plain = data(Dtype::F32);
    for (ours, theirs) in [(Dtype::BF16, DType::BF16), (Dtype::F16, DType::F16), (Dtype::F64, DType::F64)] {
        let found = data(ours);
        assert_eq!(found.dtype(), theirs);
        assert_eq!(found, plain.clone().convert_dtype(theirs));
    }
}

#[test]
fn a_checkpoint_may_keep_its_names() {
    let checkpoint = weighbridge::open(testkit::golden("models/llama-tiny/model.gguf")).unwrap();
    let mut store =
        CheckpointStore::planned(&checkpoint, Dtype::F32, |builder| builder.layout(LayoutKind::Source))
            .unwrap();
    assert!(store.keys().unwrap().contains(&"token_embd.weight".to_owned()));
}

#[test]
fn a_type_that_burn_lacks_is_named() {
    let checkpoint = weighbridge::open(testkit::golden("models/llama-tiny")).unwrap();
    let error = CheckpointStore::planned(&checkpoint, Dtype::F32, |builder| {
        builder.encode(["*.attention.q.weight=q8_0".parse().unwrap()])
    });
    assert!(matches!(&error, Err(Error::Dtype { tensors }) if tensors.len() == 2), "{error:?}");
}
