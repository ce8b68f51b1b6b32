"""A loader for vLLM: each rank plans its share from headers, and reads just that.

>>> from vllm import LLM
>>> llm = LLM("model/", load_format="weighbridge")

vLLM finds it by itself once the package is installed. Files that vLLM does not read, such as GGUF and MLX, are given as

>>> import weighbridge.vllm
>>> llm = LLM(**weighbridge.vllm.arguments("model.gguf"))

`model_loader_extra_config` takes `checkpoint` (where the weights are, if not at `model`), `model` (the one whose weights these are: of
another, as in an update, the weights are where it is), `encode`, `preset`, `rules` and `lora` as
`weighbridge.plan` does, `threads`, and `fallback`: with `False`, what cannot be loaded exactly is an error, and never left to vLLM's
own loader.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from vllm.distributed import (
    get_pp_group,
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
)
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.base_loader import BaseModelLoader
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader

from . import _weighbridge
from . import torch as _torch
from ._errors import CheckpointError, Error, LoadError, PlanError, UnknownModelError
from ._weighbridge import Checkpoint, Plan, Report

__all__ = ["Loader", "arguments", "register"]

_log = logging.getLogger("vllm.weighbridge")
_OPTIONS = ("checkpoint", "encode", "fallback", "lora", "model", "preset", "rules", "threads")
_FLOATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
_registered = False


def register() -> None:
    """Makes `load_format="weighbridge"` known to vLLM. It calls this in each of its processes (`vllm.general_plugins`)."""
    global _registered
    if not _registered:
        register_model_loader("weighbridge")(Loader)
        _registered = True


def arguments(path: str | os.PathLike[str], **options: Any) -> dict[str, Any]:
    """Arguments of `vllm.LLM` for a checkpoint of any format, as GGUF or MLX.

    The files that vLLM reads beside the weights (config.json, the tokenizer's) are made of the checkpoint's own metadata, and kept in
    the folder `vllm` of the cache: `$WEIGHBRIDGE_CACHE`, or `weighbridge` in `$XDG_CACHE_HOME` or `~/.cache`.

    Args:
        path: a file, a directory or a URL.
        options: of `model_loader_extra_config`.

    Raises:
        Error: if config.json cannot say all of the model.
    """
    files, left = _weighbridge.open(path).hf_files()
    for line in left:
        _log.info("not said to vLLM: %s", line)
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{len(name)} {name} {len(content)} ".encode() + content)
    home = os.environ.get("WEIGHBRIDGE_CACHE")
    if home is None:
        home = os.path.join(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "weighbridge")
    folder = Path(home) / "vllm" / digest.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        # Others may be reading the same.
        part = folder / f".{name}.{os.getpid()}"
        part.write_bytes(content)
        part.replace(folder / name)
    where = os.fspath(path)
    options["checkpoint"] = where if "://" in where else str(Path(where).absolute())
    options["model"] = str(folder)
    return {"model": str(folder), "load_format": "weighbridge", "model_loader_extra_config": options}


class Loader(BaseModelLoader):  # type: ignore[misc, unused-ignore]
    """Fills the modules of one rank in place, before vLLM makes of them what its kernels want."""

    def __init__(self, load_config: Any) -> None:
        super().__init__(load_config)
        options = dict(load_config.model_loader_extra_config or {})
        unknown = sorted(set(options) - set(_OPTIONS))
        if unknown:
            raise ValueError(f"model_loader_extra_config has {', '.join(unknown)}: wanted {', '.join(_OPTIONS)}")
        self._checkpoint = options.pop("checkpoint", None)
        self._model = options.pop("model", None)
        self._threads = options.pop("threads", None)
        self._fallback = options.pop("fallback", True)
        self._plan = options

    def _theirs(self) -> DefaultModelLoader:
        """vLLM's own loader."""
        from vllm.config import LoadConfig

        return DefaultModelLoader(LoadConfig(download_dir=self.load_config.download_dir))

    def download_model(self, model_config: Any) -> None:
        """Downloads the model, as vLLM's own loader does."""
        if self._checkpoint is None and not os.path.exists(model_config.model):
            self._theirs().download_model(model_config)

    def _open(self, model_config: Any) -> Checkpoint:
        path = model_config.model
        if self._checkpoint is not None and self._model in (None, path):
            return _weighbridge.open(self._checkpoint)
        if not os.path.exists(path) and "://" not in path:
            from huggingface_hub import snapshot_download

            path = snapshot_download(path, revision=model_config.revision, local_files_only=True)
        return _weighbridge.open(path)

    def load_weights(self, model: torch.nn.Module, model_config: Any) -> None:
        """Fills the parameters and buffers of `model`, all of them, or raises and says which do not fit."""
        state = ShardedStateLoader._filter_subtensors(model.state_dict())
        try:
            plan, places = self._planned(self._open(model_config), state)
        except Error as error:
            # A checkpoint that does not fit its model would not fit better there: that may be found later, or never.
            misfit = isinstance(error, (CheckpointError, PlanError)) and not isinstance(error, UnknownModelError)
            if misfit or self._plan or self._checkpoint is not None or not self._fallback:
                raise
            _log.warning("left to vLLM's own loader: %s", str(error).splitlines()[0])
            _log.info("%s", error)
            self._theirs().load_weights(model, model_config)
            return
        report = self._fill(plan, places)
        said = "%.2f GB of %d parameters in %.2f s, %.2f GB read, %.2f GB decoded or encoded"
        gb = 1e9
        moved = report.copied + report.encoded
        _log.info(said, moved / gb, len(places), report.seconds, report.read / gb, report.encoded / gb)

    def get_all_weights(self, model_config: Any, model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
        """All weights under the names of transformers, one at a time, as vLLM's `reload_weights` takes them."""
        checkpoint = self._open(model_config)
        if checkpoint.config is not None and "quantization_config" in checkpoint.config:
            plan = _weighbridge.plan(checkpoint, layout="source")
        else:
            options = {"encode": _torch.scheme(model_config.dtype), **self._plan}
            plan = _weighbridge.plan(checkpoint, layout="hf", **options)
        for param in plan.params:
            if param.tied_to is not None:
                continue
            loaded = plan.only(param.name).load(threads=self._threads)[param.name]
            for (name, dtype, shape), (_, plane) in zip(param.tensors, loaded.planes, strict=True):
                yield name, torch.frombuffer(plane, dtype=torch.uint8).view(_torch.dtype(dtype)).reshape(shape)

    def _planned(
        self, checkpoint: Checkpoint, state: dict[str, torch.Tensor]
    ) -> tuple[Plan, dict[str, list[torch.Tensor]]]:
        """The plan of this rank, and the tensors of each of its parameters."""
        meta = next((name for name, one in state.items() if one.is_meta), None)
        if meta is not None:
            raise LoadError(f"`{meta}` has no memory yet: vLLM quantises it while it loads")
        stages = get_pp_group()
        tp = get_tensor_model_parallel_world_size()
        plan = _weighbridge._vllm_state(
            checkpoint,
            tp=tp,
            pp=stages.world_size,
            rank=stages.rank_in_group * tp + get_tensor_model_parallel_rank(),
            state={name: _torch.scheme(one.dtype) for name, one in state.items() if one.dtype in _FLOATS},
            **self._plan,
        )
        problems: list[str] = []
        places: dict[str, list[torch.Tensor]] = {}
        found = set()
        for param in plan.params:
            if not param.tensors:
                problems.append(f"`{param.name}` is {param.scheme}, which vLLM has no tensors for")
            mine = []
            for name, dtype, shape in param.tensors:
                found.add(name)
                target = state.get(name)
                if target is None:
                    # The names of what is tied: the first counts.
                    if param.tied_to is None:
                        problems.append(f"vLLM has no `{name}`")
                elif _torch.scheme(target.dtype) != dtype:
                    problems.append(f"`{name}`: vLLM has {target.dtype}, the checkpoint {dtype}")
                elif name.endswith("_scale") and math.prod(shape) == 1:
                    # What vLLM fuses has one scale for each part. Here it has one for all, to which the parts are encoded anew, as
                    # vLLM does after loading (`requantize_with_max_scale`).
                    mine.append(target)
                elif [n for n in target.shape if n != 1] != [n for n in shape if n != 1]:
                    problems.append(f"`{name}`: vLLM has {list(target.shape)}, the checkpoint {shape}")
                else:
                    mine.append(target)
            if param.tied_to is None:
                places[param.name] = mine
        problems += [f"the checkpoint has no `{name}`" for name in state if name not in found]
        if problems:
            message = "the checkpoint does not fit vLLM's modules:\n" + "\n".join(problems)
            raise LoadError(message, [(what, ()) for what in problems])
        return plan, places

    def _fill(self, plan: Plan, places: dict[str, list[torch.Tensor]]) -> Report:
        """Fills the tensors."""
        given: dict[str, list[_torch.Place]] = {}
        for param in plan.params:
            shapes = (shape for _, _, shape in param.tensors)
            if places.get(param.name):
                given[param.name] = [_torch.Place(*place) for place in zip(places[param.name], shapes)]
        return _torch.fill(plan, given, threads=self._threads)
