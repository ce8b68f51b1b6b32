"""Models that run: logits as transformers computes them, texts as llama.cpp writes them, vectors of sentence-transformers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import weighbridge as wb

from conftest import MODELS, fetched


def test_logits_are_those_of_transformers(model: Path) -> None:
    said = json.loads((model / "expected.json").read_text())
    # The CPU's kernels keep keys and values in f16.
    runs = (("model.safetensors", "reference", 1e-4), ("model.gguf", "reference", 1e-4), ("model.gguf", "cpu", 1e-2))
    for file, backend, most in runs:
        logits = np.asarray(wb.Runtime(model / file, backend=backend).logits(said["input_ids"]))
        # What GGUF cannot say of a configuration, its readers compute otherwise.
        wanted_of = said.get("logits_gguf", said["logits"]) if file.endswith(".gguf") else said["logits"]
        wanted = np.fromfile(model / wanted_of["file"], dtype="<f4").reshape(wanted_of["shape"])
        assert logits.shape == wanted.shape
        assert np.abs(logits - wanted).max() < most * np.abs(wanted).max()


@pytest.fixture(scope="module")
def smollm2() -> wb.Runtime:
    return wb.Runtime(fetched("smollm2"), context=512)


def test_a_text_goes_on_as_llama_cpp_has_it(smollm2: wb.Runtime) -> None:
    said = json.loads((MODELS / "continuations.json").read_text())
    one = next(one for one in said["prompts"] if one["model"] == "smollm2")
    tokens = smollm2.tokenizer.encode(one["prompt"])
    assert tokens == one["prompt_ids"]
    answer = smollm2.generate(one["prompt"], max_tokens=8, temperature=0, repeat_penalty=1)
    pieces = list(answer)
    assert len(pieces) > 1
    assert answer.tokens == one["native"]["ids"][:8]
    assert one["native"]["text"].startswith(answer.text())
    assert answer.text() == "".join(pieces) == smollm2.tokenizer.decode(answer.tokens)
    assert (answer.stop_reason, answer.prompt_tokens) == ("length", len(tokens))
    # The same from ids, and from what the session holds already.
    again = smollm2.generate(tokens, max_tokens=8, temperature=0, repeat_penalty=1)
    assert again.text() == answer.text()
    assert again.prompt_tokens == 1


def test_a_budget_keeps_a_part_of_a_prompt() -> None:
    path, prompt = fetched("smollm2"), [i * i * 37 % 40000 for i in range(200)]
    whole, kept = wb.Runtime(path, context=240), wb.Runtime(path, context=240, kv_budget=70)
    answers = [
        runtime.generate(prompt, max_tokens=24, temperature=0, repeat_penalty=1) for runtime in (whole, kept, kept)
    ]
    texts = [answer.text() for answer in answers]
    # Another answer than with all positions, and the same whatever was asked before.
    assert texts[0] != texts[1] == texts[2]
    tokens = [answer.tokens for answer in answers]
    assert tokens[0][0] == tokens[1][0]
    # Scores are those of the whole text.
    assert kept.scores(prompt + tokens[1]) == whole.scores(prompt + tokens[1])
    with pytest.raises(ValueError, match="64 are its last ones"):
        wb.Runtime(path, kv_budget=64)


def test_a_session_goes_on_from_a_file(tmp_path: Path) -> None:
    path, prompt = fetched("smollm2"), [i * i * 37 % 40000 for i in range(200)]
    first, second = wb.Runtime(path, context=240), wb.Runtime(path, context=240)
    assert first.generate(prompt, max_tokens=0).text() == ""
    file = tmp_path / "prompt"
    assert first.save_session(file) == file.stat().st_size
    assert second.load_session(file) == prompt
    answers = [
        runtime.generate([*prompt, 5], max_tokens=20, temperature=0, repeat_penalty=1) for runtime in (first, second)
    ]
    assert answers[0].text() == answers[1].text()
    assert [answer.prompt_tokens for answer in answers] == [1, 1]
    with pytest.raises(wb.MisuseError, match="already exists"):
        second.save_session(file)
    with pytest.raises(wb.RunError, match="another form of keys and values: wanted int8, found f16"):
        wb.Runtime(path, kv="int8").load_session(file)


def test_a_conversation_is_written_as_the_model_knows_it(smollm2: wb.Runtime) -> None:
    said = [{"role": "user", "content": "Say hello."}]
    answer = smollm2.generate(said, max_tokens=12, temperature=0)
    text = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    text += "<|im_start|>user\nSay hello.<|im_end|>\n<|im_start|>assistant\n"
    tokens = smollm2.tokenizer.encode(text, add_special=False, parse_special=True)
    assert smollm2.generate(tokens, max_tokens=12, temperature=0).text() == answer.text()
    for wrong in ([{"role": "user"}], [{"role": "user", "content": "a", "name": "b"}]):
        with pytest.raises(ValueError, match="message"):
            smollm2.generate(wrong)


def test_options_are_followed(smollm2: wb.Runtime) -> None:
    prompt = "The capital of France is"
    stopped = smollm2.generate(prompt, max_tokens=32, temperature=0, stop=["United"])
    assert "United" not in stopped.text()
    assert stopped.stop_reason == "stop"
    first = smollm2.generate(prompt, max_tokens=1, temperature=0)
    first.text()
    assert first.tokens is not None
    biased = smollm2.generate(prompt, max_tokens=1, temperature=0, logit_bias={first.tokens[0]: -100.0})
    biased.text()
    assert biased.tokens != first.tokens
    draws = {smollm2.generate(prompt, max_tokens=12, temperature=1.5, top_k=0, top_p=1, min_p=0, seed=n).text() for n in range(5)}
    assert len(draws) > 1
    same = {smollm2.generate(prompt, max_tokens=12, temperature=1.5, seed=7).text() for _ in range(3)}
    assert len(same) == 1
    with pytest.raises(wb.Error):
        smollm2.generate(prompt, temperature=-1)
    for call in (smollm2.generate, smollm2.logits, smollm2.tokenizer.decode):
        with pytest.raises(TypeError, match="bytes|argument"):
            call(b"The capital")  # type: ignore[operator]
    with pytest.raises(ValueError, match="token 1000000"):
        smollm2.scores([1, 10**6])
    with pytest.raises(ValueError, match="at least one"):
        wb.Runtime(MODELS / "llama-tiny", threads=0)


def test_an_answer_that_nobody_wants_ends(smollm2: wb.Runtime) -> None:
    answer = smollm2.generate("Once upon a time", max_tokens=400, temperature=0)
    next(answer)
    del answer
    # The next one has the model at once, and is not disturbed.
    text = smollm2.generate("The capital of France is", max_tokens=2, temperature=0).text()
    assert text == " Paris."
    with pytest.raises(wb.Error):
        smollm2.generate([1] * 600, max_tokens=1).text()


def test_answers_that_are_begun_wait_for_nobody(smollm2: wb.Runtime) -> None:
    first = smollm2.generate("Once upon a time", max_tokens=100, temperature=0)
    begun = next(first)
    second = smollm2.generate("The capital of France is", max_tokens=2, temperature=0)
    assert second.text() == " Paris."
    assert first.text().startswith(begun)
    assert len(first.tokens or []) == 100
    assert len(smollm2.scores(smollm2.tokenizer.encode("The capital of France is"))) == 4


def test_ctrl_c_ends_what_takes_long() -> None:
    program = f"""
