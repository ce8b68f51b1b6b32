#!/usr/bin/env python3
"""Makes golden/modelopt with modelopt's own function.

    python3 golden/modelopt.py MODELOPT

MODELOPT is an unpacked wheel; only the function named here is run. The files came from nvidia-modelopt 0.47.0 with
torch 2.15.0 (CPU), numpy 2.4.6. Every random number is seeded.
"""

import sys
import types
import zlib

import numpy as np
import torch

from planes import NAMES, Folder, definitions

tensor = f"{sys.argv[1]}/modelopt/torch/quantization/qtensor/nvfp4_tensor.py"
scope = definitions(tensor, ["dequantize"], {"torch": torch})
# The table that stands above the class.
line = next(x for x in open(tensor) if x.startswith("e2m1_values = "))
exec(line, scope)
folder = Folder("modelopt")
for dtype in (torch.bfloat16, torch.float16, torch.float32):
    name = f"modelopt-nvfp4:{NAMES[dtype]}"
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    out, inputs = 16, 128
    codes = torch.from_numpy(rng.integers(0, 256, (out, inputs // 2), dtype=np.uint8))
    codes.view(-1)[:256] = torch.arange(256)
    scale = torch.from_numpy(rng.integers(0, 256, (out, inputs // 16), dtype=np.uint8))
    scale[scale & 127 == 127] = 1
    scale[0, :4] = torch.tensor([0, 1, 0x7E, 0x80])
    scale = scale.view(torch.float8_e4m3fn)
    factor = torch.tensor(0.000123 if dtype != torch.float16 else 3.7)
    quantized = types.SimpleNamespace(
        metadata={"dtype": dtype, "shape": (out, inputs)},
        _quantized_data=codes,
        get_e2m1_values=lambda device: scope["e2m1_values"],
    )
    values = scope["dequantize"](quantized, scale=scale, double_scale=factor, block_sizes={-1: 16})
    assert values.dtype == dtype and not values.isnan().any()
    folder.add(name, [codes, scale, factor], values)
folder.write()
