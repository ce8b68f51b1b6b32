"""What mlx-lm makes of models with each of its recipes: presets/mlx/<model>.json.

    pip install torch==2.15.0 transformers==5.23.0 safetensors==0.8.0 numpy==2.4.6
    python presets_mlx.py build DIR             # small random models, as transformers saves them, in DIR/<model>
    pip install 'mlx[cpu]==0.32.4' mlx-lm==0.32.2
    python presets_mlx.py make DIR              # what mlx-lm makes of them
    python presets_mlx.py judge MODEL PRESET CONVERTED   # whether a directory that another program wrote is the same

A file has `config` and the `tensors` of the model, `[name, shape]`; under `mlx` the names that mlx-lm has for them, with
`{n}` for layers; and under `presets` the bits of each of them that mlx-lm
quantises, by mlx-lm's name with `{n}` for layers, and layer by layer where these differ.
"""

import json
import re
import sys
from pathlib import Path

OUT = Path(__file__).parent / "presets" / "mlx"
DENSE = dict(hidden_size=128, intermediate_size=192, num_attention_heads=4, num_key_value_heads=2, head_dim=32)
NO_HEAD_DIM = {"head_dim": None}
MODELS = {
    "llama": ("llama", dict(DENSE, num_hidden_layers=16)),
    "llama-tied": ("llama-tied", dict(DENSE, num_hidden_layers=8)),
    # Its feed-forward network has no whole groups.
    "qwen3": ("qwen3", dict(DENSE, num_hidden_layers=9, intermediate_size=160)),
    "gemma3": ("gemma3", dict(DENSE, num_hidden_layers=7)),
    "phi3": ("phi3", dict(DENSE, **NO_HEAD_DIM, num_hidden_layers=8)),
    "mixtral": ("mixtral", dict(DENSE, num_hidden_layers=8)),
    "qwen3moe": ("qwen3moe", dict(DENSE, num_hidden_layers=8, moe_intermediate_size=64)),
    "deepseek_v3": ("deepseek_v3", dict(num_hidden_layers=8, q_lora_rank=128, qk_nope_head_dim=64, v_head_dim=64)),
}
PRESETS = {f"mlx-{bits}bit": dict(bits=bits) for bits in (3, 4, 5, 6, 8)} | {
    recipe: dict(recipe=recipe) for recipe in ("mixed_2_6", "mixed_3_4", "mixed_3_6", "mixed_4_6")
}  # fmt: skip


LAYER = re.compile(r"layers\.(\d+)\.")


def build(directory):
    from families import header, saved
    from families_specs import SPECS, released

    for name, (family, differs) in MODELS.items():
        spec = dict(SPECS[family])
        spec["arguments"] = {k: v for k, v in dict(spec["arguments"], **differs).items() if v is not None}
        to = directory / name
        to.mkdir(parents=True)
        entries = saved(spec, to, spec.get("dtype", "bfloat16"))
        _, config = released(family, entries, json.loads((to / "config.json").read_text()))
        # As transformers 4 wrote it: mlx-lm asks for it.
        config.setdefault("rope_theta", config.get("rope_parameters", {}).get("rope_theta", 10000.0))
        if family == "qwen3moe":
            config["num_experts"] = config.pop("num_local_experts", None) or config["num_experts"]
        (to / "config.json").write_text(json.dumps(config, indent=1))
        assert header(to / "model.safetensors") == entries


def quantised(directory, arguments):
    """The model and its configuration after `mlx_lm.convert -q`, as `convert` of mlx-lm does it."""
    import mlx.core as mx
    from mlx_lm.convert import mixed_quant_predicate_builder
    from mlx_lm.utils import load_model, quantize_model

    model, config = load_model(directory, lazy=True)
    predicate = arguments.get("recipe") and mixed_quant_predicate_builder(arguments["recipe"], model)
    bits = arguments.get("bits")
    model, config = quantize_model(model, config, None, bits, quant_predicate=predicate)
    mx.eval(model.parameters())
    return model, config


def parameters(directory):
    from mlx.utils import tree_flatten
    from mlx_lm.utils import load_model

    return [name for name, _ in tree_flatten(load_model(directory, lazy=True)[0].parameters())]


def bits(model):
    return {path: module.bits for path, module in model.named_modules() if hasattr(module, "bits")}


def make(directory):
    from safetensors import safe_open

    OUT.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        with safe_open(directory / name / "model.safetensors", "np") as file:
            tensors = sorted([n, file.get_slice(n).get_shape()] for n in file.keys())
        config = json.loads((directory / name / "config.json").read_text())
        names = sorted({LAYER.sub("layers.{n}.", n) for n in parameters(directory / name)})
        presets = {}
        for preset, arguments in PRESETS.items():
            try:
                found = bits(quantised(directory / name, arguments)[0])
            except ValueError as error:
                presets[preset] = {"error": str(error)}
                continue
            presets[preset] = patterns({f"{path}.weight": bits for path, bits in found.items()})
        text = json.dumps({"source": "mlx-lm 0.32.2, mlx 0.32.4", "config": config}, indent=1)[:-2]
        rows = ",\n".join("  " + json.dumps(row) for row in tensors)
        text += f',\n "tensors": [\n{rows}\n ],\n "mlx": {json.dumps(names)},\n "presets": {{\n'
        text += ",\n".join(f"  {json.dumps(p)}: {json.dumps(rows)}" for p, rows in presets.items())
        (OUT / f"{name}.json").write_text(text + "\n }\n}\n")
        print(name, {p: len(rows) for p, rows in presets.items()})


def patterns(own):
    """`{pattern: bits}`, or the bits of each layer that has it."""
    rows = {}
    for name, value in sorted(own.items()):
        layer = LAYER.search(name)
        pattern = LAYER.sub("layers.{n}.", name)
        rows.setdefault(pattern, {})[int(layer[1]) if layer else 0] = value
    rows = {p: [layers[n] for n in sorted(layers)] for p, layers in rows.items()}
    return {p: layers[0] if len(set(layers)) == 1 else layers for p, layers in rows.items()}


def judge(directory, preset, converted):
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.utils import load_model

    wanted, config = quantised(directory, PRESETS[preset])
    found, said = load_model(converted)
    assert bits(found) == bits(wanted), (bits(found), bits(wanted))
    ours, theirs = (dict(tree_flatten(m.parameters())) for m in (found, wanted))
    assert ours.keys() == theirs.keys(), ours.keys() ^ theirs.keys()
    differ = [n for n in theirs if ours[n].shape != theirs[n].shape or not mx.array_equal(ours[n], theirs[n])]
    missing = {k: v for k, v in config["quantization"].items() if said["quantization"].get(k) != v}
    print(f"{directory.name} {preset}: {len(bits(wanted))} modules, {len(theirs)} arrays, {len(differ)} differ", missing or "")


def main():
    match sys.argv[1:]:
        case ["build", directory]:
            build(Path(directory))
        case ["make", directory]:
            make(Path(directory))
        case ["judge", model, preset, converted]:
            judge(Path(model), preset, Path(converted))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
