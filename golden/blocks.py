#!/usr/bin/env python3
"""Makes golden/<scheme>/{blocks,values}.bin with llama.cpp, the reference implementation.

    python3 golden/blocks.py LLAMA_CPP/gguf-py LIBGGML_BASE

`blocks.bin` holds whole blocks as GGUF stores them, `values.bin` what `dequantize_row_*` of the C library
LIBGGML_BASE (libggml-base.so) makes of them: f32, little-endian, every NaN written as 7FC00000. Where gguf-py
decodes the type too, the script checks that it gives the same bits. The files here came from
llama.cpp@0c1e57098, numpy 2.4.6. The same command gives the same bytes: every random number is seeded.

The blocks are, in this order: nasty scales (every pair of them, where there are two) with random codes; one
block for each byte value, in all code bytes at once (every fifth or ninth value for large blocks); random codes
with scales of ordinary size; random codes with every index of the type's grid; scales that are no numbers.
"""

import ctypes
import sys
import zlib
from pathlib import Path

import numpy as np

sys.path.insert(0, sys.argv[1])
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as T  # noqa: E402
from gguf.quants import dequantize  # noqa: E402

LIBRARY = ctypes.CDLL(sys.argv[2])

# How the scales of a block are stored, and their byte offsets (ggml-common.h).
SCALES = {
    T.Q4_0: ("<u2", [0]), T.Q4_1: ("<u2", [0, 2]), T.Q5_0: ("<u2", [0]), T.Q5_1: ("<u2", [0, 2]),
    T.Q8_0: ("<u2", [0]), T.Q8_1: ("<u2", [0]), T.Q4_K: ("<u2", [0, 2]), T.Q5_K: ("<u2", [0, 2]),
    T.Q6_K: ("<u2", [208]), T.Q2_K: ("<u2", [80, 82]), T.Q3_K: ("<u2", [108]), T.Q8_K: ("<u4", [0]),
    T.IQ2_XXS: ("<u2", [0]), T.IQ2_XS: ("<u2", [0]), T.IQ2_S: ("<u2", [0]), T.IQ3_XXS: ("<u2", [0]),
    T.IQ3_S: ("<u2", [0]), T.IQ1_S: ("<u2", [0]), T.IQ1_M: ("nibbles", [48]), T.IQ4_NL: ("<u2", [0]),
    T.IQ4_XS: ("<u2", [0]), T.TQ1_0: ("<u2", [52]), T.TQ2_0: ("<u2", [64]), T.Q1_0: ("<u2", [0]),
    T.Q2_0: ("<u2", [0]), T.MXFP4: ("e8m0", [0]), T.NVFP4: ("ue4m3", [0, 1, 2, 3]),
}  # fmt: skip
# Zero and minus zero, smallest and largest denormals, smallest normal, one, largest finite; both signs.
HALF = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF]
SINGLE = [0x0, 0x80000000, 0x1, 0x80000001, 0x7FFFFF, 0x807FFFFF, 0x800000, 0x3F800000, 0xBF800000, 0x7F7FFFFF, 0xFF7FFFFF]
E8M0 = [0x00, 0x01, 0x02, 0x7F, 0x80, 0xF0, 0xFC, 0xFD, 0xFE, 0xFF]
# Infinities and NaNs. The exponent bytes have none in ggml: FF is 2^128, FF of UE4M3 is 480.
NOT_FINITE = {"<u4": [0x7F800000, 0xFF800000, 0x7FC00000, 0xFFFFFFFF], "e8m0": [], "ue4m3": []}
HALF_NOT_FINITE = [0x7C00, 0xFC00, 0x7E00, 0xFFFF]

