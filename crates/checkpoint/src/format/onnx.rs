//! ONNX, which is written and not read: a model whose graph has initializers and no nodes, and beside it the file with
//! their data.
//!
//! Source: onnx/onnx.proto of onnx 1.23.2, whose messages and fields are named here as they are there.

use std::collections::HashSet;

use tensor::Dtype;

use crate::error::Error;
use crate::fault::Fault;
use crate::write::{Flat, Outgoing, Output, Refusals};

/// The ending of the file with the data, after the name of the model (as `torch.onnx.export` has it).
pub(crate) const DATA: &str = ".data";

/// The name of the file with the data until that of the model is known.
pub(crate) const LOCATION: &str = "model.onnx.data";

/// Offsets are multiples of a page, so that data can be mapped.
///
/// Source: docs/ExternalData.md of onnx@22b3d42c9, `offset`.
const PAGE: u64 = 4096;

/// On Windows a map starts at a multiple of this (the same source), so tensors of over [`LARGE`] bytes do too. Among small
/// tensors the gaps would outweigh the data.
const GRANULARITY: u64 = 64 << 10;

/// `align_threshold` of onnxruntime's core/graph/model_saving_options.h.
const LARGE: u64 = 1 << 20;

/// The version that lets an initializer be no input of its graph.
const LEAST_IR: u64 = 4;

/// `TensorProto.DataType` of a dtype, and the first version of the IR that has it.
fn data_type(dtype: Dtype) -> (u64, u64) {
    match dtype {
        Dtype::F32 => (1, LEAST_IR),
        Dtype::U8 => (2, LEAST_IR),
        Dtype::I8 => (3, LEAST_IR),
        Dtype::U16 => (4, LEAST_IR),
        Dtype::I16 => (5, LEAST_IR),
        Dtype::I32 => (6, LEAST_IR),
        Dtype::I64 => (7, LEAST_IR),
        Dtype::Bool => (9, LEAST_IR),
        Dtype::F16 => (10, LEAST_IR),
        Dtype::F64 => (11, LEAST_IR),
        Dtype::U32 => (12, LEAST_IR),
        Dtype::U64 => (13, LEAST_IR),
        Dtype::C64 => (14, LEAST_IR),
        Dtype::BF16 => (16, LEAST_IR),
        Dtype::F8E4M3 => (17, 9),
        Dtype::F8E4M3FNUZ => (18, 9),
        Dtype::F8E5M2 => (19, 9),
        Dtype::F8E5M2FNUZ => (20, 9),
        Dtype::F8E8M0 => (24, 12),
    }
}

/// The operator set that was released with a version of the IR (onnx/helper.py, `VERSION_TABLE`).
fn opset(ir: u64) -> u64 {
    match ir {
        ..9 => 9,
        9..12 => 19,
        _ => 24,
    }
}

/// Lays out the file with the data of `tensors`.
pub(crate) fn data(tensors: &[Outgoing]) -> Result<Flat, Error> {
    let mut refused = Refusals::default();
    let mut names = HashSet::new();
    let (mut offsets, mut len) = (Vec::with_capacity(tensors.len()), 0u64);
    for tensor in tensors {
        let Outgoing { name, shape, scheme } = tensor;
        if scheme.dtype().is_none() {
            refused.scheme(tensor);
            continue;
        }
        if let Some(fault) = Fault::of_name(name.as_bytes(), "tensor name") {
            refused.push(tensor, fault);
        }
        if !names.insert(name) {
            refused.push(tensor, Fault::Twice);
        }
        // `dims` are signed; an axis may be as long as it likes beside one of 0.
        let limit = i64::MAX.unsigned_abs();
        if let Some(found) = shape.iter().copied().find(|n| *n > limit) {
            refused.push(tensor, Fault::Limit { what: "dimension", found, limit });
        }
        match scheme.byte_len(shape) {
            Ok(bytes) => {
                let align = if bytes > LARGE { GRANULARITY } else { PAGE };
                let at = len.div_ceil(align).saturating_mul(align);
                offsets.push(vec![at]);
                len = at.saturating_add(bytes);
            }
            Err(why) => refused.push(tensor, Fault::geometry(shape, scheme, why)),
        }
    }
    refused.check("onnx", "a plain dtype")?;
    Ok(Flat { head: vec![], between: vec![], offsets, len })
}

