"""Writes random tokenizers, and what the library `tokenizers` makes of texts with them.

    python random_tokenizers.py COUNT OUT [FIRST]        seeds FIRST.. (default 0), with tokenizers 0.23.3 from PyPI

OUT gets `tokenizers.jsonl`, a line for each seed: the file as it is, and one digest of all that it gives for 300 texts;
or `null` where the library refuses the file or fails on a text. `full.jsonl` has the ids of every 18th seed. Texts come
from `fragments.json` by a generator that the Rust test has too (`crates/engine/tests/it/random.rs`), so that none is
stored. Afterwards: `zstd -19 --long=27 --rm OUT/*.jsonl`.

For each text there are three runs: with special tokens added and found in the text, without adding them, and with
those in the text taken for text; then the ids of the first run are decoded twice, without special tokens and with them.
Truncation and padding are turned off, as transformers does unless a call asks for them.
"""

import json
import pathlib
import random as rnd
import sys

import tokenizers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent
TEXTS = 300
MASK = (1 << 64) - 1
FRAGMENTS = json.loads((HERE / "fragments.json").read_text())


class SplitMix:
    """SplitMix64, as in testing code of the project."""

    def __init__(self, seed):
        self.state = seed & MASK

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def below(self, n):
        return self.next() % n


def text(seed, i, contents):
    """Text `i` of a seed: fragments, added tokens, and now and then a character of any kind."""
    rng = SplitMix(seed * 1000 + i)
    out = []
    for _ in range(rng.below(9)):
        kind = rng.below(16)
        if kind < 3 and contents:
            out.append(contents[rng.below(len(contents))])
        elif kind == 3:
            c = rng.below(0x110000 - 0x800)
            out.append(chr(c if c < 0xD800 else c + 0x800))
        elif kind == 4:
            out.append(" " * (1 + rng.below(3)))
        else:
            out.append(FRAGMENTS[rng.below(len(FRAGMENTS))])
    return "".join(out)


class Digest:
    """FNV-1a, 64 bits."""

    def __init__(self):
        self.value = 0xCBF29CE484222325

    def bytes(self, data):
        value = self.value
        for byte in data:
            value = ((value ^ byte) * 0x100000001B3) & MASK
        self.value = value

    def ids(self, ids):
        self.bytes(b"".join(i.to_bytes(4, "little") for i in ids) + b"\xff\xff\xff\xff")

    def text(self, text):
        self.bytes(text.encode() + b"\xff")


def judged(seed, file):
    """The digest, and the ids of the first runs; None if the library refuses the file or fails on a text."""
    try:
        tok = Tokenizer.from_str(json.dumps(file))
        tok.no_truncation()
        tok.no_padding()
        contents = [t["content"] for t in file["added_tokens"]]
        digest, full = Digest(), []
        texts = [text(seed, i, contents) for i in range(TEXTS)]
        for one in texts:
            tok.encode_special_tokens = False
            ids = tok.encode(one).ids
            full.append(ids)
            digest.ids(ids)
            digest.ids(tok.encode(one, add_special_tokens=False).ids)
            tok.encode_special_tokens = True
            digest.ids(tok.encode(one, add_special_tokens=False).ids)
            digest.text(tok.decode(ids, skip_special_tokens=True))
            digest.text(tok.decode(ids, skip_special_tokens=False))
        return f"{digest.value:016x}", full
    except BaseException as error:  # the library's panics are no exceptions
        if isinstance(error, KeyboardInterrupt):
            raise
        return None, None


# What tokenizers are made of.

CORPUS = FRAGMENTS * 2 + (HERE / "../../LICENSE-MIT").read_text().split("\n") + [
    "the quick brown fox jumps over the lazy dog, and the dog doesn't mind; they've seen 12345 of them in 2024",
    "Der schnelle braune Fuchs springt über den faulen Hund. C'est l'été à Noël, où ça? ¿Qué tal? Žluťoučký kůň",
    "def f(x: int) -> str:\n    return x + 1\n\n\nclass A:\n\tpass  # don't", "你好，世界！ 東京は日本の首都です。 안녕하세요",
] * 3


