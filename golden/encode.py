#!/usr/bin/env python3
"""Makes the vectors that encoding is tested with, by ggml's own C library, the reference implementation.

    python3 golden/encode.py LIBGGML_BASE LLAMA_CPP/gguf-py SMOLLM2_GGUF

LIBGGML_BASE is libggml-base.so of llama.cpp@0c1e57098, compiled with `-ffp-contract=off` so that `a * b + c` is
rounded twice as the C says (else ties depend on the compiler), SMOLLM2_GGUF smollm2-135M-instruct whose
`token_embd.weight` is Q8_0 and whose other matrices are Q4_1. The same command gives the same bytes: every
random number is seeded. All files are little-endian.

encode/inputs.bin      [32, 256] f32: ordinary values and nasty ones.
<scheme>/encoded.bin   the blocks that `quantize_row_<scheme>_ref` makes of them.
encode/embedding.bin   [64, 512] f16: rows of smollm2's `token_embd.weight`, the first 512 columns.
encode/down.bin        [24, 1536] f16: rows of smollm2's `blk.14.ffn_down.weight`, values on the grid of Q4_1.
encode/importance.bin  [1536] f32: importance of columns, log-normal, with some zeros; rows of 512 take the first.
encode/errors.json     what `quantize_<scheme>` loses on these rows, with and without importance: of all values
                       the sum of squared distances (times the importance where there is one), the largest
                       distance, `Σ wanted²`, `Σ found²`, `Σ wanted · found`.
"""

import ctypes
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, sys.argv[2])
from gguf import GGUFReader  # noqa: E402
from gguf.quants import dequantize  # noqa: E402

HERE = Path(__file__).parent
LIB = ctypes.CDLL(sys.argv[1])
# Elements and bytes of a block.
EXACT = {"q4_0": (32, 18), "q4_1": (32, 20), "q5_0": (32, 22), "q5_1": (32, 24), "q8_0": (32, 34)}
SEARCHED = {
    **EXACT, "q2_K": (256, 84), "q3_K": (256, 110), "q4_K": (256, 144), "q5_K": (256, 176), "q6_K": (256, 210),
    "iq4_nl": (32, 18), "iq4_xs": (256, 136), "tq1_0": (256, 54), "tq2_0": (256, 66), "mxfp4": (32, 17),
    "nvfp4": (64, 36), "q1_0": (128, 18), "q2_0": (64, 18),
}  # fmt: skip


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def inputs() -> np.ndarray:
    rng = np.random.default_rng(0x57E1)
    normal = lambda scale: rng.normal(0, scale, 256)  # noqa: E731
    rows = [normal(0.02) for _ in range(8)]
    rows += [rng.uniform(-1, 1, 256), rng.uniform(0, 1, 256), rng.uniform(-3, -1, 256), rng.standard_t(2, 256)]
    rows += [normal(s) for s in (1e-5, 1e-6, 1e-7, 1e-9, 1e-20, 1e-30)]  # binary16 gives up on the way
    rows += [normal(s) for s in (1e3, 1e5, 1e6, 1e10, 1e30)]
    rows += [np.zeros(256), np.full(256, -0.0), np.full(256, 0.37), np.full(256, -1.25)]
    outlier = normal(0.01)
    outlier[::32] = 7.5
    halves = rng.integers(-254, 255, 256) / 2.0  # ties of Q8_0
    halves[::32] = 127.0
    grid = rng.integers(-16, 16, 256) / 2.0  # ties of Q4_0
    grid[::32] = -8.0
    sixteen = rng.integers(0, 31, 256) / 2.0  # ties of Q4_1
    sixteen[::32], sixteen[1::32] = 0.0, 15.0
    one = np.zeros(256)
    one[5::32] = -0.6
    rows += [outlier, halves, grid, sixteen, one]
    return np.array(rows, "<f4")


def exact(x: np.ndarray) -> None:
    for name, (per, size) in EXACT.items():
        out = np.zeros(x.size // per * size, np.uint8)
        getattr(LIB, f"quantize_row_{name}_ref")(pointer(x), pointer(out), ctypes.c_int64(x.size))
        (HERE / name).mkdir(exist_ok=True)
        (HERE / name / "encoded.bin").write_bytes(out.tobytes())


def loses(name: str, x: np.ndarray, weights: np.ndarray | None) -> dict[str, float]:
    per, size = SEARCHED[name]
    rows, k = x.shape
    out = np.zeros(x.size // per * size, np.uint8)
    quantize = getattr(LIB, f"quantize_{name}")
    quantize.restype = ctypes.c_size_t
    given = ctypes.c_void_p(None) if weights is None else pointer(weights)
    assert quantize(pointer(x), pointer(out), ctypes.c_int64(rows), ctypes.c_int64(k), given) == out.size
    y = np.zeros(x.shape, np.float32)
    getattr(LIB, f"dequantize_row_{name}")(pointer(out), pointer(y), ctypes.c_int64(x.size))
    wanted, found = x.astype(np.float64), y.astype(np.float64)
    scale = 1.0 if weights is None else weights.astype(np.float64)
    return {
        "squares": float((scale * (found - wanted) ** 2).sum()),
        "max": float(np.abs(found - wanted).max()),
        "wanted": float((wanted**2).sum()),
        "found": float((found**2).sum()),
        "product": float((wanted * found).sum()),
    }


x = inputs()
exact(x)
reader = GGUFReader(sys.argv[3])
tensors = {t.name: t for t in reader.tensors}
rng = np.random.default_rng(0xE44)


def rows_of(name: str, rows: int, k: int) -> np.ndarray:
    tensor = tensors[name]
    picked = np.sort(rng.choice(tensor.data.shape[0], rows, replace=False))
    return dequantize(tensor.data[picked], tensor.tensor_type)[:, :k].astype("<f2")


samples = {"embedding": rows_of("token_embd.weight", 64, 512), "down": rows_of("blk.14.ffn_down.weight", 24, 1536)}
importance = np.exp(rng.normal(0, 1.5, 1536)).astype("<f4")
importance[rng.choice(1536, 24, replace=False)] = 0

(HERE / "encode").mkdir(exist_ok=True)
(HERE / "encode" / "inputs.bin").write_bytes(x.tobytes())
(HERE / "encode" / "importance.bin").write_bytes(importance.tobytes())
errors: dict[str, dict[str, dict[str, float]]] = {}
for sample, values in samples.items():
    (HERE / "encode" / f"{sample}.bin").write_bytes(values.tobytes())
    values = np.ascontiguousarray(values.astype(np.float32))
    weights = np.ascontiguousarray(importance[: values.shape[1]])
    for name in SEARCHED:
        of = errors.setdefault(name.lower(), {})
        of[sample] = loses(name, values, None)
        of[f"{sample}, weighted"] = loses(name, values, weights)
(HERE / "encode" / "errors.json").write_text(json.dumps(errors, indent=1) + "\n")
