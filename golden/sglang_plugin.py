"""Asks SGLang itself: the loader of the Python package `weighbridge` fills its modules as its own loader does.

    pip install sglang==0.5.23 (without the packages of CUDA), and the wheel
    python sglang_plugin.py modules [CASE…]
    python sglang_plugin.py forms WEIGHBRIDGE MODEL.gguf:RANKS[,RANKS…] …       # smollm2.gguf:1,3

SGLang's kernels are not to be had for a CPU, so they are stand-ins that nothing calls: models are built and loaded, and generate no text.
Each rank is a process of its own, and the processes of a model are joined by gloo.

`modules` writes the checkpoints of vllm/*.json in bf16 and FP8 as files. On 1, 2 and 4 ranks each model is loaded twice, by SGLang's own loader
and by `--load-format weighbridge`, with all that SGLang does after loading. Each parameter and buffer is then the same, bit for bit.
vllm/sglang.json keeps what was found, and whether the modules were filled in place. What SGLang's own loader refuses is listed with its error.

`forms` converts each model to an HF directory in bf16 and to MLX: what SGLang's own loader makes of the directory is what this one makes of the
GGUF file, of the directory and of MLX. It prints what all ranks together have read, as a share of the directory's bytes.
"""

import argparse
import importlib.machinery
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from unittest.mock import MagicMock

HERE = Path(__file__).parent
SIZES = (1, 2, 4)


def one_rank(told):
    """A process: builds the model by each way of `told`, and compares them with the first."""
    os.environ["SGLANG_USE_CPU_ENGINE"] = "1"
    for name in ("sgl_kernel", "sgl_kernel.quantization"):
        module = MagicMock()
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.__version__ = "0.4.10"
        sys.modules[name] = module
    import logging

    import torch
    from sglang.srt.plugins import load_plugins

    load_plugins()
    from sglang.srt.configs.device_config import DeviceConfig
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.distributed import init_distributed_environment, initialize_model_parallel
    from sglang.srt.layers.dp_attention import initialize_dp_attention
    from sglang.srt.model_loader.loader import get_model_loader
    from sglang.srt.runtime_context import SpawnRanks, publish
    from sglang.srt.server_args import ServerArgs

    # A communicator of CUDA's, which loading does not use.
    from sglang.srt.distributed.device_communicators import pynccl

    pynccl.PyNcclCommunicator = MagicMock()
    logging.getLogger("sglang.weighbridge").setLevel(logging.INFO)
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("sglang.weighbridge").addHandler(handler)

    def model(arguments, first):
        if "from" in arguments:
            import weighbridge.sglang

            arguments = weighbridge.sglang.arguments(arguments["from"], fallback=False)
        server = ServerArgs(device="cpu", skip_tokenizer_init=True, attention_backend="torch_native", disable_overlap_schedule=True,
                            tp_size=told["size"], dtype="bfloat16", **arguments)
        publish(server, role="scheduler", ranks=SpawnRanks(world_rank=told["rank"]))
        if first:
            init_distributed_environment(world_size=told["size"], rank=told["rank"], local_rank=0, backend="gloo",
                                         distributed_init_method=f"file://{told['store']}")
            initialize_model_parallel(backend="gloo")
        initialize_dp_attention(server)
        config = ModelConfig.from_server_args(server)
        extra = server.model_loader_extra_config
        loader = get_model_loader(LoadConfig(load_format=server.load_format, model_loader_extra_config=extra), config)
        made = loader.load_model(model_config=config, device_config=DeviceConfig("cpu", -1))
        return {name: tensor.detach() for name, tensor in made.state_dict().items()}

    def bits(tensor):
        return tensor.clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)

    out = {"compared": 0, "problems": [], "lines": []}
    try:
        wanted = model(told["ways"][0], True)
    except Exception as error:
        out["refused"] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        out["trace"] = traceback.format_exc()[-1500:]
        return out
    for number, arguments in enumerate(told["ways"][1:]):
        lines.clear()
        try:
            found = model(arguments, False)
        except Exception as error:
            out["problems"].append(f"way {number}: {type(error).__name__}: {error}")
            out["trace"] = traceback.format_exc()[-1500:]
            continue
        out["lines"].append(list(lines))
        out["problems"] += [f"way {number}: `{name}` is there once" for name in wanted.keys() ^ found.keys()]
        for name in wanted.keys() & found.keys():
            out["compared"] += 1
            if wanted[name].shape != found[name].shape or not torch.equal(bits(wanted[name]), bits(found[name])):
                out["problems"].append(f"way {number}: `{name}` differs")
    return out


