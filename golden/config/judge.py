"""Holds our GGUF against llama.cpp and transformers, case by case of perturb/. Writes judged/ and docs/fidelity-gguf.md.

    python judge.py --llama-cpp DIR --oracle PATH --weighbridge PATH --logits PATH [--failures FILE] [FAMILY…]

DIR is a source tree of llama.cpp (commit 0c1e57098 was used), PATH of `--oracle` the built golden/models/llama_oracle.cpp,
of `--weighbridge` our command, of `--logits` our example `logits` (crates/weighbridge/examples).

Four ways from a config.json with its weights to logits, each measured as max |a - b| over max |b|:

- `ours`: our converter writes a GGUF, llama.cpp runs it (f32 cache, no flash attention); b is transformers on the
  original.
- `back`: our converter makes a directory of that GGUF again, transformers runs it; b is transformers on the original.
- `theirs`: llama.cpp's own converter writes a GGUF, our reference backend runs it; b is llama.cpp on the same GGUF.
  `llama_cpp` beside it is llama.cpp on it against transformers: what their conversion loses.
- `theirs_back`: our converter makes a directory of their GGUF, transformers runs it; b is llama.cpp on the same GGUF.

Of these two b may be transformers on the original (`as`), where llama.cpp reads a key that it does not heed.

`ours` is asked of every case that transformers runs, the others of one case for each different result. `kv` has the
GGUF's keys below the architecture and its tensors of rotary factors: all of them for the first case, for the others what
differs from it, null for what is not there. Where llama.cpp on their GGUF is not transformers, its logits are row `at`
of judged/NAME.bin. Cases that come out as the first one are not listed.
"""

import argparse
import hashlib
import io
import json
import logging
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from contextlib import redirect_stderr
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

from perturb import KEPT, OUT, changed, distance, one_line
from perturb_specs import FAMILIES

logging.disable(logging.ERROR)
warnings.filterwarnings("ignore")
transformers.utils.logging.disable_progress_bar()

HERE = Path(__file__).parent
# Texts with padding within them, whose positions GGUF does not say; biases that llama.cpp does not have; no architecture there.
NOT_JUDGED = ("roberta", "xlm_roberta", "modernbert", "mpnet")
JUDGED = HERE / "judged"
# What is let pass; llama.cpp looks gelu up in a table of f16.
NEAR, NEAR_WITH_GELU = 1e-3, 5e-3


