"""The blocks of the README, by the heading that they stand below."""

from __future__ import annotations

import shutil
from pathlib import Path

from conftest import MODELS, fetched

README = Path(__file__).parents[1] / "README.md"
#: Headings whose blocks want more than numpy.
TORCH = ("PyTorch", "transformers")


def blocks() -> list[tuple[str, str]]:
    """Each block with its heading, in order."""
    found: list[tuple[str, str]] = []
    heading, block = "", None
    for line in README.read_text().splitlines():
        if block is not None:
            if line == "```":
                found.append((heading, "\n".join(block)))
                block = None
            else:
                block.append(line)
        elif line == "```python":
            block = []
        elif line.startswith("## "):
            heading = line.removeprefix("## ")
    return found


def run(folder: Path, headings: set[str]) -> int:
    """Runs the blocks below `headings` in a folder with the models that they name; returns how many there were."""
    (folder / "model.gguf").symlink_to(fetched("smollm2") / "smollm2.gguf")
    shutil.copytree(MODELS / "llama-tiny", folder / "model")
    names: dict[str, object] = {}
    ours = [code for heading, code in blocks() if heading in headings]
    for code in ours:
        exec(compile(code, str(README), "exec"), names)  # noqa: S102
    return len(ours)
