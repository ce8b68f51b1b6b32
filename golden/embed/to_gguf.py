"""Encoders as GGUF, by llama.cpp's own converter, and what llama.cpp makes of them. Writes gguf/ and gguf.json.

    pip install torch==2.15.0 transformers==5.24.0 sentence-transformers==6.2.0 tokenizers==0.23.3 sentencepiece==0.2.3
    python to_gguf.py --llama-cpp DIR --oracle PATH [--weighbridge PATH]

DIR is a source tree of llama.cpp (commit 0c1e57098 was used), PATH of `--oracle` the built golden/models/llama_oracle.cpp.
The models are random; the tokenizers are those of tokenizers/ (kinds.py) and of tiny/. README.md says what is in the files.

With `--weighbridge`, our command, nothing is written: each directory is converted by it, and llama.cpp runs both files. The script
says which keys and tensors differ, and how far vectors are from each other, as 1 - the cosine of the angle between them.
"""

import argparse
import json
import logging
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import sentence_transformers
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as models
from tokenizers import Tokenizer

logging.disable(logging.ERROR)
warnings.filterwarnings("ignore")
transformers.utils.logging.disable_progress_bar()

HERE = Path(__file__).parent
OUT = HERE / "gguf"
SIZES = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24)
SMALL = dict(SIZES, hidden_size=8)
SPECIAL = dict(pad_token_id=1, bos_token_id=0, eos_token_id=2)
TEXTS = ["A cat sits on the mat.", "dogs", "unlikely", "Who wrote Emma?", "Jane wrote Emma, a long text.", "xyz", "reading the title",
         "A document: short", "the Cat", "  who   reads on ", "a a a a a a a a a a a a a a a a a a a a", "Émma reads"]
# Released models have these names; ours are too small for the converter to know them.
PRE = {"tiny": "jina-v2-en", "roberta": "roberta-bpe", "modernbert": "modern-bert"}


def specs():
    """Name, class, configuration, tokenizer, pooling."""
    yield "bert", "BertModel", transformers.BertConfig(vocab_size=32, max_position_embeddings=48, **SIZES), "tiny", "mean"
    yield "distilbert", "DistilBertModel", transformers.DistilBertConfig(
        vocab_size=33, max_position_embeddings=48, dim=16, n_layers=2, n_heads=2, hidden_dim=24), "tiny", "cls"
    yield "nomic_bert", "NomicBertModel", transformers.NomicBertConfig(
        vocab_size=32, max_position_embeddings=2048, head_dim=8, **SIZES), "tiny", "mean"
    yield "roberta", "RobertaModel", transformers.RobertaConfig(
        vocab_size=701, max_position_embeddings=50, type_vocab_size=1, **SPECIAL, **SMALL), "roberta", "mean"
    yield "xlm_roberta", "XLMRobertaModel", transformers.XLMRobertaConfig(
        vocab_size=904, max_position_embeddings=50, type_vocab_size=1, **SPECIAL, **SMALL), "xlm_roberta", "cls"
    yield "modernbert", "ModernBertModel", transformers.ModernBertConfig(
        vocab_size=701, max_position_embeddings=48, local_attention=8, cls_token_id=0, sep_token_id=2, **SPECIAL,
        **dict(SMALL, num_hidden_layers=4)), "roberta", "lasttoken"


def tokenizer(kind):
    if kind == "tiny":
        made = Tokenizer.from_file(str(HERE / "tiny" / "tokenizer.json"))
        names = dict(pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]", mask_token="[MASK]")
    else:
        said = json.loads((HERE / "tokenizers" / f"{kind}.json").read_text())
        if kind == "xlm_roberta":
            # Words are cut at spaces afterwards; the converter knows the table alone, and no token after the pieces.
            # Released files have it so.
            said["normalizer"] = said["normalizer"]["normalizers"][0]
            said["model"]["vocab"].append(["<mask>", 0.0])
        made = Tokenizer.from_str(json.dumps(said))
        names = dict(pad_token="<pad>", cls_token="<s>", sep_token="</s>", bos_token="<s>", eos_token="</s>", unk_token="<unk>",
                     mask_token=made.id_to_token(made.token_to_id("<mask>")))
    made.no_truncation()
    made.no_padding()
    if kind == "xlm_roberta":
        # The class of released models has both, and the converter takes the latter for how spaces are treated.
        names |= dict(add_prefix_space=True, clean_up_tokenization_spaces=True)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, model_input_names=["input_ids", "attention_mask"], **names)


def directory(name, architecture, config, kind, pooling, to):
    """The model as sentence-transformers has it."""
    model = getattr(transformers, architecture)._from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(scratch)
        tokenizer(kind).save_pretrained(scratch)
        modules = [models.Transformer(scratch), models.Pooling(config.hidden_size, pooling), models.Normalize()]
        SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(to), create_model_card=False)
    for file in to.iterdir():
        if file.name not in ("config.json", "model.safetensors", "modules.json", "1_Pooling", "tokenizer.json", "tokenizer_config.json"):
            shutil.rmtree(file) if file.is_dir() else file.unlink()