def trained(kind, rng):
    """A model section, trained on the corpus."""
    size = rng.choice([300, 340, 400])
    quiet = {"show_progress": False}
    if kind == "bytes":
        tok = Tokenizer(models.BPE())
        tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        special = rng.choice([["<unk>"], ["<|endoftext|>"], []])
        trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, special_tokens=special, **quiet)
    elif kind == "spm":
        tok = Tokenizer(models.BPE())
        tok.normalizer = normalizers.Replace(" ", "▁")
        hexes = [f"<0x{i:02X}>" for i in range(256)]
        special = ["<unk>", "<s>", "</s>"] + hexes
        trainer = trainers.BpeTrainer(vocab_size=256 + size, limit_alphabet=70, special_tokens=special, **quiet)
    elif kind == "chars":
        prefix, suffix = rng.choice([("", ""), ("##", ""), ("", "</w>"), ("##", "</w>"), ("@", "")])
        around = {"continuing_subword_prefix": prefix, "end_of_word_suffix": suffix}
        around = {key: text for key, text in around.items() if text}
        tok = Tokenizer(models.BPE(**around))
        tok.pre_tokenizer = pre_tokenizers.Whitespace()
        trainer = trainers.BpeTrainer(
            vocab_size=size, special_tokens=["<unk>"], limit_alphabet=80, **around, **quiet)
    elif kind == "WordPiece":
        tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
        trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=special, **quiet)
    elif kind == "WordLevel":
        tok = Tokenizer(models.WordLevel(unk_token="[UNK]"))
        tok.pre_tokenizer = pre_tokenizers.Whitespace()
        trainer = trainers.WordLevelTrainer(vocab_size=size, special_tokens=["[UNK]", "[CLS]"], **quiet)
    else:
        tok = Tokenizer(models.Unigram())
        tok.normalizer = normalizers.Replace(" ", "▁")
        special = ["<unk>", "<s>"] + ([f"<0x{i:02X}>" for i in range(256)] if rng.random() < 0.5 else [])
        trainer = trainers.UnigramTrainer(
            vocab_size=len(special) + 420, special_tokens=special, unk_token="<unk>", **quiet)
    tok.train_from_iterator(CORPUS, trainer)
    return json.loads(tok.to_str())["model"]


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
GPT4 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]"
        r"|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
REGEXES = [LLAMA3, QWEN2, GPT4, TEKKEN, DEEPSEEK, GPT2, r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", r"[\r\n]", r"\s?\p{L}+",
           r"\s?\p{P}+", r"\d", r"\s+", r"[aeiou]+?", r"(?:ab|a|\d{2,})", "e|t", r"[^a-zA-Z ]+", r"\p{Lu}\p{Ll}*",
           r"\p{Han}|\p{Hiragana}+", "a.c?", r"\S+\s?",
           # Engines differ on these, or may: they are to be refused.
           r"\w+", r"\b", r"^the", r"\p{N}{1,3}+", r"(?<=a)b", r"(?i)the", r"\h+", r"a++b"]
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
STRINGS = [" ", "▁", "e", "th", "'", "\n", "é", "."]


def pattern(rng):
    return {"Regex": rng.choice(REGEXES)} if rng.random() < 0.7 else {"String": rng.choice(STRINGS)}


