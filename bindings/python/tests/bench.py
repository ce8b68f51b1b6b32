"""Loads of a large file, beside safetensors', in turns.

    python bench.py FILE [ROUNDS] [REST]

FILE is a safetensors file in the page cache. Each load runs in a process of its own after REST seconds; the time is from the first call to
the last byte, without the start of Python and its imports.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

BEGIN = """
import json, sys, time, torch
path = sys.argv[1]
def total(tensors):
    return sum(int(one.reshape(-1).view(torch.int64).sum()) for one in tensors)
"""

WAYS = {
    "safetensors, clone": """
from safetensors.torch import load_file
start = time.perf_counter()
tensors = [one.clone() for one in load_file(path).values()]
""",
    "weighbridge, owned": """
import weighbridge, weighbridge.torch
start = time.perf_counter()
tensors = list(weighbridge.torch.state_dict(weighbridge.plan(path, layout="source").load(owned=True)).values())
""",
    "safetensors, all bytes summed": """
from safetensors.torch import load_file
start = time.perf_counter()
tensors = list(load_file(path).values())
first = time.perf_counter() - start
total(tensors)
""",
    "weighbridge, borrowed, all bytes summed": """
import weighbridge, weighbridge.torch
start = time.perf_counter()
tensors = list(weighbridge.torch.state_dict(weighbridge.plan(path, layout="source").load()).values())
first = time.perf_counter() - start
total(tensors)
""",
}

END = """
seconds = time.perf_counter() - start
peak = int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024
print(json.dumps([seconds, globals().get("first"), len(tensors), peak]))
"""


def main() -> None:
    """Prints medians, and each way's share of safetensors' time."""
    path = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    rest = float(sys.argv[3]) if len(sys.argv) > 3 else 1.0
    seen: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, body in WAYS.items():
            time.sleep(rest)
            program = BEGIN + body + END
            out = subprocess.run([sys.executable, "-c", program, path], check=True, capture_output=True, text=True)
            seen[way].append(json.loads(out.stdout))
    for way, runs in seen.items():
        seconds = statistics.median(run[0] for run in runs)
        first = [run[1] for run in runs if run[1] is not None]
        firsts = f", all usable after {statistics.median(first) * 1e3:.1f} ms" if first else ""
        spread = f"{min(run[0] for run in runs):.3f}–{max(run[0] for run in runs):.3f}"
        peak = statistics.median(run[3] for run in runs) / 2**20
        print(f"{way}: {seconds:.3f} s ({spread}){firsts}, peak {peak:.0f} MiB")
    pairs = [("safetensors, clone", "weighbridge, owned")]
    pairs += [("safetensors, all bytes summed", "weighbridge, borrowed, all bytes summed")]
    for theirs, ours in pairs:
        ratios = [a[0] / b[0] for a, b in zip(seen[theirs], seen[ours], strict=True)]
        print(f"{ours}: {statistics.median(ratios):.2f} times as fast ({min(ratios):.2f}–{max(ratios):.2f})")


if __name__ == "__main__":
    main()
