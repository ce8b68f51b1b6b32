#!/usr/bin/env python3
"""Reads a GPTQ or AWQ directory that Weighbridge wrote as others do, and compares.

    pip install torch transformers optimum gptqmodel safetensors
    weighbridge convert DIR decoded.safetensors --encode '*=f32'
    python3 golden/gptq_read.py DIR decoded.safetensors TEXT [CHUNKS]

transformers loads DIR, which makes layers of GPTQModel of its linear ones. Each of these is asked for the weights that it multiplies
with (`dequantize_weight`), and they are compared, bit for bit, with what Weighbridge decoded. Then the model continues a prompt without
sampling, and its perplexity on TEXT is measured as llama-perplexity does it: chunks of 512 tokens, of which the second half counts.
`weighbridge run` and `weighbridge eval` say what it should be. It was run with torch 2.15.0 (CPU), transformers 5.24.0, optimum 2.3.0 and
GPTQModel@f4c327a1.
"""

import sys

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

folder, decoded, text = sys.argv[1:4]
chunks = int(sys.argv[4]) if len(sys.argv) > 4 else 6
model = AutoModelForCausalLM.from_pretrained(folder, device_map="cpu").eval()
tokenizer = AutoTokenizer.from_pretrained(folder)
wanted = load_file(decoded)

kinds, compared, wrong = {}, 0, []
for name, module in model.named_modules():
    if not hasattr(module, "qweight"):
        continue
    kinds[type(module).__name__] = kinds.get(type(module).__name__, 0) + 1
    found = module.dequantize_weight().t()
    own = wanted[f"{name}.weight"]
    if not torch.equal(found.float(), own):
        wrong.append(name)
    compared += 1
print(f"{compared} matrices of {kinds}, {len(wrong)} differ: {wrong[:5]}")
for name, own in wanted.items():
    parameter = dict(model.named_parameters()).get(name)
    if parameter is not None and not torch.equal(parameter.float(), own.to(parameter.dtype).float()):
        print(f"{name} differs")

with torch.no_grad():
    prompt = tokenizer("Once upon a time, in a small village by the sea,", return_tensors="pt")
    out = model.generate(**prompt, max_new_tokens=32, do_sample=False)
    print(repr(tokenizer.decode(out[0])))
    tokens = tokenizer(open(text).read(), return_tensors="pt").input_ids[0]
    losses = []
    for chunk in range(min(chunks, len(tokens) // 512)):
        part = tokens[chunk * 512 : (chunk + 1) * 512]
        logits = model(part[None]).logits[0].float()
        loss = torch.nn.functional.cross_entropy(logits[256:-1], part[257:], reduction="none")
        losses.append(loss)
    loss = torch.cat(losses).double()
    print(f"perplexity {loss.mean().exp().item():.4f} of {len(losses)} chunks")
sys.exit(bool(wrong) or not compared)
