#!/usr/bin/env python3
"""Makes golden/eval/llama-perplexity.json: what llama.cpp's llama-perplexity finds of smollm2 and of a conversion of it.

    python golden/eval.py LLAMA_PERPLEXITY WEIGHBRIDGE SMOLLM2.gguf     with llama.cpp 0c1e57098, on x86-64 with AVX-512 VNNI

The text, golden/eval/holmes.txt, is the first two adventures of "The Adventures of Sherlock Holmes" by Arthur Conan Doyle
(1892), which is in the public domain. It is from Project Gutenberg (no. 1661), without the lines before and after the text.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent / "eval"
TEXT = HERE / "holmes.txt"
CHUNKS = 8

perplexity, weighbridge, model = sys.argv[1:]


def run(*args):
    args = [perplexity, "--chunks", str(CHUNKS), "-c", "512", *args]
    done = subprocess.run(args, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def figure(text, name):
    found = re.search(re.escape(name) + r"\s*[:=]\s*(-?[0-9.]+)(?: ±\s+([0-9.]+)| \+/- ([0-9.]+))?", text)
    return [float(x) for x in found.groups() if x is not None]


with tempfile.TemporaryDirectory() as folder:
    base, small = f"{folder}/base", f"{folder}/small.gguf"
    convert = [weighbridge, "convert", model, small, "--preset", "q4_0", "--allow-requantize"]
    subprocess.run(convert, check=True, capture_output=True)
    first = run("-m", model, "-f", str(TEXT), "--kl-divergence-base", base)
    second = run("-m", small, "--kl-divergence-base", base, "--kl-divergence")

made = {
    "chunks": CHUNKS,
    "perplexity": figure(first, "PPL"),
    "q4_0": {
        "perplexity": figure(second, "Mean PPL(Q)"),
        "ratio": figure(second, "Mean PPL(Q)/PPL(base)"),
        "kl": figure(second, "Mean    KLD"),
        "kl_median": figure(second, "Median  KLD"),
        "kl_99": figure(second, "99.0%   KLD"),
        "top1": [x / 100 for x in figure(second, "Same top p")],
    },
}
(HERE / "llama-perplexity.json").write_text(json.dumps(made, indent=1) + "\n")
