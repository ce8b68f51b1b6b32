"""Loads `weighbridge serve` with many streams, and compares it with llama.cpp's server under the same load.

    pip install httpx==0.28.1
    python serve_load.py WEIGHBRIDGE MODEL [--seconds S] [--streams N] [--threads T] [--llama-server PROGRAM] [--turns K]

First N streams (64) for S seconds (300): each answer must equal the one that its question has alone, at temperature 0; the times between
tokens and the memory of the process are told. Then, with PROGRAM, 8 streams at a time on each server in turns, with the same
questions, lengths and threads: tokens a second of all streams, and the time to the first token.
"""

import argparse
import asyncio
import json
import pathlib
import re
import socket
import statistics
import subprocess
import time

import httpx

QUESTIONS = [
    f"{ask} {what}" for what in ["the sea", "a mountain", "bread", "the moon", "a bridge", "rain", "a clock", "winter"]
    for ask in ["Write a story about", "Tell me all you know about", "Why do people like", "Describe"]
]
TOKENS = 96
CTX = 512


def server(command, ready):
    port = socket.create_server(("127.0.0.1", 0)).getsockname()[1]
    process = subprocess.Popen([*command, "--port", str(port)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    for _ in range(600):
        try:
            if httpx.get(address + ready).status_code == 200:
                return process, address
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise SystemExit(f"{command[0]} did not start")


async def answer(client, address, question):
    """The text of an answer, its tokens, and the moments at which its pieces came."""
    body = {
        "messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": TOKENS, "stream": True,
        "stream_options": {"include_usage": True},
    }
    moments, text, tokens = [time.monotonic()], "", None
    async with client.stream("POST", address + "/v1/chat/completions", json=body) as response:
        if response.status_code != 200:
            raise SystemExit(f"{response.status_code}: {await response.aread()}")
        ended = False
        async for line in response.aiter_lines():
            if line == "data: [DONE]":
                ended = True
            elif line.startswith("data: "):
                event = json.loads(line[6:])
                if event.get("usage"):
                    tokens = event["usage"]["completion_tokens"]
                for choice in event["choices"]:
                    if piece := choice["delta"].get("content"):
                        text += piece
                        moments.append(time.monotonic())
    assert ended and tokens, f"{question}: the stream broke off"
    return text, tokens, moments


def client():
    # A connection for each request: llama-server closes those that were silent for five seconds, as another request may be sent.
    return httpx.AsyncClient(timeout=None, limits=httpx.Limits(max_connections=None, max_keepalive_connections=0))


async def load(address, streams, seconds=None, rounds=None):
    """Answers of `streams` clients that ask one question after the other."""
    answers, begin = [], time.monotonic()

    async def ask(http, first):
        n = first
        while (time.monotonic() - begin < seconds) if seconds else (n - first < rounds * streams):
            question = QUESTIONS[n % len(QUESTIONS)]
            answers.append((question, *await answer(http, address, question)))
            n += streams

    async with client() as http:
        await asyncio.gather(*[ask(http, i) for i in range(streams)])
    return answers, time.monotonic() - begin


def memory(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def told(answers, wall):
    tokens = sum(answer[2] for answer in answers)
    first = [moments[1] - moments[0] for _, _, _, moments in answers]
    return tokens / wall, statistics.median(first), percentile(first, 0.99)


async def long(address, process, streams, seconds):
    alone = {}
    async with client() as http:
        for question in QUESTIONS:
            alone[question] = await answer(http, address, question)
    sizes = [memory(process)]

    async def watch():
        while True:
            await asyncio.sleep(5)
            sizes.append(memory(process))

    watching = asyncio.create_task(watch())
    answers, wall = await load(address, streams, seconds)
    watching.cancel()
    wrong = [question for question, text, *_ in answers if text != alone[question][0]]
    assert not wrong, f"{len(wrong)} of {len(answers)} answers are not those of their questions alone: {wrong[:3]}"
    lost = [question for question, _, tokens, _ in answers if tokens != alone[question][1]]
    assert not lost, lost
    between = [b - a for *_, moments in answers for a, b in zip(moments[1:], moments[2:])]
    rate, first, late = told(answers, wall)
    print(f"{streams} streams for {wall:.0f} s: {len(answers)} answers, each as alone; {rate:.0f} tokens/s; first token after {first:.2f} s, "
          f"p99 {late:.2f} s; between tokens {statistics.median(between) * 1000:.0f} ms, p99 {percentile(between, 0.99) * 1000:.0f} ms")
    print(f"memory {sizes[0]:.0f} MiB before, {sizes[len(sizes) // 2]:.0f} MiB in the middle, {sizes[-1]:.0f} MiB at the end, {max(sizes):.0f} MiB at most")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("weighbridge")
    arguments.add_argument("model")
    arguments.add_argument("--seconds", type=float, default=300)
    arguments.add_argument("--streams", type=int, default=64)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--llama-server")
    arguments.add_argument("--turns", type=int, default=5)
    args = arguments.parse_args()
    common = ["--threads", str(args.threads)]
    ours = [args.weighbridge, "serve", args.model, "--ctx", str(CTX), "--quiet", *common, "--parallel"]
    if args.seconds:
        process, address = server([*ours, str(args.streams)], "/health")
        try:
            asyncio.run(long(address, process, args.streams, args.seconds))
        finally:
            process.terminate()
            process.wait(60)
    if not args.llama_server:
        return
    theirs = [args.llama_server, "-m", args.model, "-c", str(8 * CTX), "-np", "8", "--no-webui", *common]
    rows = {"weighbridge": [], "llama-server": []}
    for turn in range(args.turns):
        for name, command in [("weighbridge", [*ours, "8"]), ("llama-server", theirs)]:
            process, address = server(command, "/health")
            try:
                asyncio.run(load(address, 1, rounds=1))
                answers, wall = asyncio.run(load(address, 8, rounds=3))
            finally:
                process.terminate()
                process.wait(60)
            rows[name].append(told(answers, wall))
            print(turn, name, " ".join(f"{value:.3g}" for value in rows[name][-1]), flush=True)
    [a, b] = [[statistics.median(row[i] for row in rows[name]) for i in range(3)] for name in rows]
    ratios = sorted(x[0] / y[0] for x, y in zip(*rows.values()))
    print(f"8 streams: {a[0]:.0f} tokens/s against {b[0]:.0f} ({statistics.median(ratios):.2f} times, {ratios[0]:.2f} to {ratios[-1]:.2f}); "
          f"first token after {a[1]:.2f} s against {b[1]:.2f} s, p99 {a[2]:.2f} s against {b[2]:.2f} s")


if __name__ == "__main__":
    main()