def normalizer(rng, depth=1):
    kinds = ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "Strip", "Bert", "Replace", "Prepend",
             "ByteLevel"] + ["Sequence"] * (3 * depth)
    kind = rng.choice(kinds)
    flag = lambda: rng.random() < 0.5
    if kind == "Strip":
        return {"type": kind, "strip_left": flag(), "strip_right": flag()}
    if kind == "Bert":
        return {"type": "BertNormalizer", "clean_text": flag(), "handle_chinese_chars": flag(),
                "strip_accents": rng.choice([None, True, False]), "lowercase": flag()}
    if kind == "Replace":
        return {"type": kind, "pattern": pattern(rng), "content": rng.choice(["▁", "", " ", "xx", "é"])}
    if kind == "Prepend":
        return {"type": kind, "prepend": rng.choice(["▁", " ", "ab"])}
    if kind == "Sequence":
        return {"type": kind, "normalizers": [normalizer(rng, 0) for _ in range(rng.randrange(0, 4))]}
    return {"type": kind}


def metaspace(rng):
    out = {"type": "Metaspace", "replacement": rng.choice(["▁", "▁", "▁", "_", "Ġ"]),
           "prepend_scheme": rng.choice(["first", "always", "never"]), "split": rng.random() < 0.5}
    if rng.random() < 0.1:
        out["add_prefix_space"] = rng.random() < 0.5
    return out


def byte_level(rng):
    flag = lambda: rng.random() < 0.5
    return {"type": "ByteLevel", "add_prefix_space": flag(), "trim_offsets": flag(), "use_regex": flag()}


def pre_tokenizer(rng, depth=1):
    kinds = ["BertPreTokenizer", "ByteLevel", "ByteLevel", "CharDelimiterSplit", "Metaspace", "Whitespace",
             "WhitespaceSplit", "Split", "Split", "Punctuation", "Digits", "UnicodeScripts", "FixedLength"]
    kind = rng.choice(kinds + ["Sequence"] * (5 * depth))
    if kind == "ByteLevel":
        return byte_level(rng)
    if kind == "CharDelimiterSplit":
        return {"type": kind, "delimiter": rng.choice([" ", "e", "▁"])}
    if kind == "Metaspace":
        return metaspace(rng)
    if kind == "Split":
        return {"type": kind, "pattern": pattern(rng), "behavior": rng.choice(BEHAVIORS), "invert": rng.random() < 0.2}
    if kind == "Punctuation":
        return {"type": kind, "behavior": rng.choice(BEHAVIORS)}
    if kind == "Digits":
        return {"type": kind, "individual_digits": rng.random() < 0.5}
    if kind == "FixedLength":
        return {"type": kind, "length": rng.randrange(0, 6)}
    if kind == "Sequence":
        steps = [pre_tokenizer(rng, 0) for _ in range(rng.randrange(0, 4))]
        if rng.random() < 0.5:
            steps.append(dict(byte_level(rng), use_regex=rng.random() < 0.2))
        return {"type": kind, "pretokenizers": steps}
    return {"type": kind}


def template(rng, tokens):
    names = [rng.choice(tokens) for _ in range(3)]
    special = lambda t, n: {"SpecialToken": {"id": t[0], "type_id": n}}
    a, b = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
    single = rng.choice([[special(names[0], 0), a], [a, special(names[1], 0)],
                         [special(names[0], 0), a, special(names[1], 0)],
                         [special(names[0], 0), special(names[2], 0), a], [a], [a, a]])
    table = {t: {"id": t, "ids": [i], "tokens": [t]} for t, i in names}
    if rng.random() < 0.02:
        table.popitem()
    return {"type": "TemplateProcessing", "single": single, "pair": [a, special(names[0], 0), b],
            "special_tokens": table}


def post_processor(rng, tokens, depth=1):
    kind = rng.choice(["Template"] * 4 + ["Bert", "Roberta", "ByteLevel"] + ["Sequence"] * (2 * depth))
    role = lambda: list(rng.choice(tokens))
    if kind == "Template":
        return template(rng, tokens)
    if kind == "Bert":
        return {"type": "BertProcessing", "sep": role(), "cls": role()}
    if kind == "Roberta":
        return {"type": "RobertaProcessing", "sep": role(), "cls": role(), "trim_offsets": True,
                "add_prefix_space": rng.random() < 0.5}
    if kind == "Sequence":
        steps = [byte_level(rng) for _ in range(rng.randrange(0, 2))] + [post_processor(rng, tokens, 0)]
        return {"type": "Sequence", "processors": steps}
    return byte_level(rng)


