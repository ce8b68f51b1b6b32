"""What transformers reads of config.json and generation_config.json: every field of each class of our families, its
default, its other names, and what wins where two keys speak of the same thing. Writes fields.json.

    pip install torch==2.13.0 transformers==5.23.0
    python fields.py

How it is found:

- `fields`, `default`: the dataclass fields of the class. Those of the base are under `PreTrainedConfig`, once.
- `taken`: names that the loader takes though they are no fields: the string arguments of `kwargs.pop` and `kwargs.get`
  in `__post_init__` and `convert_rope_params_to_dict`, along the class's bases.
- `read_by_model`: attributes of a `config` that the class's modeling file reads, by its syntax tree.
- `effective`: the attributes after `AutoConfig` has loaded a config.json with `model_type` alone.
- `precedence`: the same for a config.json with keys that contradict each other; `sees` has the attributes that
  differ from `effective`, or `error` what the loader says.
- `rope`: for each kind, the keys that its function reads and those that its check wants or knows, by the syntax tree
  of modeling_rope_utils.py.
- `generation`, `quantization`: `GenerationConfig` and the arguments of each quantisation's class.
"""

import ast
import dataclasses
import importlib
import inspect
import json
import logging
import re
import tempfile
import textwrap
from pathlib import Path

import torch
import transformers
from transformers import modeling_rope_utils
from transformers.configuration_utils import PreTrainedConfig
from transformers.utils import quantization_config

logging.disable(logging.WARNING)
OUT = Path(__file__).with_suffix(".json")

CLASSES = [
    "LlamaConfig", "MistralConfig", "Gemma3TextConfig", "Gemma3Config", "GPT2Config", "Qwen2Config", "Qwen3Config",
    "Qwen3MoeConfig", "Phi3Config", "MixtralConfig", "DeepseekV2Config", "DeepseekV3Config", "Kimi_K25Config",
    "GptOssConfig", "BertConfig", "WhisperConfig", "Starcoder2Config", "GraniteConfig", "Olmo2Config", "Gemma2Config",
    "FalconConfig", "RobertaConfig", "XLMRobertaConfig", "CamembertConfig", "DistilBertConfig", "MPNetConfig",
    "ModernBertConfig", "NomicBertConfig", "Qwen3_5TextConfig",
]


def plain(value):
    """The value as JSON has it."""
    if isinstance(value, PreTrainedConfig):
        return plain(value.to_dict())
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if hasattr(value, "value") and not isinstance(value, (str, int, float)):
        return plain(value.value)
    return value


def fields(cls):
    inherited = set() if cls is PreTrainedConfig else {f.name for f in dataclasses.fields(PreTrainedConfig)}
    own = {f.name: f for f in dataclasses.fields(cls)}
    base = {f.name: f for f in dataclasses.fields(PreTrainedConfig)}
    out = {}
    for name, field in own.items():
        if name in inherited and field.default == base[name].default:
            continue
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        kind = field.type if isinstance(field.type, str) else str(field.type).replace("<class '", "").replace("'>", "")
        out[name] = {"type": kind, "default": plain(default)}
    return out


def taken(cls):
    """String arguments of `kwargs.pop` and `kwargs.get` where a config.json becomes the class."""
    names = set()
    for base in cls.__mro__:
        for method in ("__post_init__", "convert_rope_params_to_dict"):
            if method not in vars(base):
                continue
            function = inspect.unwrap(vars(base)[method])
            for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
                if (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
                        and node.func.attr in ("pop", "get") and isinstance(node.func.value, ast.Name)
                        and node.func.value.id == "kwargs" and isinstance(node.args[0], ast.Constant)):
                    names.add(node.args[0].value)
    return sorted(names)


def read_by_model(cls):
    module = importlib.import_module(cls.__module__.replace("configuration_", "modeling_"))
    names = set()
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Attribute):
            of = node.value
            if isinstance(of, ast.Name) and of.id.endswith("config") or (
                    isinstance(of, ast.Attribute) and of.attr.endswith("config")):
                names.add(node.attr)
        if (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr"
                and isinstance(node.args[1], ast.Constant)):
            names.add(node.args[1].value)
    known = {f.name for f in dataclasses.fields(cls)} | set(cls.attribute_map) | {"qk_head_dim", "rope_parameters"}
    return sorted(names & known)


