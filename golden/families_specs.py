"""The small models of families.py, and where a released checkpoint differs from what `save_pretrained` writes."""

import re

COMMON = dict(vocab_size=136, max_position_embeddings=256, bos_token_id=1, eos_token_id=2)
# Two query heads for each key and value head; heads * head_dim is not the hidden size.
GQA = dict(COMMON, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
           num_key_value_heads=2, head_dim=16, tie_word_embeddings=False)
LLAMA3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
# A dense layer, then one of experts; three whole blocks of 128 and one half (192 = 128 + 64) for the FP8 variant.
DEEPSEEK = dict(COMMON, hidden_size=128, intermediate_size=192, moe_intermediate_size=64, num_hidden_layers=2,
                num_attention_heads=2, num_key_value_heads=2, n_shared_experts=1, n_routed_experts=4,
                num_experts_per_tok=2, n_group=2, topk_group=1, first_k_dense_replace=1, norm_topk_prob=True,
                routed_scaling_factor=2.5, q_lora_rank=96, kv_lora_rank=128, qk_nope_head_dim=48, qk_rope_head_dim=64,
                v_head_dim=32, tie_word_embeddings=False)


def decoder(kind, arguments, **more):
    """`vocab_size_written`: whether the converter's `set_gguf_parameters` writes it."""
    return dict({"architecture": f"{kind}ForCausalLM", "config": f"{kind}Config", "arguments": arguments,
                 "vocab_size_written": False}, **more)


def encoder(architecture, config, arguments, **more):
    return dict({"architecture": architecture, "config": config, "dtype": "float32", "arguments": arguments,
                 "vocab_size_written": False}, **more)


AS_BERT = {"gguf": "conversion/bert.py makes a `bert` of it"}
BERT = dict(vocab_size=136, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=80,
            max_position_embeddings=64, type_vocab_size=2)
