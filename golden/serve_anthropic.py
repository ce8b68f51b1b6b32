"""Asks `weighbridge serve` with Anthropic's own client: what it gets must be what that client's types say, and what `run` says.

    pip install anthropic==2.14.0
    python serve_anthropic.py WEIGHBRIDGE MODEL      (the program, and a model with a chat template, such as smollm2.gguf)

It starts the server, and ends it. Each part prints a line; the first that fails ends the script.
"""

import sys
import tempfile

import anthropic

from serve_openai import TEMPLATE, each, run, serving, user

# The client has no parameter for it any more.
COLD = {"temperature": 0}

TOOL = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city", "days"],
        "additionalProperties": False,
    },
}


def chat(client, name, program, model):
    question = "Why is the sky blue?"
    wanted = run(program, model, question)
    ask = {"model": name, "messages": user(question), "max_tokens": 24, "extra_body": COLD}
    answer = client.messages.create(**ask)
    assert [block.text for block in answer.content] == [wanted], answer
    assert (answer.stop_reason, answer.usage.output_tokens) == ("max_tokens", 24), answer
    with client.messages.stream(**ask) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == wanted and final.content[0].text == wanted
    assert final.usage.output_tokens == 24 and final.stop_reason == "max_tokens"
    # What came back can be sent back; a system text, blocks, a string that ends the answer.
    messages = [*user(question), {"role": "assistant", "content": answer.content},
                {"role": "user", "content": [{"type": "text", "text": "And at night?", "cache_control": {"type": "ephemeral"}}]}]
    again = client.messages.create(**ask | {"messages": messages, "system": [{"type": "text", "text": "Be brief."}]})
    assert again.content[0].text
    first = wanted.split()[2]
    stopped = client.messages.create(**ask | {"stop_sequences": [first]})
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", first), stopped
    assert first not in stopped.content[0].text
    counted = client.messages.count_tokens(model=name, messages=user(question)).input_tokens
    assert counted == answer.usage.input_tokens + answer.usage.cache_read_input_tokens


def tools(program, model):
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
        file.write(TEMPLATE)
        file.flush()
        with serving(program, model, "--chat-template", file.name) as address:
            client = anthropic.Anthropic(base_url=address, api_key="none", max_retries=0)
            name = client.models.list().data[0].id
            ask = {"model": name, "messages": user("What is the weather in Paris?"), "max_tokens": 80, "extra_body": COLD, "tools": [TOOL],
                   "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}
            answer = client.messages.create(**ask)
            (call,) = answer.content
            assert call.type == "tool_use" and call.name == "get_weather" and answer.stop_reason == "tool_use", answer
            assert 1 <= call.input["days"] <= 9 and len(call.input["city"]) <= 12, call
            with client.messages.stream(**ask) as stream:
                (streamed,) = stream.get_final_message().content
            assert (streamed.name, streamed.input) == (call.name, call.input)
            messages = [*ask["messages"], {"role": "assistant", "content": answer.content},
                        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny"},
                                                     {"type": "text", "text": "And?"}]}]
            again = client.messages.create(**ask | {"messages": messages, "tool_choice": {"type": "auto"}, "max_tokens": 8})
            assert again.usage.cache_read_input_tokens > 0


def errors(client, name, address):
    def refused(kind, words, **fields):
        try:
            client.messages.create(**{"model": name, "messages": user("x"), "max_tokens": 1} | fields)
        except kind as error:
            assert error.body["type"] == "error" and all(word in str(error) for word in words), error
        else:
            raise AssertionError(f"{fields} was taken")

    image = [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://x.example"}}]}]
    refused(anthropic.BadRequestError, ["`messages[0].content[0].type`"], messages=image)
    refused(anthropic.BadRequestError, ["`temperature`", "`tool_choice.type`"], extra_body={"temperature": -1}, tool_choice={"type": "any"})
    refused(anthropic.BadRequestError, ["`tools`: the model's template has no tools"], tools=[TOOL])
    refused(anthropic.BadRequestError, ["`max_tokens`"], max_tokens=0)
    refused(anthropic.NotFoundError, ["other"], model="other")
    wrong = anthropic.Anthropic(base_url=address, api_key="wrong", max_retries=0)
    try:
        wrong.messages.create(model=name, messages=user("x"), max_tokens=1)
    except anthropic.AuthenticationError as error:
        assert "API key" in str(error), error
    else:
        raise AssertionError("a wrong key was taken")


def main():
    program, model = sys.argv[1:]
    with serving(program, model, "--api-key", "key") as address:
        client = anthropic.Anthropic(base_url=address, api_key="key", max_retries=0)
        name = client.models.list().data[0].id
        parts = {
            "chat": lambda: chat(client, name, program, model),
            "tools": lambda: tools(program, model),
            "errors": lambda: errors(client, name, address),
        }
        each(parts)
    print("anthropic", anthropic.__version__, "agrees")


if __name__ == "__main__":
    main()
