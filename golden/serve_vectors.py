"""Asks `weighbridge serve` for vectors, scores and transcripts with OpenAI's own client: they must be those of `embed`, `rerank` and
`transcribe`.

    pip install openai==3.57.0
    python serve_vectors.py WEIGHBRIDGE EMBEDDER RERANKER [WHISPER SOUND]

It starts the servers, and ends them. Each part prints a line; the first that fails ends the script.
"""

import contextlib
import json
import subprocess
import sys

import httpx
import openai
from openai import OpenAI

from serve_openai import each, serving

TEXTS = ["A cat sits on the mat.", "The kitten sleeps.", "Interest rates rose again."]


def said(program, *arguments):
    """What a command prints."""
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout


@contextlib.contextmanager
def asking(program, model):
    """A client of a server."""
    with serving(program, model, ctx=()) as address:
        yield OpenAI(base_url=address + "/v1", api_key="none", max_retries=0), address


def vectors(program, model):
    wanted = [json.loads(line)["vector"] for line in said(program, "embed", model, *TEXTS).splitlines()]
    with asking(program, model) as (client, _):
        name = client.models.list().data[0].id
        # The client asks for base64 unless it is told otherwise.
        for form in [{}, {"encoding_format": "float"}]:
            answer = client.embeddings.create(model=name, input=TEXTS, **form)
            for one, vector in zip(answer.data, wanted, strict=True):
                assert max(abs(a - b) for a, b in zip(one.embedding, vector, strict=True)) < 1e-6, form
        assert answer.usage.prompt_tokens == answer.usage.total_tokens > 0
        for more in [{"dimensions": 7}, {"input": ""[:0].split()}]:
            try:
                client.embeddings.create(**{"model": name, "input": TEXTS} | more)
                raise AssertionError(f"that was taken: {more}")
            except openai.BadRequestError:
                pass


def scores(program, model):
    query = "Which animal rests?"
    rows = subprocess.run([program, "rerank", model, query], check=True, capture_output=True, text=True, input="\n".join(TEXTS))
    wanted = [json.loads(line) for line in rows.stdout.splitlines()]
    with asking(program, model) as (_, address):
        answer = httpx.post(address + "/v1/rerank", json={"query": query, "documents": TEXTS}).json()
        assert [row["index"] for row in wanted] == [row["index"] for row in answer["results"]], answer
        for a, b in zip(wanted, answer["results"], strict=True):
            assert abs(a["score"] - b["relevance_score"]) < 1e-6 and a["text"] == b["document"]["text"]


def transcripts(program, model, sound):
    wanted = json.loads(said(program, "transcribe", model, sound, "--json"))["transcripts"][0]
    with asking(program, model) as (client, _):
        name = client.models.list().data[0].id
        ask = lambda **more: client.audio.transcriptions.create(model=name, file=open(sound, "rb"), **more)
        assert ask().text == wanted["text"]
        assert ask(response_format="text").strip() == wanted["text"]
        verbose = ask(response_format="verbose_json", timestamp_granularities=["word", "segment"])
        assert verbose.text == wanted["text"] and verbose.words, verbose
        assert [segment.text.strip() for segment in verbose.segments] == [segment["text"] for segment in wanted["segments"]]
        events = list(ask(stream=True))
        assert "".join(event.delta for event in events[:-1]) == events[-1].text == wanted["text"]
        assert ask(response_format="vtt").startswith("WEBVTT")
        assert client.audio.translations.create(model=name, file=open(sound, "rb")).text


def main():
    program, embedder, reranker, *heard = sys.argv[1:]
    parts = {"vectors": lambda: vectors(program, embedder), "scores": lambda: scores(program, reranker)}
    if heard:
        parts["transcripts"] = lambda: transcripts(program, *heard)
    each(parts)
    print("openai", openai.__version__, "agrees")


if __name__ == "__main__":
    main()
