"""`compress` beside llama-quantize at equal size: a row for each file, as Markdown at the end.

    cargo xtask models smollm2 gemma3
    python compress_table.py --weighbridge PATH --llama-quantize PATH --model NAME.gguf --chunks 12 DIR

Both get the same importance matrix, of the first 60,000 bytes of eval/holmes.txt, and `compress` the size of llama-quantize's
file as its target: alone, with --awq and with --gptq. Perplexity, KL divergence and agreement are of the f16 model that both
started from, on the last 35,000 bytes. What is in DIR/rows.jsonl is not done again, so that a run that was ended goes on.
"""

import argparse
import hashlib
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
TYPES = ["Q2_K", "Q3_K_M", "Q3_K_L", "IQ4_XS", "Q4_0", "IQ4_NL", "Q4_1", "Q4_K_S", "Q4_K_M", "Q5_0", "Q5_K_M", "Q6_K"]
WAYS = {"ours": [], "awq": ["--awq"], "gptq": ["--gptq"]}


def run(*command: object) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(str(part) for part in command)}\n{done.stdout}{done.stderr}")
    return done.stdout


class Table:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.dir = options, options.dir
        self.dir.mkdir(parents=True, exist_ok=True)
        self.rows: dict[tuple[str, str], dict] = {}
        self.file = self.dir / "rows.jsonl"
        if self.file.exists():
            for line in self.file.read_text().splitlines():
                row = json.loads(line)
                self.rows[row["type"], row["way"]] = row
        text = (HERE / "eval" / "holmes.txt").read_bytes()
        self.calibration, self.held_out = self.dir / "a.txt", self.dir / "b.txt"
        self.calibration.write_bytes(text[:60_000])
        self.held_out.write_bytes(text[-35_000:])
        self.f16, self.imatrix = self.dir / "f16.gguf", self.dir / "im.gguf"
        if not self.f16.exists():
            run(options.weighbridge, "convert", options.model, self.f16, "--preset", "f16")
        if not self.imatrix.exists():
            run(options.weighbridge, "calibrate", self.f16, "-f", self.calibration, "-o", self.imatrix, "--chunks", 12)

    def measure(self, kind: str, way: str, path: Path) -> dict:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        for row in self.rows.values():
            if row["sha256"] == digest:
                return row | {"type": kind, "way": way}
        found = json.loads(
            run(
                *[self.options.weighbridge, "eval", path, "-f", self.held_out, "--against", self.f16],
                *["--chunks", self.options.chunks, "--cache", "off", "--json"],
            )
        )
        text, against = found["text"], found["text"]["against"]
        return {
            "type": kind,
            "way": way,
            "bytes": path.stat().st_size,
            "sha256": digest,
            "perplexity": text["perplexity"]["value"],
            "f16": against["perplexity"]["value"],
            "kl": against["kl"]["value"],
            "kl_error": against["kl"]["standard_error"],
            "top1": against["top1"]["value"],
        }

    def add(self, kind: str, way: str, path: Path) -> None:
        row = self.measure(kind, way, path)
        self.rows[kind, way] = row
        with self.file.open("a") as out:
            out.write(json.dumps(row) + "\n")
        print(json.dumps(row), file=sys.stderr, flush=True)

    def fill(self) -> None:
        for kind in self.options.types:
            theirs, ours = self.dir / "theirs.gguf", self.dir / "ours.gguf"
            if (kind, "theirs") not in self.rows:
                run(self.options.llama_quantize, "--imatrix", self.imatrix, self.f16, theirs, kind, 2)
                self.add(kind, "theirs", theirs)
            size = self.rows[kind, "theirs"]["bytes"]
            for way, flags in WAYS.items():
                if (kind, way) in self.rows:
                    continue
                ours.unlink(missing_ok=True)
                text = ["--text", self.calibration] if flags else []
                target = ["--target", size, "--imatrix", self.imatrix]
                run(self.options.weighbridge, "compress", self.f16, ours, *target, *flags, *text)
                self.add(kind, way, ours)

    def markdown(self) -> str:
        ways = ["theirs", "ours", "gptq"]
        lines = []
        for kind in self.options.types:
            cells = [kind]
            for way in ways:
                row = self.rows[kind, way]
                if way != "gptq":
                    cells.append(f"{row['bytes'] / 1e6:.2f}")
                cells += [f"{row['perplexity']:.2f}", f"{row['kl']:.5f}", f"{100 * row['top1']:.2f} %"]
            lines.append("| " + " | ".join(cells) + " |")
        for kind in self.options.types:
            row, plain, theirs = (self.rows[kind, way] for way in ("awq", "ours", "theirs"))
            if row["sha256"] != plain["sha256"]:
                lines.append(f"--awq of {kind}: KL {row['kl']:.5f}, {plain['kl']:.5f} without")
            if plain["kl"] > theirs["kl"] + 2 * theirs["kl_error"]:
                lines.append(f"worse than llama-quantize at {kind}")
        return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--weighbridge", type=Path, required=True)
    parser.add_argument("--llama-quantize", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--chunks", type=int, default=12)
    parser.add_argument("--types", nargs="+", choices=TYPES, default=TYPES)
    parser.add_argument("dir", type=Path)
    table = Table(parser.parse_args())
    table.fill()
    print(table.markdown())


main()
