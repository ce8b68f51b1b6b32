"""The small models of this folder: their hyper-parameters, their seeds and the ids they are asked about.

Only keyword arguments that both transformers 4 and transformers 5 take are used, so that each release
can write its own config.json for the same model (`make.py` and `config_v4.py`).
"""

# Two query heads for each key and value head.
SMALL = dict(
    hidden_size=32, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    vocab_size=96, max_position_embeddings=256, rms_norm_eps=1e-4, tie_word_embeddings=False,
    bos_token_id=1, eos_token_id=2,
)

SPECS = {
    # Learned positions (all 64 used), fused Conv1D qkv stored [in, out], biases everywhere, tanh gelu, tied.
    "gpt2-tiny": {
        "architecture": "GPT2LMHeadModel",
        "config": "GPT2Config",
        "arguments": dict(
            n_layer=2, n_embd=64, n_head=4, vocab_size=160, n_positions=64, layer_norm_epsilon=1e-4,
            bos_token_id=0, eos_token_id=0,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        ),
        "seed": 1, "tokens": 64, "std": 0.2, "norm_mean": 1.0,
    },
    # Two query heads for each key and value head, untied head, 96 = 3 blocks of 32.
    "llama-tiny": {
        "architecture": "LlamaForCausalLM",
        "config": "LlamaConfig",
        "arguments": dict(
            hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, vocab_size=128, max_position_embeddings=256,
            rms_norm_eps=1e-4, rope_theta=10000.0, tie_word_embeddings=False,
            bos_token_id=1, eos_token_id=2,
        ),
        "seed": 2, "tokens": 40, "std": 0.3, "norm_mean": 1.0,
    },
    # The frequency scaling of Llama 3 (one frequency kept, one blended, the rest divided), more tokens than
    # the original context, heads * head_dim != hidden, tied.
    "llama3-rope-tiny": {
        "architecture": "LlamaForCausalLM",
        "config": "LlamaConfig",
        "arguments": dict(
            hidden_size=32, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, vocab_size=128, max_position_embeddings=512,
            rms_norm_eps=1e-4, rope_theta=500000.0, tie_word_embeddings=True,
            rope_scaling=dict(
                rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                original_max_position_embeddings=64,
            ),
            bos_token_id=1, eos_token_id=2,
        ),
        "seed": 3, "tokens": 80, "std": 0.3, "norm_mean": 1.0,
    },
    # Five local layers, a global one, a local one; a window of 8 crossed by 40 tokens; two RoPE bases;
    # q and k norms; norm weights are stored as factor - 1; attention scale 24^-0.5 where head_dim is 16.
    "gemma3-tiny": {
        "architecture": "Gemma3ForCausalLM",
        "config": "Gemma3TextConfig",
        "arguments": dict(
            hidden_size=32, intermediate_size=64, num_hidden_layers=7, num_attention_heads=4,
            num_key_value_heads=1, head_dim=16, vocab_size=128, max_position_embeddings=512,
            rms_norm_eps=1e-3, rope_theta=1_000_000.0, rope_local_base_freq=10_000.0,
            sliding_window=8, sliding_window_pattern=6, query_pre_attn_scalar=24,
            tie_word_embeddings=True, bos_token_id=2, eos_token_id=1, pad_token_id=0,
        ),
        "seed": 4, "tokens": 40, "std": 0.3, "norm_mean": 0.0,
    },
    # A window of 8 in every layer, crossed by 40 tokens; GGUF does not carry it.
    "mistral-tiny": {
        "architecture": "MistralForCausalLM",
        "config": "MistralConfig",
        "arguments": dict(SMALL, head_dim=16, sliding_window=8),
        "seed": 5, "tokens": 40, "std": 0.3, "norm_mean": 1.0,
    },
    # Biases of queries, keys and values; tied.
    "qwen2-tiny": {
        "architecture": "Qwen2ForCausalLM",
        "config": "Qwen2Config",
        "arguments": dict(SMALL, hidden_size=64, tie_word_embeddings=True),
        "seed": 6, "tokens": 40, "std": 0.3, "norm_mean": 1.0,
    },
    # Norms of each head's query and key; heads * head_dim != hidden.
    "qwen3-tiny": {
        "architecture": "Qwen3ForCausalLM",
        "config": "Qwen3Config",
        "arguments": dict(SMALL, head_dim=16),
        "seed": 7, "tokens": 40, "std": 0.3, "norm_mean": 1.0,
    },
    # Queries, keys and values in one matrix, gate and up in another.
    "phi3-tiny": {
        "architecture": "Phi3ForCausalLM",
        "config": "Phi3Config",
        "arguments": dict(SMALL, hidden_size=64, original_max_position_embeddings=256, pad_token_id=0),
        "seed": 8, "tokens": 40, "std": 0.3, "norm_mean": 1.0,
    },
    # LayerNorm, biases everywhere, no gate, tanh gelu; tied.
    "starcoder2-tiny": {
        "architecture": "Starcoder2ForCausalLM",
        "config": "Starcoder2Config",
        "arguments": dict({k: v for k, v in SMALL.items() if k != "rms_norm_eps"}, hidden_size=64, norm_epsilon=1e-4,
                          sliding_window=None, tie_word_embeddings=True),
        "seed": 9, "tokens": 40, "std": 0.2, "norm_mean": 1.0,
    },
    # Factors of embeddings, of what is added to the residual stream, of scores and of logits.
    "granite-tiny": {
        "architecture": "GraniteForCausalLM",
        "config": "GraniteConfig",
        "arguments": dict(SMALL, hidden_size=64, embedding_multiplier=6.0, residual_multiplier=0.4,
                          attention_multiplier=0.2, logits_scaling=3.0),
        "seed": 10, "tokens": 40, "std": 0.3, "norm_mean": 1.0,
    },
    # Norms after attention and feed-forward alone; one norm of all queries, and one of all keys.
    "olmo2-tiny": {
        "architecture": "Olmo2ForCausalLM",
        "config": "Olmo2Config",
        "arguments": dict(SMALL, hidden_size=64),
        "seed": 11, "tokens": 40, "std": 0.3, "norm_mean": 1.0,
    },
    # Every other layer with a window of 8, crossed by 40 tokens; soft caps that are reached; four norms a layer, whose
    # weights are stored as factor - 1.
    "gemma2-tiny": {
        "architecture": "Gemma2ForCausalLM",
        "config": "Gemma2Config",
        "arguments": dict(
            hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, vocab_size=128, max_position_embeddings=512,
            rms_norm_eps=1e-3, rope_theta=10_000.0, sliding_window=8, query_pre_attn_scalar=16,
            attn_logit_softcapping=2.0, final_logit_softcapping=6.0,
            tie_word_embeddings=True, bos_token_id=2, eos_token_id=1, pad_token_id=0,
        ),
        "seed": 12, "tokens": 40, "std": 0.3, "norm_mean": 0.0,
    },
    # Attention and the feed-forward network beside each other; one key and value head for all queries, in one matrix with
    # them; gelu by erf; tied.
    "falcon-tiny": {
        "architecture": "FalconForCausalLM",
        "config": "FalconConfig",
        "arguments": dict(
            hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_kv_heads=1, vocab_size=96,
            max_position_embeddings=2048, layer_norm_epsilon=1e-4, bos_token_id=1, eos_token_id=2,
        ),
        "seed": 13, "tokens": 40, "std": 0.2, "norm_mean": 1.0,
    },
}

