#!/usr/bin/env python3
"""Makes golden/ct with compressed-tensors itself.

    python3 golden/ct.py [OLD]

The files came from compressed-tensors 0.20.0 with torch 2.15.0 (CPU), numpy 2.4.6; activation order, which that version
no longer reads, from 0.9.4, which OLD is a directory with (`pip install --target OLD`). Every random number is seeded.
"""

import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import torch

from planes import Folder, nasty, raw

if len(sys.argv) > 2:
    # The old version, in a process of its own: tensors in and out through files.
    sys.path.insert(0, sys.argv[1])
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import dequantize

    q, scale, zero, g_idx, group = torch.load(sys.argv[2])
    args = QuantizationArgs(num_bits=4, strategy="group", group_size=group, actorder="group")
    torch.save(dequantize(q, scale, zero, args, g_idx=g_idx), sys.argv[2])
    sys.exit()

from compressed_tensors.compressors import BaseCompressor  # noqa: E402
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32  # noqa: E402
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme  # noqa: E402

FLOATS = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
folder = Folder("ct")


def scope_of(text, out, inputs):
    """The arguments that say what a scale is for, and the shape of the scales."""
    if text == "tensor":
        return {"strategy": "tensor"}, (1,)
    if text == "row":
        return {"strategy": "channel"}, (out, 1)
    if text[0] == "g":
        group = int(text[1:])
        return {"strategy": "group", "group_size": group}, (out, inputs // group)
    rows, columns = map(int, text[1:].split("x"))
    return {"strategy": "block", "block_structure": [rows, columns]}, (-(-out // rows), -(-inputs // columns))


def decompress(format, args, tensors):
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**args))
    found = BaseCompressor.get_value_from_registry(format).decompress(dict(tensors), scheme)["weight"]
    assert not found.isnan().any()
    return found


def case(name, format, out, inputs, bits, scope, dtype, zeros=False):
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    args, shape = scope_of(scope, out, inputs)
    args |= {"num_bits": bits, "symmetric": not zeros, "type": "float" if "fp8" in name else "int"}
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1)
    q = torch.from_numpy(rng.integers(low, high, (out, inputs), dtype=np.int8))
    q[0, :4] = torch.tensor([low, high - 1, 0, -1])
    tensors = {"weight_scale": nasty(FLOATS[dtype], int(np.prod(shape)), rng).reshape(shape)}
    if format == "pack-quantized":
        tensors |= {"weight_packed": pack_to_int32(q, bits), "weight_shape": torch.tensor([out, inputs])}
    elif "fp8" in name:
        q = torch.arange(out * inputs).to(torch.uint8)
        q[q & 127 == 127] = 0
        tensors["weight"] = q.view(torch.float8_e4m3fn).reshape(out, inputs)
    else:
        tensors["weight"] = q
    if zeros:
        zero = torch.from_numpy(rng.integers(low, high, shape, dtype=np.int8))
        zero.view(-1)[:2] = torch.tensor([low, high - 1])
        tensors["weight_zero_point"] = pack_to_int32(zero, bits, 0) if format == "pack-quantized" else zero
    values = decompress(format, args, tensors)
    order = ["weight_packed", "weight", "weight_scale", "weight_zero_point"]
    folder.add(name, [tensors[t] for t in order if t in tensors], values)


for bits, dtype, out, inputs in [(2, "f16", 32, 64), (3, "bf16", 32, 64), (4, "bf16", 32, 64), (6, "f16", 16, 64), (8, "f32", 16, 128)]:
    case(f"ct-pack:b{bits},g32,{dtype}", "pack-quantized", out, inputs, bits, "g32", dtype)
