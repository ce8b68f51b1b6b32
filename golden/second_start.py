"""The second start, from a runtime-ready copy, in turns with a start without one and with llama.cpp.

    cargo xtask models smollm2 gemma3
    python second_start.py --weighbridge PATH --llama-completion PATH MODEL.gguf …

Whole processes, from their start to the end of the first token; ratios are medians of those within turns. At the first token the
process is stopped and its memory is read: what is its own, and how much of the copy is resident.
"""

import argparse
import os
import re
import signal
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

PROMPT = "The capital of France is"


def seconds(command: list[str], environment: dict[str, str]) -> float:
    start = time.perf_counter()
    silent = subprocess.DEVNULL
    subprocess.run(command, env=environment, stdin=silent, stdout=silent, stderr=silent, check=True)
    return time.perf_counter() - start


def memory(command: list[str], environment: dict[str, str], copy: str) -> dict[str, int]:
    """kB at the first token: the process's own, and of its map of the copy the size and what is resident."""
    silent = subprocess.DEVNULL
    process = subprocess.Popen(command, env=environment, stdin=silent, stdout=subprocess.PIPE, stderr=silent)
    process.stdout.read(1)
    process.send_signal(signal.SIGSTOP)
    status = Path(f"/proc/{process.pid}/status").read_text()
    maps = Path(f"/proc/{process.pid}/smaps").read_text()
    process.kill()
    process.wait()
    found = {"own": int(re.search(r"RssAnon:\s+(\d+)", status)[1]), "size": 0, "resident": 0}
    for block in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", maps):
        if copy in block.splitlines()[0]:
            found["size"] += int(re.search(r"\nSize:\s+(\d+)", block)[1])
            found["resident"] += int(re.search(r"\nRss:\s+(\d+)", block)[1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--weighbridge", required=True)
    parser.add_argument("--llama-completion", required=True)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("models", nargs="+")
    options = parser.parse_args()
    for model in options.models:
        with tempfile.TemporaryDirectory() as cache:
            environment = os.environ | {"WEIGHBRIDGE_CACHE": cache}
            threads = ["-t", str(options.threads)]
            run = [options.weighbridge, "run", model, "-p", PROMPT, "--raw", "--temperature", "0", *threads]
            ways = {
                "off": [*run, "-n", "1", "--cache", "off"],
                "read": [*run, "-n", "1", "--cache", "read"],
                "llama.cpp": [options.llama_completion, "-m", model, "-p", PROMPT, "-n", "1", "--temp", "0"]
                + ["-no-cnv", "--no-warmup", *threads, "-c", "4096"],
            }
            subprocess.run([options.weighbridge, "load", model, "--cache", "write", "--json"], env=environment, check=True, stdout=subprocess.DEVNULL)
            turns = [{way: seconds(ways[way], environment) for way in ways} for _ in range(options.turns)]
            for way in ways:
                times = sorted(turn[way] for turn in turns)
                print(f"{model} {way}: {statistics.median(times):.3f} s ({times[0]:.3f} to {times[-1]:.3f})")
            of_packed = statistics.median(turn["read"] / turn["off"] for turn in turns)
            faster = statistics.median(turn["llama.cpp"] / turn["read"] for turn in turns)
            print(f"{model}: {of_packed:.2f} of the start without a copy, {faster:.1f} times llama.cpp's")
            found = memory([*run, "-n", "64", "--cache", "read"], environment, cache)
            print(f"{model}: own {found['own']} kB; {found['resident']} of {found['size']} kB of the copy resident")


main()
