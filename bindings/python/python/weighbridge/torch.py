"""Tensors of PyTorch, without a copy where the encoding is plain.

`load_file` and `safe_open` are those of safetensors, for every format: change the import, and GGUF, MLX, GPTQ and PyTorch files load as well.

>>> from weighbridge.torch import load_file, safe_open
>>> weights = load_file("model.gguf", dtype="bf16")
>>> with safe_open("model/", framework="pt") as f:
...     part = f.get_slice("model.embed_tokens.weight")[:16]
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

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
        device: where they go; to another device than this machine's memory as `load_into` fills it.
        dtype: what all become; by default they stay as they are, and those in blocks become f32.
        only: the names of those that are wanted.
    """
    checkpoint = _weighbridge.open(path)
    if _is_here(device):
        found = _weighbridge._each(checkpoint, _scheme_of(dtype), _names(only))
        return {one.name: tensor(one) for one in found}
    return _made(_weighbridge._selection(checkpoint, _scheme_of(dtype), _names(only)), device)


def _is_here(device: str | int | torch.device) -> bool:
    """True if `device` is this machine's memory."""
    return torch.empty(0, device=device).device.type == "cpu"


def _made(plan: Plan, device: str | int | torch.device) -> dict[str, torch.Tensor]:
    """The parameters of `plan` in new tensors. Those that are tied share memory."""
    new: dict[str, torch.Tensor] = {}
    for param in plan.params:
        if param.tied_to is not None:
            continue
        if param.scheme not in _DTYPES:
            raise ValueError(f"`{param.name}` would be {param.scheme}, for which PyTorch has no type: ask for a plain dtype")
        new[param.name] = torch.empty(param.shape, dtype=dtype(param.scheme), device=device)
    if not all(target.is_meta for target in new.values()):
        fill(plan, {name: [Place(target, tuple(target.shape))] for name, target in new.items()})
    return {param.name: new[param.tied_to or param.name] for param in plan.params}


def _to(one: torch.Tensor, device: str | int | torch.device) -> torch.Tensor:
    return one if device == "cpu" else one.to(device)


