"""Checks that others read what `weighbridge convert` writes, and keeps what they said in interchange/results.json.

    pip install torch==2.15.0 transformers==5.23.0 safetensors==0.8.0 gguf==0.19.0 tokenizers
    cargo build --release -p weighbridge-cli
    python interchange.py --weighbridge ../target/release/weighbridge --models ~/.cache/weighbridge/models \
        --llama-completion PATH --mlx-python PATH [--work DIR]

--models is where `cargo xtask models` put smollm2 and gemma3, PATH a built llama-completion of llama.cpp (commit
0c1e57098 was used), and a python that has mlx-lm. Every check that fails is in the results, and makes the script fail.

What is compared with what:
- gguf-py reads the GGUF made of each small model of models/, and finds the names, types, shapes and bytes that
  llama.cpp's own converter gave;
- transformers loads the directory made of each real GGUF, and writes the text that models/continuations.json has of
  the same weights in f32; its tokenizer gives the ids of tokenizer/*.json;
- llama.cpp loads the GGUF made of that directory, and writes the same text;
- mlx-lm loads the directories made for it, plain and of 4 bits; the plain one gives the same text;
- the Python safetensors reads what was written of every dtype of safetensors/ as it reads the source.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
# Models, and what their conversion loses: llama.cpp reads no key for it.
TINY = {"llama-tiny": [], "llama3-rope-tiny": [], "gemma3-tiny": ["--allow-loss", "query_pre_attn_scalar"], "gpt2-tiny": []}
REAL = ["smollm2", "gemma3"]
STEPS = 32


def run(*command, **kwargs):
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True, **kwargs).stdout


def gguf_py(convert, work):
    """Our GGUF of the small models against llama.cpp's, tensor by tensor."""
    import gguf

    found = {}
    for name, losses in TINY.items():
        ours = convert(HERE / "models" / name, work / f"{name}.gguf", *losses)
        a = {t.name: t for t in gguf.GGUFReader(HERE / "models" / name / "model.gguf").tensors}
        b = {t.name: t for t in gguf.GGUFReader(ours).tensors}
        same = [n for n in a if n in b and (a[n].tensor_type, list(a[n].shape)) == (b[n].tensor_type, list(b[n].shape))]
        other = [n for n in same if a[n].data.tobytes() != b[n].data.tobytes()]
        # f32 there, f64 here; the test of the library bounds the difference.
        allowed = [n for n in other if n == "rope_freqs.weight"]
        found[name] = {"tensors": len(a), "equal": len(same) - len(other), "near": allowed,
                       "ok": len(same) == len(a) == len(b) and other == allowed}
    return found


def wanted_texts(model):
    """Prompt, and the text of the f32 weights; all of one model."""
    prompts = json.loads((HERE / "models/continuations.json").read_text())["prompts"]
    return [(p["prompt"], p["dequantized"]["ids"], p["dequantized"]["text"]) for p in prompts if p["model"] == model]


def transformers_text(directory, model):
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    network = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    texts = []
    for prompt, ids, text in wanted_texts(model):
        inputs = tokenizer(prompt, return_tensors="pt")
        out = network.generate(**inputs, max_new_tokens=STEPS, do_sample=False)[0][inputs.input_ids.shape[1]:].tolist()
        found = tokenizer.decode(out, skip_special_tokens=True)
        # A model that has ended stays so; the file has what llama.cpp went on with.
        ok = out == ids[: len(out)] or found == text
        texts.append({"prompt": prompt, "text": found, "ok": ok})
    cases = json.loads((HERE / f"tokenizer/{model}.json").read_text())
    # transformers always takes special tokens for what they name, as `prompt` does, which also begins with BOS.
    bos = [tokenizer.bos_token_id]
    wrong = [c["text"] for c in cases
             if tokenizer(c["text"], add_special_tokens=False).input_ids
             not in (c["plain"], c["prompt"], c["prompt"][1:] if c["prompt"][:1] == bos else None)]
    return {"texts": texts, "tokenizer_cases": len(cases), "tokenizer_wrong": wrong,
            "ok": all(t["ok"] for t in texts) and not wrong}


