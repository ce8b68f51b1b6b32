"""A machine without a GPU stands in for one with an H100, for vllm_gpu.py: vLLM chooses an H100's kernels and processes weights for them, in the
processor's memory. None of its kernels runs: what processing calls of them is done by torch here, or the model is left out.
"""

import ctypes
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import torch

NAME = "NVIDIA H100 80GB HBM3"
# What vLLM's libraries want of the driver's. Each says that there is no device (CUDA_ERROR_NO_DEVICE).
DRIVER = ["cuDeviceGetCount", "cuDriverGetVersion", "cuGetProcAddress", "cuGetProcAddress_v2", "cuInit", "cuPointerGetAttribute",
          "cuTensorMapEncodeTiled"]  # fmt: skip


def driver():
    """Loads a library in place of the driver's."""
    with tempfile.TemporaryDirectory() as folder:
        source, built = Path(folder) / "driver.c", Path(folder) / "libcuda.so.1"
        source.write_text("".join(f"int {name}(void) {{ return 100; }}\n" for name in DRIVER))
        subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", built, source], check=True)
        ctypes.CDLL(str(built), mode=ctypes.RTLD_GLOBAL)


def management():
    """Says of the machine, in place of NVML, that it has one H100."""
    import vllm.third_party.pynvml as nvml

    memory = SimpleNamespace(total=80 << 30, free=79 << 30, used=1 << 30)
    answers = {"nvmlInit": None, "nvmlShutdown": None, "nvmlDeviceGetCount": 1, "nvmlDeviceGetHandleByIndex": 0, "nvmlDeviceGetName": NAME,
               "nvmlDeviceGetCudaComputeCapability": (9, 0), "nvmlDeviceGetMemoryInfo": memory, "nvmlDeviceGetUUID": "GPU-0",
               "nvmlDeviceGetNumaNodeId": 0}  # fmt: skip
    for name, answer in answers.items():
        setattr(nvml, name, mock.Mock(return_value=answer))


def devices():
    """Says the same in place of torch."""
    told = SimpleNamespace(multi_processor_count=132, total_memory=80 << 30, name=NAME, major=9, minor=0, is_integrated=False, warp_size=32,
                           shared_memory_per_block_optin=232448, max_threads_per_multi_processor=2048, L2_cache_size=50 << 20)  # fmt: skip
    answers = {"get_device_properties": told, "get_device_capability": (9, 0), "get_device_name": NAME, "_device_count_nvml": 1,
               "device_count": 1, "current_device": 0, "is_available": True, "set_device": None, "synchronize": None, "empty_cache": None,
               "mem_get_info": (79 << 30, 80 << 30)}  # fmt: skip
    for name, answer in answers.items():
        setattr(torch.cuda, name, mock.Mock(return_value=answer))
    for name in ("Stream", "Event", "current_stream"):
        setattr(torch.cuda, name, mock.MagicMock())
    answers = {"empty_cache": None, "synchronize": None, "reset_peak_memory_stats": None, "max_memory_allocated": 0, "set_device_index": None,
               "current_device_index": 0}  # fmt: skip
    for name, answer in answers.items():
        setattr(torch.accelerator, name, mock.Mock(return_value=answer))


def scaled_fp8_quant(values, scale=None, output=None, **_):
    """What `ops.scaled_fp8_quant` computes, of one scale."""
    if scale is None:
        scale = (values.float().abs().max() / 448).clamp(min=1e-12).reshape(1)
    codes = (values.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
    return (codes if output is None else output.copy_(codes)), scale


def start():
    driver()
    management()
    devices()
    import vllm._custom_ops as ops
    from vllm.model_executor.models import registry

    ops.scaled_fp8_quant = scaled_fp8_quant
    # Another process would have a GPU to look for.
    registry._run_in_subprocess = lambda work: work()
