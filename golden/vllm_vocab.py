"""How vLLM divides a vocabulary that tokens were added to, and puts the logits of all ranks in order: vllm_vocab.json.

    python vllm_vocab.py vllm-0.33.0/vllm/model_executor/layers/vocab_parallel_embedding.py

The functions of that file that need no device are run as they are; the rest of the module is not imported.
"""

import ast
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

WANTED = {
    "pad_vocab_size",
    "vocab_range_from_per_partition_vocab_size",
    "vocab_range_from_global_vocab_size",
    "VocabParallelEmbeddingShardIndices",
}
METHODS = {"_get_indices", "get_sharded_to_full_mapping"}


def divide(a, b):
    assert a % b == 0
    return a // b


tree = ast.parse(Path(sys.argv[1]).read_text())
body = [n for n in tree.body if getattr(n, "name", None) in WANTED]
body += [n for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "DEFAULT_VOCAB_PADDING_SIZE"]
body.sort(key=lambda n: n.lineno)
whole = next(n for n in tree.body if getattr(n, "name", None) == "VocabParallelEmbedding")
whole.bases, whole.decorator_list = [], []
whole.body = [n for n in whole.body if getattr(n, "name", None) in METHODS]
names = {"dataclass": dataclass, "divide": divide, "Sequence": list, "torch": SimpleNamespace()}
exec(compile(ast.Module(body + [whole], []), sys.argv[1], "exec"), names)

out = []
for org, added in [(1010, 16), (136, 0), (136, 5), (64, 64), (100, 130), (320, 1)]:
    for tp in (1, 2, 4):
        layer = names["VocabParallelEmbedding"].__new__(names["VocabParallelEmbedding"])
        pad = names["pad_vocab_size"]
        layer.tp_size, layer.num_embeddings, layer.org_vocab_size = tp, org + added, org
        layer.org_vocab_size_padded = pad(org)
        layer.num_embeddings_padded = pad(layer.org_vocab_size_padded + added)
        layer.num_embeddings_per_partition = divide(layer.num_embeddings_padded, tp)
        ranks = []
        for rank in range(tp):
            i = layer._get_indices(layer.num_embeddings_padded, layer.org_vocab_size_padded, org + added, org, rank, tp)
            ranks.append(
                {
                    "org": [i.org_vocab_start_index, i.org_vocab_end_index, i.num_org_vocab_padding],
                    "added": [i.added_vocab_start_index, i.added_vocab_end_index, i.num_added_vocab_padding],
                }
            )
        mapping = layer.get_sharded_to_full_mapping()
        rows = list(range(layer.num_embeddings_padded)) if mapping is None else mapping
        if mapping is None:
            # One rank: base, padding, added, padding.
            start = layer.org_vocab_size_padded
            rows = list(range(org)) + list(range(start, start + added))
        out.append({"org": org, "added": added, "tp": tp, "ranks": ranks, "gathered": rows[: org + added]})
Path(__file__).with_name("vllm_vocab.json").write_text(json.dumps(out) + "\n")
