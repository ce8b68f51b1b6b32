"""Shows that `weighbridge pull` and the package huggingface_hub share one cache, both ways, without a network.

    pip install huggingface_hub==2.4.0
    python hub.py WEIGHBRIDGE

It starts a hub on this machine, which counts the requests for bytes. Each part prints a line; the first that fails ends the script.
"""

import collections
import hashlib
import http.server
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from pathlib import Path

LARGE = 10_000
TOKEN = "hf_token_of_the_test"


def etag(data):
    """What the hub calls a file by: the SHA-256 of a large one, git's SHA-1 of others."""
    if len(data) >= LARGE:
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub(http.server.ThreadingHTTPServer):
    """Repositories at commits, and branches that lead to them."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
        # Bytes of large files come from another host, by name, which must not see the token.
        self.cdn = f"http://localhost:{self.server_port}"
        self.commits, self.refs = {}, {}
        self.bytes = collections.Counter()
        self.pause = 0.0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def add(self, repo, files, *revisions):
        """A commit with `files`, to which `revisions` lead from now on."""
        commit = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.commits[repo, commit] = files
        for revision in revisions:
            self.refs[repo, revision] = commit
        return commit

    def count(self):
        """The requests for bytes since the last call."""
        counted, self.bytes = sum(self.bytes.values()), collections.Counter()
        return counted

    def handle_error(self, request, client_address):
        pass  # A client that was killed.


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, headers, body=b""):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, str(value))
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub, url = self.server, urllib.parse.urlsplit(self.path)
        path = url.path.lstrip("/")
        if self.headers["Host"].startswith("localhost"):
            assert "Authorization" not in self.headers, "the token was sent to another host"
            _, repo, commit, file = re.fullmatch(r"(cdn)/([^/]+/[^/]+)/([^/]+)/(.+)", path).groups()
            return self.file(hub.commits[repo, commit][urllib.parse.unquote(file)], {"ETag": '"another"'})
        if api := re.fullmatch(r"api/models/([^/]+/[^/]+)/(revision|tree)/([^/]+)", path):
            repo, kind, revision = api.groups()
            commit, files = self.find(repo, urllib.parse.unquote(revision))
            if files is None:
                return None
            if kind == "tree":
                entries = [
                    {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                    | ({"lfs": {"oid": etag(data), "size": len(data), "pointerSize": 130}} if len(data) >= LARGE else
                       {"oid": etag(data)})
                    for name, data in files.items()
                ]
                return self.answer(200, {"Content-Type": "application/json"}, json.dumps(entries).encode())
            siblings = [
                {"rfilename": name, "size": len(data), "blobId": etag(data) if len(data) < LARGE else "0" * 40}
                | ({"lfs": {"sha256": etag(data), "size": len(data), "pointerSize": 130}} if len(data) >= LARGE else {})
                for name, data in files.items()
            ]
            info = {"id": repo, "modelId": repo, "sha": commit, "private": False, "siblings": siblings}
            return self.answer(200, {"Content-Type": "application/json"}, json.dumps(info).encode())
        if resolve := re.fullmatch(r"([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            repo, revision, file = map(urllib.parse.unquote, resolve.groups())
            commit, files = self.find(repo, revision)
            if files is None:
                return None
            headers = {"X-Repo-Commit": commit}
            if file not in files:
                return self.answer(404, headers | {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"})
            data = files[file]
            if len(data) < LARGE:
                return self.file(data, headers | {"ETag": f'"{etag(data)}"'})
            headers |= {
                "Location": f"{hub.cdn}/cdn/{repo}/{commit}/{urllib.parse.quote(file)}?signature=abc",
                "X-Linked-Etag": f'"{etag(data)}"',
                "X-Linked-Size": len(data),
                "ETag": '"of the pointer"',
            }
            return self.answer(302, headers)
        return self.answer(404, {})

    def find(self, repo, revision):
        """The commit of a revision and its files; an answer that refuses if there are none."""
        hub = self.server
        commit = hub.refs.get((repo, revision), revision)
        files = hub.commits.get((repo, commit))
        if files is None:
            known = any(name == repo for name, _ in hub.commits)
            code = ("RevisionNotFound", "Invalid rev id") if known else ("RepoNotFound", "Repository not found")
            self.answer(404 if known else 401, {"X-Error-Code": code[0], "X-Error-Message": code[1]})
        return commit, files

    def file(self, data, headers):
        if self.command == "HEAD":
            return self.answer(200, headers | {"Content-Length": len(data)})
        self.server.bytes[etag(data)] += 1
        status, size = 200, len(data)
        if found := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            start, end = int(found[1]), int(found[2] or size - 1)
            data, status = data[start:end + 1], 206
            headers = headers | {"Content-Range": f"bytes {start}-{end}/{size}"}
        time.sleep(self.server.pause if size >= LARGE else 0)
        return self.answer(status, headers | {"Accept-Ranges": "bytes"}, data)


HUB = Hub()
HOME = Path(tempfile.mkdtemp(prefix="hub-test-"))
for name in [name for name in os.environ if name.startswith(("HF_", "HUGGING", "TRANSFORMERS_"))]:
    del os.environ[name]
os.environ |= {
    "HF_ENDPOINT": HUB.address,
    "HF_HOME": str(HOME / "home"),
    "HF_TOKEN": TOKEN,
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "NO_PROXY": "*",
}

# The package reads the environment when it is imported.
import huggingface_hub  # noqa: E402
from huggingface_hub import hf_hub_download, scan_cache_dir, snapshot_download  # noqa: E402
from huggingface_hub.utils._fixes import WeakFileLock  # noqa: E402
from huggingface_hub.utils._shared_blobs import publish_blob_to_shared_store  # noqa: E402

PROGRAM = None


def command(cache, *args, env=()):
    env = os.environ | {"HF_HUB_CACHE": str(cache)} | dict(env)
    return subprocess.Popen([PROGRAM, *args], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def pull(cache, *args, env=()):
    """What `pull --json` says; `None` and the error if it fails."""
    process = command(cache, "pull", *args, "--json", env=env)
    out, err = process.communicate(timeout=120)
    assert TOKEN not in out + err
    document = json.loads(out)
    assert (process.returncode == 0) == ("pulled" in document), (process.returncode, out, err)
    return document["pulled"][0] if "pulled" in document else (None, document["error"])


def files(rng):
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    return {
        "README.md": b"# A model",
        "config.json": b'{"model_type": "llama"}',
        "1_Pooling/config.json": b"{}",
        "same/config.json": b"{}",
        "tokenizer.json": rng.randbytes(12_000),
        "model.safetensors.index.json": json.dumps(index).encode(),
        "model-00001-of-00002.safetensors": rng.randbytes(20 << 20),
        "model-00002-of-00002.safetensors": rng.randbytes(50_000),
    }


def layout(cache, repo):
    """Every file of a repository's folder: the target of a link, or the digest of a file."""
    folder = cache / ("models--" + repo.replace("/", "--"))
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if (path.is_symlink() or path.is_file()) and path.relative_to(folder).parts[0] != "trees"
    }


