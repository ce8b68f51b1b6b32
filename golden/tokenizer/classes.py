"""Counts the characters of each class of regexes, as the library `tokenizers` (Oniguruma) sees them: classes.json.

    python classes.py         with tokenizers 0.23.3 from PyPI

The Rust test holds fancy-regex against it. `\\w` is there to show that the two differ, by eight characters.
"""

import json
import pathlib

from tokenizers import Regex, pre_tokenizers

NAMES = """L N P S M Z C Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Cc Cf Han Hiragana Katakana
Hangul Thai Latin Greek Cyrillic Arabic Hebrew Devanagari""".split()
CHARS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def members(pattern):
    """A sum over the code points, and how many there are."""
    split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    found = []
    for i in range(0, len(CHARS), 2048):
        for piece, _ in split.pre_tokenize_str("".join(CHARS[i : i + 2048])):
            found += map(ord, piece)
    return [len(found), sum(found)]


patterns = [rf"\p{{{name}}}" for name in NAMES] + [r"\s", r"\d", r"\w"]
table = {pattern: members(pattern) for pattern in patterns}
pathlib.Path(__file__).with_name("classes.json").write_text(json.dumps(table, indent=0) + "\n")
