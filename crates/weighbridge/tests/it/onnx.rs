//! Conversions to ONNX, decoded here by the rules of protobuf alone: tensors, and metadata of which nothing is lost silently.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use weighbridge::convert::{Conversion, ConvertOptions, ConvertReport, OutputFormat};
use weighbridge::model::DialectName;
use weighbridge::planner::{Preset, plan_as_stored};
use weighbridge::{Checkpoint, LayoutKind, Pool, open};

use crate::golden;

/// `TensorProto.DataType.FLOAT`.
const FLOAT: u64 = 1;

/// The fields of a message: the number, and the value of a varint or the bytes of what has a length.
fn fields(mut message: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn varint(message: &mut &[u8]) -> u64 {
        let len = message.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
        let (bytes, rest) = message.split_at(len);
        *message = rest;
        bytes.iter().rev().fold(0, |n, byte| n << 7 | u64::from(byte & 0x7f))
    }
    let mut fields = vec![];
    while !message.is_empty() {
        let (key, n) = (varint(&mut message), varint(&mut message));
        let (bytes, rest) = match key & 7 {
            0 => message.split_at(0),
            2 => message.split_at(usize::try_from(n).unwrap()),
            other => panic!("wire type {other}"),
        };
        fields.push((key >> 3, n, bytes));
        message = rest;
    }
    fields
}

fn messages(message: &[u8], number: u64) -> Vec<&[u8]> {
    fields(message).into_iter().filter(|field| field.0 == number).map(|field| field.2).collect()
}

fn ints(message: &[u8], number: u64) -> Vec<u64> {
    fields(message).into_iter().filter(|field| field.0 == number).map(|field| field.1).collect()
}

fn text(message: &[u8], number: u64) -> String {
    String::from_utf8(messages(message, number).concat()).unwrap()
}

/// `StringStringEntryProto`s by key, which are distinct.
fn entries(message: &[u8], number: u64) -> BTreeMap<String, String> {
    let all = messages(message, number);
    let map: BTreeMap<_, _> = all.iter().map(|entry| (text(entry, 1), text(entry, 2))).collect();
    assert_eq!(map.len(), all.len());
    map
}

/// Converts, and gives the report and the model.
fn convert(
    source: &Checkpoint,
    layout: LayoutKind,
    options: &ConvertOptions<'_>,
    to: &Path,
) -> (ConvertReport, Vec<u8>) {
    let conversion = Conversion::new(source, layout, OutputFormat::Onnx, options).unwrap();
    let report = conversion.run(to, &mut Pool::new(2), &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(report.destination, to.into());
    (report, std::fs::read(to).unwrap())
}

/// Every initializer has the name, shape and bytes of the source's tensor, and is an output of the same shape and type.
#[test]
fn initializers_are_the_tensors_of_the_source() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["llama-tiny/model.gguf", "gpt2-tiny"] {
        let source = open(golden().join(name)).unwrap();
        let to = dir.path().join("m.onnx");
        let options = ConvertOptions { overwrite: true, ..ConvertOptions::default() };
        let (_, model) = convert(&source, LayoutKind::Source, &options, &to);
        let loaded = plan_as_stored(&source).unwrap().load(&mut Pool::new(1)).unwrap();
        let data = std::fs::read(dir.path().join("m.onnx.data")).unwrap();
        let graph = messages(&model, 7)[0];
        let (initializers, outputs) = (messages(graph, 5), messages(graph, 12));
        assert_eq!((initializers.len(), outputs.len()), (source.entries().len(), source.entries().len()));
        assert!(messages(graph, 1).is_empty(), "no nodes");
        for (tensor, output) in initializers.into_iter().zip(outputs) {
            let name = text(tensor, 8);
            let entry = source.entry(&name).unwrap();
            assert_eq!(
                (&*entry.scheme.name, ints(tensor, 2), ints(tensor, 14)),
                ("f32", vec![FLOAT], vec![1])
            );
            assert_eq!(ints(tensor, 1), entry.shape.to_vec());
            let external = entries(tensor, 13);
            let number = |key: &str| external[key].parse::<usize>().unwrap();
            let (offset, length) = (number("offset"), number("length"));
            assert_eq!((&*external["location"], offset % 4096), ("m.onnx.data", 0));
            let slots = loaded.get(&name).unwrap().slots();
            assert!(data[offset..offset + length] == *slots[0].bytes(), "{name}");
            let of_tensor = messages(messages(output, 2)[0], 1)[0];
            let dims = messages(messages(of_tensor, 2)[0], 1).iter().flat_map(|dim| ints(dim, 1)).collect();
            assert_eq!(
                (text(output, 1), ints(of_tensor, 1), dims),
                (name, vec![FLOAT], entry.shape.to_vec())
            );
        }
    }
}

