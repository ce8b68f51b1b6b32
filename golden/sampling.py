#!/usr/bin/env python3
"""Makes golden/sampling: what llama.cpp's samplers and transformers' processors do to logits.

    python golden/sampling.py LIBLLAMA.so              with the llama.cpp of llama-cpp-python 0.3.36, numpy 2.4.6
    python golden/sampling.py --transformers           with transformers 5.24.0, torch 2.15.0

A case of llama.json has the name of a sampler, its parameters, the tokens that it accepted, logits, and the logits that it left: a list of
`[id, logit]` by id. `mirostat` has steps: the logits of each, the tokens that were kept, and the one that was drawn. A case of
transformers.json has the tokens of the text so far, scores, and the scores that the processor left; null for -inf.
"""

import ctypes
import json
import sys
from ctypes import POINTER, byref, c_bool, c_float, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent / "sampling"
rng = np.random.default_rng(20)


def logits(n, spread=3.0):
    """Logits of six digits, no two of them equal: which of two comes first is nobody's promise."""
    made = {}
    while len(made) < n:
        made[float(f"{rng.normal(0, spread):.6g}")] = None
    return list(made)


def text(n, vocab):
    """Tokens that repeat, as texts do: pieces of one sequence."""
    base = rng.integers(0, vocab, 12)
    out = []
    while len(out) < n:
        start = int(rng.integers(0, 9))
        out += [int(t) for t in base[start : start + int(rng.integers(1, 8))]]
    return out[:n]


def number(x):
    return None if x == float("-inf") else float(f"{x:.9g}")


class Data(ctypes.Structure):
    _fields_ = [("id", c_int32), ("logit", c_float), ("p", c_float)]


class Array(ctypes.Structure):
    _fields_ = [("data", POINTER(Data)), ("size", c_size_t), ("selected", c_int64), ("sorted", c_bool)]


class Vector(ctypes.Structure):
    """A `std::vector` of libstdc++ and libc++."""

    _fields_ = [("first", c_void_p), ("last", c_void_p), ("end", c_void_p)]

    @classmethod
    def of(cls, array):
        first = ctypes.addressof(array)
        vector = cls(first, first + ctypes.sizeof(array), first + ctypes.sizeof(array))
        vector.kept = array
        return vector


class Bias(ctypes.Structure):
    _fields_ = [("token", c_int32), ("bias", c_float)]


def dry(lib, p):
    """Breakers are sequences of tokens here, as in llama.cpp's own tests: no vocabulary is needed."""
    inner = [Vector.of((c_int32 * len(b))(*b)) for b in p["breakers"]]
    outer = Vector.of((Vector * len(inner))(*inner))
    init = lib["_Z30llama_sampler_init_dry_testingffiiRKSt6vectorIS_IiSaIiEESaIS1_EE"]
    init.restype, init.argtypes = c_void_p, [c_float, c_float, c_int32, c_int32, POINTER(Vector)]
    return init(p["multiplier"], p["base"], p["allowed_length"], p["last"], byref(outer))


def init(lib, name, types, *values):
    make = lib[f"llama_sampler_init_{name}"]
    make.restype, make.argtypes = c_void_p, types
    return make(*values)


def sampler(lib, name, p, vocab):
    real, whole, size = c_float, c_int32, c_size_t
    match name:
        case "bias":
            biases = (Bias * len(p["bias"]))(*[Bias(*b) for b in p["bias"]])
            return init(lib, "logit_bias", [whole, whole, POINTER(Bias)], vocab, len(biases), biases)
        case "penalties":
            values = p["last"], p["repeat"], p["frequency"], p["presence"]
            return init(lib, "penalties", [whole, whole, real, real, real], vocab, *values)
        case "dry":
            return dry(lib, p)
        case "top_k":
            return init(lib, "top_k", [whole], p["top_k"])
        case "typical_p":
            return init(lib, "typical", [real, size], p["typical_p"], 0)
        case "top_p" | "min_p":
            return init(lib, name, [real, size], p[name], 0)
        case "xtc":
            return init(lib, "xtc", [real, real, size, c_uint32], p["probability"], p["threshold"], 0, 1)
        case "temperature":
            return init(lib, "temp", [real], p["temperature"])
        case "mirostat":
            return init(lib, "mirostat_v2", [c_uint32, real, real], 7, p["entropy"], p["rate"])


