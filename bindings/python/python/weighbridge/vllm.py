"""A loader for vLLM: each rank plans its share from headers, and reads just that.

>>> from vllm import LLM
>>> llm = LLM("model/", load_format="weighbridge")

vLLM finds it by itself once the package is installed. Files that vLLM does not read, such as GGUF and MLX, are given as

>>> import weighbridge.vllm
>>> llm = LLM(**weighbridge.vllm.arguments("model.gguf"))

`model_loader_extra_config` takes `checkpoint` (where the weights are, if not at `model`), `model` (the one whose weights these are: of
another, as in an update, the weights are where it is), `encode`, `preset`, `rules` and `lora` as
`weighbridge.plan` does, `threads`, `fallback`: with `False`, what cannot be loaded exactly is an error, and never left to vLLM's
own loader; and `cache`: `True`, or a folder. With it, what vLLM makes of the weights after loading (merged, transposed, quantised) is kept,
and the next start of the same model, on the same device and by the same versions, reads that. It is for GPUs, and for methods of
quantisation that vLLM says it is right for. Its files are named in the log, and removed by nobody but you.
"""

from __future__ import annotations

import logging
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

from . import _engine
from ._errors import CheckpointError, Error, PlanError, UnknownModelError

__all__ = ["Loader", "arguments", "register"]

_log = logging.getLogger("vllm.weighbridge")
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
    folder = _engine.config_folder(_log, path, "vllm", options)
    return {"model": folder, "load_format": "weighbridge", "model_loader_extra_config": options}


class Loader(BaseModelLoader):  # type: ignore[misc, unused-ignore]
    """Fills the modules of one rank in place, before vLLM makes of them what its kernels want."""

    def __init__(self, load_config: Any) -> None:
        super().__init__(load_config)
        self._source = _engine.Source(load_config.model_loader_extra_config, "cache")

    def _theirs(self) -> DefaultModelLoader:
        """vLLM's own loader."""
        from vllm.config import LoadConfig

        return DefaultModelLoader(LoadConfig(download_dir=self.load_config.download_dir))

    def download_model(self, model_config: Any) -> None:
        """Downloads the model, as vLLM's own loader does."""
        if not self._source.is_local(model_config.model):
            self._theirs().download_model(model_config)

    def load_model(self, vllm_config: Any, model_config: Any, prefix: str = "") -> torch.nn.Module:
        """The model with its weights as vLLM's kernels want them."""
        source, cache = self._source, self._source.own["cache"]
        kept = None
        if cache:
            from . import _processed

            folder = _engine.cache_folder("vllm") / "processed" if cache is True else Path(cache)
            checkpoint = source.open(model_config.model, model_config.revision)
            kept = _processed.Kept.of(folder, checkpoint, source.plan, vllm_config, model_config, _log)
        if kept is not None and kept.is_ready():
            return kept.restore(vllm_config, model_config, prefix, source.threads)
        model: torch.nn.Module = super().load_model(vllm_config, model_config, prefix)
        if kept is not None:
            kept.keep(model)
        return model

    def load_weights(self, model: torch.nn.Module, model_config: Any) -> None:
        """Fills the parameters and buffers of `model`, all of them, or raises and says which do not fit."""
        source, stages = self._source, get_pp_group()
        state = ShardedStateLoader._filter_subtensors(model.state_dict())
        tp = get_tensor_model_parallel_world_size()
        place = stages.rank_in_group * tp + get_tensor_model_parallel_rank()
        try:
            checkpoint = source.open(model_config.model, model_config.revision)
            rank = _engine.Rank("vLLM", checkpoint, state, tp, stages.world_size, place, source.plan)
        except Error as error:
            # A checkpoint that does not fit its model would not fit better there: that may be found later, or never.
            misfit = isinstance(error, (CheckpointError, PlanError)) and not isinstance(error, UnknownModelError)
            if misfit or source.plan or source.checkpoint is not None or not source.fallback:
                raise
            _log.warning("left to vLLM's own loader: %s", str(error).splitlines()[0])
            _log.info("%s", error)
            self._theirs().load_weights(model, model_config)
            return
        rank.fill(_log, source.threads)

    def get_all_weights(self, model_config: Any, model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
        """All weights under the names of transformers, one at a time, as vLLM's `reload_weights` takes them."""
        checkpoint = self._source.open(model_config.model, model_config.revision)
        return self._source.weights(checkpoint, model_config.dtype)