def ours_then_theirs(rng):
    repo, cache = "o/first", HOME / "a"
    content = files(rng)
    commit = HUB.add(repo, content, "main", "v1", "refs/pr/3")
    pulled = pull(cache, repo)
    assert pulled["commit"] == commit and pulled["from_cache"] is None
    names = [file["path"] for file in pulled["files"]]
    assert sorted(names) == sorted(set(content) - {"README.md"}), names
    assert HUB.count() >= len(names)
    path = snapshot_download(repo, cache_dir=cache, allow_patterns=names)
    assert path == pulled["path"], (path, pulled["path"])
    for name in names:
        assert Path(hf_hub_download(repo, name, cache_dir=cache)).read_bytes() == content[name]
    assert HUB.count() == 0, "the package downloaded what weighbridge had pulled"
    # What is missing is added to the same place, and then nothing is.
    assert snapshot_download(repo, cache_dir=cache) == path and HUB.count() == 1
    assert pull(cache, repo)["bytes_downloaded"] == 0 and HUB.count() == 0


def theirs_then_ours(rng):
    repo, cache = "o/second", HOME / "a"
    content = files(rng)
    HUB.add(repo, content, "main")
    path = snapshot_download(repo, cache_dir=cache)
    HUB.count()
    pulled = pull(cache, repo)
    assert (pulled["path"], pulled["bytes_downloaded"]) == (path, 0), pulled
    assert pulled["bytes_there"] == sum(len(data) for name, data in content.items() if name != "README.md")
    # One file of another repository, by its quantisation.
    HUB.add("o/gguf", {"m-Q4_K_M.gguf": rng.randbytes(40_000), "m-Q8_0.gguf": rng.randbytes(60_000)}, "main")
    file = hf_hub_download("o/gguf", "m-Q4_K_M.gguf", cache_dir=cache)
    HUB.count()
    assert pull(cache, "hf:o/gguf/q4_k_m")["path"] == file
    assert HUB.count() == 0, "weighbridge downloaded what the package had"
    other = pull(cache, "hf:o/gguf/Q8_0")["path"]
    assert HUB.count() == 1
    assert hf_hub_download("o/gguf", "m-Q8_0.gguf", cache_dir=cache) == other and HUB.count() == 0


