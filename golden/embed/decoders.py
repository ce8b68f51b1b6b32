"""The vectors of tokens that decoders of golden/models have after their last norm. Writes decoders.json.

    pip install torch==2.15.0 transformers==5.24.0
    python decoders.py

README.md says what is in the file.
"""

import json
from pathlib import Path

import torch
import transformers

OUT = Path(__file__).parent
NAMES = ["llama-tiny", "gemma3-tiny", "qwen3-tiny", "gpt2-tiny", "mixtral-tiny"]
TOKENS = [7 + i * 11 % 40 for i in range(24)]


def main():
    known = {"source": f"transformers {transformers.__version__}, torch {torch.__version__}", "tokens": TOKENS, "vectors": {}}
    for name in NAMES:
        model = transformers.AutoModel.from_pretrained(OUT.parent / "models" / name, dtype=torch.float32).eval()
        with torch.no_grad():
            hidden = model(torch.tensor([TOKENS])).last_hidden_state[0]
        known["vectors"][name] = [[float(f"{x:.8g}") for x in row.tolist()] for row in (hidden[0], hidden[-1])]
    (OUT / "decoders.json").write_text(json.dumps(known) + "\n")


if __name__ == "__main__":
    main()
