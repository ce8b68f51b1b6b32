#!/usr/bin/env python3
"""Makes the files beside it, with flac 1.4.2, lame 3.100 and oggenc of vorbis-tools 1.4.2.

    python make.py

`tone.*` is half a second, and `short.flac` and `pipe.flac` a tenth, of a tone of 440 Hz on the left and one of 660 Hz on the right, at
44.1 kHz: `0.5 sin` and `0.25 sin`.
"""

import math
import subprocess
import tempfile
import wave
from pathlib import Path

HERE = Path(__file__).parent


def write(path, rate, seconds, bits, tones):
    """`tones` has the amplitude and the frequency of each channel."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(len(tones))
        file.setsampwidth(bits // 8)
        file.setframerate(rate)
        full = 1 << bits - 1
        for n in range(round(rate * seconds)):
            for amplitude, hertz in tones:
                sample = round(full * amplitude * math.sin(2 * math.pi * hertz * n / rate))
                file.writeframesraw(sample.to_bytes(bits // 8, "little", signed=True))


def run(*command, **options):
    subprocess.run([str(part) for part in command], check=True, cwd=HERE, **options)


with tempfile.TemporaryDirectory() as folder:
    tone, short, deep, low = (Path(folder) / f"{name}.wav" for name in ("tone", "short", "deep", "low"))
    stereo = [(0.5, 440), (0.25, 660)]
    write(tone, 44_100, 0.5, 16, stereo)
    write(short, 44_100, 0.1, 16, stereo)
    write(deep, 48_000, 0.05, 24, [(0.5, 440)])
    write(low, 16_000, 0.5, 16, [(0.5, 440)])

    flac = ["flac", "--silent", "--force", "--best"]
    run(*flac, "-o", "short.flac", short)
    run(*flac, "-o", "deep.flac", deep)
    # A pipe cannot be corrected: the header does not say the length.
    raw = ["--force-raw-format", "--endian=little", "--sign=signed", "--channels=2", "--bps=16", "--sample-rate=44100"]
    with (HERE / "pipe.flac").open("wb") as out:
        pipe = {"input": short.read_bytes()[44:], "stdout": subprocess.PIPE}
        command = ["flac", "--silent", *raw, "-c", "-"]
        out.write(subprocess.run(command, check=True, **pipe).stdout)

    run("lame", "--silent", "-V", "5", tone, "tone.mp3")
    # Without the tag of the encoder, and with ID3 before and after the sound.
    tagged = ["-t", "-b", "64", "--resample", "44.1", "--tt", "tone", "--add-id3v2"]
    run("lame", "--silent", *tagged, tone, "tagged.mp3")
    run("lame", "--silent", "-b", "48", low, "low.mp3")
    run("oggenc", "--quiet", "-q", "0", "--serial", "7", "--comment", "title=tone", "-o", "tone.ogg", tone)