def apply(lib, smpl, x):
    data = (Data * len(x))(*[Data(i, l, 0.0) for i, l in enumerate(x)])
    array = Array(data, len(x), -1, False)
    lib.llama_sampler_apply(smpl, byref(array))
    return array


def case(lib, chain, vocab, tokens=(), spread=3.0):
    """Applies the samplers of `chain`, a list of (name, parameters), in turn."""
    x = logits(vocab, spread)
    data = (Data * vocab)(*[Data(i, l, 0.0) for i, l in enumerate(x)])
    array = Array(data, vocab, -1, False)
    for name, p in chain:
        smpl = c_void_p(sampler(lib, name, p, vocab))
        for token in tokens:
            lib.llama_sampler_accept(smpl, token)
        lib.llama_sampler_apply(smpl, byref(array))
    kept = sorted((array.data[i].id, number(array.data[i].logit)) for i in range(array.size))
    return {"samplers": dict(chain), "tokens": list(tokens), "logits": x, "kept": kept}


def mirostat(lib, p, vocab, steps):
    smpl, made = c_void_p(sampler(lib, "mirostat", p, vocab)), []
    for _ in range(steps):
        x = logits(vocab)
        array = apply(lib, smpl, x)
        kept = sorted(array.data[i].id for i in range(array.size))
        made.append({"logits": x, "kept": kept, "drawn": array.data[array.selected].id})
    return {"mirostat": p, "steps": made}


def of_llama(path):
    lib = ctypes.CDLL(path)
    lib.llama_sampler_accept.argtypes = [c_void_p, c_int32]
    lib.llama_sampler_apply.argtypes = [c_void_p, POINTER(Array)]
    cases = []
    penalties = lambda repeat, frequency, presence, last: {
        "repeat": repeat, "frequency": frequency, "presence": presence, "last": last}  # fmt: skip
    for p in [(1.3, 0, 0, 64), (0.8, 0, 0, 4), (1, 0.5, 0, 16), (1, 0, 0.75, 16), (1.1, 0.2, -0.3, 7), (1.5, 0.1, 0.1, 0)]:
        cases.append(case(lib, [("penalties", penalties(*p))], 24, text(30, 24)))
    drying = lambda multiplier, base, allowed, last, breakers: {
        "multiplier": multiplier, "base": base, "allowed_length": allowed, "last": last, "breakers": breakers}  # fmt: skip
    for n, p in [
        (40, (0.8, 1.75, 2, 64, [[23]])),
        (40, (0.8, 1.75, 1, 10, [[23]])),
        (60, (1.5, 1.0, 2, 60, [[3], [5], [7, 8]])),
        (200, (0.25, 1.2, 3, 150, [[23]])),
        (2, (0.8, 1.75, 2, 64, [[23]])),
        (3, (0.8, 1.75, 2, 64, [[23]])),
    ]:
        for seed in range(3):
            cases.append(case(lib, [("dry", drying(*p))], 24, text(n, 24)))
    # One token over and over, far past the largest exponent; breakers of several tokens, and one that is drawn next.
    cases.append(case(lib, [("dry", drying(1.0, 4.0, 2, 300, [[1]]))], 8, [5] * 200))
    loop = [1, 2, 3, 4, 5, 6] * 4
    for breakers in [[[6]], [[2, 3]], [[2, 3], [2, 3, 4]], [[5, 6]], [[5, 6, 1]], [[1], [4, 5]]]:
        for cut in range(6):
            cases.append(case(lib, [("dry", drying(0.8, 1.75, 2, 64, breakers))], 8, loop[: len(loop) - cut]))
    for k in [1, 7, 24, 40]:
        cases.append(case(lib, [("top_k", {"top_k": k})], 24))
    for name in ["typical_p", "top_p", "min_p"]:
        for p in [0.05, 0.2, 0.5, 0.9, 0.95, 0.999, 1.0]:
            for vocab, spread in [(24, 3.0), (24, 0.3), (300, 1.0)]:
                cases.append(case(lib, [(name, {name: p})], vocab, spread=spread))
        cases.append(case(lib, [(name, {name: 0.9})], 1500, spread=1.0))
    for threshold in [0.0, 0.05, 0.1, 0.3, 0.5, 0.51]:
        for spread in [3.0, 0.5]:
            cases.append(case(lib, [("xtc", {"probability": 1.0, "threshold": threshold})], 24, spread=spread))
    cases.append(case(lib, [("xtc", {"probability": 0.0, "threshold": 0.1})], 24))
    cases.append(case(lib, [("bias", {"bias": [[3, 2.5], [5, -100.0], [3, 1.0]]})], 24))
    for t in [0.3, 1.5]:
        cases.append(case(lib, [("temperature", {"temperature": t})], 24))
    for spread in [0.5, 1.0, 2.0]:
        chain = [
            ("bias", {"bias": [[3, 1.5], [7, -2.0]]}),
            ("penalties", penalties(1.2, 0.1, 0.2, 32)),
            ("dry", drying(0.8, 1.75, 2, 64, [[23]])),
            ("top_k", {"top_k": 60}),
            ("typical_p", {"typical_p": 0.95}),
            ("top_p", {"top_p": 0.9}),
            ("min_p", {"min_p": 0.1}),
            ("xtc", {"probability": 1.0, "threshold": 0.08}),
            ("temperature", {"temperature": 0.7}),
        ]
        cases.append(case(lib, chain, 100, text(40, 100), spread=spread))
    steps = [mirostat(lib, {"entropy": e, "rate": r}, 60, 12) for e, r in [(5.0, 0.1), (2.0, 0.3), (0.5, 1.0)]]
    write("llama.json", {"cases": cases, "mirostat": steps})


