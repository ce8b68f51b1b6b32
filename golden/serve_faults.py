"""Attacks `weighbridge serve`: broken requests, clients that vanish, canaries, faults of files, and hostile chat templates.

    pip install httpx==0.28.1
    python serve_faults.py WEIGHBRIDGE MODEL [--requests N] [--seed S] [--threads T] [--only PART,…] [--all] [--replay I] [--template NAME]

It starts the servers, and ends them. Each part prints a line, and what it found below; the first part that finds a fault ends the
script, unless `--all` is given. `--replay I` sends request I of the part `malformed` alone, and prints it with its answer; `--template`
tries these templates alone.
The model is copied for the parts that damage it.
"""

import argparse
import codecs
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import string
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
# The longest that an answer may take to come, in seconds.
HANG = 10
QUESTION = {"messages": [{"role": "user", "content": "Why is the sky blue?"}], "temperature": 0, "max_tokens": 8}


class Server:
    """A server on a port of its own."""

    def __init__(self, args, *more, model=None, port=0, ctx=512, parallel=4):
        command = [args.weighbridge, "serve", str(model or args.model), "--port", str(port), "--ctx", str(ctx), "--parallel",
                   str(parallel), "--threads", str(args.threads), "--quiet", "--cache", "off", *map(str, more)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.lines = []
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(r"listening on (http://127.0.0.1:(\d+))", line):
                self.address, self.port = found[1], int(found[2])
                break
        else:
            raise SystemExit("the server did not start: " + "".join(self.lines))
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.process.stderr), daemon=True)
        self.reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(40)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def memory(self, what="VmRSS"):
        """MiB."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(what + r":\s+(\d+)", status)[1]) // 1024

    def connect(self, buffer=None, timeout=HANG):
        s = socket.socket()
        if buffer:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        s.settimeout(timeout)
        s.connect(("127.0.0.1", self.port))
        return s

    def ask(self, body=None, path=CHAT, timeout=HANG):
        return httpx.post(self.address + path, json=body or QUESTION, timeout=timeout)

    def status(self, *asked, timeout):
        """The status of an answer, or why there is none."""
        try:
            return self.ask(*asked, timeout=timeout).status_code
        except httpx.TransportError as error:
            return repr(error)

    def wait(self, limit, body=None, path=CHAT):
        """Asks until there is an answer; returns the answer and the seconds until it came, or None after `limit` seconds."""
        begin = time.monotonic()
        last = None
        while (spent := time.monotonic() - begin) < limit:
            try:
                answer = self.ask(body, path, timeout=limit - spent)
                if answer.status_code == 200:
                    return answer, time.monotonic() - begin
                last = answer.status_code
            except httpx.TransportError as error:
                last = repr(error)
            time.sleep(0.25)
        return None, last


def said(answer):
    choice = answer.json()["choices"][0]
    return choice["message"]["content"] if "message" in choice else choice["text"]


def request(path, body, *headers, method="POST"):
    """The bytes of a request."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def strict(text):
    def constant(name):
        raise ValueError(f"{name} is not JSON")

    return json.loads(text, parse_constant=constant)