/// Each key of the source is in the result or in the report.
#[test]
fn keys_of_gguf_are_carried_or_listed() {
    let dir = tempfile::tempdir().unwrap();
    let source = open(golden().join("llama-tiny/model.gguf")).unwrap();
    let to = dir.path().join("m.onnx");
    let (report, model) = convert(&source, LayoutKind::Source, &ConvertOptions::default(), &to);
    let props = entries(&model, 14);
    assert_eq!((&*props["general.architecture"], &*props["llama.block_count"]), ("llama", "2"));
    assert_eq!(props["llama.attention.layer_norm_rms_epsilon"], "0.0001");
    for key in source.metadata().gguf().unwrap().keys() {
        let left = report.left.iter().filter(|left| left.key == key && left.file == "metadata").count();
        assert_eq!(usize::from(props.contains_key(key)) + left, 1, "{key}");
    }
    assert!(
        report.left.iter().all(|left| left.key.starts_with("tokenizer.") || left.why.contains("GGUF file"))
    );
}

/// A configuration is carried as it is; of quantised weights that are decoded, without what it says of them.
#[test]
fn a_configuration_is_carried() {
    let dir = tempfile::tempdir().unwrap();
    let config = |model: &[u8]| -> serde_json::Value {
        serde_json::from_str(&entries(model, 14)["config.json"]).unwrap()
    };
    let plain = open(golden().join("llama-tiny")).unwrap();
    let of = |checkpoint: &Checkpoint| checkpoint.metadata().hf().unwrap().config().unwrap().clone();
    let (report, model) =
        convert(&plain, LayoutKind::Source, &ConvertOptions::default(), &dir.path().join("plain.onnx"));
    assert_eq!(config(&model), of(&plain));
    let files: Vec<&str> = plain.metadata().hf().unwrap().beside().map(|(name, _)| name).collect();
    let left: Vec<&str> = report.left.iter().map(|left| &*left.file).collect();
    assert_eq!(left, files.into_iter().filter(|name| *name != "config.json").collect::<Vec<_>>());

    let quantised = dir.path().join("int8");
    let options = ConvertOptions { preset: Preset::named("int8"), ..ConvertOptions::default() };
    let conversion = Conversion::new(&plain, LayoutKind::Source, OutputFormat::Hf, &options).unwrap();
    conversion.run(&quantised, &mut Pool::new(1), &mut |_| ControlFlow::Continue(())).unwrap();
    let quantised = open(&quantised).unwrap();
    assert!(of(&quantised).get("quantization_config").is_some());
    let options = ConvertOptions { rules: vec!["*=f32".parse().unwrap()], ..ConvertOptions::default() };
    let (report, model) = convert(&quantised, LayoutKind::Source, &options, &dir.path().join("decoded.onnx"));
    assert_eq!(config(&model), of(&plain));
    assert!(
        report.left.iter().any(|left| (&*left.file, &*left.key) == ("config.json", "quantization_config"))
    );

    let gguf = open(golden().join("llama-tiny/model.gguf")).unwrap();
    let layout = LayoutKind::Named(DialectName::Hf);
    let (_, model) = convert(&gguf, layout, &ConvertOptions::default(), &dir.path().join("renamed.onnx"));
    assert_eq!(config(&model)["num_hidden_layers"], 2);
}
