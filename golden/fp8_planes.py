#!/usr/bin/env python3
"""Makes golden/f8_*, golden/f64, golden/fp8, golden/mxfp4-split and golden/bitnet with torch and transformers.

    pip install torch==2.15.0 transformers==5.23.0 numpy; python3 golden/fp8_planes.py

Plain dtypes: every code, and every code's neighbours among f32. FP8 with scales: transformers' own functions
where these can do it; else, for partial blocks and scales per row, the few lines of `dequantize` and
`quantize` here, which transformers' are checked against where both apply. MXFP4 experts:
`convert_moe_packed_tensors`; BitNet: `unpack_weights`, and the scale as the two kinds of layer apply it.
Every random number is seeded. See vectors.py for the files.
"""

import types

import numpy as np
import torch
from transformers.integrations.bitnet import pack_weights, unpack_weights
from transformers.integrations.finegrained_fp8 import Fp8Dequantize, Fp8Quantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors
from vectors import save

F32, BF16, F16, E8M0 = torch.float32, torch.bfloat16, torch.float16, torch.float8_e8m0fnu
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
NAMES = {F32: "f32", BF16: "bf16", F16: "f16", E8M0: "f8_e8m0", E4M3: "e4m3", E5M2: "e5m2"}
g = torch.Generator().manual_seed(8)


def numpy(t: torch.Tensor) -> np.ndarray:
    """As numpy: bfloat16 as uint16, floats of a byte as uint8."""
    if t.element_size() == 1:
        return t.view(torch.uint8).numpy()
    return t.view(torch.uint16).numpy() if t.dtype == BF16 else t.numpy()


def write(path: str, tensors: dict[str, torch.Tensor]) -> None:
    save(path, {name: numpy(t.contiguous()) for name, t in tensors.items()})


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=g)


def plain(name: str, dtype: torch.dtype) -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(dtype)
    values = codes.to(F32)
    numbers = values[values.isfinite()].sort().values
    middle = (numbers[1:].double() + numbers[:-1].double()).div(2).float()
    near = torch.cat([numbers, middle, torch.tensor([3e38, -3e38, 1e-45, -1e-45, float("inf"), -float("inf"), float("nan")])])
    below, above = (torch.nextafter(near, torch.full_like(near, e)) for e in (-float("inf"), float("inf")))
    x = torch.cat([near, below, above, normal(256) * 10 ** (3 * normal(256))])[None]
    write(f"{name}/vectors", {"decode.data": codes[None], "decode.values": values[None], "encode.values": x, "encode.data": x.to(dtype)})


