"""What the parts of BERT's tokenizers do to each character, by tokenizers. Writes crates/engine/src/text/bert/characters.txt.

    pip install tokenizers==0.23.3
    python bert.py

Lines of the file: `control FIRST LAST`, characters that `clean_text` takes out; `punctuation FIRST LAST`, those that
`BertPreTokenizer` cuts out; `none FIRST LAST`, those that `strip_accents` takes out; `CHARACTER RESULT…`, what it makes of
others, but for Hangul syllables, which have a rule; `order CLASS FIRST LAST`, the canonical combining class of characters that
it leaves or takes out and that are not of class 0, by unicodedata. All numbers are hexadecimal.
"""

import unicodedata
from pathlib import Path

from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

OUT = Path(__file__).parents[2] / "crates/engine/src/text/bert/characters.txt"


def ranges(name, chars):
    out = []
    for c in chars:
        if out and out[-1][1] + 1 == c:
            out[-1][1] = c
        else:
            out.append([c, c])
    return [f"{name} {first:x} {last:x}" for first, last in out]


def main():
    everything = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    clean = BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    strip = BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
    cut = BertPreTokenizer()
    lines = ranges("control", [c for c in everything if clean.normalize_str(chr(c)) == ""])
    isolated = [c for c in everything if len(cut.pre_tokenize_str(f"a{chr(c)}a")) == 3]
    lines += ranges("punctuation", isolated)
    stripped = {c: strip.normalize_str(chr(c)) for c in everything if not 0xAC00 <= c <= 0xD7A3}
    lines += ranges("none", [c for c, to in stripped.items() if to == ""])
    lines += [f"{c:x} " + " ".join(f"{ord(t):x}" for t in to) for c, to in stripped.items() if to not in ("", chr(c))]
    # Classes that the library orders marks by: those of unicodedata, where it orders them so.
    classes = {}
    for c in everything:
        kind = unicodedata.combining(chr(c))
        if kind and not unicodedata.decomposition(chr(c)):
            classes.setdefault(kind, []).append(c)
    for kind in sorted(classes):
        lines += ranges(f"order {kind:x}", classes[kind])
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text("\n".join(lines) + "\n")
    print(len(lines), OUT.stat().st_size)


if __name__ == "__main__":
    main()
