"""How fast weighbridge reads from a server, beside a plain client, and how much it asks for.

    weighbridge convert gemma3.gguf F32 --to hf --preset f32          (or another directory of a GB)
    cargo xtask fixture deepseek-v3 HOLES
    python golden/remote_speed.py WEIGHBRIDGE F32 [HOLES] [TURNS]

A server on this machine waits 20 ms before each answer and breaks one of a hundred off. The plain client reads ranges of 8 MiB to where
they belong, with as many connections as weighbridge has reads under way. In turns: seconds of both, and what they asked for; the reads of
ranks; and `inspect` of the directory of holes, beside the bytes of its headers, its index and its configuration.
"""

import http.client
import json
import mmap
import os
import random
import re
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

PROGRAM, FOLDER = sys.argv[1], Path(sys.argv[2])
HOLES = Path(sys.argv[3]) if len(sys.argv) > 3 and not sys.argv[3].isdigit() else None
TURNS = int(sys.argv[-1]) if sys.argv[-1].isdigit() else 5
DEPTH, RANGE = 32, 8 << 20


class Server:
    def __init__(self, root, delay=0.02, breaks=100):
        self.root, self.delay, self.breaks = root, delay, breaks
        self.lock, self.requests, self.sent, self.broken = threading.Lock(), 0, 0, 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def taken(self):
        with self.lock:
            found = self.requests, self.sent, self.broken
            self.requests = self.sent = self.broken = 0
        return found

    def serve(self, client):
        heard = b""
        try:
            while True:
                while b"\r\n\r\n" not in heard:
                    if not (more := client.recv(1 << 16)):
                        return
                    heard += more
                head, heard = heard.split(b"\r\n\r\n", 1)
                if not self.answer(client, head.decode()):
                    return
        except OSError:
            pass
        finally:
            client.close()

    def answer(self, client, head):
        method, path = head.split(" ", 2)[:2]
        file = self.root / path.lstrip("/").split("?")[0]
        time.sleep(self.delay)
        with self.lock:
            self.requests += 1
        if not file.is_file():
            client.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return True
        length = file.stat().st_size
        first, last, status = 0, length - 1, "200 OK"
        if asked := re.search(r"\r\n[Rr]ange: bytes=(\d+)-(\d*)", head):
            first, last = int(asked[1]), min(int(asked[2] or length - 1), length - 1)
            status = "206 Partial Content"
        lines = [f"HTTP/1.1 {status}", f'ETag: "{length}"', f"Content-Length: {last + 1 - first}", "Accept-Ranges: bytes"]
        if asked:
            lines.append(f"Content-Range: bytes {first}-{last}/{length}")
        client.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        if method == "HEAD":
            return True
        breaks = random.randrange(self.breaks) == 0
        end = (first + last + 1) // 2 if breaks else last + 1
        with open(file, "rb") as source:
            at = first
            while at < end:
                at += os.sendfile(client.fileno(), source.fileno(), at, min(end - at, 1 << 20))
        with self.lock:
            self.sent += end - first
            self.broken += breaks
        if breaks:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return not breaks


def plain(server, files):
    """Every byte of `files`, by threads."""
    return read(server, files, [(name, at, min(at + RANGE, length)) for name, length in files for at in range(0, length, RANGE)])


def halves_of_rows():
    """The first half of each row of the matrices whose columns a rank of two shares."""
    for path in sorted(FOLDER.glob("*.safetensors")):
        with open(path, "rb") as source:
            length = int.from_bytes(source.read(8), "little")
            for name, entry in json.loads(source.read(length)).items():
                if name.endswith(("o_proj.weight", "down_proj.weight")):
                    first, end = (8 + length + at for at in entry["data_offsets"])
                    row = (end - first) // entry["shape"][0]
                    yield from ((path.name, at, at + row // 2) for at in range(first, end, row))


def read(server, files, work):
    """Ranges of `files`, by threads. Returns seconds."""
    rooms = {name: mmap.mmap(-1, max(length, 1)) for name, length in files}
    work.reverse()

    def reads():
        host = server.url.removeprefix("http://")
        connection = http.client.HTTPConnection(host)
        while work:
            try:
                name, first, end = work.pop()
            except IndexError:
                return
            while True:
                try:
                    connection.request("GET", f"/{name}", headers={"Range": f"bytes={first}-{end - 1}"})
                    answer, room = connection.getresponse(), memoryview(rooms[name])[first:end]
                    while room:
                        count = answer.readinto(room)
                        if count == 0:
                            raise OSError("it broke off")
                        room = room[count:]
                    break
                except (OSError, http.client.HTTPException):
                    connection.close()
                    connection = http.client.HTTPConnection(host)

    began = time.time()
    threads = [threading.Thread(target=reads) for _ in range(DEPTH)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.time() - began


def weighbridge(*args):
    done = subprocess.run([PROGRAM, *args, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def main():
    server = Server(FOLDER)
    files = [(f.name, f.stat().st_size) for f in sorted(FOLDER.iterdir()) if f.suffix == ".safetensors"]
    whole = sum(length for _, length in files)
    print(f"{FOLDER.name}: {whole} bytes, {DEPTH} reads under way")
    ratios = []
    for _ in range(TURNS):
        raw = plain(server, files)
        server.taken()
        report = weighbridge("load", f"{server.url}/", "--layout", "source", "--owned")
        requests, sent, broken = server.taken()
        # Without the requests that open the directory.
        seconds = report["seconds"] - report["seconds_open"]
        ratios.append(raw / seconds)
        print(f"plain {raw:.2f} s, load {seconds:.2f} s: {ratios[-1]:.2f}; {requests} requests, {broken} broke off, {sent / whole:.3f} of the bytes sent")
    print(f"median: {statistics.median(ratios):.2f} of the plain client")
    for rank in (["--pp", "2"], ["--tp", "2"]):
        report = weighbridge("load", f"{server.url}/", "--layout", "vllm", *rank)
        _, sent, _ = server.taken()
        print(f"rank 0 of {' '.join(rank)}: {sent} bytes sent, {report}"[:300])
    # Without what lies between them: a request for each.
    halves = list(halves_of_rows())
    count, wanted = len(halves), sum(end - first for _, first, end in halves)
    seconds = read(server, files, halves)
    _, sent, _ = server.taken()
    print(f"halves of rows alone, each by a request of its own: {count} requests for {wanted} bytes ({sent} sent), {seconds:.1f} s")
    if HOLES:
        server = Server(HOLES)
        headers = 0
        for file in HOLES.iterdir():
            with open(file, "rb") as source:
                headers += 8 + int.from_bytes(source.read(8), "little") if file.suffix == ".safetensors" else file.stat().st_size
        for _ in range(3):
            began = time.time()
            weighbridge("inspect", f"{server.url}/")
            requests, sent, _ = server.taken()
            print(f"inspect of {HOLES.name}: {time.time() - began:.2f} s, {requests} requests, {sent} bytes, {sent / headers:.3f} of its headers, index and configuration")


main()
