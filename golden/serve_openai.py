"""Asks `weighbridge serve` with OpenAI's own client: what it gets must be what that client's types say, and what `run` says.

    pip install openai==3.57.0
    python serve_openai.py WEIGHBRIDGE MODEL      (the program, and a model with a chat template, such as smollm2.gguf)

It starts the server, and ends it. Each part prints a line; the first that fails ends the script.
"""

import asyncio
import contextlib
import json
import math
import re
import subprocess
import sys
import tempfile
import time

import openai
import pydantic
from openai import AsyncOpenAI, OpenAI

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "big": {"type": "boolean"}},
    "required": ["city", "big"],
    "additionalProperties": False,
}


@contextlib.contextmanager
def serving(program, model, *more, ctx=("--ctx", "512")):
    """The address of a server on a free port, which is told to end, and has to end well."""
    server = subprocess.Popen([program, "serve", model, "--port", "0", *ctx, *more],
                              stderr=subprocess.PIPE, text=True)
    try:
        for line in server.stderr:
            if found := re.search(r"listening on (http://\S+)", line):
                break
        else:
            raise SystemExit("the server did not start")
        yield found[1]
    finally:
        server.terminate()
        assert server.wait(40) == 0, "it did not end well"


def each(parts):
    """Runs each part, and prints how long it took."""
    for title, part in parts.items():
        begin = time.monotonic()
        part()
        print(f"ok {title:12} {time.monotonic() - begin:6.2f} s")


def run(program, model, question):
    """The answer of `run`, alone."""
    command = [program, "run", model, "-p", question, "-n", "24", "--temperature", "0", "--ctx", "512"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def user(text):
    return [{"role": "user", "content": text}]


def chat(client, name, program, model):
    question = "Why is the sky blue?"
    wanted = run(program, model, question)
    answer = client.chat.completions.create(model=name, messages=user(question), temperature=0, max_tokens=24)
    assert answer.choices[0].message.content == wanted, (answer, wanted)
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 24
    # What came back can be sent back.
    messages = user(question) + [answer.choices[0].message.model_dump()] + user("And at night?")
    again = client.chat.completions.create(model=name, messages=messages, temperature=0, max_tokens=8)
    assert again.choices[0].finish_reason == "length"
    assert again.usage.prompt_tokens_details.cached_tokens > 0
    stream = client.chat.completions.create(model=name, messages=user(question), temperature=0, max_tokens=24, stream=True,
                                            stream_options={"include_usage": True})
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == wanted
    assert chunks[-1].usage.completion_tokens == 24


def several(client, name):
    make = lambda: client.chat.completions.create(model=name, messages=user("Tell a story."), n=3, seed=7, max_tokens=20,
                                                  temperature=1.5)
    texts = [choice.message.content for choice in make().choices]
    assert len(set(texts)) == 3, texts
    assert texts == [choice.message.content for choice in make().choices], "a seed gives the same texts"


def logprobs(client, name):
    answer = client.chat.completions.create(model=name, messages=user("Say hello."), temperature=0, max_tokens=6,
                                            logprobs=True, top_logprobs=3)
    tokens = answer.choices[0].logprobs.content
    assert "".join(token.token for token in tokens) == answer.choices[0].message.content
    for token in tokens:
        assert bytes(token.bytes).decode() == token.token
        assert token.top_logprobs[0].logprob == token.logprob
        assert sum(math.exp(top.logprob) for top in token.top_logprobs) <= 1.0001


def completions(client, name):
    whole = client.completions.create(model=name, prompt="Once upon a time", temperature=0, max_tokens=12, logprobs=2)
    choice = whole.choices[0]
    assert "".join(choice.logprobs.tokens) == choice.text
    assert all(len(top) == 2 for top in choice.logprobs.top_logprobs)
    both = client.completions.create(model=name, prompt=["Once upon a time", "The sea"], temperature=0, max_tokens=12, echo=True)
    assert both.choices[0].text == "Once upon a time" + choice.text and both.choices[1].text.startswith("The sea")
    stop = choice.text[4:9]
    cut = client.completions.create(model=name, prompt="Once upon a time", temperature=0, max_tokens=12, stop=[stop], stream=True)
    assert "".join(c.choices[0].text for c in cut) == choice.text[: choice.text.index(stop)]


def schema(client, name):
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA, "strict": True}}
    answer = client.chat.completions.create(model=name, messages=user("Name a city."), temperature=1.5, response_format=form)
    value = json.loads(answer.choices[0].message.content)
    assert set(value) == {"city", "big"} and isinstance(value["big"], bool), value


