"""Which metadata keys GGUF has and which of them llama.cpp reads for each architecture of ours. Writes gguf_keys.json.

    python gguf_keys.py LLAMA_CPP        (a source tree of llama.cpp; commit 0c1e57098 was used)

How it is found:

- `gguf_py`: every constant of `Keys` and its inner classes in gguf-py/gguf/constants.py, imported; `{arch}` stands for
  the architecture.
- `llama_cpp`: the table `LLM_KV_NAMES` of src/llama-arch.cpp, `%s` written as `{arch}`.
- `common`: the keys that src/llama-model.cpp's `load_hparams`, `tensor_extra` and the chat template, src/llama-vocab.cpp and
  src/llama-model-loader.cpp read for every model.
- `architectures`: those that the architecture's own `load_arch_hparams` in src/models/*.cpp reads, and, of
  `load_hparams`, those in a branch for this architecture. A call of `load_swa_pattern` reads what that function reads.

A call is `get_key`, `get_key_or_arr`, `get_arr` or `get_arr_n` with an `LLM_KV_` name, or a name handed to
`gguf_find_key` or kept in a table of keys. A key is `required` if no argument of the call is `false` and the call is in
no branch; `branch` has the condition of the innermost branch. What is read in a branch for other architectures alone
is left out.
"""

import argparse
import importlib.util
import json
import re
from pathlib import Path

OUT = Path(__file__).with_suffix(".json")
# GGUF's name, and the file in src/models that has it.
OURS = {"llama": "llama", "gemma3": "gemma3", "gpt2": "gpt2", "qwen2": "qwen2", "qwen3": "qwen3",
        "qwen3moe": "qwen3moe", "phi3": "phi3", "deepseek2": "deepseek2", "gpt-oss": "openai-moe", "bert": "bert",
        "starcoder2": "starcoder2", "granite": "granite", "olmo2": "olmo2", "gemma2": "gemma2", "falcon": "falcon",
        "qwen35": "qwen35"}


def gguf_py(tree):
    """`{constant: key}`, by importing the file alone."""
    spec = importlib.util.spec_from_file_location("constants", tree / "gguf-py/gguf/constants.py")
    constants = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(constants)
    out = {}

    def walk(cls, prefix):
        for name, value in vars(cls).items():
            if isinstance(value, str) and not name.startswith("_"):
                out[f"{prefix}{name}"] = value
            elif isinstance(value, type):
                walk(value, f"{prefix}{name}.")

    walk(constants.Keys, "")
    return out


def without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


def names(tree):
    text = without_comments((tree / "src/llama-arch.cpp").read_text())
    table = re.search(r"LLM_KV_NAMES = \{(.*?)\n\};", text, re.S).group(1)
    found = dict(re.findall(r"\{\s*(LLM_KV_\w+)\s*,\s*\"([^\"]+)\"\s*\}", table))
    assert len(found) == table.count("LLM_KV_"), "a row of another shape"
    return {k: v.replace("%s", "{arch}") for k, v in found.items()}


def architectures(tree):
    text = (tree / "src/llama-arch.cpp").read_text()
    return {name: kind for kind, name in re.findall(r"\{\s*(LLM_ARCH_\w+)\s*,\s*\"([^\"]+)\"\s*\}", text)}


def body(text, head):
    """The body of the function whose definition contains `head`."""
    start = text.index("{", text.index(head))
    depth = 0
    for i in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return text[start + 1:i]
    raise SystemExit(f"`{head}` has no end")


def branches(text):
    """`(start, end, condition)` of every `if (…) {…}`, its `else` and every other braced statement."""
    out = []
    for match in re.finditer(r"\bif \(", text):
        close = matching(text, match.end() - 1, "()")
        condition = " ".join(text[match.end():close].split())
        after = close + 1
        while True:
            rest = text[after:]
            brace = re.match(r"\s*\{", rest)
            if not brace:
                break
            start = after + brace.end() - 1
            end = matching(text, start, "{}")
            out.append((start, end, condition))
            other = re.match(r"\s*else(?=\s*\{)", text[end + 1:])
            if not other:
                break
            after, condition = end + 1 + other.end(), f"not ({condition})"
    return out


def matching(text, start, pair):
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == pair[0]) - (text[i] == pair[1])
        if depth == 0:
            return i
    raise SystemExit("no end")


