"""Prints the SHA-256 of each file named."""

import hashlib
import sys

for path in sys.argv[1:]:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    print(digest.hexdigest())
