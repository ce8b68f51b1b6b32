"""Models for the tests: those in `golden/models`, each with the logits that transformers computes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

MODELS = Path(__file__).parents[3] / "golden" / "models"

# What a shell starts in the background ignores Ctrl-C, and so would the programs that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def llama() -> Path:
    """A directory with one small model, as GGUF and in Hugging Face's form."""
    return MODELS / "llama-tiny"


@pytest.fixture(params=["llama-tiny", "gemma3-tiny", "gpt2-tiny", "qwen3moe-tiny", "deepseek3-tiny", "falcon-tiny"])
def model(request: pytest.FixtureRequest) -> Path:
    """Models of several families."""
    return MODELS / str(request.param)


def fetched(name: str) -> Path:
    """A real model, which `cargo xtask models` fetches."""
    models = Path(os.environ.get("WEIGHBRIDGE_MODELS") or Path.home() / ".cache" / "weighbridge" / "models")
    path = models / name
    assert path.exists(), f"fetch it: cargo xtask models {name}"
    return path
