"""Vectors of sentences by sentence-transformers, and tokens of odd strings by tokenizers. Writes minilm.*.

    pip install torch==2.15.0 transformers==5.24.0 sentence-transformers==6.2.0 tokenizers==0.23.3 numpy==2.4.6
    python minilm.py MODEL

MODEL is all-MiniLM-L6-v2, as `cargo xtask models minilm` gets it. README.md says what is in the files.
"""

import json
import random
import sys
from pathlib import Path

import numpy as np
import sentence_transformers
import tokenizers
import torch
import transformers

OUT = Path(__file__).parent
HOLMES = OUT.parent / "eval" / "holmes.txt"


def sentences():
    """200 texts of 1 to 300 words that follow each other in a book, in capitals and with punctuation as they stand there."""
    pick = random.Random(20)
    words = HOLMES.read_text(encoding="utf-8").split()
    lengths = [1, 2, 3, 300] + [round(300 ** pick.random()) for _ in range(196)]
    starts = [pick.randrange(len(words) - 300) for _ in lengths]
    return [" ".join(words[start : start + length]) for start, length in zip(starts, lengths)]


# Every plane and script that a tokenizer treats in a way of its own.
PARTS = [
    "hello", "Hello", "WORLD", "naïve", "café", "CAFÉ", "Ångström", "İstanbul", "ıI", "straße", "ẞ", "ﬁn", "ΑΣΣ ΟΔΟΣ", "όσος",
    "Ελληνικά", "Привет", "ёлка", "Їжак", "עִבְרִית", "العَرَبِيَّة", "हिन्दी", "தமிழ்", "ไทย", "ภาษาไทย", "한국어", "가", "日本語", "ひらがな",
    "がぎぐ", "カタカナ", "漢字", "中文", "𠀀𠀁", "㐀", "豈", "𪜀", "🇺🇸", "👩‍👩‍👧", "😀", "👍🏽", "☃️", "①②", "½", "x²", "™", "ª", "Ⅷ",
    "e\u0301", "a\u030a\u0323", "\u0301", "\u200d", "\u200b", "\u00ad", "\ufeff", "\u2060", "\u2028", "\u2029", "\u00a0", "\u3000",
    "\u1680", "\u180e", "\u205f", "\u0085", "\x00", "\x01", "\x07", "\x1b", "\x7f", "\x80", "\x9f", "\ufffd", "\uffff", "\ue000",
    "\U0010ffff", "\U000e0001", "\u0600", "\u061c", "\u110bd", "\t", "\n", "\r\n", " ", "  ", "…", "—", "“q”", "‘s’", "don't", "I'm",
    "a-b_c", "3.14", "1,000", "$5", "€", "₹", "+=<>", "^`~|", "@#%&*", "\\", "[CLS]", "[SEP]", "[MASK]", "[UNK]", "[PAD]", "[cls]", "##ing",
    "##", "unaffable", "a" * 100, "b" * 101, "é" * 100, "e\u0301" * 60, "漢" * 40, "antidisestablishmentarianism", "x" * 99 + "!",
    "ǅ", "Ǆ", "ŉ", "ﷺ", "ﬀ", "K", "Å", "ϴ", "ᾳ", "ΐ", "Ά", "\u0345", "ᵃ", "ˆ", "´", "\u0307", "i\u0307", "¨", "〜", "・", "。", "「", "！",
]


def strings():
    """2,000 strings: each part alone, then random ones of parts, and of any characters."""
    pick = random.Random(2000)
    out = ["", *PARTS]
    while len(out) < 1500:
        between = pick.choice(["", " ", "", "-", "\u0301"])
        out.append(between.join(pick.choice(PARTS) for _ in range(pick.randint(2, 8))))
    def character():
        top = pick.choice([0x80, 0x300, 0x600, 0x3000, 0x10000, 0x20000, 0x110000])
        c = pick.randrange(top)
        return chr(c) if not 0xD800 <= c < 0xE000 else "x"
    while len(out) < 2000:
        out.append("".join(character() for _ in range(pick.randint(1, 24))))
    return out


def main():
    model = sentence_transformers.SentenceTransformer(sys.argv[1], device="cpu")
    texts = sentences()
    with torch.no_grad():
        vectors = model.encode(texts, batch_size=1, convert_to_numpy=True)
    vectors.astype("<f4").tofile(OUT / "minilm.bin")
    tokenizer = tokenizers.Tokenizer.from_file(str(Path(sys.argv[1]) / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    odd = strings()
    result = {
        "source": {
            "sentence-transformers": sentence_transformers.__version__,
            "transformers": transformers.__version__,
            "torch": torch.__version__.split("+")[0],
            "tokenizers": tokenizers.__version__,
        },
        "width": vectors.shape[1],
        "longest": model.max_seq_length,
        "sentences": texts,
        "strings": [{"text": text, "ids": tokenizer.encode(text).ids} for text in odd],
    }
    lines = ",\n".join(
        f' "{key}": ' + ("[\n  " + ",\n  ".join(json.dumps(v) for v in value) + "\n ]" if isinstance(value, list) else json.dumps(value))
        for key, value in result.items()
    )
    (OUT / "minilm.json").write_text("{\n" + lines + "\n}\n")
    print(len(texts), vectors.shape, len(odd), max(len(model.tokenizer(t)["input_ids"]) for t in texts))


if __name__ == "__main__":
    main()