def same_layout(rng):
    repo, ours, theirs = "o/third", HOME / "ours", HOME / "theirs"
    content = {name: data for name, data in files(rng).items() if name != "README.md"}
    HUB.add(repo, content, "main", "feature/x", "refs/pr/3")
    for revision, name in [("main", "o/third"), ("feature/x", "o/third@feature%2Fx"), ("refs/pr/3", "o/third@refs/pr/3")]:
        snapshot_download(repo, revision=revision, cache_dir=theirs)
        pull(ours, name)
    assert layout(ours, repo) == layout(theirs, repo), (layout(ours, repo), layout(theirs, repo))
    modes = [oct((cache / "models--o--third/blobs" / etag(content["config.json"])).stat().st_mode) for cache in (ours, theirs)]
    assert modes[0] == modes[1], modes
    scan = scan_cache_dir(ours)
    assert not scan.warnings and not scan.incomplete_files, scan
    assert [str(repo.repo_id) for repo in scan.repos] == [repo]
    locks = [sorted(path.name for path in (cache / ".locks/models--o--third").iterdir()) for cache in (ours, theirs)]
    assert locks[0] == locks[1], locks


def a_revision_moves(rng):
    repo, cache = "o/moves", HOME / "a"
    content = files(rng)
    first = HUB.add(repo, content, "main")
    ref = cache / "models--o--moves/refs/main"
    pull(cache, repo)
    HUB.count()
    for step, (mine, other) in enumerate([("pull", "package"), ("package", "pull")]):
        content = content | {"config.json": b'{"step": %d}' % step}
        commit = HUB.add(repo, content, "main")
        names = [name for name in content if name != "README.md"]
        get = {
            "pull": lambda: pull(cache, repo)["path"],
            "package": lambda: snapshot_download(repo, cache_dir=cache, allow_patterns=names),
        }
        # Offline, the commit before counts.
        assert pull(cache, repo, "--offline")["commit"] != commit
        path = get[mine]()
        assert HUB.count() == 1, "more than the file that changed was downloaded"
        assert ref.read_text() == commit and path.endswith(commit)
        assert get[other]() == path and HUB.count() == 0
    assert pull(cache, f"{repo}@{first}")["commit"] == first and HUB.count() == 0
    assert ref.read_text() == commit


