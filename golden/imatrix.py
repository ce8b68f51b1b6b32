#!/usr/bin/env python3
"""Makes golden/imatrix/llama-imatrix.json: what llama.cpp's llama-imatrix finds of smollm2.

    python golden/imatrix.py LLAMA_IMATRIX SMOLLM2.gguf     with llama.cpp 0c1e57098 and gguf-py

The text is golden/eval/holmes.txt (golden/eval.py says where it is from), two chunks of 512 tokens. Of each weight it keeps the number of
rows, the sum of all columns, and every 97th column.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from gguf import GGUFReader

HERE = Path(__file__).parent
imatrix, model = sys.argv[1:]

with tempfile.TemporaryDirectory() as folder:
    out = f"{folder}/imatrix.gguf"
    text = HERE / "eval" / "holmes.txt"
    args = [imatrix, "-m", model, "-f", str(text), "-o", out, "-c", "512", "--chunks", "2", "--process-output"]
    subprocess.run(args, check=True, capture_output=True)
    tensors = {t.name: np.array(t.data, dtype=np.float64).ravel() for t in GGUFReader(out).tensors}

made = {}
for name in sorted(n.removesuffix(".in_sum2") for n in tensors if n.endswith(".in_sum2")):
    sums, counts = tensors[f"{name}.in_sum2"], tensors[f"{name}.counts"]
    columns = [float(f"{x:.6g}") for x in sums[::97]]
    made[name] = {"rows": int(counts[0]), "columns": len(sums), "sum": float(f"{sums.sum():.6g}"), "every_97th": columns}
(HERE / "imatrix").mkdir(exist_ok=True)
lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(of)}" for name, of in made.items())
(HERE / "imatrix" / "llama-imatrix.json").write_text("{\n" + lines + "\n}\n")
