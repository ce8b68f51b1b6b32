"""The model class `weighbridge` of lm-eval: its tasks are run by this engine.

    python -m weighbridge.lm_eval run --model weighbridge --model_args path=model.gguf --tasks arc_easy

The arguments are those of lm-eval's own command. `--model_args` takes `path`, and what `weighbridge.Runtime` takes: `threads`,
`context`, `backend`, `kv`, `preset`, `encode`, `memory`.
"""

from __future__ import annotations

from typing import Any

import lm_eval.models  # noqa: F401, the classes of others, which would not be there once ours is
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tqdm import tqdm

from ._weighbridge import Runtime

__all__ = ["Model"]

#: What a task may say of sampling, and the argument of `Runtime.generate`.
_SAMPLING = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "repeat_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "seed": "seed",
}


@register_model("weighbridge")
class Model(TemplateLM):  # type: ignore[misc, unused-ignore]
    """Scores and continues texts as lm-eval's class `hf` does, without batches."""

    def __init__(self, path: str, *, batch_size: Any = 1, max_batch_size: Any = None, device: Any = None, **options: Any) -> None:
        super().__init__()
        if str(device) not in ("None", "cpu"):
            raise ValueError(f"device is cpu, found {device!r}")
        self._runtime = Runtime(path, **options)

    @property
    def eot_token_id(self) -> int:
        """The token that ends a text."""
        end = self._runtime.tokenizer.eos
        if end is None:
            raise ValueError("the tokenizer does not say how a text ends")
        return end

    @property
    def prefix_token_id(self) -> int:
        """The token before a text without a context: the one that begins texts, or else ends them."""
        begin = self._runtime.tokenizer.bos
        return self.eot_token_id if begin is None else begin

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """The tokens of a text. Special ones are found in it, and those that the model wants are added unless it has them."""
        tokenizer = self._runtime.tokenizer
        if add_special_tokens is None:
            begin = None if tokenizer.bos is None else tokenizer.decode([tokenizer.bos], special=True)
            add_special_tokens = not (begin and string.startswith(begin))
        return tokenizer.encode(string, add_special=add_special_tokens, parse_special=True)

    def _loglikelihood_tokens(self, requests: Any, disable_tqdm: bool = False, **_: Any) -> list[tuple[float, bool]]:
        # Contexts that are alike come one after the other: what they share is run once.
        order = sorted(range(len(requests)), key=lambda n: requests[n][1])
        scored: list[tuple[float, bool]] = [(0.0, True)] * len(requests)
        for n in tqdm(order, disable=disable_tqdm, desc="weighbridge"):
            _, context, continuation = requests[n]
            tokens = (context + continuation)[-(self._runtime.context + 1) :]
            if continuation:
                scores = self._runtime.scores(tokens, max(1, len(tokens) - len(continuation)))
                scored[n] = sum(score for score, _ in scores), all(most for _, most in scores)
        return scored

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
        """The logarithm of the probability of each whole text."""
        totals = []
        for request in tqdm(requests, disable=disable_tqdm, desc="weighbridge"):
            (text,) = request.args
            windows = get_rolling_token_windows(
                token_list=self.tok_encode(text),
                prefix_token=self.prefix_token_id,
                max_seq_len=self._runtime.context,
                context_len=1,
            )
            pairs = [("", *make_disjoint_window(window)) for window in windows]
            totals.append(sum(score for score, _ in self._loglikelihood_tokens(pairs, disable_tqdm=True)))
        return totals

    def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
        """Continues each context, up to one of its strings."""
        texts = []
        for request in tqdm(requests, disable=disable_tqdm, desc="weighbridge"):
            context, said = request.args
            options = dict(normalize_gen_kwargs(said, 256))
            until, most = options.pop("until"), options.pop("max_gen_toks")
            if not options.pop("do_sample", False):
                options["temperature"] = 0.0
            unknown = sorted(set(options) - set(_SAMPLING))
            if unknown:
                raise ValueError(f"generation_kwargs has {', '.join(unknown)}: known are {', '.join(_SAMPLING)}")
            # Nothing but what the task says: not what the checkpoint has as its defaults.
            sampling: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0, "repeat_penalty": 1.0}
            sampling |= {_SAMPLING[key]: value for key, value in options.items()}
            room = self._runtime.context - most
            if room < 1:
                raise ValueError(f"max_gen_toks is {most}, and the model has {self._runtime.context} positions")
            tokens = self.tok_encode(context)[-room:]
            texts.append(self._runtime.generate(tokens, max_tokens=most, stop=until, **sampling).text())
        return texts


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