/// The name by which a model at `output` knows the file with its data.
pub(crate) fn location(output: &Output) -> Result<String, Error> {
    let refuse = |why| Err(Error::whole(output.location(), Fault::Unnamed { why }));
    let name = match output {
        Output::Path(path) => path.file_name().map(|name| name.to_str()),
        Output::Bucket { name, .. } => (!name.is_root()).then(|| Some(name.file_name())),
    };
    match name {
        None => Err(Error::whole(output.location(), Fault::NoFileName)),
        Some(None) => refuse("the name is not UTF-8, as all text in the file is"),
        // Anywhere in it: onnx/checker.cc, `resolve_external_data_location`.
        Some(Some(name)) if name.contains("..") => refuse("readers refuse names with `..`"),
        Some(Some(name)) => Ok(format!("{name}{DATA}")),
    }
}

/// The `ModelProto` of `tensors`, whose data are at `offsets` of the file `location`.
///
/// Each initializer is an output too. The checker wants no outputs, but onnxruntime opens no graph without one, and fetches
/// any output by name. Fields are in the order of their numbers, as the reference writes them.
pub(crate) fn model<'t>(
    tensors: &'t [Outgoing],
    offsets: impl Iterator<Item = u64>,
    metadata_props: &[(String, String)],
    location: &str,
) -> Vec<u8> {
    // The draft has taken them: each has a dtype and a length.
    let typed = tensors.iter().filter_map(|t| Some((t, data_type(t.scheme.dtype()?))));
    let typed: Vec<(&'t Outgoing, (u64, u64))> = typed.collect();
    let ir_version = typed.iter().map(|(_, (_, ir))| *ir).max().unwrap_or(LEAST_IR);
    let mut graph = Message::default().text(2, "weights");
    for ((tensor, (data_type, _)), offset) in typed.iter().zip(offsets) {
        graph = graph.message(5, initializer(tensor, *data_type, offset, location));
    }
    graph = graph.text(10, "The weights of a model, as initializers. There are no nodes.");
    for (tensor, (data_type, _)) in &typed {
        graph = graph.message(12, output(tensor, *data_type));
    }
    let mut model = Message::default()
        .int(1, ir_version)
        .text(2, "weighbridge")
        .text(3, env!("CARGO_PKG_VERSION"))
        .message(7, graph)
        .message(8, Message::default().int(2, opset(ir_version)));
    for (key, value) in metadata_props {
        model = model.message(14, entry(key, value));
    }
    model.0
}

/// A `TensorProto`.
fn initializer(tensor: &Outgoing, data_type: u64, offset: u64, location: &str) -> Message {
    const EXTERNAL: u64 = 1;
    let length = tensor.scheme.byte_len(&tensor.shape).unwrap_or(0);
    let dims = tensor.shape.iter().fold(Message::default(), |dims, n| dims.int(1, *n));
    dims.int(2, data_type)
        .text(8, &tensor.name)
        .message(13, entry("location", location))
        .message(13, entry("offset", &offset.to_string()))
        .message(13, entry("length", &length.to_string()))
        .int(14, EXTERNAL)
}

/// A `ValueInfoProto`.
fn output(tensor: &Outgoing, data_type: u64) -> Message {
    let dimension = |n: &u64| Message::default().int(1, *n);
    let shape = tensor.shape.iter().fold(Message::default(), |shape, n| shape.message(1, dimension(n)));
    let of_tensor = Message::default().int(1, data_type).message(2, shape);
    Message::default().text(1, &tensor.name).message(2, Message::default().message(1, of_tensor))
}

/// A `StringStringEntryProto`.
fn entry(key: &str, value: &str) -> Message {
    Message::default().text(1, key).text(2, value)
}

/// A message of protobuf, to which fields are added by number.
///
/// Source: protobuf.dev/programming-guides/encoding.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn int(self, field: u64, value: u64) -> Message {
        const VARINT: u64 = 0;
        self.varint(field << 3 | VARINT).varint(value)
    }

    fn text(self, field: u64, text: &str) -> Message {
        self.bytes(field, text.as_bytes())
    }

    fn message(self, field: u64, message: Message) -> Message {
        self.bytes(field, &message.0)
    }

    fn bytes(self, field: u64, bytes: &[u8]) -> Message {
        const LEN: u64 = 2;
        let mut out = self.varint(field << 3 | LEN).varint(bytes.len() as u64);
        out.0.extend(bytes);
        out
    }

    /// Seven bits a byte, the lowest first; the eighth says that more follow.
    fn varint(mut self, mut n: u64) -> Message {
        while n >= 0x80 {
            let [low, ..] = n.to_le_bytes();
            self.0.push(low | 0x80);
            n >>= 7;
        }
        let [last, ..] = n.to_le_bytes();
        self.0.push(last);
        self
    }
}

