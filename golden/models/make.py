"""Makes the small random models of this folder, the logits that transformers computes for them, and the
same models as GGUF by llama.cpp's own converter.

    pip install torch==2.15.0 transformers==5.23.0 safetensors==0.8.0 numpy==2.4.6
    g++ … llama_oracle.cpp      (see its head)
    python make.py --llama-cpp DIR --oracle PATH [NAME…]

DIR is a source tree of llama.cpp (commit 0c1e57098 was used); PATH is the built llama_oracle.

The tensor path of the converter is untouched: row permutations, `norm + 1`, transposes, forced types and
tensor names are its work. Replaced is only what a model without a tokenizer cannot give: `set_vocab` says
`tokenizer.ggml.model = none` and the vocabulary's size.

For each model: model.safetensors and config.json (`save_pretrained`), model.gguf (F32), expected.bin and
expected.json (README.md says what is in them).
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

from specs import SPECS, input_ids

HERE = Path(__file__).parent
# What llama.cpp's converter takes for one, or handles like one.
LLAMA = ("LlamaForCausalLM", "MistralForCausalLM", "GraniteForCausalLM")
GEMMA = ("Gemma2ForCausalLM", "Gemma3ForCausalLM")


# ---------------------------------------------------------------- the model


def is_norm(name):
    return name.endswith(".weight") and any(part in name for part in ("norm", "ln_1", "ln_2", "ln_f"))


def draw(name, shape, spec):
    """Values of one parameter: they depend on the seed, the name and nothing else."""
    random = np.random.Generator(np.random.PCG64([spec["seed"], zlib.crc32(name.encode())]))
    values = random.standard_normal(shape)
    for end, (mean, deviation) in spec.get("drawn", {}).items():
        if name.endswith(end):
            return mean + deviation * values
    if is_norm(name):
        return spec["norm_mean"] + 0.3 * values
    return (0.2 if name.endswith(".bias") else spec["std"]) * values


def build(spec):
    """The HF model in float32 with drawn parameters, buffers left alone."""
    arguments = dict(spec["arguments"])
    config = getattr(transformers, spec["config"])(**arguments)
    config.dtype = "float32"
    model = getattr(transformers, spec["architecture"])(config).eval().float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(draw(name, tuple(parameter.shape), spec).astype(np.float32)))
    model.tie_weights()
    return model


def load(spec, directory, dtype=torch.float32, **overrides):
    config = getattr(transformers, spec["config"]).from_pretrained(directory, **overrides)
    model = getattr(transformers, spec["architecture"]).from_pretrained(
        directory, config=config, dtype=dtype, attn_implementation="eager", experts_implementation="eager"
    )
    return model.eval()


def logits(model, ids):
    with torch.no_grad():
        out = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    return out.to(torch.float64).numpy()


# ---------------------------------------------------------------- what a mistake would do


def permute_rows(weight, heads):
    """llama.cpp conversion/llama.py `LlamaModel.permute`, in numpy."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(weight.shape)


