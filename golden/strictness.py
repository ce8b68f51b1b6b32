"""Small files at the edge of what formats allow, and what the reference readers make of them: strictness/cases.json.

    pip install numpy==2.4.6 torch==2.15.0 safetensors==0.8.0
    python strictness.py --gguf-py DIR --ggml LIB

DIR is gguf-py of llama.cpp (commit 0c1e57098 was used), LIB a built libggml-base.so of it. What Weighbridge makes of the
same files is found by the test `strictness` of crates/checkpoint, which keeps the tables of docs/strictness.md.
"""

import argparse
import base64
import ctypes
import io
import json
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
CASES = []


def case(format_, what, content, why):
    suffix = {"gguf": ".gguf", "safetensors": ".safetensors", "numpy": ".npy", "PyTorch": ".pt"}[format_]
    CASES.append({"format": format_, "what": what, "why": why, "suffix": suffix, "content": content})


# ---------------------------------------------------------------- safetensors


def st(header, data=b"\0" * 4):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def info(shape=(1,), offsets=(0, 4), dtype="F32", **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}


def safetensors_cases():
    f = "safetensors"
    one = json.dumps(info())
    case(f, "a tensor's name twice, with the same range", st(f'{{"a": {one}, "a": {one}}}'.encode()),
         "the reference keeps the last; which one is meant cannot be known")
    case(f, "a name twice, once written `\\u0061`", st(f'{{"a": {one}, "\\u0061": {one}}}'.encode()), "it is one name, written twice")
    case(f, "white space before the `{`", st(b" " + json.dumps({"a": info()}).encode()), "the format's own text forbids it")
    case(f, "a field of a tensor that is not known", st({"a": info(scale=2)}),
         "a later version of the format may give it a meaning that changes values")
    case(f, "`__metadata__` is null", st(b'{"__metadata__": null, "a": ' + one.encode() + b"}"), "it is a map of strings")
    case(f, "an empty name", st({"": info()}), "it cannot be asked for, and hides a fault of the writer")
    case(f, "a NUL in a name", st({"a\0b": info()}), "C readers see another name")
    case(f, "rank 1000", st({"a": info(shape=[1] * 1000)}), "no tensor has it; loops over axes are bounded by 64")
    case(f, "a shape `[0, 2^40, 2^40]`", st({"a": info(shape=[0, 2**40, 2**40], offsets=(0, 0))}, b""),
         "the product of all but the zero overflows, which other code multiplies in another order")
    case(f, "no tensors at all", st({}, b""), "")
    case(f, "a tensor between two others is missing from the data (a hole)",
         st({"a": info(), "b": info(offsets=(8, 12))}, b"\0" * 12), "")
    case(f, "bytes after the last tensor", st({"a": info()}, b"\0" * 8), "")
    case(f, "dtype `F8_E4M3FNUZ`", st({"a": info(dtype="F8_E4M3FNUZ", offsets=(0, 1))}, b"\0"), "")
    case(f, "dtype `F4`, two values a byte", st({"a": info(dtype="F4", shape=[2], offsets=(0, 1))}, b"\0"),
         "no scheme says in which half of the byte the first value is")
    case(f, "dtype `C64`", st({"a": info(dtype="C64", offsets=(0, 8))}, b"\0" * 8), "")
    case(f, "data_offsets as `0.0`", st(b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0.0, 4]}}'), "")


# ---------------------------------------------------------------- GGUF

F32, Q4_0, Q8_0 = 0, 2, 8
U32, BOOL, STR, ARR, U64 = 4, 7, 8, 9, 10


def text(s):
    s = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(s)) + s


def kv(key, kind, value):
    return text(key) + struct.pack("<I", kind) + value


def tensor(name, dims, kind=F32, offset=0):
    return text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", kind, offset)


def gguf(kvs=(), tensors=(), data=b"\0" * 32, version=3, alignment=32, counts=None):
    arch = [kv("general.architecture", STR, text("none"))]
    kvs = arch + list(kvs)
    n_tensors, n_kv = counts or (len(tensors), len(kvs))
    head = b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_kv) + b"".join(kvs) + b"".join(tensors)
    return head + b"\0" * (-len(head) % alignment) + data


