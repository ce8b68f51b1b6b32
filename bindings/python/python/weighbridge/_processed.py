"""Weights as vLLM's kernels want them, kept for the next start.

After loading, vLLM makes of each rank's weights what its kernels want: scales are merged, matrices transposed, repacked or quantised. Here
the result is kept in a file of safetensors, and the next start reads it into the modules in place of all that. The file has each piece of
memory under the name of the first tensor in it, as bytes; its metadata says where in which piece each tensor lies. vLLM's own cache of
processed weights (`--load-format ipc_cache`, a process that keeps them on the GPU) rests on the same: quantisation methods that declare
`supports_pre_processed_weights`, and its key of what they depend on.
"""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import json
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import torch
from vllm import envs
from vllm.distributed import (
    get_dp_group,
    get_pp_group,
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
)
from vllm.model_executor.model_loader.utils import initialize_model, process_weights_after_loading
from vllm.model_executor.model_loader.weight_cache.protocol import (
    UnsupportedQuantForIPCError,
    WeightCacheKey,
    check_ipc_quant_support,
)
from vllm.model_executor.model_loader.weight_cache.utils import export_model_attrs
from vllm.model_executor.utils import weights_already_processed
from vllm.platforms import current_platform
from vllm.utils.torch_utils import set_default_torch_dtype

from . import _weighbridge
from . import torch as _torch
from ._errors import PlanError
from ._weighbridge import Checkpoint

#: Raised whenever the file is made in another way.
_VERSION = 1
#: Bytes that go from a device to the file at once.
_CHUNK = 256 << 20
#: What pieces begin at a multiple of, so that every type of element is aligned in them.
_ALIGNMENT = 256


class Kept:
    """The file of one rank of one model."""

    def __init__(self, folder: Path, key: str, log: logging.Logger) -> None:
        self.path = folder / f"{key}.safetensors"
        self._record = folder / f"{key}.json"
        self._key = key
        self._log = log

    @staticmethod
    def of(
        folder: Path,
        checkpoint: Checkpoint,
        options: dict[str, Any],
        vllm_config: Any,
        model_config: Any,
        log: logging.Logger,
    ) -> Kept | None:
        """The file for a model and all that the processed weights depend on.

        Raises:
            ValueError: if vLLM has no processed weights to keep here.
        """
        if current_platform.is_cpu():
            raise ValueError("`cache`: on CPUs, vLLM's layers have what they packed outside of their parameters, where it cannot be kept")
        if "kernel_config" not in inspect.signature(WeightCacheKey.from_model_config).parameters:
            raise ValueError("`cache` wants vLLM 0.33: the key of earlier ones leaves out which kernels the weights are for")
        if vllm_config.parallel_config.enable_eplb:
            raise ValueError("`cache`: with `enable_eplb`, experts move between ranks")
        try:
            plan = _weighbridge.plan(checkpoint, **options)
        except PlanError:
            if options:
                raise
            # Of a family that vLLM's own loader is left to load.
            plan = _weighbridge.plan(checkpoint, layout="source")
        stages, replicas, spec = get_pp_group(), get_dp_group(), vllm_config.speculative_config
        theirs = WeightCacheKey.from_model_config(
            model_config,
            cache_config=vllm_config.cache_config,
            tp_size=get_tensor_model_parallel_world_size(),
            tp_rank=get_tensor_model_parallel_rank(),
            pp_size=stages.world_size,
            pp_rank=stages.rank_in_group,
            dp_size=replicas.world_size,
            dp_rank=replicas.rank_in_group,
            is_draft=spec is not None and model_config is spec.draft_model_config,
            enable_expert_parallel=vllm_config.parallel_config.enable_expert_parallel,
            expert_placement_strategy=vllm_config.parallel_config.expert_placement_strategy,
            kernel_config=vllm_config.kernel_config,
        )
        parts = {
            "version": _VERSION,
            "weights": plan.key(),
            "vllm": asdict(theirs),
            "config": model_config.hf_config.to_dict(),
            "env": envs.compile_factors(),
            "torch": str(torch.__version__),
            "device": [current_platform.get_device_name(), str(current_platform.get_device_capability())],
        }
        if parts["weights"] is None:
            log.warning("processed weights are not kept: a file of the checkpoint was written to just now, or is no file")
            return None
        return Kept(folder, hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32], log)

    def is_ready(self) -> bool:
        """Whether the file is there, and still the one that was written."""
        try:
            record = json.loads(self._record.read_text())
            return record == _identity(self.path)
        except (OSError, ValueError):
            return False

    def keep(self, model: torch.nn.Module) -> None:
        """Writes what `model` holds, unless another process is doing so."""
        try:
            check_ipc_quant_support(model)
        except UnsupportedQuantForIPCError as error:
            self._log.warning("processed weights are not kept: %s", error)
            return
        began = time.perf_counter()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path.with_suffix(".lock"), "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            part = self.path.with_suffix(".part")
            try:
                with open(part, "wb") as file:
                    size = _write(file, model, self._key)
                    file.flush()
                    os.fsync(file.fileno())
                self._record.unlink(missing_ok=True)
                part.replace(self.path)
                self._record.write_text(json.dumps(_identity(self.path)))
            except OSError as error:
                # The model is loaded: it can be served.
                self._log.warning("processed weights are not kept: %s", error)
                return
            finally:
                part.unlink(missing_ok=True)
        self._log.info("kept %.2f GB of processed weights in %.2f s: %s", size / 1e9, time.perf_counter() - began, self.path)

    def restore(self, vllm_config: Any, model_config: Any, prefix: str, threads: int | None) -> torch.nn.Module:
        """The model, with the tensors of the file."""
        began = time.perf_counter()
        device = torch.device(vllm_config.load_config.device or vllm_config.device_config.device)
        with set_default_torch_dtype(model_config.dtype):
            with torch.device("meta"):
                model = initialize_model(vllm_config=vllm_config, model_config=model_config, prefix=prefix)
            check_ipc_quant_support(model)
            told, size = _read(self.path, model, device, threads)
            for name, value in told["attributes"].items():
                setattr(model, name, value)
            with weights_already_processed():
                process_weights_after_loading(model, model_config, device)
            _finish(model, set(told["none"]), device)
        self._log.info("%.2f GB of processed weights in %.2f s: %s", size / 1e9, time.perf_counter() - began, self.path)
        return model.eval()


