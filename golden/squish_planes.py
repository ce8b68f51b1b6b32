#!/usr/bin/env python3
"""Makes golden/squish-*/*.safetensors with squish itself.

    git clone https://github.com/squishai/squish; git -C squish checkout b9a44a9f5
    cargo build --release --manifest-path squish/squish_quant_rs/Cargo.toml
    cp squish/squish_quant_rs/target/release/libsquish_quant.so SOME_DIR/squish_quant.so
    PYTHONPATH=SOME_DIR:squish/squish/quant python3 golden/squish_planes.py     # numpy 1.26

Every random number is seeded. See vectors.py for the files.
"""

import zlib

import numpy as np
import quantizer
import squish_quant as squish
from vectors import save

K = 256
assert quantizer.get_backend_info()["squish_quant_rust"]


def rows_to_encode(r: np.random.Generator) -> np.ndarray:
    """[rows, K], f32: zero, constant, tiny, lopsided, with outliers, ordinary ones."""
    n = lambda scale=1.0, mean=0.0: r.normal(mean, scale, K)
    spikes = n(0.02)
    spikes[::64] = 1.0
    rows = [
        np.zeros(K), np.full(K, 0.3), np.full(K, -0.3), np.linspace(-1, 1, K), np.arange(K) % 15 - 7.0,
        (np.arange(K) % 30 - 14) / 2, np.abs(n()), -np.abs(n()), n(1e-38), n(1e30), n(1e-3, 5.0), spikes,
        r.standard_cauchy(K), np.where(np.arange(K) % 2, 1, -1) * 0.7, np.round(n(40.0)), n(0.02),
    ]  # fmt: skip
    rows += [n(10.0 ** r.uniform(-4, 1)) + r.standard_t(2, K) * 0.001 for _ in range(4)]
    return np.array(rows, np.float32)


def nasty_scales(r: np.random.Generator, rows: int, groups: int) -> np.ndarray:
    scales = r.normal(0, 0.02, rows * groups)
    nasty = [0.0, -0.0, 1e-45, 1.2e-38, 1.0, -1.0, 1e36, 127.0]
    scales[: len(nasty)] = nasty
    return scales.astype(np.float32).reshape(rows, groups)


def int8(group: int | None) -> None:
    r = np.random.default_rng(group or 8)
    rows = 64 if group is None else 16
    codes = r.integers(-128, 128, (rows, 64 if group is None else K)).astype(np.int8)
    x = rows_to_encode(r)
    if group is None:
        scales = nasty_scales(r, rows, 1)[:, 0]
        values = squish.dequantize_int8_f32(codes, scales)
        packed, stored = squish.quantize_int8_f32(x)
    else:
        scales = nasty_scales(r, rows, K // group)
        values = squish.dequantize_int8_grouped(codes, scales, group)
        packed, stored = squish.quantize_int8_grouped(x, group)
    write(f"int8/{f'g{group}' if group else 'row'}", (codes, scales, values), (x, packed, stored))


def q4(group: int) -> None:
    r = np.random.default_rng(40 + group)
    codes, scales = r.integers(0, 256, (16, K // 2), dtype=np.uint8), nasty_scales(r, 16, K // group)
    x = rows_to_encode(r)
    values = squish.dequantize_int4_grouped(codes, scales, group)
    write(f"q4/g{group}", (codes, scales, values), (x, *squish.quantize_int4_grouped(x, group)))


def q4a(group: int, k: int = K, one: bool = False) -> None:
    r = np.random.default_rng(400 + group)
    codes, scales = r.integers(0, 256, (16, k // 2), dtype=np.uint8), nasty_scales(r, 16, k // group)
    minima = nasty_scales(r, 16, k // group)[::-1].copy()
    values = squish.dequantize_int4_asymmetric_grouped(codes, scales, minima, group)
    x = rows_to_encode(r)
    x = x[:, :k] if not one else x[-1:, :k]
    packed, stored, lowest = quantizer.quantize_int4_asymmetric_mse(np.ascontiguousarray(x), group)
    write(f"q4a/g{group}", (codes, scales, values, minima), (x, packed, stored, lowest))


def write(name: str, decode: tuple, encode: tuple) -> None:
    out = dict(zip(("decode.codes", "decode.scales", "decode.values", "decode.minima"), decode))
    out |= dict(zip(("encode.values", "encode.codes", "encode.scales", "encode.minima"), encode))
    save(f"squish-{name}", out)


int8(None)
int8(64)
q4(64)
q4a(32)
q4a(64)
q4a(12, 240)
q4a(256, one=True)
