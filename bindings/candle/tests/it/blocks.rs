//! Tensors in blocks.

use std::fs::File;
use std::sync::Arc;

use candle_core::quantized::gguf_file::Content;
use candle_core::quantized::{GgmlDType, QMatMul};
use candle_core::{DType, Device, Module, Tensor};
use weighbridge::LayoutKind;
use weighbridge::model::DialectName;
use weighbridge_candle::{Error, Weights};

/// SmolLM2 under the names of GGUF.
fn smollm2() -> (std::path::PathBuf, Weights) {
    let path = testkit::model("smollm2");
    let layout = LayoutKind::Named(DialectName::Gguf);
    let checkpoint = weighbridge::open(&path).unwrap();
    let weights = Weights::planned(checkpoint, move |builder| builder.layout(layout)).unwrap();
    (path, weights)
}

#[test]
fn blocks_are_those_that_candle_reads_itself() {
    let (path, weights) = smollm2();
    let mut file = File::open(path).unwrap();
    let content = Content::read(&mut file).unwrap();
    let all = weights.qtensors(&Device::Cpu).unwrap();
    for name in content.tensor_infos.keys() {
        let theirs = content.tensor(&mut file, name, &Device::Cpu).unwrap();
        let ours = &all[name];
        assert_eq!((ours.dtype(), ours.shape()), (theirs.dtype(), theirs.shape()), "{name}");
        assert!(ours.data().unwrap() == theirs.data().unwrap(), "{name}");
    }
    let name = "blk.3.ffn_down.weight";
    let theirs = QMatMul::from_qtensor(content.tensor(&mut file, name, &Device::Cpu).unwrap()).unwrap();
    let ours = QMatMul::from_arc(Arc::clone(&all[name])).unwrap();
    let (_, columns) = all[name].shape().dims2().unwrap();
    for rows in [1, 5] {
        let x = Tensor::randn(0f32, 1.0, (rows, columns), &Device::Cpu).unwrap();
        let [a, b] = [&ours, &theirs].map(|m| m.forward(&x).unwrap().flatten_all().unwrap().to_vec1::<f32>());
        assert_eq!(a.unwrap(), b.unwrap());
    }
    let rows = Tensor::new(&[0u32, 49151, 7], &Device::Cpu).unwrap();
    let embedding = &all["token_embd.weight"];
    let wanted = embedding.dequantize(&Device::Cpu).unwrap().index_select(&rows, 0).unwrap();
    let found = embedding.embedding(&rows).unwrap();
    assert_eq!(found.to_vec2::<f32>().unwrap(), wanted.to_vec2::<f32>().unwrap());
}

#[test]
fn blocks_stay_in_the_mapped_file() {
    let (_, weights) = smollm2();
    let name = "blk.3.ffn_down.weight";
    let [one, other] = [(); 2].map(|()| weights.qtensor(name, &Device::Cpu).unwrap());
    assert_ne!(one.dtype(), GgmlDType::F32);
    assert_eq!(one.data().unwrap().as_ptr(), other.data().unwrap().as_ptr(), "both look at the file");
}

#[test]
fn blocks_have_the_order_of_hugging_face() {
    let path = testkit::model("smollm2");
    let weights = Weights::open(path).unwrap();
    // The rows of queries and keys lie in another order in GGUF.
    for name in ["model.layers.2.self_attn.q_proj.weight", "model.layers.2.mlp.up_proj.weight"] {
        let blocks = weights.qtensor(name, &Device::Cpu).unwrap();
        let plain = weights.tensor(name, DType::F32, &Device::Cpu).unwrap();
        let decoded = blocks.dequantize(&Device::Cpu).unwrap();
        assert_eq!(decoded.to_vec2::<f32>().unwrap(), plain.to_vec2::<f32>().unwrap(), "{name}");
    }
}

#[test]
fn foreign_blocks_are_named() {
    let weights =
        Weights::planned(weighbridge::open(testkit::golden("models/llama-tiny")).unwrap(), |builder| {
            let rules =
                ["*.attention.q.weight=mlx-affine:b4,g32,f32", "*.attention.k.weight=mlx-affine:b4,g32,f32"];
            builder.encode(rules.map(|rule| rule.parse().unwrap()))
        });
    let error = weights.unwrap().qtensors(&Device::Cpu).unwrap_err();
    assert!(matches!(&error, Error::Foreign { tensors } if tensors.len() == 4), "{error}");
    assert_eq!(error.hints().len(), 1);
}

#[test]
fn an_unknown_name_has_a_near_one() {
    let (_, weights) = smollm2();
    let error = weights.qtensor("blk.3.ffn_dawn.weight", &Device::Cpu).unwrap_err();
    assert_eq!(error.hints(), ["the nearest is `blk.3.ffn_down.weight`"]);
}