#[cfg(test)]
mod tests {
    use tensor::Scheme;

    use super::*;

    fn tensor(name: &str, dtype: Dtype, shape: &[u64]) -> Outgoing {
        Outgoing { name: name.into(), shape: shape.to_vec().into(), scheme: Scheme::plain(dtype) }
    }

    #[test]
    fn small_tensors_begin_on_pages_and_large_ones_where_windows_maps() {
        let tensors = [
            tensor("a", Dtype::U8, &[1]),
            tensor("b", Dtype::U8, &[LARGE]),
            tensor("c", Dtype::U8, &[LARGE + 1]),
            tensor("d", Dtype::U8, &[0]),
        ];
        let Flat { offsets, len, .. } = data(&tensors).unwrap();
        let after = LARGE + GRANULARITY;
        // The empty one, too, is inside the file: readers compare its offset with the length.
        assert_eq!(offsets.concat(), [0, PAGE, after, after + LARGE + PAGE]);
        assert_eq!(len, after + LARGE + PAGE);
    }

    /// The oldest version that has all types, so that the oldest readers open it.
    #[test]
    fn the_version_is_that_of_the_newest_type() {
        let version = |dtypes: &[Dtype]| {
            let tensors: Vec<Outgoing> = dtypes.iter().map(|d| tensor(d.name(), *d, &[])).collect();
            let model = model(&tensors, 0.., &[], LOCATION);
            let import = |opset| Message::default().message(8, Message::default().int(2, opset)).0;
            (model[1], [9, 19, 24].into_iter().find(|n| model.ends_with(&import(*n))).unwrap())
        };
        assert_eq!(version(&[]), (4, 9));
        assert_eq!(version(&[Dtype::F32, Dtype::BF16]), (4, 9));
        assert_eq!(version(&[Dtype::F8E5M2, Dtype::F16]), (9, 19));
        assert_eq!(version(&[Dtype::F8E8M0, Dtype::F8E4M3]), (12, 24));
    }

    #[test]
    fn a_name_that_readers_refuse_is_refused() {
        let of = |path: &str| location(&Output::from(path)).map_err(|e| e.to_string());
        assert_eq!(of("a/../b/m.onnx").unwrap(), "m.onnx.data");
        assert!(of("a/m..onnx").unwrap_err().contains("`..`"));
        assert!(of("/").is_err());
    }

    #[test]
    fn what_has_no_place_is_refused_at_once() {
        let tensors = [
            tensor("a", Dtype::F32, &[1]),
            tensor("a", Dtype::F32, &[1]),
            tensor("", Dtype::F32, &[1]),
            tensor("long", Dtype::U8, &[0, 1 << 63]),
            Outgoing { scheme: quant::scheme("q4_0").unwrap(), ..tensor("q", Dtype::F32, &[32]) },
        ];
        let refused = data(&tensors).err().unwrap();
        assert_eq!(refused.problems().len(), 4, "{refused}");
        assert!(matches!(refused, Error::Misuse(_)));
    }
}
