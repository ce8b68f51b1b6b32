"""Logits after prompts of which KVPress keeps a part, by SnapKV, of the models of models/.

    pip install torch==2.10.0 transformers==5.2.0 accelerate cachetools datasets fire pandas peft requests
    pip install --no-deps kvpress==0.5.4
    python kv_budget.py

It writes kv_budget.json: for each model the ids, how many of them are the prompt, how many positions of it are kept, and the
logits after the last token of the prompt and after each of those that follow it.
"""

import json
import sys
from pathlib import Path

import torch
from kvpress import SnapKVPress
from transformers import DynamicCache

HERE = Path(__file__).parent
MODELS = HERE / "models"
sys.path.insert(0, str(MODELS))

from make import load  # noqa: E402
from specs import SPECS  # noqa: E402

# The model, tokens of the prompt, and positions that are kept of it.
CASES = [
    ("llama-tiny", 150, 84), ("llama-tiny", 200, 65), ("qwen3-tiny", 170, 100), ("gemma2-tiny", 150, 80),
    ("gemma3-tiny", 150, 75), ("gpt-oss-tiny", 160, 90), ("phi3-tiny", 140, 70),
]
AFTER = 8


def main():
    cases = []
    for name, prompt, kept in CASES:
        model = load(SPECS[name], MODELS / name)
        vocab = model.config.vocab_size
        ids = [(i * i * 31 + i * 7 + 3) % vocab for i in range(prompt + AFTER)]
        # The number that is kept is that part of the prompt, rounded down.
        press = SnapKVPress(compression_ratio=1 - (kept + 0.5) / prompt)
        sliding = getattr(model.config, "layer_types", None) or ["full_attention"] * len(model.model.layers)
        hooks = []
        for layer, kind in zip(model.model.layers, sliding):
            # As KVPress does for Gemma 3.
            if kind == "full_attention":
                hooks.append(layer.self_attn.register_forward_hook(press.forward_hook, with_kwargs=True))
        cache, logits = DynamicCache(config=model.config), []
        with torch.no_grad():
            positions = torch.arange(prompt)
            out = model(input_ids=torch.tensor([ids[:prompt]]), past_key_values=cache, cache_position=positions,
                        output_attentions=True)
            logits.append(out.logits[0, -1])
            lengths = [layer.keys.shape[2] for layer in cache.layers]
            assert all(n == kept for n, kind in zip(lengths, sliding) if kind == "full_attention"), lengths
            for position in range(prompt, prompt + AFTER):
                at = torch.tensor([position])
                out = model(input_ids=torch.tensor([ids[position:position + 1]]), past_key_values=cache,
                            cache_position=at, position_ids=at[None], output_attentions=True)
                logits.append(out.logits[0, -1])
            for hook in hooks:
                hook.remove()
            whole = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, prompt - 1:]
        kept_logits = torch.stack(logits)
        apart = ((kept_logits - whole).abs().amax(-1) / whole.abs().max()).tolist()
        assert apart[0] < 1e-5 and max(apart) > 1e-2, apart
        print(name, prompt, kept, lengths, "from those with all positions:", [round(x, 4) for x in apart])
        cases.append({"model": name, "ids": ids, "prompt": prompt, "kept": kept,
                      "logits": [[float(f"{x:.7g}") for x in row] for row in kept_logits.tolist()]})
    with open(HERE / "kv_budget.json", "w") as file:
        json.dump(cases, file)
        file.write("\n")


main()
