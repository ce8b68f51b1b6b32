"""What each rank of vLLM holds of small checkpoints in several encodings: vllm/<model>-<source>.json.

    pip install torch==2.15.0 transformers==5.23.0 safetensors==0.8.0 numpy==2.4.6 gguf==0.19.0 blake3
    python vllm_shards.py --llama-cpp DIR [MODEL-SOURCE…]

DIR is a source tree of llama.cpp (commit 0c1e57098 was used). Names and shapes of the checkpoints come from transformers'
`save_pretrained` and llama.cpp's converter (families.py), and from what each ecosystem makes of a linear layer (STORED).
The functions under "the rules" say in slices of arrays what vLLM's loaders do. They were read in vLLM 0.33.0 (commit
4ba787ec9), for GGUF in 0.20.2 (commit bc150f502), since 0.33.0 has none. vllm/README.md lists the places. vllm_check.py
asks vLLM itself.

The bytes of a checkpoint are not kept: vllm_stream.py makes them of the tensors' names.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import transformers
from blake3 import blake3

import families
from families import natural, pretty
from vllm_stream import stored_bytes

OUT = Path(__file__).parent / "vllm"
SIZES = [1, 2, 4, 8]
COMMON = dict(vocab_size=259, max_position_embeddings=512, bos_token_id=1, eos_token_id=2, hidden_size=256,
              intermediate_size=2048, num_hidden_layers=1, num_attention_heads=16, num_key_value_heads=2)
GQA = dict(COMMON, head_dim=128, tie_word_embeddings=False)
MODELS = {
    "llama": ("Llama", "LlamaConfig", GQA),
    "qwen2": ("Qwen2", "Qwen2Config", dict(COMMON, tie_word_embeddings=False)),
    "qwen3": ("Qwen3", "Qwen3Config", dict(GQA, tie_word_embeddings=True)),
    "gemma3": ("Gemma3", "Gemma3TextConfig", dict(GQA, tie_word_embeddings=True, sliding_window=64,
                                                 query_pre_attn_scalar=128, pad_token_id=0)),
    "phi3": ("Phi3", "Phi3Config", dict(COMMON, tie_word_embeddings=False, original_max_position_embeddings=512,
                                        pad_token_id=0)),
    "mixtral": ("Mixtral", "MixtralConfig", dict(GQA, num_local_experts=8, num_experts_per_tok=2)),
    "deepseek_v3": ("DeepseekV3", "DeepseekV3Config", dict(
        {k: v for k, v in COMMON.items() if k != "num_key_value_heads"}, num_key_value_heads=16, num_hidden_layers=2,
        moe_intermediate_size=1024, n_shared_experts=1, n_routed_experts=8, num_experts_per_tok=2, n_group=2,
        topk_group=1, first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=2.5, q_lora_rank=256,
        num_nextn_predict_layers=0,
        kv_lora_rank=256, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, tie_word_embeddings=False)),
}
ALL = ["bf16", "q4_k", "q8_0", "mlx4", "gptq4", "awq4", "fp8"]
CASES = {"llama": [*ALL, "fp8t"], "qwen3": ALL, "gemma3": ALL, "mixtral": [*ALL, "fp8t"], "deepseek_v3": ALL, "qwen2": ["bf16"],
         "phi3": ["bf16", "fp8t"]}
# Blocks of 256 columns have to fall on every rank.
WIDER = {("deepseek_v3", "q4_k"): dict(moe_intermediate_size=2048)}
CONFIGS = {
    "bf16": {},
    "mlx4": {"quantization": {"group_size": 64, "bits": 4, "mode": "affine"},
             "quantization_config": {"group_size": 64, "bits": 4, "mode": "affine"}},
    "gptq4": {"dtype": "float16", "quantization_config": {
        "quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True, "lm_head": False,
        "checkpoint_format": "gptq"}},
    "awq4": {"dtype": "float16", "quantization_config": {
        "quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm",
        "modules_to_not_convert": None}},
    "fp8": {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                                    "weight_block_size": [128, 128]}},
    "fp8t": {"quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}},
}
SCHEME = {"mlx4": "mlx-affine:b4,g64,bf16", "gptq4": "gptq:b4,g128,f16", "awq4": "awq:g128,f16",
          "fp8": "fp8:e4m3,b128x128,f32", "fp8t": "fp8:e4m3,tensor,f32"}
# Of DeepSeek's config.json; transformers 5 drops them. Without the first vLLM has no e_score_correction_bias.
RELEASED = dict(topk_method="noaux_tc", scoring_func="sigmoid")
# Scales that are decoded are numbers.
FINITE = "u16: bit 14 of the first {} of {} is 0"
PLAIN = {"BF16": ("bf16", 2), "F16": ("f16", 2), "F32": ("f32", 4)}
BYTES = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "U32": 4, "F8_E4M3": 1}
BLOCKS = {"F32": (1, 4), "Q8_0": (32, 34), "Q5_0": (32, 22), "Q4_K": (256, 144)}


# ---------------------------------------------------------------- tensors as planes


@dataclass
class Plane:
    """Cells of one plane, `[.., cell bytes]`; `out` and `inp` are (axis, elements of a cell), counted from the last."""

    role: str
    data: np.ndarray
    out: tuple | None
    inp: tuple | None


@dataclass
class Tensor:
    shape: list
    scheme: str
    planes: list

    def cut(self, which, start, end):
        """Elements `start..end` of the outputs (`out`) or inputs (`inp`)."""
        axis = -2 if which == "out" and len(self.shape) > 1 else -1
        assert 0 <= start < end <= self.shape[axis], (which, start, end, self.shape)
        planes = []
        for plane in self.planes:
            at = getattr(plane, which)
            if at is not None:
                place, per = at
                assert start % per == 0 and (end % per == 0 or end == self.shape[axis]), (plane.role, start, end)
                index = [slice(None)] * plane.data.ndim
                index[place] = slice(start // per, -(-end // per))
                plane = replace(plane, data=plane.data[tuple(index)])
            planes.append(plane)
        shape = list(self.shape)
        shape[axis] = end - start
        return Tensor(shape, self.scheme, planes)

    def padded(self, rows):
        """Appends zero rows to every plane, up to `rows`."""
        planes = []
        for plane in self.planes:
            place, per = plane.out
            assert per == 1
            more = list(plane.data.shape)
            more[place] = rows - self.shape[0]
            planes.append(replace(plane, data=np.concatenate([plane.data, np.zeros(more, np.uint8)], axis=place)))
        return Tensor([rows] + self.shape[1:], self.scheme, planes)

    def reordered(self, order):
        """Rows in another order; each cell holds one."""
        assert all(plane.out[1] == 1 for plane in self.planes)
        return replace(self, planes=[replace(p, data=p.data.take(order, axis=p.out[0])) for p in self.planes])

    def expert(self, index):
        """One of a stack."""
        return Tensor(self.shape[1:], self.scheme, [replace(p, data=p.data[index]) for p in self.planes])


def below(parts):
    """The outputs of the parts, one after another."""
    for part in parts[:-1]:
        assert all(part.shape[0] % plane.out[1] == 0 for plane in part.planes if plane.out), "a cell of two parts"
    if any(plane.out is None for plane in parts[0].planes):
        parts = one_scale(parts)
    planes = []
    for same in zip(*(part.planes for part in parts)):
        assert len({plane.role for plane in same}) == 1
        if same[0].out is None:
            planes.append(same[0])
            continue
        planes.append(replace(same[0], data=np.concatenate([plane.data for plane in same], axis=same[0].out[0])))
    assert len({part.scheme for part in parts}) == 1
    return Tensor([sum(part.shape[0] for part in parts)] + parts[0].shape[1:], parts[0].scheme, planes)


def one_scale(parts):
    """FP8 with a scale for each part, as with the largest of them: layers/quantization/utils/w8a8_utils.py
    `requantize_with_max_scale`, with quotients in f64 where it uses float16."""
    largest = max((part.planes[1] for part in parts), key=lambda scale: scale.data.view("<f4").item())
    return [replace(part, planes=[replace(part.planes[0], data=rescaled(*part.planes, largest)), largest]) for part in parts]


def rescaled(weight, scale, largest):
    """Codes of E4M3 for the values of `weight` over the scale `largest`."""
    codes = torch.from_numpy(np.ascontiguousarray(weight.data)).view(torch.float8_e4m3fn)
    factor, divisor = (float(plane.data.view("<f4").item()) for plane in (scale, largest))
    quotients = codes.to(torch.float32).to(torch.float64) * factor / divisor
    return quotients.to(torch.float32).to(torch.float8_e4m3fn).view(torch.uint8).numpy()


def stack(parts):
    planes = [replace(same[0], data=np.stack([plane.data for plane in same]))
              for same in zip(*(part.planes for part in parts))]
    return Tensor([len(parts)] + parts[0].shape, parts[0].scheme, planes)


# ---------------------------------------------------------------- what is stored

# Axes are counted from the last of `[.., cell bytes]`: -2 is the last axis of cells.
# STORED[source](out, in): (suffix, role, stored shape, dtype, out axis and elements, in axis and elements).
STORED = {
    "gptq4": lambda o, i: [(".qweight", "qweight", [i // 8, o], "I32", (-2, 1), (-3, 8)),
                           (".qzeros", "qzeros", [i // 128, o // 8], "I32", (-2, 8), (-3, 128)),
                           (".scales", "scales", [i // 128, o], "F16", (-2, 1), (-3, 128)),
                           (".g_idx", None, [i], "I32", None, None)],
    "awq4": lambda o, i: [(".qweight", "qweight", [i, o // 8], "I32", (-2, 8), (-3, 1)),
                          (".qzeros", "qzeros", [i // 128, o // 8], "I32", (-2, 8), (-3, 128)),
                          (".scales", "scales", [i // 128, o], "F16", (-2, 1), (-3, 128))],
    "fp8": lambda o, i: [(".weight", "weight", [o, i], "F8_E4M3", (-3, 1), (-2, 1)),
                         (".weight_scale_inv", "scales", [-(-o // 128), -(-i // 128)], "F32", (-3, 128), (-2, 128))],
    "fp8t": lambda o, i: [(".weight", "weight", [o, i], "F8_E4M3", (-3, 1), (-2, 1)),
                          (".weight_scale", "scales", [], "F32", None, None)],
    "mlx4": lambda o, i: [(".weight", "weight", [o, i // 8], "U32", (-3, 1), (-2, 8)),
                          (".scales", "scales", [o, i // 64], "BF16", (-3, 1), (-2, 64)),
                          (".biases", "biases", [o, i // 64], "BF16", (-3, 1), (-2, 64))],
}


def quantised(source, module, shape):
    """Whether `source` quantises this module's weight."""
    if len(shape) < 2 or source == "bf16":
        return False
    if source == "mlx4":
        return True  # every Linear and Embedding whose width is whole groups: mlx_lm/utils.py `quantize_model`
    return not module.endswith(("embed_tokens", "lm_head", ".gate"))