def loaded(config):
    """The attributes of what `AutoConfig` makes of this config.json."""
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "config.json").write_text(json.dumps(config))
        result = transformers.AutoConfig.from_pretrained(directory)
    skipped = {"transformers_version", "ignore_keys_at_rope_validation"}
    return {k: v for k, v in plain(vars(result)).items() if k not in skipped and not k.startswith("_")}


def said(error):
    """What the loader says, in one line; sets have no order of their own."""
    line = " ".join(f"{type(error).__name__}: {error}".split())
    return re.sub(r"\{([^{}:]*)\}", lambda m: "{" + ", ".join(sorted(m[1].split(", "))) + "}", line)[:300]


def sees(config, effective):
    try:
        found = loaded(config)
    except Exception as error:  # noqa: BLE001: whatever it says is the answer
        return {"error": said(error)}
    missing = object()
    differing = {k: found.get(k) for k in sorted(set(found) | set(effective))
                 if found.get(k, missing) != effective.get(k, missing)}
    return {"sees": differing}


# ---------------------------------------------------------------- what wins


YARN = {"rope_type": "yarn", "factor": 4.0}


def rotary():
    """For every class with rotary frequencies."""
    yield {"rope_theta": 5000.0}
    yield {"rope_parameters": None}
    yield {"rope_parameters": {}}
    yield {"rope_parameters": {"rope_theta": 7000.0}}
    yield {"rope_parameters": {"rope_type": "default", "rope_theta": 7000.0}, "rope_theta": 5000.0}
    yield {"rope_parameters": {"rope_type": "linear", "factor": 2.0}, "rope_theta": 5000.0}
    yield {"rope_parameters": {"rope_type": "linear", "factor": 2.0}}
    yield {"rope_scaling": None}
    yield {"rope_scaling": {}}
    yield {"rope_scaling": {"type": "linear", "factor": 2.0}}
    yield {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    yield {"rope_scaling": {"type": "linear", "rope_type": "dynamic", "factor": 2.0}}
    yield {"rope_scaling": {"type": "dynamic", "rope_type": "linear", "factor": 2.0}}
    yield {"rope_scaling": {"factor": 2.0}}
    yield {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "rope_theta": 7000.0}}
    yield {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "rope_theta": 7000.0}, "rope_theta": 5000.0}
    yield {"rope_scaling": {"rope_theta": 7000.0}}
    yield {"rope_scaling": {"rope_type": "linear", "factor": 2.0},
           "rope_parameters": {"rope_type": "dynamic", "factor": 3.0, "rope_theta": 7000.0}}
    yield {"rope_scaling": None, "rope_parameters": {"rope_type": "dynamic", "factor": 3.0, "rope_theta": 7000.0}}
    yield {"rope_scaling": YARN}
    yield {"rope_scaling": dict(YARN, original_max_position_embeddings=64)}
    yield {"rope_scaling": YARN, "original_max_position_embeddings": 32}
    yield {"rope_scaling": dict(YARN, original_max_position_embeddings=64), "original_max_position_embeddings": 32}
    yield {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}}
    yield {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}
    yield {"rope_scaling": {"rope_type": "unheard-of", "factor": 8.0}}
    yield {"partial_rotary_factor": 0.5}
    yield {"partial_rotary_factor": 0.5, "rope_parameters": {"rope_theta": 7000.0, "partial_rotary_factor": 0.25}}
    yield {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 7000.0}}}
    yield {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 7000.0},
                               "sliding_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 6000.0}}}


