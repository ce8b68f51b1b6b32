#!/usr/bin/env python3
"""Makes golden/marlin with vLLM's own functions.

    python3 golden/marlin.py VLLM

VLLM is the unpacked wheel, or a checkout; only the functions named here are run. The files came from vllm 0.33.0 with torch
2.15.0 (CPU), numpy 2.4.6. Every random number is seeded.

`cases.json` has a list of `{scheme, out, in, planes, marlin}`: the lengths in bytes of the planes of a weight, and of those that
vLLM makes of it after it has loaded it. `planes.bin` has them all, one after the other: of a case first the weight's, then vLLM's.
Codes are brought into order by `marlin_weights` of vLLM's tests, which hold its kernels `gptq_marlin_repack` and
`awq_marlin_repack` against that function (tests/kernels/quantization/test_marlin_gemm.py).
"""

import json
import sys
import zlib
from pathlib import Path

import numpy as np
import torch

from planes import definitions, raw

utils = f"{sys.argv[1]}/vllm/model_executor/layers/quantization/utils"
scope = {"torch": torch, "np": np, "numpy": np, "GPTQ_MARLIN_TILE": 16}
definitions(f"{utils}/quant_utils.py", ["get_pack_factor", "pack_cols", "unpack_cols"], scope)
definitions(
    f"{utils}/marlin_utils.py",
    ["get_scale_perms", "marlin_permute_scales", "marlin_zero_points", "awq_to_marlin_zero_points"],
    scope,
)
definitions(
    f"{utils}/marlin_utils_test.py", ["marlin_permute_weights", "marlin_weights", "get_weight_perm"], scope
)
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
cases, planes = [], b""


def packed_rows(codes, bits):
    """`[in, out]` to words along `in`, as GPTQ has them."""
    per = 32 // bits
    words = codes.reshape(codes.shape[0] // per, per, -1).astype(np.uint64)
    words = (words << (np.arange(per, dtype=np.uint64) * bits)[None, :, None]).sum(1)
    return torch.from_numpy(words.astype(np.uint32).view(np.int32))


def packed_columns(codes, bits, order=None):
    """`[rows, out]` to words along `out`."""
    per = 32 // bits
    order = list(range(per)) if order is None else order
    words = codes.reshape(codes.shape[0], -1, per)[:, :, order].astype(np.uint64)
    words = (words << (np.arange(per, dtype=np.uint64) * bits)).sum(2)
    return torch.from_numpy(words.astype(np.uint32).view(np.int32))


def case(scheme, out, inputs):
    global planes
    rng = np.random.default_rng(zlib.crc32(f"{scheme} {out} {inputs}".encode()))
    family, params = scheme.split(":")
    params = params.split(",")
    bits = int(params[0][1:]) if family.startswith("gptq") else 4
    order, dtype = params[-2:]
    group = inputs if order == "row" else int(order[1:])
    codes = rng.integers(0, 2**bits, (inputs, out))
    scales = torch.from_numpy(rng.integers(1, 2**15, (inputs // group, out)).astype(np.int16))
    scales = scales.view({"f16": torch.float16, "bf16": torch.bfloat16}[dtype])
    # vLLM has -1 for whole rows.
    size = -1 if order == "row" else group
    perm = scope["get_weight_perm"](bits)
    weight = scope["marlin_weights"](torch.from_numpy(codes.astype(np.int32)), inputs, out, bits, perm)
    permuted = scope["marlin_permute_scales"](scales, inputs, out, size)
    if family == "awq":
        zeros = rng.integers(0, 16, (inputs // group, out))
        qzeros = packed_columns(zeros, 4, AWQ_ORDER)
        before = [packed_columns(codes, 4, AWQ_ORDER), qzeros, scales]
        after = [weight, scope["awq_to_marlin_zero_points"](qzeros, inputs // group, out, 4), permuted]
    else:
        zero = 2 ** (bits - 1) - (family == "gptq")
        before = [packed_rows(codes, bits), packed_columns(np.full((inputs // group, out), zero), bits), scales]
        after = [weight, permuted]
    both = [[raw(p) for p in some] for some in (before, after)]
    sizes = {name: [len(p) for p in some] for name, some in zip(("planes", "marlin"), both)}
    cases.append({"scheme": scheme, "out": out, "in": inputs, **sizes})
    planes += b"".join(both[0] + both[1])


case("gptq:b4,g32,f16", 64, 128)
case("gptq:b4,g128,bf16", 192, 256)
case("gptq:b4,row,f16", 128, 64)
# One group, which is a whole row all the same.
case("gptq:b4,g128,f16", 64, 128)
case("gptq-v2:b4,g64,f16", 128, 192)
case("gptq:b8,g64,f16", 64, 128)
case("gptq:b8,row,bf16", 64, 256)
case("awq:g32,f16", 64, 128)
case("awq:g128,bf16", 128, 256)
case("awq:row,f16", 192, 128)
folder = Path(__file__).parent / "marlin"
folder.mkdir(exist_ok=True)
(folder / "cases.json").write_text("[\n" + ",\n".join(map(json.dumps, cases)) + "\n]\n")
(folder / "planes.bin").write_bytes(planes)
print(f"{len(cases)} cases, {len(planes)} bytes")
