"""What a checkpoint holds, held against the readers of the formats' own packages."""

from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import weighbridge as wb
import weighbridge.numpy
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from conftest import MODELS


def test_a_checkpoint_says_what_it_holds(llama: Path) -> None:
    hf = wb.open(llama)
    assert (hf.format, hf.family) == ("hf", "llama")
    assert hf.config is not None
    assert hf.config["model_type"] == "llama"
    assert list(hf) == hf.keys() == [entry.name for entry in hf.entries]
    assert "model.norm.weight" in hf
    assert "model.norm.weigh" not in hf
    gguf = wb.open(llama / "model.gguf")
    assert (gguf.format, gguf.family, gguf.config) == ("gguf", "llama", None)
    assert gguf.metadata["general.architecture"] == "llama"
    assert gguf.metadata["llama.block_count"] == hf.config["num_hidden_layers"]
    assert gguf.metadata["llama.attention.layer_norm_rms_epsilon"] == pytest.approx(hf.config["rms_norm_eps"])
    assert len(gguf) == len(gguf.entries)
    entry = gguf.entries[0]
    assert entry.name in repr(entry)
    assert entry.shape == gguf[entry.name].shape


def test_tensors_are_those_that_safetensors_reads(model: Path) -> None:
    theirs = load_file(model / "model.safetensors")
    checkpoint = wb.open(model / "model.safetensors")
    assert sorted(checkpoint.keys()) == sorted(theirs)
    ours = wb.numpy.load_file(model / "model.safetensors")
    for name, wanted in theirs.items():
        tensor = checkpoint[name]
        assert tensor.borrowed
        for found in (wb.numpy.array(tensor), np.asarray(tensor), np.from_dlpack(tensor), ours[name]):
            assert found.dtype == wanted.dtype
            assert found.shape == wanted.shape
            assert found.tobytes() == wanted.tobytes()
            assert memoryview(tensor).tolist() == wanted.tolist()
            assert hashlib.sha256(tensor).digest() == hashlib.sha256(wanted).digest()
            # Nothing is copied.
            assert found is ours[name] or found.__array_interface__["data"][0] == tensor.planes[0][1].address
    with safe_open(model / "model.safetensors", framework="np") as file:
        assert checkpoint.metadata == (file.metadata() or {})


def test_every_plain_type_is_read_as_safetensors_reads_it(tmp_path: Path) -> None:
    ml = pytest.importorskip("ml_dtypes")
    kinds = ["?", "u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8"]
    arrays = {kind: np.arange(24).reshape(2, 3, 4).astype(kind) for kind in kinds}
    arrays |= {kind: np.arange(6).astype(getattr(ml, kind)) for kind in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}
    arrays |= {"none": np.zeros((0, 5), dtype="<f4"), "scalar": np.array(3.5, dtype="<f4")}
    save_file(arrays, tmp_path / "all.safetensors")
    found = wb.numpy.load_file(tmp_path / "all.safetensors")
    assert sorted(found) == sorted(arrays)
    for name, wanted in arrays.items():
        assert found[name].dtype == wanted.dtype, name
        assert found[name].shape == wanted.shape, name
        assert found[name].tobytes() == wanted.tobytes(), name
        taken = np.asarray(wb.open(tmp_path / "all.safetensors")[name])
        assert taken.dtype == wanted.dtype, name
        assert taken.tobytes() == wanted.tobytes(), name


def test_what_is_written_to_a_mapped_tensor_stays_here(tmp_path: Path) -> None:
    save_file({"a": np.arange(5000, dtype="<f4")}, tmp_path / "a.safetensors")
    before = (tmp_path / "a.safetensors").read_bytes()
    tensor = wb.open(tmp_path / "a.safetensors")["a"]
    assert tensor.borrowed
    assert tensor.writable
    array = np.asarray(tensor)
    array[7] = -1
    assert np.asarray(tensor)[7] == -1
    assert (tmp_path / "a.safetensors").read_bytes() == before
    assert np.asarray(wb.open(tmp_path / "a.safetensors")["a"])[7] == 7
    assert not wb.open(tmp_path / "a.safetensors", io="pread")["a"].borrowed


