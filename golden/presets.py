"""What llama-quantize makes of models, tensor by tensor: presets/<model>.tsv, and the headers of the models.

    pip install torch==2.15.0 transformers==5.23.0 safetensors==0.8.0 numpy==2.4.6 gguf==0.19.0
    python presets.py --llama-cpp DIR --quantize LLAMA_QUANTIZE [--keep DIR] [NAME…]

DIR is a source tree of llama.cpp, LLAMA_QUANTIZE the program that was built of it (commit 0c1e57098 was used). Models are
built by transformers and converted by llama.cpp, as in families.py, with as many layers and as wide as the rules of
llama-quantize ask for. `--keep` keeps the models and what was made of them, for comparing bytes.

presets/<model>.gguf  the model without its tensors' data: `bytes` of the table says how long the whole file is.
presets/<model>.tsv   file type, `imatrix` if there was an importance matrix or `-`, what, value. What is a key of the metadata, or
                      tensors: `{n}` stands for the layers in their order, `q6_k*2 q4_k` for the types of three of
                      them. Tensors that are not listed have the type that they had.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from itertools import groupby
from pathlib import Path

import numpy as np
import torch

from families import natural, saved, write_gguf
from families_specs import SPECS, released

OUT = Path(__file__).parent / "presets"
PLAIN = ["Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "IQ4_XS", "IQ4_NL", "Q4_0", "Q4_1", "Q4_K_S", "Q4_K_M", "Q5_0", "Q5_1",
         "Q5_K_S", "Q5_K_M", "Q6_K", "Q8_0", "MXFP4_MOE", "F16", "BF16", "F32"]  # fmt: skip
ALIASES = ["Q3_K", "Q4_K", "Q5_K"]
# What takes no other importance than having some, and what needs it.
GUIDED = ["Q2_K_S", "Q2_K", "IQ4_XS", "IQ4_NL", "Q4_0", "Q5_0", "Q4_K_M"]

DENSE = dict(hidden_size=256, intermediate_size=256, num_attention_heads=8, head_dim=32)
NO_HEAD_DIM = {"head_dim": None}
# Model: family of families_specs.py, type that the converter writes, and what differs.
MODELS = {
    # Untied, two query heads for one of keys; sixteen layers have an eighth and a sixteenth part.
    "llama": ("llama", "MOSTLY_F16", dict(DENSE, num_key_value_heads=4, num_hidden_layers=16)),
    # Tied, four query heads for one of keys.
    "llama-tied": ("llama-tied", "MOSTLY_BF16", dict(DENSE, num_key_value_heads=2, num_hidden_layers=32)),
    "llama-70b": ("llama", "ALL_F32", dict(DENSE, num_key_value_heads=1, num_hidden_layers=80)),
    "llama-65b": ("llama", "MOSTLY_F16", dict(DENSE, num_key_value_heads=8, num_hidden_layers=80)),
    "qwen2-72b": ("qwen2", "MOSTLY_F16",
                  dict(DENSE, **NO_HEAD_DIM, num_key_value_heads=8, num_hidden_layers=80)),
    # Widths of SmolLM2-135M, smaller: blocks of 32 fit, blocks of 256 do not.
    "smollm2": ("llama-tied", "ALL_F32", dict(hidden_size=288, intermediate_size=768, num_attention_heads=9, head_dim=32,
                                             num_key_value_heads=3, num_hidden_layers=10)),
    # No blocks fit.
    "narrow": ("llama", "ALL_F32", dict(hidden_size=80, intermediate_size=144, num_attention_heads=5, head_dim=16,
                                       num_key_value_heads=5, num_hidden_layers=4)),
    "gemma3": ("gemma3", "ALL_F32", dict(DENSE, num_key_value_heads=2, num_hidden_layers=13)),
    "qwen3": ("qwen3", "MOSTLY_BF16", dict(DENSE, num_key_value_heads=2, num_hidden_layers=9)),
    "phi3": ("phi3", "MOSTLY_F16", dict(DENSE, **NO_HEAD_DIM, num_key_value_heads=2, num_hidden_layers=16)),
    "mixtral": ("mixtral", "MOSTLY_F16",
                dict(DENSE, num_key_value_heads=2, num_hidden_layers=16, num_local_experts=8)),
    "qwen3moe": ("qwen3moe", "ALL_F32",
                 dict(DENSE, num_key_value_heads=1, num_hidden_layers=16, moe_intermediate_size=256)),
    # Experts are MXFP4 already.
    "gpt-oss": ("gpt-oss", "ALL_F32", dict(hidden_size=288, intermediate_size=288, num_attention_heads=8, head_dim=32,
                                          num_key_value_heads=1, num_hidden_layers=12)),
    # A dense layer, then mixtures; keys and values come of a latent vector.
    "deepseek_v3": ("deepseek_v3", "MOSTLY_F16",
                    dict(hidden_size=256, intermediate_size=512, moe_intermediate_size=256, num_hidden_layers=9,
                         num_attention_heads=4, num_key_value_heads=4, q_lora_rank=256, kv_lora_rank=256)),
    "deepseek_v3-8": ("deepseek_v3", "ALL_F32",
                      dict(hidden_size=256, intermediate_size=512, moe_intermediate_size=256, num_hidden_layers=9,
                           num_attention_heads=4, num_key_value_heads=4, n_routed_experts=8)),
    "gpt2": ("gpt2", "ALL_F32", dict(n_layer=12, n_embd=256, n_head=4)),
    "bert": ("bert", "ALL_F32", dict(num_hidden_layers=12, hidden_size=256, num_attention_heads=4, intermediate_size=512)),
}


def build(name, scratch):
    """The model as GGUF, with random weights."""
    family, file_type, differs = MODELS[name]
    spec = dict(SPECS[family])
    arguments = {k: v for k, v in dict(spec["arguments"], **differs).items() if v is not None}
    spec["arguments"] = arguments
    entries = saved(spec, scratch / "saved", spec.get("dtype", "bfloat16"))
    config = json.loads((scratch / "saved" / "config.json").read_text())
    entries, config = released(family, entries, config)
    random = np.random.default_rng(7)
    arrays = {
        n: random.integers(110, 125, s, dtype=np.uint8) if d == "U8" else random.standard_normal(s, np.float32) * np.float32(0.05)
        for n, s, d in sorted(entries, key=natural)
    }  # fmt: skip
    return write_gguf(spec, dict(config, dtype="float32"), arrays, scratch, file_type)


def importance(tensors, path):
    """What llama-imatrix would write of a run in which every input was driven."""
    from gguf import GGUFWriter

    random = np.random.default_rng(11)
    writer = GGUFWriter(path, "", use_temp_file=False)
    writer.add_type("imatrix")
    writer.add_array("imatrix.datasets", ["random"])
    writer.add_uint32("imatrix.chunk_count", 1)
    writer.add_uint32("imatrix.chunk_size", 512)
    for tensor in tensors:
        shape = [int(n) for n in tensor.shape]
        if len(shape) > 1 and tensor.name.endswith(".weight"):
            matrices = shape[2] if len(shape) > 2 else 1
            sums = random.lognormal(0, 1, (matrices, shape[0])).astype(np.float32)
            writer.add_tensor(f"{tensor.name}.in_sum2", sums)
            writer.add_tensor(f"{tensor.name}.counts", np.ones((matrices, 1), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def types(tensors):
    return {t.name: t.tensor_type.name.lower() for t in tensors}


def pattern(name):
    return re.sub(r"^blk\.\d+\.", "blk.{n}.", name)


def runs(values):
    counted = ((value, len(list(run))) for value, run in groupby(values))
    return " ".join(value if count == 1 else f"{value}*{count}" for value, count in counted)


def made(reader, before):
    """Rows of what llama-quantize wrote."""
    for key in ("general.file_type", "general.quantization_version"):
        yield key, str(reader.fields[key].contents())
    after = types(reader.tensors)
    assert set(after) == set(before)
    names = sorted(after, key=natural)
    for what in dict.fromkeys(map(pattern, names)):
        own = [n for n in names if pattern(n) == what]
        if any(before[n] != after[n] for n in own):
            yield what, runs(after[n] for n in own)


def make(name, options):
    from gguf import GGUFReader

    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        scratch = Path(scratch)
        model = build(name, scratch)
        reader = GGUFReader(model)
        before = types(reader.tensors)
        (OUT / f"{name}.gguf").write_bytes(model.read_bytes()[: min(t.data_offset for t in reader.tensors)])
        imatrix = scratch / "imatrix.gguf"
        importance(reader.tensors, imatrix)
        rows = [("", "", "bytes", str(model.stat().st_size))]
        aliases = ALIASES if name == "llama" else []
        for guide, file_types in (("-", PLAIN + aliases), ("imatrix", GUIDED)):
            for file_type in file_types:
                out = scratch / f"{file_type}-{guide}.gguf"
                guided = ["--imatrix", imatrix] if guide == "imatrix" else []
                subprocess.run([options.quantize, "--allow-requantize", *guided, model, out, file_type, "2"],
                               check=True, capture_output=True)
                rows += [(file_type, guide, *row) for row in made(GGUFReader(out), before)]
                if not options.keep:
                    out.unlink()
        if options.keep:
            subprocess.run(["cp", "-r", scratch, options.keep / name], check=True)
    text = "# llama-quantize of llama.cpp@0c1e57098\n" + "".join("\t".join(row) + "\n" for row in rows)
    (OUT / f"{name}.tsv").write_text(text)
    print(f"{name:16} {len(before):4} tensors, {len(text) // 1000} kB", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-cpp", type=Path, required=True)
    parser.add_argument("--quantize", type=Path, required=True)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--scratch", type=Path, help="where models are made")
    parser.add_argument("names", nargs="*", default=list(MODELS))
    options = parser.parse_args()
    sys.path[:0] = [str(options.llama_cpp), str(options.llama_cpp / "gguf-py")]
    torch.set_num_threads(1)
    OUT.mkdir(exist_ok=True)
    for name in options.names:
        make(name, options)


if __name__ == "__main__":
    main()
