#!/usr/bin/env python3
"""Makes golden/big-endian: files with the most significant byte first, and what the references read in them.

    python golden/big_endian.py     with gguf-py of llama.cpp 0c1e57098, numpy 2.4, torch 2.15

llama.gguf is golden/models/llama-tiny/model.gguf, written big-endian by gguf-py, matrices in f16. arrays.npz,
whole.npz and squish/ hold numpy's big-endian arrays. storage.pt is an archive of torch whose storages were swapped here, and that
says so; torch.load reads it. values.npz is what numpy and torch read, in their own order.
"""

import io
import json
import zipfile
from pathlib import Path

import gguf
import numpy as np
import torch

HERE = Path(__file__).parent / "big-endian"
HERE.mkdir(exist_ok=True)

reader = gguf.GGUFReader(HERE.parent / "models/llama-tiny/model.gguf")
writer = gguf.GGUFWriter(HERE / "llama.gguf", "llama", endianess=gguf.GGUFEndian.BIG)
for name, field in reader.fields.items():
    if name.startswith("GGUF.") or name == "general.architecture":
        continue
    sub = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
    writer.add_key_value(name, field.contents(), field.types[0], sub_type=sub)
for tensor in reader.tensors:
    data = gguf.dequantize(tensor.data, tensor.tensor_type)
    data = data.reshape(tuple(int(n) for n in reversed(tensor.shape)))
    writer.add_tensor(tensor.name, data.astype(np.float16) if data.ndim > 1 else data.astype(np.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

r = np.random.default_rng(9)
x = r.normal(0, 1, (4, 6))
arrays = {"f2": x.astype(">f2"), "f4": x.astype(">f4"), "f8": x.astype(">f8"),
          "columns": np.asfortranarray(x.astype(">f4"))}
np.savez(HERE / "arrays.npz", **arrays)
np.savez(HERE / "whole.npz", i4=(x * 99).astype(">i4"))
values = {f"npz.{name}": a.astype(a.dtype.newbyteorder("<"), order="C") for name, a in arrays.items()}

squish = HERE / "squish" / "tensors"
squish.mkdir(parents=True, exist_ok=True)
(squish.parent / "manifest.json").write_text(json.dumps({"a": "a", "b": "b"}) + "\n")
np.save(squish / "a__pt.npy", x.astype(">f2"))
np.save(squish / "a__shape.npy", np.array(x.shape, np.int64))
np.save(squish / "b__pt.npy", np.asfortranarray(x.astype("<f4")))

out = io.BytesIO()
torch.save({"f32": torch.from_numpy(x.astype("f4")), "bf16": torch.from_numpy(x).to(torch.bfloat16)}, out)
with zipfile.ZipFile(out) as old, zipfile.ZipFile(HERE / "storage.pt", "w") as new:
    for info in old.infolist():
        data = old.read(info)
        if info.filename.endswith("byteorder"):
            data = b"big"
        if "/data/" in info.filename:
            width = 4 if len(data) == 4 * x.size else 2
            data = np.frombuffer(data, f"<u{width}").astype(f">u{width}").tobytes()
        new.writestr(zipfile.ZipInfo(info.filename, (1980, 1, 1, 0, 0, 0)), data)
for name, tensor in torch.load(HERE / "storage.pt", weights_only=True).items():
    values[f"pt.{name}"] = tensor.float().numpy()
np.savez(HERE / "values.npz", **values)
