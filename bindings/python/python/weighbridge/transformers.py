"""Models of transformers, filled from a checkpoint of any format.

>>> from transformers import AutoModelForCausalLM
>>> import weighbridge.transformers
>>> model = weighbridge.transformers.from_pretrained(AutoModelForCausalLM, "model.gguf")
>>> tokenizer = weighbridge.transformers.tokenizer("model.gguf")
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import AutoConfig, AutoTokenizer, GenerationConfig

from . import _weighbridge
from . import torch as _torch
from ._errors import LoadError
from ._weighbridge import Checkpoint

__all__ = ["config", "from_pretrained", "tokenizer"]

_log = logging.getLogger(__name__)
M = TypeVar("M")
StrPath = str | os.PathLike[str]


def _beside(checkpoint: Checkpoint, allow_loss: Iterable[str], make: Any) -> Any:
    """The result of `make`, called with a directory that has the files beside the weights."""
    files, left = checkpoint.hf_files(allow_loss=list(allow_loss))
    for line in left:
        _log.info("not said to transformers: %s", line)
    with tempfile.TemporaryDirectory(prefix="weighbridge-") as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        return make(folder)


def _settings(folder: str) -> tuple[Any, Any]:
    """The configuration in a directory, and its defaults of generation, or None if it has none."""
    has = (Path(folder) / "generation_config.json").exists()
    return AutoConfig.from_pretrained(folder), GenerationConfig.from_pretrained(folder) if has else None


def config(path: StrPath | Checkpoint, *, allow_loss: Iterable[str] = ()) -> Any:
    """The configuration of the model, as transformers has it.

    Raises:
        Error: if it cannot say all of the model; `allow_loss` names keys that may be lost.
    """
    checkpoint = path if isinstance(path, Checkpoint) else _weighbridge.open(path)
    return _beside(checkpoint, allow_loss, AutoConfig.from_pretrained)


def tokenizer(path: StrPath | Checkpoint, *, allow_loss: Iterable[str] = ()) -> Any:
    """The tokenizer of the model, as transformers has it, with its chat template."""
    checkpoint = path if isinstance(path, Checkpoint) else _weighbridge.open(path)
    return _beside(checkpoint, allow_loss, AutoTokenizer.from_pretrained)


#: Words that transformers takes for a `device_map` beside a device.
_SPREAD = ("auto", "balanced", "balanced_low_0", "sequential")


def from_pretrained(
    cls: type[M],
    path: StrPath | Checkpoint,
    *,
    dtype: torch.dtype | str | None = "auto",
    allow_loss: Iterable[str] = (),
    **options: Any,
) -> M:
    """A model of `cls`, a class of transformers or one of its `Auto` classes, with the weights of a checkpoint of any format.

    Weights that are stored as they are wanted stay in the mapped file. Others are decoded once, straight to their place. With a `device_map` of one
    device (`"cuda"`), all go there as `weighbridge.torch.load_into` fills it.

    Args:
        cls: `AutoModelForCausalLM`, `LlamaForCausalLM`, ….
        path: a file, a directory or a URL, of a family that has names for transformers.
        dtype: of the model; `"auto"` is that of the configuration, and else f32.
        allow_loss: keys of the configuration that may be lost.
        options: of `cls.from_pretrained`.

    Raises:
        Error: if the checkpoint does not fit its model, or transformers wants other tensors.
    """
    if "torch_dtype" in options:
        raise TypeError("from_pretrained takes dtype, not torch_dtype")
    # Opened again: a model's tensors are its own, and those of one checkpoint share its map.
    checkpoint = _weighbridge.open(path.path if isinstance(path, Checkpoint) else path)
    settings, generation = _beside(checkpoint, allow_loss, _settings)
    if dtype is None or dtype == "auto":
        said = getattr(settings, "dtype", None)
        wanted = said if isinstance(said, torch.dtype) else torch.float32
    else:
        wanted = _torch.dtype(dtype) if isinstance(dtype, str) else dtype
    if hasattr(cls, "from_config"):
        # Of an `Auto` class, the one that it chooses.
        with torch.device("meta"):
            cls = type(cls.from_config(settings))  # type: ignore[attr-defined]
    plan = _weighbridge.plan(checkpoint, layout="hf", encode=_torch.scheme(wanted))
    device = options.get("device_map")
    is_one = isinstance(device, str | int | torch.device) and device not in _SPREAD
    weights = _torch._made(plan, device) if is_one and not _torch._is_here(device) else _torch.state_dict(plan.load())
    model, info = cls.from_pretrained(  # type: ignore[attr-defined]
        None, config=settings, state_dict=weights, dtype=wanted, output_loading_info=True, **options
    )
    whats = [f"transformers found no `{name}`" for name in sorted(info["missing_keys"])]
    whats += [f"transformers has no `{name}`" for name in sorted(info["unexpected_keys"])]
    whats += [f"transformers wants another shape of `{one}`" for one in info["mismatched_keys"]]
    if whats:
        message = f"`{checkpoint.path}` does not fit {cls.__name__}:\n"
        raise LoadError(message + "\n".join(whats), [(what, ()) for what in whats])
    if generation is not None and model.can_generate():
        model.generation_config = generation
    filled: M = model
    return filled
