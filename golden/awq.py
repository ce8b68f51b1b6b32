#!/usr/bin/env python3
"""Makes golden/awq with AutoAWQ's own functions.

    python3 golden/awq.py AUTOAWQ

AUTOAWQ is a checkout or the unpacked sdist; only the functions named here are run. The files came from AutoAWQ
0.2.9 with torch 2.15.0 (CPU), numpy 2.4.6. Every random number is seeded.

Cases with codes are packed by `WQLinear_GEMM.from_linear`: `codes.bin` has codes `[out, in]`, then zero points
`[out, groups]`, one byte each.
"""

import sys
import types
import zlib

import numpy as np
import torch

from planes import Folder, definitions, nasty, random_words, raw

scope = {"torch": torch, "nn": torch.nn, "AWQ_REVERSE_ORDER": [0, 4, 1, 5, 2, 6, 3, 7], "get_best_device": lambda: "cpu"}
definitions(f"{sys.argv[1]}/awq/utils/packing_utils.py", ["unpack_awq", "reverse_awq_order", "dequantize_gemm"], scope)
definitions(f"{sys.argv[1]}/awq/modules/linear/gemm.py", ["from_linear"], scope)
folder = Folder("awq")


def case(order, dtype, out, inputs):
    name = f"awq:{order},{dtype}"
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    float_type = {"f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    group = inputs if order == "row" else int(order[1:])
    groups = inputs // group
    qweight, qzeros = random_words((inputs, out // 8), rng), random_words((groups, out // 8), rng)
    # Codes and zero points at both ends, and each nibble alone.
    qweight[:2], qweight[2:10, 0] = torch.tensor([[0], [-1]]), torch.tensor([1 << (4 * i) for i in range(8)]).int()
    qzeros[0, :2] = torch.tensor([0, -1])
    scales = nasty(float_type, groups * out, rng).reshape(groups, out)
    values = scope["dequantize_gemm"](qweight, qzeros, scales, 4, group).t().contiguous()
    assert values.dtype == float_type and not values.isnan().any()
    folder.add(name, [qweight, qzeros, scales], values)


case("g32", "f16", 64, 64)
case("g128", "f16", 64, 128)
case("row", "f16", 64, 48)
case("g64", "bf16", 32, 128)
case("g24", "f16", 32, 72)


def packed(out=64, inputs=64, groups=2):
    rng = np.random.default_rng(0)
    codes = torch.from_numpy(rng.integers(0, 16, (out, inputs)))
    zeros = torch.from_numpy(rng.integers(0, 16, (out, groups)))
    group = inputs // groups
    weight = (codes - zeros.repeat_interleave(group, 1)).float()
    linear = types.SimpleNamespace(
        in_features=inputs, out_features=out, bias=None, weight=types.SimpleNamespace(data=weight, device="cpu")
    )

    def empty(bits, group_size, *_):
        return types.SimpleNamespace(w_bit=bits, group_size=group_size, in_features=inputs, out_features=out)

    module = scope["from_linear"](empty, linear, 4, group, scales=torch.ones(groups, out), zeros=zeros.t().contiguous())
    values = scope["dequantize_gemm"](module.qweight, module.qzeros, module.scales, 4, group).t().contiguous()
    assert (values == weight).all()
    codes = raw(codes.to(torch.uint8)) + raw(zeros.to(torch.uint8))
    folder.add(f"awq:g{group},f16", [module.qweight, module.qzeros, module.scales], values, codes)


packed()
folder.write()
