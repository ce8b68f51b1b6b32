#!/usr/bin/env python3
"""Makes golden/bnb with bitsandbytes itself, on CPU.

    python3 golden/bnb.py

The files came from bitsandbytes 0.50.2 with torch 2.15.0, numpy 2.4.6. Every random number is seeded.
`codes.bin` has, for some cases, the f32 values `[out, in]` that `quantize_4bit` or `int8_vectorwise_quant` made
the planes of.

Values come from the torch implementation that is the default of every device, `_dequantize_4bit_compute`. The
library for CPUs agrees but for FP4's code 8, whose zero has one sign in its vector loops and another elsewhere.
"""

import os
import struct
import zlib

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # as written, not as compiled

import bitsandbytes.functional as F  # noqa: E402
import numpy as np
import torch

from bitsandbytes.backends.default.ops import _dequantize_4bit_compute
from bitsandbytes.backends.utils import _get_4bit_code

from planes import NAMES, Folder, nasty, raw

folder = Folder("bnb")


def dequantize(weight, state):
    absmax = state.absmax
    if state.nested:
        absmax = F.dequantize_blockwise(absmax, state.state2) + state.offset
    code = _get_4bit_code(state.quant_type, weight.device)
    values = _dequantize_4bit_compute(weight.reshape(-1), absmax, code, state.blocksize, state.shape, state.dtype)
    assert (values == F.dequantize_4bit(weight, state)).all()
    return values


def rng_of(text):
    return np.random.default_rng(zlib.crc32(text.encode()))


def given(kind, block, dtype, out, inputs, whole=False):
    """Random codes and the nastiest factors."""
    name = f"bnb-{kind}:b{block},{NAMES[dtype]}" + (f",{out}x{inputs}" if whole else "")
    rng, n = rng_of(name), out * inputs
    weight = torch.from_numpy(rng.integers(0, 256, (-(-n // 2), 1), dtype=np.uint8))
    absmax = nasty(torch.float32, -(-n // block), rng, 0.1)
    # Largest of the result's type, and beyond.
    absmax[5:7] = torch.tensor([65504.0, -70000.0])
    state = F.QuantState(absmax, torch.Size([out, inputs]), None, block, kind, dtype)
    values = dequantize(weight, state)
    assert not values.isnan().any()
    folder.add(name, [weight, absmax], values)


def quantized(kind, block, dtype, out, inputs, nested, span="", whole=False):
    """What bitsandbytes makes of values: ordinary ones, zeros, ties, denormals."""
    rng = rng_of(f"{kind}{block}{dtype}{out}{inputs}{nested}")
    values = torch.from_numpy(rng.normal(0, 0.05, (out, inputs)).astype(np.float32))
    code = F.get_4bit_type(kind, device="cpu").sort().values
    ties = torch.cat([(code[1:] + code[:-1]) / 2, code, torch.tensor([0.0, -0.0, 1e-30, -1e-30])])
    values[0, : len(ties)] = ties
    values[1] = 0
    if not nested:
        # `nested_offset` is the mean of all factors.
        values[2] *= 1e-37
        values[3] *= 1e30
    values = values.to(dtype)
    weight, state = F.quantize_4bit(values, blocksize=block, compress_statistics=nested, quant_type=kind)
    name = f"bnb-{kind}:b{block},{NAMES[dtype]}" + (f",{out}x{inputs}" if whole else "")
    planes = [weight, state.absmax]
    if nested:
        bits = struct.unpack("<I", struct.pack("<f", state.offset.item()))[0]
        name += f"{span},o{bits:08x}"
        planes += [state.state2.absmax, state.state2.code]
    source = None if nested or whole else raw(values.float())
    folder.add(name, planes, dequantize(weight, state), source)


for kind in ("nf4", "fp4"):
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        given(kind, 64, dtype, 16, 256)
given("nf4", 128, torch.bfloat16, 16, 512)
given("nf4", 64, torch.bfloat16, 21, 31, whole=True)
given("fp4", 32, torch.float32, 12, 50, whole=True)
quantized("nf4", 64, torch.float32, 8, 128, nested=False)
quantized("nf4", 32, torch.bfloat16, 8, 128, nested=False)
quantized("fp4", 64, torch.float32, 8, 128, nested=False)
# 256 blocks span 16 rows; the second 256 are not all there.
quantized("nf4", 32, torch.bfloat16, 20, 512, nested=True, span=",r16")
quantized("fp4", 32, torch.float16, 13, 800, nested=True, whole=True)

rng = rng_of("int8")
weight = torch.from_numpy(rng.integers(-128, 128, (64, 64), dtype=np.int8))
weight[0, :] = torch.arange(-128, -64)
scb = nasty(torch.float32, 64, rng, 3.0)
# `q * SCB` must not overflow: the reference then gives infinity, as we do, but 0 * infinity is no number.
values = F.int8_vectorwise_dequant(weight, scb)
assert not values.isnan().any()
folder.add("bnb-int8", [weight, scb], values)

# What bitsandbytes makes of rows: ordinary ones, ties, zeros, denormals, large ones.
values = torch.from_numpy(rng.normal(0, 0.05, (12, 96)).astype(np.float32))
values[0, :8] = torch.tensor([127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -126.5, 63.5])
values[1] = 0
values[2] *= 1e-37
values[3] *= 1e30
weight, scb, _ = F.int8_vectorwise_quant(values)
folder.add("bnb-int8", [weight, scb], F.int8_vectorwise_dequant(weight, scb), raw(values))
folder.write()
