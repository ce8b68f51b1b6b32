"""Writes every-dtype.safetensors with the reference implementation, and a listing of what it reads back.

    pip install safetensors==0.8.0
    python make.py

The listing has one line for each tensor in the order of the data, `[name, dtype, shape, digest]`. The digest is
FNV-1a (64 bits) over the tensor's bytes.
"""

import ctypes
import json
import pathlib
import random

import safetensors

HERE = pathlib.Path(__file__).parent
# Name for the writer: bits of an element, our name.
DTYPES = {
    "bool": (8, "bool"), "uint8": (8, "u8"), "int8": (8, "i8"),
    "float8_e5m2": (8, "f8_e5m2"), "float8_e4m3fn": (8, "f8_e4m3"), "float8_e8m0fnu": (8, "f8_e8m0"),
    "float8_e4m3fnuz": (8, "f8_e4m3fnuz"), "float8_e5m2fnuz": (8, "f8_e5m2fnuz"),
    "int16": (16, "i16"), "uint16": (16, "u16"), "float16": (16, "f16"), "bfloat16": (16, "bf16"),
    "int32": (32, "i32"), "uint32": (32, "u32"), "float32": (32, "f32"),
    "complex64": (64, "c64"), "float64": (64, "f64"), "int64": (64, "i64"), "uint64": (64, "u64"),
}
METADATA = {"format": "pt", "note": "täxt \" \\ 🙂"}


def fnv(data):
    digest = 0xCBF29CE484222325
    for byte in data:
        digest = (digest ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{digest:016x}"


def write(dtypes):
    rng = random.Random(1)
    specs, keep = {}, []
    for dtype, bits in dtypes.items():
        for suffix, shape in [("", [2, 3, 4]), (".none", [0, 5]), (".one", [])]:
            count = 1
            for axis in shape:
                count *= axis
            data = rng.randbytes(count * bits // 8)
            buffer = ctypes.create_string_buffer(data, len(data) + 1)
            keep.append(buffer)
            specs[dtype + suffix] = safetensors.TensorSpec(
                dtype=dtype, shape=shape, data_ptr=ctypes.addressof(buffer), data_len=len(data))
    return bytes(safetensors.serialize(specs, METADATA))


def main():
    content = write({name: bits for name, (bits, _) in DTYPES.items()})
    (HERE / "every-dtype.safetensors").write_bytes(content)
    tensors = [
        [name, DTYPES[name.split(".")[0]][1], info["shape"], fnv(info["data"])]
        for name, info in safetensors.deserialize(content)
    ]
    with safetensors.safe_open(HERE / "every-dtype.safetensors", "np") as file:
        metadata = list(map(list, file.metadata().items()))
        order = file.offset_keys()
    tensors.sort(key=lambda tensor: order.index(tensor[0]))
    lines = ",\n".join(json.dumps(tensor, ensure_ascii=False) for tensor in tensors)
    metadata = json.dumps(sorted(metadata), ensure_ascii=False)
    (HERE / "every-dtype.json").write_text(f'{{"metadata": {metadata},\n"tensors": [\n{lines}\n]}}\n')


main()