def big(content):
    """The same tiny file in the other byte order: one tensor of one f32, one string."""
    name, arch, key = b"a", b"none", b"general.architecture"
    head = b"GGUF" + struct.pack(">IQQ", 3, 1, 1)
    head += struct.pack(">Q", len(key)) + key + struct.pack(">I", STR) + struct.pack(">Q", len(arch)) + arch
    head += struct.pack(">Q", len(name)) + name + struct.pack(">IQIQ", 1, 1, F32, 0)
    return head + b"\0" * (-len(head) % 32) + content


def gguf_cases():
    f = "gguf"
    a = tensor("a", [1])
    u32 = struct.pack("<I", 1)
    case(f, "version 1, with 32-bit lengths", b"GGUF" + struct.pack("<III", 1, 0, 1) +
         struct.pack("<I", 4) + b"name" + struct.pack("<I", STR) + struct.pack("<I", 1) + b"x",
         "files of August 2023 are still about, and nothing in them is ambiguous")
    case(f, "version 4", gguf(tensors=[a], version=4), "what it would mean is not known")
    case(f, "big-endian", big(b"\0" * 32), "")
    case(f, "a key twice", gguf([kv("k", U32, u32), kv("k", U32, u32)], [a]), "which is meant cannot be known")
    case(f, "an empty key", gguf([kv("", U32, u32)], [a]), "as the C reader: it cannot be asked for")
    case(f, "a key that is not UTF-8", gguf([kv(b"\xff", U32, u32)], [a]), "the specification says UTF-8, and names are compared")
    case(f, "a string that is not UTF-8", gguf([kv("k", STR, text(b"\xff"))], [a]),
         "refused only where the value is used as text")
    case(f, "a bool of 2", gguf([kv("k", BOOL, b"\x02")], [a]), "")
    case(f, "an array of arrays", gguf([kv("k", ARR, struct.pack("<IQ", ARR, 1) + struct.pack("<IQ", U32, 1) + u32)], [a]),
         "nothing writes it, and depth would be an attacker's to choose")
    case(f, "a value type 13", gguf([kv("k", 13, u32)], [a]), "")
    case(f, "alignment 8", gguf([kv("general.alignment", U32, struct.pack("<I", 8))], [a], alignment=8), "")
    case(f, "alignment 2", gguf([kv("general.alignment", U32, struct.pack("<I", 2))], [a], alignment=2), "")
    case(f, "alignment 24", gguf([kv("general.alignment", U32, struct.pack("<I", 24))], [a], alignment=24),
         "padding is computed with masks: a power of two, as the C reader says")
    case(f, "alignment 0", gguf([kv("general.alignment", U32, struct.pack("<I", 0))], [a]), "")
    case(f, "alignment as u64", gguf([kv("general.alignment", U64, struct.pack("<Q", 32))], [a]),
         "the specification has u32; no other integer can be misread")
    case(f, "a tensor's name twice", gguf([], [a, tensor("a", [1], offset=32)], b"\0" * 64), "")
    case(f, "an empty name of a tensor", gguf([], [tensor("", [1])]), "it cannot be asked for")
    case(f, "a name of 64 bytes", gguf([], [tensor("n" * 64, [1])]), "ggml keeps 63 bytes and a NUL, and no writer that llama.cpp reads has more")
    case(f, "five dimensions", gguf([], [tensor("a", [1] * 5)]), "ggml has four")
    case(f, "rank 0", gguf([], [tensor("a", [])]), "")
    case(f, "a dimension of 0", gguf([], [tensor("a", [0])], b""), "")
    case(f, "rows that are no whole blocks", gguf([], [tensor("a", [33], Q4_0)], b"\0" * 64), "")
    case(f, "a removed type, 4 (Q4_2)", gguf([], [tensor("a", [32], 4)]), "")
    case(f, "a type that is not known, 200", gguf([], [tensor("a", [32], 200)]), "")
    case(f, "two tensors at one offset", gguf([], [a, tensor("b", [1])]),
         "a writer's fault: one of them has the other's values")
    case(f, "a hole between two tensors", gguf([], [a, tensor("b", [1], offset=64)], b"\0" * 96),
         "as the C reader: bytes that belong to no tensor are a writer's fault")
    case(f, "an offset that is not aligned", gguf([], [a, tensor("b", [1], offset=4)]),
         "kernels read whole vectors; the specification says aligned")
    case(f, "tensors in another order than their data", gguf([], [tensor("a", [1], offset=32), tensor("b", [1])], b"\0" * 64),
         "as the C reader: offsets run on, so that nothing overlaps or is left out")
    case(f, "bytes after the last tensor", gguf([], [a], b"\0" * 64 + b"junk"), "")
    case(f, "data cut short", gguf([], [tensor("a", [64])], b"\0" * 32), "")
    case(f, "no padding after the last tensor", gguf([], [a], b"\0" * 4), "")
    case(f, "a string of 2^40 bytes", gguf([kv("k", STR, struct.pack("<Q", 2**40))], []), "")
    case(f, "no tensors", gguf(data=b""), "")