case("ct-pack:b4,g32,z,f16", "pack-quantized", 32, 64, 4, "g32", "f16", zeros=True)
case("ct-pack:b3,g16,z,bf16", "pack-quantized", 32, 32, 3, "g16", "bf16", zeros=True)
case("ct-pack:b8,row,z,bf16", "pack-quantized", 64, 16, 8, "row", "bf16", zeros=True)
case("ct-pack:b4,row,bf16", "pack-quantized", 64, 24, 4, "row", "bf16")
case("ct-pack:b8,tensor,f16", "pack-quantized", 16, 32, 8, "tensor", "f16")
case("ct-int8:row,bf16", "int-quantized", 64, 40, 8, "row", "bf16")
case("ct-int8:row,z,f16", "int-quantized", 64, 32, 8, "row", "f16", zeros=True)
case("ct-int8:tensor,f32", "int-quantized", 16, 32, 8, "tensor", "f32")
case("ct-int8:g16,z,f32", "int-quantized", 16, 64, 8, "g16", "f32", zeros=True)

if len(sys.argv) > 1:
    for name, zeros in [("ct-pack:b4,act4,bf16", False), ("ct-pack:b4,act4,z,f16", True)]:
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        out, inputs, group = 16, 64, 16
        q = torch.from_numpy(rng.integers(-8, 8, (out, inputs), dtype=np.int8))
        zero = torch.from_numpy(rng.integers(-8, 8, (out, 4), dtype=np.int8)) if zeros else None
        scale = nasty(FLOATS[name.split(",")[-1]], out * 4, rng).reshape(out, 4)
        g_idx = (torch.arange(inputs, dtype=torch.int32) // group)[torch.from_numpy(rng.permutation(inputs))]
        packed = pack_to_int32(q, 4)
        assert (unpack_from_int32(packed, 4, q.shape) == q).all()
        path = folder.path.with_suffix(".tmp")
        torch.save((q, scale, zero, g_idx, group), path)
        subprocess.run([sys.executable, __file__, sys.argv[1], path], check=True)
        values = torch.load(path)
        path.unlink()
        folder.add(name, [packed, scale] + ([pack_to_int32(zero, 4, 0)] if zeros else []) + [g_idx], values)

# Floats: every code, and scales at both ends.
for scope, dtype, out, inputs in [("row", "bf16", 64, 32), ("tensor", "f16", 16, 32), ("b8x16", "f32", 21, 40), ("b8x16", "bf16", 64, 128)]:
    name = f"fp8:e4m3,{scope},f32" if dtype == "f32" else f"ct-fp8:{scope},{dtype}"
    case(name, "float-quantized", out, inputs, 8, scope, dtype)


def small(name, format, group, scale, extra, args, weight="weight_packed"):
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    out, inputs = 16, group * 8
    codes = torch.from_numpy(rng.integers(0, 256, (out, inputs // (2 if weight == "weight_packed" else 1)), dtype=np.uint8))
    codes.view(-1)[:256] = torch.arange(256)
    if weight == "weight":
        codes[codes & 127 == 127] = 0
        codes = codes.view(torch.float8_e4m3fn)
    tensors = {weight: codes, "weight_scale": scale(rng, out, inputs // group)} | extra
    values = decompress(format, {"num_bits": 4, "type": "float", **args}, tensors)
    folder.add(name, [raw(t) for t in tensors.values()], values)


def e4m3(rng, out, groups):
    codes = torch.from_numpy(rng.integers(0, 256, (out, groups), dtype=np.uint8))
    codes[codes & 127 == 127] = 1
    codes[0, :4] = torch.tensor([0, 1, 0x7E, 0x80])
    return codes.view(torch.float8_e4m3fn)


def e8m0(rng, out, groups):
    codes = torch.from_numpy(rng.integers(0, 255, (out, groups), dtype=np.uint8))
    # The largest make infinities of large codes; none of infinite scale.
    codes[0, :4] = torch.tensor([0, 1, 254, 127])
    return codes


nv = {"strategy": "tensor_group", "group_size": 16}
for i, divisor in enumerate([2688.0 / 3.7, -1e-3]):
    small("ct-nvfp4", "nvfp4-pack-quantized", 16, e4m3, {"weight_global_scale": torch.tensor([divisor])}, nv)
mx = {"strategy": "group", "group_size": 32, "scale_dtype": torch.uint8}
small("ct-mxfp4", "mxfp4-pack-quantized", 32, e8m0, {}, mx)
small("ct-mxfp8", "mxfp8-quantized", 32, e8m0, {}, mx | {"num_bits": 8}, weight="weight")
folder.write()
