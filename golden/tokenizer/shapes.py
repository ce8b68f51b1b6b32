"""Writes `tokenizer.json` files of the shapes that known models have, and what the library `tokenizers` gives.

    python shapes.py          writes shapes.jsonl.zst beside this script, with tokenizers 0.23.3 from PyPI

Normalizer, pre-tokenizer, post-processor, decoder, flags of added tokens and options of the model are those of the
files that the models come with (their converters: transformers@5.23, convert_slow_tokenizer.py, and models/*/
tokenization_*.py there); the vocabularies are small, trained on a few texts. Each line holds the name, the file, and
the digest of 300 texts as `random_tokenizers.py` has it.
"""

import json
import pathlib
import random as rnd
import subprocess

import random_tokenizers as make

HERE = pathlib.Path(__file__).parent
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
V2 = ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+"]


def split(regex, behavior="Isolated"):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": False}


def level(prefix=False, trim=True, regex=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": trim, "use_regex": regex}


def steps(*all):
    return {"type": "Sequence", "pretokenizers": list(all)}


def frame(vocab, bos, eos=None):
    a, b = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
    token = lambda t, n: [{"SpecialToken": {"id": t, "type_id": n}}] if t else []
    names = {t: {"id": t, "ids": [vocab[t]], "tokens": [t]} for t in (bos, eos) if t}
    return {"type": "TemplateProcessing", "single": token(bos, 0) + [a] + token(eos, 0),
            "pair": token(bos, 0) + [a] + token(eos, 0) + token(bos, 1) + [b] + token(eos, 1),
            "special_tokens": names}


SPACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
PREPEND = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, SPACE]}
META = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
BACK = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
NFC = {"type": "NFC"}

# name: (kind, special tokens, flags of added tokens, normalizer, pre-tokenizer, frame, decoder, model options)
SHAPES = {
    "gpt2": ("bytes", ["<|endoftext|>"], {"normalized": True}, None, level(regex=True), None, level(True), {}),
    "smollm2": ("bytes", ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], {}, None,
                steps({"type": "Digits", "individual_digits": True}, level(regex=True)), None, level(True),
                {"unk_token": "<|endoftext|>"}),
    "qwen2": ("bytes", ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], {}, NFC,
              steps(split(make.QWEN2), level(trim=False)), None, level(trim=False), {"unk_token": None}),
    "qwen3": ("bytes", ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>*", "</think>*"], {}, NFC,
              steps(split(make.QWEN2), level(trim=False)), None, level(trim=False), {"unk_token": None}),
    "qwen3.5": ("bytes", ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], {}, NFC,
                steps(split(QWEN35), level(trim=False)), None, level(trim=False), {"unk_token": None}),
    "llama3": ("bytes", ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>"], {}, None,
               steps(split(make.LLAMA3), level()), ("<|begin_of_text|>", None), level(True),
               {"ignore_merges": True, "unk_token": None}),
    "llama4": ("bytes", ["<|begin_of_text|>", "<|eot|>"], {}, None, steps(split(GPT4O), level()),
               ("<|begin_of_text|>", None), level(True), {"unk_token": None}),
    "gpt-oss": ("bytes", ["<|startoftext|>", "<|endoftext|>", "<|return|>", "<|call|>", "<|channel|>", "<|start|>"], {},
                None, steps(split(GPT4O), level()), None, level(True), {"unk_token": None}),
    "phi4": ("bytes", ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], {"lstrip": True, "rstrip": True}, None,
             steps(split(make.GPT4.replace("{1,3}", "{1,3}")), level()), None, level(True), {"unk_token": None}),
    "mistral-tekken": ("bytes", ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"], {}, None,
                       steps(split(make.TEKKEN), level()), ("<s>", None), level(True), {"ignore_merges": True}),
    "deepseek-v2": ("bytes", ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>*"], {}, "empty",
                    steps(*[split(r) for r in V2], {"type": "Digits", "individual_digits": True}, level(trim=True)),
                    ("<｜begin▁of▁sentence｜>", None), level(True, True, True), {"unk_token": None}),
    "deepseek-v3": ("bytes", ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>*", "<think>*"], {}, "empty",
                    steps(split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(make.DEEPSEEK), level()),
                    ("<｜begin▁of▁sentence｜>", None), level(True), {"unk_token": None}),
    "gemma2": ("spm", ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>", "\n\n*", "<h1>*"], {},
               SPACE, {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
               ("<bos>", None), {"type": "Sequence", "decoders": BACK},
               {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}),
    "gemma3": ("spm", ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>", "\n\n*"], {}, SPACE,
               {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
               ("<bos>", None), {"type": "Sequence", "decoders": BACK},
               {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>", "ignore_merges": False}),
    "phi3": ("spm", ["<unk>", "<s>", "</s>", "<|endoftext|>", "<|assistant|>", "<|end|>", "<|user|>"],
             {"rstrip": True}, PREPEND, None, ("<s>", None), {"type": "Sequence", "decoders": BACK + [STRIP]},
             {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}),
    "llama2": ("spm", ["<unk>", "<s>", "</s>"], {}, PREPEND, None, ("<s>", None),
               {"type": "Sequence", "decoders": BACK + [STRIP]},
               {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}),
    "mistral-spm": ("spm", ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"], {}, None, META, ("<s>", None),
                    {"type": "Sequence", "decoders": BACK + [STRIP]},
                    {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}),
    "mistral-old": ("spm", ["<unk>", "<s>", "</s>"], {"normalized": True}, PREPEND, None, ("<s>", None),
                    {"type": "Sequence", "decoders": BACK + [STRIP]},
                    {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}),
    "bert": ("WordPiece", ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], {},
             {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
              "lowercase": True}, {"type": "BertPreTokenizer"}, ("[CLS]", "[SEP]"),
             {"type": "WordPiece", "prefix": "##", "cleanup": True}, {}),
}


def shape(name):
    kind, specials, flags, normalizer, pre, around, decoder, options = SHAPES[name]
    model = make.trained(kind, rnd.Random(name))
    vocab = model["vocab"]
    added, following = [], 0
    for content in specials:
        special = not content.endswith("*")
        content = content.removesuffix("*")
        known = vocab.get(content)
        token = {"id": len(vocab) + following if known is None else known, "content": content, "single_word": False,
                 "lstrip": False, "rstrip": False, "normalized": False, "special": special}
        added.append(token | {key: value for key, value in flags.items() if special})
        following += known is None
    ids = {t["content"]: t["id"] for t in added}
    if kind != "WordPiece":
        model |= {"dropout": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                  "byte_fallback": False, "ignore_merges": False}
    model |= options
    if model.get("unk_token") and model["unk_token"] not in vocab:
        model["unk_token"] = None
    post = frame(ids, *around) if around else (level(trim=False) if kind == "bytes" else None)
    if name == "llama3":
        post = {"type": "Sequence", "processors": [level(True, False, True), post]}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": {"type": "Sequence", "normalizers": []} if normalizer == "empty" else normalizer,
            "pre_tokenizer": pre, "post_processor": post, "decoder": decoder, "model": model}


def main():
    lines = []
    for seed, name in enumerate(SHAPES, 1_000_000):
        file = shape(name)
        digest, _ = make.judged(seed, file)
        assert digest, name
        lines.append(json.dumps({"seed": seed, "name": name, "digest": digest, "file": file}, ensure_ascii=False))
    out = HERE / "shapes.jsonl"
    out.write_text("\n".join(lines) + "\n")
    subprocess.run(["zstd", "-q", "-19", "-f", "--rm", out], check=True)


main()
