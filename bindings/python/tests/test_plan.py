"""Plans and loads."""

from __future__ import annotations

import collections.abc
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import numpy as np
import pytest
import weighbridge as wb
import weighbridge.numpy
from safetensors.numpy import load_file, save_file

from conftest import MODELS


def test_a_plan_says_what_it_does(llama: Path) -> None:
    plan = wb.plan(llama / "model.gguf", layout="hf", encode="f32")
    names = sorted(load_file(llama / "model.safetensors"))
    assert sorted(param.name for param in plan.params if param.tied_to is None) == names
    assert all(param.scheme == "f32" for param in plan.params)
    assert "parameters" in plan.explain()
    assert "model.norm.weight" in plan.explain("model.norm.weight")
    with pytest.raises(KeyError, match="the nearest is `model.norm.weight`"):
        plan.explain("model.norm.weigh")
    needs = plan.needs(owned=True)
    assert (needs.borrowed, needs.owned) == (0, sum(param.nbytes for param in plan.params if param.tied_to is None))
    assert plan.digest == wb.plan(wb.open(llama / "model.gguf"), layout="hf", encode={"*": "f32"}).digest
    assert plan.digest != wb.plan(llama / "model.gguf", layout="hf", encode="bf16").digest
    assert len(plan.only("model.layers.0.*", "model.norm.weight")) < len(plan)
    with pytest.raises(KeyError):
        plan.only("model.none.*")
    assert wb.plan(llama, layout="source").needs().borrowed > 0


def test_what_comes_from_gguf_is_what_safetensors_holds(model: Path) -> None:
    theirs = load_file(model / "model.safetensors")
    loaded = wb.plan(model / "model.safetensors", layout="hf", encode="f32").load()
    others = wb.plan(model / "model.gguf", layout="hf", encode="f32").load()
    assert isinstance(loaded, collections.abc.Mapping)
    assert set(theirs) <= set(loaded)
    assert set(theirs) <= set(others)
    for name, wanted in theirs.items():
        assert np.array_equal(wb.numpy.array(loaded[name]), wanted.astype("<f4")), name
        # Gemma's GGUF files hold `1 + w` of norms.
        found = wb.numpy.array(others[name])
        assert np.array_equal(found, wanted.astype("<f4")) or ("norm" in name and np.abs(found - wanted).max() < 1e-6), name


