"""Asks vLLM itself on a GPU: the loader of the Python package `weighbridge` leaves what its own loader does after all processing, keeps that,
and generates with it.

    python vllm_gpu.py modules [CASE…]
    python vllm_gpu.py starts [GIGABYTES]
    python vllm_gpu.py texts MODEL.gguf

All want vllm==0.33.0, the wheel, and a GPU; with `--no-gpu`, `modules` and `starts` want none, and leave out what only an H100's kernels process (vllm_stand_in.py); `modules` wants vllm_check.py beside it, and blake3. `--engine` has more arguments of vLLM's engine,
`--mla` those of models with latent attention, as '{"attention_config": {"backend": "TRITON_MLA"}}'.

`modules` writes the checkpoints of vllm/*.json as files. Each, and those in bf16 quantised to FP8 on the way too, is loaded by vLLM's own loader and by this one, and by this one twice with
`cache`: the first start keeps what processing made, the second reads it. Each parameter and buffer has, after processing, the same type, shape,
strides and bytes. vllm/gpu.json keeps what was found, and which kernels vLLM had no weights for.

`starts` writes a Llama of random weights, in bf16 and in FP8 with a scale for each matrix (vLLM encodes the parts of what it fuses anew). It
measures, each in turn and as a process of its own, how long `load_model` takes: vLLM's own loader, this one, and this one with `cache`.

`texts` makes an HF directory of the model in bf16. vLLM's own loader and this one write texts from it, and this one from the GGUF file, with
and without `cache`. All are the same.
"""

import argparse
import json
import logging
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
ROUNDS = 5
ENGINE, MLA, KEEP, HAS_GPU = {}, {}, HERE / "vllm" / "gpu.json", True


def engine(directory, **more):
    """vLLM's configuration for the model in `directory`."""
    import torch
    from vllm.engine.arg_utils import EngineArgs

    told = json.loads((Path(directory) / "config.json").read_text())
    more = {**(MLA if "kv_lora_rank" in told else ENGINE), **more}
    config = EngineArgs(model=str(directory), skip_tokenizer_init=True, enforce_eager=True, **more).create_engine_config()
    if not HAS_GPU:
        config.device_config.device = torch.device("cpu")
    return config


def start():
    """One group of one process."""
    import torch
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import parallel_state as groups
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    torch.accelerator.set_device_index(0)
    store = Path(tempfile.mkdtemp()) / "store"
    with set_current_vllm_config(VllmConfig()):
        groups.init_distributed_environment(1, 0, f"file://{store}", 0, "nccl" if HAS_GPU else "gloo")
        groups.initialize_model_parallel(1)
        groups._EP = groups.get_tp_group()  # made for the first model's sake, which may have no experts


class Said(logging.Handler):
    """What the loader logged."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def loaded(directory, load_format, extra=None, **more):
    """The model after its weights were loaded and processed, the seconds, and what the loader said."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader import get_model_loader

    said = Said()
    log = logging.getLogger("vllm.weighbridge")
    log.addHandler(said)
    log.setLevel(logging.INFO)
    config = engine(directory, load_format=load_format, model_loader_extra_config=extra or {}, **more)
    began = time.perf_counter()
    try:
        with set_current_vllm_config(config):
            model = get_model_loader(config.load_config).load_model(vllm_config=config, model_config=config.model_config)
        torch.cuda.synchronize()
    finally:
        log.removeHandler(said)
    return model, time.perf_counter() - began, said.lines


def tensors(model):
    for path, module in model.named_modules(remove_duplicate=False):
        for held in (module._parameters, module._buffers):
            for leaf, one in held.items():
                yield f"{path}.{leaf}", one


def differences(found, wanted):
    """What differs between two models, and the number of tensors."""
    import torch

    found, wanted = dict(tensors(found)), dict(tensors(wanted))
    problems = [f"only {'the other' if name in wanted else 'this'} has `{name}`" for name in found.keys() ^ wanted.keys()]
    count = 0
    for name in found.keys() & wanted.keys():
        one, other = found[name], wanted[name]
        if one is None or other is None:
            if one is not other:
                problems.append(f"`{name}`: {one is None}, {other is None}")
            continue
        count += 1
        form = [(str(t.dtype), list(t.shape), list(t.stride()), str(t.device)) for t in (one, other)]
        if form[0] != form[1]:
            problems.append(f"`{name}`: {form[0]}, wanted {form[1]}")
            continue
        raw = [t.detach().contiguous().reshape(-1).view(torch.uint8) for t in (one, other)]
        if not torch.equal(*raw):
            problems.append(f"`{name}` differs in {int((raw[0] != raw[1]).sum())} of {raw[0].numel()} bytes")
    return problems, count