def ranks(size, ways, directory):
    """What each rank says."""
    store = directory / f"store{size}"
    store.unlink(missing_ok=True)
    environment = dict(os.environ, WEIGHBRIDGE_CACHE=str(directory / "cache"), OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
    running = []
    for rank in range(size):
        told = json.dumps({"size": size, "rank": rank, "ways": ways, "store": str(store)})
        running.append(subprocess.Popen([sys.executable, __file__, "--rank", told], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env=environment))
    out = []
    for process in running:
        said, errors = process.communicate(timeout=600)
        found = re.search("^RANK (.*)$", said, re.M)
        out.append(json.loads(found[1]) if found else {"compared": 0, "problems": [f"ended: {(said + errors)[-600:]}"], "lines": []})
    return out


def summed(said, way, bytes_of_all):
    """In place or not, and the share of `bytes_of_all` that all ranks have read."""
    lines = [" ".join(one["lines"][way]) for one in said if len(one["lines"]) > way]
    read = [float(n) * 1e9 for line in lines for n in re.findall(r"([\d.]+) GB read", line)]
    if len(read) < len(said):
        return {"in place": False}
    return {"in place": True, "read": round(sum(read) / bytes_of_all, 3)} if bytes_of_all > 1e8 else {"in place": True}


def modules(cases):
    from safetensors.torch import save_file

    from vllm_check import checkpoint

    files = [f for f in sorted((HERE / "vllm").glob("*-*.json")) if re.search("-(bf16|fp8)$", f.stem)]
    results, wrong = {}, False
    for file in files:
        if cases and file.stem not in cases:
            continue
        told, result = json.loads(file.read_text()), {"compared": 0, "problems": []}
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            source = directory / "source"
            source.mkdir()
            save_file({name: tensor.clone() for name, tensor in checkpoint(told)}, source / "model.safetensors")
            (source / "config.json").write_text(json.dumps(told["config"]))
            ways = [{"model_path": str(source)}, {"model_path": str(source), "load_format": "weighbridge"}]
            for size in SIZES:
                said = ranks(size, ways, directory)
                refused = next((one["refused"] for one in said if "refused" in one), None)
                if refused is not None:
                    result["refused by SGLang"] = refused
                    break
                for rank, one in enumerate(said):
                    result["compared"] += one["compared"]
                    result["problems"] += [f"tp {size} rank {rank}: {problem}" for problem in one["problems"]]
                result["in place"] = summed(said, 0, 1)["in place"]
        results[file.stem] = result
        wrong |= bool(result["problems"])
        others = {key: said for key, said in result.items() if key not in ("compared", "problems")}
        print(file.stem, result["compared"], len(result["problems"]), *result["problems"][:3], others, sep="  ", flush=True)
    if not cases:
        import sglang

        rows = [f" {json.dumps(name)}: {json.dumps(found)}" for name, found in results.items()]
        about = json.dumps({"sglang": sglang.__version__})
        (HERE / "vllm" / "sglang.json").write_text("{\n" + ",\n".join([f' "versions": {about}', *rows]) + "\n}\n")
    sys.exit(wrong)


def forms(weighbridge, *models):
    wrong = False
    for model in models:
        gguf, _, counts = model.rpartition(":")
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            hf, mlx = directory / "hf", directory / "mlx"
            for to, form in ((hf, "hf"), (mlx, "mlx")):
                command = [weighbridge, "convert", gguf, to, "--to", form, "--encode", "*=bf16"]
                subprocess.run(command, check=True, capture_output=True)
            ways = [{"model_path": str(hf)}, {"model_path": str(hf), "load_format": "weighbridge"}]
            ways += [{"from": gguf}, {"from": str(mlx)}]
            size_of_all = sum(file.stat().st_size for file in hf.glob("*.safetensors"))
            for count in (int(n) for n in counts.split(",")):
                said = ranks(count, ways, directory)
                problems = [f"rank {rank}: {problem}" for rank, one in enumerate(said) for problem in one["problems"]]
                problems += [one["refused"] for one in said if "refused" in one]
                wrong |= bool(problems)
                shares = [summed(said, way, size_of_all) for way in range(3)]
                compared = sum(one["compared"] for one in said)
                print(Path(gguf).stem, f"{count} ranks: {compared} tensors compared, {len(problems)} problems", *problems[:3], *shares, sep="  ", flush=True)
    sys.exit(wrong)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        print("RANK " + json.dumps(one_rank(json.loads(sys.argv[2]))), flush=True)
        os._exit(0)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["modules", "forms"])
    parser.add_argument("rest", nargs="*")
    given = parser.parse_args()
    modules(given.rest) if given.what == "modules" else forms(*given.rest)
