"""Makes golden/pytorch: what torch itself saves, and what it says is in it.

Run with torch 2: python pytorch.py. cases.json says of each file which tensors it holds, in the order in which the
file's values lead to them: name, shape, dtype and the bytes in hexadecimal, contiguous and little-endian.
models.json says the same of the real models of `cargo xtask models`, with the CRC-32 of the bytes in their place, if
the paths of their files are given: python pytorch.py NAME=FILE …
"""

import argparse
import io
import json
import pickle
import sys
import types
import warnings
import zipfile
import zlib
from collections import OrderedDict
from pathlib import Path

import torch

HERE = Path(__file__).parent / "pytorch"
DTYPES = [
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64",
    "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float8_e4m3fnuz",
    "float8_e5m2fnuz",
]


class Config:
    """A class of the program that saves: no reader has it."""

    def __init__(self, **values):
        self.__dict__.update(values)


class Special(torch.Tensor):
    """A tensor of a subclass."""


def tensors(value, name=""):
    """Every tensor in `value` with the keys that lead to it, joined with dots."""
    if isinstance(value, torch.Tensor):
        yield name or "tensor", value
        return
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    else:
        return
    for key, inner in items:
        yield from tensors(inner, f"{name}.{key}" if name else str(key))


def content(tensor):
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()


def facts(value, digest):
    return [
        {"name": name, "shape": list(t.shape), "dtype": str(t.dtype).removeprefix("torch."), **digest(content(t))}
        for name, t in tensors(value)
    ]


def small():
    return {"w": torch.arange(6.0).reshape(2, 3), "deep": {"b": torch.tensor([1, -2]), "n": 3, "s": "text"}}


def every_dtype():
    torch.manual_seed(1)
    bits = torch.randint(0, 256, (2, 3, 8), dtype=torch.uint8)
    made = {}
    for name in DTYPES:
        dtype = getattr(torch, name)
        size = torch.empty((), dtype=dtype).element_size()
        raw = bits[:, :, :size].clone()
        made[name] = (raw[:, :, 0] > 127) if name == "bool" else raw.view(dtype).squeeze(-1)
    return made


def views():
    base = torch.arange(24, dtype=torch.int16).reshape(4, 6)
    flat = torch.arange(10, dtype=torch.float32)
    return OrderedDict(
        {
            "base": base,
            "tied": base,
            "transposed": base.t(),
            "rows": base[1:3],
            "columns": base[:, 1:4],
            "every_other": base[::2, ::3],
            "column": base[:, 2],
            "row": base[3],
            "element": base[2, 5],
            "split": base.view(4, 2, 3),
            "permuted": base.view(4, 2, 3).permute(2, 0, 1),
            "expanded": base[:, :1].expand(4, 5),
            "expanded_rows": flat[3:6].expand(2, 3),
            "windows": flat.unfold(0, 4, 2),
            "fortran": torch.arange(6.0).reshape(3, 2).t().contiguous().t(),
            "scalar": torch.tensor(2.5, dtype=torch.float64),
            "empty": torch.zeros(0),
            "empty_matrix": torch.zeros(3, 0, 2, dtype=torch.int64),
            "empty_slice": base[2:2],
            "one": torch.ones(1, 1, 1).permute(2, 0, 1),
            "channels_last": torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
        }
    )


def parameters():
    plain = torch.nn.Parameter(torch.arange(4.0).reshape(2, 2))
    frozen = torch.nn.Parameter(torch.arange(3.0), requires_grad=False)
    marked = torch.nn.Parameter(torch.arange(2.0))
    marked.note = "an attribute"
    noted = torch.arange(5.0)
    noted.note = Config(x=1)
    special = torch.arange(3, dtype=torch.int32).as_subclass(Special)
    buffer = torch.nn.Buffer(torch.arange(2, dtype=torch.float64))
    return {"plain": plain, "frozen": frozen, "marked": marked, "noted": noted, "special": special, "buffer": buffer}