def offline(rng):
    repo, cache = "o/offline", HOME / "a"
    HUB.add(repo, files(rng), "main", "v1")
    online = pull(cache, repo)
    HUB.count()
    by_flag, by_variable = pull(cache, repo, "--offline"), pull(cache, repo, env={"HF_HUB_OFFLINE": "1"})
    theirs = snapshot_download(repo, cache_dir=cache, local_files_only=True)
    assert by_flag["path"] == by_variable["path"] == theirs == online["path"]
    assert by_flag["from_cache"] == "offline"
    # A revision that nobody has asked for, and a repository.
    for name, revision in [(repo, "v1"), ("o/none", "main")]:
        ours = pull(cache, f"{name}@{revision}", "--offline")
        assert ours[0] is None and "is not in the cache" in ours[1], ours
        try:
            snapshot_download(name, revision=revision, cache_dir=cache, local_files_only=True)
            raise AssertionError("found offline")
        except huggingface_hub.errors.LocalEntryNotFoundError:
            pass
    # Nobody answers.
    nobody = pull(cache, repo, env={"HF_ENDPOINT": "http://127.0.0.1:9"})
    assert nobody["path"] == theirs and nobody["from_cache"].startswith("cannot reach 127.0.0.1:9"), nobody
    # The package has listed all files: then both know that one is missing.
    snapshot_download(repo, cache_dir=cache)
    Path(theirs, "config.json").unlink()
    ours = pull(cache, repo, "--offline")
    assert ours[0] is None and "it has no `config.json`" in ours[1], ours
    try:
        snapshot_download(repo, cache_dir=cache, local_files_only=True)
        raise AssertionError("complete offline")
    except huggingface_hub.errors.IncompleteSnapshotError:
        pass
    HUB.count()
    assert pull(cache, repo)["path"] == theirs and HUB.count() == 0


def unfinished(rng):
    """A pull that was killed: the package does not take its file for a whole one, and the next pull continues."""
    cache = HOME / "killed"
    data = rng.randbytes(96 << 20)
    HUB.add("o/killed", {"m.gguf": data}, "main")
    HUB.pause = 0.3
    process = command(cache, "pull", "o/killed")
    part = cache / "models--o--killed/blobs" / f"{etag(data)}.weighbridge.pieces"
    while not part.exists() or part.read_text().count("\n") < 5:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    HUB.pause = 0
    copy = HOME / "copy"
    shutil.copytree(cache, copy, symlinks=True)
    HUB.count()
    pulled = pull(cache, "o/killed")
    asked = HUB.count()
    assert Path(pulled["path"]).read_bytes() == data
    assert 0 < asked <= 12 - 4, f"{asked} of 12 pieces were read again"
    assert not [path for path in (cache / "models--o--killed/blobs").iterdir() if "weighbridge" in path.name]
    path = hf_hub_download("o/killed", "m.gguf", cache_dir=copy)
    assert Path(path).read_bytes() == data and HUB.count() == 1
    assert pull(copy, "o/killed")["bytes_downloaded"] == 0 and HUB.count() == 0


