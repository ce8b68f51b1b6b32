"""What the scripts share that make vectors of schemes with several planes.

A folder holds `cases.json`, a list of `{scheme, out, in, planes, values}`: the lengths in bytes of each plane and
the dtype of the values; `planes.bin`, all planes of all cases one after the other, in the order of the scheme; and
`values.bin`, the values `[out, in]` of all cases, as the reference gives them, in the dtype it gives them in.
A case with `codes` or `source` has something before its values in `codes.bin`; the script says what.
"""

import ast
import json
from pathlib import Path

import numpy as np
import torch

NAMES = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32"}


def definitions(path, names, scope):
    """The functions and classes `names` of a source file, without running the rest of it."""
    tree = ast.parse(Path(path).read_text())
    wanted = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef)) and n.name in names]
    missing = set(names) - {n.name for n in wanted}
    assert not missing, f"{path} lacks {missing}"
    for node in wanted:
        node.decorator_list = []
    exec(compile(ast.Module(wanted, []), str(path), "exec"), scope)
    return scope


def nasty(dtype, n, rng, scale=0.01):
    """`n` scales: zeros, denormals, the smallest normal, one and the largest of both signs, then ordinary ones."""
    info = torch.finfo(dtype)
    tiny = torch.tensor(info.smallest_normal, dtype=dtype)
    least = torch.tensor([1], dtype=torch.int16 if dtype.itemsize == 2 else torch.int32).view(dtype)[0]
    edges = torch.stack([tiny * 0, least, least * 3, tiny, torch.tensor(1.0, dtype=dtype), torch.tensor(info.max, dtype=dtype)])
    edges = torch.cat([edges, -edges])
    ordinary = torch.from_numpy(rng.normal(0, scale, n)).to(dtype)
    ordinary[: min(n, len(edges))] = edges[:n]
    return ordinary[torch.from_numpy(rng.permutation(n))]


def raw(tensor):
    """The bytes of a tensor."""
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def random_words(shape, rng):
    return torch.from_numpy(rng.integers(-(2**31), 2**31, shape, dtype=np.int64).astype(np.int32))


class Folder:
    """Collects cases, and writes the folder."""

    def __init__(self, name):
        self.path = Path(__file__).parent / name
        self.cases, self.planes, self.values, self.codes = [], b"", b"", b""

    def add(self, scheme, planes, values, codes=None):
        out, inputs = values.shape
        planes = [p if isinstance(p, bytes) else raw(p) for p in planes]
        case = {"scheme": scheme, "out": out, "in": inputs, "planes": [len(p) for p in planes], "values": NAMES[values.dtype]}
        if codes is not None:
            case["codes"] = len(codes)
            self.codes += codes
        self.cases.append(case)
        self.planes += b"".join(planes)
        self.values += raw(values)

    def write(self):
        self.path.mkdir(exist_ok=True)
        (self.path / "cases.json").write_text("[\n" + ",\n".join(map(json.dumps, self.cases)) + "\n]\n")
        (self.path / "planes.bin").write_bytes(self.planes)
        (self.path / "values.bin").write_bytes(self.values)
        if self.codes:
            (self.path / "codes.bin").write_bytes(self.codes)
        print(f"{self.path.name}: {len(self.cases)} cases, {len(self.planes)} + {len(self.values)} + {len(self.codes)} bytes")
