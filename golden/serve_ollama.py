"""Asks `weighbridge serve` with Ollama's own client: what it gets must be what that client's types say, and what `run` says.

    pip install ollama==0.6.3 openai==3.57.0
    python serve_ollama.py WEIGHBRIDGE MODEL EMBEDDER      (the program, a model with a chat template, one that makes vectors)

It starts the servers, and ends them. Each part prints a line; the first that fails ends the script.
"""

import json
import sys
import tempfile
from importlib.metadata import version

import ollama

from serve_openai import SCHEMA, TEMPLATE, each, run, serving, user


def chat(client, name, program, model):
    question = "Why is the sky blue?"
    wanted = run(program, model, question)
    ask = {"model": name, "options": {"temperature": 0, "num_predict": 24, "num_ctx": 512}}
    answer = client.chat(messages=user(question), **ask)
    assert answer.message.content == wanted and answer.done and answer.done_reason == "length", answer
    assert answer.eval_count == 24 and answer.prompt_eval_count > 0 and answer.total_duration > 0
    pieces = list(client.chat(messages=user(question), stream=True, **ask))
    assert "".join(piece.message.content for piece in pieces) == wanted
    assert [piece.done for piece in pieces] == [False] * (len(pieces) - 1) + [True] and pieces[-1].eval_count == 24
    again = client.chat(messages=[*user(question), answer.message, *user("And at night?")], **ask)
    assert again.message.content
    answer = client.generate(prompt=question, **ask)
    assert answer.response == wanted
    pieces = client.generate(prompt=question, stream=True, **ask)
    assert "".join(piece.response for piece in pieces) == wanted
    assert client.generate(prompt="Once upon a time", raw=True, **ask).response
    assert client.generate(model=name).done_reason == "load"
    form = client.chat(model=name + ":latest", messages=user("Name a city."), format=SCHEMA, options={"temperature": 1.5})
    assert set(json.loads(form.message.content)) == {"city", "big"}


def tools(program, model):
    def get_weather(city: str, days: int) -> str:
        """The weather of a city.

        Args:
            city: Where
            days: How many days
        """

    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
        file.write(TEMPLATE)
        file.flush()
        with serving(program, model, "--chat-template", file.name) as address:
            client = ollama.Client(address)
            name = client.list().models[0].model
            assert client.show(name).capabilities == ["completion", "tools"]
            messages = user("What is the weather in Paris?")
            options = {"num_predict": 40, "seed": 1, "temperature": 0}
            answer = client.chat(name, messages, tools=[get_weather], options=options)
            messages += [answer.message, {"role": "tool", "tool_name": "get_weather", "content": "sunny"}]
            assert client.chat(name, messages, tools=[get_weather], options=options).done
            call = {"function": {"name": "get_weather", "arguments": {"city": "Paris", "days": 1}}}
            messages = [*user("What is the weather?"), {"role": "assistant", "content": "", "tool_calls": [call]},
                        {"role": "tool", "tool_name": "get_weather", "content": "sunny"}]
            assert client.chat(name, messages, tools=[get_weather], options=options).done


def about(client, name):
    (model,) = client.list().models
    assert model.model == name and model.size > 0 and model.details.family
    shown = client.show(name)
    assert shown.modelinfo["general.parameter_count"] > 0 and "completion" in shown.capabilities, shown


def errors(client, name):
    for code, word, call in [
        (404, "other", lambda: client.chat("other", user("x"))),
        (400, "`options.temperatur`", lambda: client.chat(name, user("x"), options={"temperatur": 1})),
        (400, "`options.num_ctx`", lambda: client.chat(name, user("x"), options={"num_ctx": 100_000})),
        (400, "`messages[0].images`", lambda: client.chat(name, [{"role": "user", "content": "x", "images": [b"x"]}])),
        (404, "vectors", lambda: client.embed(name, "x")),
    ]:
        try:
            call()
            raise AssertionError(f"that was taken: {word}")
        except ollama.ResponseError as error:
            assert error.status_code == code and word in str(error), error


def vectors(program, model):
    with serving(program, model, ctx=()) as address:
        client = ollama.Client(address)
        name = client.list().models[0].model
        answer = client.embed(name, ["a cat", "a kitten", "long " * 5000])
        assert len(answer.embeddings) == 3 and answer.prompt_eval_count > 3
        assert all(abs(sum(x * x for x in vector) - 1) < 1e-5 for vector in answer.embeddings)
        assert client.show(name).capabilities == ["embedding"]
        try:
            client.embed(name, "long " * 5000, truncate=False)
            raise AssertionError("that was taken")
        except ollama.ResponseError as error:
            assert "truncate" in str(error), error


def main():
    program, model, embedder = sys.argv[1:]
    with serving(program, model) as address:
        client = ollama.Client(address)
        name = client.list().models[0].model
        each({
            "about": lambda: about(client, name),
            "chat": lambda: chat(client, name, program, model),
            "tools": lambda: tools(program, model),
            "errors": lambda: errors(client, name),
            "vectors": lambda: vectors(program, embedder),
        })
    print("ollama", version("ollama"), "agrees")


if __name__ == "__main__":
    main()