# ---- malformed ---------------------------------------------------------------------------------------------------------------

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}}
# Documented fields, with values that are taken.
SHARED = {
    "model": None, "max_tokens": 2, "max_completion_tokens": 2, "n": 1, "stop": ["\n"], "stream": True,
    "stream_options": {"include_usage": True}, "temperature": 0.5, "top_p": 0.9, "seed": 1, "logit_bias": {"5": 1.5},
    "presence_penalty": 0.1, "frequency_penalty": 0.1, "top_k": 5, "min_p": 0.1, "typical_p": 0.9, "repeat_penalty": 1.1,
    "repeat_last_n": 8, "xtc_probability": 0.1, "xtc_threshold": 0.1, "mirostat": 2, "mirostat_tau": 5, "mirostat_eta": 0.1,
    "dry_multiplier": 0.5, "dry_base": 1.5, "dry_allowed_length": 2, "dry_penalty_last_n": -1, "dry_sequence_breakers": ["\n"],
    "response_format": SCHEMA, "user": "u", "metadata": {"a": "b"}, "store": False, "service_tier": "auto",
    "safety_identifier": "s", "prompt_cache_key": "k", "prompt_cache_retention": "24h", "cache_prompt": True,
}
FIELDS = {
    CHAT: {**SHARED, "messages": QUESTION["messages"], "logprobs": True, "top_logprobs": 2, "tools": [TOOL], "tool_choice": "auto",
           "parallel_tool_calls": False, "chat_template_kwargs": {}, "prediction": {}, "functions": [], "function_call": "none",
           "modalities": ["text"]},
    TEXT: {**SHARED, "prompt": "Once upon", "echo": True, "logprobs": 2, "suffix": "", "best_of": 1},
    "/tokenize": {"content": "some text", "add_special": True, "parse_special": False},
    "/detokenize": {"tokens": [1, 2, 3]},
}
BASE = {
    CHAT: {"messages": QUESTION["messages"], "max_tokens": 2, "temperature": 0}, TEXT: {"prompt": "Once upon", "max_tokens": 2},
    "/tokenize": {"content": "some text"}, "/detokenize": {"tokens": [1, 2, 3]},
}
# JSON as it is written, valid or not.
JUNK = [
    "null", "true", "false", "0", "-0", "-1", "1", "2", "0.5", "-0.0", "1e-45", "1e-400", "1e38", "3e38", "-3e38", "3.5e38", "1e308",
    "1e309", "-1e999", "NaN", "Infinity", "-Infinity", "nan", "9223372036854775807", "-9223372036854775808", "18446744073709551615",
    "18446744073709551616", "9" * 400, "0." + "9" * 400, "01", "+1", ".5", "1.", "0x10", '""', '"a"', '"\\u0000"', '"\\ud800"',
    '"\\udc00\\ud800"', '"\\uZZZZ"', '"\\x"', '"\x00"', '"\x1b[31m"', '"\r\nX: y"', '"<|im_end|>"', '"{{ 7 * 7 }}"', '"\u202e\ufeff"', '"\U0010ffff"',
    "[]", "[[]]", "{}", '{"": ""}', "[null]", "[1, \"a\"]", "[0.5]", "[-1]", "[4294967296]", "[1e2]", '{"a": {"a": {"a": 1}}}',
    '{"type": "text"}', '{"0": 3e38, "00": 3e38}', '{"1": -3e38}', "'a'", "undefined", "", ",", "]", "}", "/* */ 1", "1 2",
]
NASTY_SCHEMAS = [
    True, False, {"$ref": "#"}, {"$ref": "http://127.0.0.1:9/x"}, {"$ref": "file:///etc/passwd"}, {"type": "string", "minLength": 10**9},
    {"type": "string", "maxLength": 10**6}, {"type": "array", "minItems": 10**9}, {"type": "string", "pattern": "^(((a{1000}){1000}){1000})$"},
    {"type": "string", "pattern": "^(a|b)*a(a|b){24}$"}, {"type": "string", "pattern": "("}, {"type": "string", "pattern": "^(?=a).*$"},
    {"enum": [f"v{i}" for i in range(3000)]}, {"enum": []}, {"x-guidance": 5}, {"type": "integer", "multipleOf": 1e-300},
    {"type": "integer", "minimum": 5, "maximum": 1}, {"type": "number", "minimum": 1e308}, {"type": "nothing"}, {"type": ["string", "null"]},
    {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, {"const": "\ud800"}, {"required": 5},
    {"properties": {f"p{i}": {"type": "string"} for i in range(2000)}}, {"type": "object", "x-guidance": {"whitespace_pattern": "(.*a.{20})*"}},
    {"allOf": [{"anyOf": [{"properties": {f"a{i}": {"const": j}}} for j in range(2)]} for i in range(14)]}, {"not": {}}, {"format": "uuid"},
]


def deep(rng):
    n = rng.choice([50, 126, 127, 128, 129, 1000, 100_000])
    return rng.choice(["[" * n + "]" * n, '{"a":' * n + "1" + "}" * n, "[" * n])


def long_text(rng):
    what = rng.choice(["a", " ", "\\n", "é", "😀", "ab c ", "1", "a\\u0301", "<|im_start|>", "\\u0000", "漢"])
    return '"' + what * rng.choice([100, 600, 5000, 50_000]) + '"'


def junk(rng):
    r = rng.random()
    if r < 0.1:
        return deep(rng)
    if r < 0.15:
        return long_text(rng)
    if r < 0.2:
        return "[" + ",".join([rng.choice(JUNK)] * rng.choice([2, 17, 300, 5000])) + "]"
    return rng.choice(JUNK)


def written(pairs):
    """An object from names and JSON as it is written."""
    return "{" + ", ".join(f"{json.dumps(name)}: {value}" for name, value in pairs) + "}"


def message(rng):
    parts = [("role", rng.choice(['"user"', '"assistant"', '"tool"', '"system"', '"developer"', junk(rng)])),
             ("content", rng.choice(['"Hi"', '[{"type": "text", "text": "Hi"}]', '[{"type": "image_url", "image_url": {"url": "x"}}]', junk(rng)]))]
    for name in ["name", "tool_calls", "tool_call_id", "reasoning_content", "parsed", "refusal", "audio", "function_call", "x"]:
        if rng.random() < 0.15:
            call = '[{"id": "a", "type": "function", "function": {"name": "f", "arguments": %s}}]' % rng.choice(['"{}"', '"{"', "{}", '"[]"'])
            parts.append((name, rng.choice([call, junk(rng)])))
    rng.shuffle(parts)
    return written(parts[: rng.randint(1, 9)])


# Fields of numbers, with the values that are at the edge of what is taken.
EDGES = {
    name: values for names, values in [
        ("temperature mirostat_tau mirostat_eta dry_multiplier", ["0", "-0.0", "1e-400", "1e-45", "1e-38", "0.7", "1e9", "3.4e38"]),
        ("presence_penalty frequency_penalty", ["0", "-3.4e38", "3.4e38", "1e-45", "-2", "2"]),
        ("repeat_penalty", ["1e-38", "3e-39", "3.4e38", "1", "1e-10"]), ("dry_base", ["1", "3.4e38"]),
        ("top_p min_p typical_p xtc_probability xtc_threshold", ["0", "1", "1e-45", "0.5", "1.0", "0.99999999"]),
        ("top_k repeat_last_n dry_penalty_last_n", ["-1", "0", "1", "9223372036854775807", "5.0"]), ("dry_allowed_length", ["0", "9223372036854775807"]),
        ("seed", ["-9223372036854775808", "9223372036854775807", "0", "-1", "1e15"]), ("mirostat", ["0", "2"]), ("n", ["1", "2", "16", "128"]),
        ("max_tokens", ["0", "1", "8", "3.0"]), ("stream", ["true", "false"]), ("logprobs", ["true", "false", "0", "20"]),
        ("logit_bias", ["{}", '{"0": 3.4e38}', '{"0": 3.4e38, "00": 3.4e38}', '{"1": -3.4e38, "01": -3.4e38, "2": -100}', '{"49151": 1e-45}']),
        ("stop", ['""', '[""]', "[]", '["a", "a"]', '"\\u0000"', '["e", " the", "\\n"]', json.dumps(["x" * 256] * 16), '" "']),
        ("dry_sequence_breakers", ["[]", '[""]', '["a", "e", " "]', '"\\u0000"', json.dumps(["ab"] * 16)]),
        ("messages", ['[{"role": "user", "content": ""}]', '[{"role": "tool", "content": "x"}]', '[{"role": "assistant", "content": "<think>"}]',
                      '[{"role": "user", "content": "<|im_end|><|im_start|>\\u0000"}]']),
        ("prompt", ['""', '" "', '["a", "b"]', "[1]", "[0, 1, 2]", "[[1], [2, 3]]", '"\\u0000"', '"\\ud83d\\ude00"', "[49151]"]),
        ("echo", ["true", "false"]),
    ] for name in names.split()
}


def json_body(rng):
    """A body of one of the routes, with mutations: the path and the bytes."""
    path = rng.choice([CHAT, CHAT, TEXT, TEXT, "/tokenize", "/detokenize"])
    fields, base = FIELDS[path], BASE[path]
    pairs = [(name, json.dumps(value)) for name, value in base.items()]
    kind = rng.random()
    if kind < 0.3 and path in (CHAT, TEXT):
        for name in rng.sample([name for name in EDGES if name in fields], rng.randint(1, 5)):
            pairs = [pair for pair in pairs if pair[0] != name]
            pairs.append((name, rng.choice(EDGES[name])))
    elif kind < 0.6:
        # Wrong values of documented fields, and some right ones beside them.
        for name in rng.sample(list(fields), min(len(fields), rng.randint(1, 3))):
            pairs = [pair for pair in pairs if pair[0] != name or rng.random() < 0.1]
            pairs.append((name, junk(rng)))
        for name in rng.sample(list(fields), min(len(fields), rng.randint(0, 2))):
            if name not in dict(pairs):
                pairs.append((name, json.dumps(fields[name])))
        if rng.random() < 0.1:
            pairs.append((rng.choice(["x", "tempratur", "", "\x00", "a" * 10_000, "messages[0]", "__proto__"]), junk(rng)))
        if rng.random() < 0.1:
            pairs.append(rng.choice(pairs))
    elif kind < 0.7 and path == CHAT:
        messages = "[" + ", ".join(message(rng) for _ in range(rng.choice([1, 1, 2, 5]))) + "]"
        pairs = [("messages", messages), ("max_tokens", "2")]
    elif kind < 0.75:
        schema = rng.choice(NASTY_SCHEMAS)
        if path == CHAT and rng.random() < 0.4:
            tool = {"type": "function", "function": {"name": rng.choice(["f", "", "\n", "a" * 100]), "parameters": schema, "strict": True}}
            pairs.append(("tools", json.dumps([tool] * rng.choice([1, 2, 130]))))
            pairs.append(("tool_choice", rng.choice(['"required"', '"auto"', '"none"', '{"type": "function", "function": {"name": "g"}}'])))
        else:
            pairs.append(("response_format", json.dumps({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})))
    elif kind < 0.77:
        count = rng.choice([1000, 20_000])
        item = rng.choice(["{}", "1", '{"role": "user", "content": ""}', "[]", '""'])
        name = {CHAT: "messages", TEXT: "prompt", "/tokenize": "content", "/detokenize": "tokens"}[path]
        pairs = [(name, "[" + ",".join([item] * count) + "]")]
        if rng.random() < 0.3:
            pairs = [(f"{i:x}", "1") for i in range(count)]
    text = written(pairs).encode("utf-8", "surrogatepass")
    if kind >= 0.77:
        # The text itself is damaged.
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(text) + 1)
            end = min(len(text), at + rng.randint(1, 12))
            text = rng.choice([
                lambda: text[:at], lambda: text[:at] + text[end:], lambda: text[:at] + bytes([rng.randrange(256)]) + text[end:],
                lambda: text[:at] + rng.choice([b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5", b"\x00", b"\\u", b"\\ud800", b'"', b"{", b"]", b"\xef\xbb\xbf"])
                + text[at:], lambda: text[:end] + text[at:], lambda: codecs.BOM_UTF8 + text, lambda: text.decode("latin1").encode("utf-16"),
                lambda: text + text, lambda: b"", lambda: text.replace(b":", b"=", 1), lambda: text.replace(b"}", b",}", 1),
                lambda: deep(rng).encode(), lambda: bytes(rng.randrange(256) for _ in range(rng.randint(1, 60))),
            ])()
    return path, text


HOSTS = [
    "localhost", "127.0.0.1", "[::1]:8080", "LOCALHOST.", "evil.example", "", "localhost:99999", "[", "[::1", "localhost localhost", "l\xf6calhost",
    "\t", "127.0.0.1.evil.example", "localhost, evil.example", "a" * 3000,
]
# Heads that must be refused whatever their path: RFC 9112, 3.2, and DNS rebinding.
NOT_OURS = {"two hosts": "Host: localhost\r\nHost: evil.example", "a user": "Host: localhost:80@evil.example",
            "a name after brackets": "Host: [::1].evil.example"}
GET = ["/health", "/v1/models", "/v1/models/x", "/", "/model", "/page/chat.js"]
PATHS = GET + list(BASE) + [
    "/v1/models/%ff", "/v1/models/%00", "/v1/models/a%2fb", "/%68ealth", "/health/", "//health", "/./health", "/page/../../etc/passwd",
    "/page/%2e%2e/%2e%2e/etc/passwd", "/health?" + "a=b&" * 500, "/health#x", "health", "*", "", "http://localhost/health", "http://evil.example/health",
    "http:///health", "localhost:80", "/h\xc3\xa9", "/\x00", "/a b", "/" + "a" * 70_000, "/v1/models/" + "%41" * 5000, "/health;x", "\\health", "/%", "/v1/models/%",
]


def raw(rng):
    """Broken HTTP: the bytes of it, and whether it ends the connection by itself if it is understood."""
    body = rng.choice([b'{"content": "x"}', b"{}", b"", b"x" * 1000])
    method = rng.choice(["GET", "POST", "POST", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PATCH", "get", "", "A" * 3000, "F\x00O", "G\xe9T"])
    path = rng.choice(["/tokenize", "/tokenize", CHAT, rng.choice(PATHS)])
    version = rng.choice(["HTTP/1.1"] * 8 + ["HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/3.0", "HTTP/1.1 ", "http/1.1", "", "HTTP/1.1.1", "HTTP/9999999999"])
    length = f"Content-Length: {len(body)}"
    kind = rng.randrange(13)
    if kind >= 11:
        # Nothing is odd but the target.
        method, path, body, version = "GET", rng.choice(PATHS), b"", "HTTP/1.1"
    heads = ["Host: " + (rng.choice(HOSTS) if rng.random() < 0.3 else "localhost")]
    heads.append("Content-Type: " + rng.choice(["application/json"] * 4 + ["application/json; charset=utf-16", "text/plain", "", "application/json, text/plain"]))
    if kind == 0:
        heads += rng.choice([[length, length], [length, "Content-Length: 3"], ["Content-Length: 1, 1"], ["Content-Length: -1"], ["Content-Length: +1"],
                             ["Content-Length: 0x10"], ["Content-Length: "], ["Content-Length: " + "9" * rng.choice([12, 19, 20, 400])],
                             ["Content-Length: 18446744073709551615"], ["Content-Length: 5000000"], [f"Content-Length: {len(body) + 5}"], ["Content-Length : 3"]])
    elif kind == 1:
        heads.append("Transfer-Encoding: " + rng.choice(["chunked"] * 6 + ["gzip", "chunked, gzip", "gzip, chunked", "CHUNKED", " chunked", "x", "chunked\r\nTransfer-Encoding: chunked"]))
        if rng.random() < 0.3:
            heads.append(length)
        size = rng.choice([f"{len(body):x}", f"{len(body):x}", "zz", "-1", "fffffffffffffffff", "7fffffffffffffff", "", " 5", f"{len(body):x};" + "a" * rng.choice([5, 20_000]),
                           f"{len(body) + 3:x}", f"0{len(body):x}"])
        body = size.encode() + rng.choice([b"\r\n", b"\r\n", b"\n", b"\r"]) + body + rng.choice([b"\r\n0\r\n\r\n", b"\r\n0\r\n\r\n", b"0\r\n\r\n", b"\r\n0\r\n" + b"X: y\r\n" * 2000 + b"\r\n", b""])
    else:
        heads.append(length)
    if kind == 2:
        heads += [f"X-{i}: {'a' * rng.choice([1, 50])}" for i in range(rng.choice([50, 101, 5000]))]
    elif kind == 3:
        heads.append("X: " + "a" * rng.choice([9000, 70_000, 600_000]))
    elif kind == 4:
        heads.append(rng.choice(["X: a\r b", "X: a\x00b", "X: a\r\n b", " X: y", "X y", ": y", "X\xe9: y", "X: \x7f", "X: \xff\xfe", "X:", "=", "X: y\nZ: w", "\r"]))
    elif kind == 5:
        heads.append("Expect: " + rng.choice(["100-continue", "100-continue", "banana", "100-Continue, x"]))
    elif kind == 6:
        heads += [f"Upgrade: {rng.choice(['h2c', 'websocket', 'TLS/1.0', 'HTTP/2.0'])}", "HTTP2-Settings: AAMAAABk"]
    elif kind == 7:
        heads += [rng.choice(["Origin: null", "Origin: http://a\x01", "Origin: http://evil.example", "Access-Control-Request-Method: POST", "Content-Encoding: gzip",
                              "Authorization: Bearer ", "Authorization: Basic \xff", "Range: bytes=0-99999999999", 'If-None-Match: "' + "a," * 3000, "Cookie: " + "a" * 5000])]
    # Most say that they are the last.
    if rng.random() < 0.9:
        heads.append("Connection: " + ("Upgrade, close" if kind == 6 else "close"))
    rng.shuffle(heads)
    data = "\r\n".join([f"{method} {path} {version}", *heads]).encode("latin1", "replace") + b"\r\n\r\n" + body
    if kind == 8:
        # Pipelined.
        first = request("/tokenize", {"content": "x"}) * rng.choice([1, 5, 50])
        data = first + data
    elif kind == 9:
        for _ in range(rng.randint(1, 5)):
            at = rng.randrange(len(data))
            data = rng.choice([data[:at] + bytes([rng.randrange(256)]) + data[at + 1:], data[:at], data[:at] + b"\r\n" + data[at:], data[at:] + data[:at]]) or b"\r\n"
    elif kind == 10:
        data = rng.choice([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(rng.randrange(256) for _ in range(200)), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\r\n" * 5000,
                           b"\x00" * 5000, b"GET /health\r\n\r\n", b"GET /health HTTP/1.1\nHost: localhost\nConnection: close\n\n", b"SSH-2.0-x\r\n", b"{" * 3000, b" \r\n\r\n",
                           bytes(rng.randrange(256) for _ in range(300))])
    return data


def answers(data):
    """Splits what came on a connection into answers: status, headers and body of each, and what is no whole answer."""
    found = []
    while data.startswith(b"HTTP/1."):
        head, gap, rest = data.partition(b"\r\n\r\n")
        if not gap:
            break
        lines = head.decode("latin1").split("\r\n")
        status = int(lines[0].split(" ")[1])
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        if status == 100:
            data = rest
            continue
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while (line := rest.partition(b"\r\n"))[1]:
                size = int(line[0], 16)
                body, rest = body + line[2][:size], line[2][size + 2:]
                if size == 0:
                    break
        else:
            size = int(headers.get("content-length", 0))
            # The answer to HEAD names a length and has no body.
            size = 0 if rest[:7] == b"HTTP/1." else size
            body, rest = rest[:size], rest[size:]
        found.append((status, headers, body))
        data = rest
    return found, data


def refused_well(status, kind, body):
    """Why an answer is none that a request may get; None if it is."""
    if status in (200, 204):
        return None
    if not 400 <= status < 500:
        return f"status {status}"
    if not kind.startswith("application/json"):
        return f"status {status} as {kind or 'nothing'}: {body[:80]!r}"
    try:
        error = strict(body)["error"]
        assert isinstance(error["message"], str) and error["message"] and isinstance(error["type"], str)
        assert {"param", "code"} <= set(error)
    except (ValueError, KeyError, TypeError, AssertionError):
        return f"status {status} without an error object: {body[:80]!r}"
    return None


def checked_json(client, path, body):
    """Sends a body; returns what is wrong with the answer, and its status."""
    begin = time.monotonic()
    try:
        answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
    except httpx.TimeoutException:
        return f"no answer after {HANG} s", 0
    except httpx.TransportError as error:
        return f"no answer: {error!r}", 0
    kind, status = answer.headers.get("content-type", ""), answer.status_code
    wrong = refused_well(status, kind, answer.content)
    if status >= 500:
        wrong = f"status {status}: {answer.text[:150]}"
    elif status == 200:
        try:
            if kind.startswith("text/event-stream"):
                events = [line[6:] for line in answer.text.split("\n") if line.startswith("data: ")]
                errors = [event for event in events if '"error"' in event and "error" in strict(event)]
                if errors:
                    if '"server_error"' in errors[0]:
                        wrong = f"a server_error in a stream: {errors[0][:150]}"
                elif events[-1] != "[DONE]":
                    wrong = "a stream without an end"
            else:
                strict(answer.content)
        except (ValueError, IndexError) as error:
            wrong = f"status 200, and {error!r}"
    if time.monotonic() - begin > HANG:
        wrong = wrong or f"an answer after {time.monotonic() - begin:.0f} s"
    return wrong, status


def checked_raw(server, data):
    """Sends bytes; returns what is wrong with the answers, and the last status."""
    begin, came, is_open = time.monotonic(), b"", True
    s = server.connect()
    try:
        try:
            s.sendall(data)
        except (ConnectionError, TimeoutError):
            pass
        # What is not complete waits for more: then we end our side.
        s.settimeout(0.5)
        while is_open:
            try:
                piece = s.recv(1 << 16)
                came += piece
                is_open = bool(piece)
            except TimeoutError:
                if time.monotonic() - begin > HANG:
                    return f"the connection is open {HANG} s after its end", 0
                s.settimeout(HANG)
                s.shutdown(socket.SHUT_WR)
            except (ConnectionError, OSError):
                is_open = False
    finally:
        s.close()
    found, rest = answers(came)
    if rest:
        return f"half an answer: {rest[:80]!r}", 0
    for status, headers, body in found:
        if status >= 400 and not body:
            # HTTP that is not understood gets a status at most, and to HEAD there is no body; the connection has ended.
            wrong = f"status {status}" if status >= 500 else None
        elif status in (200, 204):
            wrong = None
        else:
            wrong = refused_well(status, headers.get("content-type", ""), body)
        if wrong:
            return wrong, status
    return None, found[-1][0] if found else 0


def make(seed, i):
    """Request `i`: (path, body), or bytes."""
    rng = random.Random(f"{seed}/{i}")
    return json_body(rng) if rng.random() < 0.65 else raw(rng)


def malformed(args):
    faults, statuses, rss, honest = {}, {}, [], [0, 0, 0.0]
    with Server(args, "--max-tokens", 8, "--queue", 512) as server:
        wanted = said(server.ask())
        stop = threading.Event()

        def same():
            while not stop.is_set():
                begin = time.monotonic()
                try:
                    answer = server.ask(timeout=60)
                    honest[0] += 1
                    if answer.status_code != 200 or said(answer) != wanted:
                        faults.setdefault("the honest client got another answer", (0, answer.text[:200]))
                except httpx.TransportError as error:
                    faults.setdefault(f"the honest client got {error!r}", (0, ""))
                honest[2] = max(honest[2], time.monotonic() - begin)
                rss.append(server.memory())
                time.sleep(0.1)

        def one(i):
            made = make(args.seed, i)
            if isinstance(made, tuple):
                wrong, status = checked_json(clients[i % len(clients)], *made)
            else:
                wrong, status = checked_raw(server, made)
            statuses[status] = statuses.get(status, 0) + 1
            if wrong:
                shown = f"{made[0]} {made[1][:300]!r}" if isinstance(made, tuple) else repr(made[:300])
                key = re.sub(r"\d{4,}", "…", wrong)[:90]
                faults.setdefault(key, (i, f"{wrong}\n      {shown}"))
            assert server.process.poll() is None, f"the server has ended at request {i}: {''.join(server.lines[-5:])}"

        clients = [httpx.Client(base_url=server.address, timeout=HANG) for _ in range(8)]
        honest_thread = threading.Thread(target=same)
        honest_thread.start()
        begin = time.monotonic()
        try:
            with ThreadPoolExecutor(6) as pool:
                list(pool.map(one, range(args.requests)))
        finally:
            stop.set()
            honest_thread.join()
        wall = time.monotonic() - begin
        for name, head in NOT_OURS.items():
            s = server.connect()
            s.sendall(f"GET /v1/models HTTP/1.1\r\n{head}\r\nConnection: close\r\n\r\n".encode())
            status = int(s.recv(4096).split(b" ")[1])
            s.close()
            if not 400 <= status < 500:
                faults[f"`Host` with {name} is answered with {status}"] = (0, head)
        for name, head, body in [("a chunk without a length", "Transfer-Encoding: chunked", b"zz\r\n{}\r\n0\r\n\r\n")]:
            s = server.connect()
            s.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + head.encode() + b"\r\n\r\n" + body)
            status = int(s.recv(4096).split(b" ")[1])
            s.close()
            if status == 413:
                faults[f"{name} is answered with 413, as if the body were too large"] = (0, body.decode())
        begin = time.monotonic()
        assert said(server.ask(timeout=5)) == wanted
        last = time.monotonic() - begin
        third = len(rss) // 3
        memory = f"{rss[0]} MiB before, {max(rss[:third])} at most in the first third, {max(rss[-third:])} in the last, {server.memory('VmHWM')} at all"
        if max(rss[-third:]) > 1.5 * max(rss[:third]) + 64:
            faults["the memory grows"] = (0, memory)
    told = ", ".join(f"{count} × {status or 'closed'}" for status, count in sorted(statuses.items()))
    note = f"{args.requests} requests in {wall:.0f} s ({told}); {honest[0]} honest answers, at most {honest[2]:.1f} s; {memory}; one more after {last:.2f} s"
    return note, [f"{key} (request {i}): {shown}" for key, (i, shown) in faults.items()]


def large(args):
    """Bodies of 4 MiB, of which each costs what it can."""
    most = (4 << 20) - 200
    fill = lambda begin, item, end: begin + b",".join([item] * ((most - len(begin) - len(end)) // (len(item) + 1))) + end
    keys = lambda width: ("{" + ",".join(f'"{i:0{width}x}":1' for i in range(most // (width + 5))) + "}").encode()
    cases = {
        "messages of numbers": (CHAT, fill(b'{"messages":[', b"1", b"]}")), "messages of {}": (CHAT, fill(b'{"messages":[', b"{}", b"]}")),
        "unknown fields": (CHAT, keys(6)), "long unknown fields": (CHAT, keys(60)), "one word": ("/tokenize", b'{"content":"' + b"a" * most + b'"}'),
        "spaces": ("/tokenize", b'{"content":"' + b" " * most + b'"}'), "lists": (TEXT, fill(b'{"prompt":[', b"[]", b"]}")),
        "a long message": (CHAT, b'{"messages":[{"role":"user","content":"' + b"word " * (most // 5 - 20) + b'"}]}'),
        "tokens": ("/detokenize", fill(b'{"tokens":[', b"1", b"]}")),
    }
    faults, notes = [], []
    # Each on a server of its own: memory that was given back would hide what the next takes.
    for name, (path, body) in cases.items():
        with Server(args) as server, httpx.Client(base_url=server.address, timeout=60) as client:
            server.ask()
            before, begin = server.memory(), time.monotonic()
            wrong, status = checked_json(client, path, body)
            took, more = time.monotonic() - begin, server.memory("VmHWM") - before
            notes.append(f"{name}: {status}, {took:.1f} s, {more} MiB more")
            if wrong:
                faults.append(f"{name}: {wrong}")
            if more > 512:
                faults.append(f"{name}: one body of 4 MiB takes {more} MiB")
    with Server(args) as server:
        server.ask()
        before = server.memory()
        path, body = cases["messages of {}"]
        for turn in range(2):
            begin = time.monotonic()
            with ThreadPoolExecutor(8) as pool:
                send = lambda _: httpx.post(server.address + path, content=body, headers={"Content-Type": "application/json"}, timeout=120)
                sent = pool.map(send, range(8))
                time.sleep(0.5)
                other = time.monotonic()
                server.ask({"prompt": "x", "max_tokens": 1}, TEXT, timeout=120)
                other = time.monotonic() - other
                codes = {answer.status_code for answer in sent}
            more = server.memory("VmHWM") - before
            notes.append(f"8 of {{}} at once: {codes}, {time.monotonic() - begin:.1f} s, {more} MiB more, then {server.memory() - before}; "
                         f"another's one token {other:.1f} s")
        if more > 2048:
            faults.append(f"8 bodies of 4 MiB at once take {more} MiB")
        if other > HANG:
            faults.append(f"8 such bodies hold up another's completion of one token for {other:.1f} s")
    return "; ".join(notes), faults


# ---- vanish ------------------------------------------------------------------------------------------------------------------


def vanish(args):
    """Clients that leave, and clients that stay and do nothing: with 4 places and a queue of 4."""
    faults, notes = [], []
    story = {"messages": [{"role": "user", "content": "Tell a long story."}], "logit_bias": {"0": -100, "2": -100}, "temperature": 1, "seed": 1}
    with Server(args, "--queue", 4, "--deadline", 20) as server:
        wanted = said(server.ask())

        def free(name, limit):
            answer, took = server.wait(limit)
            if answer is None:
                faults.append(f"{name}: no honest answer in {limit} s, last: {took}")
            else:
                assert said(answer) == wanted, name
                notes.append(f"{name} {took:.2f} s")

        def leave(data, count=24, after=0.02):
            for _ in range(count):
                s = server.connect()
                s.sendall(data)
                time.sleep(after)
                s.close()

        whole = request(CHAT, story)
        leave(whole[:40])
        free("half a head", 5)
        leave(whole[:-20])
        free("half a body", 5)
        leave(whole)
        free("a request", 5)
        leave(request(CHAT, story | {"n": 8}))
        free("a request for 8", 5)
        for _ in range(24):
            s = server.connect()
            s.sendall(request(CHAT, story | {"stream": True}))
            s.recv(600)
            s.close()
        free("a stream", 5)
        # A reset instead of an end.
        for _ in range(24):
            s = server.connect()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            s.sendall(request(CHAT, story | {"stream": True}))
            s.recv(600)
            s.close()
        free("a reset", 5)
        # One byte of another request comes after the first: hyper reads no further, and does not see that the client leaves. The
        # answers end at their own time then, which docs/serving.md says.
        leave(request(CHAT, story | {"n": 8}) + b"G", count=1, after=0.5)
        server.wait(60)
        free("a request and one byte more, when its answers had ended", 3)
        # Half-open: sockets that stay.
        kept, since = [], time.monotonic()
        for data in [b"", whole[:40], whole[:-20]]:
            for _ in range(24):
                kept.append(server.connect())
                kept[-1].sendall(data)
        free("72 half-open", 5)
        # Readers that do not read: one stream for all places, larger than the buffers of the system.
        slow = server.connect(buffer=1024)
        slow.sendall(request(CHAT, story | {"stream": True, "n": 8, "logprobs": True, "top_logprobs": 20}))
        free("one reader that never reads, of 8 answers", 45)
        slow.close()
        server.wait(30)
        slow = [server.connect(buffer=1024) for _ in range(24)]
        for s in slow:
            s.sendall(request(CHAT, story | {"stream": True}))
        free("24 readers that never read", 45)
        for s in slow:
            s.close()
        # The server ends those that stay.
        time.sleep(max(0, 63 - (time.monotonic() - since)))
        alive = 0
        for s in kept:
            s.settimeout(0.5)
            try:
                while s.recv(4096):
                    pass
            except TimeoutError:
                alive += 1
            except OSError:
                pass
            s.close()
        if alive:
            faults.append(f"{alive} of {len(kept)} half-open connections are open after 63 s")
        # As many connections as there may be, and more.
        begin = time.monotonic()
        many = [server.connect() for _ in range(530)]
        answer, took = server.wait(80)
        notes.append(f"530 silent connections {took if answer is None else round(took, 2)} s")
        if answer is None:
            faults.append(f"530 silent connections: no honest answer in 80 s, last: {took}")
        for s in many:
            s.close()
        free("after them", 5)
        # The same, with answers that are never read: no time is set for writing one.
        page = (b"GET /page/vendor/marked.esm.js HTTP/1.1\r\nHost: localhost\r\n\r\n") * 300
        many = []
        for _ in range(530):
            many.append(server.connect(buffer=1024))
            many[-1].setblocking(False)
            try:
                many[-1].send(page)
            except BlockingIOError:
                pass
        free("530 clients that read no page", 80)
        # They do not keep the server from its end.
        begin = time.monotonic()
        server.process.terminate()
        try:
            code = server.process.wait(40)
            notes.append(f"SIGTERM beside them {time.monotonic() - begin:.1f} s, code {code}")
            if code:
                faults.append(f"SIGTERM beside clients that do not read: code {code}")
        except subprocess.TimeoutExpired:
            faults.append("SIGTERM beside clients that do not read: the server runs after 40 s")
        for s in many:
            s.close()
    return "the honest answer came, after " + ", ".join(notes), faults


# ---- canaries ----------------------------------------------------------------------------------------------------------------


def canaries(args):
    rng = random.Random(args.seed)
    secrets = ["".join(rng.choice(string.ascii_uppercase) for _ in range(7)) for _ in range(24)]
    shared = "This is a list of words, and each of them is written three times. Nothing else is in it.\nRepeat: apple apple apple apple\n"

    def body(i, temperature):
        secret = secrets[i]
        words = f"Repeat: {secret} {secret} {secret}"
        sampling = {"temperature": temperature, "max_tokens": 24, "seed": i}
        if i % 3 == 2:
            return CHAT, {"messages": [{"role": "system", "content": shared}, {"role": "user", "content": words}], **sampling}
        return TEXT, {"prompt": (shared if i % 3 else "") + words, **sampling}

    faults, own, count = [], 0, 0
    with Server(args, parallel=1) as server:
        alone = {i: said(server.ask(body(i, 0)[1], body(i, 0)[0], timeout=60)) for i in range(len(secrets))}
    with Server(args) as server:
        def one(job):
            i, temperature = job
            path, asked = body(i, temperature)
            stream = job[0] % 2 == 1
            if stream:
                text = ""
                with httpx.stream("POST", server.address + path, json=asked | {"stream": True}, timeout=120) as answer:
                    for line in answer.iter_lines():
                        if line.startswith("data: {"):
                            for choice in json.loads(line[6:])["choices"]:
                                text += choice["text"] if path == TEXT else choice["delta"].get("content") or ""
                return job, text
            return job, said(server.ask(asked, path, timeout=120))

        jobs = [(i, temperature) for _ in range(4) for temperature in (0, 1) for i in range(len(secrets))]
        rng.shuffle(jobs)
        begin = time.monotonic()
        with ThreadPoolExecutor(24) as pool:
            for (i, temperature), text in pool.map(one, jobs):
                count += 1
                own += secrets[i] in text
                others = [secret for secret in secrets if secret != secrets[i] and secret in text]
                if others:
                    faults.append(f"the answer to {secrets[i]} has {others}: {text!r}")
                if temperature == 0 and text != alone[i]:
                    faults.append(f"the answer to {secrets[i]} is not the one alone: {text!r}, {alone[i]!r}")
    assert own > count // 4, f"the model repeats too little for this: {own} of {count}"
    return f"{count} answers of 24 clients in {time.monotonic() - begin:.0f} s, {own} with their own secret", faults[:5]


# ---- files and signals -------------------------------------------------------------------------------------------------------


class Streams:
    """Streams that run in the background."""

    def __init__(self, server, count, tokens):
        self.server, self.tokens, self.texts = server, tokens, [""] * count
        self.ended, self.errors = [False] * count, [None] * count
        self.threads = [threading.Thread(target=self.one, args=(i,)) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def one(self, i):
        asked = {"messages": [{"role": "user", "content": f"Write a long story about {i + 3} birds."}], "temperature": 0, "max_tokens": self.tokens,
                 "logit_bias": {"0": -100, "2": -100}, "stream": True}
        try:
            with httpx.stream("POST", self.server.address + CHAT, json=asked, timeout=120) as answer:
                for line in answer.iter_lines():
                    if line.startswith("data: {"):
                        event = json.loads(line[6:])
                        if "error" in event:
                            self.errors[i] = event["error"]["message"]
                            continue
                        for choice in event["choices"]:
                            self.texts[i] += choice["delta"].get("content") or ""
                    self.ended[i] |= line == "data: [DONE]"
        except httpx.HTTPError as error:
            self.errors[i] = repr(error)

    def begun(self):
        """Waits until all have said something."""
        for _ in range(600):
            if all(self.texts):
                return self
            time.sleep(0.05)
        raise AssertionError("the streams do not begin")

    def join(self):
        for thread in self.threads:
            thread.join(120)
            assert not thread.is_alive(), "a stream hangs"
        return self


def files(args):
    faults, notes = [], []
    server = Server(args)
    with server:
        wanted, texts = said(server.ask()), Streams(server, 4, 100).join().texts
        again = Streams(server, 4, 100).begun()
        server.process.kill()
        server.process.wait()
        begin = time.monotonic()
        again.join()
        if any(again.ended):
            faults.append("a stream of a killed server has an end")
    for i in range(5):
        with Server(args, port=server.port) as next_one:
            first = said(next_one.ask(timeout=30))
            if i == 0:
                notes.append(f"the first answer {time.monotonic() - begin:.1f} s after kill -9, on the same port")
            if first != wanted:
                faults.append(f"after kill -9 the answer is another: {first!r}")
            running = Streams(next_one, 4, 100).begun()
            if i < 4:
                next_one.process.kill()
                next_one.process.wait()
                running.join()
                continue
            # SIGTERM: streams end well, and nothing new begins.
            begin = time.monotonic()
            next_one.process.terminate()
            time.sleep(0.2)
            try:
                late = next_one.ask(timeout=2).status_code
            except httpx.TransportError:
                late = "refused"
            running.join()
            code = next_one.process.wait(40)
            notes.append(f"SIGTERM during 4 streams: all ended after {time.monotonic() - begin:.1f} s with code {code}; a new request is {late}")
            if code or not all(running.ended) or running.texts != texts or late == 200:
                faults.append(f"SIGTERM: code {code}, ended {running.ended}, errors {running.errors}, as alone {running.texts == texts}, late {late}")
    with tempfile.TemporaryDirectory() as folder:
        copy, other = pathlib.Path(folder, "copy.gguf"), pathlib.Path(folder, "other.gguf")
        shutil.copy(args.model, copy)
        with Server(args, model=copy) as server:
            assert said(server.ask(timeout=30)) == wanted
            running = Streams(server, 4, 100).begun()
            other.write_bytes(os.urandom(copy.stat().st_size))
            other.replace(copy)
            running.join()
            if running.texts != texts or not all(running.ended):
                faults.append(f"renamed over: running answers change: {running.errors}")
            if said(server.ask()) != wanted or Streams(server, 4, 100).join().texts != texts:
                faults.append("renamed over: later answers change")
            copy.unlink()
            if said(server.ask()) != wanted:
                faults.append("removed: answers change")
            notes.append("renamed over and removed: answers as before")
        # What happens here is told, and is no fault: a mapped file that shrinks raises SIGBUS.
        shutil.copy(args.model, copy)
        with Server(args, model=copy) as server:
            running = Streams(server, 4, 100).begun()
            os.truncate(copy, 1 << 20)
            running.join()
            time.sleep(0.5)
            code = server.process.poll()
            name = "goes on" if code is None else f"ends with {signal.Signals(-code).name if code < 0 else code}"
            notes.append(f"truncated in place: the process {name}, streams: {running.errors[0]}, stderr: {''.join(server.lines[-2:]).strip()[-200:]!r}")
            if code is None:
                answer, why = server.wait(10)
                notes.append(f"  and then {'answers ' + repr(said(answer)) if answer else why}")
    return "; ".join(notes), faults


# ---- templates ---------------------------------------------------------------------------------------------------------------

DOUBLE = '{%% set ns = namespace(s="%s") %%}{%% for i in range(%d) %%}{%% set ns.s = ns.s ~ ns.s %%}{%% endfor %%}{{ ns.s }}'
TEMPLATES = {
    "loops": "{% for i in range(90000) %}{% for j in range(90000) %}{% for k in range(90000) %}{% endfor %}{% endfor %}{% endfor %}x",
    "recurses": "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    "fills memory": DOUBLE % ("a" * 64, 40),
    "raises": '{{ raise_exception("these roles cannot be") }}',
    "raises 20 MB": '{% set ns = namespace(s="word ") %}{% for i in range(22) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ raise_exception(ns.s) }}',
    "writes 20 MB of words": DOUBLE % ("word ", 22),
    "writes 20 MB of a": DOUBLE % ("aaaaa", 22),
    "writes 20 MB of spaces": DOUBLE % ("     ", 22),
    "takes 5 s": '{% set ns = namespace(s="aaaaaaaa", t="") %}{% for i in range(21) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}'
                 "{% for i in range(90000) %}{% set ns.t = ns.s ~ i %}{% endfor %}x",
    "writes 10 MB of spaces": DOUBLE % ("     ", 21),
    "fails": "{{ messages[0].nothing.nothing }}",
    "writes nothing": "",
}


def templates(args):
    faults, notes = [], []
    chosen = {name: text for name, text in TEMPLATES.items() if not args.template or name in args.template}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in chosen.items():
            file = pathlib.Path(folder, "template.jinja")
            file.write_text(text)
            begin = time.monotonic()
            with Server(args, "--chat-template", file) as server:
                started = time.monotonic() - begin
                asked = {"prompt": "Once upon", "max_tokens": 4, "temperature": 0}
                alone = said(server.ask(asked, TEXT))
                with ThreadPoolExecutor(12) as pool:
                    begin = time.monotonic()
                    first = server.ask(timeout=90)
                    single = time.monotonic() - begin
                    refused = pool.map(lambda _: server.status(timeout=120), range(12))
                    time.sleep(0.3)
                    others, health = [], []
                    while len(others) < 4:
                        begin = time.monotonic()
                        httpx.get(server.address + "/health", timeout=60)
                        health.append(time.monotonic() - begin)
                        assert said(server.ask(asked, TEXT, timeout=120)) == alone
                        others.append(time.monotonic() - begin)
                    codes = set(refused)
                peak = server.memory("VmHWM")
                shown = first.text if len(first.text) < 160 else f"{first.text[:120]}… ({len(first.text)} characters)"
                notes.append(f"{name}: {first.status_code} after {single:.1f} s, others at most {max(others):.1f} s, /health {max(health):.2f} s, {peak} MiB, start {started:.1f} s, {shown}")
                if first.status_code != 400 or codes != {400} or refused_well(400, first.headers.get("content-type", ""), first.content):
                    faults.append(f"{name}: {first.status_code}, {codes}: {first.text[:200]}")
                if single > HANG:
                    faults.append(f"{name}: the refusal takes {single:.1f} s")
                if max(others) > HANG:
                    faults.append(f"{name}: with 12 such chats, a completion of 4 tokens takes {max(others):.1f} s")
                if len(first.content) > 100_000:
                    faults.append(f"{name}: the error has {len(first.content)} bytes")
    return "\n      ".join([f"{len(chosen)} templates", *notes]), faults


PARTS = {part.__name__: part for part in [malformed, large, vanish, canaries, files, templates]}


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("weighbridge")
    arguments.add_argument("model")
    arguments.add_argument("--requests", type=int, default=10_000)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--only", default=",".join(PARTS))
    arguments.add_argument("--all", action="store_true")
    arguments.add_argument("--template", action="append")
    arguments.add_argument("--replay", type=int)
    args = arguments.parse_args()
    if args.replay is not None:
        made = make(args.seed, args.replay)
        with Server(args, "--max-tokens", 8, "--queue", 512) as server:
            print(made)
            if isinstance(made, tuple):
                print(httpx.post(server.address + made[0], content=made[1], headers={"Content-Type": "application/json"}, timeout=60).text)
            else:
                print(checked_raw(server, made))
        return
    bad = False
    for name in args.only.split(","):
        begin = time.monotonic()
        note, faults = PARTS[name](args)
        print(f"{'no' if faults else 'ok'} {name:10} {time.monotonic() - begin:6.1f} s: {note}", flush=True)
        for fault in faults:
            print(f"    FAULT {fault}", flush=True)
        bad |= bool(faults)
        if bad and not args.all:
            break
    sys.exit(bad)


if __name__ == "__main__":
    main()