def test_everything_wrong_is_said_at_once(llama: Path, tmp_path: Path) -> None:
    weights = load_file(llama / "model.safetensors")
    del weights["model.norm.weight"]
    weights["model.layers.0.self_attn.q_proj.weight"] = weights["model.layers.0.self_attn.q_proj.weight"][:8]
    weights["surplus"] = weights["model.embed_tokens.weight"]
    save_file(weights, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((llama / "config.json").read_bytes())
    with pytest.raises(wb.PlanError) as caught:
        wb.plan(tmp_path)
    whole = str(caught.value)
    assert len(caught.value.problems) >= 3
    assert all(part in whole for part in ("output_norm", "q_proj", "surplus"))
    with pytest.raises(wb.PlanError, match="nothing"):
        wb.plan(llama, allow_missing=["nothing.*"])
    for wrong in ({"layout": "row-major"}, {"preset": "q4_k_n"}, {"encode": {"nothing.*": "bf16"}}, {"tp": 3}, {"rank": 4}):
        with pytest.raises(wb.MisuseError):
            wb.plan(llama, **wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        wb.plan(llama, encode=3)  # type: ignore[arg-type]


def test_ranks_hold_all_of_it_together(llama: Path) -> None:
    whole = wb.plan(llama, layout="vllm").load()
    ranks = [wb.plan(llama, layout="vllm", tp=2, rank=rank).load() for rank in range(2)]
    name = next(name for name in whole if name.endswith("down_proj.weight"))
    parts = [np.asarray(rank[name]) for rank in ranks]
    assert np.array_equal(np.concatenate(parts, axis=1), np.asarray(whole[name]))


def test_loads_go_into_memory_that_exists(llama: Path) -> None:
    plan = wb.plan(llama / "model.gguf", layout="hf", encode="f32")
    wanted = {name: np.array(wb.numpy.array(tensor)) for name, tensor in plan.load().items()}
    places = {param.name: np.full(param.shape, np.nan, dtype="<f4") for param in plan.params}
    report = plan.load_into(places)
    assert report.encoded + report.copied == plan.needs(owned=True).owned
    for param in plan.params:
        if param.tied_to is None:
            assert np.array_equal(places[param.name], wanted[param.name])
    # Bytes will do, and several kinds of mappings and sequences.
    raw = {param.name: (bytearray(param.nbytes),) for param in plan.params}
    plan.load_into(types.MappingProxyType(raw))
    assert all(bytes(raw[name][0]) == places[name].tobytes() for name in places)
    for wrong in (np.empty(places["model.norm.weight"].shape, ">f4"), np.empty(places["model.norm.weight"].shape, "<i4"), np.empty((4, 16), "<f4"),
                  np.empty(32, object)):  # fmt: skip
        with pytest.raises(wb.LoadError, match="model.norm.weight"):
            plan.load_into({**places, "model.norm.weight": wrong})
    # All that does not fit is said, and nothing is written.
    before = places["model.norm.weight"].copy()
    places["model.norm.weight"] = np.zeros(3, dtype="<f4")
    frozen = places["model.layers.0.input_layernorm.weight"]
    frozen.flags.writeable = False
    del places["model.layers.1.input_layernorm.weight"]
    places["else"] = before
    places["model.layers.0.mlp.up_proj.weight"] = places["model.layers.0.mlp.gate_proj.weight"]
    places["model.layers.0.mlp.down_proj.weight"] = places["model.layers.0.mlp.down_proj.weight"].T.copy().T
    with pytest.raises(wb.LoadError) as caught:
        plan.load_into(places)
    for part in ("`model.norm.weight`: wanted", "input_layernorm.weight`: its place", "has no place", "`else`", "share memory"):
        assert part in str(caught.value), part
    assert len(caught.value.problems) == 6


def test_other_values_go_into_the_memory_that_is_there(llama: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed.safetensors"
    raw = bytearray((llama / "model.safetensors").read_bytes())
    length = 8 + int.from_bytes(raw[:8], "little")
    values = np.frombuffer(raw, dtype="<f4", offset=length)
    values *= 2
    changed.write_bytes(raw)
    (tmp_path / "config.json").write_bytes((llama / "config.json").read_bytes())
    plans = [wb.plan(path, layout="vllm") for path in (llama, tmp_path)]
    wanted = {name: np.array(np.asarray(one)) for name, one in plans[1].load().items()}
    loaded = plans[0].load(owned=True)
    before = {name: loaded[name].planes[0][1].address for name in loaded}
    norm = "model.norm.weight"
    assert loaded.update(plans[1], norm).copied == wanted[norm].nbytes
    assert np.array_equal(np.asarray(loaded[norm]), wanted[norm])
    other = next(name for name in loaded if name.endswith("down_proj.weight"))
    assert not np.array_equal(np.asarray(loaded[other]), wanted[other])
    told: list[tuple[int, int]] = []
    loaded.update(plans[1], progress=lambda done, total: told.append((done, total)))
    for name, one in wanted.items():
        assert np.array_equal(np.asarray(loaded[name]), one), name
    assert before == {name: loaded[name].planes[0][1].address for name in loaded}
    with pytest.raises(wb.LoadError, match="nothing.*"):
        loaded.update(plans[1], "nothing.*")
    with pytest.raises(wb.LoadError, match="layout"):
        loaded.update(wb.plan(tmp_path, layout="hf"))
    in_use = np.asarray(loaded[norm])
    with pytest.raises(wb.LoadError, match="in use"):
        loaded.update(plans[0])
    assert np.array_equal(in_use, wanted[norm])
    with pytest.raises(wb.LoadError, match="map"):
        plans[0].load().update(plans[1])


def test_ranks_give_the_checkpoint_back(llama: Path) -> None:
    checkpoint = wb.open(llama)
    ranks = [(plan, plan.load()) for plan in (wb.plan(checkpoint, layout="vllm", tp=2, rank=rank) for rank in range(2))]
    found: dict[str, bytes] = {}

    def each(entry: wb.Entry, planes: list[bytearray]) -> None:
        (found[entry.name],) = map(bytes, planes)
        assert len(planes[0]) == entry.nbytes

    assert wb.export(ranks, each) == []
    assert list(found) == [entry.name for entry in checkpoint.entries]
    for name, data in found.items():
        assert data == np.asarray(checkpoint[name]).tobytes(), name
    with pytest.raises(wb.LoadError, match="down_proj"):
        wb.export(ranks[:1], each)
    with pytest.raises(wb.LoadError, match="different checkpoints"):
        other = wb.plan(llama / "model.gguf", layout="vllm")
        wb.export([ranks[0], (other, other.load())], each)

    def stop(entry: wb.Entry, planes: list[bytearray]) -> None:
        raise RuntimeError(entry.name)

    with pytest.raises(RuntimeError):
        wb.export(ranks, stop)
    coarse = wb.plan(checkpoint, layout="hf", encode="bf16")
    assert wb.export([(coarse, coarse.load())], each) != []
    assert np.frombuffer(found["model.norm.weight"], dtype="<f4") == pytest.approx(np.asarray(checkpoint["model.norm.weight"]), rel=4e-3)


def test_a_copy_is_of_a_plan_and_its_files(llama: Path, tmp_path: Path) -> None:
    for file in ("model.safetensors", "config.json"):
        (tmp_path / file).write_bytes((llama / file).read_bytes())
    # A file that was just written to may be written to again without another time.
    assert wb.plan(tmp_path).key() is None
    time.sleep(2.1)
    key = wb.plan(tmp_path).key()
    assert key is not None
    assert key == wb.plan(tmp_path).key()
    assert len({key, wb.plan(tmp_path).key("of an engine"), wb.plan(tmp_path, encode="bf16").key(), wb.plan(llama).key()}) == 4
    with open(tmp_path / "model.safetensors", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"x")
    assert wb.plan(tmp_path).key() is None
    time.sleep(2.1)
    assert wb.plan(tmp_path).key() not in (None, key)


def test_tied_parameters_have_a_place_of_their_own_or_their_roots() -> None:
    for layout in ("canonical", "vllm"):
        plan = wb.plan(MODELS / "qwen2-tiny", layout=layout, encode="f32")
        tied = next(param for param in plan.params if param.tied_to)
        assert tied.tied_to is not None
        places = {param.name: np.full(param.shape, np.nan, dtype="<f4") for param in plan.params}
        plan.load_into(places)
        assert np.array_equal(places[tied.name], places[tied.tied_to])
        assert np.isfinite(places[tied.name]).all()
        places[tied.name] = places[tied.tied_to]
        plan.load_into(places)
        del places[tied.name]
        plan.load_into(places)


def test_what_was_loaded_is_a_mapping(llama: Path) -> None:
    loaded = wb.plan(llama).load()
    assert list(loaded.keys()) == list(loaded) == [name for name, _ in loaded.items()]
    assert loaded.keys() & {"output_norm.weight", "else"} == {"output_norm.weight"}
    assert (5 in loaded, loaded.get(5), loaded.get("else", 3)) == (False, None, 3)
    assert [tensor.name for tensor in loaded.values()] == list(loaded)


def big(path: Path, megabytes: int) -> Path:
    """A file with `megabytes` tensors of 1 MiB."""
    rows = np.ones((1 << 10, 1 << 9), dtype="<f2")
    save_file({f"t{n}": rows for n in range(megabytes)}, path)
    return path


def test_progress_is_told_and_exceptions_end_a_load(tmp_path: Path) -> None:
    plan = wb.plan(big(tmp_path / "big.safetensors", 200), layout="source")
    seen: list[tuple[int, int]] = []
    thread = threading.get_ident()

    def told(done: int, total: int) -> None:
        assert threading.get_ident() == thread
        seen.append((done, total))

    loaded = plan.load(owned=True, progress=told)
    assert loaded.report.copied == 200 << 20
    assert seen[-1] == (200 << 20, 200 << 20)
    assert seen == sorted(seen)

    def broken(done: int, total: int) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        plan.load(owned=True, progress=broken)


def test_ctrl_c_ends_a_load(tmp_path: Path) -> None:
    path = big(tmp_path / "big.safetensors", 64)
    program = f"""
import signal, threading, time, os
import weighbridge as wb
plan = wb.plan({str(path)!r}, layout="source", encode="q6_k")
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    while True:
        plan.load(threads=1)
except KeyboardInterrupt:
    print("interrupted")
"""
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "interrupted\n", done.stderr
    assert time.monotonic() - started < 20


def test_threads_load_at_once_and_other_threads_run(tmp_path: Path) -> None:
    path = big(tmp_path / "big.safetensors", 50)
    results: list[int] = []

    def load() -> None:
        loaded = wb.plan(path, layout="source", encode="f32").load()
        results.append(sum(int(np.asarray(tensor)[0, 0]) for tensor in loaded.values()))

    threads = [threading.Thread(target=load) for _ in range(6)]
    ticks = 0
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        ticks += 1
        time.sleep(0.001)
    assert results == [50] * 6
    assert ticks > 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_child_after_fork_loads(llama: Path) -> None:
    plan = wb.plan(llama, encode="f32")
    first = plan.load()
    child = os.fork()
    if child == 0:
        try:
            same = all(
                np.array_equal(wb.numpy.array(tensor), wb.numpy.array(first[name])) for name, tensor in plan.load().items()
            )
            os._exit(0 if same else 1)
        except BaseException:  # noqa: BLE001
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not say what a process takes")
def test_memory_is_given_back(tmp_path: Path) -> None:
    path = big(tmp_path / "big.safetensors", 40)

    def use(owned: bool) -> None:
        loaded = wb.plan(path, layout="source").load(owned=owned)
        arrays = [np.asarray(tensor) for tensor in loaded.values()]
        del loaded
        assert sum(float(array.sum(dtype="f4")) for array in arrays) == 40 * (1 << 19)
        capsule = wb.open(path)["t1"].__dlpack__(max_version=(1, 0))
        del capsule

    for owned in (True, False):
        use(owned)
    gc.collect()
    before = resident()
    maps = Path("/proc/self/maps").read_text().count("big.safetensors")
    for n in range(100):
        use(owned=n % 2 == 0)
    gc.collect()
    assert resident() - before < 5 << 20
    assert Path("/proc/self/maps").read_text().count("big.safetensors") == maps == 0


def test_tensors_outlive_all_else(llama: Path) -> None:
    array = np.asarray(wb.plan(llama, encode="f32").load()["output_norm.weight"])
    gc.collect()
    assert np.isfinite(array).all()


def test_a_file_that_changes_is_an_error(tmp_path: Path) -> None:
    path = big(tmp_path / "big.safetensors", 2)
    plan = wb.plan(path, layout="source")
    os.utime(path, ns=(1, 1))
    with pytest.raises(wb.LoadError, match="changed"):
        plan.load(owned=True)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