def spread(scales: torch.Tensor, weight: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    """A scale for each element."""
    rows, columns = weight.shape
    return scales.repeat_interleave(block[0], 0)[:rows].repeat_interleave(block[1], 1)[:, :columns]


def dequantize(weight: torch.Tensor, scales: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    return weight.to(F32) * spread(scales.to(F32), weight, block)


def quantize(x: torch.Tensor, block: tuple[int, int], element: torch.dtype, real: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    top = torch.finfo(element).max
    padded = torch.zeros([-(-n // b) * b for n, b in zip(x.shape, block)])
    padded[: x.shape[0], : x.shape[1]] = x
    largest = padded.reshape(padded.shape[0] // block[0], block[0], -1, block[1]).abs().amax((1, 3))
    up = torch.where(largest > 0, top / torch.where(largest > 0, largest, 1.0), 1.0)
    down = 1.0 / up
    if real == E8M0:
        down = torch.pow(2.0, torch.ceil(torch.log2(down.clamp(min=torch.finfo(F32).tiny))))
    if real != F32:
        down = down.to(real)
        up = 1.0 / down.to(F32)
    return (x * spread(up, x, block)).clamp(-top, top).to(element), down


def fp8(element: torch.dtype, span: str, real: torch.dtype, shape: tuple[int, int]) -> None:
    rows, columns = shape
    block = {"tensor": shape, "row": (1, columns)}.get(span) or tuple(int(n) for n in span[1:].split("x"))
    grid = [-(-n // b) for n, b in zip(shape, block)]
    codes = torch.arange(rows * columns, dtype=torch.int32).mul(37).to(torch.uint8)
    weight = codes.reshape(shape).view(element)
    scales = normal(*grid).mul(0.01)
    nasty = torch.tensor([0.0, 1.0, -2.5, 1e-45, 1e-39, 1.2e-38, 1e30, 3e38])[: scales.numel() - 1]
    scales.view(-1)[: len(nasty)] = nasty
    if real in (BF16, F16):
        scales = scales.clamp(-60000.0, 60000.0)
    if real == E8M0:
        scales = torch.arange(scales.numel(), dtype=torch.uint8).mul(41).remainder(255).reshape(grid).view(E8M0)
    scales = scales.to(real)
    values = dequantize(weight, scales, block)

    x = normal(*shape) * 10 ** normal(rows, 1)
    x[: block[0], : block[1]] = 0.0 if span[0] == "b" else x[: block[0], : block[1]]
    tiny = 1e-2 if real == F16 else 1e-30
    x[-1] = torch.where(torch.arange(columns) % 3 == 0, tiny, -tiny) if span != "tensor" else x[-1]
    x[rows // 2, columns // 2 :] *= 1000
    if span == "row":
        x[1], x[2], x[3, 1:] = 0.0, 448.0, 0.0
    packed, stored = quantize(x, block, element, real)

    config = types.SimpleNamespace(weight_block_size=block, scale_fmt="ue8m0" if real == E8M0 else "float")
    if element == E4M3 and rows % block[0] == 0 and columns % block[1] == 0:
        theirs = Fp8Dequantize(None)._dequantize_one(weight, scales, F32)
        assert torch.equal(theirs.nan_to_num(7), values.nan_to_num(7))
        if real in (F32, E8M0):
            both = Fp8Quantize(types.SimpleNamespace(quantization_config=config))._quantize_one("w.weight", x)
            assert torch.equal(both["w.weight"].view(torch.uint8), packed.view(torch.uint8))
            assert torch.equal(both["w.weight_scale_inv"].float(), stored.float())
            print("equal to transformers:", span, NAMES[real])
    write(
        f"fp8/{NAMES[element]},{span},{NAMES[real]}",
        {
            "decode.weight": weight, "decode.scales": scales, "decode.values": values,
            "encode.values": x, "encode.weight": packed, "encode.scales": stored,
        },
    )  # fmt: skip


def mxfp4() -> None:
    # Every scale but 255 and those whose products are too large for a float; all codes.
    experts, rows, groups = 2, 42, 3
    scales = torch.arange(experts * rows * groups, dtype=torch.int32).reshape(experts, rows, groups).clamp(max=252).to(torch.uint8)
    blocks = torch.randint(0, 256, (experts, rows, groups, 16), generator=g, dtype=torch.uint8)
    values = convert_moe_packed_tensors(blocks, scales, dtype=BF16).transpose(1, 2)
    exact = convert_moe_packed_tensors(blocks, scales, dtype=F32).transpose(1, 2)
    assert torch.equal(values.float().view(torch.int32), exact.contiguous().view(torch.int32))
    tensors = {"decode.blocks": blocks, "decode.scales": scales, "decode.values": values}
    write("mxfp4-split/vectors", {k: v.flatten(0, 1) for k, v in tensors.items()})


def bitnet(real: torch.dtype, scale: float, sense: str) -> None:
    shape = (64, 72)
    ternary = torch.randint(-1, 2, shape, generator=g)
    packed = pack_weights(ternary.float())
    packed[:, :8] = torch.randint(0, 256, (16, 8), generator=g, dtype=torch.uint8)
    weight, scale = unpack_weights(packed, F32), torch.tensor([scale], dtype=real)
    assert torch.equal(weight[:, 8:], ternary[:, 8:].float())
    values = weight / scale.float() if sense == "div" else weight * scale.float()
    write(f"bitnet/64x72,{NAMES[real]},{sense}", {"decode.weight": packed, "decode.scale": scale, "decode.values": values})


plain("f8_e4m3", E4M3)
plain("f8_e5m2", E5M2)
plain("f8_e8m0", E8M0)
plain("f8_e4m3fnuz", torch.float8_e4m3fnuz)
plain("f8_e5m2fnuz", torch.float8_e5m2fnuz)
x = torch.cat([normal(512), normal(512) * 1e-40, torch.tensor([0.0, -0.0, 3e38, float("inf")])])[None]
d = torch.cat([x.double()[0] * (1 + 1e-9), torch.tensor([1e308, -1e308, 1e-320, 5e-324, 1e-46, 7.1e-46], dtype=torch.float64)])[None]
write("f64/vectors", {"decode.data": d, "decode.values": d.to(F32), "encode.values": x, "encode.data": x.double()})

fp8(E4M3, "b4x8", F32, (32, 64))
fp8(E4M3, "b4x6", F32, (30, 50))
fp8(E4M3, "b4x8", E8M0, (32, 64))
fp8(E5M2, "b4x4", F32, (30, 34))
fp8(E4M3, "row", F32, (64, 80))
fp8(E4M3, "row", BF16, (64, 80))
fp8(E5M2, "row", F16, (64, 48))
fp8(E4M3, "tensor", F32, (32, 40))
fp8(E4M3, "tensor", BF16, (32, 40))
mxfp4()
bitnet(BF16, 1.22, "mul")
bitnet(BF16, 0.0137, "div")
bitnet(F32, 3.7e-5, "div")
