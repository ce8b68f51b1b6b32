"""GGUF in several files, as llama-gguf-split of llama.cpp@0c1e57098 cuts it: names and BLAKE3 of what it writes.

    pip install blake3==1.0.5; python make.py LLAMA_GGUF_SPLIT SMOLLM2.gguf > parts.json

SMOLLM2.gguf is the model of that name of `cargo xtask models`.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import blake3

HERE = pathlib.Path(__file__).parent
CASES = {"tensors": ["--split-max-tensors", "8"], "size": ["--split-max-size", "40M"]}
MODELS = {"tensors": HERE.parent / "models/llama-tiny/model.gguf", "size": pathlib.Path(sys.argv[2])}

out = {}
for case, flags in CASES.items():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], "--split", *flags, MODELS[case], f"{folder}/x"], check=True, stdout=subprocess.DEVNULL)
        parts = sorted(pathlib.Path(folder).iterdir())
        out[case] = {
            "limit": flags[1],
            "parts": {p.name: blake3.blake3(p.read_bytes()).hexdigest() for p in parts},
        }
json.dump(out, sys.stdout, indent=1)
print()