def llama_text(binary, gguf_file, model):
    texts = []
    for prompt, _, text in wanted_texts(model):
        out = run(binary, "-m", gguf_file, "-p", prompt, "-n", STEPS, "--temp", 0, "-no-cnv", "--no-display-prompt",
                  "-t", 2, "--no-warmup", stdin=subprocess.DEVNULL)
        found = out.rstrip("\n").removesuffix(" [end of text]")
        texts.append({"prompt": prompt, "text": found, "ok": found.strip() == text.strip()})
    return {"texts": texts, "ok": all(t["ok"] for t in texts)}


MLX = """
import json, sys
from mlx_lm import load, generate
model, tokenizer = load(sys.argv[1])
print(json.dumps([generate(model, tokenizer, prompt=tokenizer.encode(p), max_tokens=int(sys.argv[2])) for p in json.loads(sys.argv[3])]))
"""


def mlx_text(python, directory, model, compared):
    wanted = wanted_texts(model)
    prompts = json.dumps([p for p, _, _ in wanted])
    found = json.loads(run(python, "-c", MLX, directory, STEPS, prompts).splitlines()[-1])
    texts = []
    for (prompt, _, text), said in zip(wanted, found):
        ok = said.strip() == text.strip() if compared else bool(said.strip())
        texts.append({"prompt": prompt, "text": said, "ok": ok})
    return {"texts": texts, "ok": all(t["ok"] for t in texts)}


def safetensors_py(convert, work):
    from safetensors import safe_open

    def read(path):
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}
        return {n: (str(t.dtype), list(t.shape), bytes(t.contiguous().untyped_storage())) for n, t in tensors.items()}

    found = {}
    for source in [HERE / "models" / name / "model.safetensors" for name in TINY]:
        ours = convert(source, work / "copy.safetensors", "--force")
        a, b = read(source), read(ours)
        found[source.parent.name] = {"tensors": len(a), "ok": a == b}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ["weighbridge", "models", "llama-completion", "mlx-python"]:
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--work", type=Path)
    args = parser.parse_args()
    work = args.work or Path(tempfile.mkdtemp(prefix="interchange"))
    work.mkdir(parents=True, exist_ok=True)

    def convert(source, target, *more):
        if not Path(target).exists() or "--force" in more:
            run(args.weighbridge, "convert", source, target, *more)
        return target

    results = {"versions": versions(args), "gguf-py": gguf_py(convert, work)}
    results["safetensors"] = safetensors_py(convert, work)
    results["transformers"], results["llama.cpp"], results["mlx-lm"], results["mlx-lm 4 bits"] = {}, {}, {}, {}
    for model in REAL:
        source = args.models / model / f"{model}.gguf"
        directory = convert(source, work / model, "--to", "hf")
        results["transformers"][model] = transformers_text(directory, model)
        again = convert(directory, work / f"{model}-f32.gguf")
        results["llama.cpp"][model] = llama_text(args.llama_completion, again, model)
        plain = convert(source, work / f"{model}-mlx", "--to", "mlx")
        results["mlx-lm"][model] = mlx_text(args.mlx_python, plain, model, True)
        small = convert(source, work / f"{model}-mlx4", "--to", "mlx", "--preset", "mlx-4bit", "--allow-requantize")
        results["mlx-lm 4 bits"][model] = mlx_text(args.mlx_python, small, model, False)
    out = HERE / "interchange"
    out.mkdir(exist_ok=True)
    (out / "results.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    failed = [f"{who} {what}" for who, all in results.items() if who != "versions"
              for what, one in all.items() if not one["ok"]]
    print("\n".join(f"FAILED {f}" for f in failed) or "all read as meant")
    sys.exit(bool(failed))


def versions(args):
    import gguf  # noqa: F401
    import importlib.metadata as meta

    own = {name: meta.version(name) for name in ["torch", "transformers", "safetensors", "gguf", "tokenizers"]}
    own["mlx-lm"] = run(args.mlx_python, "-c", "import mlx_lm; print(mlx_lm.__version__)").strip()
    return own


if __name__ == "__main__":
    main()
