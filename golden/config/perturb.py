"""What each key of config.json does to the logits of a small model, by transformers. Writes perturb/.

    pip install torch==2.13.0 transformers==5.23.0 safetensors==0.8.0 numpy==2.4.6
    python perturb.py [FAMILY…]

For each family of perturb_specs.py: a seeded model whose every part matters (biases that are not 0, norms that are not
1, grouped queries, a text longer than the window), and a config.json with every field of its class written out. Then
each case changes this config.json and loads the same weights through `AutoModel…`: every field removed, nulled and set
to other values, other names and old forms of fields, and every field that only classes of other families have.

README.md says what is in the files.
"""

import argparse
import dataclasses
import json
import logging
import os
import re
import sys
import tempfile
import warnings
import zlib
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

from perturb_specs import FAMILIES, cases

logging.disable(logging.WARNING)
warnings.filterwarnings("ignore")
transformers.utils.logging.disable_progress_bar()

OUT = Path(__file__).parent / "perturb"
# Logits of this many last positions are kept.
KEPT = 8
# What rounding does: below it two results are the same.
NOISE = 2e-6


def draw(name, shape, spec, seed):
    """Values of one parameter: they depend on the seed, the name and nothing else."""
    random = np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())]))
    values = random.standard_normal(shape)
    for end, (mean, deviation) in spec.get("drawn", {}).items():
        if name.endswith(end):
            return mean + deviation * values
    if re.search(r"norm|ln_", name.lower()) and name.endswith("weight"):
        return spec.get("norm_mean", 1.0) + 0.3 * values
    if "embed" in name or "wte" in name or "wpe" in name:
        return spec.get("embedding_std", 0.03) * values
    if name.endswith(("bias", "sinks")):
        return 0.3 * values
    return spec.get("std", 0.3) * values


def build(family, spec, directory, seed):
    """Saves the model, as `save_pretrained` names its tensors, and gives back config.json with every field."""
    config = getattr(transformers, spec["config"])(**json.loads(json.dumps(spec["arguments"])))
    config.dtype = "float32"
    model = getattr(transformers, spec["architecture"])(config).eval().float()
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(torch.from_numpy(draw(name, tuple(tensor.shape), spec, seed).astype(np.float32)))
    model.save_pretrained(directory)
    written = {"model_type": config.model_type, "architectures": [spec["architecture"]]}
    for field in (f.name for f in dataclasses.fields(config)):
        if field not in ("transformers_version", "architectures"):
            written[field] = spec["arguments"].get(field, getattr(config, field))
    written.update(spec["arguments"], dtype="float32")
    written["id2label"] = written["label2id"] = None
    weights = load_file(directory / "model.safetensors")
    save_file({k: weights[k] for k in sorted(weights)}, OUT / f"{family}.safetensors", metadata={"format": "pt"})
    return json.loads(json.dumps(written))


def changed(config, case):
    out = dict(config, **case.get("set", {}))
    for key in case.get("remove", []):
        out.pop(key, None)
    return out


def one_line(error):
    line = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", f"{type(error).__name__}: {error}").split())
    line = re.sub(r"/tmp/\w+", "DIR", line)
    return re.sub(r"\{([^{}:]*)\}", lambda m: "{" + ", ".join(sorted(m[1].split(", "))) + "}", line)[:240]