# ---------------------------------------------------------------- numpy


def npy(header, data=b"\0" * 4, version=(1, 0), pad=True):
    text_ = header.encode()
    if pad:
        text_ += b" " * (-(10 + len(text_) + 1) % 64) + b"\n"
    size = struct.pack("<H" if version[0] == 1 else "<I", len(text_))
    return b"\x93NUMPY" + bytes(version) + size + text_ + data


def saved(array):
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


def numpy_cases():
    f = "numpy"
    plain = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }"
    case(f, "a header that is not padded to 64", npy(plain, pad=False), "")
    case(f, "keys in another order", npy("{'shape': (1,), 'fortran_order': False, 'descr': '<f4'}"), "")
    case(f, "a key more", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}"), "")
    case(f, "bytes after the array", npy(plain, b"\0" * 8), "one of shape and length is wrong")
    case(f, "data cut short", npy(plain, b"\0" * 3), "")
    case(f, "version 2.0", npy(plain, version=(2, 0)), "")
    case(f, "version 4.0", npy(plain, version=(4, 0)), "")
    case(f, "numbers as Python 2 wrote them, `1L`", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1L,), }"),
         "numpy reads it with a warning, through Python's tokenizer")
    case(f, "an expression as shape, `(2*2,)`", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2*2,), }", b"\0" * 16), "")
    case(f, "big-endian", saved(np.zeros(1, ">f4")), "")
    case(f, "Fortran order", saved(np.zeros((2, 3), "<f4", order="F")), "")
    case(f, "records (a structured dtype)", saved(np.zeros(1, [("a", "<f4"), ("b", "<i4")])), "it is no tensor of numbers")
    case(f, "text (`<U2`)", saved(np.array(["ab"])), "it is no tensor of numbers")
    case(f, "times (`<M8[s]`)", saved(np.zeros(1, "<M8[s]")), "it is no tensor of numbers")
    case(f, "Python objects", npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"), "")
    case(f, "float128", saved(np.zeros(1, np.longdouble)), "its bits are those of the machine that wrote it")
    case(f, "complex64", saved(np.zeros(1, "<c8")), "")
    case(f, "a negative extent", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }"), "")


# ---------------------------------------------------------------- PyTorch


def pickled(program):
    """A zip with one float storage `0` of two elements, and `program` as its data.pkl."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as z:
        z.writestr("archive/data.pkl", program)
        z.writestr("archive/data/0", b"\0" * 8)
        z.writestr("archive/version", "3\n")
    return out.getvalue()


def pt(thing, **kwargs):
    import torch

    out = io.BytesIO()
    torch.save(thing, out, **kwargs)
    return out.getvalue()


def storage(numel=2):
    """Pushes the storage `0`."""
    return (b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK" + bytes([numel]) + b"tQ")


def rebuilt(numel=2, offset=0, size=2, stride=1):
    return (b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage(numel) +
            b"K" + bytes([offset]) + b"K" + bytes([size]) + b"\x85K" + bytes([stride]) + b"\x85\x89ccollections\nOrderedDict\n)RtR")


def state(value, start=b"\x80\x02"):
    return start + b"}X\x01\0\0\0a" + value + b"s."


def pytorch_cases():
    import torch

    f = "PyTorch"
    case(f, "a state dict", pickled(state(rebuilt())), "")
    case(f, "pickle protocol 4 (`STACK_GLOBAL`, `MEMOIZE`, `FRAME`)",
         pt({"a": torch.zeros(2)}, pickle_protocol=4), "`torch.save(pickle_protocol=4)` writes it, and its opcodes do no more than those of protocol 2")
    case(f, "an object of a class that is not known, beside tensors",
         pickled(b"\x80\x02}(X\x01\0\0\0a" + rebuilt() + b"X\x01\0\0\0ocmodel\nArgs\n)\x81u."),
         "it is listed, not made, and nothing of it is run; the tensors are read")
    case(f, "a call of `os.system`", pickled(b"\x80\x02cos\nsystem\nX\x04\0\0\0true\x85R."), "")
    case(f, "a view past the end of its storage", pickled(state(rebuilt(size=3))), "")
    case(f, "a storage that says more elements than it has", pickled(state(rebuilt(numel=4))),
         "the record is shorter than the pickle says")
    case(f, "a quantised tensor", pt({"a": torch.quantize_per_tensor(torch.zeros(2), 0.1, 0, torch.qint8)}),
         "its scale is in the pickle and in no scheme")
    case(f, "a sparse tensor", pt({"a": torch.eye(2).to_sparse()}), "it is no tensor of one storage")
    case(f, "a complex tensor", pt({"a": torch.zeros(1, dtype=torch.complex64)}), "")
    case(f, "a deflated storage", deflated(), "it could not be mapped or read in part")
    case(f, "one tensor alone, no dict", pickled(b"\x80\x02" + rebuilt() + b"."), "")
    case(f, "a list of tensors", pickled(b"\x80\x02](" + rebuilt() + rebuilt() + b"e."), "")
    case(f, "numbers and texts among tensors", pickled(b"\x80\x02}(X\x01\0\0\0a" + rebuilt() + b"X\x01\0\0\0nK\x07u."), "")
    case(f, "nothing but a number", pickled(b"\x80\x02K\x07."), "a checkpoint without tensors is somebody's mistake")
    case(f, "the legacy form", pt({"a": torch.zeros(2)}, _use_new_zipfile_serialization=False), "")


def deflated():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("archive/data.pkl", state(rebuilt()))
        z.writestr("archive/data/0", b"\0" * 8)
        z.writestr("archive/version", "3\n")
    return out.getvalue()


# ---------------------------------------------------------------- what the references say

READ = {
    "safetensors": """
from safetensors import safe_open
with safe_open(path, "np") as f:
    [f.get_slice(k).get_shape() for k in f.keys()]
""",
    "gguf-py": """
import gguf
r = gguf.GGUFReader(path)
[(t.data, t.name) for t in r.tensors]
[f.contents() for f in r.fields.values()]
""",
    "numpy": "import numpy; numpy.load(path, allow_pickle=False)",
    "torch": "import torch; torch.load(path, weights_only=True, map_location='cpu')",
}
READERS = {"safetensors": ["safetensors"], "gguf": ["gguf-py", "ggml"], "numpy": ["numpy"], "PyTorch": ["torch"]}


def asked(reader, path, args):
    """`reads`, or the last line of what it says. In a process of its own: some crash."""
    if reader == "ggml":
        program = GGML.format(lib=str(args.ggml))
    else:
        program = READ[reader]
    program = f"import sys\nsys.path.insert(0, {str(args.gguf_py)!r})\npath = {str(path)!r}\n" + program
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=120)
    if done.returncode == 0:
        return "reads"
    if done.returncode < 0:
        return f"crashes (signal {-done.returncode})"
    return "refuses"


GGML = """
import ctypes
lib = ctypes.CDLL({lib!r})
class Params(ctypes.Structure):
    _fields_ = [("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p)]
lib.gguf_init_from_file.restype = ctypes.c_void_p
lib.gguf_init_from_file.argtypes = [ctypes.c_char_p, Params]
ctx = ctypes.c_void_p()
sys.exit(0 if lib.gguf_init_from_file(path.encode(), Params(False, ctypes.addressof(ctx))) else 1)
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gguf-py", type=Path, required=True)
    parser.add_argument("--ggml", type=Path, required=True)
    args = parser.parse_args()
    for add in [safetensors_cases, gguf_cases, numpy_cases, pytorch_cases]:
        add()
    with tempfile.TemporaryDirectory() as work:
        for i, one in enumerate(CASES):
            path = Path(work) / f"{i}{one['suffix']}"
            path.write_bytes(one["content"])
            one["references"] = {reader: asked(reader, path, args) for reader in READERS[one["format"]]}
            one["content"] = base64.b64encode(one["content"]).decode()
    (HERE / "strictness/cases.json").write_text(json.dumps(CASES, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