# Entries of the grid of a type; the bit in a block of the eight low bits of index `i`; that of its other bits.
GRIDS = {
    T.IQ2_XXS: (256, lambda i: 16 + i // 4 * 64 + i % 4 * 8, None),
    T.IQ2_XS: (512, lambda i: 16 + i * 16, lambda i: 24 + i * 16),
    T.IQ2_S: (1024, lambda i: 16 + i * 8, lambda i: 66 * 8 + i * 2),
    T.IQ3_XXS: (256, lambda i: 16 + i * 8, None),
    T.IQ3_S: (512, lambda i: 16 + i * 8, lambda i: 66 * 8 + i),
    T.IQ1_S: (2048, lambda i: 16 + i * 8, lambda i: 34 * 8 + i // 4 * 16 + i % 4 * 3),
    T.IQ1_M: (2048, lambda i: i * 8, lambda i: 32 * 8 + i * 4),
}


def put(block: np.ndarray, kind: T, scales: list[int]) -> None:
    """Writes the bits of `scales` into `block`."""
    form, offsets = SCALES[kind]
    if form == "nibbles":  # of a binary16, in the top four bits of four u16
        for i in range(4):
            byte = offsets[0] + 2 * i + 1
            block[byte] = block[byte] & 0x0F | (scales[0] >> 4 * i & 15) << 4
        return
    dtype = form if form.startswith("<") else "u1"
    for offset, scale in zip(offsets, scales):
        raw = np.frombuffer(np.dtype(dtype).type(scale).tobytes(), np.uint8)
        block[offset : offset + raw.size] = raw


def nasty(kind: T) -> list[list[int]]:
    form, offsets = SCALES[kind]
    if form == "ue4m3":
        return [[4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3] for i in range(64)]
    values = {"<u4": SINGLE, "e8m0": E8M0}.get(form, HALF)
    if len(offsets) == 2:
        return [[a, b] for a in values for b in values][::3]
    return [[a] for a in values]


def ordinary(kind: T, rng: np.random.Generator) -> list[int]:
    match SCALES[kind][0]:
        case "e8m0":
            return [int(rng.integers(110, 128))]
        case "ue4m3":
            return rng.integers(1, 127, 4).tolist()
        case "<u4":
            return rng.normal(0, 0.01, 1).astype("<f4").view("<u4").tolist()
        case _:
            return rng.normal(0, 0.01, 2).astype("<f2").view("<u2").tolist()


def set_index(bits: np.ndarray, kind: T, i: int, index: int) -> None:
    entries, low, high = GRIDS[kind]
    for bit in range(entries.bit_length() - 1):
        bits[low(i) + bit if bit < 8 else high(i) + bit - 8] = index >> bit & 1


def blocks_of(kind: T) -> np.ndarray:
    rng = np.random.default_rng(zlib.crc32(kind.name.encode()))
    per, size = GGML_QUANT_SIZES[kind]
    pairs = nasty(kind)
    step = 9 if kind in GRIDS else 5 if per > 32 else 1
    codes = list(range(0, 256, step)) + [255]
    n = len(pairs) + len(codes) + 16

    out = rng.integers(0, 256, (n, size), dtype=np.uint8)
    for i, code in enumerate(codes):
        out[len(pairs) + i] = code
    for i in range(n):
        put(out[i], kind, pairs[i] if i < len(pairs) else ordinary(kind, rng))

    if kind in GRIDS:
        entries, indices = GRIDS[kind][0], per // (4 if kind in (T.IQ3_XXS, T.IQ3_S) else 8)
        grid = rng.integers(0, 256, (entries // indices, size), dtype=np.uint8)
        bits = np.unpackbits(grid, axis=1, bitorder="little")
        for index in range(entries):
            set_index(bits[index // indices], kind, index % indices, index)
        grid = np.packbits(bits, axis=1, bitorder="little")
        for block in grid:
            put(block, kind, ordinary(kind, rng))
        out = np.concatenate([out, grid])

    bad = NOT_FINITE.get(SCALES[kind][0], HALF_NOT_FINITE)
    worst = rng.integers(0, 256, (len(bad), size), dtype=np.uint8)
    for block, scale in zip(worst, bad):
        put(block, kind, [scale, HALF[7]])
    return np.concatenate([out, worst])


def decoded(kind: T, blocks: np.ndarray) -> np.ndarray:
    """What the C library makes of `blocks`."""
    if kind == T.Q8_1:  # C only ever multiplies it: a q8_0 block has the same `d` and codes, without their sum
        return decoded(T.Q8_0, np.delete(blocks, (2, 3), axis=1))
    name = kind.name.lower()
    name = name[:-1] + "K" if name.endswith("_k") else name
    blocks = np.ascontiguousarray(blocks)
    values = np.empty(len(blocks) * GGML_QUANT_SIZES[kind][0], np.float32)
    function = LIBRARY[f"dequantize_row_{name}"]
    function(ctypes.c_void_p(blocks.ctypes.data), ctypes.c_void_p(values.ctypes.data), ctypes.c_int64(values.size))
    return canonical(values)


def canonical(values: np.ndarray) -> np.ndarray:
    values[np.isnan(values)] = np.uint32(0x7FC00000).view(np.float32)
    return values


def check(kind: T, blocks: np.ndarray, values: np.ndarray) -> str:
    try:
        with np.errstate(all="ignore"):
            other = np.asarray(dequantize(blocks, kind), np.float32).reshape(-1)
    except NotImplementedError:
        return "C only"
    differ = canonical(other).view(np.uint32) != values.view(np.uint32)
    assert not differ.any(), f"{kind.name}: C and gguf-py differ in values {np.flatnonzero(differ)[:9]}"
    return "C and gguf-py"


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


def save(name: str, blocks: np.ndarray, values: np.ndarray, by: str = "numpy") -> None:
    folder = Path(__file__).parent / name
    folder.mkdir(exist_ok=True)
    (folder / "blocks.bin").write_bytes(blocks.tobytes())
    (folder / "values.bin").write_bytes(values.astype("<f4").tobytes())
    print(f"{name:7} {len(blocks):4} blocks, {blocks.size:6} bytes, {values.size:6} values, by {by}")


for kind in SCALES:
    blocks = blocks_of(kind)
    values = decoded(kind, blocks)
    save(kind.name.lower(), blocks, values, check(kind, blocks, values))
save("f32", b := plain(T.F32), b.view("<f4"))
save("f16", b := plain(T.F16), b.view("<f2").astype(np.float32))
save("bf16", b := plain(T.BF16), np.asarray(dequantize(b, T.BF16)))
