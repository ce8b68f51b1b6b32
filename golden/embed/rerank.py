"""Small models that score texts for a query, and the scores by CrossEncoder. Writes rerank/ and rerank.json.

    pip install torch==2.15.0 transformers==5.24.0 sentence-transformers==6.2.0 tokenizers==0.23.3
    python rerank.py

The models are random; the tokenizers are those of tokenizers/ (kinds.py) and of tiny/. README.md says what is in the files.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import sentence_transformers
import torch
import transformers
from sentence_transformers import CrossEncoder
from tokenizers import Tokenizer

OUT = Path(__file__).parent
SIZES = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, num_labels=1)
SPECIAL = dict(pad_token_id=1, bos_token_id=0, eos_token_id=2)
QUERY = "who wrote Emma?"
TEXTS = ["Jane wrote Emma.", "A cat sits on the mat.", "", "dogs", "reading the long text " * 12, "Emma, by Jane: a document."]
LONG = "reading the long title " * 9


def models():
    yield "bert", "BertForSequenceClassification", transformers.BertConfig(
        vocab_size=32, max_position_embeddings=48, type_vocab_size=2, **SIZES), "tiny"
    yield "xlm_roberta", "XLMRobertaForSequenceClassification", transformers.XLMRobertaConfig(
        vocab_size=902, max_position_embeddings=50, type_vocab_size=1, **SPECIAL, **SIZES), "xlm_roberta"
    yield "modernbert", "ModernBertForSequenceClassification", transformers.ModernBertConfig(
        vocab_size=701, max_position_embeddings=48, local_attention=8, classifier_pooling="mean", cls_token_id=0, sep_token_id=2,
        **SPECIAL, **SIZES), "roberta"
    yield "distilbert", "DistilBertForSequenceClassification", transformers.DistilBertConfig(
        vocab_size=601, max_position_embeddings=48, dim=16, n_layers=2, n_heads=2, hidden_dim=24, num_labels=1, **SPECIAL), "mpnet"
    yield "mpnet", "MPNetForSequenceClassification", transformers.MPNetConfig(
        vocab_size=601, max_position_embeddings=50, **SPECIAL, **SIZES), "mpnet"


def tokenizer(kind, length):
    if kind == "tiny":
        made = Tokenizer.from_file(str(OUT / "tiny" / "tokenizer.json"))
        names = dict(pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]", mask_token="[MASK]")
        inputs = ["input_ids", "token_type_ids", "attention_mask"]
    else:
        made = Tokenizer.from_file(str(OUT / "tokenizers" / f"{kind}.json"))
        names = dict(pad_token="<pad>", cls_token="<s>", sep_token="</s>", bos_token="<s>", eos_token="</s>")
        inputs = ["input_ids", "attention_mask"]
    made.no_truncation()
    made.no_padding()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, model_max_length=length, model_input_names=inputs, **names)


def main():
    known = {"source": {"sentence-transformers": sentence_transformers.__version__, "transformers": transformers.__version__,
                        "torch": torch.__version__.split("+")[0]},
             "query": QUERY, "long": LONG, "texts": TEXTS, "models": {}}
    shutil.rmtree(OUT / "rerank", ignore_errors=True)
    for n, (name, architecture, config, kind) in enumerate(models()):
        torch.manual_seed(40 + n)
        model = getattr(transformers, architecture)._from_config(config, dtype=torch.float32).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        path = OUT / "rerank" / name
        model.save_pretrained(path)
        tokenizer(kind, 48).save_pretrained(path)
        if name == "mpnet":
            file = path / "config.json"
            file.write_text(json.dumps(dict(json.loads(file.read_text()), sentence_transformers={
                "activation_fn": "torch.nn.modules.linear.Identity", "version": "5.0.0"}), indent=2) + "\n")
        judge = CrossEncoder(str(path), device="cpu")
        scores = {key: [float(judge.predict([(query, text)])[0]) for text in TEXTS] for key, query in (("query", QUERY), ("long", LONG))}
        known["models"][name] = {key: [float(f"{x:.8g}") for x in found] for key, found in scores.items()}
        print(name, np.round(scores["query"], 4), np.round(scores["long"], 4), (path / "model.safetensors").stat().st_size // 1000, "kB")
    (OUT / "rerank.json").write_text("{\n" + ",\n".join(f' "{k}": {json.dumps(v)}' for k, v in known.items()) + "\n}\n")


if __name__ == "__main__":
    main()
