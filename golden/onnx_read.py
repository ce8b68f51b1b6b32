#!/usr/bin/env python3
"""Checks that others read the ONNX that `weighbridge convert` writes, and keeps what they said in onnx/results.json.

    pip install onnx==1.23.2 onnxruntime==1.32.0 ml_dtypes==0.6.0 gguf==0.19.0
    cargo build --release -p weighbridge-cli
    python golden/onnx_read.py --weighbridge target/release/weighbridge --models ~/.cache/weighbridge/models

--models is where `cargo xtask models` put smollm2 and gpt2-124m. A check that fails makes the script fail.

- onnx/every-dtype.onnx and its data are what the package onnx writes of safetensors/every-dtype.safetensors, with offsets
  on pages of 4096 bytes. A test of the crate `checkpoint` writes the same bytes. Where the version of weighbridge goes,
  the file has `VERSION`.
- Each model is converted. onnx loads it with its data; its checker, with inference of shapes, finds no fault; the bytes
  of every initializer are those of the source: of the safetensors file, or what gguf-py decodes, rounded by numpy.
- onnxruntime opens the model and fetches every output, equal to the initializer. It knows no complex numbers, and gives
  no numpy array of bfloat16 and of most float8: there, opening is all that is asked.
- onnxruntime opens no model without outputs, which is why initializers are listed as such.
"""

import argparse
import json
import struct
import subprocess
import tempfile
from pathlib import Path

import ml_dtypes  # noqa: F401  The types that numpy lacks.
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnx.external_data_helper import set_external_data

HERE = Path(__file__).parent
EVERY = HERE / "safetensors" / "every-dtype.safetensors"
TYPES = {
    "F32": "FLOAT", "U8": "UINT8", "I8": "INT8", "U16": "UINT16", "I16": "INT16", "I32": "INT32", "I64": "INT64",
    "BOOL": "BOOL", "F16": "FLOAT16", "F64": "DOUBLE", "U32": "UINT32", "U64": "UINT64", "C64": "COMPLEX64",
    "BF16": "BFLOAT16", "F8_E4M3": "FLOAT8E4M3FN", "F8_E4M3FNUZ": "FLOAT8E4M3FNUZ", "F8_E5M2": "FLOAT8E5M2",
    "F8_E5M2FNUZ": "FLOAT8E5M2FNUZ", "F8_E8M0": "FLOAT8E8M0",
}  # fmt: skip
UNKNOWN_TO_ONNXRUNTIME = {TensorProto.COMPLEX64}
NO_NUMPY_IN_ONNXRUNTIME = {
    TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ,
    TensorProto.FLOAT8E8M0,
}  # fmt: skip