def of_transformers():
    import torch
    import transformers.generation.logits_process as processors

    def case(name, p, make, vocab=24, tokens=(), spread=3.0):
        x = logits(vocab, spread)
        ids = torch.tensor([list(tokens)], dtype=torch.long)
        left = make(ids, torch.tensor([x]))[0]
        return {"samplers": {name: p}, "tokens": list(tokens), "logits": x, "left": [number(v) for v in left.tolist()]}

    cases = []
    for penalty in [0.8, 1.0, 1.1, 1.8]:
        p = {"repeat": penalty, "frequency": 0.0, "presence": 0.0, "last": 1000}
        made = processors.RepetitionPenaltyLogitsProcessor(penalty=penalty)
        cases += [case("penalties", p, made, tokens=text(80, 24)) for _ in range(2)]
    for suppressed in [[3, 5]]:
        p = {"bias": [[t, None] for t in suppressed]}
        cases.append(case("bias", p, processors.SuppressTokensLogitsProcessor(suppressed)))
    for x in [0.05, 0.2, 0.5, 0.9, 0.95, 0.999]:
        for vocab, spread in [(24, 3.0), (24, 0.3), (300, 1.0)]:
            made = processors.TypicalLogitsWarper(mass=x)
            cases.append(case("typical_p", {"typical_p": x}, made, vocab, spread=spread))
            cases.append(case("min_p", {"min_p": x}, processors.MinPLogitsWarper(x), vocab, spread=spread))
            cases.append(case("top_p", {"top_p": x}, processors.TopPLogitsWarper(x), vocab, spread=spread))
    for k in [1, 7, 24]:
        cases.append(case("top_k", {"top_k": k}, processors.TopKLogitsWarper(k)))
    write("transformers.json", {"cases": cases})


def write(name, made):
    HERE.mkdir(exist_ok=True)
    parts = []
    for key, cases in made.items():
        lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
        parts.append(f"{json.dumps(key)}:[\n{lines}\n]")
    (HERE / name).write_text("{" + ",\n".join(parts) + "}\n")


if sys.argv[1] == "--transformers":
    of_transformers()
else:
    of_llama(sys.argv[1])
