"""Asks vLLM itself: its loader `sharded_state` takes what `weighbridge convert --layout vllm` writes.

    pip install vllm==0.33.0        (its source tree on PYTHONPATH does too: no kernel of it is run)
    python vllm_sharded.py --weighbridge BIN [CASE…]

As vllm_check.py: one process plays every rank on the CPU. The checkpoints of vllm/*.json are written as files, converted for 1, 2
and 4 ranks, and given to `ShardedStateLoader.load_weights`, which refuses whatever is not the whole state of its modules. Each
parameter and buffer is then, bit for bit, what it is after `load_weights` of the model itself from the same checkpoint; of FP8 with
a scale for each matrix, what vllm_merged.py says of it. vllm/sharded.json keeps what was found, and what `convert` refuses.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file

import vllm_check as check
import vllm_merged

HERE = Path(__file__).parent
SIZES = (1, 2, 4)


def state(model):
    from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader

    return ShardedStateLoader._filter_subtensors(model.state_dict())


def filled(config, size, rank, load):
    """A rank's model with memory full of garbage, after `load` of it and the configuration."""
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype

    check.play(config, size, rank, None)
    with set_current_vllm_config(config), set_default_torch_dtype(config.model_config.dtype):
        model = initialize_model(config)
        for tensor in state(model).values():
            tensor.view(torch.uint8).fill_(0xA5) if tensor.dim() else tensor.fill_(7)
        load(model, config.model_config)
    return model


def sharded(config, directory, size, rank):
    """A rank's model from the files of the rank."""
    from vllm.config import LoadConfig
    from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader

    def load(model, model_config):
        model_config.model_weights = str(directory)
        ShardedStateLoader(LoadConfig(load_format="sharded_state")).load_weights(model, model_config)
        model_config.model_weights = ""

    return filled(config, size, rank, load)


def bits(tensor):
    return tensor.detach().clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)


def compare(title, found, wanted, result):
    merged = {}
    if "fp8t" in title:
        merged = {name: scaled for name, scaled in vllm_merged.merged(wanted).items()}
    found, wanted = state(found), state(wanted)
    for name, tensor in wanted.items():
        result["compared"] += 1
        if name in merged:
            tensor = merged[name][0]
        elif name.removesuffix("_scale") in merged:
            tensor = merged[name.removesuffix("_scale")][1].expand(tensor.shape)
        if not torch.equal(bits(found[name]), bits(tensor)):
            result["problems"].append(f"{title}: `{name}` differs")


def each(cases, keep):
    """Each case as a checkpoint in a directory: what it is called, its description, that directory, its configuration, and the result to
    fill. The results of all are written to the file `keep`, if no case was named."""
    files = [f for f in sorted((HERE / "vllm").glob("*-*.json")) if not re.search("-(q4_k|q8_0|mlx4)$", f.stem)]
    results = {}
    for file in files:
        if cases and file.stem not in cases:
            continue
        told, result = json.loads(file.read_text()), {"compared": 0, "problems": []}
        with tempfile.TemporaryDirectory() as directory:
            source = Path(directory) / "source"
            source.mkdir()
            save_file({name: tensor.clone() for name, tensor in check.checkpoint(told)}, source / "model.safetensors")
            (source / "config.json").write_text(json.dumps(told["config"]))
            config = check.engine_config(told, source)
            check.start_once()
            yield file.stem, told, source, config, result
        results[file.stem] = result
        others = [said for key, said in result.items() if key not in ("compared", "problems")]
        print(file.stem, result["compared"], len(result["problems"]), *result["problems"][:3], *others, sep="  ", flush=True)
    if not cases:
        (HERE / "vllm" / keep).write_text(check.written(results) + "\n")
    sys.exit(any(found["problems"] for found in results.values()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weighbridge", required=True)
    parser.add_argument("cases", nargs="*")
    options = parser.parse_args()
    for case, told, source, config, result in each(options.cases, "sharded.json"):
        for size in SIZES:
            to = source.with_name(f"tp{size}")
            command = [options.weighbridge, "convert", source, to, "--to", "hf", "--layout", "vllm", "--tp", str(size)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                result["refused"] = done.stderr.strip().splitlines()[0]
                continue
            for rank in range(size):
                title = f"{case} tp {size} rank {rank}"
                try:
                    found = sharded(config, to, size, rank)
                except Exception as error:
                    result["problems"].append(f"{title}: {type(error).__name__}: {error}")
                    continue
                compare(title, found, check.loaded(config, size, rank, None, check.checkpoint(told)), result)


if __name__ == "__main__":
    main()