def one_waits_for_the_other(rng):
    cache = HOME / "locks"
    data = rng.randbytes(20 << 20)
    HUB.add("o/locks", {"m.gguf": data}, "main")
    lock = cache / ".locks/models--o--locks" / f"{etag(data)}.lock"
    lock.parent.mkdir(parents=True)
    with WeakFileLock(lock):
        process = command(cache, "pull", "o/locks")
        time.sleep(1)
        assert process.poll() is None and HUB.count() == 0, "it did not wait for the package's lock"
    assert process.communicate(timeout=60)[0].endswith("m.gguf\n") and HUB.count() == 3
    # The package waits for a pull, and downloads nothing.
    data = rng.randbytes(20 << 20)
    HUB.add("o/locks", {"m.gguf": data}, "main")
    HUB.pause = 0.5
    process = command(cache, "pull", "o/locks")
    while not (cache / "models--o--locks/blobs" / f"{etag(data)}.weighbridge.pieces").exists():
        time.sleep(0.01)
    path = hf_hub_download("o/locks", "m.gguf", cache_dir=cache)
    assert process.communicate(timeout=60)[0].strip() == path
    assert Path(path).read_bytes() == data and HUB.count() == 3
    # A pull waits for the package.
    data = rng.randbytes(20 << 20)
    HUB.add("o/locks", {"m.gguf": data}, "main")
    thread = threading.Thread(target=hf_hub_download, args=("o/locks", "m.gguf"), kwargs={"cache_dir": cache})
    thread.start()
    while not list((cache / "models--o--locks/blobs").glob("*.incomplete")):
        time.sleep(0.01)
    pulled = pull(cache, "o/locks")
    thread.join()
    HUB.pause = 0
    assert pulled["bytes_downloaded"] == 0 and HUB.count() == 1, pulled


def shared_blobs(rng):
    """A blob that the package has moved to the store that all models share, and left a link to."""
    cache, model = HOME / "shared", Path(__file__).parent / "models/llama-tiny"
    content = {name: (model / name).read_bytes() for name in ["config.json", "model.safetensors"]}
    HUB.add("o/shared", content, "main")
    path = snapshot_download("o/shared", cache_dir=cache)
    data = content["model.safetensors"]
    blob = cache / "models--o--shared/blobs" / etag(data)
    shared = publish_blob_to_shared_store(
        blob_path=str(blob), xet_hash=rng.randbytes(32).hex(), cache_dir=str(cache), expected_size=len(data))
    assert shared and blob.is_symlink()
    HUB.count()
    assert pull(cache, "o/shared")["path"] == path and HUB.count() == 0
    subprocess.run([PROGRAM, "plan", path], check=True, stdout=subprocess.DEVNULL)
    listed = json.loads(command(cache, "list", "--json").communicate()[0])["models"]
    assert [(model["name"], model["path"]) for model in listed] == [("hf:o/shared", path)], listed


def environment(_):
    """Both find the cache in the same place."""
    own = {"HOME": str(HOME), "PATH": os.environ["PATH"]}
    cases = [
        {}, {"XDG_CACHE_HOME": "/x"}, {"HF_HOME": "~/y"}, {"HF_HOME": "$HOME/${USER}/z", "USER": "me"},
        {"HUGGINGFACE_HUB_CACHE": "/old"}, {"HUGGINGFACE_HUB_CACHE": "/old", "HF_HUB_CACHE": "~/new"},
        {"XDG_CACHE_HOME": "~/x"}, {"HF_HUB_CACHE": "/a/$NONE/b"}, {"HF_HUB_CACHE": "/a/${HOME/b"}, {"XDG_CACHE_HOME": ""},
    ]
    ask = "from huggingface_hub import constants as c, get_token as t; print(c.HF_HUB_CACHE, c.HF_HUB_OFFLINE, c.ENDPOINT)"
    for case in cases:
        theirs = subprocess.run([sys.executable, "-c", ask], env=own | case, check=True, capture_output=True, text=True)
        ours = subprocess.run([PROGRAM, "list", "--json"], env=own | case, check=True, capture_output=True, text=True)
        wanted, found = theirs.stdout.split(" ")[0], json.loads(ours.stdout)["cache"]
        assert wanted == found, (case, wanted, found)


def main(program):
    global PROGRAM
    PROGRAM = os.path.abspath(program)
    rng = random.Random(7)
    parts = [ours_then_theirs, theirs_then_ours, same_layout, a_revision_moves, offline, unfinished, one_waits_for_the_other,
             shared_blobs, environment]
    try:
        for part in parts:
            started = time.monotonic()
            part(rng)
            print(f"{part.__name__}: ok ({time.monotonic() - started:.1f} s)", flush=True)
    finally:
        shutil.rmtree(HOME, ignore_errors=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(sys.argv[1])
