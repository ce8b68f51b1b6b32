"""What names a language model's tensors get where something else stands around it: wrappers/<name>.json.

    pip install torch==2.13.0 transformers==5.23.0 safetensors==0.8.0 numpy==2.4.6 peft==0.21.2
    python wrappers.py [NAME…]

Each case saves one small model twice: alone, as its `…ForCausalLM`, and inside a wrapper. The wrappers are real ones:
`AutoModel` (the backbone alone), `torch.compile`, `DataParallel`, peft's `get_peft_model` with its adapters taken off, and
the models of transformers that put images or sound before a text model. Tensors are matched by their values, and the
logits of text alone are compared. wrappers/README.md says what is in a file.
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file
from safetensors.torch import save_file

from families import natural, pretty

OUT = Path(__file__).parent / "wrappers"
COMMON = dict(vocab_size=136, max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0)
GQA = dict(COMMON, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
           num_key_value_heads=2)
HEADS = dict(GQA, head_dim=8)
# The text models: class prefix, class of the configuration, its arguments.
TEXTS = {
    "llama": ("Llama", "LlamaConfig", dict(HEADS, tie_word_embeddings=False)),
    "llama-tied": ("Llama", "LlamaConfig", dict(HEADS, tie_word_embeddings=True)),
    "mistral": ("Mistral", "MistralConfig", dict(HEADS, tie_word_embeddings=False, sliding_window=None)),
    "mixtral": ("Mixtral", "MixtralConfig", dict(HEADS, tie_word_embeddings=True, num_local_experts=2,
                                                 num_experts_per_tok=1)),
    "qwen2": ("Qwen2", "Qwen2Config", dict(GQA, tie_word_embeddings=True)),
    "qwen3": ("Qwen3", "Qwen3Config", dict(HEADS, tie_word_embeddings=True)),
    "qwen3moe": ("Qwen3Moe", "Qwen3MoeConfig", dict(HEADS, tie_word_embeddings=True, moe_intermediate_size=16,
                                                    num_experts=2, num_experts_per_tok=1)),
    "phi3": ("Phi3", "Phi3Config", dict(GQA, tie_word_embeddings=True, original_max_position_embeddings=256)),
    "gemma3": ("Gemma3", "Gemma3TextConfig", dict(HEADS, sliding_window=32, query_pre_attn_scalar=8,
                                                  layer_types=["sliding_attention", "full_attention"])),
    "gpt2": ("GPT2", "GPT2Config", dict(n_layer=2, n_embd=32, n_head=4, vocab_size=136, n_positions=64,
                                        bos_token_id=0, eos_token_id=0)),
}
VISION = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14)
CLIP = dict(model_type="clip_vision_model", projection_dim=16, **VISION)
SIGLIP = dict(model_type="siglip_vision_model", **VISION)
PIXTRAL = dict(model_type="pixtral", head_dim=8, **VISION)
IMAGE = dict(image_token_index=135)
# The wrappers of transformers: class, text model, arguments besides.
MULTIMODAL = {
    "llava-llama": ("Llava", "llama", dict(IMAGE, vision_config=CLIP, vision_feature_layer=-1)),
    "llava-mistral": ("Llava", "mistral", dict(IMAGE, vision_config=PIXTRAL, vision_feature_layer=-1)),
    "llava-qwen2": ("Llava", "qwen2", dict(IMAGE, vision_config=SIGLIP, vision_feature_layer=-1)),
    "llava-next": ("LlavaNext", "mistral", dict(IMAGE, vision_config=CLIP, vision_feature_layer=-1)),
    "llava-onevision": ("LlavaOnevision", "qwen2", dict(IMAGE, video_token_index=134, vision_config=SIGLIP)),
    "vipllava": ("VipLlava", "llama", dict(IMAGE, vision_config=CLIP, vision_feature_layers=[-1])),
    "mistral3": ("Mistral3", "mistral", dict(IMAGE, vision_config=PIXTRAL, vision_feature_layer=-1)),
    "gemma3": ("Gemma3", "gemma3", dict(image_token_index=135, boi_token_index=133, eoi_token_index=134,
                                        mm_tokens_per_image=4, vision_config=SIGLIP)),
    "internvl": ("InternVL", "qwen2", dict(image_token_id=135, vision_config=dict(
        VISION, image_size=[28, 28], patch_size=[14, 14]))),
    "idefics3": ("Idefics3", "llama", dict(image_token_id=135, vision_config=VISION, scale_factor=1)),
    "smolvlm": ("SmolVLM", "llama-tied", dict(image_token_id=135, vision_config=VISION, scale_factor=1)),
    "got-ocr2": ("GotOcr2", "qwen2", dict(image_token_id=135, vision_config=dict(
        hidden_size=16, output_channels=16, num_hidden_layers=1, num_attention_heads=2, image_size=64, patch_size=16,
        mlp_dim=24, window_size=2, global_attn_indexes=[0]))),
    "voxtral": ("Voxtral", "llama", dict(audio_token_id=135, audio_config=dict(
        hidden_size=16, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, num_mel_bins=8,
        max_source_positions=16))),
}


def text(name):
    prefix, kind, arguments = TEXTS[name]
    return prefix, getattr(transformers, kind)(**arguments)


def seeded(make):
    torch.manual_seed(0)
    model = make().float().eval()
    # Zeros and ones of an initialisation are alike; tensors must not be.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model


def causal(name):
    prefix, config = text(name)
    kind = getattr(transformers, f"{prefix}LMHeadModel" if prefix == "GPT2" else f"{prefix}ForCausalLM")
    return seeded(lambda: kind(config))


def arrays(model, directory, names=None):
    """What a file of the model holds: saved by transformers, or its state under the names of `state_dict`."""
    directory.mkdir()
    if names is None:
        model.save_pretrained(directory)
    else:
        seen, kept = {}, {}
        for name, tensor in names.items():
            if seen.setdefault(tensor.data_ptr(), name) == name:
                kept[name] = tensor.detach().contiguous()
        save_file(kept, directory / "model.safetensors")
    return load_file(directory / "model.safetensors")


def matched(wrapped, plain):
    """`[name, its name in the plain model or null, shape]` of each wrapped tensor."""
    out, found = [], set()
    for name, value in sorted(wrapped.items(), key=natural):
        same = [n for n, v in plain.items() if v.shape == value.shape and (v == value).all()]
        assert len(same) <= 1, (name, same)
        found.update(same)
        out.append([name, same[0] if same else None, list(value.shape)])
    return out, sorted(set(plain) - found, key=natural)


def logits(model):
    ids = torch.arange(3, 19).reshape(1, -1)
    with torch.inference_mode():
        return model(input_ids=ids).logits


def case(name, wrapped, plain, config, config_plain, distance):
    names, without = matched(wrapped, plain)
    result = {"source": {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]},
              "config": config, "plain_config": config_plain, "tensors": names,
              "plain": [[n, list(v.shape)] for n, v in sorted(plain.items(), key=natural)], "without": without}
    if distance is not None:
        result["logits"] = distance
    path = OUT / f"{name}.json"
    path.write_text(pretty(result) + "\n")
    beside = sum(plain_name is None for _, plain_name, _ in names)
    print(f"{name:24} {len(names):4} tensors, {beside:3} beside, without {without}, logits {distance}, "
          f"{path.stat().st_size // 1000} kB", flush=True)


def saved_config(directory):
    return json.loads((directory / "config.json").read_text())


def bare(name, text_name, scratch):
    model = causal(text_name)
    plain = arrays(model, scratch / "plain")
    wrapped = arrays(model.base_model, scratch / "wrapped")
    case(name, wrapped, plain, saved_config(scratch / "wrapped"), saved_config(scratch / "plain"), None)


def wrapped_state(name, text_name, wrap, scratch):
    """The state of the model under the names that `wrap` gives it, beside the model's own config.json."""
    model = causal(text_name)
    plain = arrays(model, scratch / "plain")
    config = saved_config(scratch / "plain")
    case(name, arrays(None, scratch / "wrapped", wrap(model)), plain, config, config, None)