def windows(kind):
    four = {"num_hidden_layers": 4}
    mixed = ["full_attention", "sliding_attention", "full_attention", "sliding_attention"]
    yield {"sliding_window": 16}
    yield {"sliding_window": None}
    yield {**four, "layer_types": mixed}
    yield {**four, "layer_types": mixed, "sliding_window": 16}
    yield {**four, "layer_types": mixed[:3]}
    yield {**four, "layer_types": ["unheard-of"] * 4}
    if kind.startswith("qwen"):
        yield {**four, "use_sliding_window": True}
        yield {**four, "use_sliding_window": True, "sliding_window": 16, "max_window_layers": 2}
        yield {**four, "use_sliding_window": True, "sliding_window": 16, "max_window_layers": 4}
        yield {**four, "use_sliding_window": True, "sliding_window": 16, "max_window_layers": 4, "layer_types": mixed}
        yield {**four, "use_sliding_window": False, "sliding_window": 16, "max_window_layers": 0, "layer_types": mixed}
        yield {**four, "use_sliding_window": True, "sliding_window": None, "max_window_layers": 0}
    if kind.startswith("gemma3"):
        yield {**four, "sliding_window_pattern": 2}
        yield {**four, "_sliding_window_pattern": 2}
        yield {**four, "sliding_window_pattern": 2, "layer_types": mixed[:1] * 4}
        yield {**four, "use_bidirectional_attention": True, "sliding_window": 16}
        yield {"rope_local_base_freq": 5000.0}
        yield {"rope_local_base_freq": 5000.0, "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 7000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 6000.0}}}


def nested(part, inner):
    for keys in inner:
        yield {part: keys}
    yield {part: {"vocab_size": 300, "tie_word_embeddings": True}, "vocab_size": 200, "tie_word_embeddings": False}
    yield {part: {"tie_word_embeddings": False}}
    yield {part: {"eos_token_id": 5}, "eos_token_id": 6}
    yield {part: {"dtype": "float16"}, "dtype": "bfloat16"}


def experiments(cls):
    kind = cls.model_type
    yield {"torch_dtype": "float16"}
    yield {"torch_dtype": "float16", "dtype": "bfloat16"}
    yield {"architectures": ["UnheardOfForCausalLM"]}
    yield {"num_labels": 3}
    yield {"temperature": 0.5, "max_length": 30}
    yield {"unheard_of": 1}
    names = {f.name for f in dataclasses.fields(cls)}
    for alias, name in cls.attribute_map.items():
        default = fields(cls).get(name, fields(cls).get(alias, {})).get("default")
        if isinstance(default, int):
            yield {alias: default + 2}
            yield {alias: default + 2, name: default + 4}
    if "rope_parameters" in names and not kind.startswith("gemma3"):
        yield from rotary()
    if kind == "gemma3_text":
        yield from rotary()
        yield {"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "rope_theta": 5000.0,
               "rope_local_base_freq": 6000.0}
    if "sliding_window" in names:
        yield from windows(kind)
    if "head_dim" in names:
        yield {"head_dim": None}
        yield {"hidden_size": 64, "num_attention_heads": 4}
    if "num_key_value_heads" in names:
        yield {"num_key_value_heads": None}
        yield {"num_attention_heads": 16}
    if kind in ("gemma3", "kimi_k25"):
        inner = {"gemma3": [{"rope_theta": 5000.0}, {"sliding_window": 16, "num_hidden_layers": 4}],
                 "kimi_k25": [{"rope_scaling": YARN}, {"n_group": 1, "topk_group": 1}]}[kind]
        yield from nested("text_config", inner)
        yield {"hidden_size": 64}
    if kind in ("deepseek_v2", "deepseek_v3"):
        yield {"head_dim": 48}
        yield {"qk_head_dim": 48}
        yield {"topk_method": "unheard-of", "scoring_func": "softmax", "aux_loss_alpha": 0.5, "seq_aux": True,
               "moe_layer_freq": 2, "ep_size": 2, "num_nextn_predict_layers": 3}
        yield {"rope_scaling": dict(YARN, mscale=1.0, mscale_all_dim=0.5, beta_fast=16, beta_slow=2)}
    if kind == "phi3":
        longrope = {"short_factor": [1.0] * 48, "long_factor": [2.0] * 48}
        for name in ("longrope", "su", "yarn"):
            yield {"rope_scaling": dict(longrope, type=name), "original_max_position_embeddings": 2048}
        yield {"rope_scaling": dict(longrope, type="longrope", original_max_position_embeddings=1024),
               "original_max_position_embeddings": 2048}
    if kind == "qwen3_moe":
        yield {"num_local_experts": 5}
        yield {"num_experts": 6, "num_local_experts": 5}
        yield {"mlp_only_layers": None}
    if kind == "qwen3_5_text":
        kinds = ["linear_attention", "full_attention"] * 2
        yield {"num_hidden_layers": 4}
        yield {"num_hidden_layers": 4, "full_attention_interval": 2}
        yield {"num_hidden_layers": 4, "full_attention_interval": 3, "layer_types": kinds}
        yield {"num_hidden_layers": 4, "layer_types": kinds[:3]}
        yield {"num_hidden_layers": 4, "layer_types": ["unheard-of"] * 4}
        yield {"rope_parameters": {"rope_theta": 7000.0, "mrope_section": [3, 3, 2], "mrope_interleaved": True}}
    if kind == "gpt_oss":
        yield {"experts_per_token": 2}
        yield {"initial_context_length": 2048, "rope_scaling_factor": 8.0}


# ---------------------------------------------------------------- rotary kinds


def string_keys(function, of):
    """Constant keys that a function reads of the dictionaries named in `of`."""
    names = set()
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and is_of(node.value, of):
            names.add(node.slice.value)
        if (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get"
                and is_of(node.func.value, of)):
            names.add(node.args[0].value)
    return sorted(n for n in names if isinstance(n, str))


def is_of(node, of):
    return isinstance(node, ast.Name) and node.id in of or isinstance(node, ast.Attribute) and node.attr in of


def sets_of(function):
    """`required_keys` and `optional_keys` of a check."""
    out = {}
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Set) and isinstance(node.targets[0], ast.Name):
            out[node.targets[0].id] = sorted(ast.literal_eval(node.value))
    return out


