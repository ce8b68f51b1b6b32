"""lm-eval's harness with our class and its class `hf`, on the same weights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import weighbridge as wb

from conftest import MODELS, fetched

pytest.importorskip("lm_eval")

from lm_eval.evaluator import simple_evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

import weighbridge.lm_eval
import weighbridge.transformers
from transformers import LlamaForCausalLM

QUESTIONS = [
    ("Which planet is known as the Red Planet?", ["Venus", "Mars", "Jupiter", "Saturn"], 1),
    ("What do plants take in from the air to make food?", ["oxygen", "nitrogen", "carbon dioxide", "helium"], 2),
    ("Which of these is a mammal?", ["a whale", "a shark", "a trout", "a frog"], 0),
    ("What force pulls objects toward Earth?", ["friction", "magnetism", "gravity", "electricity"], 2),
    ("Which organ pumps blood through the body?", ["the lungs", "the heart", "the liver", "the skin"], 1),
    ("What is the boiling point of water at sea level?", ["0 °C", "50 °C", "100 °C", "200 °C"], 2),
    ("Which material conducts electricity best?", ["wood", "glass", "copper", "rubber"], 2),
    ("What is the largest ocean on Earth?", ["Atlantic", "Indian", "Arctic", "Pacific"], 3),
]

TASKS = {
    "arc": """
task: arc
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/arc.jsonl}}}}
output_type: multiple_choice
test_split: test
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"
doc_to_target: "{{{{choices.label.index(answerKey)}}}}"
doc_to_choice: "{{{{choices.text}}}}"
metric_list: [{{metric: acc}}, {{metric: acc_norm}}]
""",
    "page": """
task: page
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/page.jsonl}}}}
output_type: loglikelihood_rolling
test_split: test
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list: [{{metric: word_perplexity}}]
""",
    "words": """
task: words
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/arc.jsonl}}}}
output_type: generate_until
test_split: test
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"
doc_to_target: "{{{{choices.text[0]}}}}"
generation_kwargs: {{until: ["\\n"], max_gen_toks: 12}}
metric_list: [{{metric: exact_match}}]
""",
}


def tasks(folder: Path) -> TaskManager:
    """The tasks, in the layout of ARC's, with their files."""
    with (folder / "arc.jsonl").open("w") as file:
        for number, (question, texts, answer) in enumerate(QUESTIONS):
            choices = {"text": texts, "label": ["A", "B", "C", "D"]}
            file.write(json.dumps({"id": str(number), "question": question, "choices": choices, "answerKey": "ABCD"[answer]}) + "\n")
    text = (MODELS.parent / "eval" / "holmes.txt").read_text()[:3000]
    (folder / "page.jsonl").write_text(json.dumps({"text": text}) + "\n")
    for name, said in TASKS.items():
        (folder / f"{name}.yaml").write_text(said.format(folder=folder))
    return TaskManager(include_path=str(folder), include_defaults=False)


def test_both_classes_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    path = fetched("smollm2")
    torch_model = weighbridge.transformers.from_pretrained(LlamaForCausalLM, path, dtype="float32")
    theirs = HFLM(torch_model, tokenizer=weighbridge.transformers.tokenizer(path), batch_size=1, max_length=512)
    ours = weighbridge.lm_eval.Model(str(path), backend="reference", context=512)
    manager = tasks(tmp_path)
    results = [
        simple_evaluate(model, tasks=list(TASKS), task_manager=manager, bootstrap_iters=0, log_samples=True)
        for model in (theirs, ours)
    ]
    for name in TASKS:
        for one, other in zip(*(found["samples"][name] for found in results), strict=True):
            assert one["doc_id"] == other["doc_id"]
            if name == "words":
                assert one["resps"] == other["resps"]
            else:
                pairs = zip(numbers(one["resps"]), numbers(other["resps"]), strict=True)
                assert all(abs(a - b) < 1e-3 * max(1.0, abs(a)) for a, b in pairs), (one["resps"], other["resps"])
        assert results[0]["results"][name].keys() == results[1]["results"][name].keys()
    scores = [found["results"]["arc"]["acc,none"] for found in results]
    assert scores[0] == scores[1] > 0.25


def numbers(said: object) -> list[float]:
    """All numbers in nested lists."""
    if isinstance(said, (list, tuple)):
        return [number for one in said for number in numbers(one)]
    return [float(said)]  # type: ignore[arg-type]


def test_scores_are_those_of_the_logits() -> None:
    import numpy as np

    runtime = wb.Runtime(MODELS / "llama-tiny" / "model.gguf", backend="reference")
    tokens = [7, 3, 9, 40, 2, 77, 12]
    logits = np.asarray(runtime.logits(tokens)).astype(np.float64)
    wanted = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    for start in (1, 4, len(tokens)):
        scores = runtime.scores(tokens, start)
        assert len(scores) == len(tokens) - start
        for at, (score, most) in zip(range(start, len(tokens)), scores, strict=True):
            assert score == pytest.approx(wanted[at - 1, tokens[at]], abs=1e-5)
            assert most == (logits[at - 1].argmax() == tokens[at])
    # What the last call ran is not run again, and changes nothing.
    again = runtime.scores([*tokens[:5], 1, 2], 6)
    assert again == wb.Runtime(MODELS / "llama-tiny" / "model.gguf", backend="reference").scores([*tokens[:5], 1, 2], 6)
    for start in (0, len(tokens) + 1):
        with pytest.raises(ValueError, match="start"):
            runtime.scores(tokens, start)


def test_the_command_knows_the_class() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "weighbridge.lm_eval", "run", "--model", "weighbridge", "--model_args", "path=none.gguf", "--tasks", "arc_easy"],
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert "none.gguf" in done.stderr + done.stdout
