"""A small directory of sentence-transformers whose every module matters, and its vectors. Writes tiny/ and tiny.json.

    pip install torch==2.15.0 transformers==5.24.0 sentence-transformers==6.2.0 tokenizers==0.23.3
    python tiny.py

The model is that of golden/config/perturb/bert.*, which is random. README.md says what is in the files.
"""

import json
import shutil
import tempfile
from pathlib import Path

import sentence_transformers
import torch
import transformers
from sentence_transformers import SentenceTransformer, models
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import WordPiece

OUT = Path(__file__).parent
PERTURB = OUT.parent / "config" / "perturb"
WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", "a", "cat", "sits", "on", "the", "mat", "query", ":", ",", ".", "##s", "dog", "un",
         "##like", "##ly", "who", "wrote", "emma", "?", "jane", "document", "title", "long", "short", "text", "##ing", "read"]
TEXTS = ["A cat sits on the mat.", "dogs", "unlikely", "Who wrote Emma?", "Jane wrote Emma.", "", "xyz", "reading the long text " * 6]


def tokenizer():
    vocab = {word: i for i, word in enumerate(WORDS)}
    made = Tokenizer(WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=100))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    made.decoder = decoders.WordPiece()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]", mask_token="[MASK]")


def main():
    torch.manual_seed(20)
    with tempfile.TemporaryDirectory() as directory:
        base = Path(directory) / "base"
        base.mkdir()
        golden = json.loads((PERTURB / "bert.json").read_text())
        (base / "config.json").write_text(json.dumps(golden["config"]))
        shutil.copy(PERTURB / "bert.safetensors", base / "model.safetensors")
        tokenizer().save_pretrained(base)
        transformer = models.Transformer(str(base), max_seq_length=20)
        pooling = models.Pooling(32, ("cls", "mean", "max"), include_prompt=False)
        dense = models.Dense(96, 16, bias=True, activation_function=torch.nn.Tanh())
        more = models.Dense(16, 16, bias=False, activation_function=torch.nn.GELU(), use_residual=True)
        model = SentenceTransformer(
            modules=[transformer, pooling, dense, more, models.Normalize()], device="cpu",
            prompts={"query": "query: ", "titled": "title: none, text: "}, default_prompt_name="titled", similarity_fn_name="dot")
        saved = Path(directory) / "saved"
        model.save_pretrained(str(saved), create_model_card=False)
        model = SentenceTransformer(str(saved), device="cpu")
        shutil.rmtree(OUT / "tiny", ignore_errors=True)
        shutil.copytree(saved, OUT / "tiny")
        result = {
            "source": {"sentence-transformers": sentence_transformers.__version__, "transformers": transformers.__version__,
                       "torch": torch.__version__.split("+")[0]},
            "texts": TEXTS,
        }
        with torch.no_grad():
            for name, options in [("default", {}), ("query", {"prompt_name": "query"}), ("none", {"prompt": ""})]:
                vectors = [model.encode(text, convert_to_numpy=True, **options).tolist() for text in TEXTS]
                result[name] = [[float(f"{x:.9g}") for x in vector] for vector in vectors]
    (OUT / "tiny.json").write_text("{\n" + ",\n".join(f' "{k}": {json.dumps(v)}' for k, v in result.items()) + "\n}\n")


if __name__ == "__main__":
    main()