class Family:
    def __init__(self, name, options, scratch):
        self.name, self.options, self.scratch = name, options, scratch
        self.golden = json.loads((OUT / f"{name}.json").read_text())
        self.rows = np.fromfile(OUT / f"{name}.bin", "<f4").reshape(self.golden["rows"], KEPT, -1)
        self.ids = self.golden["ids"]
        self.seen, self.first_kv, self.lost = {}, {}, []

    def directory(self, case):
        out = self.scratch / "model"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        (out / "config.json").write_text(json.dumps(changed(self.golden["config"], case)))
        weights = OUT / f"{self.name}.safetensors"
        if case.get("drop"):
            kept = {k: v for k, v in load_file(weights).items() if k not in case["drop"]}
            save_file(kept, out / "model.safetensors", metadata={"format": "pt"})
        else:
            shutil.copy(weights, out / "model.safetensors")
        return out

    def last(self, path):
        return np.fromfile(path, "<f4").reshape(len(self.ids), -1)[-KEPT:]

    def llama_cpp(self, gguf):
        """Logits of llama.cpp, or what it says."""
        command = "states" if FAMILIES[self.name].get("auto") == "AutoModel" else "logits"
        return self.asked([self.options.oracle, command, self.within(gguf)], "llama.cpp")

    def within(self, gguf):
        """The GGUF; of LongRoPE whose first context holds the text, a copy with a first context of 256.

        llama.cpp takes the long factors where a context has room for more than the first one (src/llama-model.cpp,
        `get_rope_factors`), and its contexts have room for 256 positions at least.
        """
        from gguf import GGUFReader

        if not any(tensor.name == "rope_factors_long.weight" for tensor in GGUFReader(gguf).tensors):
            return gguf
        copy = self.scratch / "within.gguf"
        shutil.copy(gguf, copy)
        reader = GGUFReader(copy, "r+")
        field = reader.fields[f"{self.name}.rope.scaling.original_context_length"]
        first = field.parts[field.data[0]]
        if len(self.ids) <= first[0] < 256:
            first[0] = 256
        reader.data.flush()
        return copy

    def engine(self, path):
        return self.asked([self.options.logits, path], "ours")

    def asked(self, command, who):
        out = self.scratch / "logits.bin"
        out.unlink(missing_ok=True)
        said = subprocess.run([*map(str, command), str(out), *map(str, self.ids)], capture_output=True, text=True)
        if said.returncode or not out.exists():
            return {"refused": first(said.stderr) or f"{who} ended with {said.returncode}"}
        return self.last(out)

    def transformers(self, directory):
        name = FAMILIES[self.name].get("auto", "AutoModelForCausalLM")
        # GGUF has the text model alone of a model of several parts.
        alone = "text_config" not in json.loads((directory / "config.json").read_text())
        auto = getattr(transformers, "AutoModelForCausalLM" if alone and "ImageText" in name else name)
        try:
            model, info = auto.from_pretrained(
                directory, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
            # GGUF has no pooler of BERT, which the hidden states do not go through.
            missing = sorted(k for k in info["missing_keys"] if not k.startswith("pooler."))
            if missing or info["mismatched_keys"]:
                return {"unreadable": f"tensors missing: {missing[:2]}"}
            with torch.no_grad():
                out = model.eval()(input_ids=torch.tensor([self.ids]), use_cache=False)
        except Exception as error:  # noqa: BLE001: whatever it says is the answer
            return {"unreadable": one_line(error)}
        return (out.logits if "logits" in out else out.last_hidden_state)[0, -KEPT:].float().numpy()

    def convert(self, source, to, *more):
        """Our converter: None, or what it says."""
        shutil.rmtree(to, ignore_errors=True)
        to.unlink(missing_ok=True)
        command = [self.options.weighbridge, "convert", source, to, *more]
        said = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if said.returncode:
            return {"refused": first(said.stderr)}
        return None

    def their_gguf(self, directory, to):
        """llama.cpp's own converter: None, or what it says."""
        from conversion import get_model_class
        from conversion.base import gguf

        config = json.loads((directory / "config.json").read_text())
        vocab = config.get("text_config", config)["vocab_size"]
        pieces = {f"<{i}>": i for i in range(vocab)}
        (directory / "tokenizer.json").write_text(json.dumps({"model": {"type": "WordPiece", "vocab": pieces}, "added_tokens": []}))
        config.setdefault("n_ctx", config.get("n_positions"))  # transformers 4 wrote it; GPT2Model reads it
        if self.name == "nomic_bert":
            config = as_released(config)
        if self.name == "modernbert_plain":
            # Released files say it twice, and the converter writes what llama.cpp reads of this one alone.
            config.setdefault("layer_norm_eps", config.get("norm_eps", 1e-5))
        (directory / "config.json").write_text(json.dumps(config))
        try:
            model_class = get_model_class(config["architectures"][0])

            class Converter(model_class):
                model_arch = model_class.model_arch
                # As `--no-mtp` does; otherwise the converter of Qwen 3.5 wants the `mtp.*` tensors.
                no_mtp = model_class.no_mtp or self.name.startswith("qwen35")

                def set_vocab(self):
                    self._set_vocab_none()
                    if not any("vocab_size" in key for part in self.gguf_writer.kv_data for key in part):
                        self.gguf_writer.add_vocab_size(vocab)
                    if "type_vocab_size" in config or self.model_arch == gguf.MODEL_ARCH.BERT:
                        self.gguf_writer.add_token_type_count(config.get("type_vocab_size", 1))

            Converter.__name__ = model_class.__name__
            with torch.inference_mode(), redirect_stderr(io.StringIO()):
                Converter(directory, gguf.LlamaFileType.ALL_F32, to, eager=True).write()
        except Exception as error:  # noqa: BLE001
            return {"refused": "llama.cpp's converter: " + one_line(error)}
        finally:
            (directory / "tokenizer.json").unlink()
        return None

    # ------------------------------------------------------------ the four ways

    def ours(self, case, wanted):
        gguf, back = self.scratch / "ours.gguf", self.scratch / "back"
        refused = self.convert(self.directory(case), gguf)
        if refused:
            return refused, refused
        digest = hashlib.sha256(gguf.read_bytes()).hexdigest()
        if digest not in self.seen:
            found = self.llama_cpp(gguf)
            if isinstance(found, dict):
                found = {"unreadable": found["refused"]}
            again = self.convert(gguf, back, "--to", "hf")
            again = self.transformers(back) if again is None else again
            self.seen[digest] = found, again, read_kv(gguf)
        found, again, kv = self.seen[digest]
        return {**measured(found, wanted), "kv": self.kv("ours", kv)}, measured(again, wanted)

    def theirs(self, case, wanted):
        gguf, back = self.scratch / "theirs.gguf", self.scratch / "back"
        gguf.unlink(missing_ok=True)
        refused = self.their_gguf(self.directory(case), gguf)
        if refused:
            return {"theirs": refused}
        digest = hashlib.sha256(gguf.read_bytes()).hexdigest()
        if digest not in self.seen:
            reads = self.llama_cpp(gguf)
            again = self.convert(gguf, back, "--to", "hf")
            self.seen[digest] = reads, self.engine(gguf), self.transformers(back) if again is None else again
        reads, runs, again = self.seen[digest]
        if isinstance(reads, dict):
            return {"theirs": {"refused": "llama.cpp: " + reads["refused"]}}
        result = {"llama_cpp": measured(reads, wanted), "theirs": self.either(case, runs, reads, wanted),
                  "theirs_back": self.either(case, again, reads, wanted)}
        result["theirs"]["kv"] = self.kv("theirs", read_kv(gguf))
        if not is_right(self.name, case, result["llama_cpp"]):
            result["theirs"]["at"] = len(self.lost)
            self.lost.append(reads)
        return result

    def either(self, case, found, reads, wanted):
        """Against llama.cpp; where that ignores a key of the file, what transformers made of it is as right."""
        first, second = measured(found, reads), measured(found, wanted)
        if is_right(self.name, case, first) or not is_right(self.name, case, second):
            return first
        return {**second, "as": "original"}

    def kv(self, whose, found):
        """What the first case has not, or has otherwise."""
        base = self.first_kv.setdefault(whose, {})
        self.first_kv[whose] = base or found
        return {k: found.get(k) for k in [*found, *(k for k in base if k not in found)] if found.get(k) != base.get(k)}


def as_released(config):
    """With the names of nomic-embed-text-v1.5, which the converter reads."""
    c = transformers.NomicBertConfig(**{k: v for k, v in config.items() if k != "architectures"}).to_dict()
    return {**config, **c, "architectures": config["architectures"], "activation_function": "swiglu" if c["hidden_act"] == "silu" else c["hidden_act"], "causal": False,
            "n_embd": c["hidden_size"], "n_head": c["num_attention_heads"], "n_inner": c["intermediate_size"],
            "n_layer": c["num_hidden_layers"], "n_positions": 8192, "max_trained_positions": 2048,
            "layer_norm_epsilon": c["layer_norm_eps"], "rotary_emb_base": c["rope_parameters"]["rope_theta"],
            "mlp_fc1_bias": False, "mlp_fc2_bias": False, "qkv_proj_bias": False, "prenorm": False, "rotary_emb_fraction": 1.0,
            "rotary_emb_interleaved": False, "rotary_emb_scale_base": None}


def read_kv(path):
    """Keys below the architecture, and computed tensors."""
    from gguf import GGUFReader

    reader = GGUFReader(path)
    fields = {k: f.contents() for k, f in reader.fields.items()}
    arch = fields["general.architecture"]
    found = {k: v for k, v in fields.items() if k.startswith(f"{arch}.")}
    return found | {t.name: [float(v) for v in t.data] for t in reader.tensors if t.name.startswith("rope_f")}


def first(text):
    """The message without paths, in a line."""
    text = re.sub(re.escape(tempfile.gettempdir()) + r"/\w+/", "", text)
    text = re.sub(r"llama_model_load\w*: (error loading model: )*|failed to load model|llama_oracle: cannot.*", "", text)
    text = re.sub(r"\S*/(\w+\.cpp:\d+: GGML_ASSERT\(.*\) failed)[\s\S]*", r"\1", text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(line for line in lines if not line.startswith(("hint:", "note:")))[:300]


def measured(found, wanted):
    if isinstance(found, dict):
        return dict(found)
    if found.shape != wanted.shape:
        return {"unreadable": f"logits {list(found.shape)}"}
    if not np.isfinite(found).all():
        return {"unreadable": "logits that are not finite"}
    return {"error": float(f"{distance(found, wanted):.2g}")}


def bound(family, case):
    act = {**FAMILIES[family]["arguments"], **case.get("set", {})}
    names = [act.get(k) for k in ("hidden_act", "hidden_activation", "activation_function")]
    by_itself = ("gpt2", "gemma2", "gemma3", "bert", "starcoder2", "falcon", "falcon_grouped", "distilbert", "modernbert_plain")
    gelu = family in by_itself or any("gelu" in str(n) for n in names)
    return NEAR_WITH_GELU if gelu else NEAR


def shown(case):
    parts = [f"{k} = {json.dumps(v)}" for k, v in case.get("set", {}).items()]
    parts += [f"no {k}" for k in case.get("remove", [])] + [f"without the tensor {k}" for k in case.get("drop", [])]
    return ", ".join(parts) or "as it is"


def is_right(family, case, what):
    """An error within the bound, or a refusal; what nobody can read is neither."""
    return "refused" in what or "error" in what and what["error"] <= bound(family, case)


def judge(name, options, scratch):
    family = Family(name, options, scratch)
    cases = [{"outcome": "same"}] + [c for c in family.golden["cases"] if c["outcome"] in ("same", "moved")]
    rows, results = set(), []
    for case in cases:
        row = case.get("row", 0)
        wanted = family.rows[row]
        key = {k: case[k] for k in ("set", "remove", "drop") if k in case}
        ours, back = family.ours(key, wanted)
        result = {**key, "row": row, "ours": ours, "back": back}
        if row not in rows and "drop" not in case:
            result.update(family.theirs(key, wanted))
        rows.add(row)
        results.append(result)
    JUDGED.mkdir(exist_ok=True)
    np.array(family.lost, "<f4").tofile(JUDGED / f"{name}.bin")
    return results


WAYS = ["ours", "back", "theirs", "theirs_back"]


def wrong(name, results):
    for result in results:
        for way in WAYS:
            if way in result and not is_right(name, result, result[way]):
                what = {k: v for k, v in result[way].items() if k != "kv"}
                yield f"{name} | {way} | {shown(result)} | {json.dumps(what)}"


def counts(name, results, way):
    asked = [r[way] for r in results if way in r]
    right = sum("error" in w and is_right(name, r, w) for r in results if (w := r.get(way)))
    refused = sum("refused" in w for w in asked)
    return f"{len(asked)} asked, {right} equal, {refused} refused, {len(asked) - right - refused} wrong"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("llama-cpp", "oracle", "weighbridge", "logits"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--failures", type=Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    sys.path[:0] = [str(options.llama_cpp), str(options.llama_cpp / "gguf-py")]
    torch.set_num_threads(1)
    versions = {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0],
                "llama.cpp": "0c1e57098"}
    # Our command does not know families that only a program registers.
    ours = [name for name, of in FAMILIES.items() if not of.get("registered") and name not in NOT_JUDGED]
    for name in options.names or ours:
        with tempfile.TemporaryDirectory() as scratch:
            results = judge(name, options, Path(scratch))
        asked = {way: counts(name, results, way) for way in WAYS}
        known = {"versions": versions, "counts": asked, "cases": results}
        (JUDGED / f"{name}.json").write_text(pretty(known) + "\n")
        for way in WAYS:
            print(f"{name:12} {way:12} {asked[way]}", flush=True)
        if options.failures:
            lines = options.failures.read_text().splitlines() if options.failures.exists() else []
            lines = [line for line in lines if not line.startswith(f"{name} |")] + list(wrong(name, results))
            options.failures.write_text("\n".join(lines) + "\n")
    (HERE / "../../docs/fidelity-gguf.md").write_text(table())


def cell(family, case, way):
    """An error, "refused", or in bold what should not be."""
    what = case.get(way)
    if what is None:
        return ""
    if "refused" in what:
        return "refused"
    text = f"{what['error']:.0e}" if "error" in what else "unreadable"
    return text if way == "llama_cpp" or is_right(family, case, what) else f"**{text}**"


def short(counted):
    _, equal, refused, wrong = (int(part.split()[0]) for part in counted.split(", "))
    return f"{equal}, {refused} refused" + (f", **{wrong} wrong**" if wrong else "")


def largest(cases, way):
    errors = [case[way]["error"] for case in cases if "error" in case.get(way, {})]
    return f"{max(errors):.0e}" if errors else ""


def table():
    """One row for each different result of transformers."""
    known = {n: json.loads((JUDGED / f"{n}.json").read_text()) for n in FAMILIES if (JUDGED / f"{n}.json").exists()}
    used = {}
    for of in known.values():
        for name, version in of["versions"].items():
            used.setdefault(name, set()).add(version)
    versions = ", ".join(f"{name} {' and '.join(sorted(all_of))}" for name, all_of in used.items())
    out = ["# GGUF, case by case", "", f"Written by `golden/config/judge.py`; {versions}.", "",
           "Small models of each family, in F32: each key of config.json is removed, nulled, changed, written in old forms and",
           "contradicted. Errors are max |a - b| over max |b| of logits; llama.cpp has an f32 cache and no flash attention. Up to",
           "1e-3 is let pass, or 5e-3 where there is a gelu, which llama.cpp looks up in a table of f16.", "",
           "- **ours**: llama.cpp on the GGUF that we write, against transformers on the original.",
           "- **back**: transformers on the directory that we make of that GGUF, against transformers on the original.",
           "- **theirs**: our reference backend on the GGUF that llama.cpp's converter writes, against llama.cpp on it.",
           "- **theirs, back**: transformers on the directory that we make of it, against the same.",
           "- **lost by them**: llama.cpp on the GGUF that its converter writes, against transformers on the original.", "",
           "Refused are also families that our engine does not run, and cases that llama.cpp's converter refuses.", ""]
    out += ["| family | ours | largest | back | largest | theirs | largest | theirs, back | largest |", "|---" * 9 + "|"]
    for name, of in known.items():
        cells = [part for way in WAYS for part in (short(of["counts"][way]), largest(of["cases"], way))]
        out.append("| " + " | ".join([name, *cells]) + " |")
    out += ["", "A cell has how many cases came out equal and how many were refused; a test holds that none is wrong.", ""]
    for name, of in known.items():
        out += [f"## {name}", "", "| config.json | ours | back | theirs | theirs, back | lost by them |",
                "|---|---|---|---|---|---|"]
        for case in of["cases"]:
            if "theirs" in case:
                cells = [cell(name, case, way) for way in (*WAYS, "llama_cpp")]
                out.append("| " + " | ".join([f"`{shown(case)}`", *cells]) + " |")
        out.append("")
    return "\n".join(out)


def pretty(known):
    """JSON with a case a line."""
    base, *others = known["cases"]
    # What comes out as the first case does is counted, and not listed.
    plain = {"row": 0, "ours": {**base["ours"], "kv": {}}, "back": base["back"]}
    others = [r for r in others if {k: r[k] for k in r if k not in ("set", "remove", "drop")} != plain]
    rows = ",\n  ".join(json.dumps(r) for r in [base, *others])
    parts = [f' "{key}": {json.dumps(known[key])}' for key in ("versions", "counts")]
    return "{\n" + ",\n".join([*parts, ' "cases": [\n  ' + rows + "\n ]"]) + "\n}"


if __name__ == "__main__":
    main()