def as_released(config):
    """config.json of nomic-embed-text-v1.5 for these sizes, which the converter reads."""
    return {
        "architectures": ["NomicBertModel"], "model_type": "nomic_bert", "activation_function": "swiglu", "causal": False,
        "layer_norm_epsilon": config["layer_norm_eps"], "mlp_fc1_bias": False, "mlp_fc2_bias": False, "qkv_proj_bias": False,
        "n_embd": config["hidden_size"], "n_head": config["num_attention_heads"], "n_inner": config["intermediate_size"],
        "n_layer": config["num_hidden_layers"], "n_positions": 8192, "max_trained_positions": config["max_position_embeddings"],
        "prenorm": False, "rotary_emb_base": config["rope_parameters"]["rope_theta"], "rotary_emb_fraction": 1.0,
        "rotary_emb_interleaved": False, "rotary_emb_scale_base": None, "type_vocab_size": config["type_vocab_size"],
        "vocab_size": config["vocab_size"], "pad_token_id": config["pad_token_id"]}


def converted(source, kind, to):
    """The GGUF that llama.cpp's converter makes of a directory."""
    from conversion import get_model_class
    from conversion.base import gguf

    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / source.name
        shutil.copytree(source, copy)
        config = json.loads((copy / "config.json").read_text())
        if source.name == "nomic_bert":
            # transformers 5 has other names, and fills in what a file does not say by them.
            config |= as_released(config)
        if source.name == "modernbert":
            # Files of released models say it twice, and the converter writes what llama.cpp reads of this one alone.
            config["layer_norm_eps"] = config["norm_eps"]
        (copy / "config.json").write_text(json.dumps(config))
        model_class = get_model_class(config["architectures"][0])

        class Converter(model_class):
            model_arch = model_class.model_arch

            def get_vocab_base_pre(self, _):
                return PRE[kind]

        Converter.__name__ = model_class.__name__
        with torch.inference_mode():
            Converter(copy, gguf.LlamaFileType.ALL_F32, to, eager=True).write()