def _identity(path: Path) -> dict[str, int]:
    found = path.stat()
    return {"bytes": found.st_size, "modified": found.st_mtime_ns, "inode": found.st_ino}


def _tensors(model: torch.nn.Module) -> Iterator[tuple[str, str, torch.Tensor | None]]:
    """Kinds, names and tensors of all modules: of what is shared, each name."""
    for path, module in model.named_modules(remove_duplicate=False):
        before = f"{path}." if path else ""
        for leaf, one in module._parameters.items():
            yield "parameter", before + leaf, one
        for leaf, one in module._buffers.items():
            yield "computed" if leaf in module._non_persistent_buffers_set else "buffer", before + leaf, one


def _write(file: IO[bytes], model: torch.nn.Module, key: str) -> int:
    """Writes the tensors of `model`, and returns the bytes."""
    pieces: dict[int, tuple[str, int, int, torch.Tensor]] = {}
    first: dict[int, str] = {}
    found: list[dict[str, Any]] = []
    held: list[tuple[dict[str, Any], torch.Tensor]] = []
    none: list[str] = []
    for kind, name, one in _tensors(model):
        if one is None:
            none.append(name)
            continue
        if id(one) in first:
            found.append({"kind": kind, "name": name, "is": first[id(one)]})
            continue
        first[id(one)] = name
        told: dict[str, Any] = {
            "kind": kind,
            "name": name,
            "type": _torch.scheme(one.dtype),
            "shape": list(one.shape),
            "stride": list(one.stride()),
        }
        found.append(told)
        if one.numel() == 0:
            continue
        storage = one.untyped_storage()
        begin = one.storage_offset() * one.element_size()
        span = 1 + sum((extent - 1) * stride for extent, stride in zip(one.shape, one.stride()))
        end = begin + span * one.element_size()
        begin -= begin % _ALIGNMENT
        whole = torch.empty(0, dtype=torch.uint8, device=one.device).set_(storage)
        title, low, high, _ = pieces.get(storage.data_ptr(), (name, begin, end, whole))
        pieces[storage.data_ptr()] = (title, min(low, begin), max(high, end), whole)
        held.append((told, one))
    for told, one in held:
        title, low, _, _ = pieces[one.untyped_storage().data_ptr()]
        told["piece"] = title
        told["at"] = one.storage_offset() * one.element_size() - low
    metadata = {"key": key, "tensors": found, "none": none, "attributes": export_model_attrs(model)}
    header: dict[str, Any] = {"__metadata__": {"weighbridge.processed": json.dumps(metadata)}}
    at = 0
    for title, low, high, _ in pieces.values():
        header[title] = {"dtype": "U8", "shape": [high - low], "data_offsets": [at, at + high - low]}
        at += high - low
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    file.write(len(text).to_bytes(8, "little") + text)
    for _, low, high, whole in pieces.values():
        for begin in range(low, high, _CHUNK):
            file.write(memoryview(whole[begin : min(high, begin + _CHUNK)].cpu().numpy()))
    return at


