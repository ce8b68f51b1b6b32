"""lm-eval's `local-completions` against `weighbridge serve`, and our own model class in its process: their tasks come out alike.

    pip install "lm-eval[api]==0.4.13" torch transformers peft accelerate openai, and the wheel of bindings/python
    python serve_lm_eval.py WEIGHBRIDGE MODEL          (the program, and smollm2.gguf)

Questions in the layout of ARC's, a text whose tokens are all scored, and continuations. It starts the server, and ends it.
"""

import os
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[1] / "bindings" / "python" / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "torch")]

from lm_eval.evaluator import simple_evaluate

import weighbridge.lm_eval
import weighbridge.transformers
from serve_openai import serving
from test_lm_eval import TASKS, numbers, tasks


POSITIONS = 512


def main():
    program, model = sys.argv[1:]
    folder = Path(tempfile.mkdtemp())
    os.environ["HF_HOME"] = str(folder / "hf")
    weighbridge.transformers.tokenizer(model).save_pretrained(folder / "tokenizer")
    manager = tasks(folder)

    def evaluate(model, args=None):
        return simple_evaluate(model, model_args=args, tasks=list(TASKS), task_manager=manager, bootstrap_iters=0,
                               log_samples=True)

    # local-completions keeps a position for a token to generate, and in texts one for the token before them.
    ours = evaluate(weighbridge.lm_eval.Model(model, context=POSITIONS - 2))
    with serving(program, model, "--alias", "m") as address:
        theirs = evaluate("local-completions", {
            "model": "m", "base_url": address + "/v1/completions", "tokenizer": str(folder / "tokenizer"),
            "tokenizer_backend": "huggingface", "max_length": POSITIONS, "num_concurrent": 2,
        })
    for name in TASKS:
        worst, count = 0.0, 0
        for one, other in zip(theirs["samples"][name], ours["samples"][name], strict=True):
            assert one["doc_id"] == other["doc_id"]
            if name == "words":
                assert one["resps"] == other["resps"], (one["resps"], other["resps"])
                count += 1
                continue
            for a, b in zip(numbers(one["resps"]), numbers(other["resps"]), strict=True):
                worst, count = max(worst, abs(a - b) / max(1.0, abs(a))), count + 1
        assert worst < 1e-5, (name, worst)
        print(f"ok {name}: {count} answers, the largest difference {worst:.1e}")
        for metric in ["acc,none", "acc_norm,none", "word_perplexity,none"]:
            if metric in theirs["results"][name]:
                found = [results["results"][name][metric] for results in (theirs, ours)]
                print(f"   {metric}: {found[0]:.4f} and {found[1]:.4f}")


if __name__ == "__main__":
    main()
