"""What the reference implementations call the tensors of each family: families/<family>.json.

    pip install torch==2.15.0 transformers==5.23.0 safetensors==0.8.0 numpy==2.4.6 gguf==0.19.0
    python families.py --llama-cpp DIR [NAME…]

DIR is a source tree of llama.cpp (commit 0c1e57098 was used). A small model of each family is built by transformers
and saved by `save_pretrained`; llama.cpp's own converter makes a GGUF of it. families/README.md says what is in a file.

Every element of the checkpoint that the converter gets has a value of its own, an even whole number below 2^24, so what
the converter did with each is read off its output: which tensor and which place it came from, and whether one was added.
The converter's tensor path is untouched; only `set_vocab` is replaced, since these models have no tokenizer.
"""

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from families_specs import SPECS, released

OUT = Path(__file__).parent / "families"
LONGEST = 64  # values of an array, characters of a string that a file keeps


# ---------------------------------------------------------------- the checkpoint


def saved(spec, directory, dtype):
    """`save_pretrained` of the family's model; its header as [name, shape, dtype]."""
    config = getattr(transformers, spec["config"])(**spec["arguments"])
    config.architectures = [spec["architecture"]]
    config.dtype = dtype
    torch.manual_seed(0)
    model = getattr(transformers, spec["architecture"])._from_config(config, dtype=getattr(torch, dtype))
    model.save_pretrained(directory)
    (directory / "generation_config.json").unlink(missing_ok=True)
    return header(directory / "model.safetensors")


def header(path):
    with safe_open(path, "np") as file:
        parts = {name: file.get_slice(name) for name in file.keys()}
        return [[name, part.get_shape(), part.get_dtype()] for name, part in sorted(parts.items(), key=natural)]


def natural(item):
    """Layer 2 before layer 10."""
    name = item if isinstance(item, str) else item[0]
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


NUMPY = {"F32": np.float32, "U8": np.uint8}


def numbered(entries, random):
    """Arrays of the entries: even numbers, each once, and random bytes where an entry holds bytes.

    `A_log` has the logarithms of its numbers, since the converter writes minus its exponential.
    """
    arrays, first = {}, 0
    for name, shape, dtype in entries:
        count = int(np.prod(shape))
        if dtype == "U8":
            arrays[name] = random.integers(0, 256, shape, dtype=np.uint8)
            continue
        numbers = 2 * np.arange(first, first + count)
        numbers = np.log(numbers) if name.endswith("A_log") else numbers
        arrays[name] = numbers.astype(np.float32).reshape(shape)
        first += count
    assert 2 * first < 2**24, first
    return arrays


# ---------------------------------------------------------------- llama.cpp


def write_gguf(spec, config, arrays, scratch, file_type="ALL_F32"):
    """The GGUF that llama.cpp's converter makes."""
    from conversion import get_model_class
    from conversion.base import gguf

    directory = scratch / "model"
    directory.mkdir()
    save_file(arrays, directory / "model.safetensors")
    vocab = config["vocab_size"]
    config.setdefault("n_ctx", config.get("n_positions"))  # transformers 4 wrote it; GPT2Model reads it
    (directory / "config.json").write_text(json.dumps(config))
    # Gemma3Model.modify_tensors cuts the embedding to this tokenizer's size.
    pieces = {f"<{i}>": i for i in range(vocab)}
    (directory / "tokenizer.json").write_text(json.dumps({"model": {"vocab": pieces}, "added_tokens": []}))
    model_class = get_model_class(config["architectures"][0])

    class Converter(model_class):
        model_arch = model_class.model_arch
        # As `--no-mtp` does; otherwise the converter of Qwen 3.5 wants the `mtp.*` tensors.
        no_mtp = spec.get("no_mtp", model_class.no_mtp)

        def set_vocab(self):
            self._set_vocab_none()
            if not spec["vocab_size_written"]:
                self.gguf_writer.add_vocab_size(vocab)

    Converter.__name__ = model_class.__name__
    out = scratch / "model.gguf"
    with torch.inference_mode():
        Converter(directory, gguf.LlamaFileType[file_type], out, eager=True).write()
    return out


def converted(spec, config, arrays, scratch):
    """Scalars and tensors of the GGUF that llama.cpp's converter makes: ({key: value}, {name: (array, type)})."""
    from gguf import GGUFReader

    reader = GGUFReader(write_gguf(spec, config, arrays, scratch))
    scalars = {key: field.contents() for key, field in reader.fields.items()}
    scalars = {k: v for k, v in scalars.items() if not isinstance(v, (list, str)) or len(v) <= LONGEST}
    tensors = {}
    for tensor in reader.tensors:
        kind = tensor.tensor_type.name
        shape = [int(n) for n in reversed(tensor.shape)]
        tensors[tensor.name] = (np.array(tensor.data), shape, kind)
    return scalars, dict(sorted(tensors.items(), key=natural))


