#!/usr/bin/env python3
"""Reads a GPTQ or AWQ directory that Weighbridge wrote as others do, and compares.

    pip install torch transformers optimum gptqmodel safetensors
    weighbridge convert DIR decoded.safetensors --encode '*=f32'
    python3 golden/gptq_read.py DIR decoded.safetensors TEXT [CHUNKS]

transformers loads DIR, which makes layers of GPTQModel of its linear ones. Their weights, as these layers decode them in the dtype of the
model (GPTQ: `dequantize_weight`; AWQ: `dequantize_gemm`), are compared, bit for bit, with those that Weighbridge decoded. Then the model
continues a prompt without sampling, and its perplexity on TEXT is measured as llama-perplexity does it: chunks of 512 tokens, of which the
second half counts.
`weighbridge run` and `weighbridge eval` say what it should be. It was run with torch 2.15.0 (CPU), transformers 5.24.0, optimum 2.3.0 and
GPTQModel@f4c327a1.
"""

import sys

import torch
from gptqmodel.quantization.awq.utils.packing_utils import dequantize_gemm
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, AwqConfig

folder, decoded, text = sys.argv[1:4]
chunks = int(sys.argv[4]) if len(sys.argv) > 4 else 6
is_awq = AutoConfig.from_pretrained(folder).quantization_config["quant_method"] == "awq"
# GPTQModel would choose a layer that packs the weights again and does not give them back.
options = {"quantization_config": AwqConfig(backend="torch_awq")} if is_awq else {}
model = AutoModelForCausalLM.from_pretrained(folder, device_map="cpu", **options).eval()
tokenizer = AutoTokenizer.from_pretrained(folder)
wanted = load_file(decoded)


def weights(layer):
    # Layers take scales of a bfloat16 model to float16, which rounds less; Weighbridge decodes in the dtype of the model.
    layer.scales = layer.scales.to(model.dtype)
    if not is_awq:
        return layer.dequantize_weight().t()
    planes = {"qweight": layer.qweight, "qzeros": layer.qzeros, "scales": layer.scales}
    return dequantize_gemm(**planes, bits=layer.bits, group_size=layer.group_size).t()


kinds, compared, wrong = {}, 0, []
for name, module in model.named_modules():
    if not hasattr(module, "qweight"):
        continue
    kinds[type(module).__name__] = kinds.get(type(module).__name__, 0) + 1
    found = weights(module)
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