def modules(cases):
    import torch
    from safetensors.torch import save_file

    import vllm_check as check

    start()
    results = {}
    # 0.33 reads neither GGUF nor MLX.
    files = [f for f in sorted((HERE / "vllm").glob("*-*.json")) if not re.search("-(q4_k|q8_0|mlx4)$", f.stem)]
    files = [file for file in files if not cases or file.stem in cases]
    with tempfile.TemporaryDirectory() as folder:
        for file in files:
            told, source = json.loads(file.read_text()), Path(folder) / file.stem
            source.mkdir()
            save_file({name: tensor.clone() for name, tensor in check.checkpoint(told)}, source / "model.safetensors")
            (source / "config.json").write_text(json.dumps(told["config"]))
        # A file that has just been written is not known by its times.
        time.sleep(2.1)
        # Of those in bf16, vLLM makes FP8 while it loads, too.
        ways = [(file, {}) for file in files] + [(file, {"quantization": "fp8"}) for file in files if file.stem.endswith("bf16")]
        for file, more in ways:
            case = "-".join([file.stem, *more.values()])
            source, cache = Path(folder) / file.stem, Path(folder) / f"{case}-cache"
            result, began = {"compared": 0, "problems": []}, time.perf_counter()
            more = {"dtype": json.loads(file.read_text())["config"]["dtype"], **more}
            try:
                wanted, _, _ = loaded(source, "auto", **more)
            except Exception as error:
                result["vLLM's own loader"] = f"{type(error).__name__}: {error}".splitlines()[0][:300]
                wanted = None
            for title, extra in (("weighbridge", {}), ("first", {"cache": str(cache)}), ("second", {"cache": str(cache)})):
                if wanted is None:
                    break
                try:
                    found, _, lines = loaded(source, "weighbridge", extra, **more)
                except Exception as error:
                    result["problems"].append(f"{title}: {type(error).__name__}: {error}"[:500])
                    break
                left = [line for line in lines if "left to vLLM" in line]
                if left:
                    result["left to vLLM"] = left[0]
                problems, count = differences(found, wanted)
                result["compared"] += count
                result["problems"] += [f"{title}: {one}" for one in problems]
                if title == "first" and not any(line.startswith("kept") for line in lines):
                    result["not kept"] = next((line for line in lines if "kept" in line), "")
                    break
                if title == "second" and not any("of processed weights in" in line for line in lines):
                    result["problems"].append("second: the cache was not read")
                del found
            results[case] = result
            others = [f"{key}: {said}" for key, said in result.items() if key not in ("compared", "problems")]
            seconds = f"{time.perf_counter() - began:.1f} s"
            print(case, result["compared"], len(result["problems"]), seconds, *result["problems"][:3], *others, sep="  ", flush=True)
            wanted = None
            torch.cuda.empty_cache()
    if not cases:
        import vllm

        device = ("" if HAS_GPU else "none, in place of ") + torch.cuda.get_device_name()
        about = {"vllm": vllm.__version__, "torch": torch.__version__, "device": device}
        rows = [f" {json.dumps(name)}: {json.dumps(found)}" for name, found in {"versions": about, **results}.items()]
        Path(KEEP).write_text("{\n" + ",\n".join(rows) + "\n}\n")
    sys.exit(any(found["problems"] for found in results.values()))