class Checkpoint:
    """The stored entries of a case and the HF tensors that they hold."""

    def __init__(self, model, source):
        kind, config_class, arguments = MODELS[model]
        arguments = dict(arguments, **WIDER.get((model, source), {}))
        self.source, self.entries, self.tensors, self.exceptions = source, [], {}, []
        spec = {"architecture": f"{kind}ForCausalLM", "config": config_class, "arguments": arguments,
                "vocab_size_written": kind in ("Llama", "Mixtral")}
        with tempfile.TemporaryDirectory() as scratch:
            scratch = Path(scratch)
            entries = families.saved(spec, scratch / "saved", "bfloat16")
            self.model_config = json.loads((scratch / "saved" / "config.json").read_text())
            hf = {name: shape for name, shape, _ in entries}
            if source in ("q4_k", "q8_0"):
                self.read_gguf(model, source, spec, hf, scratch)
            else:
                self.config = dict(self.model_config, **CONFIGS[source])
                if model == "deepseek_v3":
                    self.config.update(RELEASED)
                if (model, source) == ("mixtral", "awq4"):
                    self.config["quantization_config"] = dict(CONFIGS[source]["quantization_config"],
                                                              modules_to_not_convert=["gate"])
                self.read_hf(source, hf)
        self.entries.sort(key=natural)

    def stored(self, name, shape, dtype, cells):
        """Adds an entry; its cells."""
        self.entries.append([name, shape, dtype])
        count = int(np.prod(cells))
        return stored_bytes(name, count, self.exceptions).reshape(cells)

    def read_hf(self, source, hf):
        if source == "gptq4":
            self.exceptions = [(".g_idx", "i32: index / 128")]
        if source == "fp8t":
            self.exceptions = [(".weight_scale", "f32: 0.5 + (word % 2^20) / 2^20"),
                               *((f"{module}.weight", "u8: 127 and 255 are 0")
                                 for module in sorted({name.rsplit(".", 2)[-2] for name, shape in hf.items()
                                                       if quantised(source, name.removesuffix(".weight"), shape)}))]
        lead = {}
        if source == "mlx4":  # mlx_lm/models/mixtral.py, deepseek_v3.py `sanitize`: experts stacked in `switch_mlp`
            hf, lead = switched(hf)
            hf = apart(hf, self.model_config)
            self.exceptions = [(f".{part}.{plane}", FINITE.format(1, 1))
                               for part in ("embed_q", "unembed_out") for plane in ("scales", "biases")]
        for name, shape in hf.items():
            module, suffix = name.rsplit(".", 1)
            if suffix != "weight" or not quantised(source, module, shape):
                dtype = "F16" if source in ("gptq4", "awq4") else "BF16"
                dtype = "F32" if name.endswith("e_score_correction_bias") else dtype
                scheme, size = PLAIN[dtype]
                data = self.stored(name, shape, dtype, shape + [size])
                axes = (None, None) if len(shape) == 1 else ((-3, 1), (-2, 1))
                out = (-2, 1) if len(shape) == 1 else axes[0]
                self.tensors[name] = Tensor(shape, scheme, [Plane("data", data, out, axes[1])])
                continue
            planes = []
            for suffix, role, cells, dtype, out, inp in STORED[source](*shape[-2:]):
                cells = shape[:-2] + cells
                data = self.stored(module + suffix, cells, dtype, cells + [BYTES[dtype]])
                if role:
                    planes.append(Plane(role, data, out, inp))
            tensor = Tensor(shape, SCHEME[source], planes)
            if name in lead:
                for index, expert in enumerate(lead[name]):
                    self.tensors[expert] = tensor.expert(index)
            else:
                self.tensors[name] = tensor
        self.join("embed_q", "unembed_out", "model.layers.{}.self_attn.{}.weight")

    def join(self, k_b, v_b, form):
        """What llama.cpp and mlx-lm take apart into `k_b`, turned, and `v_b` is one again: decoded, since blocks of the
        first lie across those of the second."""
        for layer in range(self.model_config["num_hidden_layers"]):
            parts = [self.tensors.pop(form.format(layer, part), None) for part in (k_b, v_b)]
            if parts[0] is None:
                continue
            keys, values = decoded(parts[0]), decoded(parts[1])
            whole = np.concatenate([keys.swapaxes(1, 2), values], axis=1)
            whole = np.ascontiguousarray(whole.reshape(-1, whole.shape[-1]))
            data = whole.view(np.uint8).reshape(*whole.shape, 4)
            name = f"model.layers.{layer}.self_attn.kv_b_proj.weight"
            self.tensors[name] = Tensor(list(whole.shape), "f32", [Plane("data", data, (-3, 1), (-2, 1))])

    def read_gguf(self, model, source, spec, hf, scratch):
        """Names, shapes and key-values by llama.cpp's converter, of a checkpoint of zeros."""
        if model == "gemma3":
            # llama.cpp stores `w + 1`; with these values `w + 1 - 1` is exact.
            self.exceptions = [("norm.weight", "f32: 0.5 + (word % 2^20) / 2^20")]
        if model == "deepseek_v3":
            # A block of Q4_K begins with two f16, of Q8_0 and Q5_0 with one.
            self.exceptions = [("attn_k_b.weight", FINITE.format(1, {"q4_k": 11, "q8_0": 17}[source])),
                               ("attn_v_b.weight", FINITE.format(*{"q4_k": (2, 72), "q8_0": (1, 17)}[source]))]
        config = dict(self.model_config, dtype="float32")
        zeros = {name: np.zeros(shape, np.float32) for name, shape in hf.items()}
        self.config, tensors = families.converted(spec, config, zeros, scratch)
        self.config["general.file_type"] = {"q4_k": 14, "q8_0": 7}[source]
        told = json.loads((families.OUT / f"{model}.json").read_text())["gguf_of"]
        for name, (_, shape, _) in tensors.items():
            # llama-quantize --pure: matrices but the router's; src/llama-quant.cpp `tensor_allows_quantization`
            kind = source.upper() if len(shape) > 1 and "ffn_gate_inp" not in name else "F32"
            if kind == "Q4_K" and shape[-1] % 256:
                kind = "Q5_0"  # src/llama-quant.cpp `tensor_type_fallback`
            per, size = BLOCKS[kind]
            data = self.stored(name, shape, kind, shape[:-1] + [shape[-1] // per, size])
            if kind == "F32":
                axes = ((-2, 1), None) if len(shape) == 1 else ((-3, 1), (-2, 1))
                tensor = Tensor(shape, "f32", [Plane("data", data, *axes)])
            else:
                tensor = Tensor(shape, kind.lower(), [Plane("blocks", data, (-3, 1), (-2, per))])
            how, sources = told[name][:2]
            if how.startswith("head_rows"):
                self.tensors[name] = tensor
                continue
            if how == "stacked":
                experts = config.get("num_local_experts") or config["n_routed_experts"]
                for index in range(experts):
                    self.tensors[sources[0].replace("experts.0.", f"experts.{index}.")] = tensor.expert(index)
                continue
            if how == "rope_permuted":
                heads = config["num_attention_heads" if "q_proj" in sources[0] else "num_key_value_heads"]
                rows = np.arange(shape[0]).reshape(heads, shape[0] // heads // 2, 2).swapaxes(1, 2).reshape(-1)
                tensor = tensor.reordered(rows)
            elif how == "plus_one":
                less = (tensor.planes[0].data.view("<f4") - np.float32(1)).astype("<f4")
                tensor.planes[0].data = less.view(np.uint8)
            else:
                assert how == "same", (name, how)
            self.tensors[sources[0]] = tensor
        self.join("attn_k_b", "attn_v_b", "blk.{}.{}.weight")
        assert set(self.tensors) == set(hf), set(self.tensors) ^ set(hf)


def switched(hf):
    """Experts as mlx-lm stacks them, and which HF weights a stack holds."""
    names = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
    names |= {of: of for of in names.values()}
    out, lead = {}, {}
    for name, shape in hf.items():
        if ".experts." not in name:
            out[name] = shape
            continue
        module, index, of, _ = name.split(".experts.")[0], *name.split(".experts.")[1].split(".")
        stacked = f"{module}.switch_mlp.{names[of]}.weight"
        lead.setdefault(stacked, []).append((int(index), name))
        out[stacked] = [len(lead[stacked])] + shape
    return out, {stacked: [name for _, name in sorted(parts)] for stacked, parts in lead.items()}


def apart(hf, config):
    """Keys and values of each head, as mlx-lm takes them apart: mlx_lm/models/deepseek_v3.py `sanitize`."""
    out = {}
    for name, shape in hf.items():
        if "kv_b_proj" not in name:
            out[name] = shape
            continue
        heads = config["num_attention_heads"]
        out[name.replace("kv_b_proj", "embed_q")] = [heads, shape[1], config["qk_nope_head_dim"]]
        out[name.replace("kv_b_proj", "unembed_out")] = [heads, config["v_head_dim"], shape[1]]
    return out


def decoded(tensor):
    """Values in f32: as gguf-py decodes them, or `mlx.core.dequantize`."""
    import gguf

    planes = [np.ascontiguousarray(plane.data) for plane in tensor.planes]
    with np.errstate(all="ignore"):
        if tensor.scheme == "f32":
            return planes[0].view("<f4").reshape(tensor.shape)
        if tensor.scheme == "bf16":
            return wide(planes[0]).reshape(tensor.shape)
        if tensor.scheme.startswith("mlx"):
            words, scales, biases = planes[0].view("<u4"), wide(planes[1]), wide(planes[2])
            codes = (words >> (4 * np.arange(8, dtype=np.uint32))) & 15
            groups = codes.reshape(*scales.shape[:-1], 64).astype(np.float32)
            # Every operation is in bfloat16.
            return narrow(narrow(groups * scales) + biases).reshape(tensor.shape)
        kind = gguf.GGMLQuantizationType[tensor.scheme.upper()]
        rows = planes[0].reshape(-1, planes[0].shape[-2] * planes[0].shape[-1])
        return gguf.dequantize(rows, kind).reshape(tensor.shape)


def wide(cells):
    """bf16 as f32, a cell the last axis."""
    return (cells.view("<u2").astype(np.uint32) << 16).view(np.float32)


def narrow(values):
    """Rounded to bfloat16."""
    return torch.from_numpy(values).to(torch.bfloat16).to(torch.float32).numpy()


# ---------------------------------------------------------------- the rules


def column(tensor, tp, rank):
    """ColumnParallelLinear.weight_loader; parameter.py `load_column_parallel_weight`."""
    size, rest = divmod(tensor.shape[0], tp)
    assert rest == 0
    return tensor.cut("out", rank * size, (rank + 1) * size)


def row(tensor, tp, rank):
    """RowParallelLinear.weight_loader; parameter.py `load_row_parallel_weight`."""
    size, rest = divmod(tensor.shape[-1], tp)
    assert rest == 0
    return tensor.cut("inp", rank * size, (rank + 1) * size)


def merged(tensors, tp, rank):
    """MergedColumnParallelLinear.weight_loader: each is cut, then they lie one below the other."""
    return below([column(tensor, tp, rank) for tensor in tensors])


def qkv(q, k, v, config, tp, rank):
    """QKVParallelLinear: query heads are cut; with fewer key and value heads than ranks, each is held by several."""
    total = config["num_key_value_heads"]
    if tp >= total:
        held, replicas = 1, tp // total
        assert tp % total == 0
    else:
        held, replicas = total // tp, 1
        assert total % tp == 0
    size = held * k.shape[0] // total
    at = rank // replicas
    return below([column(q, tp, rank)] + [t.cut("out", at * size, (at + 1) * size) for t in (k, v)])


def vocabulary(tensor, tp, rank):
    """VocabParallelEmbedding: padded to a multiple of 64 with zeros, then cut."""
    rows = -(-tensor.shape[0] // 64) * 64
    return column(tensor.padded(rows), tp, rank)


def experts(gate, up, down, held, tp, rank):
    """RoutedExperts._load_w13 and _load_w2: `w13` holds gate, then up, of each expert."""
    w13 = stack([merged([gate[e], up[e]], tp, rank) for e in held])
    return w13, stack([row(down[e], tp, rank) for e in held])


def placed(count, ep, rank, placement):
    """expert_map_manager.py `determine_expert_map`."""
    if placement == "round_robin":
        return list(range(rank, count, ep))
    base, rest = divmod(count, ep)
    start = rank * base + min(rank, rest)
    return list(range(start, start + base + (rank < rest)))


def shard(tensors, config, tp, rank, placement=None):
    """vLLM's parameters of one rank; with `placement`, experts are whole and spread over the ranks."""
    of, held = dict(tensors), {}
    heads = [config["num_attention_heads"]] + [config["num_key_value_heads"]] * 2
    for name in list(of):
        if name not in of:
            continue
        if name.endswith(("embed_tokens.weight", "lm_head.weight")):
            held[name] = vocabulary(of.pop(name), tp, rank)
        elif ".self_attn.q_proj." in name:
            parts = [of.pop(name.replace("q_proj", f"{part}_proj")) for part in "qkv"]
            held[name.replace("q_proj", "qkv_proj")] = qkv(*parts, config, tp, rank)
        elif ".self_attn.qkv_proj." in name:  # phi3: fused on disk, split first
            whole, head = of.pop(name), config["hidden_size"] // heads[0]
            ends = np.cumsum([count * head for count in heads])
            parts = [whole.cut("out", int(end - count * head), int(end)) for count, end in zip(heads, ends)]
            held[name] = qkv(*parts, config, tp, rank)
        elif name.endswith((".gate_up_proj.weight",)):
            whole = of.pop(name)
            half = whole.shape[0] // 2
            held[name] = merged([whole.cut("out", 0, half), whole.cut("out", half, 2 * half)], tp, rank)
        elif ".experts.0." in name:
            moe(name, of, held, tp, rank, placement)
        elif name.endswith(".gate_proj.weight"):
            parts = [of.pop(name), of.pop(name.replace("gate_proj", "up_proj"))]
            held[name.replace("gate_proj", "gate_up_proj")] = merged(parts, tp, rank)
        elif name.endswith(("down_proj.weight", "o_proj.weight")):
            held[name] = row(of.pop(name), tp, rank)
        elif name.endswith("q_a_proj.weight"):
            parts = [of.pop(name), of.pop(name.replace("q_a_proj", "kv_a_proj_with_mqa"))]
            held[name.replace("q_a_proj", "fused_qkv_a_proj")] = below(parts)
        elif name.endswith(("q_b_proj.weight", "kv_b_proj.weight")):
            held[name] = column(of.pop(name), tp, rank)
        elif name.endswith(("norm.weight", ".gate.weight", "e_score_correction_bias")) or "layernorm" in name:
            held[name] = of.pop(name)
    assert not of, list(of)
    return held


def moe(name, of, held, tp, rank, placement):
    prefix = name.split(".experts.")[0] + ".experts"
    names = ("w1", "w3", "w2") if "block_sparse_moe" in name else ("gate_proj", "up_proj", "down_proj")
    count = sum(n.startswith(prefix + ".") and n.endswith(f".{names[0]}.weight") for n in of)
    parts = [[of.pop(f"{prefix}.{e}.{n}.weight") for e in range(count)] for n in names]
    if placement:
        w13, w2 = experts(*parts, placed(count, tp, rank, placement), 1, 0)
    else:
        w13, w2 = experts(*parts, range(count), tp, rank)
    held[f"{prefix}.routed_experts.w13_weight"], held[f"{prefix}.routed_experts.w2_weight"] = w13, w2


# ---------------------------------------------------------------- all of it


def said(tensor):
    planes = []
    for plane in tensor.planes:
        cells = list(plane.data.shape[:-1])
        planes.append([plane.role, cells, blake3(np.ascontiguousarray(plane.data).tobytes()).hexdigest()[:16]])
    return {"shape": tensor.shape, "scheme": tensor.scheme, "planes": planes}


def make(model, source):
    checkpoint = Checkpoint(model, source)
    config, tensors = checkpoint.model_config, checkpoint.tensors

    def ranks(tp, placement=None):
        held = [shard(tensors, config, tp, rank, placement) for rank in range(tp)]
        return [{name: said(rank[name]) for name in sorted(rank, key=natural)} for rank in held]

    result = {"config": checkpoint.config, "entries": checkpoint.entries, "exceptions": checkpoint.exceptions,
              "tp": {str(tp): ranks(tp) for tp in SIZES}}
    if any(".experts." in name for name in tensors):
        result["ep"] = {"tp": 4, "linear": ranks(4, "linear"), "round_robin": ranks(4, "round_robin")}
    path = OUT / f"{model}-{source}.json"
    path.write_text(written(result) + "\n")
    print(f"{path.name:24} {len(checkpoint.entries):4} entries {len(result['tp']['1'][0]):3} parameters "
          f"{path.stat().st_size // 1000:4} kB")


def written(result):
    """JSON with an entry or a parameter a line."""
    def rank(held):
        return "  {\n" + ",\n".join(f"   {json.dumps(k)}: {json.dumps(v)}" for k, v in held.items()) + "\n  }"

    def group(of):
        rows = (f"  {json.dumps(k)}: " + (json.dumps(v) if isinstance(v, int) else "[\n" + ",\n".join(map(rank, v)) + "]")
                for k, v in of.items())
        return "{\n" + ",\n".join(rows) + "\n }"

    rows = [f" {json.dumps(k)}: " + (group(v) if k in ("tp", "ep") else pretty(v, 1)) for k, v in result.items()]
    return "{\n" + ",\n".join(rows) + "\n}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-cpp", type=Path, required=True)
    parser.add_argument("cases", nargs="*", default=[f"{m}-{s}" for m, sources in CASES.items() for s in sources])
    options = parser.parse_args()
    sys.path[:0] = [str(options.llama_cpp), str(options.llama_cpp / "gguf-py")]
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    OUT.mkdir(exist_ok=True)
    for case in options.cases:
        make(*case.rsplit("-", 1))


if __name__ == "__main__":
    main()
