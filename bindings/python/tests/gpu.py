"""Files onto a GPU: equal to what safetensors puts there, and the seconds of both in turns.

    PYTHONPATH=INSTALLED python gpu.py FOLDER [GIGABYTES]

FOLDER gets a file of random tensors in bf16. Needs PyTorch with CUDA, safetensors, transformers and accelerate.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import safetensors.torch
import torch
import weighbridge.torch as wt
import weighbridge.transformers as wf
from transformers import AutoModelForCausalLM

MODELS = Path(__file__).parents[3] / "golden" / "models"
KINDS = [torch.bool, torch.uint8, torch.int16, torch.int64, torch.float16, torch.bfloat16, torch.float64, torch.float8_e4m3fn]
ROUNDS = 5


def same(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    raw = [one.reshape(-1).view(torch.uint8) if one.numel() else one for one in (found, wanted)]
    return found.is_cuda and (found.dtype, found.shape) == (wanted.dtype, wanted.shape) and torch.equal(raw[0].cpu(), raw[1].cpu())


def all_same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name, one in found.items():
        assert same(one, wanted[name]), name


def seconds(load: object) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    loaded = load()  # type: ignore[operator]
    torch.cuda.synchronize()
    took = time.perf_counter() - began
    del loaded
    return took


def main() -> None:
    folder, gigabytes = Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 6.0
    numbers = torch.arange(24).reshape(2, 3, 4)
    every = {str(kind): numbers.to(torch.float32).to(kind) for kind in KINDS} | {"none": torch.zeros((0, 5)), "scalar": torch.tensor(3.5)}
    safetensors.torch.save_file(every, folder / "every.safetensors")
    for device in ("cuda", 0, torch.device("cuda:0")):
        all_same(wt.load_file(folder / "every.safetensors", device=device), every)
    files = sorted(MODELS.glob("*-tiny/model.*"))
    for path in files:
        all_same(wt.load_file(path, device="cuda"), wt.load_file(path))
    print(f"{len(files)} models of {MODELS.name} are on the GPU as they are in memory")

    for name in ("llama-tiny", "gemma3-tiny", "qwen3-tiny"):
        for source in (MODELS / name, MODELS / name / "model.gguf"):
            here = wf.from_pretrained(AutoModelForCausalLM, source, dtype="f32")
            there = wf.from_pretrained(AutoModelForCausalLM, source, dtype="f32", device_map="cuda")
            all_same(dict(there.named_parameters()), dict(here.named_parameters()))
            ids = torch.tensor([[1, 5, 9, 2]])
            logits, wanted = there(ids.cuda()).logits.detach().cpu(), here(ids).logits.detach()
            assert torch.allclose(logits, wanted, rtol=1e-3, atol=1e-3 * float(wanted.abs().max())), source
    print("transformers computes there what it computes here")

    path = folder / "large.safetensors"
    shape = (4096, 8704)
    large = {f"layers.{n}.weight": torch.randn(shape, device="cuda").to(torch.bfloat16).cpu() for n in range(int(gigabytes * 1e9 / 2 / 4096 / 8704))}
    safetensors.torch.save_file(large, path)
    size = path.stat().st_size
    all_same(wt.load_file(path, device="cuda"), large)
    del large
    torch.cuda.empty_cache()
    ways = {
        "safetensors.torch.load_file": lambda: safetensors.torch.load_file(path, device="cuda"),
        "weighbridge.torch.load_file": lambda: wt.load_file(path, device="cuda"),
    }
    took: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, load in ways.items():
            took[name].append(seconds(load))
    theirs = statistics.median(took["safetensors.torch.load_file"])
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {size / 1e9:.2f} GB in the page cache, medians of {ROUNDS} in turns")
    for name, all_ in took.items():
        median = statistics.median(all_)
        print(f"{name:30} {median:.3f} s {size / median / 1e9:.1f} GB/s {theirs / median:.1f} ({min(all_):.3f}-{max(all_):.3f})")


if __name__ == "__main__":
    main()