def _read(path: Path, model: torch.nn.Module, device: torch.device, threads: int | None) -> tuple[dict[str, Any], int]:
    """Reads the tensors of the file to `device`, and puts them into `model`. Returns what the file says, and its bytes."""
    file = _weighbridge.open(path)
    told: dict[str, Any] = json.loads(file.metadata["weighbridge.processed"])
    plan = _weighbridge.plan(file, layout="source")
    pieces = {}
    for param in plan.params:
        (size,) = param.shape
        pieces[param.name] = torch.empty(-(-size // _ALIGNMENT) * _ALIGNMENT, dtype=torch.uint8, device=device)
    report = _torch.load_into(plan, {param.name: pieces[param.name][: param.shape[0]] for param in plan.params}, threads=threads)
    modules = dict(model.named_modules(remove_duplicate=False))
    made: dict[str, torch.Tensor] = {}
    for one in told["tensors"]:
        path_of, _, leaf = one["name"].rpartition(".")
        if "is" in one:
            tensor = made[one["is"]]
        elif "piece" in one:
            typed = pieces[one["piece"]].view(_torch.dtype(one["type"]))
            tensor = torch.as_strided(typed, one["shape"], one["stride"], one["at"] // typed.element_size())
        else:
            tensor = torch.empty(one["shape"], dtype=_torch.dtype(one["type"]), device=device)
        module = modules[path_of]
        # What was made when processing may be in place of another, of the other kind.
        module._parameters.pop(leaf, None)
        module._buffers.pop(leaf, None)
        if one["kind"] == "parameter":
            if not isinstance(tensor, torch.nn.Parameter):
                tensor = torch.nn.Parameter(tensor, requires_grad=False)
            module.register_parameter(leaf, tensor)
        else:
            module.register_buffer(leaf, tensor, persistent=one["kind"] == "buffer")
        made[one["name"]] = tensor
    return told, report.read


def _finish(model: torch.nn.Module, none: set[str], device: torch.device) -> None:
    """Takes away what processing had taken away, and gives what has no elements its device.

    Raises:
        RuntimeError: if a module has a tensor beside its parameters and buffers, which is in no file.
    """
    for path, module in model.named_modules(remove_duplicate=False):
        before = f"{path}." if path else ""
        for held in (module._parameters, module._buffers):
            for leaf, one in list(held.items()):
                if one is not None and one.is_meta:
                    if before + leaf in none:
                        held[leaf] = None
                    else:
                        del held[leaf]
        for name, one in list(vars(module).items()):
            if isinstance(one, torch.Tensor) and one.is_meta:
                if one.numel():
                    raise RuntimeError(f"`{before}{name}` is neither a parameter nor a buffer: start without `cache`")
                # As the place of a cache that comes later.
                setattr(module, name, torch.empty_like(one, device=device))
