"""Speed of `weighbridge embed` beside sentence-transformers, fastembed and llama-embedding, on one model.

    pip install sentence-transformers==6.2.0 torch==2.15.0 fastembed onnx onnxscript onnxruntime
    python speed.py WEIGHBRIDGE MODEL [--llama-embedding BIN] [--fastembed] [--threads 2] [--runs 5] [--texts 2000]

MODEL is all-MiniLM-L6-v2 (`cargo xtask models minilm`). Texts have 5 to 40 words of a book. Each run is a process of its own, in turns,
and nothing else is there meanwhile: a process that waits can slow the others. The seconds of sentence-transformers and fastembed are those
of encoding alone, after 64 texts that are not counted; those of `embed` and llama-embedding are the whole process, with its start.
llama-embedding reads the GGUF in Q8_0 that WEIGHBRIDGE writes. fastembed reads an ONNX file that torch exports and onnxruntime quantises
to 8 bits. `cosine` is the mean of the vectors against those of sentence-transformers.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Scripts beside this one have the names of packages.
sys.path.pop(0)

import numpy as np

BOOK = Path(__file__).parent.parent / "eval" / "holmes.txt"


def texts_of(count: int) -> list[str]:
    words = BOOK.read_text().split()
    chance = random.Random(7)
    texts = []
    for _ in range(count):
        size = chance.randint(5, 40)
        start = chance.randrange(len(words) - size)
        texts.append(" ".join(words[start : start + size]))
    return texts


def sentence_transformers(model: str, threads: int):
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    loaded = SentenceTransformer(model, device="cpu")
    return lambda texts: loaded.encode(texts, normalize_embeddings=True, show_progress_bar=False)


def fastembed(model: str, threads: int):
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    TextEmbedding.add_custom_model(
        model="local/minilm", pooling=PoolingType.MEAN, normalization=True, sources=ModelSource(hf="local/minilm"), dim=384, model_file="model.onnx"
    )
    loaded = TextEmbedding("local/minilm", threads=threads, specific_model_path=model)
    return lambda texts: np.array(list(loaded.embed(texts)))


PEERS = {"sentence-transformers": sentence_transformers, "fastembed": fastembed}


def peer(name: str, model: str, texts: str, threads: str, out: str) -> None:
    """Runs in a process of its own: prints the seconds."""
    lines = Path(texts).read_text().splitlines()
    encode = PEERS[name](model, int(threads))
    encode(lines[:64])
    begun = time.perf_counter()
    vectors = encode(lines)
    print(time.perf_counter() - begun)
    np.save(out, vectors)


def export(model: str, to: Path) -> None:
    """Writes MODEL in ONNX, in 8 bits, with its tokenizer, as fastembed reads it."""
    import shutil

    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from transformers import AutoModel

    class Hidden(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = AutoModel.from_pretrained(model, attn_implementation="eager")

        def forward(self, input_ids, attention_mask, token_type_ids):
            return self.inner(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids).last_hidden_state

    names = ["input_ids", "attention_mask", "token_type_ids"]
    example = tuple(torch.ones(2, 8, dtype=torch.int64) for _ in names)
    axes = {name: {0: "batch", 1: "length"} for name in [*names, "last_hidden_state"]}
    whole = to / "whole.onnx"
    torch.onnx.export(
        Hidden().eval(), example, str(whole), input_names=names, output_names=["last_hidden_state"], dynamic_axes=axes, opset_version=17, dynamo=False
    )
    quantize_dynamic(str(whole), str(to / "model.onnx"), weight_type=QuantType.QInt8, per_channel=True, reduce_range=False)
    whole.unlink()
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"]:
        if (Path(model) / name).exists():
            shutil.copy(Path(model) / name, to / name)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("weighbridge")
    parser.add_argument("model")
    parser.add_argument("--llama-embedding")
    parser.add_argument("--fastembed", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--texts", type=int, default=2000)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="embed-speed-"))
    texts = folder / "texts.txt"
    lines = texts_of(given.texts)
    texts.write_text("\n".join(lines) + "\n")
    threads = str(given.threads)

    def ours(*more: str):
        def run(out: Path) -> float:
            command = [given.weighbridge, "embed", given.model, "-f", str(texts), "-o", str(out), "--threads", threads, *more]
            out.unlink(missing_ok=True)
            begun = time.perf_counter()
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            return time.perf_counter() - begun

        return run

    def theirs(name: str, model: str):
        def run(out: Path) -> float:
            command = [sys.executable, __file__, "--peer", name, model, str(texts), threads, str(out)]
            return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])

        return run

    runs = {
        "embed, f32": ours(),
        "sentence-transformers, f32": theirs("sentence-transformers", given.model),
        "embed, q8_0": ours("--encode", "*=q8_0"),
    }
    if given.fastembed:
        to = folder / "onnx"
        to.mkdir()
        export(given.model, to)
        runs["fastembed, int8"] = theirs("fastembed", str(to))
    if given.llama_embedding:
        gguf = folder / "minilm-q8_0.gguf"
        subprocess.run([given.weighbridge, "convert", given.model, str(gguf), "--preset", "q8_0"], check=True, capture_output=True)

        def llama(out: Path) -> float:
            command = [given.llama_embedding, "-m", str(gguf), "-f", str(texts), "-t", threads, "-tb", threads, "--embd-output-format", "array"]
            command += ["-b", "2048", "-ub", "2048"]
            begun = time.perf_counter()
            said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            seconds = time.perf_counter() - begun
            np.save(out, np.array(json.loads(said[said.index("[[") :])))
            return seconds

        runs["llama-embedding, Q8_0"] = llama

    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(given.runs):
        for number, (name, run) in enumerate(runs.items()):
            seconds[name].append(run(folder / f"{number}.npy"))
    vectors = {name: np.load(folder / f"{number}.npy").reshape(given.texts, -1).astype(np.float64) for number, name in enumerate(runs)}
    right = vectors["sentence-transformers, f32"]
    right = right / np.linalg.norm(right, axis=1, keepdims=True)
    for name, of in seconds.items():
        unit = vectors[name] / np.linalg.norm(vectors[name], axis=1, keepdims=True)
        cosine = (unit * right).sum(axis=1).mean()
        print(f"{name:28} {statistics.median(of):7.2f} s   {' '.join(f'{s:.2f}' for s in of)}   cosine {cosine:.6f}")
    middle = {name: statistics.median(of) for name, of in seconds.items()}
    st = middle["sentence-transformers, f32"]
    print(f"f32: {st / middle['embed, f32']:.2f} of sentence-transformers; q8_0: {st / middle['embed, q8_0']:.2f}")
    for name in ["fastembed, int8", "llama-embedding, Q8_0"]:
        if name in middle:
            print(f"q8_0: {middle[name] / middle['embed, q8_0']:.2f} of {name}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        peer(*sys.argv[2:])
    else:
        main()
