"""Asks vLLM itself about FP8 with a scale for each matrix: what its fused layers hold once their scales are one.

    pip install vllm==0.33.0        (its source tree on PYTHONPATH does too: no kernel of it is run)
    python vllm_merged.py --llama-cpp DIR

As vllm_check.py: vLLM's models load the checkpoints of vllm/*-fp8t.json. Then vLLM's own functions, of
layers/quantization/utils/fp8_utils.py, give each fused layer one scale. The kernel that they call for it is replaced by what
csrc/quantization/w8a8/fp8/common.cuh `scaled_fp8_conversion` says: times the inverse of the scale, clamped, rounded.

vLLM rounds to float16 on the way (`per_tensor_dequantize`), vllm_shards.py does not: codes may differ by a step where a value
lies near the middle of two. vllm/merged.json counts the planes that were compared, the codes, those that differ, and those
of them where vLLM is nearer to the stored value by more than float16 can tell. Scales must be the same bits. `by_scale` has, for
pairs of scales of about a size, the share of codes that differ, and of those the share where ours is the nearer one.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import vllm_shards
from vllm_check import checkpoint, engine_config, loaded, start_once, written

HERE = Path(__file__).parent


def quantised(values, scale):
    """`scaled_fp8_conversion<true>`."""
    return (values.float() * (1.0 / scale)).clamp(-448, 448).to(torch.float8_e4m3fn), scale


def merged(model):
    """The planes of what vLLM holds, after its own merging; by name."""
    from vllm.model_executor.layers.quantization.utils import fp8_utils, w8a8_utils

    fp8_utils.ops.scaled_fp8_quant = w8a8_utils.ops.scaled_fp8_quant = quantised
    found = {}
    for name, module in model.named_modules():
        parameters = dict(module.named_parameters(recurse=False))
        for key, weight in parameters.items():
            scale = parameters.get(f"{key}_scale")
            if scale is None or weight.dtype != torch.float8_e4m3fn:
                continue
            weight, scale = weight.data.clone(), scale.data.clone()
            if key == "w13_weight":
                weight, scale = fp8_utils.process_fp8_weight_tensor_strategy_moe(
                    weight, scale, weight.shape[1] // 2, len(weight))
            elif key == "weight":
                weight, scale, _ = fp8_utils.process_fp8_weight_tensor_strategy(weight, scale, module.logical_widths)
                weight = weight.t()
            found[f"{name}.{key}"] = weight.contiguous(), scale
    return found


def check(file, directory):
    told = json.loads(file.read_text())
    model, source = file.stem.rsplit("-", 1)
    stored = vllm_shards.Checkpoint(model, source)
    values = {name: valued(tensor) for name, tensor in stored.tensors.items()}
    config = engine_config(told, directory)
    start_once()
    counts = {"compared": 0, "codes": 0, "differ": 0, "vllm_nearer": 0, "problems": []}
    for tp in map(int, told["tp"]):
        for rank in range(tp):
            ours = vllm_shards.shard(stored.tensors, stored.model_config, tp, rank)
            exact = vllm_shards.shard(values, stored.model_config, tp, rank)
            theirs = merged(loaded(config, tp, rank, None, checkpoint(told)))
            quantised = {name: t for name, t in ours.items() if t.scheme.startswith("fp8")}
            for name in quantised.keys() ^ theirs.keys():
                counts["problems"].append(f"tp {tp} rank {rank}: `{name}` is held by one alone")
            for name in quantised.keys() & theirs.keys():
                one(f"tp {tp} rank {rank}: `{name}`", quantised[name], exact[name], *theirs[name], counts)
    return counts


def valued(tensor):
    """What is stored, in f64, which holds it."""
    if not tensor.scheme.startswith("fp8"):
        return tensor
    codes, scale = tensor.planes
    values = torch.from_numpy(np.ascontiguousarray(codes.data)).view(torch.float8_e4m3fn).double().numpy()
    values = values * float(scale.data.view("<f4").item())
    return replace(tensor, scheme="f64", planes=[replace(codes, data=values.view(np.uint8).reshape(*tensor.shape, 8))])


def one(title, ours, exact, weight, scale, counts):
    exact = torch.from_numpy(np.ascontiguousarray(exact.planes[0].data)).view(torch.float64).reshape(weight.shape)
    codes, scales = (plane.data for plane in ours.planes)
    scales = np.ascontiguousarray(scales).view("<f4").reshape(-1)
    if scales.tobytes() != scale.numpy().astype("<f4").tobytes():
        counts["problems"].append(f"{title}: scales {scales} are {scale.numpy()} in vLLM")
        return
    ours = torch.from_numpy(np.ascontiguousarray(codes)).view(torch.float8_e4m3fn).reshape(weight.shape)
    differ = ours.view(torch.uint8) != weight.view(torch.uint8)
    each = torch.from_numpy(scales.copy()).double().reshape(-1, *[1] * (weight.dim() - 1))
    each = each if weight.dim() == 3 else each.reshape(1, 1)
    far = [(values.float().double() * each - exact).abs() for values in (ours, weight)]
    # What float16 cannot tell of a stored value.
    tells = exact.abs() * 2.0**-11 + 2.0**-25
    counts["compared"] += 2
    counts["codes"] += weight.numel()
    counts["differ"] += int(differ.sum())
    counts["vllm_nearer"] += int((far[1] + tells < far[0]).sum())
    steps = (ours.view(torch.uint8).int() - weight.view(torch.uint8).int()).abs()
    if int(steps.max()) > 1:
        counts["problems"].append(f"{title}: codes are {int(steps.max())} steps apart")


def by_scale(size):
    """All codes with one scale, as with a larger one: both about `size`, 2,000 pairs."""
    generator = torch.Generator().manual_seed(1)
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn)
    codes = codes[~codes.float().isnan()]
    count = differ = nearer = 0
    for pair in (torch.rand(2000, 2, generator=generator) + 0.5) * size:
        scale, largest = pair.min(), pair.max()
        vllm, _ = quantised(codes.to(torch.float16) * scale, largest)  # w8a8_utils.py `per_tensor_dequantize`
        ours = (codes.double() * scale.double() / largest.double()).float().to(torch.float8_e4m3fn)
        far = [(found.double() * largest.double() - codes.double() * scale.double()).abs() for found in (ours, vllm)]
        other = ours.view(torch.uint8) != vllm.view(torch.uint8)
        count, differ, nearer = count + len(codes), differ + int(other.sum()), nearer + int((other & (far[0] < far[1])).sum())
    return {"differ": round(differ / count, 5), "ours_nearer": round(nearer / max(differ, 1), 5)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-cpp", type=Path, required=True)
    llama_cpp = parser.parse_args().llama_cpp
    sys.path[:0] = [str(llama_cpp), str(llama_cpp / "gguf-py")]
    results = {}
    for file in sorted((HERE / "vllm").glob("*-fp8t.json")):
        with tempfile.TemporaryDirectory() as directory:
            results[file.stem] = check(file, Path(directory))
        print(file.stem, results[file.stem], flush=True)
    sizes = {f"{size:g}": by_scale(size) for size in (1, 1e-2, 1e-3, 1e-4, 1e-5)}
    print(sizes)
    results["by_scale"] = {"sizes": sizes, "problems": []}
    (HERE / "vllm" / "merged.json").write_text(written(results) + "\n")
    sys.exit(any(found["problems"] for found in results.values()))


if __name__ == "__main__":
    main()