def llama(directory, gigabytes, fp8):
    """A Llama of random weights, of about as many gigabytes in bf16; or half as many in FP8 with a scale for each matrix."""
    import torch
    from safetensors.torch import save_file

    hidden, wide, vocabulary = 4096, 14336, 32000
    layer = {"self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (1024, hidden), "self_attn.v_proj": (1024, hidden),
             "self_attn.o_proj": (hidden, hidden), "mlp.gate_proj": (wide, hidden), "mlp.up_proj": (wide, hidden),
             "mlp.down_proj": (hidden, wide), "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,)}  # fmt: skip
    layers = max(1, round((gigabytes * 1e9 - 4 * vocabulary * hidden) / 436e6))
    shapes = {"model.embed_tokens.weight": (vocabulary, hidden), "lm_head.weight": (vocabulary, hidden), "model.norm.weight": (hidden,)}
    shapes |= {f"model.layers.{n}.{name}.weight": shape for n in range(layers) for name, shape in layer.items()}
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": wide,
              "num_hidden_layers": layers, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": vocabulary,
              "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "hidden_act": "silu", "torch_dtype": "bfloat16",
              "rope_theta": 10000.0, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
    made = {}
    for name, shape in shapes.items():
        made[name] = (torch.randn(shape, device="cuda" if HAS_GPU else "cpu") * 0.02).bfloat16().cpu()
        if fp8 and "_proj" in name:
            scale = made[name].abs().max().float() / 448
            made[name] = (made[name].float() / scale).to(torch.float8_e4m3fn)
            made[f"{name}_scale"] = scale
    if fp8:
        config["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    directory.mkdir()
    save_file(made, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "config.json").write_text(json.dumps(config))


def starts(gigabytes):
    with tempfile.TemporaryDirectory() as folder:
        ways = {}
        for kind in ("bf16", "fp8"):
            source, cache = Path(folder) / kind, {"cache": str(Path(folder) / f"{kind}-cache")}
            llama(source, gigabytes, kind == "fp8")
            ways[f"{kind}, vLLM"] = [str(source), "auto", {}]
            ways[f"{kind}, weighbridge"] = [str(source), "weighbridge", {}]
            ways[f"{kind}, weighbridge with cache"] = [str(source), "weighbridge", cache]
        time.sleep(2.1)
        took = {way: [] for way in ways}
        more = ["--engine", json.dumps(ENGINE), *([] if HAS_GPU else ["--no-gpu"])]
        for _ in range(ROUNDS + 1):
            for way, given in ways.items():
                command = [sys.executable, __file__, "start", json.dumps(given), *more]
                done = subprocess.run(command, capture_output=True, text=True)
                said = re.search("^START (.*)$", done.stdout, re.M)
                if said is None:
                    sys.exit(f"{way}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
                seconds, lines = json.loads(said[1])
                took[way].append(seconds)
                print(way, f"{seconds:.2f} s", *lines, sep="  ", flush=True)
        print(f"first starts, and medians of {ROUNDS} later ones")
        for way, (first, *later) in took.items():
            print(f"{way}: {first:.2f} s, {statistics.median(later):.2f} s")


def one_start(told):
    source, load_format, extra = json.loads(told)
    start()
    _, seconds, lines = loaded(source, load_format, extra)
    print("START " + json.dumps([seconds, lines]))


def texts(gguf):
    import torch
    import weighbridge
    import weighbridge.torch as wt
    from safetensors.torch import save_file

    from vllm_plugin import TEXTS

    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        hf, program = directory / "hf", directory / "texts.py"
        hf.mkdir()
        program.write_text(TEXTS)
        checkpoint = weighbridge.open(gguf)
        for name, content in checkpoint.hf_files()[0].items():
            (hf / name).write_bytes(content)
        weights = wt.state_dict(weighbridge.plan(checkpoint, layout="hf", encode="bf16").load())
        unique = {name: one.clone() for name, one in weights.items() if name != "lm_head.weight"}
        save_file(unique, hf / "model.safetensors", metadata={"format": "pt"})
        time.sleep(2.1)
        cache = {"cache": str(directory / "cache")}
        ours = {"load_format": "weighbridge", "model_loader_extra_config": {"fallback": False}}
        ways = {"vLLM": {"model": str(hf)}, "HF": {"model": str(hf), **ours}, "GGUF": {"from": gguf},
                "GGUF, first start with cache": {"from": gguf, "options": cache},
                "GGUF, second start with cache": {"from": gguf, "options": cache}}  # fmt: skip
        wanted = None
        environment = dict(os.environ, HF_HUB_OFFLINE="1", WEIGHBRIDGE_CACHE=str(directory / "home"), VLLM_LOGGING_LEVEL="INFO")
        for way, arguments in ways.items():
            done = subprocess.run([sys.executable, str(program), json.dumps({"gpu_memory_utilization": 0.3, **ENGINE, **arguments})], capture_output=True, text=True, env=environment)
            said = re.search("^TEXTS (.*)$", done.stdout, re.M)
            if said is None:
                print(way, done.stdout[-2000:], done.stderr[-4000:], sep="\n")
                wrong += 1
                continue
            started, found = json.loads(said[1])
            wanted = wanted or found
            wrong += found != wanted
            same = "the same texts" if found == wanted else f"OTHER TEXTS: {found}, wanted {wanted}"
            loads = re.findall(r"[\d.]+ GB of .* in [\d.]+ s.*", done.stdout + done.stderr)
            print(f"{way} on {torch.cuda.get_device_name()}: {same}, engine started in {started:.1f} s", *loads, sep="; ", flush=True)
        print(wanted)
    sys.exit(wrong)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["modules", "starts", "texts", "start"])
    parser.add_argument("rest", nargs="*")
    parser.add_argument("--engine", type=json.loads, default={})
    parser.add_argument("--mla", type=json.loads, default={})
    parser.add_argument("--no-gpu", action="store_true")
    parser.add_argument("--keep", type=Path, default=KEEP)
    given = parser.parse_args()
    ENGINE, MLA, KEEP, HAS_GPU = given.engine, given.mla, given.keep, not given.no_gpu
    if not HAS_GPU:
        import vllm_stand_in

        KEEP = KEEP.with_name("no_gpu.json")
        vllm_stand_in.start()
    if given.what == "modules":
        modules(given.rest)
    elif given.what == "starts":
        starts(float(given.rest[0]) if given.rest else 4.0)
    elif given.what == "texts":
        texts(*given.rest)
    else:
        one_start(*given.rest)
