"""The models of perturb.py and what is changed in their configurations.

A case is `{set, remove, drop}`: keys of config.json that are set and removed, tensors that are left out of the
file. Keys are the top level's; an object is replaced whole.
"""

import json
from pathlib import Path

KNOWN = json.loads((Path(__file__).parent / "fields.json").read_text())["classes"]

VOCAB = dict(vocab_size=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)
# What GGUF cannot say (a window of Mistral, another scale of Gemma's attention, frequencies of YaRN that are not rounded)
# is left to the cases, so that each base comes through a conversion. Heads * head_dim is not the hidden size; two query heads for each key and value head. The epsilon and the base are no
# class's default, so that leaving them out is seen.
GQA = dict(VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
           head_dim=16, max_position_embeddings=64, rms_norm_eps=1e-3, tie_word_embeddings=False,
           rope_parameters={"rope_type": "default", "rope_theta": 5000.0})
QWEN = dict(GQA, num_hidden_layers=4, use_sliding_window=False, sliding_window=8, max_window_layers=2,
            layer_types=["full_attention"] * 4)
# transformers takes 1e-6 in the norms of the low-rank projections, whatever `rms_norm_eps` is; llama.cpp does not.
DEEPSEEK = dict(VOCAB, hidden_size=32, intermediate_size=48, moe_intermediate_size=16, num_hidden_layers=3,
                num_attention_heads=4, num_key_value_heads=4, n_shared_experts=1, n_routed_experts=8,
                num_experts_per_tok=2, n_group=2, topk_group=1, first_k_dense_replace=1, norm_topk_prob=True,
                routed_scaling_factor=1.5, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8,
                v_head_dim=8, max_position_embeddings=64, rms_norm_eps=1e-6, tie_word_embeddings=False,
                rope_parameters={"rope_type": "default", "rope_theta": 5000.0})
YARN = {"rope_type": "yarn", "rope_theta": 5000.0, "factor": 8.0, "original_max_position_embeddings": 16,
        "beta_fast": 32.0, "beta_slow": 1.0, "truncate": True}


def decoder(kind, arguments, **more):
    return dict({"architecture": f"{kind}ForCausalLM", "config": f"{kind}Config", "arguments": arguments}, **more)


def encoder(architecture, config, arguments, **more):
    return dict({"architecture": architecture, "config": config, "auto": "AutoModel", "arguments": arguments}, **more)


BERT = dict(VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
            max_position_embeddings=64, layer_norm_eps=1e-3)
FAMILIES = {
    "llama": decoder("Llama", dict(GQA, attention_bias=True, mlp_bias=True)),
    "mistral": decoder("Mistral", dict(GQA, sliding_window=None)),
    "qwen2": decoder("Qwen2", {k: v for k, v in QWEN.items() if k != "head_dim"}),
    "qwen3": decoder("Qwen3", QWEN),
    "gemma3": decoder("Gemma3", dict(
        GQA, num_hidden_layers=4, sliding_window=8, query_pre_attn_scalar=16, tie_word_embeddings=True,
        final_logit_softcapping=4.0, layer_types=["sliding_attention", "full_attention"] * 2,
        rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 5000.0},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}}),
        config="Gemma3TextConfig", norm_mean=0.0, embedding_std=0.1),
    "gpt2": {"architecture": "GPT2LMHeadModel", "config": "GPT2Config", "arguments": dict(
        VOCAB, n_layer=3, n_embd=32, n_head=4, n_positions=32, n_inner=128, layer_norm_epsilon=1e-3)},
    "phi3": decoder("Phi3", {k: v for k, v in GQA.items() if k != "head_dim"} | dict(
        hidden_size=64, num_hidden_layers=2, original_max_position_embeddings=64, sliding_window=None,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 1.0})),
    "mixtral": decoder("Mixtral", dict(GQA, num_hidden_layers=2, num_local_experts=4, num_experts_per_tok=2,
                                       intermediate_size=32)),
    "qwen3moe": decoder("Qwen3Moe", {k: v for k, v in QWEN.items() if k not in ("layer_types", "max_window_layers")} | dict(
        num_hidden_layers=2, moe_intermediate_size=24, num_experts=4, num_experts_per_tok=2, norm_topk_prob=True,
        decoder_sparse_step=1, mlp_only_layers=[])),
    # llama.cpp weighs a group by its two best experts, as V3 does; V2 by its best.
    "deepseek_v2": decoder("DeepseekV2", dict(DEEPSEEK, topk_method="greedy", scoring_func="softmax", n_group=1,
                                             topk_group=1, norm_topk_prob=False)),
    "deepseek_v3": decoder("DeepseekV3", dict(DEEPSEEK, topk_method="noaux_tc", scoring_func="sigmoid",
                                             rope_parameters=dict(YARN, mscale=0.7, mscale_all_dim=0.7))),
    "gpt_oss": decoder("GptOss", dict(
        GQA, num_hidden_layers=2, intermediate_size=32, sliding_window=8, num_local_experts=4, num_experts_per_tok=2,
        layer_types=["sliding_attention", "full_attention"], rope_parameters=YARN)),
    "bert": encoder("BertModel", "BertConfig", dict(BERT, type_vocab_size=2)),
}
# llama.cpp reads no bias of the output of attention.
FAMILIES["qwen3_biased"] = dict(FAMILIES["qwen3"], arguments=dict(QWEN, num_hidden_layers=2, attention_bias=True,
                                                                  layer_types=["full_attention"] * 2),
                                only=["attention_bias"])
