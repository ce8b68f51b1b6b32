"""An HF directory in shards: the index of golden/models/llama-tiny as transformers 5.23 writes it.

    pip install torch huggingface_hub==2.4.0 safetensors; python make.py > index.json

The cut is huggingface_hub's; the lines after it are those of `save_pretrained` (modeling_utils.py), which would
have the tensors in the order of the module instead of the file.
"""

import json
import pathlib
import struct
import sys

import torch
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors.torch import load_file

MODEL = pathlib.Path(__file__).parent.parent / "models/llama-tiny/model.safetensors"
raw = MODEL.read_bytes()
header = json.loads(raw[8 : 8 + struct.unpack("<Q", raw[:8])[0]])
names = sorted((n for n in header if n != "__metadata__"), key=lambda n: header[n]["data_offsets"])
tensors = load_file(MODEL)
split = split_torch_state_dict_into_shards({n: tensors[n].clone() for n in names}, max_shard_size="40KB")
parameters = sum(t.numel() for t in tensors.values())
index = {"metadata": {"total_parameters": parameters, **split.metadata}, "weight_map": split.tensor_to_filename}
sys.stdout.write(json.dumps(index, indent=2, sort_keys=True) + "\n")
