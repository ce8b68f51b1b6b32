"""Tensors of PyTorch, without a copy where the encoding is plain.

`load_file` and `safe_open` are those of safetensors, for every format: change the import, and GGUF, MLX, GPTQ and PyTorch files load as well.

>>> from weighbridge.torch import load_file, safe_open
>>> weights = load_file("model.gguf", dtype="bf16")
>>> with safe_open("model/", framework="pt") as f:
...     part = f.get_slice("model.embed_tokens.weight")[:16]
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

import torch

from . import _weighbridge
from ._errors import LoadError
from .numpy import _names
from ._weighbridge import Loaded, Plan, Report, Tensor

__all__ = ["dtype", "load_file", "load_into", "safe_open", "scheme", "state_dict", "tensor"]

_DTYPES = {
    "bool": "bool",
    "u8": "uint8",
    "i8": "int8",
    "u16": "uint16",
    "i16": "int16",
    "u32": "uint32",
    "i32": "int32",
    "u64": "uint64",
    "i64": "int64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "f8_e4m3": "float8_e4m3fn",
    "f8_e4m3fnuz": "float8_e4m3fnuz",
    "f8_e5m2": "float8_e5m2",
    "f8_e5m2fnuz": "float8_e5m2fnuz",
    "f8_e8m0": "float8_e8m0fnu",
}
_SCHEMES = {getattr(torch, theirs): ours for ours, theirs in _DTYPES.items() if hasattr(torch, theirs)}


def dtype(name: str) -> torch.dtype:
    """PyTorch's type for a plain dtype, by its name here or there: `bf16`, `bfloat16`.

    Raises:
        KeyError: if `name` is no plain dtype.
    """
    found: torch.dtype = getattr(torch, name if name in _DTYPES.values() else _DTYPES[name])
    return found


def scheme(dtype: torch.dtype) -> str:
    """The name of PyTorch's type here: `bf16`."""
    return _SCHEMES[dtype]


def _scheme_of(wanted: torch.dtype | str | None) -> str | None:
    return scheme(wanted) if isinstance(wanted, torch.dtype) else wanted


def tensor(tensor: Tensor) -> torch.Tensor:
    """The tensor where it lies. One of a mapped file may be written to; what is written stays in this process.

    Raises:
        ValueError: if its encoding is not plain.
    """
    if tensor.dtype is None:
        raise ValueError(
            f"`{tensor.name}` is encoded as {tensor.scheme}: plan it with an encoding of a plain dtype, or take its planes"
        )
    kind = dtype(tensor.dtype)
    ((_, plane),) = tensor.planes
    if len(plane) == 0:
        return torch.empty(tensor.shape, dtype=kind)
    # PyTorch has no read-only tensors.
    memory = plane if tensor.writable else bytearray(plane)
    return torch.frombuffer(memory, dtype=torch.uint8).view(kind).reshape(tensor.shape)


def state_dict(loaded: Loaded) -> dict[str, torch.Tensor]:
    """All parameters. Those that are tied share memory."""
    return {name: tensor(one) for name, one in loaded.items()}


