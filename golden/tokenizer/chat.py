"""Writes chat.json beside this script: prompts as Jinja2, set up as transformers does, renders them.

    python chat.py GGUF...

Needs jinja2 (3.1.6) and gguf (gguf-py of llama.cpp 0c1e57098). Each GGUF is a model or vocabulary with a chat
template: smollm2.gguf, and of llama.cpp's models/: ggml-vocab-{qwen2,phi-3,command-r,gemma-4}.gguf. The set-up
is that of `_compile_jinja_template`, src/transformers/utils/chat_template_utils.py@v4.57.
"""

import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

# What templates of other models use, in short.
OWN = {
    "whitespace": "  {% for m in messages %}\n    {{- m.role }}: {{ m['content'] | trim }}\n  {% endfor %}\n{% if add_generation_prompt %}\nA:\n{% endif %}\n\n",
    "methods": "{% for m in messages %}{{ m.content.strip().split('\\n')[-1].rstrip().upper() }}|{{ m.content.startswith('B') }}|{{ m.get('name', 'none') }}|{{ m.content.replace('e', '3') }};{% endfor %}",
    "namespace": "{% set ns = namespace(last='', n=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = m.content %}{% set ns.n = ns.n + 1 %}{% endif %}{% endfor %}{{ ns.last }}{{ ns.n }}",
    "macro": "{% macro turn(role, text='') -%}<{{ role }}>{{ text }}</{{ role }}>{%- endmacro %}{% for m in messages %}{{ turn(m.role, text=m.content) }}{% endfor %}",
    "loop": "{% for m in messages[::-1] %}{{ loop.index0 }}/{{ loop.length }}{{ ',' if not loop.last }}{% if loop.first %}{% continue %}{% endif %}{{ m.role[0] }}{% endfor %}",
    "tojson": "{{ messages | tojson }}\n{{ {'a': [1, 2.5, none, true], 'b': 'é<&>\"'} | tojson }}\n{{ messages[0] | tojson(indent=2) }}",
    "json arguments": "{{ {'z': 'é\\\\u003c', 'a': [], 'm': {}} | tojson(ensure_ascii=True) }} {{ {'z': ', : ', 'a': [1, 2]} | tojson(separators=(',', ':')) }} {{ ['<', {'b': 1, 'a': 2}] | tojson(indent=4, ensure_ascii=False) }}{% for k, v in {'z': 1, 'a': 2}.items() %}{{ k }}{{ v }}{% endfor %}",
    "tests": "{{ messages is iterable }} {{ tools is iterable }} {{ tools is none }} {{ nothing is defined }} {{ messages[0] is mapping }} {{ messages[0].content is string }} {{ messages[0].role in ['user', 'system'] }}",
    "generation": "{% for m in messages %}{% if m.role == 'assistant' %}\n{%- generation -%}\n  {{ m.content }}\n{%- endgeneration %}\n{% else %}{{ m.content }}{% endif %}{% endfor %}",
    "filters": "{{ messages | map(attribute='role') | join(', ') }} {{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ (messages | first).role | capitalize }} {{ 'x' | default('y') }} {{ missing | default('y') }} {{ ['b', 'a'] | sort }} {{ 'a b' | replace(' ', '_') }}",
    "indent": "{{ 'a\n\nb\n'|indent }}|{{ 'a\n\nb\n'|indent(2, first=true) }}|{{ 'a\n\r\nb'|indent(width='> ', blank=True) }}|{{ ''|indent(first=true) }}|{{ 'x\x0cy\u2028'|indent(1, true) }}",
    "arithmetic": "{{ 7 // 2 }} {{ 7 % 3 }} {{ -7 // 2 }} {{ 7 / 2 }} {{ 2 ** 5 }} {{ 'a' * 3 }} {{ 'a' ~ 1 }} {{ (1, 2) == (1, 2) }} {{ 3 if 1 > 2 else 4 }}",
    "alternate": "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}{{ m.content }}{{ eos_token }}{% endfor %}",
}

CONVERSATIONS = [
    [("user", "Hi <b>&amp;</b> 'q' \"d\"")],
    [("system", "Be brief."), ("user", " x\n"), ("assistant", "A\n\nb"), ("user", "\u6f22 {{x}} {% y %}")],
    [("user", "one\ntwo "), ("assistant", ""), ("user", "\U0001f389\t")],
]


class Generation(jinja2.ext.Extension):
    """Passes through the blocks that transformers' AssistantTracker marks."""

    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=lineno)


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


def prompts(source):
    template = environment().from_string(source)
    for conversation in CONVERSATIONS:
        messages = [{"role": role, "content": content} for role, content in conversation]
        for add in (False, True):
            case = {"messages": messages, "add_generation_prompt": add}
            try:
                case["prompt"] = template.render(
                    messages=messages, add_generation_prompt=add, bos_token="<s>", eos_token="</s>", tools=None
                )
            except jinja2.exceptions.TemplateError as error:
                case["refused"] = str(error)
            yield case


def main():
    import gguf  # Others use the rest without it.

    templates = []
    for path in map(pathlib.Path, sys.argv[1:]):
        source = gguf.GGUFReader(path).fields["tokenizer.chat_template"].contents()
        templates.append({"gguf": path.name, "cases": list(prompts(source))})
    for name, source in OWN.items():
        templates.append({"name": name, "source": source, "cases": list(prompts(source))})
    out = pathlib.Path(__file__).with_name("chat.json")
    out.write_text(json.dumps(templates, ensure_ascii=True, indent=1) + "\n")


if __name__ == "__main__":
    main()