def run(family, spec, config, case, ids):
    """`(outcome, details)`; details has `logits` where there are any."""
    with tempfile.TemporaryDirectory() as directory:
        directory = Path(directory)
        (directory / "config.json").write_text(json.dumps(changed(config, case)))
        stored = OUT / f"{family}.safetensors"
        if case.get("drop"):
            weights = {k: v for k, v in load_file(stored).items() if k not in case["drop"]}
            save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
        else:
            os.symlink(stored.resolve(), directory / "model.safetensors")
        try:
            auto = getattr(transformers, spec.get("auto", "AutoModelForCausalLM"))
            model, info = auto.from_pretrained(
                directory, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
        except Exception as error:  # noqa: BLE001: whatever it says is the answer
            text = one_line(error)
            return ("shape" if "mismatch" in text.lower() else "error"), {"says": text}
        if info["mismatched_keys"]:
            return "shape", {"says": f"{len(info['mismatched_keys'])} tensors of other shapes"}
        if missing := sorted(k for k in info["missing_keys"]):
            return "shape", {"says": f"{len(missing)} tensors missing, first `{missing[0]}`"}
        details = {}
        if info["unexpected_keys"]:
            details["unused"] = len(info["unexpected_keys"])
        try:
            with torch.no_grad():
                out = model.eval()(input_ids=torch.tensor([ids]), use_cache=False)
        except Exception as error:  # noqa: BLE001
            return "error", {"says": one_line(error)}
        # The first of a tuple, which `return_dict: false` gives, is the same.
        logits = (out[0] if isinstance(out, tuple) else out.logits if "logits" in out else out.last_hidden_state)
        logits = logits[0, -KEPT:].float().numpy()
        if not np.isfinite(logits).all():
            return "error", {"says": "logits that are not finite"}
        return "ran", {**details, "logits": logits}


def distance(found, wanted):
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def make(family, spec, versions):
    seed = 100 + list(FAMILIES).index(family)
    vocab = spec["arguments"].get("text_config", spec["arguments"])["vocab_size"]
    random = np.random.Generator(np.random.PCG64([seed, 1]))
    # The last ids stand for images, where there are any.
    ids = [int(i) for i in random.integers(3, vocab - (4 if "text_config" in spec["arguments"] else 1), spec.get("tokens", 24))]
    for place, token in spec.get("put", {}).items():
        ids[place] = token
    with tempfile.TemporaryDirectory() as directory:
        config = build(family, spec, Path(directory), seed)
    outcome, details = run(family, spec, config, {}, ids)
    assert outcome == "ran" and not details.get("unused"), (family, outcome, details)
    base, rows, results = details["logits"], [details["logits"]], []
    counts = {}
    for case in cases(family, spec, config):
        outcome, details = run(family, spec, config, case, ids)
        logits = details.pop("logits", None)
        if outcome == "ran" and logits.shape != base.shape:
            outcome, details = "shape", {"says": f"logits {list(logits.shape)}"}
        elif outcome == "ran":
            by = distance(logits, base)
            outcome = "same" if by <= NOISE else "moved"
            if outcome == "moved":
                row = next((i for i, known in enumerate(rows) if distance(known, logits) < 1e-6), len(rows))
                if row == len(rows):
                    rows.append(logits)
                details = {"by": float(f"{by:.3g}"), "row": row, **details}
        results.append({**case, "outcome": outcome, **details})
        counts[outcome] = counts.get(outcome, 0) + 1
    mark_inert(results)
    np.stack(rows).astype("<f4").tofile(OUT / f"{family}.bin")
    result = {"source": versions, "ids": ids, "positions": KEPT, "width": int(base.shape[1]), "rows": len(rows),
              "config": config, "cases": results}
    path = OUT / f"{family}.json"
    path.write_text(pretty(result) + "\n")
    sizes = [(OUT / f"{family}.{end}").stat().st_size // 1000 for end in ("json", "bin", "safetensors")]
    print(f"{family:12} {len(results):4} cases {counts}, {sizes} kB", flush=True)


def mark_inert(results):
    """Marks the errors of keys that, wherever the model ran, left the logits alone: the loader dislikes the type of a
    value that has no effect."""
    def keys(case):
        return {*case.get("set", {}), *case.get("remove", [])}

    ran, acting = set(), set()
    for case in results:
        if case["outcome"] == "same":
            ran |= keys(case)
        elif case["outcome"] != "error" and len(keys(case)) == 1 and not case.get("drop"):
            acting |= keys(case)
    for case in results:
        if case["outcome"] == "error" and keys(case) <= ran - acting and not case.get("drop"):
            case["inert"] = True


def pretty(value):
    """JSON with a case a line."""
    out = []
    for key, of in value.items():
        if isinstance(of, dict) and len(of) > 4:
            text = "{\n  " + ",\n  ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in of.items()) + "\n }"
        elif isinstance(of, list) and isinstance(of[0], dict):
            text = "[\n  " + ",\n  ".join(json.dumps(v) for v in of) + "\n ]"
        else:
            text = json.dumps(of)
        out.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(out) + "\n}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    names = parser.parse_args().names or list(FAMILIES)
    torch.set_num_threads(1)
    OUT.mkdir(exist_ok=True)
    versions = {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]}
    for name in names:
        make(name, FAMILIES[name], versions)


if __name__ == "__main__":
    sys.exit(main())
