"""Tensors of PyTorch, held against safetensors' own."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch
import weighbridge as wb
from safetensors import safe_open
from weighbridge import _weighbridge
from weighbridge import torch as wt

from conftest import fetched

MODELS = Path(__file__).parents[4] / "golden" / "models"
FILE = MODELS / "llama-tiny" / "model.safetensors"

KINDS = [
    torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64,
]  # fmt: skip


@pytest.fixture
def every(tmp_path: Path) -> Path:
    """A file with a tensor of every type, one without elements, and one without axes."""
    numbers = torch.arange(24).reshape(2, 3, 4)
    tensors = {str(kind): numbers.to(torch.float32).to(kind) for kind in KINDS}
    tensors |= {"none": torch.zeros((0, 5)), "scalar": torch.tensor(3.5, dtype=torch.bfloat16)}
    safetensors.torch.save_file(tensors, tmp_path / "every.safetensors", {"format": "pt"})
    return tmp_path / "every.safetensors"


def same(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    raw = [one.reshape(-1).view(torch.uint8) if one.numel() else one for one in (found, wanted)]
    return found.dtype == wanted.dtype and found.shape == wanted.shape and torch.equal(*raw)


def test_load_file_is_that_of_safetensors(every: Path) -> None:
    theirs = safetensors.torch.load_file(every)
    ours = wt.load_file(every)
    assert sorted(ours) == sorted(theirs)
    checkpoint = wb.open(every)
    for name, wanted in theirs.items():
        assert same(ours[name], wanted), name
        assert same(wt.tensor(checkpoint[name]), wanted), name
        assert wt.dtype(wt.scheme(wanted.dtype)) == wanted.dtype
        taken = torch.from_dlpack(checkpoint[name])
        assert same(taken, wanted), name
        if wanted.numel():
            # Nothing is copied.
            assert taken.data_ptr() == wt.tensor(checkpoint[name]).data_ptr() or not checkpoint[name].borrowed
    assert list(wt.load_file(every, only=["scalar"])) == ["scalar"]
    assert wt.load_file(every, dtype=torch.float16, only=["torch.float32"])["torch.float32"].dtype == torch.float16


def test_safe_open_is_that_of_safetensors(every: Path) -> None:
    with safe_open(every, framework="pt") as theirs, wt.safe_open(every, framework="pt", device="cpu") as ours:
        assert sorted(ours.keys()) == sorted(theirs.keys())
        assert ours.offset_keys() == theirs.offset_keys()
        assert ours.metadata() == theirs.metadata()
        for name in theirs.keys():  # noqa: SIM118
            assert same(ours.get_tensor(name), theirs.get_tensor(name)), name
            assert list(ours.get_slice(name).get_shape()) == list(theirs.get_slice(name).get_shape())
        part, whole = ours.get_slice("torch.bfloat16"), theirs.get_slice("torch.bfloat16")
        for index in (slice(1, 2), (slice(None), slice(0, 2)), (0, 1, slice(1, 3)), ...):
            assert same(part[index].contiguous(), whole[index].contiguous())
        assert part.get_dtype() == whole.get_dtype() == "BF16"
    with pytest.raises(ValueError, match="framework"):
        wt.safe_open(every, framework="jax")


def test_tensors_may_be_changed_in_place(every: Path) -> None:
    before = every.read_bytes()
    for owned in (False, True):
        weights = wt.state_dict(wb.plan(every, layout="source").load(owned=owned))
        weights["torch.float32"].mul_(2)
        assert weights["torch.float32"][1, 2, 3] == 46
    assert every.read_bytes() == before


def test_a_plan_fills_tensors_that_exist(tmp_path: Path) -> None:
    plan = wb.plan(MODELS / "llama-tiny" / "model.gguf", layout="hf", encode="bf16")
    wanted = wt.state_dict(plan.load())
    tensors = {param.name: torch.full(param.shape, torch.nan, dtype=torch.bfloat16) for param in plan.params}
    addresses = {name: one.data_ptr() for name, one in tensors.items()}
    report = wt.load_into(plan, tensors)
    assert report.borrowed == 0
    for name, one in tensors.items():
        assert one.data_ptr() == addresses[name]
        assert same(one, wanted[name]), name
    tensors["model.norm.weight"] = torch.zeros(3, dtype=torch.bfloat16)
    tensors["lm_head.weight"] = tensors["lm_head.weight"].float()
    tensors["model.layers.0.mlp.up_proj.weight"] = tensors["model.layers.0.mlp.up_proj.weight"].T.contiguous().T
    tensors["else"] = torch.zeros(1)
    del tensors["model.embed_tokens.weight"]
    with pytest.raises(wb.LoadError) as caught:
        wt.load_into(plan, tensors)
    assert len(caught.value.problems) == 5
    assert caught.value.hint == "plan it with encode={'lm_head.weight': 'f32'}"
    assert "nan" not in str(caught.value)


@pytest.mark.parametrize("stage", [1, 3000, 1 << 20])
def test_tensors_of_other_devices_go_through_a_small_piece_of_memory(monkeypatch: pytest.MonkeyPatch, stage: int) -> None:
    plan = wb.plan(MODELS / "llama-tiny" / "model.gguf", layout="hf", encode="bf16")
    wanted = wt.state_dict(plan.load())
    tensors = {param.name: torch.full(param.shape, torch.nan, dtype=torch.bfloat16) for param in plan.params}
    # As if those of odd layers were elsewhere.
    elsewhere = {id(one) for name, one in tensors.items() if ".1." in name}
    is_direct = wt.Place.is_direct.fget
    assert is_direct is not None
    monkeypatch.setattr(wt.Place, "is_direct", property(lambda place: id(place.target) not in elsewhere and is_direct(place)))
    monkeypatch.setattr(wt, "_STAGE", stage)
    made: list[int] = []
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda size, **more: made.append(size) or empty(size, **more))
    told: list[tuple[int, int]] = []
    report = wt.load_into(plan, tensors, progress=lambda done, total: told.append((done, total)))
    for name, one in tensors.items():
        assert same(one, wanted[name]), name
    largest = max(2 * one.numel() + 256 for one in tensors.values())
    assert len(made) == 1 and made[0] <= max(stage, largest), made
    total = sum(2 * one.numel() for one in tensors.values())
    assert told[-1] == (total, total) and told == sorted(told)
    assert report.copied + report.encoded >= total


@pytest.mark.parametrize("stage", [1, 3000, 1 << 20])
def test_a_file_goes_to_another_device(every: Path, monkeypatch: pytest.MonkeyPatch, stage: int) -> None:
    monkeypatch.setattr(wt.Place, "is_direct", property(lambda place: False))
    monkeypatch.setattr(wt, "_STAGE", stage)
    blocks = ["blk.1.attn_q.weight", "blk.0.attn_norm.weight", "blk.0.attn_q.weight"]
    files = (every, None), (MODELS / "llama-tiny" / "model.gguf", None), (fetched("smollm2") / "smollm2.gguf", blocks)
    for path, only in files:
        wanted = wt.load_file(path, only=only)
        # As if it were elsewhere.
        found = wt._made(_weighbridge._selection(wb.open(path), None, only), "cpu")
        assert list(found) == list(wanted)
        assert all(same(one, wanted[name]) for name, one in found.items())
        shapes = wt.load_file(path, device="meta", only=only)
        assert all(one.is_meta and (one.shape, one.dtype) == (wanted[n].shape, wanted[n].dtype) for n, one in shapes.items())
    with pytest.raises(ValueError, match="q8_0, for which PyTorch has no type"):
        wt.load_file(MODELS / "llama-tiny" / "model.gguf", device="meta", dtype="q8_0", only=["token_embd.weight"])


def test_what_is_read_may_be_repeated() -> None:
    plan = wb.plan(MODELS / "llama-tiny" / "model.gguf", layout="hf", encode="f32").only("model.norm.weight")
    (param,) = plan.params
    target = torch.zeros((3, *param.shape))
    wt.fill(plan, {param.name: [wt.Place(target, param.shape)]})
    (wanted,) = wt.state_dict(plan.load()).values()
    assert all(same(row, wanted) for row in target)


def test_ties_share_memory() -> None:
    loaded = wb.plan(MODELS / "gpt2-tiny" / "model.safetensors", layout="hf").load()
    weights = wt.state_dict(loaded)
    ties = [param for param in wb.plan(MODELS / "gpt2-tiny" / "model.safetensors", layout="hf").params if param.tied_to]
    for param in ties:
        assert param.tied_to is not None
        assert weights[param.name].data_ptr() == weights[param.tied_to].data_ptr()
