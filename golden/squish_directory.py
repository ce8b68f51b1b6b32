#!/usr/bin/env python3
"""Makes golden/squish/directory, a model as squish writes it, and golden/squish/values.npz, what squish reads in it.

    as squish_planes.py, but with PYTHONPATH=squish:squish/squish:squish/squish/quant:SOME_DIR

int8 weights and one of four bits, matrices, a vector, one that is kept as it is.
"""

import json
import os
from pathlib import Path

import numpy as np

import convert
from compressed_loader import _dequantize_npy_dir

HERE = Path(__file__).parent / "squish" / "directory"


def main() -> None:
    r = np.random.default_rng(7)
    weights = {
        "model.embed_tokens.weight": ((6, 64), {}, ["embed"]),
        "model.layers.0.mlp.up_proj.weight": ((4, 128), {}, []),
        "model.layers.0.mlp.down_proj.weight": ((4, 64), {"use_int4": True}, []),
        "model.layers.0.input_layernorm.weight": ((64,), {}, []),
        "model.norm.weight": ((64,), {"use_int4": True}, []),
    }
    os.makedirs(HERE / "tensors", exist_ok=True)
    manifest = {}
    for name, (shape, options, kept) in weights.items():
        key = manifest[name] = convert.safe_key(name)
        files = convert.quantize_tensor(name, r.normal(0, 1, shape).astype(np.float32), 20.0, kept, **options)
        for suffix, data in files.items():
            # As `process_weights_streaming` saves them.
            np.save(HERE / "tensors" / f"{key}{suffix}.npy", data.astype(np.float16) if suffix == "__pt" else data)
    (HERE / "manifest.json").write_text(json.dumps(manifest, indent=2))
    (HERE / "tensors" / ".manifest_ready").touch()
    values = {name: _dequantize_npy_dir(HERE / "tensors", key) for name, key in manifest.items()}
    np.savez(HERE.parent / "values.npz", **{name: value.astype(np.float32) for name, value in values.items()})


main()
