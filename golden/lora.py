"""Makes small random LoRA adapters for the models of models/, by peft, and the logits of each model with its adapter merged.

    pip install torch==2.15.0 transformers==5.23.0 safetensors==0.8.0 numpy==2.4.6 peft==0.21.2 gguf==0.19.0
    g++ … llama_oracle.cpp      (see its head)
    python lora.py --llama-cpp DIR --oracle PATH [--weighbridge PATH] [NAME…]

DIR is a source tree of llama.cpp (commit 0c1e57098 was used); PATH is the built llama_oracle. lora/README.md says what is in each
directory. With --weighbridge, the model and its adapter are converted to a Hugging Face directory by that program, and what
transformers computes with it is held against the expected logits.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model

HERE = Path(__file__).parent
OUT, MODELS = HERE / "lora", HERE / "models"
sys.path.insert(0, str(MODELS))

from make import load, logits  # noqa: E402
from specs import SPECS, input_ids  # noqa: E402

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
LLAMA = ATTENTION + ["gate_proj", "up_proj", "down_proj"]
# The model, the arguments of `LoraConfig`, and whether llama.cpp's converter and reader take the adapter.
CASES = {
    "llama": ("llama-tiny", dict(r=4, lora_alpha=8, target_modules=LLAMA + ["lm_head"]), True),
    # What one module has and another has not. llama.cpp's converter keeps `lora_alpha` alone of this.
    "llama-patterns": ("llama-tiny", dict(
        r=4, lora_alpha=6, use_rslora=True, target_modules=LLAMA,
        rank_pattern={"q_proj": 2, "layers.1.mlp.up_proj": 6, "^model.layers.0.mlp.down_proj": 3},
        alpha_pattern={"v_proj": 12, "layers.0.self_attn.v_proj": 3, "^model.layers.1.self_attn.o_proj": 1},
    ), False),
    "llama-some-layers": ("llama-tiny", dict(
        r=3, lora_alpha=3, target_modules=["q_proj", "v_proj"], layers_to_transform=[1]), True),
    # What takes the place of the model's own: the output matrix with factors, and the whole embedding.
    "llama-saved": ("llama-tiny", dict(
        r=4, lora_alpha=8, target_modules=["lm_head", "q_proj"], modules_to_save=["embed_tokens"]), False),
    "llama-embedding": ("llama-tiny", dict(r=4, lora_alpha=8, target_modules=["embed_tokens", "q_proj"]), True),
    # Conv1D: stored [in, out], queries, keys and values in one matrix. llama.cpp's converter turns such adapters round twice.
    "gpt2": ("gpt2-tiny", dict(
        r=4, lora_alpha=8, fan_in_fan_out=True, target_modules=["c_attn", "c_proj", "c_fc"]), False),
    # Queries, keys and values in one matrix, gate and up in another.
    "phi3": ("phi3-tiny", dict(
        r=4, lora_alpha=8, target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]), True),
    "qwen3moe": ("qwen3moe-tiny", dict(r=4, lora_alpha=8, target_modules=ATTENTION), True),
}


def drawn(model, seed):
    """Both factors of each pair drawn: peft begins with a B of zeros."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                random = np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())]))
                values = 0.2 * random.standard_normal(tuple(parameter.shape))
                parameter.copy_(torch.from_numpy(values.astype(np.float32)))
            elif "modules_to_save" in name or "lm_head.base_layer" in name:
                random = np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())]))
                parameter.add_(torch.from_numpy(0.1 * random.standard_normal(tuple(parameter.shape)).astype(np.float32)))


def distance(found, wanted):
    difference = float(np.abs(found - wanted).max())
    return {"max_abs": difference, "relative": difference / float(np.abs(wanted).max())}


def make(name, args):
    base, arguments, in_llama_cpp = CASES[name]
    spec, source, out = SPECS[base], MODELS / base, OUT / name
    ids = input_ids(spec)
    model = get_peft_model(load(spec, source), LoraConfig(**arguments))
    if name == "llama-saved":
        # Not the tensor of the model that is compared with.
        model.base_model.model.lm_head.base_layer.weight.data = model.base_model.model.lm_head.base_layer.weight.data.clone()
    drawn(model, spec["seed"])
    out.mkdir(exist_ok=True)
    # Else without the matrix itself, which peft would repeat.
    model.save_pretrained(out, save_embedding_layers=name == "llama-saved")
    (out / "README.md").unlink(missing_ok=True)
    config = json.loads((out / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = base
    for key, value in config.items():
        if key in ("target_modules", "layers_to_transform") and isinstance(value, list):
            config[key] = sorted(value)
    (out / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")

    apart = PeftModel.from_pretrained(load(spec, source), out).eval()
    kept_apart = logits(apart, ids)
    wanted = logits(apart.merge_and_unload(), ids)
    plain = logits(load(spec, source), ids)
    wanted.astype("<f4").tofile(out / "expected.bin")
    expected = {
        "model": base, "input_ids": ids,
        "logits": {"file": "expected.bin", "shape": list(wanted.shape), "max_abs": float(np.abs(wanted).max())},
        "kept_apart": distance(kept_apart, wanted),
        "mistakes": {"no adapter": distance(plain, wanted)},
    }
    if in_llama_cpp:
        script = args.llama_cpp / "convert_lora_to_gguf.py"
        subprocess.run([sys.executable, script, out, "--base", source, "--outfile", out / "adapter.gguf"],
                       check=True, capture_output=True)
        with tempfile.NamedTemporaryFile() as file:
            subprocess.run([args.oracle, "lora", source / "model.gguf", out / "adapter.gguf", file.name]
                           + [str(i) for i in ids], check=True, capture_output=True)
            found = np.fromfile(file.name, dtype="<f4").reshape(wanted.shape)
        expected["llama_cpp_on_gguf"] = distance(found, wanted)
    if args.weighbridge:
        with tempfile.TemporaryDirectory() as folder:
            to = Path(folder) / "merged"
            subprocess.run([args.weighbridge, "convert", source, to, "--to", "hf", "--lora", out], check=True, capture_output=True)
            expected["transformers_on_converted"] = distance(logits(load(spec, to), ids), wanted)
    (out / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    print(name, {key: value for key, value in expected.items() if key not in ("input_ids", "logits")})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--llama-cpp", type=Path, required=True)
    parser.add_argument("--oracle", type=Path, required=True)
    parser.add_argument("--weighbridge", type=Path)
    parser.add_argument("names", nargs="*", default=list(CASES))
    arguments = parser.parse_args()
    for name in arguments.names or CASES:
        make(name, arguments)
