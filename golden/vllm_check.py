"""Asks vLLM itself: its model classes and weight loaders hold what vllm/*.json says.

    pip install vllm==0.33.0        (its source tree on PYTHONPATH does too: no kernel of it is run)
    python vllm_check.py [FILE…]

One process plays every rank on the CPU: the tensor-parallel group is told its size and rank before a model is built, and no
message is sent. The model is built by `initialize_model` from the file's config.json, its checkpoint is given to
`load_weights`, and the bytes of each parameter are compared with the digests, both ways: no parameter of either is left
over but those of ALLOWED. `process_weights_after_loading`, which makes of them what kernels want, is not called.
vllm/checked.json keeps what was found. 0.33.0 reads neither GGUF nor MLX: vllm_decoded.py asks about these;
vllm_merged.py about FP8 with a scale for each matrix, which becomes what it is only then.
"""

import argparse
import functools
import json
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from blake3 import blake3

from vllm_stream import stored_bytes

HERE = Path(__file__).parent
DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "I32": torch.int32,
          "F8_E4M3": torch.float8_e4m3fn}
# Parameters that no checkpoint here fills: biases of quantised experts (zeros), scales of an FP8 cache (ones).
ALLOWED = re.compile(r"experts\.w(13|2)_bias$|attn\.(q|k|v|prob)_scale$")


def checkpoint(told):
    for name, shape, dtype in told["entries"]:
        dtype = DTYPES[dtype]
        data = stored_bytes(name, int(np.prod(shape)) * dtype.itemsize, told["exceptions"])
        yield name, torch.from_numpy(np.array(data)).view(dtype).reshape(shape)


def engine_config(told, directory):
    from vllm.engine.arg_utils import EngineArgs

    (directory / "config.json").write_text(json.dumps(told["config"]))
    args = EngineArgs(model=str(directory), skip_tokenizer_init=True, enforce_eager=True, load_format="dummy")
    config = args.create_engine_config()
    config.model_config.dtype = getattr(torch, told["config"]["dtype"])  # else Gemma's float16 is cast to bfloat16
    return config


@functools.cache
def start_once():
    """One group of one process, whatever is played in it, and no kernels."""
    from vllm.config import VllmConfig

    start(VllmConfig())
    without_kernels()


def start(config):
    from vllm.config import set_current_vllm_config
    from vllm.distributed import parallel_state as groups

    with set_current_vllm_config(config), tempfile.TemporaryDirectory() as directory:
        groups.init_distributed_environment(1, 0, f"file://{directory}/store", 0, "gloo")
        groups.initialize_model_parallel(1)
        groups._EP = groups.get_tp_group()  # made for the first model's sake, which may have no experts


def without_kernels():
    """Loading needs no kernels: none is looked for, since none runs quantised experts on every CPU."""
    from unittest.mock import MagicMock

    from vllm.model_executor.layers.quantization import auto_awq, auto_gptq, fp8

    fp8.init_fp8_linear_kernel = MagicMock()
    fp8.select_fp8_moe_backend = lambda **_: (MagicMock(), None)
    for module in (auto_awq, auto_gptq):
        module.select_wna16_moe_backend = lambda *_, **__: (MagicMock(), None)


def play(config, size, rank, placement):
    from vllm.distributed import parallel_state as groups

    group = groups.get_tp_group()
    group.world_size, group.rank_in_group, group.ranks = size, rank, list(range(size))
    config.parallel_config.tensor_parallel_size = size
    config.parallel_config.enable_expert_parallel = placement is not None
    config.parallel_config.expert_placement_strategy = placement or "linear"
    config.compilation_config.static_forward_context.clear()


def loaded(config, size, rank, placement, weights):
    """One rank's model after `weights` are loaded."""
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype

    play(config, size, rank, placement)
    with set_current_vllm_config(config), set_default_torch_dtype(config.model_config.dtype):
        model = initialize_model(config)
        model.load_weights(weights)
    return model


def parameters(config, size, rank, placement, weights):
    """Its parameters, by name."""
    model = loaded(config, size, rank, placement, weights)
    return {name: parameter.data.contiguous() for name, parameter in model.named_parameters()}


def digest(tensor):
    data = tensor.reshape(-1).view(torch.uint8).numpy()
    return list(tensor.shape), blake3(data.tobytes()).hexdigest()[:16]


def names(name, scheme):
    """What vLLM calls the planes of a parameter."""
    if scheme.startswith("fp8"):
        return [name, f"{name}_scale_inv"]
    if scheme.startswith(("gptq", "awq")):
        return [f"{name.removesuffix('weight')}{part}" for part in ("qweight", "qzeros", "scales")]
    return [name]


def wanted(rank):
    out = {}
    for name, parameter in rank.items():
        for plane, (_, cells, hash) in zip(names(name, parameter["scheme"]), parameter["planes"], strict=True):
            out[plane] = cells, hash
    return out


def check(told, directory):
    """Differences, and parameters compared."""
    config = engine_config(told, directory)
    start_once()
    cases = [(f"tp {size} rank {rank}", int(size), rank, None, said)
             for size, ranks in told["tp"].items() for rank, said in enumerate(ranks)]
    for placement in ("linear", "round_robin"):
        # Only with several groups of experts is it round-robin: expert_map_manager.py.
        kept = placement if told["config"].get("n_group", 1) > 1 else "linear"
        ranks = told.get("ep", {}).get(kept, [])
        cases += [(f"ep {len(ranks)} {placement} rank {rank}", len(ranks), rank, placement, said)
                  for rank, said in enumerate(ranks)]
    problems, compared = [], 0
    for title, size, rank, placement, said in cases:
        found = parameters(config, size, rank, placement, checkpoint(told))
        found, said = {name: digest(tensor) for name, tensor in found.items()}, wanted(said)
        compared += len(said)
        problems += [f"{title}: `{n}` is not vLLM's" for n in said if n not in found]
        problems += [f"{title}: `{n}` is vLLM's only" for n in found if n not in said and not ALLOWED.search(n)]
        problems += [f"{title}: `{n}` wanted {said[n]}, vLLM has {found[n]}" for n in said
                     if n in found and tuple(said[n]) != found[n]]
    return problems, compared


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    files = parser.parse_args().files
    if not files:
        files = [f for f in sorted((HERE / "vllm").glob("*-*.json")) if not re.search("-(q4_k|q8_0|mlx4|fp8t)$", f.stem)]
    results = {}
    for file in files:
        with tempfile.TemporaryDirectory() as directory:
            try:
                problems, compared = check(json.loads(file.read_text()), Path(directory))
            except Exception as error:  # what vLLM refuses is a result too
                problems, compared = [f"{type(error).__name__}: {error}"], 0
        results[file.stem] = {"compared": compared, "problems": problems}
        print(file.stem, compared, len(problems), *problems[:3], sep="  ", flush=True)
    if len(files) > 1:
        (HERE / "vllm" / "checked.json").write_text(written(results) + "\n")
    sys.exit(any(found["problems"] for found in results.values()))


def written(results):
    import vllm

    rows = [f" {json.dumps(name)}: {json.dumps(found)}" for name, found in results.items()]
    about = json.dumps({"vllm": vllm.__version__, "commit": getattr(vllm._version, "commit_id", None),
                        "torch": torch.__version__.split("+")[0]})
    return "{\n" + ",\n".join([f' "versions": {about}', *rows]) + "\n}"


if __name__ == "__main__":
    main()