def decoder(rng, depth=1):
    kinds = ["BPEDecoder", "ByteLevel", "WordPiece", "Metaspace", "CTC", "Replace", "Fuse", "Strip", "ByteFallback"]
    kind = rng.choice(kinds + ["Sequence"] * (4 * depth))
    if kind == "BPEDecoder":
        return {"type": kind, "suffix": rng.choice(["</w>", "e"])}
    if kind == "ByteLevel":
        return byte_level(rng)
    if kind == "WordPiece":
        return {"type": kind, "prefix": rng.choice(["##", "@"]), "cleanup": rng.random() < 0.5}
    if kind == "Metaspace":
        return metaspace(rng)
    if kind == "CTC":
        return {"type": kind, "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": rng.random() < 0.5}
    if kind == "Replace":
        return {"type": kind, "pattern": pattern(rng), "content": rng.choice([" ", "", "x"])}
    if kind == "Strip":
        return {"type": kind, "content": rng.choice([" ", "▁", "e"]), "start": rng.randrange(0, 3),
                "stop": rng.choice([0, 0, 0, 1])}
    if kind == "Sequence":
        return {"type": kind, "decoders": [decoder(rng, 0) for _ in range(rng.randrange(0, 4))]}
    return {"type": kind}


CONTENTS = ["<|im_start|>", "<|im_end|>", "<s>", "</s>", "<unk>", "<pad>", "[MASK]", "ab", "abc", "bc", "b", " foo",
            "foo ", "foo", "Foo", "▁", "▁the", "the", "é", "e\u0301", "\n\n", "  ", "Ġ", "<0x41>", "<|x|>", "|x", "12",
            "'s", "漢", "don", "<a>", "a>b", "ſ", "\t", "İ", "[CLS]"]


def added_tokens(rng, vocab, flags):
    size, out, following = len(vocab), [], 0
    for content in rng.sample(CONTENTS, rng.choice([0, 1, 2, 3, 5])):
        known = vocab.get(content)
        chance = lambda p: flags and rng.random() < p
        out.append({
            "id": size + following if known is None else known, "content": content, "single_word": chance(0.2),
            "lstrip": chance(0.25), "rstrip": chance(0.25), "normalized": rng.random() < (0.4 if flags else 0.15),
            "special": rng.random() < 0.6,
        })
        following += known is None
    return out