def training():
    torch.manual_seed(2)
    model = torch.nn.Sequential(OrderedDict(a=torch.nn.Linear(3, 2), norm=torch.nn.BatchNorm1d(2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    return {
        "epoch": 7,
        "big": 2**70,
        "negative": -(2**40),
        "rate": 0.5,
        "flags": (True, False, None),
        "raw": b"bytes",
        "names": {"a", "b"},
        "state_dict": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "hyper_parameters": argparse.Namespace(layers=2, inner=Config(x=1)),
        "space": types.SimpleNamespace(y=2),
        "average": Config(weight=torch.arange(3.0), shadow=model.state_dict()),
        "listed": [torch.tensor(1.0), (torch.tensor(2), {"x": torch.tensor([True])})],
        "dtype": torch.float16,
        "device": torch.device("cpu"),
        "shape": torch.Size([2, 3]),
        5: torch.tensor([5], dtype=torch.int8),
    }


def refused():
    dense = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    complex_ = torch.tensor([1 + 2j, 3 - 4j])
    return {
        "fine": dense,
        "complex128": complex_.to(torch.complex128),
        "sparse": dense.to_sparse(),
        "csr": dense.to_sparse_csr(),
        "quantized": torch.quantize_per_tensor(dense, 0.5, 1, torch.quint8),
        "meta": torch.empty(2, 2, device="meta"),
    }


def conjugate():
    return {"conjugate": torch.tensor([1 + 2j, 3 - 4j]).conj()}


def compressed(path):
    archive = io.BytesIO()
    torch.save(small(), archive)
    with zipfile.ZipFile(archive) as read, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as write:
        for item in read.infolist():
            write.writestr(item.filename, read.read(item), zipfile.ZIP_DEFLATED)


class Unpickler(pickle.Unpickler):
    """Python's own, with stand-ins for classes of packages that are not installed."""

    def find_class(self, module, name):
        try:
            return super().find_class(module, name)
        except (ImportError, AttributeError):
            return type(name, (), {"__init__": lambda self, *a, **k: None, "__setstate__": lambda self, state: None})


def load(path):
    module = types.SimpleNamespace(__name__="pickle", Unpickler=Unpickler, load=lambda f, **how: Unpickler(f, **how).load())
    return torch.load(path, map_location="cpu", weights_only=False, pickle_module=module)


def main():
    HERE.mkdir(exist_ok=True)
    cases = {}

    def save(name, value, **how):
        torch.save(value, HERE / name, **how)
        cases[name] = facts(value, lambda b: {"hex": b.hex()})

    for protocol in [1, 2, 3, 4, 5]:
        save(f"zip{protocol}.pt", small(), pickle_protocol=protocol)
        save(f"legacy{protocol}.bin", small(), pickle_protocol=protocol, _use_new_zipfile_serialization=False)
    save("dtypes.pt", every_dtype())
    save("views.pt", views())
    save("parameters.pt", parameters())
    save("training.pt", training())
    save("bare.pt", torch.arange(3))
    save("list.pt", [torch.arange(2), torch.arange(3)])
    old = {name: t for name, t in every_dtype().items() if not name.startswith(("uint16", "uint32", "uint64", "float8"))}
    save("dtypes.bin", old, _use_new_zipfile_serialization=False)
    save("views.bin", views(), _use_new_zipfile_serialization=False)
    save("training.bin", training(), _use_new_zipfile_serialization=False, pickle_protocol=4)
    (HERE / "cases.json").write_text(json.dumps(cases).replace("{\"name", "\n{\"name") + "\n")

    torch.save(refused(), HERE / "refused.pt")
    torch.save(conjugate(), HERE / "conjugate.pt")
    torch.save(torch.nn.Linear(2, 3), HERE / "module.pt")
    torch.save(torch.nn.Linear(2, 3), HERE / "module.bin", _use_new_zipfile_serialization=False)
    torch.save({"epoch": 1}, HERE / "nothing.pt")
    compressed(HERE / "compressed.pt")
    torch.jit.save(torch.jit.script(torch.nn.Identity()), HERE / "script.pt")

    models = dict(argument.split("=", 1) for argument in sys.argv[1:])
    if models:
        crc = lambda b: {"crc32": f"{zlib.crc32(b):08x}"}
        lines = {name: facts(load(path), crc) for name, path in models.items()}
        text = json.dumps(lines, separators=(",", ":")).replace('{"name', '\n{"name')
        (HERE / "models.json").write_text(text + "\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