# Hidden and inner sizes of whole blocks of 32.
EXPERTS = dict(SMALL, hidden_size=64, num_attention_heads=4, head_dim=16, max_position_embeddings=256)

SPECS |= {
    # Two of six experts; the weights of the chosen sum up to 1.
    "mixtral-tiny": {
        "architecture": "MixtralForCausalLM",
        "config": "MixtralConfig",
        "arguments": dict(EXPERTS, intermediate_size=32, num_local_experts=6, num_experts_per_tok=2),
        "seed": 9, "tokens": 40, "std": 0.3, "norm_mean": 1.0,
    },
    # Three of eight experts, norms of each head's query and key; weights that sum up to 1.
    "qwen3moe-tiny": {
        "architecture": "Qwen3MoeForCausalLM",
        "config": "Qwen3MoeConfig",
        "arguments": dict(
            EXPERTS, intermediate_size=64, moe_intermediate_size=32, num_experts=8, num_experts_per_tok=3,
            norm_topk_prob=True, decoder_sparse_step=1,
        ),
        "seed": 10, "tokens": 40, "std": 0.3, "norm_mean": 1.0,
    },
    # Sinks, biases everywhere, a clamped activation, a window of 8 in every second layer; YaRN beyond its first context.
    "gpt-oss-tiny": {
        "architecture": "GptOssForCausalLM",
        "config": "GptOssConfig",
        "arguments": dict(
            EXPERTS, intermediate_size=32, num_local_experts=4, num_experts_per_tok=2, sliding_window=8,
            layer_types=["sliding_attention", "full_attention"],
            rope_parameters=dict(
                rope_type="yarn", rope_theta=150000.0, factor=4.0, original_max_position_embeddings=16,
                beta_fast=32.0, beta_slow=1.0, truncate=True,
            ),
        ),
        "seed": 11, "tokens": 40, "std": 0.3, "norm_mean": 1.0,
    },
    # Low-rank attention; one dense layer, then three of eight experts in two of four groups, by corrected sigmoids, with a
    # network that every token is sent to; YaRN that scales scores.
    "deepseek3-tiny": {
        "architecture": "DeepseekV3ForCausalLM",
        "config": "DeepseekV3Config",
        "arguments": dict(
            hidden_size=64, intermediate_size=96, moe_intermediate_size=32, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=4, n_shared_experts=1, n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2,
            first_k_dense_replace=1, routed_scaling_factor=2.5, norm_topk_prob=True, q_lora_rank=32, kv_lora_rank=32,
            qk_nope_head_dim=32, qk_rope_head_dim=8, v_head_dim=32, vocab_size=96, max_position_embeddings=256,
            rms_norm_eps=1e-6, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0,
            rope_parameters=dict(
                rope_type="yarn", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=16,
                beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0,
            ),
        ),
        "seed": 12, "tokens": 40, "std": 0.3, "norm_mean": 1.0,
    },
    # LongRoPE beyond its first context, where the long factors hold, on three quarters of each head.
    "phi3-long-tiny": {
        "architecture": "Phi3ForCausalLM",
        "config": "Phi3Config",
        "arguments": dict(
            SMALL, hidden_size=64, original_max_position_embeddings=16, max_position_embeddings=256, pad_token_id=0,
            rope_parameters=dict(
                rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75,
                original_max_position_embeddings=16,
                short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5], long_factor=[1.5, 1.7, 1.9, 2.1, 2.3, 2.5],
            ),
        ),
        "seed": 14, "tokens": 40, "std": 0.3, "norm_mean": 1.0,
    },
}