def shaped(rng, kind):
    """Sections as known models have them, but for one thing or another."""
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    if kind == "bytes":
        plain = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        split = lambda r: {"type": "Split", "pattern": {"Regex": r}, "behavior": "Isolated", "invert": False}
        digits = {"type": "Digits", "individual_digits": True}
        pre = rng.choice([[split(LLAMA3), plain], [split(QWEN2), plain], [dict(plain, use_regex=True)],
                          [digits, dict(plain, use_regex=True)], [split(TEKKEN), plain],
                          [split(r"\p{N}{1,3}"), split(r"[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK), plain]])
        return (rng.choice([None, None, None, {"type": "NFC"}]), {"type": "Sequence", "pretokenizers": pre},
                byte_level(rng))
    back = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    norm, pre = rng.choice([
        ({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, space]}, None),
        (space, {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}),
        (space, None),
        (None, dict(metaspace(rng), replacement="▁", split=False)),
    ])
    return norm, pre, {"type": "Sequence", "decoders": back + rng.choice([[strip], []])}


def made(seed):
    """The tokenizer of a seed."""
    rng = rnd.Random(seed)
    kind = rng.choice(["bytes"] * 5 + ["spm"] * 3 + ["chars", "WordPiece", "WordLevel", "Unigram", "Unigram"])
    model = json.loads(json.dumps(BASES[kind][rng.randrange(len(BASES[kind]))]))
    close = kind in ("bytes", "spm") and rng.random() < 0.7
    unigram = kind == "Unigram"
    if model["type"] == "BPE":
        model["ignore_merges"] = rng.random() < 0.3
        model["fuse_unk"] = rng.random() < 0.5
        model["byte_fallback"] = kind == "spm" if rng.random() < 0.9 else rng.random() < 0.5
        model["dropout"] = rng.choice([None] * 20 + [0.0, 0.3])
        model["unk_token"] = rng.choice([None, "<unk>", "<unk>", "nope"]) if not close else rng.choice([None, "<unk>"])
        if "<unk>" not in model["vocab"] and not close:
            model["unk_token"] = None
        merges = model["merges"]
        keep = rng.choice([len(merges), len(merges), len(merges) // 2, 10])
        model["merges"] = merges[:keep]
        if rng.random() < 0.1 and keep:
            model["merges"].append(rng.choice(merges))
        if rng.random() < 0.2:
            rng.shuffle(model["merges"])
        if rng.random() < 0.15:
            model["merges"] = [" ".join(m) for m in model["merges"]]
        if not close and rng.random() < 0.5:
            for token in rng.sample([t for t in model["vocab"] if len(t) == 1 or t.startswith("<0x")], 5):
                if not any(token in "".join(m) for m in model["merges"]):
                    del model["vocab"][token]
            if rng.random() < 0.7:
                model["vocab"] = {t: i for i, t in enumerate(model["vocab"])}
    if model["type"] == "WordPiece":
        model["max_input_chars_per_word"] = rng.choice([100, 5, 0])
    if unigram:
        model["byte_fallback"] = rng.random() < 0.5
        if rng.random() < 0.05:
            model["unk_id"] = None
    vocab = {t: i for i, (t, _) in enumerate(model["vocab"])} if unigram else model["vocab"]
    maybe = lambda p, make: make() if rng.random() < p else None
    added = added_tokens(rng, vocab, not close or rng.random() < 0.2)
    tokens = [(t["content"], t["id"]) for t in added] + rng.sample(sorted(vocab.items()), 2)
    if close:
        norm, pre, dec = shaped(rng, kind)
        if rng.random() < 0.1:
            dec = maybe(0.8, lambda: decoder(rng))
    else:
        norm, pre = maybe(0.6, lambda: normalizer(rng)), maybe(0.8, lambda: pre_tokenizer(rng))
        dec = maybe(0.8, lambda: decoder(rng))
    file = {
        "version": "1.0",
        "truncation": maybe(0.1, lambda: {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}),
        "padding": maybe(0.1, lambda: {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None,
                                       "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}),
        "added_tokens": added,
        "normalizer": norm,
        "pre_tokenizer": pre,
        "post_processor": maybe(0.7, lambda: post_processor(rng, tokens)),
        "decoder": dec,
        "model": model,
    }
    if rng.random() < 0.03 and added:
        added[-1]["id"] += 1
    return file


def main():
    count, out, first = int(sys.argv[1]), pathlib.Path(sys.argv[2]), int((sys.argv[3:] or ["0"])[0])
    assert tokenizers.__version__ == "0.23.3", tokenizers.__version__
    rng = rnd.Random(1)
    kinds = ["bytes", "spm", "chars", "WordPiece", "WordLevel", "Unigram"]
    BASES.update({kind: [trained(kind, rng) for _ in range(4)] for kind in kinds})
    with open(out / "tokenizers.jsonl", "w") as lines, open(out / "full.jsonl", "w") as every:
        for seed in range(first, first + count):
            file = made(seed)
            digest, full = judged(seed, file)
            line = {"seed": seed, "digest": digest, "file": file}
            lines.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
            if seed % 18 == 0 and full is not None:
                every.write(json.dumps({"seed": seed, "ids": full}, separators=(",", ":")) + "\n")


BASES = {}
if __name__ == "__main__":
    main()
