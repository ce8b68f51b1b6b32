"""GGUF and MLX, which vLLM 0.33.0 does not read: given the decoded weights in f32, it holds what our shards decode to.

    python vllm_decoded.py --llama-cpp DIR [FILE…]

As vllm_check.py, which see. The planes of each shard have the digests of the file; decoded by gguf-py, or as MLX multiplies,
they are value for value what vLLM holds, and not numbers where it holds none. vllm/decoded.json keeps what was found.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import vllm_check as check

HERE = Path(__file__).parent


def compare(file, directory):
    import vllm_shards as shards
    from vllm_shards import decoded

    model, source = file.stem.rsplit("-", 1)
    told = json.loads(file.read_text())
    checkpoint = shards.Checkpoint(model, source)
    values = {name: torch.from_numpy(decoded(tensor).copy()) for name, tensor in checkpoint.tensors.items()}
    released = shards.RELEASED if model == "deepseek_v3" else {}
    plain = {"config": dict(checkpoint.model_config, **released, dtype="float32"), "entries": [], "exceptions": []}
    config = check.engine_config(plain, directory)
    check.start_once()
    problems, compared = [], 0
    for size, ranks in told["tp"].items():
        for rank, said in enumerate(ranks):
            ours = shards.shard(checkpoint.tensors, checkpoint.model_config, int(size), rank)
            if {name: shards.said(tensor) for name, tensor in ours.items()} != said:
                problems.append(f"tp {size} rank {rank}: not the file's planes")
            theirs = check.parameters(config, int(size), rank, None, values.items())
            problems += [f"tp {size} rank {rank}: `{n}` of one only" for n in set(ours) ^ set(theirs)]
            for name in set(ours) & set(theirs):
                compared += 1
                if not np.array_equal(decoded(ours[name]), theirs[name].numpy(), equal_nan=True):
                    problems.append(f"tp {size} rank {rank}: `{name}` has other values")
    return problems, compared


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-cpp", type=Path, required=True)
    parser.add_argument("files", nargs="*", type=Path)
    options = parser.parse_args()
    sys.path[:0] = [str(options.llama_cpp), str(options.llama_cpp / "gguf-py")]
    files = options.files or sorted(f for end in ("q4_k", "q8_0", "mlx4") for f in (HERE / "vllm").glob(f"*-{end}.json"))
    results = {}
    for file in files:
        with tempfile.TemporaryDirectory() as directory:
            problems, compared = compare(file, Path(directory))
        results[file.stem] = {"compared": compared, "problems": problems}
        print(file.stem, compared, len(problems), *problems[:3], sep="  ", flush=True)
    if not options.files:
        (HERE / "vllm" / "decoded.json").write_text(check.written(results) + "\n")
    sys.exit(any(found["problems"] for found in results.values()))


if __name__ == "__main__":
    main()
