"""Asks llama.cpp to continue four prompts with two real models: continuations.json.

    cargo xtask models smollm2 gemma3
    g++ … llama_oracle.cpp      (see its head)
    python continuations.py --oracle PATH --quantize PATH [--models DIR]

`quantize` is llama.cpp's llama-quantize: it writes each model once more with all weights in F32, so that
nothing but f32 arithmetic is left between the file and the logits.
"""

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
STEPS, TOP = 32, 5
PROMPTS = [
    ("smollm2", "The capital of France is"),
    ("smollm2", "Once upon a time, in a small village by the sea,"),
    ("gemma3", "Once upon a time, in a small village by the sea,"),
    ("gemma3", "def fibonacci(n):"),
]


def run(*command):
    return json.loads(subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE).stdout)


def continued(answer):
    return {"ids": [step[0][0] for step in answer["top"]], "text": answer["text"], "top": answer["top"]}


def ask(oracle, stored, widened, model, prompt):
    native = run(oracle, "greedy", stored, STEPS, TOP, prompt, "f16")
    exact = run(oracle, "greedy", widened, STEPS, TOP, prompt, "f32")
    assert native["prompt_ids"] == exact["prompt_ids"]
    native_ids = continued(native)["ids"]
    ids = native["prompt_ids"] + native_ids
    forced = run(oracle, "forced", widened, len(native["prompt_ids"]), TOP, "f32", *ids)
    return {
        "model": model,
        "prompt": prompt,
        "prompt_ids": native["prompt_ids"],
        "native": continued(native),
        "dequantized": continued(exact),
        "dequantized_along_native": {"top": forced["top"]},
    }


def summarise(row):
    """Where the f32 weights would have gone another way than llama.cpp did, and by how much."""
    print(f"{row['model']}: {row['prompt']!r}")
    print(f"  native      {row['native']['text']!r}\n  dequantized {row['dequantized']['text']!r}")
    for step, (chosen, top) in enumerate(zip(row["native"]["ids"], row["dequantized_along_native"]["top"])):
        logits = {id: logit for id, logit, _ in top}
        if top[0][0] != chosen:
            behind = top[0][1] - logits[chosen] if chosen in logits else float("nan")
            print(f"  step {step}: {chosen} is {behind:.3f} behind {top[0][0]}")
    pairs = zip(row["native"]["top"], row["dequantized_along_native"]["top"])
    apart = [abs(logit - dict((i, v) for i, v, _ in b)[id]) for a, b in pairs for id, logit, _ in a
             if id in {i for i, _, _ in b}]
    print(f"  logits apart: mean {sum(apart) / len(apart):.3f}, most {max(apart):.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--oracle", type=Path, required=True)
    parser.add_argument("--quantize", type=Path, required=True)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weighbridge/models"
    parser.add_argument("--models", type=Path, default=Path(os.environ.get("WEIGHBRIDGE_MODELS") or cache))
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for model, prompt in PROMPTS:
            stored = options.models / model / f"{model}.gguf"
            widened = Path(scratch) / f"{model}.gguf"
            if not widened.exists():
                subprocess.run([options.quantize, "--allow-requantize", stored, widened, "F32"], check=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            rows.append(ask(options.oracle, stored, widened, model, prompt))
            summarise(rows[-1])
    made_by = {"llama.cpp": "0c1e57098", "steps": STEPS, "machine": cpu()}
    lines = ",\n".join("  " + as_lines(row) for row in rows)
    text = f'{{\n "made_by": {json.dumps(made_by)},\n "prompts": [\n{lines}\n ]\n}}\n'
    json.loads(text)
    (HERE / "continuations.json").write_text(text)


def as_lines(row):
    parts = []
    for key, value in row.items():
        if isinstance(value, dict):
            inner = [f"    {json.dumps(k)}: " + (steps(v) if k == "top" else json.dumps(v)) for k, v in value.items()]
            parts.append(f"   {json.dumps(key)}: {{\n" + ",\n".join(inner) + "\n   }")
        else:
            parts.append(f"   {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n  }"


def steps(top):
    return "[\n" + ",\n".join("     " + json.dumps(step) for step in top) + "\n    ]"


def cpu():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            wanted = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8")
            return " ".join(flag for flag in wanted if flag in line.split())
    return "unknown"


if __name__ == "__main__":
    main()
