#!/usr/bin/env python3
"""Holds directories that `weighbridge` writes for squish to squish's rules, and to squish itself.

    weighbridge convert DIR decoded.safetensors --encode '*=f32'
    python3 golden/squish_read.py values DIR decoded.safetensors    # PYTHONPATH as in squish_directory.py: squish's reader too
    weighbridge convert DIR mlx/ --to mlx
    python3 golden/squish_read.py codes DIR mlx/                    # the codes of four bits are the same bits

The rules, of squish@b9a44a9f5: manifest.json gives each name a key; KEY__pt is the tensor itself; KEY__q and KEY__s are codes of int8
and scales, one a row or one a group; KEY__q4a holds two codes a byte, the even one in the low nibble, each times KEY__s4a plus KEY__z4a
of its group; KEY__shape is the shape of what was encoded. Any of them may be compressed with zstd.
"""

import io
import json
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

try:
    from compressed_loader import _dequantize_npy_dir as squish_reads
except ImportError:
    squish_reads = None


def load(path: Path) -> np.ndarray:
    """As squish does it: the file, or else what `.zst` after its name decompresses to at once, which needs the length in its header."""
    if path.exists():
        return np.load(path)
    import zstandard

    packed = path.with_name(f"{path.name}.zst").read_bytes()
    return np.load(io.BytesIO(zstandard.ZstdDecompressor().decompress(packed)), allow_pickle=False)


def decoded(tensors: Path, key: str) -> np.ndarray:
    array = lambda suffix: load(tensors / f"{key}{suffix}.npy")
    has = lambda suffix: any((tensors / f"{key}{suffix}.npy{end}").exists() for end in ("", ".zst"))
    if has("__pt"):
        return array("__pt").astype(np.float32)
    if has("__q4a"):
        packed, scales, minima = array("__q4a"), array("__s4a"), array("__z4a")
        assert (packed.dtype, scales.dtype, minima.dtype) == (np.uint8, np.float32, np.float32)
        codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1).astype(np.float32)
        group = codes.shape[1] // scales.shape[1]
        values = codes * scales.repeat(group, axis=1) + minima.repeat(group, axis=1)
    else:
        codes, scales = array("__q"), array("__s")
        assert (codes.dtype, scales.dtype) == (np.int8, np.float32)
        scales = scales.reshape(len(codes), -1)
        values = codes.astype(np.float32) * scales.repeat(codes.shape[1] // scales.shape[1], axis=1)
    return values.reshape(array("__shape"))


def values(directory: Path, wanted: str) -> None:
    tensors, manifest = directory / "tensors", json.loads((directory / "manifest.json").read_text())
    assert (tensors / ".manifest_ready").exists()
    wanted = load_file(wanted)
    assert wanted.keys() == manifest.keys()
    furthest = 0.0
    for name, key in manifest.items():
        readers = [decoded] + [squish_reads] * (squish_reads is not None)
        for found in (read(tensors, key) for read in readers):
            assert found.shape == wanted[name].shape, (name, found.shape)
            # A product and a sum in one step is rounded once.
            furthest = max(furthest, float(np.abs(found - wanted[name]).max() / np.abs(wanted[name]).max()))
    assert furthest < 1e-6, furthest
    print(f"{len(manifest)} tensors, squish itself {'too' if squish_reads else 'not here'}: at most {furthest:.1e} of the largest value apart")


def codes(directory: Path, mlx: Path) -> None:
    tensors, manifest = directory / "tensors", json.loads((directory / "manifest.json").read_text())
    weights, same = {}, 0
    for file in sorted(mlx.glob("*.safetensors")):
        weights |= load_file(file)
    for name, key in manifest.items():
        packed = tensors / f"{key}__q4a.npy"
        if packed.exists() or packed.with_name(f"{packed.name}.zst").exists():
            assert load(packed).tobytes() == weights[name].tobytes(), name
            scales = weights[name.removesuffix("weight") + "scales"]
            assert (load(tensors / f"{key}__s4a.npy").astype(scales.dtype) == scales).all(), name
            same += 1
    assert same > 0
    print(f"{same} tensors have the same codes and the same scales, rounded")


{"values": lambda a, b: values(Path(a), b), "codes": lambda a, b: codes(Path(a), Path(b))}[sys.argv[1]](*sys.argv[2:])