def load_file(
    path: str | os.PathLike[str],
    device: str | int | torch.device = "cpu",
    *,
    dtype: torch.dtype | str | None = None,
    only: Iterable[str] | None = None,
) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint of any format under their own names, as `safetensors.torch.load_file` gives them.

    Args:
        path: a file, a directory or a URL.
        device: where they go.
        dtype: what all become; by default they stay as they are, and those in blocks become f32.
        only: the names of those that are wanted.
    """
    checkpoint = _weighbridge.open(path)
    found = _weighbridge._each(checkpoint, _scheme_of(dtype), _names(only))
    return {one.name: _to(tensor(one), device) for one in found}


def _to(one: torch.Tensor, device: str | int | torch.device) -> torch.Tensor:
    return one if device == "cpu" else one.to(device)


def load_into(
    plan: Plan,
    tensors: Mapping[str, torch.Tensor],
    *,
    threads: int | None = None,
    memory: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Report:
    """Runs `plan` into tensors that exist: each byte goes straight to its place.

    Tensors on other devices are filled through the memory of this machine, each once.

    Raises:
        LoadError: everything that does not fit, at once: a parameter without a tensor, another shape or type. Nothing is written then.
    """
    problems: list[tuple[str, list[str]]] = []
    here: dict[str, Any] = {}
    elsewhere: dict[str, torch.Tensor] = {}
    for param in plan.params:
        target = tensors.get(param.name)
        if target is None:
            if param.tied_to is None:
                problems.append((f"`{param.name}` has no tensor", []))
            continue
        if tuple(target.shape) != param.shape:
            problems.append((f"`{param.name}`: wanted {list(param.shape)}, found {list(target.shape)}", []))
        elif _SCHEMES.get(target.dtype) != param.scheme:
            hint = f"plan it with encode={{{param.name!r}: {_SCHEMES.get(target.dtype)!r}}}"
            problems.append((f"`{param.name}`: wanted {param.scheme}, found {target.dtype}", [hint]))
        elif target.is_meta:
            problems.append((f"`{param.name}` has no memory: it is on the device `meta`", []))
        elif not target.is_contiguous():
            problems.append((f"`{param.name}`: its elements do not lie one after another", []))
        elif target.device.type == "cpu":
            here[param.name] = target.detach().reshape(-1).view(torch.uint8).numpy()
        else:
            elsewhere[param.name] = target
    known = {param.name for param in plan.params}
    problems += [(f"the plan has no parameter `{name}`", []) for name in tensors if name not in known]
    if problems:
        lines = ["the tensors do not fit the plan:"]
        for what, hints in problems:
            lines += [what, *(f"hint: {hint}" for hint in hints)]
        raise LoadError("\n".join(lines), problems)
    with torch.no_grad():
        staged = plan.only(*elsewhere).load(threads=threads, memory=memory) if elsewhere else {}
        for name, target in elsewhere.items():
            target.copy_(tensor(staged[name]))
    rest = plan.only(*here) if elsewhere else plan
    return rest.load_into(here, threads=threads, memory=memory, progress=progress)


class safe_open:  # noqa: N801, as safetensors calls it
    """An open checkpoint of any format, as `safetensors.safe_open` gives it: tensors one by one, or parts of them.

    Args:
        filename: a file, a directory or a URL.
        framework: `pt`.
        device: where tensors go.
        dtype: what they become; by default they stay as they are, and those in blocks become f32.
    """

    def __init__(
        self,
        filename: str | os.PathLike[str],
        framework: str = "pt",
        device: str | int | torch.device = "cpu",
        *,
        dtype: torch.dtype | str | None = None,
    ) -> None:
        if framework not in ("pt", "torch"):
            raise ValueError(f"framework is 'pt', found {framework!r}: `weighbridge.numpy` has arrays")
        self._checkpoint = _weighbridge.open(filename)
        self._device = device
        self._dtype = _scheme_of(dtype)

    def __enter__(self) -> safe_open:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Tensors that were taken keep the file open."""

    def keys(self) -> list[str]:
        """The names of the tensors."""
        return self._checkpoint.keys()

    def offset_keys(self) -> list[str]:
        """The names, in the order of the data."""
        return self._checkpoint.keys()

    def metadata(self) -> dict[str, Any]:
        """Metadata beside the tensors."""
        return self._checkpoint.metadata

    def _get(self, name: str) -> torch.Tensor:
        (one,) = _weighbridge._each(self._checkpoint, self._dtype, [name])
        return tensor(one)

    def get_tensor(self, name: str) -> torch.Tensor:
        """The tensor called `name`."""
        return _to(self._get(name), self._device)

    def get_slice(self, name: str) -> _Slice:
        """The tensor called `name`, to take parts of."""
        return _Slice(self, name)


class _Slice:
    """A tensor of which parts are taken. Of one that is stored as it is wanted, those alone are read."""

    def __init__(self, file: safe_open, name: str) -> None:
        self._file = file
        self._name = name
        self._tensor: torch.Tensor | None = None

    def _whole(self) -> torch.Tensor:
        if self._tensor is None:
            self._tensor = self._file._get(self._name)
        return self._tensor

    def get_shape(self) -> list[int]:
        """The extents, slowest axis first."""
        return list(self._whole().shape)

    def get_dtype(self) -> str:
        """The type of the elements, as safetensors calls it: `BF16`."""
        return scheme(self._whole().dtype).upper()

    def __getitem__(self, index: Any) -> torch.Tensor:
        return _to(self._whole()[index], self._file._device)
