"""Arrays of numpy, without a copy where the encoding is plain.

>>> import weighbridge.numpy
>>> weights = weighbridge.numpy.load_file("model.gguf")

bf16 and fp8 are types of the package `ml_dtypes`, which is needed for them alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from . import _weighbridge
from ._weighbridge import Tensor

__all__ = ["array", "dtype", "load_file"]

_DTYPES = {
    "bool": "?",
    "u8": "u1",
    "i8": "i1",
    "u16": "<u2",
    "i16": "<i2",
    "u32": "<u4",
    "i32": "<i4",
    "u64": "<u8",
    "i64": "<i8",
    "f16": "<f2",
    "f32": "<f4",
    "f64": "<f8",
    "c64": "<c8",
}
_ML_DTYPES = {
    "bf16": "bfloat16",
    "f8_e4m3": "float8_e4m3fn",
    "f8_e4m3fnuz": "float8_e4m3fnuz",
    "f8_e5m2": "float8_e5m2",
    "f8_e5m2fnuz": "float8_e5m2fnuz",
    "f8_e8m0": "float8_e8m0fnu",
}


def dtype(name: str) -> np.dtype[Any]:
    """The type of numpy's for a plain dtype: `f32`, `bf16`.

    Raises:
        KeyError: if `name` is no plain dtype.
        ImportError: if it is a type of `ml_dtypes`, and that is not installed.
    """
    if name in _DTYPES:
        return np.dtype(_DTYPES[name])
    try:
        import ml_dtypes
    except ImportError as error:
        message = f"numpy has no {name}: install ml_dtypes, or load the tensor with dtype='f32'"
        raise ImportError(message) from error
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[name]))
    return found


def array(tensor: Tensor) -> np.ndarray[Any, Any]:
    """The tensor where it lies. An array of a mapped file may be written to; what is written stays in this process.

    Raises:
        ValueError: if its encoding is not plain.
    """
    if tensor.dtype is None:
        raise ValueError(
            f"`{tensor.name}` is encoded as {tensor.scheme}: plan it with an encoding of a plain dtype, or take its planes"
        )
    ((_, plane),) = tensor.planes
    flat: np.ndarray[Any, Any] = np.frombuffer(memoryview(plane), dtype=dtype(tensor.dtype))
    return flat.reshape(tensor.shape)


def load_file(
    path: str | os.PathLike[str], *, dtype: str | None = None, only: Iterable[str] | None = None
) -> dict[str, np.ndarray[Any, Any]]:
    """The tensors of a checkpoint of any format under their own names, as `safetensors.numpy.load_file` gives them.

    Args:
        path: a file, a directory or a URL.
        dtype: what all become (`f32`, `bf16`); by default they stay as they are, and those in blocks become f32.
        only: the names of those that are wanted.
    """
    checkpoint = _weighbridge.open(path)
    return {tensor.name: array(tensor) for tensor in _weighbridge._each(checkpoint, dtype, _names(only))}


def _names(only: Iterable[str] | None) -> list[str] | None:
    if isinstance(only, str):
        raise TypeError(f"only is a list of names, found the name {only!r}")
    return None if only is None else list(only)
