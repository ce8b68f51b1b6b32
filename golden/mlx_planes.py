#!/usr/bin/env python3
"""Makes golden/mlx-*/*.safetensors with MLX itself, on the CPU.

    pip install "mlx[cpu]==0.32.4"; python3 golden/mlx_planes.py

Decoded are random codes with every pair of nasty scales and biases, then with ordinary ones. Encoded are
groups that are zero, constant, tiny, huge, lopsided, then ordinary ones. Every random number is seeded.
See vectors.py for the files.
"""

import zlib

import mlx.core as mx
import numpy as np
from vectors import save

DTYPE = {"f16": mx.float16, "bf16": mx.bfloat16, "f32": mx.float32}
# Zero and minus zero, smallest and largest denormals, smallest normal, ones, largest finite.
NASTY = {
    "f16": np.array([0, 0x8000, 1, 0x83FF, 0x0400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF], np.uint16).view(np.float16).astype(np.float32),
    "bf16": (np.array([0, 0x8000, 1, 0x807F, 0x0080, 0x3F80, 0xBF80, 0x7F7F, 0xFF7F], np.uint32) << 16).view(np.float32),
    "f32": np.array([0, 1 << 31, 1, 0x807FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x7F7FFFFF, 0xFF7FFFFF], np.uint32).view(np.float32),
}  # fmt: skip


def numpy(x: mx.array) -> np.ndarray:
    """As numpy, bfloat16 as uint16."""
    return np.array(x.view(mx.uint16) if x.dtype == mx.bfloat16 else x)


def rng(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))


def groups_to_encode(r: np.random.Generator, group: int, largest: float, tiny: float) -> np.ndarray:
    """[groups, group], f32."""
    n = lambda scale=1.0, mean=0.0: r.normal(mean, scale, group)
    one = np.zeros(group)
    one[3] = -2.5
    rows = [
        np.zeros(group), np.full(group, -0.0), np.full(group, 0.7), np.full(group, -0.7), one,
        np.linspace(-1, 1, group), np.linspace(1, -1, group), np.linspace(0, 3, group), np.linspace(-3, 0, group),
        np.where(np.arange(group) % 2, 1.0, -1.0), np.where(np.arange(group) % 5, 0.25, -0.25),
        n(tiny), n(100 * tiny), np.full(group, tiny), np.where(np.arange(group) % 3, largest, -largest / 2),
        np.full(group, -largest), n(1e-7), n(1e-4, 1.0), n(1e-3, -5.0), np.abs(n()), -np.abs(n()),
        np.round(n(4.0)), np.round(4 * n(2.0)) / 4, r.standard_cauchy(group), np.exp(n(3.0)),
    ]  # fmt: skip
    while len(rows) < 64:
        rows.append(n(10.0 ** r.uniform(-4, 1), r.choice([0.0, 0.0, 0.01])))
    return np.array(rows, np.float32)


def affine(bits: int, group: int, real: str) -> None:
    name = f"b{bits},g{group},{real}"
    r = rng(name)
    nasty = NASTY[real]
    pairs = [(s, b) for s in nasty for b in nasty][:: 2]
    pairs += [(s, b) for s, b in zip(r.normal(0, 0.02, 23), r.normal(0, 0.2, 23))]
    rows, columns = len(pairs) // 2, 2 * group
    pairs = np.array(pairs[: 2 * rows], np.float32).reshape(rows, 2, 2)
    scales, biases = (mx.array(pairs[:, :, i]).astype(DTYPE[real]) for i in (0, 1))
    words = mx.array(r.integers(0, 2**32, (rows, columns * bits // 32), dtype=np.uint32))
    values = mx.dequantize(words, scales, biases, group_size=group, bits=bits)
    assert values.dtype == DTYPE[real]
    out = {"decode.weight": words, "decode.scales": scales, "decode.biases": biases, "decode.values": values}

    limits = {"f16": (60000.0, 6e-6), "bf16": (3e38, 1e-39), "f32": (3e38, 1e-39)}[real]
    w = groups_to_encode(r, group, *limits).reshape(-1, 2 * group)
    w = mx.array(w).astype(DTYPE[real])
    packed, scales, biases = mx.quantize(w, group_size=group, bits=bits)
    out |= {"encode.values": w, "encode.weight": packed, "encode.scales": scales, "encode.biases": biases}
    save(f"mlx-affine/{name}", {k: numpy(v) for k, v in out.items()})


def floats(mode: str, bits: int, group: int) -> None:
    r = rng(mode)
    # Every scale but those that are no numbers; for E8M0 every third.
    scales = [s for s in range(256) if s % 128 != 127] if mode == "nvfp4" else [*range(0, 255, 3), 1, 2, 253]
    scales = np.array(scales, np.uint8).reshape(-1, 2)
    columns = 2 * group
    codes = r.integers(0, 256, (len(scales), columns * bits // 8), dtype=np.uint8)
    codes[: 256 // codes.shape[1] + 1] = np.resize(np.arange(256), (256 // codes.shape[1] + 1, codes.shape[1]))
    words, scales = mx.array(codes.view(np.uint32)), mx.array(scales)
    values = mx.dequantize(words, scales, group_size=group, bits=bits, mode=mode, dtype=mx.float32)
    out = {"decode.weight": words, "decode.scales": scales, "decode.values": values}

    # Over 448 * 6, nvfp4 saturates; far over it MLX loses the distances of codes in rounding, and writes zeros.
    rows = [*groups_to_encode(r, group, 1e4 if mode == "nvfp4" else 3e38, 1e-30)]
    # Halfway between four-bit floats, and beside that.
    half = np.float32([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    half = np.concatenate([half, np.nextafter(half, np.float32(0)), np.nextafter(half, np.float32(9)), [6.0]])
    half = np.concatenate([half, -half]).astype(np.float32)
    rows += [np.concatenate([np.roll(half, i)[: group - 1], [6.0]]).astype(np.float32) for i in (0, 13, 26, 39)]
    # Around the scales where the power of two, or the E4M3 scale, changes.
    largest = np.float32(6.0 if bits == 4 else 448.0)
    for n in [-100, -65, -64, -33, -9, -4, -2, -1, 0, 1, 3, 7, 8, 20, 63, 64, 99, 100]:
        if mode == "nvfp4" and n > 8:
            break
        for step in [-3, -2, -1, 0, 1, 2, 3]:
            middle = np.float32(np.float64(largest) * 2.0**n)
            top = (middle.view(np.int32) + step).view(np.float32)
            row = (r.normal(0, 0.3, group) * top).clip(-top, top).astype(np.float32)
            row[step % group] = top
            rows.append(row)
    if mode == "nvfp4":
        rows += [r.uniform(-1, 1, group).astype(np.float32) * np.float32(1.3**i) for i in range(-30, 40)]
    w = mx.array(np.array(rows[: len(rows) // 2 * 2], np.float32).reshape(-1, columns))
    packed, scales = mx.quantize(w, group_size=group, bits=bits, mode=mode)
    out |= {"encode.values": w, "encode.weight": packed, "encode.scales": scales}
    save(f"mlx-{mode}/vectors", {k: numpy(v) for k, v in out.items()})


mx.set_default_device(mx.cpu)
for bits in (1, 2, 3, 5, 6, 8):
    affine(bits, 64, "bf16")
for group, real in ((32, "bf16"), (64, "bf16"), (128, "f16"), (64, "f16"), (32, "f32")):
    affine(4, group, real)
affine(3, 32, "f16")
affine(8, 32, "f32")
floats("mxfp4", 4, 32)
floats("nvfp4", 4, 16)
floats("mxfp8", 8, 32)
