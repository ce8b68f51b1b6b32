"""Small tokenizers of the kinds that encoders have, and the tokens that they give. Writes tokenizers/.

    pip install tokenizers==0.23.3 sentencepiece==0.2.3 protobuf==7.36.2
    python kinds.py

README.md says what is in the files. The strings are those of minilm.json.
"""

import io
import json
import struct
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

OUT = Path(__file__).parent / "tokenizers"
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
# Characters that SentencePiece replaces; its own table of NFKC has 200 kB.
REPLACED = {"Ａ": "A", "ｂ": "b", "１": "1", "ﬁ": "fi", "ﬀ": "ff", "½": "1⁄2", "…": "...", "\u00a0": " ", "\u3000": " ", "\t": " ",
            "\n": " ", "\r": " ", "e\u0301": "é", "\u212b": "\u00c5", "ｶﾞ": "ガ", "ｶ": "カ", "\u200b": " ", "™": "TM", "²": "2", "\u00ad": "", "\x07": ""}


def mask(made):
    made.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])


def frame(made):
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])


def roberta(texts):
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    made.train_from_iterator(texts, trainer)
    mask(made)
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


def xlm_roberta(texts):
    model, rules = io.BytesIO(), OUT / "rules.tsv"
    rules.write_text("".join("\t".join(" ".join(f"{ord(c):X}" for c in part) for part in pair) + "\n" for pair in REPLACED.items()))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, vocab_size=900, hard_vocab_limit=False, minloglevel=2,
        normalization_rule_tsv=str(rules), num_threads=1)
    rules.unlink()
    spm = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    pieces = [(piece, 0.0) for piece in SPECIAL]
    pieces += [(spm.id_to_piece(i), spm.get_score(i)) for i in range(spm.get_piece_size()) if not (spm.is_control(i) or spm.is_unknown(i))]
    made = Tokenizer(models.Unigram(pieces, unk_id=3, byte_fallback=False))
    made.normalizer = normalizers.Sequence([
        normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap), normalizers.Replace(Regex(" {2,}"), " ")])
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")])
    made.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    made.add_special_tokens(SPECIAL)
    mask(made)
    frame(made)
    return made


def mpnet(texts):
    made = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=600, special_tokens=[*SPECIAL[:3], "[UNK]"], show_progress=False))
    mask(made)
    frame(made)
    made.decoder = decoders.WordPiece()
    return made


def main():
    known = json.loads((OUT.parent / "minilm.json").read_text())
    strings = [string["text"] for string in known["strings"]]
    OUT.mkdir(exist_ok=True)
    # Most characters of the strings are in no token of the latter two.
    some = known["sentences"] + strings[:80]
    for make, texts in ((roberta, strings), (xlm_roberta, some), (mpnet, some)):
        made = make(texts)
        path = OUT / f"{make.__name__}.json"
        made.save(str(path), pretty=False)
        made = Tokenizer.from_file(str(path))
        with open(path.with_suffix(".bin"), "wb") as file:
            for string in strings:
                ids = made.encode(string).ids
                file.write(struct.pack(f"<{len(ids) + 1}H", len(ids), *ids))
        print(f"{make.__name__:12} {made.get_vocab_size()} tokens, {[p.stat().st_size // 1000 for p in (path, path.with_suffix('.bin'))]} kB")


if __name__ == "__main__":
    main()