class Place(NamedTuple):
    """Where a tensor that is read goes."""

    target: torch.Tensor
    #: The shape of what is read, which the target may repeat.
    shape: tuple[int, ...]

    @property
    def is_direct(self) -> bool:
        """Whether it is read straight to where it goes: the target is memory of this machine, and holds it as it is read."""
        target = self.target
        return target.device.type == "cpu" and target.is_contiguous() and target.numel() == math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of what is read."""
        return math.prod(self.shape) * self.target.element_size()


#: Bytes of each of the two pieces of memory through which tensors of other devices are filled.
_STAGE = 256 << 20
#: Where a tensor may begin in such a piece.
_ALIGNMENT = 256


def fill(
    plan: Plan,
    places: Mapping[str, Sequence[Place]],
    *,
    threads: int | None = None,
    memory: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Report:
    """Runs `plan` into places that fit it, those of each parameter by its name.

    Tensors of other devices are filled through two pieces of memory in turns: while one is copied, the other is read. Each has 256 MiB, or
    the bytes of the largest parameter.
    """
    direct = {name: parts for name, parts in places.items() if all(place.is_direct for place in parts)}
    groups = [direct] if direct or not places else []
    groups += _groups({name: parts for name, parts in places.items() if name not in direct})
    weights = [sum(place.nbytes for parts in group.values() for place in parts) for group in groups]
    staging = _Staging(groups[1:] if direct else groups)
    total: Report | None = None
    for n, group in enumerate(groups):
        said = progress and _Part(progress, sum(weights[:n]), weights[n], sum(weights))
        buffers, copies = staging.take(group)
        part = plan if len(groups) == 1 else plan.only(*group)
        report = part.load_into(buffers, threads=threads, memory=memory, progress=said)
        staging.copy(copies)
        total = report if total is None else total + report
    staging.end()
    assert total is not None
    return total


class _Part(NamedTuple):
    """Progress of a part of a load."""

    told: Callable[[int, int], object]
    before: int
    weight: int
    total: int

    def __call__(self, done: int, wanted: int) -> object:
        return self.told(self.before + self.weight * done // max(1, wanted), self.total)


def _room(parts: Sequence[Place]) -> int:
    """Bytes of staging memory."""
    return sum(-(-place.nbytes // _ALIGNMENT) * _ALIGNMENT for place in parts if not place.is_direct)


def _groups(places: Mapping[str, Sequence[Place]]) -> Iterator[dict[str, Sequence[Place]]]:
    """Parameters, as many as go through a piece of memory together."""
    group: dict[str, Sequence[Place]] = {}
    size = 0
    for name, parts in places.items():
        room = _room(parts)
        if group and size + room > _STAGE:
            yield group
            group, size = {}, 0
        group[name] = parts
        size += room
    if group:
        yield group


class _Staging:
    """Two pieces of memory, from which tensors are copied to where they go."""

    def __init__(self, groups: Sequence[Mapping[str, Sequence[Place]]]) -> None:
        rooms = [sum(_room(parts) for parts in group.values()) for group in groups]
        # Only what is pinned is copied while something else goes on.
        self._pinned = any(place.target.is_cuda for group in groups for parts in group.values() for place in parts)
        count = min(2 if self._pinned else 1, len(groups))
        memory = [torch.empty(max(rooms), dtype=torch.uint8, pin_memory=self._pinned) for _ in range(count)]
        self._pieces: list[tuple[torch.Tensor, list[torch.cuda.Event]]] = [(piece, []) for piece in memory]

    def take(self, group: Mapping[str, Sequence[Place]]) -> tuple[dict[str, list[Any]], list[tuple[torch.Tensor, torch.Tensor]]]:
        """The buffers for a group, and which of them are copied where. Waits for the copies from the piece of memory that is next."""
        if all(place.is_direct for parts in group.values() for place in parts):
            return {name: [_bytes(place.target) for place in parts] for name, parts in group.items()}, []
        piece, copying = self._pieces[0]
        while copying:
            copying.pop().synchronize()
        buffers: dict[str, list[Any]] = {}
        copies: list[tuple[torch.Tensor, torch.Tensor]] = []
        at = 0
        for name, parts in group.items():
            buffers[name] = []
            for place in parts:
                if place.is_direct:
                    buffers[name].append(_bytes(place.target))
                    continue
                here = piece[at : at + place.nbytes]
                at += _room([place])
                buffers[name].append(here.numpy())
                read = here.view(place.target.dtype)
                repeated = place.target.numel() != read.numel()
                shape = place.shape if repeated else place.target.shape
                copies.append((place.target, read.reshape(shape).expand(place.target.shape)))
        return buffers, copies

    def copy(self, copies: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Copies what was read, and goes on with the other piece of memory."""
        if not copies:
            return
        with torch.no_grad():
            for target, here in copies:
                target.copy_(here, non_blocking=self._pinned)
        for device in {target.device for target, _ in copies if target.is_cuda}:
            with torch.cuda.device(device):
                event = torch.cuda.Event()
                event.record()
            self._pieces[0][1].append(event)
        self._pieces.append(self._pieces.pop(0))

    def end(self) -> None:
        """Waits for all copies."""
        for _, copying in self._pieces:
            for event in copying:
                event.synchronize()


def _bytes(target: torch.Tensor) -> Any:
    return target.detach().reshape(-1).view(torch.uint8).numpy()


def load_into(
    plan: Plan,
    tensors: Mapping[str, torch.Tensor],
    *,
    threads: int | None = None,
    memory: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Report:
    """Runs `plan` into tensors that exist: each byte goes straight to its place.

    Tensors on other devices are filled through two pieces of this machine's memory in turns, each of 256 MiB or of the largest parameter: while
    one is copied, the other is read.

    Raises:
        LoadError: everything that does not fit, at once: a parameter without a tensor, another shape or type. Nothing is written then.
    """
    problems: list[tuple[str, list[str]]] = []
    places: dict[str, list[Place]] = {}
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
        else:
            places[param.name] = [Place(target, param.shape)]
    known = {param.name for param in plan.params}
    problems += [(f"the plan has no parameter `{name}`", []) for name in tensors if name not in known]
    if problems:
        lines = ["the tensors do not fit the plan:"]
        for what, hints in problems:
            lines += [what, *(f"hint: {hint}" for hint in hints)]
        raise LoadError("\n".join(lines), problems)
    return fill(plan, places, threads=threads, memory=memory, progress=progress)


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
