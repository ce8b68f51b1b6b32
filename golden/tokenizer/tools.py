"""Writes tools.jsonl.zst beside this script: prompts with tools, as Jinja2, set up as transformers does, renders them.

    python tools.py TEMPLATES

Needs jinja2 (3.1.6) and the program zstd. TEMPLATES is the directory models/templates of llama.cpp (that of PyPI's llama-cpp-python
0.3.36 was used, vendor/llama.cpp): chat templates of models, as their makers publish them. Those that take no tools are left out, and
those that Jinja2 cannot render in any form.
"""

import datetime
import json
import pathlib
import subprocess
import sys

import chat

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather in a city, <now> & \"later\"",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Its name"},
                    "days": {"type": "integer", "description": "How many"},
                },
                "required": ["city"],
            },
        },
    },
    {
        "type": "function",
        "function": {"name": "stop", "description": "Stops", "parameters": {"type": "object", "properties": {}}},
    },
]
WEATHER = {"name": "get_weather", "arguments": {"city": 'Köln "am Rhein"\n<b>', "days": 3}}
LATER = {"name": "get_weather", "arguments": {"city": "Oslo"}}

# What an assistant says: its text, and its calls with their ids.
ONE = ("", [("abcdefgh1", WEATHER)])
TWO = ("Let me look.", [("abcdefgh1", WEATHER), ("abcdefgh2", LATER)])

# Forms of calls: whether arguments are a text, and whether an empty content is none.
FORMS = [(False, False), (True, True), (True, False), (False, True)]


def assistant(text, calls, is_text, is_null):
    def arguments(call):
        return json.dumps(call["arguments"], ensure_ascii=False) if is_text else call["arguments"]

    content = None if is_null and not text and calls else text
    made = [
        {"id": id, "type": "function", "function": {"name": call["name"], "arguments": arguments(call)}}
        for id, call in calls
    ]
    return {"role": "assistant", "content": content, "tool_calls": made}


def result(id, content):
    return {"role": "tool", "content": content, "tool_call_id": id, "name": "get_weather"}


def conversations(form):
    user = [{"role": "user", "content": "How is the weather?"}]
    one = user + [assistant(*ONE, *form)]
    two = user + [assistant(*TWO, *form)]
    yield "asked", user, True
    yield "one", one, False
    yield "two", two, False
    yield "answered", one + [result("abcdefgh1", "{\"sun\": true}")], True
    yield "both answered", two + [result("abcdefgh1", "sun"), result("abcdefgh2", "rain")], True


def main():
    lines = []
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.jinja")):
        source = path.read_text()
        env = chat.environment()
        # A prompt must not depend on the clock.
        env.globals["strftime_now"] = datetime.date(2025, 1, 1).strftime
        try:
            template = env.from_string(source)
        except Exception as error:
            print(path.stem, "is no template:", error, file=sys.stderr)
            continue
        cases = []
        for form in FORMS:
            for name, messages, add in conversations(form):
                case = {"name": name, "is_text": form[0], "is_content_null": form[1], "add_generation_prompt": add}
                try:
                    case["prompt"] = template.render(
                        messages=messages, tools=TOOLS, add_generation_prompt=add, bos_token="<s>", eos_token="</s>"
                    )
                except Exception:
                    # Not a form that this template takes.
                    continue
                cases.append(case)
        if any("get_weather" in case["prompt"] for case in cases):
            lines.append(json.dumps({"name": path.stem, "source": source, "cases": cases}, ensure_ascii=False))
        else:
            print(path.stem, "takes no tools", file=sys.stderr)
    given = {"tools": TOOLS, "one": ONE, "two": TWO}
    text = "\n".join([json.dumps(given, ensure_ascii=False), *lines]) + "\n"
    out = pathlib.Path(__file__).with_name("tools.jsonl.zst")
    subprocess.run(["zstd", "-19", "-q", "-f", "-o", out], input=text.encode(), check=True)


main()