# ---------------------------------------------------------------- what the converter did


def permuted(rows, heads):
    """Rotate-half rows of each head to interleaved ones: what llama.cpp conversion/llama.py `permute` does."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def tiled(values, axis, start, groups, heads):
    """The heads from `start` on, grouped along `axis`: the first head of each group, then the second of each, and so on.

    llama.cpp conversion/qwen.py `_reorder_v_heads`.
    """
    kept, moved = np.split(values, [start], axis)
    shape = (*moved.shape[:axis], groups, heads // groups, -1, *moved.shape[axis + 1:])
    return np.concatenate([kept, moved.reshape(shape).swapaxes(axis, axis + 1).reshape(moved.shape)], axis)


def candidates(names, arrays, config):
    """(how, sources, details, array) that these HF tensors could give, simplest first."""
    one = arrays[names[0]]
    if len(names) > 1:
        yield "stacked", names, {"axis": 0}, np.stack([arrays[n] for n in names])
        return
    yield "same", names, None, one
    if one.ndim == 2:
        yield "transposed", names, {"axes": [1, 0]}, one.T
    yield "plus_one", names, None, one + np.float32(1)
    for heads in sorted({config.get("num_attention_heads"), config.get("num_key_value_heads")} - {None}):
        if one.shape[0] % (2 * heads) == 0:
            yield "rope_permuted", names, {"heads": heads}, permuted(one, heads)
    if one.ndim >= 2 and one.shape[-1] % 2 == 0:
        for start in (0, 1):
            yield "every_second", names, {"axis": one.ndim - 1, "start": start}, one[..., start::2]
    if one.ndim == 3:
        for start in (0, 1):
            yield "every_second", names, {"axis": 1, "start": start}, one[:, start::2]
    if "query_key_value" in names[0] and config.get("num_kv_heads"):
        groups, heads = config["num_kv_heads"], config["num_attention_heads"]
        split = one.reshape(groups, heads // groups + 2, -1, *one.shape[1:])
        parts = [part.reshape(-1, *one.shape[1:]) for part in (split[:, :-2], split[:, -2], split[:, -1])]
        yield "grouped", names, {"groups": groups, "heads": heads}, np.concatenate(parts)
    if "linear_attn" in names[0]:
        groups, heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
        keys, values = groups * config["linear_key_head_dim"], heads * config["linear_value_head_dim"]
        squeezed = one.squeeze(1) if one.ndim == 3 else one
        reshape = {"reshape": list(squeezed.shape)} if one.ndim == 3 else {}
        starts = [(0, 2 * keys)] if one.shape[0] == 2 * keys + values else [(0, 0), (1, 0)][:one.ndim]
        for axis, start in starts:
            if (one.shape[axis] - start) % heads == 0:
                details = {**reshape, "axis": axis, "start": start, "groups": groups, "heads": heads}
                moved = tiled(squeezed, axis, start, groups, heads)
                yield "tiled", names, details, moved
                if names[0].endswith("A_log"):
                    yield "tiled_negative_exp", names, details, -np.exp(moved)
    if "qk_nope_head_dim" in config and one.ndim == 2:
        heads, nope, value = (config[k] for k in ("num_attention_heads", "qk_nope_head_dim", "v_head_dim"))
        if one.shape[0] == heads * (nope + value):
            split = one.reshape(heads, nope + value, one.shape[1])
            yield ("head_rows_transposed", names,
                   {"reshape": list(split.shape), "rows": [0, nope], "axes": [0, 2, 1]}, split[:, :nope].swapaxes(1, 2))
            yield ("head_rows", names,
                   {"reshape": list(split.shape), "rows": [nope, nope + value], "axes": [0, 1, 2]}, split[:, nope:])


def nibbles(packed):
    """Codes of MXFP4 in element order, of bytes that hold two neighbours, the first one low."""
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], 32)


def mxfp4(name, found, shape, arrays):
    """How the MXFP4 tensor `name` comes of a `_blocks` and a `_scales` tensor."""
    blocks = found.reshape(*shape[:2], shape[2] // 32, 17)
    codes = np.concatenate([blocks[..., 1:] & 15, blocks[..., 1:] >> 4], axis=-1)  # byte j: elements j and j + 16
    layer = re.match(r"blk\.(\d+)\.", name).group(1)
    fits = []
    for source in (n for n in arrays if n.endswith("_blocks") and f".{layer}." in n):
        scales = source.replace("_blocks", "_scales")
        steps = {"all": slice(None)} if "down" in source else {"0": slice(0, None, 2), "1": slice(1, None, 2)}
        for start, rows in steps.items():
            wanted, exponents = nibbles(arrays[source][:, rows]), arrays[scales][:, rows]
            if codes.shape == wanted.shape and (codes == wanted).all() and (blocks[..., 0] == exponents).all():
                how = ["mxfp4", [source, scales]]
                if start != "all":
                    how = ["mxfp4_every_second", how[1], {"axis": 1, "start": int(start)}]
                fits.append(how)
    assert len(fits) == 1, (name, fits)
    return fits[0]


def origin(name, found, shape, arrays, starts, config):
    """`[how, sources, details]` of one GGUF tensor."""
    order = np.array([start for start, _ in starts])
    numbers = np.rint(np.abs(found.reshape(-1)))  # minus an exponential is near minus its number
    owners = np.searchsorted(order, np.floor(numbers / 2).astype(np.int64), side="right") - 1
    firsts = owners[np.sort(np.unique(owners, return_index=True)[1])]
    names = [starts[i][1] for i in firsts]
    for how, sources, details, wanted in candidates(names, arrays, config):
        if wanted.shape == found.shape and equal(how, wanted, found):
            return [how, sources] + ([details] if details else [])
    raise SystemExit(f"`{name}` {shape}: nothing known makes it of {names}")


def equal(how, wanted, found):
    """Whether the values are the same, or, of an exponential, the same but for rounding."""
    return np.allclose(wanted, found, rtol=1e-6, atol=0) if how.endswith("exp") else (wanted == found).all()


def origins(tensors, arrays, config):
    starts, first = [], 0
    for name, array in arrays.items():
        if array.dtype != np.uint8:
            starts.append((first, name))
            first += array.size
    out, used = {}, set()
    for name, (found, shape, kind) in tensors.items():
        if name in ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"):
            out[name] = ["made", [], {"values": [float(v) for v in found.reshape(-1)]}]
            continue
        out[name] = (mxfp4(name, found, shape, arrays) if kind == "MXFP4"
                     else origin(name, found.reshape(shape), shape, arrays, starts, config))
        used.update(out[name][1])
    return out, sorted(set(arrays) - used, key=natural)


# ---------------------------------------------------------------- all of it


def make(name, spec, versions):
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        dtype = spec.get("dtype", "bfloat16")
        entries = saved(spec, scratch / "saved", dtype)
        config = json.loads((scratch / "saved" / "config.json").read_text())
        entries, config = released(name, entries, config)
        entries.sort(key=natural)
        result = {"source": dict(versions, **spec.get("source", {})), "config": config, "hf": entries}
        if spec.get("gguf", True):
            wide = [[n, s, "U8" if d == "U8" else "F32"] for n, s, d in entries]
            arrays = numbered(wide, np.random.default_rng(1))
            plain = dict(config, dtype="float32")
            if spec.get("dequantised"):
                plain.pop("quantization_config")
                arrays = {n: a for n, a in arrays.items() if not n.endswith("_scale_inv")}
                arrays = numbered([[n, list(a.shape), "F32"] for n, a in arrays.items()], None)
            scalars, tensors = converted(spec, plain, arrays, scratch)
            made_of, unused = origins(tensors, arrays, plain)
            if spec.get("dequantised"):
                quantised = {n for n, _, _ in entries if n + "_scale_inv" in {e[0] for e in entries}}
                both = {n: [n, n + "_scale_inv"] if n in quantised else [n] for n in arrays}
                for of in made_of.values():
                    of[1][:] = [stored for n in of[1] for stored in both[n]]
                unused = [stored for n in unused for stored in both[n]]
            result["gguf"] = {"kv": scalars, "tensors": [[n, s, k] for n, (_, s, k) in tensors.items()]}
            result["gguf_of"] = made_of
            result["hf_unused_by_gguf"] = unused
    path = OUT / f"{name}.json"
    path.write_text(pretty(result) + "\n")
    print(f"{name:20} {len(result['hf']):4} tensors, {len(result.get('gguf_of', {})):4} in GGUF, "
          f"{path.stat().st_size // 1000} kB")


def pretty(value, depth=0):
    """JSON with an entry a line."""
    if depth < 3 and isinstance(value, (dict, list)) and len(json.dumps(value)) > 140:
        pad = " " * (depth + 1)
        if isinstance(value, dict):
            rows = [f"{pad}{json.dumps(k)}: {pretty(v, depth + 1)}" for k, v in value.items()]
            return "{\n" + ",\n".join(rows) + "\n" + " " * depth + "}"
        if any(isinstance(v, (dict, list)) for v in value):
            return "[\n" + ",\n".join(pad + json.dumps(v) for v in value) + "\n" + " " * depth + "]"
    return json.dumps(value)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-cpp", type=Path, required=True)
    parser.add_argument("names", nargs="*", default=list(SPECS))
    options = parser.parse_args()
    sys.path[:0] = [str(options.llama_cpp), str(options.llama_cpp / "gguf-py")]
    torch.set_num_threads(1)
    versions = {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0],
                "llama.cpp": "0c1e57098"}
    (OUT / "own").mkdir(parents=True, exist_ok=True)
    for name in options.names:
        make(name, SPECS[name], versions)


if __name__ == "__main__":
    main()
