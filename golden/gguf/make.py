"""Writes the listings of this directory: what gguf-py's reader says about GGUF files.

    pip install VENDOR/llama.cpp/gguf-py     # llama.cpp 0c1e57098, in the sdist of llama-cpp-python 0.3.36
    python make.py [MODELS]                  # default: ~/.cache/weighbridge/models, see `cargo xtask models`

Also writes with gguf-py's writer: every-type.gguf, a tensor of every type, a value and an array of every type;
split/, a model in three parts, the first of which has no tensors; big-endian.gguf, the same values as in
every-type.gguf and plain tensors, with its listing.
A listing has one line for each pair, `[key, type, value]` or `[key, "arr", element, length, digest]`, and one
for each tensor, `[name, type, shape, offset in the file, bytes]`, the shape slowest axis first. The digest is
FNV-1a (64 bits) over the elements as the file has them, strings with their 8-byte length.
"""

import json
import pathlib
import sys

import gguf
import numpy as np

HERE = pathlib.Path(__file__).parent
NAMES = {
    gguf.GGUFValueType.UINT8: "u8", gguf.GGUFValueType.INT8: "i8",
    gguf.GGUFValueType.UINT16: "u16", gguf.GGUFValueType.INT16: "i16",
    gguf.GGUFValueType.UINT32: "u32", gguf.GGUFValueType.INT32: "i32",
    gguf.GGUFValueType.UINT64: "u64", gguf.GGUFValueType.INT64: "i64",
    gguf.GGUFValueType.FLOAT32: "f32", gguf.GGUFValueType.FLOAT64: "f64",
    gguf.GGUFValueType.BOOL: "bool", gguf.GGUFValueType.STRING: "str",
}


def fnv(data):
    digest = 0xCBF29CE484222325
    for byte in data:
        digest = (digest ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{digest:016x}"


def pair(field):
    if field.types[0] != gguf.GGUFValueType.ARRAY:
        return [field.name, NAMES[field.types[0]], field.contents()]
    parts = [field.parts[i].tobytes() for i in field.data]
    if field.types[-1] == gguf.GGUFValueType.STRING:
        parts = [len(part).to_bytes(8, "little") + part for part in parts]
    return [field.name, "arr", NAMES[field.types[-1]], len(parts), fnv(b"".join(parts))]


def listing(path):
    reader = gguf.GGUFReader(path)
    pairs = [pair(f) for name, f in reader.fields.items() if not name.startswith("GGUF.")]
    tensors = [
        [t.name, t.tensor_type.name.lower(), [int(n) for n in reversed(t.shape)], int(t.data_offset), int(t.n_bytes)]
        for t in reader.tensors
    ]
    lines = lambda items: ",\n".join(json.dumps(item, ensure_ascii=False, default=lambda x: x.item()) for item in items)
    version = int(reader.fields["GGUF.version"].parts[-1][0])
    return (
        f'{{"version": {version}, "alignment": {reader.alignment}, "data_offset": {reader.data_offset},\n'
        f'"pairs": [\n{lines(pairs)}\n],\n"tensors": [\n{lines(tensors)}\n]}}\n'
    )


def write_every_value(writer):
    values = {
        "u8": 200, "i8": -100, "u16": 60000, "i16": -30000, "u32": 4_000_000_000, "i32": -2_000_000_000,
        "u64": 2**64 - 1, "i64": -(2**63), "f32": 0.1, "f64": 0.1, "bool": True, "str": "täxt ▁ 🙂",
    }
    for kind, name in NAMES.items():
        writer.add_key_value(f"one.{name}", values[name], kind)
    for kind, name in NAMES.items():
        writer.add_key_value(f"many.{name}", [values[name], values[name]], gguf.GGUFValueType.ARRAY, kind)
    writer.add_key_value("text.empty", "", gguf.GGUFValueType.STRING)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_every_type(path):
    rng = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(64)
    write_every_value(writer)
    for kind, (elements, size) in gguf.GGML_QUANT_SIZES.items():
        name = kind.name.lower()
        shape = [2, 3, size]  # in bytes: two matrices of three rows of one block
        writer.add_tensor(f"{name}.weight", rng.integers(0, 256, shape, dtype=np.uint8), raw_dtype=kind)
    finish(writer)


def write_split(folder):
    folder.mkdir(exist_ok=True)
    writer = gguf.GGUFWriter(folder / "tiny.gguf", "llama", split_max_tensors=2, small_first_shard=True)
    writer.add_block_count(1)
    for i, name in enumerate(["token_embd.weight", "blk.0.attn_q.weight", "output_norm.weight"], 1):
        writer.add_tensor(name, np.full([i, 32], i * 257, dtype=np.int32))
    finish(writer)


def write_big_endian(path):
    writer = gguf.GGUFWriter(path, "llama", endianess=gguf.GGUFEndian.BIG)
    writer.add_custom_alignment(64)
    write_every_value(writer)
    for dtype in ["f4", "f2", "f8", "i1", "i2", "i4", "i8"]:
        writer.add_tensor(f"{dtype}.weight", np.arange(-3, 3).reshape(2, 3).astype(dtype))
    finish(writer)


def main():
    models = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path.home() / ".cache/weighbridge/models"
    write_every_type(HERE / "every-type.gguf")
    (HERE / "every-type.json").write_text(listing(HERE / "every-type.gguf"))
    write_big_endian(HERE / "big-endian.gguf")
    (HERE / "big-endian.json").write_text(listing(HERE / "big-endian.gguf"))
    write_split(HERE / "split")
    for name in ["smollm2", "gemma3"]:
        (HERE / f"{name}.json").write_text(listing(models / name / f"{name}.gguf"))


main()
