"""A loader for SGLang: each rank plans its share from headers, and reads just that.

    python -m sglang.launch_server --model-path model/ --load-format weighbridge

SGLang finds it by itself once the package is installed. Files that SGLang does not read, such as MLX, are given as

>>> import sglang, weighbridge.sglang
>>> engine = sglang.Engine(**weighbridge.sglang.arguments("model.gguf"))

`model_loader_extra_config` takes what that of `weighbridge.vllm` does. The modules of `IN_PLACE` are filled in place. Those of other
models, and of ranks that are divided in other ways than by `tp`, get all weights one at a time by their own `load_weights`, as
SGLang's loader gives them: then each rank reads all.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from typing import Any

import torch
from sglang.srt.arg_groups.choices import add_load_format_choices
from sglang.srt.configs.load_config import LoadConfig
from sglang.srt.model_loader.loader import (
    BaseModelLoader,
    DefaultModelLoader,
    ShardedStateLoader,
    post_load_weights,
)
from sglang.srt.plugins.hook_registry import HookRegistry, HookType
from sglang.srt.runtime_context import get_parallel

from . import _engine
from ._errors import CheckpointError, Error, LoadError, PlanError, UnknownModelError

__all__ = ["IN_PLACE", "Loader", "arguments", "register"]

#: Classes of models whose modules are filled in place: held against SGLang's own loader by golden/sglang_plugin.py.
IN_PLACE = frozenset({"LlamaForCausalLM", "Phi3ForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"})

_log = logging.getLogger("sglang.weighbridge")
_registered = False


def register() -> None:
    """Makes the load format `weighbridge` known to SGLang. It calls this in each of its processes (`sglang.srt.plugins`)."""
    global _registered
    if _registered:
        return
    add_load_format_choices(["weighbridge"])
    HookRegistry.register(
        "sglang.srt.configs.load_config.LoadConfig._verify_load_format", _verified, HookType.AROUND
    )
    _registered = True


def _verified(verify: Any, config: LoadConfig) -> None:
    """The formats of SGLang are a closed list; a class of loaders is taken as it is."""
    if config.load_format == "weighbridge":
        config.load_format = Loader
    else:
        verify(config)


def arguments(path: str | os.PathLike[str], **options: Any) -> dict[str, Any]:
    """Arguments of `sglang.Engine` for a checkpoint of any format, as GGUF or MLX.

    The files that SGLang reads beside the weights (config.json, the tokenizer's) are made of the checkpoint's own metadata, and kept
    in the folder `sglang` of the cache: `$WEIGHBRIDGE_CACHE`, or `weighbridge` in `$XDG_CACHE_HOME` or `~/.cache`.

    Args:
        path: a file, a directory or a URL.
        options: of `model_loader_extra_config`.

    Raises:
        Error: if config.json cannot say all of the model.
    """
    folder = _engine.config_folder(_log, path, "sglang", options)
    return {"model_path": folder, "load_format": "weighbridge", "model_loader_extra_config": json.dumps(options)}


class Loader(DefaultModelLoader):  # type: ignore[misc, unused-ignore]
    """Fills the modules of one rank, before SGLang makes of them what its kernels want."""

    def __init__(self, load_config: Any) -> None:
        BaseModelLoader.__init__(self, load_config)
        if load_config.draft_model_idx is not None:
            raise ValueError("weighbridge loads no draft model that is a layer of another: leave it to SGLang (speculative_draft_load_format)")
        self._source = _engine.Source(load_config.model_loader_extra_config)
        self._loading: Any = None

    def download_model(self, model_config: Any) -> None:
        """Downloads the model, as SGLang's own loader does."""
        if not self._source.is_local(model_config.model_path):
            DefaultModelLoader(LoadConfig(download_dir=self.load_config.download_dir)).download_model(model_config)

    def load_model(self, *, model_config: Any, device_config: Any) -> torch.nn.Module:
        """The model of this rank, with its weights."""
        self.download_model(model_config)
        self._loading = model_config
        try:
            return super().load_model(model_config=model_config, device_config=device_config)
        finally:
            self._loading = None

    def load_weights_and_postprocess(
        self, model: torch.nn.Module, weights: Iterator[tuple[str, torch.Tensor]], target_device: Any
    ) -> None:
        """Fills `model` in place where that is known to be right, and gives it `weights` otherwise."""
        # An update gives the weights that it wants, which may be some.
        if self._loading is None or not self._is_filled(model, self._loading):
            DefaultModelLoader.load_weights_only(model, weights, target_device)
        else:
            post_load_weights(model)
        DefaultModelLoader.postprocess_weights(model, target_device)

    def _is_filled(self, model: torch.nn.Module, model_config: Any) -> bool:
        """Fills `model` in place. `False`: nothing was filled."""
        parallel, source, name = get_parallel(), self._source, type(model).__name__
        ways = ["pp_size", "attn_dp_size", "attn_cp_size", "moe_ep_size", "moe_dp_size"]
        others = [way for way in ways if getattr(parallel, way) != 1]
        if name not in IN_PLACE or others:
            why = name if name not in IN_PLACE else f"ranks with {', '.join(others)}"
            if not source.fallback:
                raise LoadError(f"{why} cannot be filled in place: wanted one of {', '.join(sorted(IN_PLACE))}, by tp_size alone")
            _log.info("%s: each rank reads all weights, and load_weights of the model takes them", why)
            return False
        state = ShardedStateLoader._filter_subtensors(model.state_dict())
        try:
            checkpoint = source.open(model_config.model_path, model_config.revision)
            rank = _engine.Rank("SGLang", checkpoint, state, parallel.tp_size, 1, parallel.tp_rank, source.plan)
        except Error as error:
            misfit = isinstance(error, (CheckpointError, PlanError)) and not isinstance(error, UnknownModelError)
            if misfit or not source.fallback:
                raise
            _log.warning("left to load_weights of %s: %s", name, str(error).splitlines()[0])
            _log.info("%s", error)
            return False
        rank.fill(_log, source.threads)
        return True

    def _get_weights_iterator(self, source: Any, **_: Any) -> Iterator[tuple[str, torch.Tensor]]:
        """Weights under the names of transformers, one at a time: of the model, of others that a model asks for beside its own, or of a directory that
        an update names."""
        if source.allow_patterns_overrides is not None:
            raise LoadError(f"SGLang asks for parts of {source.model_or_path} ({source.allow_patterns_overrides}), not for a model")
        config = source.model_config if self._loading is None else self._loading
        checkpoint = self._source.open(source.model_or_path, source.revision)
        for name, tensor in self._source.weights(checkpoint, config.dtype):
            yield source.prefix + name, tensor