SPECS = {
    "gpt2": {"architecture": "GPT2LMHeadModel", "config": "GPT2Config", "dtype": "float32", "vocab_size_written": False,
             "arguments": dict(n_layer=2, n_embd=48, n_head=4, vocab_size=136, n_positions=64,
                               bos_token_id=0, eos_token_id=0)},
    "llama": decoder("Llama", GQA, vocab_size_written=True),
    "llama-tied": decoder("Llama", dict(GQA, tie_word_embeddings=True, rope_parameters=LLAMA3), vocab_size_written=True),
    "mistral": decoder("Mistral", dict(GQA, sliding_window=None), vocab_size_written=True),
    "qwen2": decoder("Qwen2", {k: v for k, v in GQA.items() if k != "head_dim"} | dict(hidden_size=64)),
    "qwen3": decoder("Qwen3", GQA),
    # Five window layers and a global one.
    "gemma3": decoder("Gemma3", dict(
        COMMON, hidden_size=48, intermediate_size=80, num_hidden_layers=7, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, sliding_window=32, query_pre_attn_scalar=16, tie_word_embeddings=True, pad_token_id=0),
        config="Gemma3TextConfig"),
    "phi3": decoder("Phi3", {k: v for k, v in GQA.items() if k != "head_dim"} | dict(
        hidden_size=64, original_max_position_embeddings=256, pad_token_id=0)),
    "mixtral": decoder("Mixtral", dict(GQA, num_local_experts=4, num_experts_per_tok=2), vocab_size_written=True),
    "qwen3moe": decoder("Qwen3Moe", dict(
        GQA, moe_intermediate_size=40, num_experts=4, num_experts_per_tok=2, norm_topk_prob=True, decoder_sparse_step=1,
        mlp_only_layers=[])),
    "deepseek_v3": decoder("DeepseekV3", DEEPSEEK, vocab_size_written=True),
    "deepseek_v3-fp8": decoder(
        "DeepseekV3", DEEPSEEK, vocab_size_written=True, dequantised=True,
        source={"fp8": "DeepSeek-V3 inference/fp8_cast_bf16.py and README_WEIGHTS.md: a `_scale_inv` beside each linear "
                       "weight but the router's, blocks of 128 x 128; layer `num_hidden_layers` is for the prediction of "
                       "further tokens; `topk_method` and `scoring_func` of config.json, which transformers 5 drops",
                "gguf_of": "found with the weights already dequantised: the converter's `dequant_model` multiplies first"}),
    "gpt-oss": decoder("GptOss", dict(
        COMMON, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=32, sliding_window=32, num_local_experts=4, num_experts_per_tok=2, tie_word_embeddings=False),
        source={"hf": "experts as openai/gpt-oss-20b stores them and transformers reads them "
                      "(transformers/integrations/mxfp4.py): `_blocks` [experts, out, in / 32, 16] and `_scales`"}),
    "starcoder2": decoder("Starcoder2", {k: v for k, v in GQA.items() if k != "head_dim"} | dict(hidden_size=64)),
    "granite": decoder("Granite", {k: v for k, v in GQA.items() if k != "head_dim"} | dict(
        hidden_size=64, embedding_multiplier=12.0, residual_multiplier=0.22, attention_multiplier=0.015625,
        logits_scaling=8.0), vocab_size_written=True),
    "olmo2": decoder("Olmo2", {k: v for k, v in GQA.items() if k != "head_dim"} | dict(hidden_size=64)),
    # Window layers and global ones by turns.
    "gemma2": decoder("Gemma2", dict(
        COMMON, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, sliding_window=32, query_pre_attn_scalar=16, tie_word_embeddings=True, pad_token_id=0)),
    # The converter takes `num_kv_heads` for what `multi_query` says, and writes a context of 2048.
    "falcon": decoder("Falcon", dict(
        COMMON, max_position_embeddings=2048, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_kv_heads=1,
        tie_word_embeddings=True)),
    "falcon-grouped": decoder("Falcon", dict(
        COMMON, max_position_embeddings=2048, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_kv_heads=2,
        tie_word_embeddings=False, new_decoder_architecture=True, num_ln_in_parallel_attn=1)),
    # Three layers of linear attention, then one of full attention. Each of the two key heads has three value heads: if it had
    # two, the converter's reordering would be its own inverse.
    "qwen35": decoder("Qwen3_5", dict(
        GQA, num_hidden_layers=4, linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=16,
        linear_value_head_dim=16, linear_conv_kernel_dim=4,
        rope_parameters=dict(rope_type="default", rope_theta=10_000_000.0, partial_rotary_factor=0.25, mrope_section=[1, 1, 0],
                             mrope_interleaved=True)), config="Qwen3_5TextConfig", no_mtp=True),
    # Of the example own_family, which registers it.
    "own/arcee": decoder("Arcee", GQA, vocab_size_written=True),
    "bert": {"architecture": "BertModel", "config": "BertConfig", "dtype": "float32", "arguments": BERT,
             "vocab_size_written": False},
    "bert-masked-lm": {"architecture": "BertForMaskedLM", "config": "BertConfig", "dtype": "float32", "arguments": BERT,
                       "vocab_size_written": False},
    "bert-released": {"architecture": "BertForPreTraining", "config": "BertConfig", "dtype": "float32", "arguments": BERT,
                      "vocab_size_written": False,
                      "source": {"hf": "as bert-base-uncased was released: LayerNorm.gamma and .beta, "
                                       "architectures BertForMaskedLM though the next-sentence head is there; its "
                                       "pytorch_model.bin has cls.predictions.decoder.weight too, which is tied"}},
    "roberta": encoder("RobertaForMaskedLM", "RobertaConfig", dict(BERT, pad_token_id=1, bos_token_id=0, eos_token_id=2),
                       gguf=False, source=AS_BERT),
    "roberta-xlm": encoder("XLMRobertaModel", "XLMRobertaConfig",
                           dict(BERT, type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2), gguf=False,
                           source=AS_BERT),
    "distilbert": encoder("DistilBertForMaskedLM", "DistilBertConfig", dict(
        vocab_size=136, dim=32, n_layers=2, n_heads=4, hidden_dim=80, max_position_embeddings=64), gguf=False, source=AS_BERT),
    "mpnet": encoder("MPNetForMaskedLM", "MPNetConfig", {k: v for k, v in BERT.items() if k != "type_vocab_size"}, gguf=False,
                     source={"gguf": "convert_hf_to_gguf.py has no class for MPNet"}),
    "modernbert": encoder("ModernBertForMaskedLM", "ModernBertConfig", dict(
        COMMON, hidden_size=32, num_hidden_layers=4, num_attention_heads=4, intermediate_size=80, pad_token_id=0, cls_token_id=1,
        sep_token_id=2, local_attention=32), gguf=False, source={"gguf": "not written here: conversion/bert.py has `modern-bert`"}),
    "nomic_bert": encoder("NomicBertForMaskedLM", "NomicBertConfig", BERT, gguf=False,
                          source={"gguf": "not written here: conversion/bert.py has `nomic-bert`"}),
    "whisper": {"architecture": "WhisperForConditionalGeneration", "config": "WhisperConfig", "dtype": "float32",
                "gguf": False, "source": {"gguf": "convert_hf_to_gguf.py has no class for Whisper: whisper.cpp has a "
                                                  "format of its own (ggml, models/convert-h5-to-ggml.py)"},
                "arguments": dict(vocab_size=136, num_mel_bins=16, d_model=32, encoder_layers=2, decoder_layers=2,
                                  encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64,
                                  decoder_ffn_dim=64, max_source_positions=50, max_target_positions=40, pad_token_id=3,
                                  bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)},
}