def unpermute_rows(weight, heads):
    return weight.reshape(heads, weight.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(weight.shape)


def changed(spec, directory, ids, change):
    """Logits of the model after `change(name, tensor) -> tensor` on its parameters."""
    model = load(spec, directory)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            new = change(name, parameter)
            if new is not None:
                parameter.copy_(new)
    return logits(model, ids)


def mistakes(name, spec, directory, ids):
    """Logits of the model read wrongly, one likely mistake each."""
    arguments = spec["arguments"]
    out = {}
    if name == "gpt2-tiny":
        out["gelu by erf"] = logits(load(spec, directory, activation_function="gelu"), ids)
        out["epsilon by default"] = logits(load(spec, directory, layer_norm_epsilon=1e-5), ids)
        out["no attention output bias"] = changed(
            spec, directory, ids, lambda n, p: p * 0 if n.endswith("attn.c_proj.bias") else None)
        out["positions shifted by one"] = changed(
            spec, directory, ids, lambda n, p: p.roll(1, 0) if n.endswith("wpe.weight") else None)
        out["square Conv1D not transposed"] = changed(
            spec, directory, ids, lambda n, p: p.T.clone() if n.endswith("attn.c_proj.weight") else None)
        return out

    if name.startswith("qwen35"):
        return mistakes_of_delta(spec, directory, ids)
    if is_newer(name, spec):
        return mistakes_of_newer(name, spec, directory, ids)
    if name == "falcon-tiny":
        def one_after_the_other(layer):
            def forward(x, *args, **more):
                normed = layer.input_layernorm(x)
                attended, weights = layer.self_attention(normed, *args, **more)
                x = x + attended
                return x + layer.mlp(layer.input_layernorm(x)), weights
            return forward

        model = load(spec, directory)
        for layer in model.transformer.h:
            layer.forward = one_after_the_other(layer)
        out["feed-forward after attention"] = logits(model, ids)
        out["gelu by tanh"] = logits(load(spec, directory, activation="gelu_pytorch_tanh"), ids)
        out["epsilon by default"] = logits(load(spec, directory, layer_norm_epsilon=1e-5), ids)
        out["keys and values swapped"] = changed(
            spec, directory, ids, lambda n, p: torch.cat([p[:-32], p[-16:], p[-32:-16]])
            if n.endswith("query_key_value.weight") else None)
        return out

    heads, kv_heads = arguments["num_attention_heads"], arguments["num_key_value_heads"]
    if name == "phi3-tiny":
        q, kv = arguments["hidden_size"], arguments["hidden_size"] // heads * kv_heads

        def reordered(part, order, sizes):
            def change(n, p):
                if not n.endswith(part + ".weight"):
                    return None
                parts = p.split(sizes)
                return torch.cat([parts[i] for i in order])
            return changed(spec, directory, ids, change)

        out["keys and values swapped"] = reordered("qkv_proj", (0, 2, 1), [q, kv, kv])
        out["gate and up swapped"] = reordered("gate_up_proj", (1, 0), [arguments["intermediate_size"]] * 2)
        out["epsilon by default"] = logits(load(spec, directory, rms_norm_eps=1e-6), ids)
        return out

    def kept_permuted(n, p):
        if n.endswith(("q_proj.weight", "k_proj.weight")):
            count = heads if "q_proj" in n else kv_heads
            return torch.from_numpy(permute_rows(p.numpy(), count))
        return None

    out["q and k rows in interleaved order"] = changed(spec, directory, ids, kept_permuted)
    if name == "starcoder2-tiny":
        out["gelu by erf"] = logits(load(spec, directory, hidden_act="gelu"), ids)
        out["epsilon by default"] = logits(load(spec, directory, norm_epsilon=1e-5), ids)
        for part in ("q_proj", "o_proj", "c_fc", "c_proj", "norm"):
            out[f"no bias of {part}"] = changed(
                spec, directory, ids, lambda n, p: p * 0 if n.endswith(f"{part}.bias") else None)
        return out
    if name == "gemma2-tiny":
        out["epsilon by default"] = logits(load(spec, directory, rms_norm_eps=1e-6), ids)
        for window in (7, 9, 4096):
            out[f"window {window}"] = logits(load(spec, directory, sliding_window=window), ids)
        kinds = [("full" if i % 2 == 0 else "sliding") + "_attention" for i in range(arguments["num_hidden_layers"])]
        out["global layer first"] = logits(load(spec, directory, layer_types=kinds), ids)
        for key in ("attn_logit_softcapping", "final_logit_softcapping"):
            out[f"no {key}"] = logits(load(spec, directory, **{key: None}), ids)
        out["norm without the one"] = changed(
            spec, directory, ids, lambda n, p: p - 1 if n.endswith("norm.weight") else None)
        return out
    if name == "gemma3-tiny":
        out["epsilon by default"] = logits(load(spec, directory, rms_norm_eps=1e-6), ids)
        out["window 7"] = logits(load(spec, directory, sliding_window=7), ids)
        out["window 9"] = logits(load(spec, directory, sliding_window=9), ids)
        out["all layers global"] = logits(load(spec, directory, sliding_window=4096), ids)
        layers = arguments["num_hidden_layers"]
        kinds = [("full" if i % 6 == 0 else "sliding") + "_attention" for i in range(layers)]
        out["global layer first"] = logits(load(spec, directory, layer_types=kinds), ids)
        out["attention scale by head_dim"] = logits(
            load(spec, directory, query_pre_attn_scalar=arguments["head_dim"]), ids)
        out["norm without the one"] = changed(
            spec, directory, ids, lambda n, p: p - 1 if n.endswith("norm.weight") else None)
        out["embedding not scaled"] = changed_embedding(spec, directory, ids)
        local, full = arguments["rope_local_base_freq"], arguments["rope_theta"]
        for what, a, b in (("global base everywhere", full, full), ("bases swapped", local, full)):
            rope = {"full_attention": {"rope_type": "default", "rope_theta": a},
                    "sliding_attention": {"rope_type": "default", "rope_theta": b}}
            out[what] = logits(load(spec, directory, rope_parameters=rope), ids)
        out["q norm left out"] = changed(
            spec, directory, ids, lambda n, p: p * 0 if n.endswith("q_norm.weight") else None)
    else:
        def swapped(n, p):
            if n.endswith(("k_proj.weight", "v_proj.weight")):
                return p.reshape(kv_heads, -1, p.shape[1]).flip(0).reshape(p.shape)
            return None

        out["key and value heads swapped"] = changed(spec, directory, ids, swapped)
        out["gate and up swapped"] = swapped_gate_up(spec, directory, ids)
        out["epsilon by default"] = logits(load(spec, directory, rms_norm_eps=1e-6), ids)
    if name == "granite-tiny":
        for key in ("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"):
            out[f"no {key}"] = logits(load(spec, directory, **{key: 1.0}), ids)
    if name == "olmo2-tiny":
        out["each head normed alone"] = normed_by_head(spec, directory, ids)
        for part in "qk":
            out[f"factor of the {part} norm left out"] = changed(
                spec, directory, ids, lambda n, p: p * 0 + 1 if n.endswith(f"{part}_norm.weight") else None)
    if name == "mistral-tiny":
        for window in (7, 9, None):
            out[f"window {window}"] = logits(load(spec, directory, sliding_window=window), ids)
    if name == "qwen2-tiny":
        for part in "qkv":
            out[f"no bias of {part}"] = changed(
                spec, directory, ids, lambda n, p: p * 0 if n.endswith(f"{part}_proj.bias") else None)
    if name == "qwen3-tiny":
        for part in "qk":
            out[f"{part} norm left out"] = changed(
                spec, directory, ids, lambda n, p: p * 0 + 1 if n.endswith(f"{part}_norm.weight") else None)
    if name == "llama3-rope-tiny":
        plain = {"rope_type": "default", "rope_theta": arguments["rope_theta"]}
        out["no frequency scaling"] = logits(load(spec, directory, rope_parameters=plain), ids)
        linear = {"rope_type": "linear", "rope_theta": arguments["rope_theta"], "factor": 8.0}
        out["all frequencies divided"] = logits(load(spec, directory, rope_parameters=linear), ids)
    return out


def is_newer(name, spec):
    """Of these models families/*.json says where each tensor of the GGUF came from."""
    return "experts" in str(spec["arguments"]) or name == "phi3-long-tiny" or name.startswith("qwen35")


def mistakes_of_newer(name, spec, directory, ids):
    """The same for mixtures of experts, low-rank attention and stretched frequencies."""
    arguments, out = spec["arguments"], {}
    plain = {"rope_type": "default", "rope_theta": 10000.0}
    if "rope_parameters" in arguments:
        part = arguments["rope_parameters"].get("partial_rotary_factor")
        plain |= {"partial_rotary_factor": part} if part else {}
        out["frequencies not stretched"] = logits(load(spec, directory, rope_parameters=plain), ids)
    if name == "phi3-long-tiny":
        rope = dict(arguments["rope_parameters"])
        short = rope | {"long_factor": rope["short_factor"]}
        out["factors of short texts"] = logits(load(spec, directory, rope_parameters=short), ids)
        out["cosines not scaled"] = logits(load(spec, directory, rope_parameters=rope | {"attention_factor": 1.0}), ids)
        return out
    used = arguments["num_experts_per_tok"]
    out["one expert less"] = logits(load(spec, directory, num_experts_per_tok=used - 1), ids)
    for key, other in (("norm_topk_prob", False), ("routed_scaling_factor", 1.25), ("topk_group", 4), ("sliding_window", 7)):
        if key in arguments and name != "deepseek2-tiny":
            out[f"{key} {other}"] = logits(load(spec, directory, **{key: other}), ids)
    if name == "gpt-oss-tiny":
        out["no sinks"] = changed(spec, directory, ids, lambda n, p: p * 0 - 1e9 if n.endswith("sinks") else None)
    if name.startswith("deepseek"):
        def swapped(n, p):
            return p.flip(0) if n.endswith("kv_b_proj.weight") else None

        out["keys and values swapped"] = changed(spec, directory, ids, swapped)
        out["latent norm left out"] = changed(
            spec, directory, ids, lambda n, p: p * 0 + 1 if n.endswith("kv_a_layernorm.weight") else None)
    return out


def mistakes_of_delta(spec, directory, ids):
    """The same for linear attention by the gated delta rule, and for full attention with a gate."""
    from transformers.models.qwen3_5 import modeling_qwen3_5 as modeling

    arguments, out = spec["arguments"], {}
    heads, head_dim, eps = (arguments[k] for k in ("num_attention_heads", "head_dim", "rms_norm_eps"))
    key_heads, value_heads = arguments["linear_num_key_heads"], arguments["linear_num_value_heads"]
    keys = key_heads * arguments["linear_key_head_dim"]

    def ends(end, change):
        return changed(spec, directory, ids, lambda n, p: change(p) if n.endswith(end) else None)

    def with_function(name, replace):
        """Logits with the modeling file's function `name` replaced by `replace(function)`."""
        original = getattr(modeling, name)
        setattr(modeling, name, replace(original))
        try:
            return logits(load(spec, directory), ids)
        finally:
            setattr(modeling, name, original)

    def with_layers(patch):
        """Logits after `patch(module)` on each module of linear attention."""
        model = load(spec, directory)
        for layer in model.model.layers:
            if hasattr(layer, "linear_attn"):
                patch(layer.linear_attn)
        return logits(model, ids)

    def tiled(p, axis):
        """llama.cpp conversion/qwen.py `_reorder_v_heads`."""
        return p.unflatten(axis, (key_heads, value_heads // key_heads, -1)).transpose(axis, axis + 1).flatten(axis, axis + 2)

    def tiled_values(n, p):
        if n.endswith(("in_proj_z.weight", "in_proj_b.weight", "in_proj_a.weight", "A_log", "dt_bias")):
            return tiled(p, 0)
        if n.endswith(("in_proj_qkv.weight", "conv1d.weight")):
            return torch.cat([p[:2 * keys], tiled(p[2 * keys:], 0)])
        return tiled(p, 1) if n.endswith("linear_attn.out_proj.weight") else None

    def ungated(n, p):
        if n.endswith("self_attn.q_proj.weight"):  # a gate of zero is a factor of one half
            rows = p.clone().unflatten(0, (heads, 2, head_dim))
            rows[:, 1] = 0
            return rows.flatten(0, 2)
        return p * 2 if n.endswith("self_attn.o_proj.weight") else None

    def by_chunk(rule):
        def forward(query, key, value, g, beta, **more):
            parts = [t.split(64, dim=1) for t in (query, key, value, g, beta)]
            return torch.cat([rule(q, k, v, g=g, beta=b, **more)[0] for q, k, v, g, b in zip(*parts)], dim=1), None
        return forward

    def gate_first(module):
        norm = module.norm

        def forward(x, gate):
            x = x * torch.nn.functional.silu(gate)
            return norm.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)
        norm.forward = forward

    if eps != 1e-6:
        out["epsilon by default"] = logits(load(spec, directory, rms_norm_eps=1e-6), ids)
        out["rms_norm_eps for queries and keys of linear attention"] = with_function(
            "l2norm", lambda norm: lambda x, **_: norm(x, eps=eps))
    out["norm without the one"] = changed(
        spec, directory, ids, lambda n, p: p - 1 if n.endswith("norm.weight") and "linear_attn" not in n else None)
    out["norm of linear attention with a one"] = ends("linear_attn.norm.weight", lambda p: p + 1)
    for factor in (0.25, 1.0):
        rope = arguments["rope_parameters"] | {"partial_rotary_factor": factor}
        out[f"partial_rotary_factor {factor}"] = logits(load(spec, directory, rope_parameters=rope), ids)
    out["all queries before all gates"] = ends(
        "self_attn.q_proj.weight", lambda p: p.unflatten(0, (2, heads, head_dim)).transpose(0, 1).flatten(0, 2))
    out["no gate of full attention"] = changed(spec, directory, ids, ungated)
    out["value heads in the order of GGUF"] = changed(spec, directory, ids, tiled_values)
    out["no dt_bias"] = ends("dt_bias", lambda p: p * 0)
    out["no A_log"] = ends("A_log", lambda p: p * 0)
    out["beta of one half"] = ends("in_proj_b.weight", lambda p: p * 0)
    out["convolution reversed"] = ends("conv1d.weight", lambda p: p.flip(-1))
    out["no activation after the convolution"] = with_layers(lambda module: setattr(module, "activation", None))
    out["state lost after 64 tokens"] = with_function("torch_chunk_gated_delta_rule", by_chunk)
    out["gate before the norm"] = with_layers(gate_first)
    return out


def changed_embedding(spec, directory, ids):
    model = load(spec, directory)
    model.model.embed_tokens.embed_scale = torch.tensor(1.0)
    return logits(model, ids)


def normed_by_head(spec, directory, ids):
    model = load(spec, directory)
    width = spec["arguments"]["hidden_size"] // spec["arguments"]["num_attention_heads"]

    def patched(norm):
        def forward(x):
            heads = x.unflatten(-1, (-1, width))
            heads = heads * torch.rsqrt(heads.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)
            return norm.weight * heads.flatten(-2)
        return forward

    for layer in model.model.layers:
        for norm in (layer.self_attn.q_norm, layer.self_attn.k_norm):
            norm.forward = patched(norm)
    return logits(model, ids)


def swapped_gate_up(spec, directory, ids):
    model = load(spec, directory)
    for layer in model.model.layers:
        layer.mlp.gate_proj, layer.mlp.up_proj = layer.mlp.up_proj, layer.mlp.gate_proj
    return logits(model, ids)


# ---------------------------------------------------------------- GGUF


def predict_further(copy, config, attending):
    """Adds a layer that predicts the token after the next, as released Qwen 3.5 files have one: a copy of the layer `attending`. transformers
    saves none."""
    config["mtp_num_hidden_layers"] = 1
    weights, width = load_file(copy / "model.safetensors"), config["hidden_size"]
    layer = f"model.layers.{attending}."
    more = {name.replace(layer, "mtp.layers.0."): weight for name, weight in weights.items() if name.startswith(layer)}
    more["mtp.fc.weight"] = np.linspace(-1, 1, 2 * width * width, dtype=np.float32).reshape(width, 2 * width)
    for norm in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        more[f"mtp.{norm}.weight"] = np.linspace(-0.5, 0.5, width, dtype=np.float32)
    save_file(weights | more, copy / "model.safetensors", {"format": "pt"})


def convert(llama_cpp, name, spec, directory, out):
    """Runs llama.cpp's converter class of the architecture on a copy of `directory`."""
    from conversion import get_model_class
    from conversion.base import gguf

    model_class = get_model_class(spec["architecture"])
    vocab = spec["arguments"]["vocab_size"]

    def set_vocab(self):
        self._set_vocab_none()
        if spec["architecture"] not in LLAMA:  # LlamaModel.set_gguf_parameters adds it
            self.gguf_writer.add_vocab_size(vocab)

    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / name
        shutil.copytree(directory, copy, ignore=shutil.ignore_patterns("model.gguf", "expected*", "config.v4*"))
        config = json.loads((copy / "config.json").read_text())
        config.setdefault("n_ctx", config.get("n_positions"))  # transformers 4 wrote it; GPT2Model reads it
        if spec["architecture"] == "DeepseekV3ForCausalLM":
            config.setdefault("scoring_func", "sigmoid")  # released files have it; without it the converter takes a softmax
        if "mtp" in spec:
            predict_further(copy, config, spec["mtp"])
        (copy / "config.json").write_text(json.dumps(config))
        # Gemma3Model.modify_tensors cuts the embedding to this tokenizer's size.
        pieces = {f"<{i}>": i for i in range(vocab)}
        (copy / "tokenizer.json").write_text(json.dumps({"model": {"vocab": pieces}, "added_tokens": []}))
        model_class.set_vocab = set_vocab
        if name.startswith("qwen35"):
            # As `--no-mtp` does: without the tensors the converter wants none.
            model_class.no_mtp = "mtp" not in spec
        with torch.inference_mode():
            model_class(copy, gguf.LlamaFileType.ALL_F32, out, eager=True).write()


def source_of(name, spec):
    """HF name of a GGUF tensor and how the HF tensor is got back: (hf, what, inverse)."""
    heads = spec["arguments"].get("num_attention_heads")
    kv_heads = spec["arguments"].get("num_key_value_heads")
    same = ("same", lambda w: w)
    if spec["architecture"] == "GPT2LMHeadModel":
        transposed = ("transposed", lambda w: w.T)
        top = {"token_embd": "wte", "position_embd": "wpe", "output_norm": "ln_f"}
        block = {"attn_norm": "ln_1", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj",
                 "ffn_norm": "ln_2", "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}
        module, kind = name.rsplit(".", 1)
        if module.startswith("blk."):
            _, layer, module = module.split(".")
            how = transposed if kind == "weight" and "norm" not in module else same
            return f"transformer.h.{layer}.{block[module]}.{kind}", *how
        return f"transformer.{top[module]}.{kind}", *same

    if spec["architecture"] == "FalconForCausalLM":
        # With one key and value head, rows of queries, keys and values are as the converter wants them.
        top = {"token_embd": "word_embeddings", "output_norm": "ln_f"}
        block = {"attn_norm": "input_layernorm", "attn_qkv": "self_attention.query_key_value",
                 "attn_output": "self_attention.dense", "ffn_up": "mlp.dense_h_to_4h", "ffn_down": "mlp.dense_4h_to_h"}
        *_, module, kind = name.split(".")
        layer = f"h.{name.split('.')[1]}.{block[module]}" if name.startswith("blk.") else top[module]
        return f"transformer.{layer}.{kind}", *same

    gemma = spec["architecture"] in GEMMA
    one = ("minus 1", lambda w: w - np.float32(1))
    top = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
           "output_norm.bias": "model.norm.bias", "output.weight": "lm_head.weight"}
    norm = {"attn_norm": "input_layernorm", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
            "ffn_norm": "pre_feedforward_layernorm" if gemma else "post_attention_layernorm",
            "post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
    dense = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
             "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
             "ffn_down": "mlp.down_proj", "attn_qkv": "self_attn.qkv_proj"}
    if spec["architecture"] == "Phi3ForCausalLM":
        dense["ffn_up"] = "mlp.gate_up_proj"
    if spec["architecture"] == "Starcoder2ForCausalLM":
        dense.update(ffn_up="mlp.c_fc", ffn_down="mlp.c_proj")
    if name in top:
        how = one if gemma and "norm" in name else same
        return top[name], *how
    if name == "rope_freqs.weight":
        return None, "made by the converter", None
    _, layer, module, kind = name.split(".")
    prefix = f"model.layers.{layer}."
    if module in norm:
        return f"{prefix}{norm[module]}.{kind}", *(one if gemma else same)
    how = same
    if spec["architecture"] in LLAMA and module in ("attn_q", "attn_k"):
        count = heads if module == "attn_q" else kv_heads
        how = (f"rows permuted back, {count} heads", lambda w: unpermute_rows(w, count))
    return prefix + dense[module] + "." + kind, *how


def compare(gguf_path, spec, directory):
    """Metadata and tensors of the GGUF, each tensor taken back to its HF form and compared."""
    from gguf import GGUFReader

    reader = GGUFReader(gguf_path)
    metadata = {key: field.contents() for key, field in reader.fields.items()}
    weights = load_file(directory / "model.safetensors")
    unseen, tensors = set(weights), []
    for tensor in reader.tensors:
        values = np.array(tensor.data, dtype=np.float32)
        source, what, inverse = source_of(tensor.name, spec)
        row = {"name": tensor.name, "shape": list(values.shape), "type": tensor.tensor_type.name}
        if source is None:
            row.update(hf=None, values=[float(v) for v in values])
        else:
            unseen.discard(source)
            back = inverse(values)
            assert back.shape == weights[source].shape, (tensor.name, back.shape, weights[source].shape)
            difference = float(np.abs(back - weights[source]).max())
            assert difference <= (0 if what != "minus 1" else 2**-22), (tensor.name, difference)
            row.update(hf=source, inverse=what, difference=difference)
        tensors.append(row)
    assert not unseen, unseen
    return metadata, tensors


def scalars(gguf_path):
    """Metadata of the GGUF, and the names, shapes and types of its tensors."""
    from gguf import GGUFReader

    reader = GGUFReader(gguf_path)
    metadata = {key: field.contents() for key, field in reader.fields.items()}
    row = lambda t: {"name": t.name, "shape": [int(n) for n in reversed(t.shape)], "type": t.tensor_type.name}
    return metadata, [row(tensor) for tensor in reader.tensors]


def ask_llama_cpp(oracle, gguf_path, ids, vocab):
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run([oracle, "logits", gguf_path, out.name, *map(str, ids)], check=True,
                       stderr=subprocess.DEVNULL)
        return np.fromfile(out.name, dtype="<f4").reshape(len(ids), vocab).astype(np.float64)


# ---------------------------------------------------------------- all of it


def distance(found, wanted):
    """Largest absolute difference, and the same over the largest absolute logit."""
    absolute = float(np.abs(found - wanted).max())
    return {"max_abs": float(f"{absolute:.3g}"), "relative": float(f"{absolute / np.abs(wanted).max():.3g}")}


def make(name, spec, llama_cpp, oracle):
    directory = HERE / name
    directory.mkdir(exist_ok=True)
    build(spec).save_pretrained(directory)
    (directory / "generation_config.json").unlink(missing_ok=True)

    ids, vocab = input_ids(spec), spec["arguments"]["vocab_size"]
    wanted = logits(load(spec, directory), ids)
    wanted.astype("<f4").tofile(directory / "expected.bin")
    exact = logits(load(spec, directory, dtype=torch.float64), ids)

    gguf_path = directory / "model.gguf"
    convert(llama_cpp, name, spec, directory, gguf_path)
    newer = is_newer(name, spec)
    metadata, tensors = scalars(gguf_path) if newer else compare(gguf_path, spec, directory)

    expected = {
        "made_by": {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0],
                    "numpy": np.__version__, "llama.cpp": "0c1e57098"},
        "seed": spec["seed"],
        "input_ids": ids,
        "logits": {"file": "expected.bin", "shape": [len(ids), vocab],
                   "max_abs": float(f"{np.abs(wanted).max():.6g}"),
                   "float64": distance(wanted, exact)},
    }
    of_gguf = wanted
    if name == "gemma3-tiny":
        # GGUF has no key for query_pre_attn_scalar that gemma3 reads: a reader takes head_dim.
        of_gguf = logits(load(spec, directory, query_pre_attn_scalar=spec["arguments"]["head_dim"]), ids)
        of_gguf.astype("<f4").tofile(directory / "expected-gguf.bin")
        expected["logits_gguf"] = {
            "file": "expected-gguf.bin", "shape": [len(ids), vocab],
            "max_abs": float(f"{np.abs(of_gguf).max():.6g}"),
            "why": "GGUF does not carry query_pre_attn_scalar: the scale is head_dim^-0.5"}
    if name == "mistral-tiny":
        # GGUF has no key for the window of `llama`: a reader sees all positions.
        of_gguf = logits(load(spec, directory, sliding_window=None), ids)
        of_gguf.astype("<f4").tofile(directory / "expected-gguf.bin")
        expected["logits_gguf"] = {
            "file": "expected-gguf.bin", "shape": [len(ids), vocab],
            "max_abs": float(f"{np.abs(of_gguf).max():.6g}"),
            "why": "llama.cpp's converter does not carry sliding_window: every layer sees all positions"}
    if why := spec.get("llama_cpp_refuses"):
        said = subprocess.run([oracle, "logits", gguf_path, "/dev/null", "1"], capture_output=True, text=True).stderr
        assert why in said, said
        expected["llama_cpp_on_gguf"] = {"refused": why}
    else:
        found = ask_llama_cpp(oracle, gguf_path, ids, vocab)
        expected["llama_cpp_on_gguf"] = distance(found, of_gguf)
    # llama.cpp looks gelu up in a table of f16 (ggml-cpu/vec.h, GGML_GELU_FP16); its silu is f32.
    bound = 2e-3 if name in ("gpt2-tiny", "gemma3-tiny", "gemma2-tiny", "starcoder2-tiny", "falcon-tiny") else 1e-5
    assert expected["llama_cpp_on_gguf"].get("relative", 0) < bound, expected["llama_cpp_on_gguf"]
    expected["mistakes"] = {what: distance(wrong, wanted)
                            for what, wrong in mistakes(name, spec, directory, ids).items()}
    expected["gguf"] = {"metadata": metadata, "tensors": tensors}
    (directory / "expected.json").write_text(pretty(expected) + "\n")
    for what, by in (("float64", expected["logits"]["float64"]), ("llama.cpp", expected["llama_cpp_on_gguf"]),
                     *expected["mistakes"].items()):
        if "refused" in by:
            print(f"{name:18} {what:36} {by['refused']}")
            continue
        print(f"{name:18} {what:36} {by['max_abs']:10.3g} {by['relative']:10.3g}")


def pretty(value, indent=1):
    """JSON with one line per innermost list or object."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not any(isinstance(v, (dict, list)) for v in inner):
        return json.dumps(value)
    pad = " " * indent
    if isinstance(value, dict):
        rows = [f"{pad}{json.dumps(k)}: {pretty(v, indent + 1)}" for k, v in value.items()]
        return "{\n" + ",\n".join(rows) + "\n" + " " * (indent - 1) + "}"
    rows = [pad + pretty(v, indent + 1) for v in value]
    return "[\n" + ",\n".join(rows) + "\n" + " " * (indent - 1) + "]"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-cpp", type=Path, required=True)
    parser.add_argument("--oracle", type=Path, required=True)
    parser.add_argument("names", nargs="*", default=list(SPECS))
    options = parser.parse_args()
    sys.path[:0] = [str(options.llama_cpp), str(options.llama_cpp / "gguf-py")]
    torch.set_num_threads(1)
    for name in options.names:
        make(name, SPECS[name], options.llama_cpp, options.oracle)


if __name__ == "__main__":
    main()