def compiled(model):
    return torch.compile(model).state_dict()


def compiled_inside(model):
    """One layer, and the backbone, as those who compile parts do."""
    model.model.layers[1] = torch.compile(model.model.layers[1])
    model.model = torch.compile(model.model)
    return model.state_dict()


def parallel(model):
    return torch.nn.DataParallel(model).state_dict()


def parallel_compiled(model):
    return torch.nn.DataParallel(torch.compile(model)).state_dict()


def peft_model(model):
    from peft import LoraConfig, get_peft_model

    tuned = get_peft_model(model, LoraConfig(target_modules=["q_proj"], r=2))
    # What is left once the adapters are merged and taken off, inside the wrapper still.
    tuned.base_model.unload()
    return tuned.state_dict()


def multimodal(name, kind, text_name, arguments, scratch):
    _, config = text(text_name)
    whole = getattr(transformers, f"{kind}Config")(
        text_config=config.to_dict(), tie_word_embeddings=config.tie_word_embeddings, **arguments)
    model = seeded(lambda: getattr(transformers, f"{kind}ForConditionalGeneration")(whole))
    alone = causal(text_name)
    alone.base_model.load_state_dict(model.get_decoder().state_dict())
    with torch.no_grad():
        alone.get_output_embeddings().weight.copy_(model.get_output_embeddings().weight)
    a, b = logits(model), logits(alone)
    distance = float((a - b).abs().max() / b.abs().max())
    plain = arrays(alone, scratch / "plain")
    wrapped = arrays(model, scratch / "wrapped")
    config, config_plain = saved_config(scratch / "wrapped"), saved_config(scratch / "plain")
    case(name, wrapped, plain, config, config_plain, distance)
    # The names that the model has in memory, which transformers 4.52 to 4.57 and many trainers write.
    if name in ("llava-llama", "llava-next", "gemma3", "voxtral"):
        wrapped = arrays(None, scratch / "memory", dict(model.state_dict()))
        case(f"{name}-memory", wrapped, plain, config, config_plain, distance)
    # Without the output matrix.
    if name in ("llava-llama", "gemma3", "smolvlm"):
        wrapped = arrays(model.model, scratch / "bare")
        case(f"{name}-bare", wrapped, plain, saved_config(scratch / "bare"), config_plain, None)


CASES = {f"bare-{t}": (lambda n, s, t=t: bare(n, t, s)) for t in TEXTS}
WRAPS = {"compile": compiled, "compile-inside": compiled_inside, "module": parallel, "module-compile": parallel_compiled,
         "peft": peft_model}
CASES |= {n: (lambda n, s, w=w: wrapped_state(n, "llama", w, s)) for n, w in WRAPS.items()}
CASES |= {"module-gpt2": lambda n, s: wrapped_state(n, "gpt2", parallel, s)}
CASES |= {n: (lambda n, s, spec=spec: multimodal(n, *spec, s)) for n, spec in MULTIMODAL.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(CASES))
    torch.set_num_threads(1)
    OUT.mkdir(exist_ok=True)
    for name in parser.parse_args().names:
        with tempfile.TemporaryDirectory() as scratch:
            CASES[name](name, Path(scratch))


if __name__ == "__main__":
    main()