# A text model beside a vision tower: its configuration is one of several.
FAMILIES["gemma3_parts"] = dict(
    FAMILIES["gemma3"], architecture="Gemma3ForConditionalGeneration", config="Gemma3Config",
    auto="AutoModelForImageTextToText", arguments=dict(
        text_config=dict(FAMILIES["gemma3"]["arguments"], model_type="gemma3_text"), tie_word_embeddings=True,
        vision_config=dict(model_type="siglip_vision_model", hidden_size=16, intermediate_size=24, num_hidden_layers=1,
                           num_attention_heads=2, image_size=28, patch_size=14),
        mm_tokens_per_image=4, image_token_index=63, boi_token_index=61, eoi_token_index=62))
FAMILIES["starcoder2"] = decoder("Starcoder2", {k: v for k, v in GQA.items() if k not in ("head_dim", "rms_norm_eps")} | dict(
    norm_epsilon=1e-3, sliding_window=None, use_bias=True))
# Of the example own_family, which registers it. llama.cpp reads no bias of the feed-forward network.
FAMILIES["arcee"] = decoder("Arcee", GQA, registered=True)
NO_HEAD_DIM = {k: v for k, v in GQA.items() if k != "head_dim"}
FAMILIES["granite"] = decoder("Granite", dict(
    NO_HEAD_DIM, attention_bias=True, mlp_bias=True, embedding_multiplier=6.0, residual_multiplier=0.4,
    attention_multiplier=0.2, logits_scaling=3.0))
FAMILIES["olmo2"] = decoder("Olmo2", NO_HEAD_DIM)
# llama.cpp reads no bias of the output of attention.
FAMILIES["olmo2_biased"] = decoder("Olmo2", dict(NO_HEAD_DIM, num_hidden_layers=2, attention_bias=True),
                                   only=["attention_bias"])
FAMILIES["gemma2"] = decoder("Gemma2", dict(
    GQA, num_hidden_layers=4, sliding_window=8, query_pre_attn_scalar=16, tie_word_embeddings=True,
    final_logit_softcapping=4.0, attn_logit_softcapping=2.0,
    layer_types=["sliding_attention", "full_attention"] * 2), norm_mean=0.0, embedding_std=0.1)
FALCON = dict(VOCAB, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, layer_norm_epsilon=1e-3,
              max_position_embeddings=64, tie_word_embeddings=False,
              rope_parameters={"rope_type": "default", "rope_theta": 5000.0})
FAMILIES["falcon"] = decoder("Falcon", dict(FALCON, num_kv_heads=1))
FAMILIES["falcon_grouped"] = decoder("Falcon", dict(
    FALCON, num_hidden_layers=2, new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1, bias=True),
    only=["new_decoder_architecture", "num_kv_heads", "num_ln_in_parallel_attn", "multi_query", "parallel_attn", "bias"])

# A padding token within the text takes no position.
FAMILIES["roberta"] = encoder("RobertaModel", "RobertaConfig", dict(
    BERT, pad_token_id=5, bos_token_id=0, eos_token_id=2, type_vocab_size=1), put={20: 5})
FAMILIES["xlm_roberta"] = encoder("XLMRobertaModel", "XLMRobertaConfig", dict(
    BERT, pad_token_id=5, bos_token_id=0, eos_token_id=2, type_vocab_size=3, hidden_act="relu"), put={4: 5, 19: 5},
    only=["pad_token_id", "type_vocab_size", "hidden_act", "layer_norm_eps", "max_position_embeddings"])
FAMILIES["distilbert"] = encoder("DistilBertModel", "DistilBertConfig", dict(
    VOCAB, dim=32, n_layers=2, n_heads=4, hidden_dim=48, max_position_embeddings=64))
# As long as distances are told apart, and with a token that takes no position.
FAMILIES["mpnet"] = encoder("MPNetModel", "MPNetConfig", dict(
    BERT, max_position_embeddings=160, pad_token_id=1, bos_token_id=0, eos_token_id=2, relative_attention_num_buckets=32),
    tokens=140, put={137: 1})
