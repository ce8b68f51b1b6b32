"""What the loaders for vLLM and SGLang share: the plan of a rank, and its tensors.

SGLang's modules come from vLLM's, and what it holds has the same names and halves."""

from __future__ import annotations

import hashlib
import logging
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from . import _weighbridge
from . import torch as _torch
from ._errors import LoadError
from ._weighbridge import Checkpoint, Plan, Report

OPTIONS = ("checkpoint", "encode", "fallback", "lora", "model", "preset", "rules", "threads")
_FLOAT_SCHEMES = ("bf16", "f16", "f32", "f64")
_FLOATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


class Source:
    """The options of `model_loader_extra_config`, which an engine's loader may have more of: `own`."""

    def __init__(self, given: dict[str, Any] | None, *own: str) -> None:
        options = dict(given or {})
        known = sorted((*OPTIONS, *own))
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise ValueError(f"model_loader_extra_config has {', '.join(unknown)}: wanted {', '.join(known)}")
        self.own = {name: options.pop(name, None) for name in own}
        self.checkpoint = options.pop("checkpoint", None)
        self.model = options.pop("model", None)
        self.threads = options.pop("threads", None)
        self.fallback = options.pop("fallback", True)
        self.plan = options

    def is_local(self, path: str) -> bool:
        """Whether nothing needs to be downloaded for the model at `path`."""
        return self.checkpoint is not None or os.path.exists(path) or "://" in path

    def open(self, path: str, revision: str | None) -> Checkpoint:
        """The checkpoint of the model at `path`."""
        if self.checkpoint is not None and self.model in (None, path):
            return _weighbridge.open(self.checkpoint)
        if not os.path.exists(path) and "://" not in path:
            from huggingface_hub import snapshot_download

            path = snapshot_download(path, revision=revision, local_files_only=True)
        return _weighbridge.open(path)

    def weights(self, checkpoint: Checkpoint, dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
        """All weights under the names of transformers, one at a time. What is not floats is decoded to `dtype`, floats are as stored."""
        if checkpoint.config is not None and "quantization_config" in checkpoint.config:
            plan = _weighbridge.plan(checkpoint, layout="source")
        else:
            plan = _weighbridge.plan(checkpoint, layout="hf", **self.plan)
            own = _weighbridge.plan(checkpoint, **self.plan).params
            coded = {
                param.name: _torch.scheme(dtype)
                for param in own
                if param.scheme not in _FLOAT_SCHEMES and param.tied_to is None
            }
            if coded and "encode" not in self.plan:
                plan = _weighbridge.plan(checkpoint, layout="hf", encode=coded, **self.plan)
        for param in plan.params:
            if param.tied_to is not None:
                continue
            loaded = plan.only(param.name).load(threads=self.threads)[param.name]
            for (name, kind, shape), (_, plane) in zip(param.tensors, loaded.planes, strict=True):
                yield name, torch.frombuffer(plane, dtype=torch.uint8).view(_torch.dtype(kind)).reshape(shape)


def cache_folder(engine: str) -> Path:
    """The folder `engine` of the cache: `$WEIGHBRIDGE_CACHE`, or `weighbridge` in `$XDG_CACHE_HOME` or `~/.cache`."""
    home = os.environ.get("WEIGHBRIDGE_CACHE")
    if home is None:
        home = os.path.join(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "weighbridge")
    return Path(home) / engine


def config_folder(log: logging.Logger, path: str | os.PathLike[str], engine: str, options: dict[str, Any]) -> str:
    """A folder with the files that an engine reads beside the weights, made of the checkpoint's own metadata. `options` get the place of
    the weights.
    """
    files, left = _weighbridge.open(path).hf_files()
    for line in left:
        log.info("not said to the engine: %s", line)
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{len(name)} {name} {len(content)} ".encode() + content)
    folder = cache_folder(engine) / digest.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        # Others may be reading the same.
        part = folder / f".{name}.{os.getpid()}"
        part.write_bytes(content)
        part.replace(folder / name)
    where = os.fspath(path)
    options["checkpoint"] = where if "://" in where else str(Path(where).absolute())
    options["model"] = str(folder)
    return str(folder)


class Rank:
    """The plan of a rank, and the tensors of each of its parameters.

    Args:
        name: of the engine, for errors.
        checkpoint: of the weights.
        state: tensors of the modules, by vLLM's names for them.
        tp, pp, rank: the mesh, and the place in it.
        options: of `weighbridge.plan`.

    Raises:
        LoadError: if something is left over, on either side.
    """

    def __init__(
        self,
        name: str,
        checkpoint: Checkpoint,
        state: dict[str, torch.Tensor],
        tp: int,
        pp: int,
        rank: int,
        options: dict[str, Any],
    ) -> None:
        engine = name
        meta = next((name for name, one in state.items() if one.is_meta), None)
        if meta is not None:
            raise LoadError(f"`{meta}` has no memory yet: {engine} quantises it while it loads")
        held = {name: _torch.scheme(one.dtype) for name, one in state.items() if one.dtype in _FLOATS}
        self.plan: Plan = _weighbridge._vllm_state(checkpoint, tp=tp, pp=pp, rank=rank, state=held, **options)
        problems: list[str] = []
        self.places: dict[str, list[torch.Tensor]] = {}
        found = set()
        for param in self.plan.params:
            if not param.tensors:
                problems.append(f"`{param.name}` is {param.scheme}, which {engine} has no tensors for")
            mine = []
            for name, dtype, shape in param.tensors:
                found.add(name)
                target = state.get(name)
                if target is None:
                    # The names of what is tied: the first counts.
                    if param.tied_to is not None:
                        continue
                    if self.plan.only(param.name).needs(owned=True).read > 0:
                        problems.append(f"{engine} has no `{name}`")
                    # Of what is not in the checkpoint, as vLLM's scales of a cache, nothing is lost.
                    mine.append(torch.empty(shape, dtype=_torch.dtype(dtype)))
                elif _torch.scheme(target.dtype) != dtype:
                    problems.append(f"`{name}`: {engine} has {target.dtype}, the checkpoint {dtype}")
                elif name.endswith("_scale") and math.prod(shape) == 1:
                    # What the engine fuses has one scale for each part. Here it has one for all, to which the parts are encoded anew, as
                    # vLLM does after loading (`requantize_with_max_scale`).
                    mine.append(target)
                elif [n for n in target.shape if n != 1] != [n for n in shape if n != 1]:
                    problems.append(f"`{name}`: {engine} has {list(target.shape)}, the checkpoint {shape}")
                else:
                    mine.append(target)
            if param.tied_to is None:
                self.places[param.name] = mine
        problems += [f"the checkpoint has no `{name}`" for name in state if name not in found]
        if problems:
            message = f"the checkpoint does not fit {engine}'s modules:\n" + "\n".join(problems)
            raise LoadError(message, [(what, ()) for what in problems])

    def fill(self, log: logging.Logger, threads: int | None) -> Report:
        """Fills the tensors, and logs the costs."""
        given: dict[str, list[_torch.Place]] = {}
        for param in self.plan.params:
            shapes = (shape for _, _, shape in param.tensors)
            if self.places.get(param.name):
                given[param.name] = [_torch.Place(*place) for place in zip(self.places[param.name], shapes)]
        report = _torch.fill(self.plan, given, threads=threads)
        said = "%.2f GB of %d parameters in %.2f s, %.2f GB read, %.2f GB decoded or encoded"
        gb = 1e9
        moved = report.copied + report.encoded
        log.info(said, moved / gb, len(self.places), report.seconds, report.read / gb, report.encoded / gb)
        return report
