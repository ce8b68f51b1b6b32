#!/usr/bin/env python3
"""Makes golden/gptq with GPTQModel's and AutoGPTQ's own functions.

    python3 golden/gptq.py GPTQMODEL AUTOGPTQ

Both are checkouts; only the functions named here are run. The files came from GPTQModel@f4c327a1 and
AutoGPTQ@9f7d3707 with torch 2.15.0 (CPU), numpy 2.4.6. Every random number is seeded.

Version 1 goes through GPTQModel's `_shift_gptq_qzeros`, as its own conversion does. Cases with codes are packed
by AutoGPTQ's `QuantLinear.pack`: `codes.bin` has codes `[out, in]`, then zero points `[out, groups]`, one byte each.
"""

import sys
import types
import zlib

import numpy as np
import torch

from planes import Folder, definitions, nasty, random_words, raw

model, auto = sys.argv[1:]
scope = {"torch": torch, "t": torch, "np": np, "PLANAR_BITS": (5, 6, 7)}
definitions(
    f"{model}/gptqmodel/utils/model_dequant.py",
    ["unpack_cols", "unpack_rows", "pack_cols", "_unpack_cols_3bit", "_unpack_rows_3bit", "_pack_cols_3bit",
     "_require_int32_words_for_3bit", "_shift_gptq_qzeros", "_correct_gptq_v1_qzeros"],
    scope,
)  # fmt: skip
definitions(f"{model}/gptqmodel/nn_modules/qlinear/__init__.py", ["_dequantize_from_codes"], scope)
nothing = types.SimpleNamespace(pytorch_utils=types.SimpleNamespace(Conv1D=type(None)))
definitions(
    f"{auto}/auto_gptq/nn_modules/qlinear/qlinear_cuda.py",
    ["pack"],
    scope := {**scope, "nn": torch.nn, "transformers": nothing},
)

def dequantize(version, bits, qweight, qzeros, scales, g_idx):
    if version == 1:
        qzeros = scope["_correct_gptq_v1_qzeros"](qzeros, bits)
    small = torch.int16 if bits == 8 else torch.int8
    codes, zeros = scope["unpack_rows"](qweight, bits).to(small), scope["unpack_cols"](qzeros, bits).to(small)
    if bits == 8:
        codes, zeros = codes & 255, zeros & 255
    module = types.SimpleNamespace(scales=scales, g_idx=g_idx)
    return scope["_dequantize_from_codes"](module, codes, zeros).t().contiguous()

folder = Folder("gptq")

def case(version, bits, order, dtype, out, inputs):
    family = "gptq" if version == 1 else "gptq-v2"
    name = f"{family}:b{bits},{order},{dtype}"
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    float_type = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[dtype]
    act = order.startswith("act")
    if act:
        groups = int(order[3:])
        g_idx = torch.from_numpy(rng.integers(0, groups, inputs).astype(np.int32))
        g_idx[:2] = torch.tensor([groups - 1, 0])
    else:
        group = inputs if order == "row" else int(order[1:])
        groups = -(-inputs // group)
        g_idx = torch.arange(inputs, dtype=torch.int32) // group
    qweight = random_words((inputs * bits // 32, out), rng)
    qzeros = random_words((groups, out * bits // 32), rng)
    # Codes and zero points at both ends, beside random ones.
    qweight[:bits, :3] = torch.tensor([0, -1, 0])
    qweight[-bits:, :2] = torch.tensor([-1, 0])
    qzeros[0, :bits] = -1
    qzeros[-1, -bits:] = 0
    scales = nasty(float_type, groups * out, rng).reshape(groups, out)
    values = dequantize(version, bits, qweight, qzeros, scales, g_idx)
    assert values.dtype == float_type and not values.isnan().any()
    folder.add(name, [qweight, qzeros, scales] + ([g_idx] if act else []), values)

for version in (1, 2):
    for bits in (2, 3, 4, 8):
        case(version, bits, "g32", "f16", 32, 64)
case(1, 4, "row", "f16", 64, 64)
case(1, 4, "row", "f32", 64, 32)
case(1, 4, "g64", "bf16", 32, 128)
case(2, 8, "g16", "bf16", 32, 64)
# A last group of 16, groups within a run of codes, groups of no whole run.
case(1, 4, "g48", "f16", 32, 112)
case(1, 3, "g16", "f16", 32, 64)
case(2, 2, "g24", "f16", 32, 96)
case(1, 4, "act5", "f16", 32, 128)
case(1, 3, "act7", "f16", 32, 64)
case(2, 8, "act3", "bf16", 32, 64)

def packed(bits, act, out=32, inputs=64, groups=2):
    rng = np.random.default_rng(bits)
    codes = torch.from_numpy(rng.integers(0, 2**bits, (out, inputs)))
    # Zero would not fit less one: this writer spoils the fields beside it.
    zeros = torch.from_numpy(rng.integers(1, 2**bits, (out, groups)))
    g_idx = torch.arange(inputs, dtype=torch.int32) // (inputs // groups)
    if act:
        g_idx = g_idx[torch.from_numpy(rng.permutation(inputs))]
    linear = types.SimpleNamespace(
        weight=types.SimpleNamespace(data=(codes - zeros[:, g_idx.long()]).float(), dtype=torch.float16), bias=None
    )
    module = types.SimpleNamespace(bits=bits, infeatures=inputs, g_idx=g_idx)
    scope["pack"](module, linear, torch.ones(out, groups), zeros.float(), g_idx)
    values = dequantize(1, bits, module.qweight, module.qzeros, module.scales, g_idx)
    assert (values == codes - zeros[:, g_idx.long()]).all()
    name = f"gptq:b{bits},{f'act{groups}' if act else f'g{inputs // groups}'},f16"
    codes = raw(codes.to(torch.uint8)) + raw(zeros.to(torch.uint8))
    folder.add(name, [module.qweight, module.qzeros, module.scales] + ([g_idx] if act else []), values, codes)

for bits in (2, 3, 4, 8):
    packed(bits, act=False)
packed(4, act=True)
folder.write()
