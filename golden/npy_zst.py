#!/usr/bin/env python3
"""Makes golden/npy-zst and golden/squish/compressed: arrays and a squish directory compressed with zstd.

    python golden/npy_zst.py        with numpy 2.4 and zstandard 0.25.0 (zstd 1.5.7)

Each file is written in another way that the library has. values.npz is what numpy reads in all of them.
"""

import io
import shutil
from pathlib import Path

import numpy as np
import zstandard
from zstandard import ZstdCompressionParameters as Parameters, ZstdCompressor

HERE = Path(__file__).parent


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def streamed(data: bytes, step: int, **options) -> bytes:
    """Blocks of `step` bytes, with no content size."""
    compressor = ZstdCompressor(**options).compressobj()
    parts = []
    for at in range(0, len(data), step):
        parts += [compressor.compress(data[at : at + step]), compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)]
    return b"".join([*parts, compressor.flush()])


def main() -> None:
    r = np.random.default_rng(3)
    # As many bits as an f16 has: there is something to gain.
    values = r.normal(0, 1, (96, 64)).astype(np.float16).astype(np.float32)
    arrays = {
        "plain": values,
        "checked": values[:8],
        "blocks": values[:16],
        "frames": values[:32],
        "long": values[:9],
        "columns": np.asfortranarray(values[:5, :7].astype(np.float16)),
        "number": np.float32(1.5),
        "raw": np.frombuffer(r.bytes(300), np.uint8),
        "sparse": np.where(np.arange(400_000) % 1000 == 7, 3, 0).astype(np.int32),
        "empty": np.zeros((0, 4), np.float32),
    }
    data = {name: npy(array) for name, array in arrays.items()}
    simple = ZstdCompressor(level=3)
    files = {name: simple.compress(d) for name, d in data.items()}
    files["checked"] = ZstdCompressor(level=19, write_checksum=True).compress(data["checked"])
    # 100 bytes at a time: the header of the array is in two blocks.
    files["blocks"] = streamed(data["blocks"], 100, level=1, write_checksum=True)
    skippable = (0x184D2A53).to_bytes(4, "little") + (5).to_bytes(4, "little") + b"hello"
    half = len(data["frames"]) // 2
    frames = [simple.compress(data["frames"][:half]), simple.compress(data["frames"][half:])]
    files["frames"] = skippable + frames[0] + skippable + frames[1]
    long = Parameters.from_level(22, window_log=27, enable_ldm=True)
    files["long"] = streamed(data["long"], 1000, compression_params=long)

    samples = [npy(r.normal(0, 1, 64).astype(np.float16)) for _ in range(200)]
    dictionary = zstandard.train_dictionary(1024, samples, dict_id=4711)
    files["dictionary"] = ZstdCompressor(dict_data=dictionary).compress(data["checked"])
    # A window of 2^28: more than zstd reads unasked.
    files["window"] = streamed(data["checked"], 1 << 20, compression_params=Parameters.from_level(22, window_log=28))

    to = HERE / "npy-zst"
    to.mkdir(exist_ok=True)
    for name, file in files.items():
        (to / f"{name}.npy.zst").write_bytes(file)
    np.savez(to / "values.npz", **{name: array for name, array in arrays.items() if name != "sparse"})

    source, squish = HERE / "squish" / "directory", HERE / "squish" / "compressed"
    shutil.rmtree(squish, ignore_errors=True)
    (squish / "tensors").mkdir(parents=True)
    shutil.copy(source / "manifest.json", squish)
    for i, path in enumerate(sorted((source / "tensors").glob("*.npy"))):
        if i % 5 == 4:
            # A mixture, as a run that was broken off leaves it.
            shutil.copy(path, squish / "tensors")
        else:
            (squish / "tensors" / f"{path.name}.zst").write_bytes(simple.compress(path.read_bytes()))


main()