def safetensors(path):
    """Metadata, and type, shape and bytes of each tensor, in the order of the data."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    metadata = header.pop("__metadata__", {})
    cut = lambda t: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])])  # noqa: E731
    ordered = sorted(header.items(), key=lambda item: item[1]["data_offsets"])
    return metadata, {name: cut(t) for name, t in ordered}


def make_every_dtype():
    """As onnx writes it."""
    metadata, tensors = safetensors(EVERY)
    initializers, outputs, end = [], [], 0
    for name, (dtype, shape, data) in tensors.items():
        data_type = TensorProto.DataType.Value(TYPES[dtype])
        tensor = TensorProto(dims=shape, data_type=data_type, name=name, raw_data=data)
        offset = -(-end // 4096) * 4096
        set_external_data(tensor, "every-dtype.onnx.data", offset, len(data))
        end = offset + len(data)
        initializers.append(tensor)
        outputs.append(helper.make_tensor_value_info(name, data_type, shape))
    doc = "The weights of a model, as initializers. There are no nodes."
    graph = helper.make_graph([], "weights", [], outputs, initializers, doc_string=doc)
    # The IR that has float8_e8m0, and the operators of its release.
    opset = onnx.OperatorSetIdProto(version=24)
    model = helper.make_model(
        graph, ir_version=12, opset_imports=[opset], producer_name="weighbridge", producer_version="VERSION"
    )
    helper.set_model_props(model, metadata)
    to = HERE / "onnx" / "every-dtype.onnx"
    Path(f"{to}.data").unlink(missing_ok=True)
    to.parent.mkdir(exist_ok=True)
    onnx.save(model, to)


def gguf_rounded(path, dtype):
    """The bytes of each tensor of a GGUF file in `dtype`, as gguf-py decodes them and numpy rounds them."""
    import gguf

    reader = gguf.GGUFReader(path)
    decode = lambda t: gguf.quants.dequantize(t.data, t.tensor_type).astype(dtype).tobytes()  # noqa: E731
    return {t.name: decode(t) for t in reader.tensors}


def without_outputs(path):
    """What onnxruntime says of the same model without outputs."""
    model = onnx.load(path, load_external_data=False)
    del model.graph.output[:]
    other = path.with_name("without.onnx")
    other.write_bytes(model.SerializeToString())
    try:
        onnxruntime.InferenceSession(other)
        return "opens"
    except Exception as error:
        return str(error).split("&) ")[-1].strip()


def check(path, wanted):
    """What the readers find in the model at `path`, whose tensors should have the bytes `wanted`."""
    onnx.checker.check_model(path, full_check=True)
    model = onnx.load(path)
    initializers = model.graph.initializer
    found = {t.name: t.raw_data for t in initializers}
    offsets = [int(e.value) for t in onnx.load(path, load_external_data=False).graph.initializer
               for e in t.external_data if e.key == "offset"]  # fmt: skip
    facts = {
        "ir_version": model.ir_version,
        "opset": model.opset_import[0].version,
        "initializers": len(initializers),
        "bytes": sum(map(len, found.values())),
        "equal": sum(found[name] == data for name, data in wanted.items()),
        "unaligned": sum(offset % 4096 != 0 for offset in offsets),
        "metadata_props": sorted(p.key for p in model.metadata_props),
    }
    types = {t.name: t.data_type for t in initializers}
    if UNKNOWN_TO_ONNXRUNTIME.isdisjoint(types.values()):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(path, options)
        fetched = [name for name, kind in types.items() if kind not in NO_NUMPY_IN_ONNXRUNTIME]
        got = dict(zip(fetched, session.run(fetched, {}) if fetched else []))
        facts["onnxruntime"] = {
            "outputs": len(session.get_outputs()),
            "fetched": len(fetched),
            "equal": sum(got[name].tobytes() == found[name] for name in fetched),
        }
    ok = facts["equal"] == len(wanted) == len(found) and facts["unaligned"] == 0
    if "onnxruntime" in facts:
        runtime = facts["onnxruntime"]
        ok = ok and runtime["outputs"] == len(found) and runtime["equal"] == runtime["fetched"]
    return {**facts, "ok": ok}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--weighbridge", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    args = parser.parse_args()
    onnxruntime.set_default_logger_severity(4)
    make_every_dtype()

    with tempfile.TemporaryDirectory() as work:
        work = Path(work)

        def convert(source, name, *options):
            to = work / f"{name}.onnx"
            subprocess.run([args.weighbridge, "convert", source, to, *options], check=True, stdout=subprocess.DEVNULL)
            return to

        def of_safetensors(path):
            return {name: data for name, (_, _, data) in safetensors(path)[1].items()}

        results = {}
        every = convert(EVERY, "every-dtype")
        results["every-dtype"] = check(every, of_safetensors(EVERY))
        golden = HERE / "onnx" / "every-dtype.onnx"
        results["as onnx writes it"] = check(golden, of_safetensors(EVERY))
        tiny = HERE / "models" / "llama-tiny"
        llama = convert(tiny, "llama-tiny")
        results["llama-tiny"] = check(llama, of_safetensors(tiny / "model.safetensors"))
        results["llama-tiny"]["without outputs"] = without_outputs(llama)
        for model, encoding, dtype in [("smollm2", "f16", np.float16), ("gpt2-124m", "f32", np.float32)]:
            source = args.models / model / f"{model}.gguf"
            to = convert(source, model, "--encode", f"*={encoding}")
            results[f"{model} {encoding}"] = check(to, gguf_rounded(source, dtype))
        # Each type on its own: onnxruntime opens all but complex numbers.
        for name, (dtype, _, data) in safetensors(EVERY)[1].items():
            if dtype != "C64" and "." not in name:
                alone = work / f"{name}.safetensors"
                header = json.dumps({name: {"dtype": dtype, "shape": [2, 3, 4], "data_offsets": [0, len(data)]}})
                alone.write_bytes(struct.pack("<Q", len(header)) + header.encode() + data)
                results[TYPES[dtype]] = check(convert(alone, name), {name: data})

    (HERE / "onnx" / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    failed = [name for name, facts in results.items() if not facts["ok"]]
    assert not failed, failed


main()
