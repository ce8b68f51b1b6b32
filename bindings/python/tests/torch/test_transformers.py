"""Models of transformers, filled from files of other ecosystems, held against what transformers loads itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import weighbridge as wb
import weighbridge.transformers as wt
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from conftest import MODELS, fetched

FAMILIES = [
    "llama-tiny", "llama3-rope-tiny", "mistral-tiny", "qwen2-tiny", "qwen3-tiny", "gemma2-tiny", "gemma3-tiny", "gpt2-tiny",
    "phi3-tiny", "olmo2-tiny", "granite-tiny", "starcoder2-tiny", "falcon-tiny", "mixtral-tiny", "qwen3moe-tiny", "gpt-oss-tiny",
    "deepseek3-tiny",
]  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_is_the_one_that_transformers_loads(family: str) -> None:
    folder = MODELS / family
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ours = wt.from_pretrained(AutoModelForCausalLM, folder, dtype=torch.float32)
    assert type(ours) is type(theirs)
    # Flags that are absent are None or False.
    said = [{k: v for k, v in one.generation_config.to_dict().items() if v not in (None, False)} for one in (ours, theirs)]
    assert said[0] == said[1]
    wanted = theirs.state_dict()
    found = ours.state_dict()
    assert list(found) == list(wanted)
    for name, one in wanted.items():
        assert torch.equal(found[name], one), name
    tokens = torch.tensor([json.loads((folder / "expected.json").read_text())["input_ids"]])
    with torch.no_grad():
        assert torch.equal(ours(tokens).logits, theirs(tokens).logits)


@pytest.mark.parametrize("family", ["gemma2-tiny", "gemma3-tiny"])
def test_norms_that_are_differences_from_1_are_not_rounded(family: str, tmp_path: Path) -> None:
    AutoModelForCausalLM.from_pretrained(MODELS / family, dtype=torch.bfloat16).save_pretrained(tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path)
    found = wt.from_pretrained(AutoModelForCausalLM, tmp_path).state_dict()
    for name, one in theirs.state_dict().items():
        assert one.dtype == torch.bfloat16
        assert torch.equal(found[name], one), name


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_from_gguf_computes_the_same(family: str) -> None:
    folder = MODELS / family
    said = json.loads((folder / "expected.json").read_text())
    model = wt.from_pretrained(AutoModelForCausalLM, folder / "model.gguf")
    # What GGUF cannot say of a configuration, its readers compute otherwise.
    file = folder / said.get("logits_gguf", said["logits"])["file"]
    wanted = torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.tensor([said["input_ids"]])).logits.float()[0]
    assert (logits.reshape(-1) - wanted).abs().max() < 1e-4 * wanted.abs().max()


@pytest.mark.parametrize("family", ["llama-tiny", "gemma3-tiny", "mixtral-tiny"])
def test_transformers_reads_what_is_written(family: str, tmp_path: Path) -> None:
    wb.convert(MODELS / family / "model.gguf", tmp_path / "hf", to="hf")
    model, info = AutoModelForCausalLM.from_pretrained(tmp_path / "hf", dtype=torch.float32, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    theirs = AutoModelForCausalLM.from_pretrained(MODELS / family, dtype=torch.float32).state_dict()
    for name, one in model.state_dict().items():
        assert torch.allclose(one, theirs[name], atol=1e-6), name


def test_tokens_of_smollm2_through_transformers_are_ours() -> None:
    path = fetched("smollm2")
    model = wt.from_pretrained(LlamaForCausalLM, path, dtype="float32")
    tokenizer = wt.tokenizer(path)
    prompt = "The capital of France is"
    inputs = tokenizer(prompt, return_tensors="pt")
    with torch.no_grad():
        theirs = model.generate(**inputs, max_new_tokens=24, do_sample=False)[0].tolist()
    runtime = wb.Runtime(path, backend="reference")
    ours = runtime.generate(prompt, max_tokens=24, temperature=0, repeat_penalty=1)
    ours.text()
    assert ours.tokens is not None
    assert theirs == runtime.tokenizer.encode(prompt) + ours.tokens
    said = [{"role": "user", "content": "Say hello."}]
    written = tokenizer.apply_chat_template(said, add_generation_prompt=True, tokenize=False)
    assert written.endswith("assistant\n")


def test_defaults_of_generation_are_the_models(tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((MODELS / "llama-tiny" / name).read_bytes())
    said = {"eos_token_id": [2, 7], "temperature": 0.6, "do_sample": True, "transformers_version": "5.23.0"}
    (tmp_path / "generation_config.json").write_text(json.dumps(said))
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path).generation_config
    ours = wt.from_pretrained(AutoModelForCausalLM, tmp_path).generation_config
    assert ours.eos_token_id == [2, 7]
    assert ours.to_dict() == theirs.to_dict()
    # Those of a GGUF file are the ids of its tokenizer.
    path = fetched("smollm2")
    ends = wt.from_pretrained(AutoModelForCausalLM, path).generation_config.eos_token_id
    assert ends == wb.open(path).metadata["tokenizer.ggml.eos_token_id"]


def test_a_checkpoint_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(wb.Error, match="lm_head"):
        wt.from_pretrained(AutoModelForCausalLM, without(tmp_path, "lm_head.weight"))


def without(folder: Path, name: str) -> Path:
    """The small llama without a tensor."""
    from safetensors.torch import load_file, save_file

    weights = load_file(MODELS / "llama-tiny" / "model.safetensors")
    del weights[name]
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_bytes((MODELS / "llama-tiny" / "config.json").read_bytes())
    return folder
