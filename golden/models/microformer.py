"""What transformers computes with a real GPT-2 from a zip pickle: microformer.json and microformer.bin.

    cargo xtask models gpt2-microformer
    python microformer.py [--models DIR]

The files came from transformers 5.23.0 with torch 2.15.0 in f32. The prompt is the first token and 23 random
ones; `microformer.bin` has the f32 logits after the last, `[vocab]`; `ids` are the 16 most likely tokens that follow.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from transformers import GPT2LMHeadModel

HERE = Path(__file__).parent
parser = argparse.ArgumentParser()
parser.add_argument("--models", type=Path, default=Path.home() / ".cache/weighbridge/models")
folder = parser.parse_args().models / "gpt2-microformer"

torch.set_num_threads(1)
model = GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float32).eval()
rng = np.random.default_rng(12)
prompt = [2, *rng.integers(4, model.config.vocab_size, 23).tolist()]
ids, margins = [], []
with torch.no_grad():
    logits = model(torch.tensor([prompt])).logits[0, -1]
    (HERE / "microformer.bin").write_bytes(logits.numpy().astype("<f4").tobytes())
    for _ in range(16):
        best = torch.topk(model(torch.tensor([prompt + ids])).logits[0, -1], 2)
        margins.append(float(best.values[0] - best.values[1]))
        ids.append(int(best.indices[0]))
print("smallest margin", min(margins))
(HERE / "microformer.json").write_text(json.dumps({"prompt": prompt, "ids": ids}) + "\n")
