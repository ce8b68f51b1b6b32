"""Results that weighbridge writes to servers of others, read by their own clients.

    python golden/remote_write.py WEIGHBRIDGE MODEL.gguf [AZURITE]

Starts moto (S3), moto behind a proxy that speaks Google's preconditions (no emulator of Google's takes uploads in parts), and azurite
(Azure, its program `azurite-blob`) if it is named. To each it writes a GGUF file, one in parts, a directory in shards and an archive of
arrays, from a file of this machine and from the bucket itself. Each is fetched with the cloud's own client and must be, byte for byte,
what weighbridge writes to the disk. Then:

- 20 ms before each answer, and one connection of fifty broken off: the same bytes;
- killed (kill -9) at a random moment, ten times: the next command goes on, and the bytes are the same;
- two commands for one result at once: the later has it, the bytes are right;
- an object that is there is refused, and replaced with `--force`; with it go the shards that the new result does not have;
- nothing is left: no upload in parts, no journal (but for an upload without parts if the answer that began it broke off);
- memory: a result of any length takes no more than was foreseen.

Needs: moto[server], boto3, azure-storage-blob.
"""

import hashlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PROGRAM, MODEL = sys.argv[1], Path(sys.argv[2])
AZURITE = sys.argv[3] if len(sys.argv) > 3 else None
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
WORK = Path(tempfile.mkdtemp(prefix="remote-write-"))
KEYS = {"aws_access_key_id": "id", "aws_secret_access_key": "secret", "region_name": "eu-west-1"}
NOT_PASSED = ("host", "connection", "x-goog-if-generation-match", "authorization")
SIGNED = "AWS4-HMAC-SHA256 Credential=id/20260101/eu-west-1/s3/aws4_request, SignedHeaders=host, Signature=0"

# Name of the result, and how it is made.
CASES = [
    ("dir/q8.gguf", ["--encode", "*.weight=bf16"]),
    ("parts.gguf", ["--split-max-size", "40M"]),
    ("a b/shards", ["--to", "hf", "--max-shard-size", "60MB"]),
    ("x.npz", ["--encode", "*=f32"]),
]


def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait(port):
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"nothing listens on {port}")


def proxy(to, delay=0.02, breaks=50):
    """Passes connections on; waits before each answer, and breaks one of `breaks` off."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    broken = [0]

    def one(client):
        server = socket.create_connection(("127.0.0.1", to))
        for s in (client, server):
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        asked = threading.Event()

        def up():
            try:
                while data := client.recv(1 << 16):
                    asked.set()
                    server.sendall(data)
            except OSError:
                pass
            server.close()

        threading.Thread(target=up, daemon=True).start()
        try:
            while data := server.recv(1 << 16):
                if asked.is_set():
                    asked.clear()
                    time.sleep(delay)
                    if random.randrange(breaks) == 0:
                        broken[0] += 1
                        client.sendall(data[: len(data) // 2])
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        break
                client.sendall(data)
        except OSError:
            pass
        # The other thread reads from it: a mere `close` would not end the connection.
        for end in (client, server):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()

    def accept():
        while True:
            client, _ = listener.accept()
            threading.Thread(target=one, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1], broken


def google_proxy(to):
    """Google's preconditions and generations over a server of S3: `x-goog-if-generation-match` and `x-goog-generation`."""
    lock, generations, count = threading.Lock(), {}, [1000]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def answer(self, status, body=b"", headers=()):
            self.send_response(status)
            for key, value in headers:
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = self.path.split("?")[0]
            plain = self.command == "PUT" and "?" not in self.path
            whole = plain or (self.command == "POST" and "uploadId=" in self.path)
            with lock:
                wanted = self.headers.get("x-goog-if-generation-match")
                if wanted is not None and int(wanted) != generations.get(path, 0):
                    return self.answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
                connection = http.client.HTTPConnection("127.0.0.1", to)
                headers = {k: v for k, v in self.headers.items() if k.lower() not in NOT_PASSED}
                # Nobody may begin an upload at moto without a signature, which it does not check.
                headers["Authorization"] = SIGNED
                connection.request(self.command, self.path, body=body, headers=headers)
                answer = connection.getresponse()
                content = answer.read()
                if whole and answer.status == 200:
                    count[0] += 1
                    generations[path] = count[0]
                elif self.command == "DELETE" and "?" not in self.path:
                    generations.pop(path, None)
                kept = [
                    (k, v)
                    for k, v in answer.getheaders()
                    if k.lower() not in ("connection", "transfer-encoding", "content-length", "date", "server")
                ]
                if path in generations:
                    kept.append(("x-goog-generation", str(generations[path])))
            if self.command == "HEAD":
                self.send_response(answer.status)
                for key, value in kept + [("Content-Length", answer.getheader("Content-Length") or "0")]:
                    self.send_header(key, value)
                self.end_headers()
            else:
                self.answer(answer.status, content, kept)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1], generations


