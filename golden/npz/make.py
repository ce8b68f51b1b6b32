"""Makes arrays.npz, fortran.npz and compressed.npz: numpy's own writing of every dtype that is read, and of what is refused.

Run with numpy 2: python make.py. What the arrays hold is in arrays.json: shape, and the bytes in hexadecimal.
"""

import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
DTYPES = ["f4", "f2", "f8", "b1", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "c8"]


def main() -> None:
    values = np.arange(6).reshape(2, 3) - 2
    arrays = {f"every.{name}": values.astype(name) for name in DTYPES}
    # As ml_dtypes saves bfloat16: two bytes without a meaning of their own.
    arrays["every.bf16"] = (values.astype("<f4").view("<u4") >> 16).astype("<u2").view("V2")
    arrays["shape.scalar"] = np.float32(1.5)
    arrays["shape.vector"] = np.arange(5, dtype="<f4")
    arrays["shape.empty"] = np.zeros((0, 4), dtype="<f4")
    arrays["shape.deep"] = np.arange(24, dtype="<i4").reshape(2, 3, 4)
    arrays["name with / and ü"] = np.arange(2, dtype="<u2")
    np.savez(HERE / "arrays.npz", **arrays)
    facts = {k: {"shape": list(v.shape), "hex": np.asarray(v).tobytes().hex()} for k, v in arrays.items()}
    (HERE / "arrays.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")

    np.savez_compressed(HERE / "compressed.npz", a=np.zeros(9, dtype="<f4"))
    refused = {"big": values.astype(">f4"), "fortran": np.asfortranarray(values.astype("<f4"))}
    refused["object"] = np.array([None, 1], dtype=object)
    refused["text"] = np.array(["ab", "c"])
    np.savez(HERE / "refused.npz", **refused)
    columns = {"matrix": np.asfortranarray(np.arange(6, dtype="<u2").reshape(2, 3))}
    columns["deep"] = np.asfortranarray(np.arange(24, dtype="<f4").reshape(2, 3, 4))
    columns["vector"] = np.arange(3, dtype="<f4")
    columns["row"] = np.asfortranarray(np.arange(3, dtype="<f4").reshape(1, 3))
    columns["empty"] = np.asfortranarray(np.zeros((2, 0, 3), dtype="<f4"))
    np.savez(HERE / "fortran.npz", **columns)


if __name__ == "__main__":
    main()
