"""Servers of others, read by weighbridge.

    python golden/remote.py WEIGHBRIDGE MODEL.gguf HF_DIRECTORY [AZURITE]

Starts moto (S3) and gcp-storage-emulator (Google), and azurite (Azure, its program `azurite-blob`) if it is named; a proxy in front
of the first adds 20 ms to each answer and breaks one of a hundred off. Puts a GGUF file and a directory of Hugging Face into a
bucket of each, and shows that every tensor read from there has the bytes of the local file.

Needs: moto[server], boto3, gcp-storage-emulator, google-cloud-storage, azure-storage-blob.
"""

import hashlib
import http.client
import os
import random
import socket
import struct
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PROGRAM, MODEL, FOLDER = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
AZURITE = sys.argv[4] if len(sys.argv) > 4 else None
FILES = [f for f in sorted(FOLDER.iterdir()) if f.is_file()]
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


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


def proxy(to, delay=0.02, breaks=100):
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
        for s in (client, server):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()

    def accept():
        while True:
            client, _ = listener.accept()
            threading.Thread(target=one, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1], broken


def run(environment, *args):
    done = subprocess.run([PROGRAM, *args], capture_output=True, text=True, env={**os.environ, **environment})
    return done.returncode, done.stdout, done.stderr


def same(environment, url, local, title):
    began = time.time()
    code, out, err = run(environment, "diff", url, str(local))
    assert code == 0, (title, url, out[-500:], err)
    print(f"{title}: {url}: every tensor and key as in the local file ({time.time() - began:.1f} s)")


def refused(environment, url, words, title):
    code, _, err = run(environment, "inspect", url)
    assert code == 1 and all(word in err for word in words), (title, url, code, err)
    print(f"{title}: {err.splitlines()[0]}")


def s3():
    import boto3

    at = port()
    moto = Path(sys.executable).parent / "moto_server"
    server = subprocess.Popen([moto, "-H", "127.0.0.1", "-p", str(at)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait(at)
        keys = {"aws_access_key_id": "id", "aws_secret_access_key": "secret", "region_name": "eu-west-1"}
        client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{at}", **keys)
        client.create_bucket(Bucket="models", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        client.upload_file(str(MODEL), "models", f"a b/{MODEL.name}")
        for file in FILES:
            client.upload_file(str(file), "models", f"hf/{file.name}")
        through, broken = proxy(at)
        environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{through}",
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "eu-west-1",
        }
        same(environment, f"s3://models/a%20b/{MODEL.name}", MODEL, "s3")
        same(environment, "s3://models/hf/", FOLDER, "s3")
        same(environment, "s3://models/hf", FOLDER, "s3")
        print(f"s3: {broken[0]} answers were broken off")
        refused(environment, f"s3://models/hf/{FILES[0].name}x", ["nothing is there", "did you mean"], "s3")
        refused(environment, "s3://nobody/x.gguf", ["s3://nobody/x.gguf", "404"], "s3")
    finally:
        server.kill()


def dated(to):
    """A proxy that adds `ETag` and `Last-Modified`, which Google's servers send and the emulator leaves out."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_GET(self):
            connection = http.client.HTTPConnection("127.0.0.1", to)
            headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection")}
            connection.request(self.command, self.path, headers=headers)
            answer = connection.getresponse()
            body = answer.read()
            self.send_response(answer.status)
            for key, value in answer.getheaders():
                if key.lower() not in ("connection", "transfer-encoding", "content-length", "date", "server"):
                    self.send_header(key, value)
            length = answer.getheader("Content-Length") if self.command == "HEAD" else len(body)
            self.send_header("Content-Length", str(length or 0))
            self.send_header("ETag", f'"{hashlib.md5(self.path.split("?")[0].encode()).hexdigest()}"')
            self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
            self.end_headers()
            self.wfile.write(body)

        do_HEAD = do_GET

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def google():
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    at = port()
    program = Path(sys.executable).parent / "gcp-storage-emulator"
    server = subprocess.Popen(
        [program, "start", "--host=127.0.0.1", f"--port={at}", "--in-memory", "--default-bucket=models"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait(at)
        os.environ["STORAGE_EMULATOR_HOST"] = f"http://127.0.0.1:{at}"
        bucket = storage.Client(project="p", credentials=AnonymousCredentials()).bucket("models")
        bucket.blob(f"dir/{MODEL.name}").upload_from_filename(str(MODEL))
        environment = {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{dated(at)}"}
        same(environment, f"gs://models/dir/{MODEL.name}", MODEL, "gs")
        # The emulator does not list names as Google's XML API does: directories are not read from it.
    finally:
        os.environ.pop("STORAGE_EMULATOR_HOST", None)
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
        for file, name in [(MODEL, f"dir/{MODEL.name}"), *((f, f"hf/{f.name}") for f in FILES)]:
            with open(file, "rb") as data:
                container.upload_blob(name, data)
        environment = {"AZURE_STORAGE_USE_EMULATOR": "true"}
        same(environment, f"az://models/dir/{MODEL.name}", MODEL, "az")
        same(environment, "az://models/hf/", FOLDER, "az")
    finally:
        server.kill()


s3()
google()
if AZURITE:
    azure()
else:
    sys.exit("azurite was not named: az:// was not read")
