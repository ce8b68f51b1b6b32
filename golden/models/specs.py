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


def input_ids(spec):
    """The ids the model is asked about: a linear congruential walk over the vocabulary."""
    vocab = spec["arguments"]["vocab_size"]
    state, ids = spec["seed"], []
    for _ in range(spec["tokens"]):
        state = (state * 1103515245 + 12345) % 2**31
        ids.append((state >> 8) % vocab)
    return ids
