#!/usr/bin/env python3
"""Makes golden/tasks/harness.json: what EleutherAI's lm-evaluation-harness finds of multiple-choice questions.

    python golden/tasks.py SMOLLM2.gguf GEMMA3.gguf     with lm_eval 0.4.13, transformers 5.23.0, gguf 0.19.0

The questions, golden/tasks/*.jsonl, are ours, in the rows of four data sets: allenai/ai2_arc, Rowan/hellaswag, winogrande and
cais/mmlu. The tasks are the harness's own, by name; only the rows come from elsewhere. It has a task for each subject of MMLU.
The weights are those of the files, decoded to f32. `positions` is the harness's `max_length`: with 40, it cuts questions.
"""

import json
import sys
import tempfile
from pathlib import Path

import lm_eval
import torch
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks._yaml_loader import load_yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = Path(__file__).parent / "tasks"
TASKS = {"arc": "arc/arc_easy", "hellaswag": "hellaswag/hellaswag", "winogrande": "winogrande/default", "mmlu": None}
RUNS = [("smollm2", list(TASKS), None), ("smollm2", list(TASKS), 40), ("gemma3", ["arc", "winogrande"], None)]


def rows(name):
    return [json.loads(line) for line in (HERE / f"{name}.jsonl").read_text().splitlines()]


def ask(model, task, rows):
    """The harness's samples of `rows`, in order, and its metrics."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        source = {"dataset_path": "json", "dataset_name": None, "dataset_kwargs": {"data_files": {"test": str(path)}}}
        own = load_yaml(Path(lm_eval.__file__).parent / "tasks" / f"{task}.yaml")
        splits = {"training_split": None, "validation_split": None, "test_split": "test", "fewshot_split": None}
        config = {**own, **source, **splits}
        found = lm_eval.simple_evaluate(model, tasks=[config], num_fewshot=0)
    samples = sorted(found["samples"][own["task"]], key=lambda sample: sample["doc_id"])
    return samples, found["results"][own["task"]]


def answer(sample):
    """What is kept of a sample: the log-likelihood of each choice, and the verdicts."""
    kept = {"log_likelihoods": [float(choice[0]) for choice in sample["filtered_resps"]]}
    return {**kept, **{name: sample[name] for name in ["acc", "acc_norm"] if name in sample}}


def run(model, name):
    if TASKS[name]:
        samples, metrics = ask(model, TASKS[name], rows(name))
        names = ["acc", "acc_stderr", "acc_norm", "acc_norm_stderr"]
        figures = {name: metrics[f"{name},none"] for name in names if f"{name},none" in metrics}
        return {"figures": figures, "questions": [answer(sample) for sample in samples]}
    subjects = {}
    for at, row in enumerate(rows(name)):
        subjects.setdefault(row["subject"], []).append((at, row))
    questions = {}
    for subject, of_it in subjects.items():
        samples, _ = ask(model, f"mmlu/default/mmlu_{subject}", [row for _, row in of_it])
        questions |= {at: answer(sample) for (at, _), sample in zip(of_it, samples)}
    return {"figures": {}, "questions": [questions[at] for at in sorted(questions)]}


def load(path, positions):
    folder, file = str(Path(path).parent), Path(path).name
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    return HFLM(pretrained=model, tokenizer=tokenizer, batch_size=1, max_length=positions, device="cpu")


if __name__ == "__main__":
    paths = dict(zip(["smollm2", "gemma3"], sys.argv[1:]))
    made = []
    for name, tasks, positions in RUNS:
        model = load(paths[name], positions)
        made.append({"model": name, "positions": positions, "tasks": {task: run(model, task) for task in tasks}})
    lines = json.dumps(made).replace('{"log_likelihoods"', '\n{"log_likelihoods"').replace('{"model"', '\n{"model"')
    (HERE / "harness.json").write_text(lines + "\n")