FAMILIES["modernbert"] = encoder("ModernBertModel", "ModernBertConfig", dict(
    VOCAB, hidden_size=32, num_hidden_layers=4, num_attention_heads=4, intermediate_size=48, max_position_embeddings=64,
    norm_eps=1e-3, norm_bias=True, attention_bias=True, mlp_bias=True, local_attention=8, cls_token_id=1, sep_token_id=2,
    layer_types=["full_attention", "sliding_attention"] * 2,
    rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 5000.0},
                     "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}}))
# As released: without biases.
FAMILIES["modernbert_plain"] = encoder("ModernBertModel", "ModernBertConfig", dict(
    FAMILIES["modernbert"]["arguments"], norm_bias=False, attention_bias=False, mlp_bias=False),
    only=["norm_bias", "attention_bias", "mlp_bias"])
FAMILIES["nomic_bert"] = encoder("NomicBertModel", "NomicBertConfig", dict(
    BERT, type_vocab_size=2, head_dim=8, rope_parameters={"rope_type": "default", "rope_theta": 500.0}))

# llama.cpp wants keys and values of linear attention of one width, takes `rms_norm_eps` to normalise its queries and keys
# (transformers: 1e-6), and stops where `mrope_section`, by default [11, 11, 10], adds up to more than the head's width. Every
# second layer is full attention, which `full_attention_interval` can say too.
QWEN35 = dict(
    GQA, num_hidden_layers=4, head_dim=32, rms_norm_eps=1e-6, layer_types=["linear_attention", "full_attention"] * 2,
    linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=16, linear_value_head_dim=16,
    linear_conv_kernel_dim=3,
    rope_parameters={"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5,
                     "mrope_section": [3, 3, 2], "mrope_interleaved": True})
FAMILIES["qwen35"] = decoder("Qwen3_5", QWEN35, config="Qwen3_5TextConfig", norm_mean=0.0,
                             drawn={"A_log": (-1.5, 0.5), "linear_attn.norm.weight": (1.0, 0.3)})
# llama.cpp reads no bias of the output of attention.
FAMILIES["qwen35_biased"] = dict(FAMILIES["qwen35"], arguments=dict(
    QWEN35, num_hidden_layers=2, attention_bias=True, layer_types=["linear_attention", "full_attention"]),
    only=["attention_bias"])

# Every activation of transformers that has no parameters of its own.
ACTIVATIONS = ["gelu", "gelu_10", "gelu_fast", "gelu_new", "gelu_python", "gelu_pytorch_tanh", "gelu_python_tanh",
               "gelu_accurate", "hardswish", "laplace", "leaky_relu", "linear", "mish", "quick_gelu", "relu", "relu2",
               "relu6", "sigmoid", "silu", "swish", "tanh", "unheard-of"]
HALF = 4
OWN = {
    "hidden_act": ACTIVATIONS, "hidden_activation": ACTIVATIONS, "activation_function": ACTIVATIONS,
    "topk_method": ["greedy", "group_limited_greedy", "noaux_tc", "unheard-of"],
    "scoring_func": ["softmax", "sigmoid", "unheard-of"],
    "eos_token_id": [5, [5, 6], -1], "bos_token_id": [5], "pad_token_id": [5, -1, 1000],
    "dtype": ["float16", "bfloat16"], "torch_dtype": ["float16"],
    "summary_type": ["mean"], "summary_activation": ["tanh"], "problem_type": ["regression"],
    "id2label": [{"0": "a", "1": "b", "2": "c"}], "label2id": [{"a": 0, "b": 1, "c": 2}],
    "initializer_range": [0.5], "attention_dropout": [0.5], "num_labels": [5],
    "rms_norm_eps": [1e-6, 1e-5, 1e-3, 1e-2], "layer_norm_epsilon": [1e-5, 1e-2], "layer_norm_eps": [1e-5, 1e-2],
    "norm_epsilon": [1e-5, 1e-2], "activation": ACTIVATIONS, "num_ln_in_parallel_attn": [1, 2], "num_kv_heads": [1, 2, 4],
    "ffn_hidden_size": [64, 128], "local_attention": [4, 9, 0, 1000],
    "relative_attention_num_buckets": [16, 31, 40],
    "partial_rotary_factor": [0.5, 0.25], "rope_theta": [10000.0, 1e6], "rope_local_base_freq": [50.0],
    "original_max_position_embeddings": [16], "mlp_only_layers": [[0], [1]],
    "max_position_embeddings": [16, 1000], "query_pre_attn_scalar": [24, 256], "head_dim": [8, 32],
    "sliding_window": [8, 4, 1000, 0], "final_logit_softcapping": [2.0, 30.0], "attn_logit_softcapping": [1.0, 50.0],
    "use_bidirectional_attention": [True, "all"], "swiglu_limit": [0.5, 1.0, 0.0], "swiglu_alpha": [1.0],
    "num_experts_per_tok": [1, 4], "first_k_dense_replace": [0, 2], "moe_layer_freq": [2], "n_group": [1, 4, 8],
    "topk_group": [2, 4], "max_window_layers": [0, 4, 28], "decoder_sparse_step": [2], "chunk_size_feed_forward": [8],
    "text_config": [{"hidden_size": 48}], "vision_config": [{"hidden_size": 48}], "rope_scaling": [None],
    "aux_loss_alpha": [0.1], "max_length": [5], "attention_multiplier": [0.1], "logit_scale": [0.5],
    "embedding_multiplier": [2.0], "residual_multiplier": [0.5], "logits_scaling": [2.0],
    "quantization_config": [{"quant_method": "unheard-of"}], "attention_chunk_size": [8], "no_rope_layers": [[0]],
    "sliding_window_pattern": [2, 3], "_sliding_window_pattern": [2], "is_causal": [False], "temperature": [0.5],
    "parallel_attn": [True], "alibi": [True], "position_embedding_type": ["relative_key"], "tie_encoder_decoder": [True],
    "embd_pdrop": [0.5], "resid_pdrop": [0.5], "attn_pdrop": [0.5], "name_or_path": ["elsewhere"], "n_ctx": [16],
    "num_nextn_predict_layers": [0, 1, 2], "num_mtp_layers": [0, 2], "ep_size": [2], "seq_aux": [True],
    "qk_layernorm": [True], "use_qk_norm": [True], "qkv_bias": [True], "rotary_dim": [8], "rotary_pct": [0.5],
    "layer_norm_type": ["rms"], "per_layer_config": [{"0": {"intermediate_size": 40}}, {"0": {"rms_norm_eps": 0.1}}],
    "attn_implementation": ["eager"], "experts_implementation": ["eager"], "output_attentions": [True],
    "rope_parameters": [3, {"rope_type": "default", "rope_theta": 700.0}], "initial_context_length": [16], "suppress_tokens": [[5]], "begin_suppress_tokens": [[5]], "experts_per_token": [1], "qk_head_dim": [8],
}
# Keys that files of these families have, or that models near to them know, and no class of ours has.
BESIDES = ["scoring_func", "moe_layer_freq", "aux_loss_alpha", "seq_aux", "ep_size", "num_nextn_predict_layers",
           "attention_multiplier", "logit_scale", "embedding_multiplier", "residual_multiplier", "logits_scaling",
           "quantization_config", "attention_chunk_size", "no_rope_layers", "sliding_window_pattern",
           "_sliding_window_pattern", "is_causal", "temperature", "max_length", "torch_dtype", "partial_rotary_factor",
           "rope_theta", "rope_local_base_freq", "name_or_path", "num_labels", "position_embedding_type", "alibi",
           "parallel_attn", "n_ctx", "qk_layernorm", "use_qk_norm", "qkv_bias", "rotary_dim", "rotary_pct", "text_config",
           "per_layer_config", "output_attentions", "initial_context_length", "experts_per_token", "layer_norm_type",
           "tie_encoder_decoder", "num_local_experts", "num_experts", "qk_head_dim", "max_window_layers"]
SKIPPED = {"model_type", "architectures", "vision_config", "text_config", "transformers_version"}


def case(remove=(), drop=(), **keys):
    out = {"set": keys, "remove": list(remove), "drop": list(drop)}
    return {key: value for key, value in out.items() if value}


def others(value):
    """Other values of the same type."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + max(1, value // 2), max(1, value // 2)]
    if isinstance(value, float):
        return [value * 2, 0.0]
    if isinstance(value, str):
        return ["unheard-of"]
    return []


def unlike(name, value):
    """Values of a field besides the one that it has."""
    if name == "layer_types" and isinstance(value, list):
        full, window = "full_attention", "sliding_attention"
        lists = [[full] * len(value), [window] * len(value), [window] + [full] * (len(value) - 1),
                 [full] * (len(value) - 1) + [window], [full, window] * (len(value) // 2), value[:-1],
                 ["unheard-of"] * len(value), ["chunked_attention"] * len(value)]
        return [v for v in lists if v != value]
    values = OWN[name] if name in OWN else others(value)
    return [v for v in values if v != value]


def cases(family, spec, config):
    seen = set()
    for found in chain(family, spec, config):
        key = json.dumps(found, sort_keys=True)
        if key not in seen:
            seen.add(key)
            yield found


def parts(config):
    """Keys of the text model in its own object, beside it, and in both."""
    text = config["text_config"]
    for name, values in {
        "rms_norm_eps": [1e-2], "rope_theta": [700.0], "rope_local_base_freq": [50.0], "sliding_window": [4],
        "query_pre_attn_scalar": [24], "hidden_activation": ["relu"], "final_logit_softcapping": [2.0, None],
        "layer_types": [["full_attention"] * 4], "tie_word_embeddings": [False], "head_dim": [8], "vocab_size": [32],
        "rope_scaling": [{"rope_type": "linear", "factor": 2.0}], "num_hidden_layers": [1], "hidden_size": [16],
        "use_bidirectional_attention": [True], "rope_parameters": [None], "attn_logit_softcapping": [1.0],
        "bos_token_id": [5], "dtype": ["float16"], "model_type": ["gemma2"], "unheard_of": [1],
    }.items():
        for value in values:
            yield case(text_config={**text, name: value})
            yield case(**{name: value})
            yield case(text_config={**text, name: value}, **{name: text.get(name)})
        if name in text:
            bare = {k: v for k, v in text.items() if k != name}
            yield case(text_config=bare)
            yield case(text_config=bare, **{name: text[name]})
    yield case(text_config=None)
    yield case(remove=["text_config"])
    yield case(remove=["text_config"], **text)
    for name in config:
        if name not in SKIPPED:
            yield case(remove=[name])
    yield case(remove=["vision_config"])


def chain(family, spec, config):
    if "text_config" in config:
        yield from parts(config)
        return
    entry = KNOWN.get(spec["config"], {"fields": {}, "attribute_map": {}})
    for name, value in config.items():
        if name in SKIPPED or name not in spec.get("only", config):
            continue
        yield case(remove=[name])
        if value is not None:
            yield case(**{name: None})
        known = entry["fields"].get(name, {}).get("default")
        for other in unlike(name, value if value is not None else known):
            yield case(**{name: other})
    if "only" in spec:
        return
    for alias, name in entry["attribute_map"].items():
        for of, by in ((alias, name), (name, alias)):
            value = config.get(of, config.get(by))
            if isinstance(value, int) and of not in config:
                yield case(**{of: value})
                yield case(**{of: value}, remove=[by])
                yield case(**{of: max(1, value // 2)})
                yield case(**{of: max(1, value // 2)}, remove=[by])
    yield from foreign(config)
    if "rope_parameters" in config:
        yield from rotary(family, config)
    yield from OF_FAMILY.get(family, lambda config: [])(config)
    head = "lm_head.weight"
    if spec.get("auto") != "AutoModel":
        for tied in (True, False, None):
            for drop in ([], [head]):
                yield case(tie_word_embeddings=tied, drop=drop)
        yield case(remove=["tie_word_embeddings"], drop=[head])


def foreign(config):
    """Fields that other classes have and this one has not."""
    names = dict.fromkeys(BESIDES)
    for entry in KNOWN.values():
        for name, field in entry["fields"].items():
            names.setdefault(name, field["default"])
        names.update({alias: None for alias in entry["attribute_map"] if alias not in names})
    for name, default in sorted(names.items()):
        if name in config or name in SKIPPED - {"text_config", "vision_config"}:
            continue
        if name == "layer_types":
            default = ["full_attention"] * (next(config[k] for k in ("num_hidden_layers", "n_layer", "n_layers") if k in config))
            yield case(layer_types=default)
        for value in (unlike(name, default) or [3])[:2]:
            yield case(**{name: value})


def rotary(family, config):
    base = config["rope_parameters"]
    nested = "full_attention" in base
    half = (config.get("qk_rope_head_dim") or config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]) // 2
    longrope = {"short_factor": [1.0 + 0.1 * i for i in range(half)], "long_factor": [1.5 + 0.2 * i for i in range(half)]}
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 16}
    kinds = [
        {"rope_type": "default"}, {"rope_type": "linear", "factor": 2.0}, {"type": "linear", "factor": 2.0},
        {"type": "linear", "rope_type": "dynamic", "factor": 2.0}, {"type": "dynamic", "rope_type": "linear", "factor": 2.0},
        {"rope_type": "linear"}, {"rope_type": "linear", "factor": 0.5}, {"factor": 2.0},
        {"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5},
        {"rope_type": "default", "partial_rotary_factor": 0.5}, {"rope_type": "default", "unheard_of": 3},
        {"rope_type": "dynamic", "factor": 2.0}, {"rope_type": "dynamic"}, {"rope_type": "proportional", "factor": 2.0},
        {"rope_type": "proportional", "partial_rotary_factor": 0.5}, {"rope_type": "unheard-of", "factor": 2.0},
        {"rope_type": "default", "mrope_section": [2, 3, 3]},
        llama3, dict(llama3, low_freq_factor=2.0), dict(llama3, high_freq_factor=8.0), dict(llama3, factor=2.0),
        dict(llama3, original_max_position_embeddings=32),
        {k: v for k, v in llama3.items() if k != "original_max_position_embeddings"},
        {k: v for k, v in llama3.items() if k != "low_freq_factor"},
        yarn, dict(yarn, beta_fast=4.0), dict(yarn, beta_slow=0.25), dict(yarn, beta_fast=4.0, beta_slow=0.25),
        dict(yarn, attention_factor=1.5), dict(yarn, attention_factor=1.0), dict(yarn, truncate=False),
        dict(yarn, truncate=True), dict(yarn, mscale=0.5), dict(yarn, mscale_all_dim=0.5),
        dict(yarn, mscale=1.0, mscale_all_dim=0.5), dict(yarn, mscale=1.0, mscale_all_dim=1.0),
        dict(yarn, mscale=0, mscale_all_dim=0), dict(yarn, factor=None), dict(yarn, beta_fast=None, beta_slow=None),
        {k: v for k, v in yarn.items() if k != "original_max_position_embeddings"},
        {k: v for k, v in yarn.items() if k != "factor"},
        dict(longrope, rope_type="longrope", original_max_position_embeddings=16),
        dict(longrope, rope_type="longrope", original_max_position_embeddings=64),
        dict(longrope, rope_type="longrope", original_max_position_embeddings=16, factor=2.0),
        dict(longrope, rope_type="longrope", original_max_position_embeddings=16, attention_factor=1.5),
        dict(longrope, rope_type="longrope"), dict(longrope, type="su", original_max_position_embeddings=16),
    ]
    if family == "phi3":
        yield from phi3(longrope)
    for kind in kinds:
        theta = {"rope_theta": 5000.0}
        if nested:
            for layer in ("full_attention", "sliding_attention"):
                # With the base's own frequencies the stretch alone is new.
                yield case(rope_parameters=dict(base, **{layer: {**base[layer], **kind}}))
        else:
            yield case(rope_parameters={**theta, **kind})
        yield case(remove=["rope_parameters"], rope_scaling=kind, rope_theta=5000.0)
    # Old forms, and keys that contradict each other.
    linear = {"rope_type": "linear", "factor": 2.0}
    old = ["rope_parameters"]
    yield case(rope_theta=5000.0, remove=old)
    yield case(rope_theta=700.0, remove=old)
    yield case(rope_theta=700.0)
    yield case(rope_theta=None)
    yield case(rope_theta=700.0, rope_parameters={"rope_theta": 5000.0})
    yield case(rope_theta=700.0, rope_parameters={"rope_type": "default"})
    yield case(rope_theta=700.0, rope_parameters=linear)
    yield case(rope_theta=700.0, rope_parameters={})
    yield case(rope_theta=700.0, rope_parameters=None)
    yield case(rope_parameters={"rope_theta": 700.0})
    yield case(rope_parameters={"rope_type": "default"})
    yield case(rope_scaling=linear)
    yield case(rope_scaling=None)
    yield case(rope_scaling={})
    yield case(rope_scaling=None, rope_theta=700.0, remove=old)
    yield case(rope_scaling=dict(linear, rope_theta=700.0), remove=old)
    yield case(rope_scaling=dict(linear, rope_theta=700.0), rope_theta=5000.0, remove=old)
    yield case(rope_scaling={"rope_theta": 700.0}, remove=old)
    yield case(rope_scaling={"factor": 2.0}, remove=old)
    yield case(rope_scaling=linear, rope_parameters={"rope_type": "dynamic", "factor": 3.0, "rope_theta": 700.0})
    yield case(rope_scaling=yarn, rope_theta=5000.0, original_max_position_embeddings=32, remove=old)
    yield case(rope_scaling={k: v for k, v in yarn.items() if k != "original_max_position_embeddings"}, rope_theta=5000.0,
               original_max_position_embeddings=32, remove=old)
    yield case(rope_scaling={"rope_type": "dynamic", "factor": 2.0}, rope_theta=5000.0, max_position_embeddings=16, remove=old)
    yield case(partial_rotary_factor=0.5, remove=old)
    yield case(partial_rotary_factor=0.5, rope_parameters={"rope_theta": 5000.0, "partial_rotary_factor": 0.25})
    full = {"rope_type": "default", "rope_theta": 700.0}
    yield case(rope_parameters={"full_attention": full})
    yield case(rope_parameters={"full_attention": full, "sliding_attention": dict(full, rope_theta=70.0)})
    if nested:
        yield case(rope_local_base_freq=50.0, remove=old)
        yield case(rope_local_base_freq=50.0, rope_theta=700.0, remove=old)
        yield case(rope_local_base_freq=50.0, rope_parameters={"full_attention": base["full_attention"]})
        yield case(rope_parameters={"sliding_attention": base["sliding_attention"]})
        yield case(rope_parameters=dict(base, sliding_attention=None))
        yield case(rope_parameters=dict(base, full_attention=None))


def qwen(config):
    layers = config["num_hidden_layers"]
    on = dict(use_sliding_window=True)
    mixed = ["full_attention", "sliding_attention"] * (layers // 2)
    yield case(**on)
    if "layer_types" not in config:
        yield case(**on, sliding_window=4)
        yield case(**on, max_window_layers=1)
        yield case(use_sliding_window=False, layer_types=mixed)
        yield case(**on, layer_types=mixed)
        return
    yield case(**on, remove=["layer_types"])
    yield case(**on, max_window_layers=0, remove=["layer_types"])
    yield case(**on, max_window_layers=layers, remove=["layer_types"])
    yield case(**on, sliding_window=4, remove=["layer_types"])
    yield case(**on, sliding_window=None, remove=["layer_types"])
    yield case(**on, remove=["layer_types", "max_window_layers"])
    yield case(**on, remove=["layer_types", "sliding_window"])
    yield case(**on, layer_types=None)
    yield case(**on, layer_types=mixed)
    yield case(**on, layer_types=mixed, max_window_layers=layers)
    yield case(**on, layer_types=mixed, max_window_layers=28)
    yield case(**on, layer_types=["full_attention"] * layers, max_window_layers=0)
    yield case(use_sliding_window=False, layer_types=mixed)
    yield case(layer_types=mixed, remove=["use_sliding_window"])
    yield case(**on, layer_types=mixed, rope_parameters={
        "full_attention": {"rope_type": "default", "rope_theta": 700.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 70.0}})


def modernbert(config):
    none = ["layer_types"]
    yield case(remove=none)
    for every in (1, 2, 4, 0):
        yield case(global_attn_every_n_layers=every, remove=none)
    yield case(global_attn_every_n_layers=2)
    yield case(layer_types=None, global_attn_every_n_layers=2)
    for window in (2, 7, 0, None):
        yield case(sliding_window=window)
    yield case(sliding_window=2, remove=["local_attention"])
    old = ["rope_parameters"]
    yield case(global_rope_theta=700.0, remove=old)
    yield case(local_rope_theta=70.0, remove=old)
    yield case(global_rope_theta=700.0, local_rope_theta=70.0, remove=old)
    yield case(global_rope_theta=700.0, local_rope_theta=70.0)
    yield case(global_rope_theta=700.0, rope_parameters={"sliding_attention": config["rope_parameters"]["sliding_attention"]})
    yield case(global_rope_theta=700.0, local_rope_theta=70.0, rope_scaling={"rope_type": "linear", "factor": 2.0}, remove=old)


def gemma3(config):
    for pattern in (1, 2, 3, 4, 6, 0):
        yield case(sliding_window_pattern=pattern, remove=["layer_types"])
    yield case(_sliding_window_pattern=2, remove=["layer_types"])
    yield case(layer_types=None, sliding_window_pattern=3)
    yield case(use_bidirectional_attention=True, sliding_window=4)
    yield case(use_bidirectional_attention=True, layer_types=["full_attention"] * 4)
    yield case(sliding_window=None, layer_types=["full_attention"] * 4)
    yield case(remove=["sliding_window", "layer_types"])
    yield case(hidden_act="silu")
    yield case(hidden_act="silu", remove=["hidden_activation"])


def gpt2(config):
    yield case(scale_attn_weights=False, scale_attn_by_inverse_layer_idx=True)
    yield case(reorder_and_upcast_attn=True, scale_attn_by_inverse_layer_idx=True)
    yield case(reorder_and_upcast_attn=True, scale_attn_weights=False)
    yield case(hidden_act="relu")
    yield case(n_ctx=16)


def phi3(longrope):
    old = ["rope_parameters"]
    for kind in ("longrope", "su", "yarn"):
        for original in (16, 64):
            yield case(rope_scaling=dict(longrope, type=kind), rope_theta=5000.0,
                       original_max_position_embeddings=original, remove=old)
    yield case(rope_scaling=dict(longrope, type="longrope"), rope_theta=5000.0, original_max_position_embeddings=16,
               max_position_embeddings=256, remove=old)
    # Beyond the least context that llama.cpp makes: it chooses the factors by that, transformers by the text.
    for most in (512, 2048):
        yield case(rope_scaling=dict(longrope, type="longrope"), rope_theta=5000.0, original_max_position_embeddings=512,
                   max_position_embeddings=most, remove=old)
    yield case(rope_scaling=dict(longrope, type="longrope"), rope_theta=5000.0, remove=[*old, "original_max_position_embeddings"])
    yield case(rope_scaling=dict(longrope, type="longrope", original_max_position_embeddings=64), rope_theta=5000.0,
               original_max_position_embeddings=16, remove=old)
    half = {"short_factor": longrope["short_factor"][:HALF], "long_factor": longrope["long_factor"][:HALF]}
    for original in (16, 64):
        yield case(rope_scaling=dict(half, type="longrope"), rope_theta=5000.0, partial_rotary_factor=0.5,
                   original_max_position_embeddings=original, remove=old)
    yield case(rope_scaling=dict(half, type="longrope"), rope_theta=5000.0, original_max_position_embeddings=16, remove=old)
    yield case(partial_rotary_factor=0.5)
    yield case(partial_rotary_factor=0.5, rope_theta=5000.0, remove=old)


def deepseek_v2(config):
    grouped = dict(topk_method="group_limited_greedy")
    yield case(n_group=None, topk_group=None)
    yield case(n_group=4, topk_group=2)
    for groups, used in ((4, 2), (4, 4), (2, 1), (1, 1)):
        yield case(**grouped, n_group=groups, topk_group=used)
    yield case(**grouped, n_group=4, topk_group=2, norm_topk_prob=True)
    yield case(**grouped, n_group=4, topk_group=4, num_experts_per_tok=8)
    yield case(head_dim=48)
    yarn = dict(YARN, mscale=0.7, mscale_all_dim=0.7)
    yield case(rope_parameters=yarn)
    yield case(rope_parameters=dict(yarn, mscale=1.0))
    yield case(rope_parameters=dict(yarn, truncate=False))


def deepseek_v3(config):
    yield case(n_group=1, topk_group=1)
    yield case(n_group=4, topk_group=2)
    yield case(n_group=4, topk_group=4)
    yield case(topk_method="noaux_tc", scoring_func="sigmoid")
    yield case(topk_method="greedy", scoring_func="softmax")
    yield case(num_experts_per_tok=8, topk_group=2)
    yield case(head_dim=48)
    for changed in (dict(mscale=1.0), dict(mscale_all_dim=1.0), dict(mscale=1.0, mscale_all_dim=1.0), dict(truncate=False), dict(beta_fast=4.0), dict(attention_factor=1.5), dict(factor=4.0),
                    dict(original_max_position_embeddings=8), dict(mscale=0, mscale_all_dim=0)):
        yield case(rope_parameters=dict(config["rope_parameters"], **changed))


def gpt_oss(config):
    for changed in (dict(truncate=False), dict(beta_fast=4.0), dict(beta_slow=0.25), dict(attention_factor=1.5),
                    dict(factor=4.0), dict(original_max_position_embeddings=8), dict(mscale=1.0, mscale_all_dim=0.5)):
        yield case(rope_parameters=dict(config["rope_parameters"], **changed))
    for gone in ("truncate", "beta_fast", "beta_slow", "original_max_position_embeddings", "rope_theta"):
        yield case(rope_parameters={k: v for k, v in config["rope_parameters"].items() if k != gone})
    yield case(swiglu_limit=0.5, remove=["swiglu_alpha"])


def granite(config):
    for key in ("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"):
        for value in (1.0, 2, 0, -1.5, "2"):
            yield case(**{key: value})
    yield case(head_dim=8)
    yield case(head_dim=4)


def gemma2(config):
    for caps in ((None, None), (None, 4.0), (0.5, None), (0.5, 1.0)):
        yield case(attn_logit_softcapping=caps[0], final_logit_softcapping=caps[1])
    for pattern in (1, 2, 3, 0):
        yield case(sliding_window_pattern=pattern, remove=["layer_types"])
    yield case(layer_types=None, sliding_window=4)
    yield case(use_bidirectional_attention=True, sliding_window=4)
    yield case(use_bidirectional_attention=True, layer_types=["full_attention"] * 4)
    yield case(sliding_window=None, layer_types=["full_attention"] * 4)
    yield case(remove=["sliding_window", "layer_types"])
    yield case(hidden_act="silu")
    yield case(hidden_act="silu", remove=["hidden_activation"])


def falcon(config):
    yield case(n_embed=32)
    yield case(n_embed=48)
    yield case(n_head=4)
    yield case(n_layer=3)
    yield case(n_head_kv=1)
    yield case(num_kv_heads=1)
    yield case(multi_query=False, num_kv_heads=1)
    yield case(alibi=True, rope_parameters=None)
    yield case(head_dim=8)
    yield case(num_key_value_heads=1)
    yield case(intermediate_size=128)
    yield case(rotary=False)


def qwen35(config):
    layers, none = config["num_hidden_layers"], ["layer_types"]
    linear, full = "linear_attention", "full_attention"
    for every in (1, 2, 3, 4, 0, None):
        yield case(full_attention_interval=every, remove=none)
    yield case(full_attention_interval=3)
    yield case(full_attention_interval=2, layer_types=None)
    yield case(full_attention_interval=2, layer_types=[full, linear] * (layers // 2))
    for kinds in ([full, linear] * (layers // 2), [linear] * layers, [linear, full] * layers, ["mamba", full] * (layers // 2)):
        yield case(layer_types=kinds)
    # The same shapes by other heads.
    yield case(linear_num_key_heads=1, linear_key_head_dim=32)
    yield case(linear_num_key_heads=4, linear_key_head_dim=8)
    yield case(linear_num_key_heads=8, linear_key_head_dim=4)
    yield case(linear_num_value_heads=3, linear_value_head_dim=32)
    yield case(num_attention_heads=8, head_dim=16)
    # Keys of released files.
    for key, values in {"attn_output_gate": [True, False], "mamba_ssm_dtype": ["float32", "bfloat16"],
                        "mtp_num_hidden_layers": [0, 1], "mtp_use_dedicated_embeddings": [False, True]}.items():
        for value in values:
            yield case(**{key: value})
    base, old = config["rope_parameters"], ["rope_parameters"]
    for gone in base:
        yield case(rope_parameters={k: v for k, v in base.items() if k != gone})
    for key, values in {
        "partial_rotary_factor": [0.25, 0.75, 1.0, 0.4, 1.5, None], "mrope_interleaved": [False, None],
        "mrope_section": [[2, 3, 3], [8, 0, 0], [1, 1, 1], [11, 11, 10], [3, 3], [3, 3, 2, 0], [], None],
    }.items():
        for value in values:
            yield case(rope_parameters={**base, key: value})
    yield case(partial_rotary_factor=0.25)
    yield case(partial_rotary_factor=0.25, rope_parameters={k: v for k, v in base.items() if k != "partial_rotary_factor"})
    yield case(partial_rotary_factor=1.0, rope_theta=5000.0, remove=old)
    yield case(rope_scaling=base, remove=old)
    yield case(rope_scaling=dict(base, type="mrope"), remove=old)
    stretched = {"factor": 4.0, "original_max_position_embeddings": 16}
    factors = {"short_factor": [1.0 + 0.1 * i for i in range(8)], "long_factor": [1.5 + 0.2 * i for i in range(8)]}
    for kind in (dict(stretched, rope_type="yarn"), dict(stretched, rope_type="llama3", low_freq_factor=1.0, high_freq_factor=4.0),
                 dict(factors, rope_type="longrope", original_max_position_embeddings=16), {"rope_type": "dynamic", "factor": 2.0}):
        yield case(rope_parameters={**base, **kind})


OF_FAMILY = {"qwen35": qwen35, "modernbert": modernbert, "qwen2": qwen, "qwen3": qwen, "qwen3moe": qwen, "gemma3": gemma3, "gpt2": gpt2, "deepseek_v2": deepseek_v2,
             "deepseek_v3": deepseek_v3, "gpt_oss": gpt_oss, "granite": granite, "gemma2": gemma2, "falcon": falcon}
