"""Writes the digests of what Python's `tokenizers` makes of files that we write of GGUF vocabularies: written.json.

    python written.py         from this directory, with tokenizers 0.23.3 from PyPI; runs cargo for the files
"""

import json
import os
import pathlib
import subprocess
import tempfile

import random_tokenizers as make
from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).parent
TEST = "random::what_is_written_gives_the_same_tokens_in_python"

with tempfile.TemporaryDirectory() as dir:
    command = ["cargo", "test", "--release", "-p", "weighbridge-engine", "--features", "tokenizers", "--test", "it", TEST]
    subprocess.run(command, env=os.environ | {"WEIGHBRIDGE_WRITTEN": dir}, check=True)
    make.FRAGMENTS = [f for f in make.FRAGMENTS if "\u017f" not in f]
    texts = [make.text(7, i, []) for i in range(make.TEXTS)]
    table = {}
    for path in sorted(pathlib.Path(dir).iterdir()):
        tok, digest = Tokenizer.from_file(str(path)), make.Digest()
        for text in texts:
            tok.encode_special_tokens = False
            digest.ids(tok.encode(text).ids)
            digest.ids(tok.encode(text, add_special_tokens=False).ids)
            tok.encode_special_tokens = True
            digest.ids(tok.encode(text, add_special_tokens=False).ids)
        table[path.name] = f"{digest.value:016x}"
(HERE / "written.json").write_text(json.dumps(table, indent=0) + "\n")
