#!/usr/bin/env python3
"""Makes golden/ctranslate2: tiny models as CTranslate2 writes them, and in values.npz the variables that it wrote.

    python golden/ctranslate2.py        with ctranslate2 4.8.5, numpy 2.4

A decoder with tied embeddings in f32, and quantised to int8, int8 with f16 beside it, and int16.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np

sys.path.pop(0)  # This file is called as the library is.
from ctranslate2.specs import common_spec, transformer_spec  # noqa: E402

HERE = Path(__file__).parent / "ctranslate2"
D, FFN, VOCAB = 16, 32, 24


def model(quantization):
    r = np.random.default_rng(5)
    spec = transformer_spec.TransformerDecoderModelSpec.from_config(
        1, 4, activation=common_spec.Activation.GELU, ffn_glu=False
    )
    decoder = spec.decoder
    decoder.scale_embeddings = False
    weight = lambda *shape: r.normal(0, 1, shape).astype(np.float32)  # noqa: E731
    table = weight(VOCAB, D)
    decoder.embeddings.weight = table
    decoder.projection.weight = table
    decoder.position_encodings.encodings = weight(8, D)

    def linear(spec, out, inner):
        spec.weight, spec.bias = weight(out, inner), weight(out)

    def norm(spec):
        spec.gamma, spec.beta = weight(D), weight(D)

    norm(decoder.layer_norm)
    for layer in decoder.layer:
        norm(layer.self_attention.layer_norm)
        linear(layer.self_attention.linear[0], 3 * D, D)
        linear(layer.self_attention.linear[1], D, D)
        norm(layer.ffn.layer_norm)
        linear(layer.ffn.linear_0, FFN, D)
        linear(layer.ffn.linear_1, D, FFN)
    spec.register_vocabulary([f"t{i}" for i in range(VOCAB)])
    spec.validate()
    spec.optimize(quantization=quantization)
    return spec


facts, values = {}, {}
for quantization in [None, "int8", "int8_float16", "int16"]:
    name = quantization or "float32"
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    spec = model(quantization)
    spec.save(str(folder))
    (folder / "vocabulary.json").unlink()
    aliases = facts[name] = {}
    for key, value in spec.variables(ordered=True):
        if isinstance(value, str):
            aliases[key] = value
        else:
            values[f"{name}:{key}"] = value.numpy()
np.savez(HERE / "values.npz", **values)
(HERE / "aliases.json").write_text(json.dumps(facts, indent=1) + "\n")
