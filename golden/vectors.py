"""Writes golden vectors of schemes with several planes, one safetensors file for each scheme.

`decode.<role>` are the planes of one matrix and `decode.values` what the reference makes of them;
`encode.values` and `encode.<role>` the other way round. Values have the shape [rows, columns] and are F32,
or the dtype in which the reference computes.
"""

import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
DTYPES = {"float32": "F32", "float16": "F16", "float64": "F64", "uint8": "U8", "int8": "I8", "uint16": "BF16", "uint32": "U32"}


def save(path: str, tensors: dict[str, np.ndarray]) -> None:
    """Writes `golden/<path>.safetensors`. Arrays of uint16 are bfloat16."""
    header, data = {}, b""
    for name, array in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {
            "dtype": DTYPES[str(array.dtype)],
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file = HERE / f"{path}.safetensors"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)
    print(f"{path}: {len(data)} bytes")