def released(name, entries, config):
    """Entries and config.json as the released checkpoint has them."""
    # The router's bias is F32 in DeepSeek-V3's files; a model made in bfloat16 rounds it.
    entries = [[n, s, "F32" if n.endswith("e_score_correction_bias") else d] for n, s, d in entries]
    if name == "deepseek_v3-fp8":
        return fp8(with_mtp(entries, config)), dict(
            config, num_nextn_predict_layers=1, topk_method="noaux_tc", scoring_func="sigmoid", quantization_config={
                "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]})
    if name == "gpt-oss":
        return mxfp4(entries), dict(config, quantization_config={
            "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
                                       "lm_head"], "quant_method": "mxfp4"})
    if name == "bert-released":
        old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
        renamed = [[re.sub("LayerNorm.(weight|bias)$", lambda m: old[m[0]], n), s, d] for n, s, d in entries]
        return sorted(renamed), dict(config, architectures=["BertForMaskedLM"])
    return entries, config


def with_mtp(entries, config):
    """Adds the layer that predicts further tokens: DeepSeek-V3 README_WEIGHTS.md, "Multi-Token Prediction"."""
    layers, hidden = config["num_hidden_layers"], config["hidden_size"]
    last = [[n.replace(f"layers.{layers - 1}.", f"layers.{layers}."), s, d]
            for n, s, d in entries if f".layers.{layers - 1}." in n]
    vocab = [config["vocab_size"], hidden]
    own = {"embed_tokens.weight": vocab, "enorm.weight": [hidden], "hnorm.weight": [hidden],
           "eh_proj.weight": [hidden, 2 * hidden], "shared_head.norm.weight": [hidden], "shared_head.head.weight": vocab}
    return entries + last + [[f"model.layers.{layers}.{n}", s, "BF16"] for n, s in own.items()]


def fp8(entries):
    out = []
    for name, shape, dtype in entries:
        if name.endswith("_proj.weight") and not name.endswith("eh_proj.weight") or "kv_a_proj_with_mqa" in name:
            out.append([name, shape, "F8_E4M3"])
            out.append([name + "_scale_inv", [-(-n // 128) for n in shape], "F32"])
        else:
            out.append([name, shape, dtype])
    return out


def mxfp4(entries):
    out = []
    for name, shape, dtype in entries:
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            experts, inputs, outputs = shape
            out.append([name + "_blocks", [experts, outputs, inputs // 32, 16], "U8"])
            out.append([name + "_scales", [experts, outputs, inputs // 32], "U8"])
        else:
            out.append([name, shape, dtype])
    return out