def run(oracle, path):
    """Ids and vectors of the texts by llama.cpp."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "vectors.bin"
        said = subprocess.run([oracle, "vectors", path, out, *TEXTS], capture_output=True, text=True)
        if said.returncode:
            raise SystemExit(f"{path}: {said.stderr}")
        return json.loads(said.stdout), np.fromfile(out, "<f4").reshape(len(TEXTS), -1)


def away(a, b):
    a, b = np.asarray(a, "f8"), np.asarray(b, "f8")
    return float((1 - (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).max())


def rounded(vectors):
    return [[float(f"{x:.8g}") for x in vector] for vector in vectors.tolist()]


def write(options):
    shutil.rmtree(OUT, ignore_errors=True)
    known = {"source": {"llama.cpp": "0c1e57098", "transformers": transformers.__version__,
                        "sentence-transformers": sentence_transformers.__version__, "torch": torch.__version__.split("+")[0]},
             "texts": TEXTS, "models": {}}
    for n, (name, architecture, config, kind, pooling) in enumerate(specs()):
        torch.manual_seed(60 + n)
        to = OUT / name
        directory(name, architecture, config, kind, pooling, to)
        gguf = OUT / f"{name}.gguf"
        converted(to, "modernbert" if name == "modernbert" else kind, gguf)
        judge = SentenceTransformer(str(to), device="cpu")
        wanted = np.stack([judge.encode(text, convert_to_numpy=True) for text in TEXTS])
        ids, vectors = run(options.oracle, gguf)
        same = sum(judge.tokenizer(text)["input_ids"] == found for text, found in zip(TEXTS, ids))
        known["models"][name] = {"ids": ids, "llama_cpp": rounded(vectors), "sentence_transformers": rounded(wanted)}
        print(f"{name:12} {same} of {len(TEXTS)} texts have the same tokens, vectors {away(wanted, vectors):.1e} away")
        if kind != "tiny":
            (to / "tokenizer.json").unlink()
    (HERE / "gguf.json").write_text("{\n" + ",\n".join(f' "{k}": {json.dumps(v)}' for k, v in known.items()) + "\n}\n")


def read(path):
    from gguf import GGUFReader

    reader = GGUFReader(path)
    fields = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    return fields, {tensor.name: np.array(tensor.data) for tensor in reader.tensors}


def compare(options):
    known = json.loads((HERE / "gguf.json").read_text())
    for name, _, _, kind, _ in specs():
        theirs = OUT / f"{name}.gguf"
        with tempfile.TemporaryDirectory() as scratch:
            source = Path(scratch) / name
            shutil.copytree(OUT / name, source)
            if kind != "tiny":
                tokenizer(kind)._tokenizer.save(str(source / "tokenizer.json"))
            ours = Path(scratch) / "ours.gguf"
            losses = ["tokenizer.added_tokens.lstrip"] if kind != "tiny" else []
            command = [options.weighbridge, "convert", source, ours, *(part for loss in losses for part in ("--allow-loss", loss))]
            said = subprocess.run(command, capture_output=True, text=True)
            if said.returncode:
                raise SystemExit(f"{name}: {said.stderr}")
            (fields, tensors), (wanted, wanted_tensors) = read(ours), read(theirs)
            found = subprocess.run([options.weighbridge, "embed", *TEXTS[:0], ours, *TEXTS], capture_output=True, text=True)
            of_theirs = subprocess.run([options.weighbridge, "embed", theirs, *TEXTS], capture_output=True, text=True)
            ids, vectors = run(options.oracle, ours)
        print(f"{name}:")
        for key in sorted({*fields, *wanted}):
            a, b = fields.get(key), wanted.get(key)
            if a != b and not key.startswith("general."):
                print(f"  {key}: {str(a)[:60]}, by llama.cpp's converter {str(b)[:60]}")
        for key in sorted({*tensors, *wanted_tensors}):
            a, b = tensors.get(key), wanted_tensors.get(key)
            if a is None or b is None or a.shape != b.shape or (a != b).any():
                print(f"  tensor {key} differs")
        golden = known["models"][name]
        print(f"  llama.cpp has {'the same' if ids == golden['ids'] else 'other'} tokens by both files")
        print(f"  llama.cpp on ours, on theirs: {away(vectors, golden['llama_cpp']):.1e}")
        print(f"  llama.cpp on ours, sentence-transformers: {away(vectors, golden['sentence_transformers']):.1e}")
        for which, said in (("ours", found), ("theirs", of_theirs)):
            if said.returncode:
                print(f"  embed on {which}: {said.stderr}")
                continue
            rows = [json.loads(line)["vector"] for line in said.stdout.splitlines()]
            print(f"  embed on {which}: {away(rows, golden['llama_cpp']):.1e} from llama.cpp, "
                  f"{away(rows, golden['sentence_transformers']):.1e} from sentence-transformers")


def rerankers(options):
    """Scores by llama.cpp on our files of rerank/, and by CrossEncoder."""
    golden = json.loads((HERE / "rerank.json").read_text())
    losses = {"bert": ["type_vocab_size"], "distilbert": ["pre_classifier", "tokenizer.added_tokens.lstrip"],
              "xlm_roberta": ["tokenizer.added_tokens.lstrip"], "modernbert": ["tokenizer.added_tokens.lstrip"]}
    for name, lost in losses.items():
        between = "[SEP]" if name == "bert" else "</s></s>"
        with tempfile.TemporaryDirectory() as scratch:
            ours, out = Path(scratch) / "ours.gguf", Path(scratch) / "scores.bin"
            command = [options.weighbridge, "convert", HERE / "rerank" / name, ours, *(p for loss in lost for p in ("--allow-loss", loss))]
            said = subprocess.run(command, capture_output=True, text=True)
            if said.returncode:
                raise SystemExit(f"{name}: {said.stderr}")
            # Texts that are cut are left out: llama.cpp cuts none.
            texts = [text for text in golden["texts"] if len(text) < 40]
            pairs = [golden["query"] + between + text for text in texts]
            said = subprocess.run([options.oracle, "vectors", ours, out, *pairs], capture_output=True, text=True)
            if said.returncode:
                raise SystemExit(f"{name}: {said.stderr}")
            scores = 1 / (1 + np.exp(-np.fromfile(out, "<f4")))
            lines = "".join(text + "\n" for text in golden["texts"])
            said = subprocess.run([options.weighbridge, "rerank", ours, golden["query"]], input=lines, capture_output=True, text=True)
        wanted = [score for text, score in zip(golden["texts"], golden["models"][name]["query"]) if text in texts]
        print(f"{name} reranker: llama.cpp on ours is {np.abs(scores - wanted).max():.1e} from CrossEncoder",
              f"but for {', '.join(lost)}")
        if said.returncode:
            print(f"  rerank on ours: {said.stderr}")
            continue
        found = {row["index"]: row["score"] for row in map(json.loads, said.stdout.splitlines())}
        every = golden["models"][name]["query"]
        print(f"  rerank on ours is {max(abs(found[n] - every[n]) for n in found):.1e} from CrossEncoder")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-cpp", type=Path, required=True)
    parser.add_argument("--oracle", type=Path, required=True)
    parser.add_argument("--weighbridge", type=Path)
    options = parser.parse_args()
    sys.path[:0] = [str(options.llama_cpp), str(options.llama_cpp / "gguf-py")]
    if options.weighbridge:
        compare(options)
        rerankers(options)
    else:
        write(options)


if __name__ == "__main__":
    main()