def calls(text):
    """`[(LLM_KV, required, branch)]`."""
    inside, out = branches(text), []
    for match in re.finditer(r"\b(get_key|get_key_or_arr|get_arr|get_arr_n)\((?:kv\(|llm_kv\()?(LLM_KV_\w+)", text):
        end = matching(text, text.index("(", match.start()), "()")
        arguments = text[match.start():end]
        around = [b for b in inside if b[0] < match.start() < b[1]]
        branch = min(around, key=lambda b: b[1] - b[0])[2] if around else None
        out.append((match[2], "false" not in arguments and branch is None, branch))
    for match in re.finditer(r"gguf_find_key\(\w+, kv\((LLM_KV_\w+)\)", text):
        out.append((match[1], False, "asked by name"))
    for match in re.finditer(r"\{\s*(LLM_KV_TOKENIZER_\w+)\s*,\s*special_\w+\s*\}", text):
        out.append((match[1], False, "in a table"))
    return out


def others_only(branch, kind):
    """Whether the branch is for architectures that do not include `kind` (None: any of ours)."""
    mine = {kind} if kind else set()
    said = set(re.findall(r"arch == (LLM_ARCH_\w+)", branch or ""))
    return bool(said) and not said & mine and not (branch or "").startswith("not")


def rows(found, table):
    out = {}
    for name, required, branch in found:
        row = {"required": required}
        if branch:
            row["branch"] = branch
        known = out.setdefault(table[name], row)
        known["required"] = known["required"] or required
    return dict(sorted(out.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path)
    tree = parser.parse_args().tree
    table, kinds = names(tree), architectures(tree)
    model = without_comments((tree / "src/llama-model.cpp").read_text())
    hparams = calls(body(model, "void llama_model_base::load_hparams"))
    pattern = calls(body(model, "void llama_model_base::load_swa_pattern"))
    vocab = calls(without_comments((tree / "src/llama-vocab.cpp").read_text()))
    loader = calls(without_comments((tree / "src/llama-model-loader.cpp").read_text()))
    elsewhere = [(name, False, "asked by name") for name in (
        "LLM_KV_TOKENIZER_CHAT_TEMPLATE", "LLM_KV_GENERAL_TENSOR_EXTRA_NAME", "LLM_KV_GENERAL_TENSOR_EXTRA_PREC_A4",
        "LLM_KV_SPLIT_NO", "LLM_KV_GENERAL_ALIGNMENT")]
    common = [c for c in hparams if not re.search(r"\barch == ", c[2] or "")] + vocab + loader + elsewhere
    result = {
        "llama_cpp_commit": "0c1e57098", "gguf_py": gguf_py(tree), "llama_cpp": table,
        "common": rows(common, table), "architectures": {},
    }
    for name, file in OURS.items():
        text = without_comments((tree / f"src/models/{file}.cpp").read_text())
        own = body(text, "load_arch_hparams")
        found = calls(own) + [c for c in hparams if re.search(r"\barch == ", c[2] or "") and not others_only(c[2], kinds[name])]
        if "load_swa_pattern(" in own:
            found += [(n, r, b or "load_swa_pattern") for n, r, b in pattern]
        result["architectures"][name] = rows(found, table)
    unknown = sorted({k for k in result["llama_cpp"].values() if k not in result["gguf_py"].values()})
    result["llama_cpp_keys_not_in_gguf_py"] = unknown
    OUT.write_text(pretty(result) + "\n")
    print(f"{len(result['gguf_py'])} keys of gguf-py, {len(table)} of llama.cpp, {len(result['common'])} read for every model")
    for name, found in result["architectures"].items():
        print(f"{name:10} {', '.join(found)}")
    print("not in gguf-py:", ", ".join(unknown))


def pretty(value, depth=0):
    """JSON with an entry a line."""
    if isinstance(value, dict) and value and depth < 3 and len(json.dumps(value)) > 110:
        pad = " " * (depth + 1)
        rows = [f"{pad}{json.dumps(k)}: {pretty(v, depth + 1)}" for k, v in value.items()]
        return "{\n" + ",\n".join(rows) + "\n" + " " * depth + "}"
    return json.dumps(value)


if __name__ == "__main__":
    main()