# A template with tools, as those of Hermes and Qwen 2.5 are.
TEMPLATE = """{%- if tools %}<|im_start|>system
Tools:{% for tool in tools %} {{ tool | tojson }}{% endfor %}<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


class Weather(pydantic.BaseModel):
    """The weather of a city."""

    city: str = pydantic.Field(max_length=12)
    days: int = pydantic.Field(ge=1, le=9)


def tools(program, model):
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
        file.write(TEMPLATE)
        file.flush()
        with serving(program, model, "--chat-template", file.name) as address:
            client = OpenAI(base_url=address + "/v1", api_key="none", max_retries=0)
            tool = openai.pydantic_function_tool(Weather)
            ask = {"model": client.models.list().data[0].id, "tools": [tool], "tool_choice": "required",
                   "parallel_tool_calls": False, "max_tokens": 80, "temperature": 0}
            messages = user("What is the weather in Paris?")
            answer = client.chat.completions.parse(messages=messages, **ask)
            (call,) = answer.choices[0].message.tool_calls
            assert isinstance(call.function.parsed_arguments, Weather), call
            assert answer.choices[0].finish_reason == "tool_calls"
            with client.chat.completions.stream(messages=messages, **ask) as stream:
                events = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
                streamed = stream.get_final_completion().choices[0].message.tool_calls
            assert [event.parsed_arguments for event in events] == [call.function.parsed_arguments]
            assert [call.function.arguments for call in streamed] == [call.function.arguments]
            # What came back can be sent back, with what the tool said.
            messages += [answer.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
            again = client.chat.completions.create(messages=messages, **ask | {"tool_choice": "auto", "max_tokens": 8})
            assert again.usage.prompt_tokens_details.cached_tokens > 0
            called(client, ask["model"])


def checked(response):
    """A response, whose types are those of the client, in all of its parts."""
    type(response).model_validate(response.model_dump(by_alias=True, warnings="error"), strict=False)
    return response


def responses(client, name, program, model):
    question = "Why is the sky blue?"
    wanted = run(program, model, question)
    ask = {"model": name, "temperature": 0, "max_output_tokens": 24}
    answer = checked(client.responses.create(input=question, **ask))
    assert answer.output_text == wanted and answer.status == "incomplete", answer
    assert answer.incomplete_details.reason == "max_output_tokens" and answer.usage.output_tokens == 24
    with client.responses.create(input=question, stream=True, **ask) as stream:
        events = list(stream)
        # The client's own `get_final_response` knows `response.completed` alone.
        final = checked(events[-1].response)
    assert final.output_text == wanted and final.model_dump(exclude={"id", "created_at", "output", "usage"}) == answer.model_dump(
        exclude={"id", "created_at", "output", "usage"}), (final, answer)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    types = [event.type for event in events]
    assert types[:4] == ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"]
    assert types[-4:] == ["response.output_text.done", "response.content_part.done", "response.output_item.done",
                          "response.incomplete"], types
    # What came back can be sent back.
    items = [{"role": "user", "content": question}, *[item.model_dump() for item in answer.output],
             {"role": "user", "content": [{"type": "input_text", "text": "And at night?"}]}]
    again = client.responses.create(input=items, instructions="Be brief.", **ask)
    assert again.output_text and again.instructions == "Be brief."
    form = {"type": "json_schema", "name": "city", "schema": SCHEMA, "strict": True}
    answer = checked(client.responses.create(model=name, input="Name a city.", temperature=1.5, text={"format": form}))
    assert set(json.loads(answer.output_text)) == {"city", "big"} and answer.status == "completed"
    for more, word in [({"previous_response_id": "resp_1"}, "previous_response_id"), ({"background": True}, "background"),
                       ({"tools": [{"type": "web_search"}]}, "tools[0].type")]:
        try:
            client.responses.create(input=question, **ask | more)
            raise AssertionError(f"that was taken: {more}")
        except openai.BadRequestError as error:
            assert f"`{word}`" in error.message, error


def called(client, name):
    """Calls of tools by the newer API, and their results."""
    tool = {"type": "function", "name": "get_weather", "description": "The weather.", "strict": True,
            "parameters": openai.pydantic_function_tool(Weather)["function"]["parameters"]}
    ask = {"model": name, "tools": [tool], "tool_choice": "required", "parallel_tool_calls": False, "temperature": 0,
           "max_output_tokens": 80}
    answer = checked(client.responses.create(input="What is the weather in Paris?", **ask))
    (call,) = answer.output
    assert call.type == "function_call" and Weather.model_validate_json(call.arguments), call
    with client.responses.stream(input="What is the weather in Paris?", **ask) as stream:
        done = [event for event in stream if event.type == "response.function_call_arguments.done"]
    assert [event.arguments for event in done] == [call.arguments]
    items = [{"role": "user", "content": "What is the weather in Paris?"}, call.model_dump(exclude_none=True),
             {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]
    again = client.responses.create(input=items, **ask | {"tool_choice": "auto", "max_output_tokens": 8})
    assert again.usage.input_tokens_details.cached_tokens > 0


def errors(client, name):
    try:
        client.chat.completions.create(model=name, messages=user("x"), temperature=-1, tools=[{"type": "function"}],
                                       extra_body={"tempratur": 1})
        raise AssertionError("that was taken")
    except openai.BadRequestError as error:
        assert error.type == "invalid_request_error" and error.param == "temperature", error
        assert all(word in error.message for word in ["`tools[0].function`", "`tempratur`", "did you mean `temperature`"]), error
    for error, call in [
        (openai.NotFoundError, lambda: client.chat.completions.create(model="other", messages=user("x"))),
        (openai.BadRequestError, lambda: client.completions.create(model=name, prompt="word " * 600)),
        (openai.AuthenticationError, lambda: client.with_options(api_key="wrong").models.list()),
    ]:
        try:
            call()
            raise AssertionError(f"wanted {error}")
        except error:
            pass


async def together(address, name, program, model):
    """Many at once, some of which leave: the others have the answers that they have alone."""
    questions = ["Why is the sky blue?", "Name three rivers.", "What is a prime number?", "Who wrote Hamlet?"]
    wanted = {question: run(program, model, question) for question in questions}
    async with AsyncOpenAI(base_url=address + "/v1", api_key="key", max_retries=0) as client:
        async def ask(question):
            answer = await client.chat.completions.create(model=name, messages=user(question), temperature=0, max_tokens=24)
            assert answer.choices[0].message.content == wanted[question], question

        async def leave():
            stream = await client.chat.completions.create(model=name, messages=user("Tell a long story."), stream=True)
            async for chunk in stream:
                if chunk.choices[0].delta.content:
                    break
            await stream.close()

        await asyncio.gather(*[ask(question) for question in questions * 4], *[leave() for _ in range(8)])
        # Whoever has left holds no place: this would wait for up to 500 tokens of each else.
        begin = time.monotonic()
        await client.completions.create(model=name, prompt="x", max_tokens=1)
        print(f"    one token after all of that: {time.monotonic() - begin:.2f} s")


def main():
    program, model = sys.argv[1:]
    with serving(program, model, "--api-key", "key") as address:
        client = OpenAI(base_url=address + "/v1", api_key="key", max_retries=0)
        name = client.models.list().data[0].id
        parts = {
            "chat": lambda: chat(client, name, program, model),
            "several": lambda: several(client, name),
            "logprobs": lambda: logprobs(client, name),
            "completions": lambda: completions(client, name),
            "schema": lambda: schema(client, name),
            "tools": lambda: tools(program, model),
            "responses": lambda: responses(client, name, program, model),
            "errors": lambda: errors(client, name),
            "together": lambda: asyncio.run(together(address, name, program, model)),
        }
        each(parts)
    print("openai", openai.__version__, "agrees")


if __name__ == "__main__":
    main()
