"""Runs the tests of llama.cpp's server, from its source, against `weighbridge serve`, and prints a table of what came of each.

    pip install pytest==9.2.0 requests==2.34.2 openai==3.57.0 filelock==3.30.2
    python serve_llama_tests.py --weighbridge PATH --llama-cpp DIR --generator smollm2.gguf --encoder minilm/ [PYTEST_ARGS..]

DIR is a source tree (commit 0c1e57098 was used); nothing of it is changed. Their tests start `llama-server` with models of the hub of
which the words are known. Here `ServerProcess.start` of their `utils.py` starts our server with another model instead, so words
are compared with nothing: `match_regex` only asks for some text. A test is not applicable if it needs an option, a path or a field that
we do not have, which is found when it asks for it and named, or if it wants what is llama.cpp's own (`OWN`).
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
import types
from collections import Counter
from pathlib import Path

import pytest
import requests

# Options of theirs with one of ours, or without effect on what is answered.
KNOWN = {
    *["server_port", "server_host", "model_hf_repo", "model_hf_file", "model_alias", "temperature", "seed", "offline", "n_ctx"],
    *["n_slots", "n_predict", "api_key", "server_embeddings", "n_batch", "n_ubatch", "n_threads", "fa", "jinja", "debug"],
    *["chat_template_file", "process", "external_server", "ready", "server_metrics", "server_continuous_batching", "log_path"],
    *["kv_unified", "n_gpu_layer", "server_path", "n_prompts"],
}
# Tests that want what is llama.cpp's own, or their model's: by name, with the parameters that begin so.
OWN = {
    "test_chat_completion[": "counts the tokens of stories260K",
    "test_chat_completion_cached_tokens": "counts the tokens of stories260K",
    "test_chat_completion_stream[": "counts the tokens of stories260K",
    "test_tokenize_with_bos": "wants that the first token is 1",
    "test_no_ui": "wants `<!doctype html>` in small letters, which HTML does not",
    "test_chat_completion_with_openai_library": "wants the number of a build as `system_fingerprint`, which may be absent",
    "test_completion_with_openai_library": "wants the number of a build as `system_fingerprint`, which may be absent",
    "test_chat_template_assistant_prefill": "wants the prompt in the answer (`__verbose`)",
    "test_invalid_chat_completion_req[messages7]": "refuses two messages of the assistant in a row, which OpenAI takes",
    "test_logprobs_stream": "wants null as the first `content`, where OpenAI sends an empty text",
    "test_completion_without_tool_call": "wants null as the first `content`, where OpenAI sends an empty text",
    "test_context_size_exceeded": "wants an error of type `exceed_context_size_error`; OpenAI's code is `context_length_exceeded`",
    "test_anthropic_tool": "gives tools to a template that has none, by a form of llama.cpp",
    "test_anthropic_streaming_content_block_indices": "gives tools to a template that has none, by a form of llama.cpp",
    "test_anthropic_empty_messages": "wants an answer to no messages, which Anthropic refuses",
    "test_completion_parallel_slots": "asks /completion, a path of llama.cpp",
    "test_completion_unified": "asks /completion, a path of llama.cpp",
    "test_embedding_mixed_input[input3": "mixes texts and tokens in one input, which OpenAI does not",
    "test_embedding_mixed_input[input7": "mixes texts and tokens in one input, which OpenAI does not",
    "test_embedding_mixed_input[input8": "gives an object as input, which OpenAI does not",
    "test_embedding_mixed_input[input9": "gives an object as input, which OpenAI does not",
    "test_embedding_mixed_input[input10": "gives an object as input, which OpenAI does not",
    "test_metrics_disabled": "wants /metrics to be absent unless it is asked for",
    "test_metrics_embedding_prompt_is_counted": "wants the header `Process-Start-Time-Unix`",
    "test_incorrect_api_key": "wants an error of type `authentication_error`, where OpenAI has `invalid_request_error`",
    "test_correct_api_key": "wants llama.cpp's own form of an answer at /completions",
    "test_cors_options": "wants 200, not 204, for a preflight",
    "test_router": "needs a router",
}


def options_of(server) -> list[str]:
    """The arguments for our server; skips the test if there are none."""
    plain = type(server)
    for name, value in vars(server).items():
        if name not in KNOWN and value != getattr(plain, name, None):
            pytest.skip(f"no option like `{name}`")
    if server.chat_template:
        pytest.skip("no option like `chat_template`: templates by name")
    if server.server_host != "127.0.0.1":
        pytest.skip("no option like `server_host` with several addresses")
    repo = server.model_hf_repo or ""
    if "stories260K" in repo and "infill" not in repo:
        model, task = os.environ["GENERATOR"], "text"
    elif "bert-bge-small" in (server.model_hf_file or ""):
        model, task = os.environ["ENCODER"], "vectors"
    else:
        pytest.skip(f"needs {repo or 'a router'} {server.model_hf_file or ''}".strip())
    slots = server.n_slots or 1
    args = [model, "--task", task, "--port", server.server_port, "--cache", "off", "--alias", server.model_alias]
    args += ["--alias", "*", "--parallel", slots]
    if task == "text":
        args += ["--ctx", (server.n_ctx or 512) // slots]
        if server.chat_template_file:
            args += ["--chat-template", server.chat_template_file]
    if server.api_key:
        args += ["--api-key", server.api_key]
    return [str(arg) for arg in args]


def patch(utils) -> None:
    def start(self, timeout_seconds=60):
        self.process = subprocess.Popen([os.environ["WEIGHBRIDGE"], "serve", *options_of(self)])
        utils.server_instances.add(self)
        until = time.monotonic() + timeout_seconds
        while time.monotonic() < until:
            try:
                if requests.get(self.make_url("/health"), timeout=5).status_code == 200:
                    self.ready = True
                    key = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
                    known = requests.get(self.make_url("/openapi.json"), headers=key, timeout=5).json()
                    self.paths = {"/", *known["paths"]}
                    return
            except requests.RequestException:
                pass
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}")
            time.sleep(0.02)
        raise TimeoutError("the server did not start")

    def known(self, path):
        if path.split("?")[0] not in getattr(self, "paths", {path.split("?")[0]}):
            pytest.skip(f"no path {path.split('?')[0]}")

    ask, stream = utils.ServerProcess.make_request, utils.ServerProcess.make_stream_request

    def refused(status, body):
        found = json.dumps(body)
        if status == 400 and (field := re.search(r"`([^`]+)` is not supported here", found)):
            pytest.skip(f"the field `{field[1]}` is refused by name")

    def make_request(self, method, path, *args, **more):
        known(self, path)
        answer = ask(self, method, path, *args, **more)
        refused(answer.status_code, answer.body)
        return answer

    def make_stream_request(self, method, path, *args, **more):
        known(self, path)
        try:
            yield from stream(self, method, path, *args, **more)
        except utils.ServerError as error:
            refused(error.code, error.body)
            raise

    utils.ServerProcess.start = start
    utils.ServerProcess.make_request = make_request
    utils.ServerProcess.make_stream_request = make_stream_request
    utils.ServerPreset.load_all = staticmethod(lambda: None)
    utils.match_regex = lambda _regex, text: bool(text)


class Table:
    """A plug-in of pytest that keeps what came of each test."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[str, str]] = {}

    def pytest_collection_modifyitems(self, items):
        for item in items:
            for name, reason in OWN.items():
                if item.name.startswith(name):
                    item.add_marker(pytest.mark.skip(reason=reason))

    def pytest_runtest_logreport(self, report):
        name = report.nodeid.removeprefix("unit/")
        if report.skipped:
            self.rows[name] = ("not applicable", report.longrepr[2].removeprefix("Skipped: "))
        elif report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.rows[name] = ("failed", (crash.message if crash else str(report.longrepr)).splitlines()[0])
        elif report.when == "call":
            self.rows[name] = ("passed", "")


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ["weighbridge", "llama-cpp", "generator", "encoder"]:
        parser.add_argument(f"--{name}", type=Path, required=True)
    options, more = parser.parse_known_args()
    os.environ["WEIGHBRIDGE"] = str(options.weighbridge.resolve())
    os.environ["GENERATOR"] = str(options.generator.resolve())
    os.environ["ENCODER"] = str(options.encoder.resolve())
    tests = options.llama_cpp.resolve() / "tools" / "server" / "tests"
    os.chdir(tests)
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(tests))
    # It fetches models, which these tests do not do.
    sys.modules["wget"] = types.ModuleType("wget")
    sys.modules["wget"].download = lambda url, **_: pytest.skip(f"fetches {url}")
    import utils

    patch(utils)
    table = Table()
    pytest.main(["-q", "-p", "no:cacheprovider", "--no-header", "--tb=line", *(more or ["unit"])], plugins=[table])
    print("| test | | |\n|---|---|---|")
    for name, (outcome, why) in table.rows.items():
        print(f"| {name} | {outcome} | {why.replace('|', '¦')} |")
    outcomes = Counter(outcome for outcome, _ in table.rows.values())
    print(dict(outcomes))
    sys.exit(outcomes["passed"] == 0 or outcomes["failed"] > 0)


if __name__ == "__main__":
    main()
