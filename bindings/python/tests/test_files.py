"""Work on whole checkpoints: what is written is read by others, what is wrong is found, what differs is told."""

from __future__ import annotations

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