def test_every_type_of_gguf_has_planes_and_is_decoded_when_asked() -> None:
    checkpoint = wb.open(MODELS.parent / "gguf" / "every-type.gguf")
    said = json.loads((MODELS.parent / "gguf" / "every-type.json").read_text())
    assert {key: checkpoint.metadata[key] for key, kind, *_ in said["pairs"] if kind != "arr"} == {
        key: value for key, kind, value in (pair for pair in said["pairs"] if pair[1] != "arr")
    }
    blocks = [entry for entry in checkpoint.entries if checkpoint[entry.name].dtype is None]
    assert len(blocks) > 20
    for entry in blocks:
        tensor = checkpoint[entry.name]
        assert sum(len(plane) for _, plane in tensor.planes) == entry.nbytes == tensor.nbytes
        with pytest.raises(ValueError, match=tensor.scheme):
            wb.numpy.array(tensor)
        with pytest.raises(BufferError, match=tensor.scheme):
            memoryview(tensor)
        with pytest.raises(BufferError, match=tensor.scheme):
            np.from_dlpack(tensor)
        with pytest.raises(ValueError, match=tensor.scheme):
            np.asarray(tensor)
        decoded = np.asarray(checkpoint.get(entry.name, "f32"))
        assert decoded.shape == entry.shape
        assert np.array_equal(decoded, wb.numpy.load_file(checkpoint.path, only=[entry.name])[entry.name], equal_nan=True)


def test_dlpack_hands_over_and_is_cleaned_up(llama: Path) -> None:
    tensor = wb.open(llama / "model.safetensors")["model.norm.weight"]
    assert tensor.__dlpack_device__() == (1, 0)
    # Nobody takes these.
    for version in (None, (1, 0), (0, 8), (2, 3)):
        del_me = tensor.__dlpack__(max_version=version)
        assert "dltensor" in repr(del_me)
        del del_me
    with pytest.raises(BufferError):
        tensor.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError):
        tensor.__dlpack__(copy=True)
    array = np.from_dlpack(tensor)
    del tensor
    assert array.sum() != 0


def test_errors_say_all_and_can_be_pickled(llama: Path, tmp_path: Path) -> None:
    with pytest.raises(wb.CheckpointError, match="none.gguf"):
        wb.open(tmp_path / "none.gguf")
    checkpoint = wb.open(llama)
    with pytest.raises(KeyError, match="the nearest is `model.norm.weight`"):
        checkpoint["model.norm.weigh"]
    with pytest.raises(wb.MisuseError, match="bf17") as caught:
        checkpoint.get("model.norm.weight", "bf17")
    assert caught.value.hint == "the nearest is `bf16`"
    with pytest.raises(ValueError, match="io is"):
        wb.open(llama, io="fast")  # type: ignore[arg-type]
    save_file({"x": np.zeros(3, dtype="<f4")}, tmp_path / "x.safetensors")
    with pytest.raises(wb.UnknownModelError):
        wb.plan(tmp_path / "x.safetensors")
    assert len(wb.plan(tmp_path / "x.safetensors", layout="source")) == 1
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again), again.problems) == (wb.MisuseError, str(caught.value), caught.value.problems)


def test_malformed_files_are_errors(llama: Path, tmp_path: Path) -> None:
    """200 files with changed and missing bytes: an exception of ours, or a checkpoint, and never the end of the process."""
    random = np.random.default_rng(5)
    path = tmp_path / "changed"
    errors = 0
    for source in ("model.safetensors", "model.gguf"):
        whole = (llama / source).read_bytes()
        for n in range(100):
            content = bytearray(whole)
            for _ in range(random.integers(1, 5)):
                content[random.integers(0, min(4096, len(content)))] = random.integers(0, 256)
            if n % 3 == 0:
                del content[random.integers(0, len(content)) :]
            file = path.with_suffix(Path(source).suffix)
            file.write_bytes(content)
            try:
                checkpoint = wb.open(file)
                checkpoint.metadata  # noqa: B018
                for tensor in wb.plan(checkpoint, layout="source").load().values():
                    assert tensor.nbytes >= 0
                wb.plan(checkpoint)
            except wb.Error as error:
                errors += 1
                assert error.problems
                assert str(error)
    assert errors > 100