# Qwen 3.5. Linear-attention layers compute the gated delta rule. The full-attention layers gate their output and rotate half
# of each head.
QWEN35 = dict(
    hidden_size=32, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
    linear_num_key_heads=2, linear_key_head_dim=16, vocab_size=96, max_position_embeddings=256,
    bos_token_id=1, eos_token_id=2,
    rope_parameters=dict(
        rope_type="default", rope_theta=5000.0, partial_rotary_factor=0.5, mrope_section=[3, 3, 2], mrope_interleaved=True,
    ),
)
# Mean and standard deviation of a parameter, by the end of its name. With this A_log a state lasts tens of tokens, so it
# matters across chunks of 64.
DELTA = {
    "linear_attn.A_log": (-2.5, 1.2), "linear_attn.dt_bias": (0.0, 0.7), "linear_attn.conv1d.weight": (0.0, 0.5),
    "linear_attn.norm.weight": (1.0, 0.3),
}

SPECS |= {
    # The default pattern of layers, cut after the fifth: three linear, one full, one linear. Values are twice as wide as keys
    # and have twice as many heads. 80 tokens cross a chunk of 64. Tied. llama.cpp cannot load the GGUF: it knows one width
    # for keys and values.
    "qwen35-tiny": {
        "architecture": "Qwen3_5ForCausalLM",
        "config": "Qwen3_5TextConfig",
        "arguments": dict(QWEN35, num_hidden_layers=5, linear_num_value_heads=4, linear_value_head_dim=32,
                          linear_conv_kernel_dim=4, rms_norm_eps=1e-4, tie_word_embeddings=True),
        "seed": 15, "tokens": 80, "std": 0.3, "norm_mean": 0.0, "drawn": DELTA,
        "llama_cpp_refuses": "tensor 'blk.0.attn_qkv.weight' has wrong shape",
    },
    # llama.cpp can load this one. Each key head has three value heads, so the order of value heads in GGUF is not its own
    # inverse. The second of four layers is full attention. The convolution spans three tokens. Untied. The epsilon is 1e-6
    # because transformers always uses 1e-6 to normalise the queries and keys of linear attention; llama.cpp uses
    # `rms_norm_eps`. The GGUF has a block more, which predicts the token after the next (`mtp`: a copy of the layer that attends).
    "qwen35-equal-tiny": {
        "architecture": "Qwen3_5ForCausalLM",
        "config": "Qwen3_5TextConfig",
        "arguments": dict(
            QWEN35, num_hidden_layers=4, linear_num_value_heads=6, linear_value_head_dim=16, linear_conv_kernel_dim=3,
            rms_norm_eps=1e-6, tie_word_embeddings=False,
            layer_types=["linear_attention", "full_attention", "linear_attention", "linear_attention"],
        ),
        "seed": 16, "tokens": 80, "std": 0.3, "norm_mean": 0.0, "drawn": DELTA, "mtp": 1,
    },
}


def input_ids(spec):
    """The ids the model is asked about: a linear congruential walk over the vocabulary."""
    vocab = spec["arguments"]["vocab_size"]
    state, ids = spec["seed"], []
    for _ in range(spec["tokens"]):
        state = (state * 1103515245 + 12345) % 2**31
        ids.append((state >> 8) % vocab)
    return ids