import os, signal, threading, time
import weighbridge as wb
runtime = wb.Runtime({str(fetched("smollm2"))!r}, backend="reference", context=1024)
for call in (lambda: runtime.logits([1] * 1000), lambda: runtime.scores([1] * 1000), lambda: list(runtime.generate([1] * 8, max_tokens=900))):
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        call()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "interrupted\n" * 3, done.stderr


def test_arrays_may_outlive_the_interpreter() -> None:
    program = f"""
import numpy, weighbridge
tensor = weighbridge.open({str(MODELS / "llama-tiny")!r}).get("model.norm.weight", "f32")
array, capsule, view = numpy.from_dlpack(tensor), tensor.__dlpack__(), memoryview(tensor)
answer = weighbridge.Runtime({str(fetched("smollm2"))!r}).generate("Once", max_tokens=500)
next(answer)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_vectors_are_those_of_sentence_transformers() -> None:
    golden = MODELS.parent / "embed"
    said = json.loads((golden / "minilm.json").read_text())
    wanted = np.fromfile(golden / "minilm.bin", dtype="<f4").reshape(-1, said["width"])
    embedder = wb.Embedder(fetched("minilm"))
    found = np.asarray(embedder.embed(said["sentences"]))
    assert embedder.width == said["width"]
    assert found.shape == wanted[: len(found)].shape
    assert np.abs(found - wanted[: len(found)]).max() < 1e-5
    with pytest.raises(wb.MisuseError, match="no prompt `nothing`"):
        embedder.embed(["a"], prompt="nothing")
    with pytest.raises(ValueError, match="not both"):
        embedder.embed(["a"], prompt="query", prompt_text="b")
    assert embedder.embed([]).shape == (0, said["width"])
    with pytest.raises(wb.Error, match="positions"):
        wb.Embedder(fetched("minilm"), max_tokens=10**9)
    assert embedder.embed(["a"]).tolist()[0][:2] == pytest.approx(np.asarray(embedder.embed(["a"]))[0, :2].tolist())


def test_a_sound_becomes_text() -> None:
    golden = MODELS.parent / "whisper"
    said = json.loads((golden / "said.json").read_text())["sounds"][0]
    wanted = said["transcripts"]["transcribe-1"]
    transcriber = wb.Transcriber(fetched("whisper-base"))
    assert len(transcriber.languages) == 99
    sound, seen = golden / said["file"], []
    found = transcriber.transcribe(sound, language="English", beams=1, words=True, each=seen.append)
    assert [segment.text for segment in found.segments] == [segment["text"] for segment in wanted]
    assert [segment.start for segment in seen] == [segment.start for segment in found.segments]
    for segment, other in zip(found.segments, wanted, strict=True):
        assert segment.avg_logprob == pytest.approx(other["avg_logprob"], abs=0.02)
        assert (segment.start, segment.end) == pytest.approx((other["start"], other["end"]), abs=0.08)
        assert [word.word for word in segment.words] == [word[0] for word in other["words"]]
    assert (found.language, found.ended, found.damaged) == ("en", None, 0)
    assert str(found) == found.text == "".join(segment.text for segment in found.segments).strip()
    # The bytes of the file say the same; a language that nobody names is heard.
    again = transcriber.transcribe(sound.read_bytes(), beams=1)
    assert (again.language, again.text) == ("en", found.text)
    assert again.language_probability == pytest.approx(said["probability"], abs=0.06)
    silence = transcriber.transcribe(np.zeros(0, np.float32), language="en")
    assert (silence.text, silence.duration) == ("", 0)
    with pytest.raises(wb.Error, match="not finite|NaN"):
        transcriber.transcribe(np.full(16000, np.nan, np.float32), language="en")
    with pytest.raises(wb.Error):
        transcriber.transcribe(b"no sound")
    with pytest.raises(wb.Error, match="Klingon"):
        transcriber.transcribe(sound, language="Klingon")
    with pytest.raises(OSError):
        transcriber.transcribe("no/such.wav")
    with pytest.raises(ValueError, match="one channel"):
        transcriber.transcribe(np.zeros((2, 100), np.float32))
    with pytest.raises(ValueError, match="beams"):
        transcriber.transcribe(sound, beams=0)

    def stop(segment: wb.Segment) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        transcriber.transcribe(sound, language="en", beams=1, each=stop)
    with pytest.raises(wb.Error, match="does not transcribe"):
        wb.Transcriber(MODELS / "llama-tiny")


def test_a_text_is_scored() -> None:
    text = "The capital of France is Paris. The capital of Germany is Berlin. " * 30
    told: list[tuple[int, int]] = []
    path = fetched("smollm2")
    found = wb.evaluate(path, text, length=64, chunks=4, progress=lambda done, total: told.append((done, total)))
    assert found.chunks == 4
    assert found.tokens == 4 * 31
    assert 1 < found.perplexity[0] < 10
    assert (found.kl, found.reference) == (None, None)
    coarse = wb.evaluate(path, text, against=path, length=64, chunks=4, preset="q2_k")
    assert coarse.reference is not None
    assert coarse.reference[0] == pytest.approx(found.perplexity[0], rel=1e-6)
    assert coarse.kl is not None
    assert coarse.kl[0] > 0.01
    assert coarse.ratio is not None
    assert coarse.ratio[0] == pytest.approx(coarse.perplexity[0] / coarse.reference[0], rel=1e-6)
    with pytest.raises(wb.MisuseError, match="128 are needed"):
        wb.evaluate(path, "short", length=64)
    with pytest.raises(wb.Error, match="q2_kk"):
        wb.evaluate(path, text, preset="q2_kk")
