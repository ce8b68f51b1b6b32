"""The bytes of the checkpoints of vllm/: a function of each stored tensor's name.

The stream of a tensor is made of 64-bit words, little-endian, cut to its length: word `i` is the finaliser of splitmix64 of
`fnv1a64(name) + (i + 1) * 0x9E3779B97F4A7C15`. `exceptions` of a file names the tensors whose values are made otherwise.
"""

import numpy as np


def stream(name, length):
    with np.errstate(over="ignore"):
        seed = np.uint64(0xCBF29CE484222325)
        for byte in name.encode():
            seed = (seed ^ np.uint64(byte)) * np.uint64(0x100000001B3)
        z = seed + np.arange(1, -(-length // 8) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return z.astype("<u8").view(np.uint8)[:length]


def stored_bytes(name, length, exceptions):
    """The bytes of the stored tensor `name`."""
    kind = next((kind for suffix, kind in exceptions if name.endswith(suffix)), None)
    if kind == "i32: index / 128":
        return (np.arange(length // 4, dtype="<i4") // 128).astype("<i4").view(np.uint8)
    words = stream(name, length)
    if kind == "f32: 0.5 + (word % 2^20) / 2^20":
        return (0.5 + (words.view("<u4") % 2**20) / 2**20).astype("<f4").view(np.uint8)
    if kind == "u8: 127 and 255 are 0":
        return np.where(words & 127 == 127, np.uint8(0), words)
    if kind and kind.startswith("u16: "):  # u16: bit 14 of the first N of M is 0
        first, every = (int(word) for word in kind.split() if word.isdigit() and word not in ("0", "14"))
        words = words.view("<u2").copy().reshape(-1, every)
        words[:, :first] &= 0xBFFF
        return words.reshape(-1).view(np.uint8)
    return words