def command(environment, *args):
    return subprocess.Popen(
        [PROGRAM, "convert", *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def convert(environment, *args):
    process = command(environment, *args)
    out, err = process.communicate(timeout=900)
    return process.returncode, out, err


def digest(data):
    return hashlib.sha256(data).hexdigest()


def tree(path):
    """The files of a result on the disk, by the end of their names."""
    if path.is_dir():
        return {f"{path.name}/{f.name}": digest(f.read_bytes()) for f in path.iterdir()}
    family = [path] if path.exists() else path.parent.glob(f"{path.stem}-*{path.suffix}")
    return {f.name: digest(f.read_bytes()) for f in family}


def wanted(name, options):
    """What weighbridge writes to the disk."""
    path = WORK / "disk" / name
    if not path.parent.exists():
        path.parent.mkdir(parents=True)
    if not tree(path):
        code, _, err = convert({}, MODEL, path, *options)
        assert code == 0, err
    prefix = "".join(f"{part}/" for part in Path(name).parts[:-1])
    return {prefix + key: value for key, value in tree(path).items()}


class Store:
    """A bucket, as its own client sees it."""

    def __init__(self, scheme, environment, list_, uploads, clear, breaks=False):
        self.scheme, self.environment, self.list, self.uploads, self.clear = scheme, environment, list_, uploads, clear
        # Whether answers break off.
        self.breaks = breaks

    def url(self, name):
        return f"{self.scheme}://models/{name.replace(' ', '%20')}"

    def clean(self, expected, title):
        found = self.list()
        assert found == expected, (title, sorted(found), sorted(expected))
        # An upload of which nobody learned, since the answer that began it broke off, has no parts.
        left = [key for key, parts in self.uploads() if parts or not self.breaks]
        assert not left, (title, left)

    def all(self, title, quick=False):
        for name, options in CASES[:1] if quick else CASES:
            self.clear()
            began = time.time()
            code, out, err = convert(self.environment, MODEL, self.url(name), *options)
            assert code == 0, (title, name, err)
            self.clean(wanted(name, options), f"{title} {name}")
            print(f"{title}: {self.url(name)}: the bytes that the disk gets ({time.time() - began:.1f} s)")

    def kills(self, rounds=10):
        name, options = CASES[2]
        expected = wanted(name, options)
        began = time.time()
        code, _, err = convert(self.environment, MODEL, self.url(name), *options, "--force")
        assert code == 0, err
        whole, killed, continued = time.time() - began, 0, 0
        for _ in range(rounds):
            self.clear()
            deaths = 0
            while True:
                process = command(self.environment, MODEL, self.url(name), *options, "--sync-every", "8MiB", "--json")
                try:
                    out, err = process.communicate(timeout=random.uniform(0.3, whole * 0.8) if deaths < 4 else 900)
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGKILL)
                    process.communicate()
                    deaths += 1
                    # The file that readers begin with comes last; after it only the journal is removed.
                    there = {key: of for key, of in self.list().items() if ".partial/" not in key}
                    assert f"{name}/config.json" not in there or there == expected, (sorted(there), sorted(expected))
                    continue
                if process.returncode != 0 and "already exists" in out:
                    break
                assert process.returncode == 0, (out, err)
                continued += json.loads(out)["continued"] > 0
                break
            killed += deaths
            found = {key: value for key, value in self.list().items() if ".partial/" not in key}
            assert found == expected, sorted(found)
        print(f"{self.scheme}: killed {killed} times in {rounds} rounds, continued {continued} times: the bytes are the same")

    def race(self):
        self.clear()
        name, options = CASES[0]
        first = command(self.environment, MODEL, self.url(name), *options, "--sync-every", "8MiB")
        time.sleep(0.7)
        second = command(self.environment, MODEL, self.url(name), *options, "--sync-every", "8MiB")
        ends = [(p.communicate(), p.returncode) for p in (first, second)]
        assert 0 in [code for _, code in ends], ends
        found = {key: value for key, value in self.list().items() if ".partial/" not in key}
        assert found == wanted(name, options), sorted(found)
        said = [err.splitlines()[0] for (_, err), code in ends if code != 0]
        print(f"{self.scheme}: of two at once {said or 'both'} … and the bytes are right")

    def forced(self):
        self.clear()
        name, options = CASES[2]
        code, _, err = convert(self.environment, MODEL, self.url(name), "--to", "hf", "--max-shard-size", "30MB")
        assert code == 0, err
        many = len(self.list())
        code, _, err = convert(self.environment, MODEL, self.url(name), *options)
        assert code == 2 and "already exists" in err, (code, err)
        code, _, err = convert(self.environment, MODEL, self.url(name), *options, "--force")
        assert code == 0, err
        expected = wanted(name, options)
        self.clean(expected, "forced")
        print(f"{self.scheme}: refused, then replaced with --force: {many} files before, {len(expected)} now")

    def from_itself(self):
        """From a bucket to the bucket, and memory."""
        self.clear()
        source = self.url("source.gguf")
        code, _, err = convert(self.environment, MODEL, source)
        assert code == 0, err
        name, options = CASES[2]
        began = time.time()
        code, out, err = convert(self.environment, source, self.url(name), *options, "--json")
        assert code == 0, err
        seconds = time.time() - began
        found = {key: value for key, value in self.list().items() if key != "source.gguf"}
        if found != wanted(name, options):
            # The name of the source is in no file but this one's.
            sys.exit(f"{self.scheme}: {sorted(set(found.items()) ^ set(wanted(name, options).items()))}")
        report = json.loads(out)
        taken, foreseen = report["resident"]["delta_bytes"] >> 20, report["foreseen_memory"] >> 20
        print(f"{self.scheme}: {source} to {self.url(name)}: {seconds:.1f} s, {taken} MiB of memory ({foreseen} foreseen)")
        code, _, err = convert(self.environment, source, source, "--force")
        assert code == 2 and "the source and the destination are the same" in err, (code, err)
        print(f"{self.scheme}: {err.splitlines()[0]}")


def moto():
    import boto3

    at = port()
    program = Path(sys.executable).parent / "moto_server"
    server = subprocess.Popen([program, "-H", "127.0.0.1", "-p", str(at)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait(at)
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{at}", **KEYS)
    client.create_bucket(Bucket="models", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})

    def names():
        return [o["Key"] for o in client.list_objects_v2(Bucket="models").get("Contents", [])]

    def list_():
        return {key: digest(client.get_object(Bucket="models", Key=key)["Body"].read()) for key in names()}

    def uploads():
        begun = client.list_multipart_uploads(Bucket="models").get("Uploads", [])
        parts = lambda u: client.list_parts(Bucket="models", Key=u["Key"], UploadId=u["UploadId"]).get("Parts", [])
        return [(u["Key"], len(parts(u))) for u in begun]

    def clear():
        for key in names():
            client.delete_object(Bucket="models", Key=key)
        for upload in client.list_multipart_uploads(Bucket="models").get("Uploads", []):
            client.abort_multipart_upload(Bucket="models", Key=upload["Key"], UploadId=upload["UploadId"])

    return server, at, list_, uploads, clear


def s3():
    server, at, list_, uploads, clear = moto()
    try:
        environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{at}",
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "eu-west-1",
        }
        store = Store("s3", environment, list_, uploads, clear)
        store.all("s3")
        through, broken = proxy(at)
        slow = Store("s3", {**environment, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{through}"}, list_, uploads, clear, breaks=True)
        slow.all("s3, 20 ms, broken connections")
        print(f"s3: {broken[0]} answers were broken off")
        store.kills()
        store.race()
        store.forced()
        store.from_itself()
    finally:
        server.kill()


def google():
    server, at, list_, uploads, clear = moto()
    try:
        through, generations = google_proxy(at)

        def clear_all():
            clear()
            generations.clear()

        environment = {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{through}"}
        store = Store("gs", environment, list_, uploads, clear_all)
        store.all("gs")
        store.race()
        store.forced()
        store.from_itself()
    finally:
        server.kill()


def azure():
    from azure.storage.blob import BlobServiceClient

    at = 10000
    server = subprocess.Popen(
        [AZURITE, "--inMemoryPersistence", "--skipApiVersionCheck", "--blobHost", "127.0.0.1", "--blobPort", str(at), "--silent"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait(at)
        account = f"DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={AZURE_KEY};"
        service = BlobServiceClient.from_connection_string(account + f"BlobEndpoint=http://127.0.0.1:{at}/devstoreaccount1;")
        container = service.create_container("models")

        def list_():
            return {b.name: digest(container.download_blob(b.name).readall()) for b in container.list_blobs()}

        def clear():
            for blob in container.list_blobs():
                container.delete_blob(blob.name)

        # What was sent and not put together, Azure removes after a week.
        store = Store("az", {"AZURE_STORAGE_USE_EMULATOR": "true"}, list_, lambda: [], clear)
        store.all("az")
        store.kills(3)
        store.race()
        store.forced()
        store.from_itself()
    finally:
        server.kill()


try:
    s3()
    google()
    if AZURITE:
        azure()
    else:
        sys.exit("azurite was not named: az:// was not written")
finally:
    shutil.rmtree(WORK)
