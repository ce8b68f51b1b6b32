"""The README is run, block by block."""

from __future__ import annotations

from pathlib import Path

import pytest

from readme import TORCH, blocks, run


def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(tmp_path, {heading for heading, _ in blocks()} - set(TORCH)) == 9
    said = capsys.readouterr().out
    assert "gguf llama 272\nEntry(name=\"token_embd.weight\", shape=(49152, 576), scheme=\"q8_0\", nbytes=30081024)\n30\n" in said
    assert " Paris." in said
