"""The parts of the README that want torch are run."""

from __future__ import annotations

from pathlib import Path

import pytest

from readme import TORCH, run


def test_the_readme_runs_with_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(tmp_path, set(TORCH)) == len(TORCH)
