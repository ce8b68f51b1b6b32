"""Work on whole checkpoints: what is written is read by others, what is wrong is found, what differs is told."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import weighbridge as wb
from safetensors.numpy import load_file, save_file


def test_a_checkpoint_is_written_in_other_forms(llama: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    report = wb.convert(llama, tmp_path / "model.gguf", preset="q8_0", progress=lambda done, total: told.append((done, total)))
    assert Path(report.path) == tmp_path / "model.gguf"
    assert {param.scheme for param in report.params} == {"q8_0", "f32"}
    assert report.nbytes < report.nbytes_before == sum(entry.nbytes for entry in wb.open(llama).entries)
    matrix = next(param for param in report.params if param.scheme == "q8_0")
    assert matrix.before == "f32"
    assert matrix.rmse is not None
    assert 0 < matrix.rmse < 0.01
    assert matrix.cosine == pytest.approx(1, abs=1e-3)
    assert told[-1][0] == told[-1][1] == len(report.params)
    assert report.left != []
    # And back to Hugging Face's form, which safetensors reads.
    back = wb.convert(tmp_path / "model.gguf", tmp_path / "back", to="hf", encode="f32")
    wanted = load_file(llama / "model.safetensors")
    found = {name: one for file in (tmp_path / "back").glob("*.safetensors") for name, one in load_file(file).items()}
    assert found.keys() == wanted.keys()
    for name, one in wanted.items():
        assert np.abs(found[name] - one).max() < 0.02 * np.abs(one).max(), name
    assert {param.scheme for param in back.params} == {"f32"}


def test_what_cannot_be_written_is_said_at_once(llama: Path, tmp_path: Path) -> None:
    (tmp_path / "there.gguf").write_bytes(b"mine")
    with pytest.raises(wb.Error, match="there.gguf"):
        wb.convert(llama, tmp_path / "there.gguf")
    assert (tmp_path / "there.gguf").read_bytes() == b"mine"
    with pytest.raises(wb.MisuseError, match="does not say its format") as caught:
        wb.convert(llama, tmp_path / "model")
    assert caught.value.hint is not None
    assert "gguf" in caught.value.hint
    with pytest.raises(wb.MisuseError, match="no format `gguff`"):
        wb.convert(llama, tmp_path / "model", to="gguff")  # type: ignore[arg-type]
    with pytest.raises(wb.Error, match="nothing"):
        wb.convert(llama, tmp_path / "model.gguf", encode={"nothing.*": "q8_0"})
    with pytest.raises(wb.Error):
        wb.convert(llama, tmp_path / "model.gguf", memory=1000)
    with pytest.raises(wb.CheckpointError):
        wb.convert(tmp_path / "none.gguf", tmp_path / "model.gguf")

    def stop(done: int, total: int) -> None:
        raise RuntimeError(f"{done} of {total}")

    save_file({f"{n:03}": np.ones((512, 512), np.float32) for n in range(200)}, tmp_path / "long.safetensors")
    with pytest.raises(RuntimeError):
        wb.convert(tmp_path / "long.safetensors", tmp_path / "long.npz", progress=stop)
    assert not (tmp_path / "long.npz").exists()


def test_values_that_are_no_numbers_are_found(tmp_path: Path) -> None:
    good = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(4, np.float32)}
    save_file(good, tmp_path / "good.safetensors")
    report = wb.check(tmp_path / "good.safetensors")
    assert (report.is_good, report.findings, report.tensors, report.values) == (True, [], 2, 10)
    bad = {**good, "b": np.array([1, np.nan, np.inf, 2], np.float32)}
    save_file(bad, tmp_path / "bad.safetensors")
    report = wb.check(wb.open(tmp_path / "bad.safetensors"))
    assert not report.is_good
    ((name, what),) = report.findings
    assert name == "b"
    assert "1 of 4 values are NaN, 1 infinite" in what
    assert wb.check(tmp_path / "bad.safetensors", deep=False).is_good


def test_differences_are_told(llama: Path, tmp_path: Path) -> None:
    same = wb.diff(llama, llama / "model.gguf")
    assert same.has_same_params
    assert same.family == "llama"
    assert {param.outcome for param in same.params} <= {"identical", "same values"}
    values = load_file(llama / "model.safetensors")
    values["model.norm.weight"][0] += 1
    del values["model.layers.0.mlp.up_proj.weight"]
    save_file(values, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((llama / "config.json").read_text())
    found = wb.diff(wb.open(llama), tmp_path, layout="source")
    assert not found.is_same
    assert found.only_a == ["model.layers.0.mlp.up_proj.weight"]
    assert found.only_b == []
    (other,) = (param for param in found.params if not param.is_same)
    assert (other.name, other.outcome, other.unequal) == ("model.norm.weight", "other values", 1)
    assert other.max_error == pytest.approx(1, rel=1e-3)
    with pytest.raises(wb.Error, match="layout"):
        wb.diff(llama, llama, layout="hf")  # type: ignore[arg-type]


def small(path: Path) -> Path:
    """A llama of random weights that has a token for each byte."""
    path.mkdir()
    vocab, hidden, layers = 256, 64, 2
    random = np.random.default_rng(1)
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,), "lm_head.weight": (vocab, hidden)}
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        shapes |= {f"{prefix}self_attn.{name}_proj.weight": (hidden, hidden) for name in "qkvo"}
        shapes |= {f"{prefix}mlp.{name}_proj.weight": (2 * hidden, hidden) for name in ("gate", "up")}
        shapes[f"{prefix}mlp.down_proj.weight"] = (hidden, 2 * hidden)
        shapes |= {f"{prefix}{name}.weight": (hidden,) for name in ("input_layernorm", "post_attention_layernorm")}
    weights = {name: (random.standard_normal(shape) / 4 + (len(shape) == 1)).astype(np.float32) for name, shape in shapes.items()}
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        "torch_dtype": "float32",
    }
    (path / "config.json").write_text(json.dumps(config))
    # GPT-2's letters for bytes (openai/gpt-2, encoder.py).
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    rest = [byte for byte in range(256) if byte not in plain]
    letters = {byte: chr(byte) for byte in plain} | {byte: chr(256 + n) for n, byte in enumerate(rest)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {letters[byte]: byte for byte in range(256)},
            "merges": [],
        },
    }
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    return path


def test_a_model_is_made_small_with_the_least_loss(tmp_path: Path) -> None:
    source, text = small(tmp_path / "model"), "the quick brown fox jumps over the lazy dog; " * 100
    told: list[tuple[str, int, int]] = []
    made = wb.compress(
        source, tmp_path / "small.gguf", 5, text=text, progress=lambda step, done, total: told.append((step, done, total))
    )
    assert made.report is not None
    assert Path(made.report.path) == tmp_path / "small.gguf"
    assert made.nbytes == (tmp_path / "small.gguf").stat().st_size <= made.limit
    assert made.bits < 8
    assert {param.scheme for param in made.report.params} == {matrix.scheme for matrix in made.matrices} | {"f32"}
    assert all(matrix.before == "f32" and 0 < matrix.error < 1 and matrix.cost > 0 for matrix in made.matrices)
    assert made.expected_kl is not None
    assert made.kl is not None
    assert made.kl[0] == pytest.approx(made.expected_kl, rel=2)
    assert made.kl[0] > 0
    assert made.top1 is not None
    assert made.top1[0] > 0.5
    assert {step for step, _, _ in told} >= {"comparing"}
    assert all(0 <= done <= total for _, done, total in told)
    # As the other ways to say it, and as the numbers of `evaluate`.
    larger = wb.compress(source, None, "8bit", to="gguf", text=text)
    assert larger.report is None
    assert larger.kl is None
    assert larger.expected_kl is not None
    assert larger.expected_kl < made.expected_kl
    assert not any(tmp_path.glob("*8bit*"))
    other = wb.compress(source, tmp_path / "other.gguf", f"{made.nbytes}B", text=text, gptq=True, awq=True)
    assert other.nbytes <= made.nbytes
    assert other.kl is not None
    assert other.kl[0] < made.kl[0]
    blind = wb.compress(source, tmp_path / "mlx", 5.0, to="mlx")
    assert (blind.expected_kl, blind.kl) == (None, None)


def test_what_cannot_be_made_small_is_said(llama: Path, tmp_path: Path) -> None:
    path = tmp_path / "small.gguf"
    with pytest.raises(wb.MisuseError, match="the smallest that there is has"):
        wb.compress(llama, path, 10_000)
    with pytest.raises(wb.MisuseError, match="no target `9bit`") as caught:
        wb.compress(llama, path, "9bit")
    assert caught.value.hint == "wanted 2bit to 8bit"
    with pytest.raises(wb.MisuseError, match="how inputs go together") as caught:
        wb.compress(llama, path, "4bit", gptq=True)
    assert caught.value.hint == "give a text"
    with pytest.raises(wb.MisuseError, match="how strong inputs are"):
        wb.compress(llama, path, "4bit", awq=True)
    with pytest.raises(wb.MisuseError, match="a format has to be given"):
        wb.compress(llama, None, "4bit")
    with pytest.raises(wb.MisuseError, match="no encodings to choose from"):
        wb.compress(llama, None, "4bit", to="npz")  # type: ignore[arg-type]
    with pytest.raises(wb.RunError, match="has no tokenizer"):
        wb.compress(llama, path, "4bit", text="a text")
    with pytest.raises(wb.MisuseError, match="there is no directory"):
        wb.compress(llama, tmp_path / "none" / "small.gguf", "4bit")
    source = small(tmp_path / "model")
    with pytest.raises(wb.MisuseError, match="6 tokens, and at least 4096 are needed"):
        wb.compress(source, path, "4bit", text="a text")
    path.write_bytes(b"mine")
    with pytest.raises(wb.MisuseError, match=r"small\.gguf` exists"):
        wb.compress(source, path, "4bit")
    assert path.read_bytes() == b"mine"

    def stop(step: str, done: int, total: int) -> None:
        raise RuntimeError(step)

    with pytest.raises(RuntimeError):
        wb.compress(source, path, "4bit", text="a text " * 3000, overwrite=True, progress=stop)
    assert path.read_bytes() == b"mine"


def test_a_check_and_a_comparison_can_be_ended(tmp_path: Path) -> None:
    save_file({f"{n:03}": np.ones((512, 512), np.float32) for n in range(200)}, tmp_path / "long.safetensors")
    seen: list[int] = []

    def stop(done: int, total: int) -> None:
        seen.append(done)
        raise RuntimeError(f"{done} of {total}")

    with pytest.raises(RuntimeError):
        wb.check(tmp_path / "long.safetensors", threads=1, progress=stop)
    with pytest.raises(RuntimeError):
        wb.diff(tmp_path / "long.safetensors", tmp_path / "long.safetensors", threads=1, progress=stop)
    assert len(seen) == 2
