"""A small random Whisper, and what transformers makes of it: models/whisper-small.

    pip install torch==2.15.0 transformers==5.24.0 safetensors==0.8.0 numpy==2.4.6
    python whisper_logits.py

`mel.bin` is a spectrogram as the decoder's audio encoder takes it, `[frames, mels]`, `encoded.bin` what the encoder makes of it,
`[frames / 2, hidden]`, and `logits.bin` the logits after each of `input_ids`, `[ids, vocab]`: all f32. Encoder and decoder have
different numbers of heads, layers and inner elements, so that none can stand for another.
"""

import json
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import WhisperConfig, WhisperForConditionalGeneration

OUT = Path(__file__).parent / "models" / "whisper-small"
CONFIG = dict(
    vocab_size=99,
    num_mel_bins=12,
    d_model=48,
    encoder_layers=3,
    encoder_attention_heads=4,
    encoder_ffn_dim=80,
    decoder_layers=2,
    decoder_attention_heads=2,
    decoder_ffn_dim=112,
    max_source_positions=70,
    max_target_positions=40,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=3,
    suppress_tokens=None,
    begin_suppress_tokens=None,
)


def main():
    torch.manual_seed(20)
    torch.set_num_threads(1)
    model = WhisperForConditionalGeneration(WhisperConfig(**CONFIG)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter.copy_(1 + 0.2 * torch.randn(parameter.shape))
            elif parameter.dim() == 1:
                parameter.copy_(0.2 * torch.randn(parameter.shape))
            else:
                parameter.copy_(torch.randn(parameter.shape) * 0.6 / parameter[0].numel() ** 0.5)
            if "embed_positions" in name or "embed_tokens" in name:
                parameter.mul_(4)
    OUT.mkdir(exist_ok=True)
    model.save_pretrained(OUT)
    (OUT / "generation_config.json").unlink(missing_ok=True)
    frames = 2 * CONFIG["max_source_positions"]
    mel = torch.randn(frames, CONFIG["num_mel_bins"]).clamp(-1, 2)
    ids = [3, 17, 98, 50, 50, 4, 81, 33, 8, 61, 12, 72, 2, 90, 45, 29, 1, 66]
    with torch.no_grad():
        out = model(input_features=mel.T[None], decoder_input_ids=torch.tensor([ids]))
    arrays = {"mel": mel, "encoded": out.encoder_last_hidden_state[0], "logits": out.logits[0]}
    for name, array in arrays.items():
        (OUT / f"{name}.bin").write_bytes(np.ascontiguousarray(array.numpy(), np.float32).tobytes())
    facts = {
        "source": f"transformers {transformers.__version__}, torch {torch.__version__}",
        "input_ids": ids,
        **{name: {"file": f"{name}.bin", "shape": list(array.shape)} for name, array in arrays.items()},
    }
    (OUT / "expected.json").write_text(json.dumps(facts, indent=1) + "\n")


main()