def rope():
    out = {"kinds": {}, "typed": sorted(modeling_rope_utils.RopeParameters.__annotations__)}
    mixin = modeling_rope_utils.RotaryEmbeddingConfigMixin
    for kind in ["default", *modeling_rope_utils.ROPE_INIT_FUNCTIONS]:
        function = modeling_rope_utils.ROPE_INIT_FUNCTIONS.get(kind)
        reads = string_keys(function, {"rope_parameters_dict", "rope_parameters"}) if function else [
            "partial_rotary_factor", "rope_theta"]
        known = sets_of(getattr(mixin, f"_validate_{kind}_rope_parameters"))
        out["kinds"][kind] = {"reads": reads, "required": known.get("required_keys", []),
                              "optional": known.get("optional_keys", []) + ["partial_rotary_factor"]}
    return out


def quantization():
    out = {}
    for name, cls in vars(quantization_config).items():
        if inspect.isclass(cls) and issubclass(cls, quantization_config.QuantizationConfigMixin) and name.endswith("Config"):
            arguments = inspect.signature(cls.__init__).parameters.values()
            out[name] = {p.name: plain(p.default) if p.default is not inspect.Parameter.empty else "(required)"
                         for p in arguments if p.name not in ("self", "kwargs") and p.kind is not p.VAR_POSITIONAL}
    return {n: {k: v if isinstance(v, (int, float, str, list, dict, bool, type(None))) else str(v)
                for k, v in of.items()} for n, of in out.items()}


def pretty(value, depth=0):
    """JSON with an entry a line."""
    if isinstance(value, (dict, list)) and len(json.dumps(value)) > 150 and depth < 5:
        pad = " " * (depth + 1)
        if isinstance(value, dict):
            rows = [f"{pad}{json.dumps(k)}: {pretty(v, depth + 1)}" for k, v in value.items()]
            return "{\n" + ",\n".join(rows) + "\n" + " " * depth + "}"
        if any(isinstance(v, (dict, list)) for v in value):
            return "[\n" + ",\n".join(pad + pretty(v, depth + 1) for v in value) + "\n" + " " * depth + "]"
    return json.dumps(value)


def main():
    result = {"versions": {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]}}
    base = {"fields": fields(PreTrainedConfig), "taken": taken(PreTrainedConfig)}
    result["PreTrainedConfig"] = base
    result["classes"] = {}
    for name in CLASSES:
        cls = getattr(transformers, name)
        effective = loaded({"model_type": cls.model_type})
        precedence = []
        for keys in experiments(cls):
            precedence.append({"config": keys, **sees({"model_type": cls.model_type, **keys}, effective)})
        result["classes"][name] = {
            "model_type": cls.model_type, "fields": fields(cls), "attribute_map": cls.attribute_map,
            "taken": sorted(set(taken(cls)) - set(base["taken"])), "read_by_model": read_by_model(cls),
            "effective": effective, "precedence": precedence,
        }
        print(f"{name:20} {len(result['classes'][name]['fields']):3} fields, {len(precedence):3} experiments")
    result["rope"] = rope()
    result["generation"] = {k: plain(v) for k, v in sorted(vars(transformers.GenerationConfig()).items())
                            if k not in ("transformers_version",)}
    result["quantization"] = quantization()
    OUT.write_text(pretty(result) + "\n")
    print(f"{OUT.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
