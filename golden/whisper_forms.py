#!/usr/bin/env python3
"""Makes golden/whisper: one tiny Whisper in each of its forms.

    python golden/whisper_forms.py WHISPER_CPP        with torch 2.15, transformers 5.24, ctranslate2 4.8.5, openai-whisper 20250625

`hf` is what transformers saves, of random weights and a vocabulary of 64 tokens. `ctranslate2-…` is what CTranslate2's own
converter makes of it, `openai.pt` what OpenAI's classes save, and `ggml.bin` what whisper.cpp's script (WHISPER_CPP is its
source, of pywhispercpp 1.5.1) makes of that. All hold the same values, but for what is quantised.
"""

import base64
import copy
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.pop(0)  # Files beside this one are called as libraries are.
import numpy as np  # noqa: E402
import torch  # noqa: E402
from ctranslate2.converters.transformers import WhisperLoader  # noqa: E402
from transformers import WhisperConfig, WhisperForConditionalGeneration  # noqa: E402
from whisper.model import ModelDimensions, Whisper  # noqa: E402

HERE = Path(__file__).parent / "whisper"
VOCAB, HIDDEN = 64, 16
SPECIAL = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>", "<|transcribe|>",
           "<|startoflm|>", "<|startofprev|>", "<|nocaptions|>", "<|notimestamps|>"]
TOKENS = [f"t{i}" for i in range(40)] + SPECIAL
TOKENS += [f"<|{0.02 * i:.2f}|>" for i in range(VOCAB - len(TOKENS))]


def model():
    torch.manual_seed(3)
    config = WhisperConfig(
        vocab_size=VOCAB, num_mel_bins=8, d_model=HIDDEN, encoder_layers=2, encoder_attention_heads=4,
        encoder_ffn_dim=4 * HIDDEN, decoder_layers=1, decoder_attention_heads=2, decoder_ffn_dim=4 * HIDDEN,
        max_source_positions=20, max_target_positions=12, bos_token_id=40, eos_token_id=40, pad_token_id=40,
        decoder_start_token_id=41, suppress_tokens=None, begin_suppress_tokens=None,
    )
    model = WhisperForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * 0.3 + ("norm.weight" in name))
    return model


def ctranslate2(model, quantization, folder):
    # It scales weights in place.
    spec = WhisperLoader().get_model_spec(copy.deepcopy(model))
    spec.register_vocabulary(TOKENS)
    spec.validate()
    spec.optimize(quantization=quantization)
    spec._serialize(str(folder / "model.bin"))
    config = {"alignment_heads": [[0, 1]], "lang_ids": [42, 43], "suppress_ids": [1, 2], "suppress_ids_begin": [3, 40]}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "vocabulary.json").write_text(json.dumps(TOKENS) + "\n")


def openai(model, path):
    c = model.config
    dims = ModelDimensions(
        n_mels=c.num_mel_bins, n_audio_ctx=c.max_source_positions, n_audio_state=c.d_model,
        n_audio_head=c.encoder_attention_heads, n_audio_layer=c.encoder_layers, n_vocab=c.vocab_size,
        n_text_ctx=c.max_target_positions, n_text_state=c.d_model, n_text_head=c.decoder_attention_heads,
        n_text_layer=c.decoder_layers,
    )
    whisper = Whisper(dims).eval()
    names = [("model.", ""), ("embed_tokens.weight", "token_embedding.weight"), ("embed_positions.weight", "positional_embedding"),
             ("layers.", "blocks."), ("encoder_attn_layer_norm", "cross_attn_ln"), ("self_attn_layer_norm", "attn_ln"),
             ("final_layer_norm", "mlp_ln"), ("encoder_attn.", "cross_attn."), ("self_attn.", "attn."), ("q_proj", "query"),
             ("k_proj", "key"), ("v_proj", "value"), ("out_proj", "out"), ("fc1", "mlp.0"), ("fc2", "mlp.2"),
             ("encoder.layer_norm", "encoder.ln_post"), ("decoder.layer_norm", "decoder.ln")]
    state = {}
    for name, value in model.state_dict().items():
        if name == "proj_out.weight":
            continue
        for a, b in names:
            name = name.replace(a, b, 1)
        state[name] = value.clone()
    whisper.load_state_dict(state)
    # Both compute the same.
    mel = torch.randn(1, c.num_mel_bins, 2 * c.max_source_positions)
    tokens = torch.tensor([[41, 42, 7, 9]])
    with torch.no_grad():
        ours, theirs = whisper(mel, tokens), model(input_features=mel, decoder_input_ids=tokens).logits
    assert torch.allclose(ours, theirs, atol=1e-3), (ours - theirs).abs().max()
    torch.save({"dims": dims.__dict__, "model_state_dict": whisper.state_dict()}, path)


def ggml(pt, script, path):
    r = np.random.default_rng(4)
    with tempfile.TemporaryDirectory() as folder:
        assets = Path(folder) / "whisper" / "assets"
        assets.mkdir(parents=True)
        np.savez(assets / "mel_filters.npz", mel_8=r.normal(0, 1, (8, 201)).astype(np.float32))
        lines = [f"{base64.b64encode(token.encode()).decode()} {i}" for i, token in enumerate(TOKENS[:40])]
        (assets / "gpt2.tiktoken").write_text("\n".join(lines) + "\n")
        subprocess.run([sys.executable, script, pt, folder, folder, "use-f32"], check=True, capture_output=True)
        shutil.copy(Path(folder) / "ggml-model-f32.bin", path)


def main():
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir(parents=True)
    m = model()
    m.save_pretrained(HERE / "hf")
    (HERE / "hf" / "generation_config.json").unlink(missing_ok=True)
    for quantization in [None, "float16", "int8"]:
        folder = HERE / f"ctranslate2-{quantization or 'float32'}"
        folder.mkdir()
        ctranslate2(m, quantization, folder)
    openai(m, HERE / "openai.pt")
    ggml(HERE / "openai.pt", Path(sys.argv[1]) / "models" / "convert-pt-to-ggml.py", HERE / "ggml.bin")


if __name__ == "__main__":
    main()
