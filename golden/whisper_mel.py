#!/usr/bin/env python3
"""Makes golden/whisper/mel.json: the log-mel spectrograms that Whisper's feature extractor makes of some sounds.

    python golden/whisper_mel.py        with transformers 5.24.0, torch 2.15.0, numpy 2.4.6

A case has a sound by name, which the test makes by the same formula, its number of samples, the number of zeros after it, and the
number of bands. `shape` is that of the whole spectrogram, `[frames, mels]`; `frames` are some of its frames, by number. The values are
those of the extractor's path in NumPy, which computes in f64. Its path in PyTorch computes in f32: the script prints how far apart the
two are, and that the class's own call, which pads to 30 s, gives the same.
"""

import json
from pathlib import Path

import numpy as np
from transformers import WhisperFeatureExtractor

RATE = 16_000
CASES = [
    ("tone", 16_000, 464_000, 80),
    ("chirp", 8_000, 472_000, 80),
    ("chirp", 8_000, 472_000, 128),
    ("noise", 8_123, 0, 80),
    ("noise", 480_000, 0, 128),
    ("impulse", 24_000, 456_000, 80),
    ("silence", 16_000, 464_000, 80),
    ("quiet", 560_000, 480_000, 80),
    ("chirp", 250, 0, 80),
]


def noise(n):
    """The upper 24 bits of Knuth's MMIX generator, in [-0.5, 0.5)."""
    state, out = 20, []
    for _ in range(n):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append((state >> 40) / 2**24 - 0.5)
    return np.array(out)


def sound(name, n):
    t = np.arange(n) / RATE
    match name:
        case "tone":
            made = 0.5 * np.sin(2 * np.pi * 440 * t)
        case "chirp":
            # From 100 Hz, 3 kHz higher each second.
            made = 0.4 * np.sin(2 * np.pi * (100 * t + 1500 * t * t))
        case "noise":
            made = noise(n)
        case "impulse":
            made = np.where(np.arange(n) == 8_000, 1.0, 0.0)
        case "silence":
            made = np.zeros(n)
        case "quiet":
            # A tone that comes and goes, over noise that is 60 dB lower.
            made = 0.8 * np.sin(2 * np.pi * 1000 * t) * np.sin(2 * np.pi * 0.1 * t) ** 8 + 1e-3 * noise(n)
    return made.astype(np.float32)


cases = []
for name, samples, padding, mels in CASES:
    extractor = WhisperFeatureExtractor(feature_size=mels)
    made = sound(name, samples)
    padded = np.concatenate([made, np.zeros(padding, np.float32)])
    whole = extractor._np_extract_fbank_features(padded[None], "cpu")[0].T
    torch = extractor._torch_extract_fbank_features(padded).T
    called = ""
    if samples + padding == 480_000:
        features = extractor(made, sampling_rate=RATE, return_tensors="np")["input_features"][0].T
        called = f", the call from torch {np.abs(features - torch).max():.1e}"
    print(f"{name} {samples} {mels}: torch differs by {np.abs(torch - whole).max():.1e}{called}")
    count = len(whole)
    sounds = samples // 160
    chosen = {0, 1, 2, 25, 49, 50, 51, sounds // 3, sounds - 2, sounds - 1, sounds, sounds + 1, count // 2, count - 2, count - 1}
    frames = {n: [round(float(x), 6) for x in whole[n]] for n in sorted(chosen) if 0 <= n < count}
    cases.append(
        {"sound": name, "samples": samples, "padding": padding, "mels": mels, "shape": list(whole.shape), "frames": frames}
    )

folder = Path(__file__).parent / "whisper"
folder.mkdir(exist_ok=True)
lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
(folder / "mel.json").write_text(f"[\n{lines}\n]\n")
