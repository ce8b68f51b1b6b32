#!/usr/bin/env python3
"""Makes golden/<scheme>/{blocks,values}.bin with llama.cpp's own gguf-py, the reference implementation.

    python3 golden/blocks.py LLAMA_CPP/gguf-py

`blocks.bin` holds whole blocks as GGUF stores them, `values.bin` what `gguf.quants.dequantize` makes of them
(f32, little-endian). The files here came from llama.cpp@0c1e57098, numpy 2.4.6. The same command gives the
same bytes: every random number is seeded.

The blocks are, in this order: every pair of nasty scales with random codes; one block for each byte value,
in all code bytes at once; random codes with scales of ordinary size.
"""

import sys
import zlib
from pathlib import Path

import numpy as np

sys.path.insert(0, sys.argv[1])
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as T  # noqa: E402
from gguf.quants import dequantize  # noqa: E402

# Byte offsets of the f16 scales in one block (ggml-common.h).
SCALES = {
    T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0],
    T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
}  # fmt: skip
# Zero and minus zero, smallest and largest denormals, smallest normal, one, largest finite; both signs.
NASTY = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF]


def blocks_of(kind: T) -> np.ndarray:
    rng = np.random.default_rng(zlib.crc32(kind.name.encode()))
    size = GGML_QUANT_SIZES[kind][1]
    at = SCALES[kind]
    pairs = [(a, b) for a in NASTY for b in (NASTY if len(at) == 2 else [0])]
    pairs = pairs[:: 3 if len(at) == 2 else 1]
    codes = list(range(0, 256, 5 if size > 100 else 1)) + [255]
    n = len(pairs) + len(codes) + 16

    out = rng.integers(0, 256, (n, size), dtype=np.uint8)
    for i, code in enumerate(codes):
        out[len(pairs) + i] = code
    for i in range(n):
        pair = pairs[i] if i < len(pairs) else rng.normal(0, 0.01, 2).astype("<f2").view("<u2").tolist()
        for offset, scale in zip(at, pair):
            out[i, offset : offset + 2] = np.frombuffer(np.uint16(scale).tobytes(), np.uint8)
    return out


def plain(kind: T) -> np.ndarray:
    rng = np.random.default_rng(zlib.crc32(kind.name.encode()))
    bits = 32 if kind == T.F32 else 16
    out = rng.integers(0, 2**bits, 1024, dtype=np.uint64)
    # Every exponent with the smallest and largest mantissa, then the random ones; NaN payloads left out.
    mantissa, exponents = {T.F32: (23, 256), T.F16: (10, 32), T.BF16: (7, 256)}[kind]
    edges = [(s << bits - 1) | (e << mantissa) | m for s in (0, 1) for e in range(exponents) for m in (0, 2**mantissa - 1)]
    out = np.concatenate([np.array(edges, np.uint64), out])
    nan = ((out >> mantissa) % exponents == exponents - 1) & (out % 2**mantissa != 0)
    return out[~nan].astype(f"<u{bits // 8}").view(np.uint8).reshape(1, -1)


def save(name: str, blocks: np.ndarray, values: np.ndarray) -> None:
    folder = Path(__file__).parent / name
    folder.mkdir(exist_ok=True)
    (folder / "blocks.bin").write_bytes(blocks.tobytes())
    (folder / "values.bin").write_bytes(values.astype("<f4").tobytes())
    print(f"{name:6} {blocks.size:7} bytes of blocks, {values.size:6} values")


for kind in SCALES:
    blocks = blocks_of(kind)
    values = np.asarray(dequantize(blocks, kind))
    assert np.isfinite(values).all()
    save(kind.name.lower(), blocks, values)
save("f32", b := plain(T.F32), b.view("<f4"))
save("f16", b := plain(T.F16), b.view("<f2").astype(np.float32))
save("bf16", b := plain(T.BF16), np.asarray(dequantize(b, T.BF16)))
