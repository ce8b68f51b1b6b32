#!/usr/bin/env python3
"""What vLLM makes of `kv_b_proj` after loading: vllm_mla.json.

    python3 golden/vllm_mla.py VLLM

VLLM is the unpacked wheel, or a checkout; `split_kv_b_proj` of its mla_attention.py is run, and then what
`MLAAttention.process_weights_after_loading` does with its results. The file came from vllm 0.33.0 with torch 2.15.0 (CPU). The
checkpoint is that of vllm/deepseek_v3-bf16.json, whose heads are dealt to ranks as `ColumnParallelLinear` deals rows.
"""

import json
import sys
import types
from pathlib import Path

import numpy as np
import torch
from blake3 import blake3

from planes import definitions, raw
from vllm_stream import stored_bytes

HERE = Path(__file__).parent
source = f"{sys.argv[1]}/vllm/model_executor/layers/attention/mla_attention.py"
scope = {"torch": torch, "nn": torch.nn, "get_and_maybe_dequant_weights": lambda layer, out_dtype: layer.weight.to(out_dtype)}
definitions(source, ["split_kv_b_proj"], scope)
# The two lines that follow it there.
text = Path(source).read_text()
assert 'replace_parameter(self, "W_UV", W_UV.transpose(0, 1))' in text
assert 'replace_parameter(self, "W_UK_T", W_UK.permute(1, 2, 0))' in text

told = json.loads((HERE / "vllm/deepseek_v3-bf16.json").read_text())
config, found = told["config"], {}
nope, value, rank_of = config["qk_nope_head_dim"], config["v_head_dim"], config["kv_lora_rank"]
for tp in (1, 2, 4, 8):
    heads = config["num_attention_heads"] // tp
    ranks = [{} for _ in range(tp)]
    for name, shape, _ in told["entries"]:
        if not name.endswith("kv_b_proj.weight"):
            continue
        data = stored_bytes(name, 2 * int(np.prod(shape)), told["exceptions"])
        whole = torch.from_numpy(np.array(data)).view(torch.bfloat16).reshape(shape)
        for at, held in enumerate(ranks):
            rows = heads * (nope + value)
            layer = types.SimpleNamespace(weight=whole[at * rows : (at + 1) * rows])
            uk, uv = scope["split_kv_b_proj"](layer, torch.bfloat16, rank_of, heads, nope, value)
            made = {"W_UK_T": uk.permute(1, 2, 0), "W_UV": uv.transpose(0, 1)}
            stem = name.replace("self_attn.kv_b_proj.weight", "self_attn.mla_attn.mla_attn")
            for key, tensor in made.items():
                held[f"{stem}.{key}"] = [list(tensor.shape), blake3(raw(tensor)).hexdigest()[:16]]
    found[str(tp)] = ranks
(HERE / "vllm_mla.json").write_text(json.dumps(found, indent=1) + "\n")
