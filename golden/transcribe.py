"""Word error rates and speed of `weighbridge transcribe` beside faster-whisper, whisper.cpp and OpenAI's own whisper, on one model.

    pip install faster-whisper==1.2.1 jiwer==4.0.0 openai-whisper==20250625 torch==2.15.0
    apt install espeak-ng
    python transcribe.py WEIGHBRIDGE CT2DIR [--pt model.pt] [--cpp whisper-cli] [--sound FILE.flac TEXT.txt] [--threads 2] [--runs 5] [--out FILE.json]

CT2DIR is a Whisper for several languages in CTranslate2's form (`cargo xtask models whisper-base`). All run it with a beam of 5 and the
same temperatures: faster-whisper and OpenAI's in f32, whisper.cpp (`--cpp`) from f16, to which WEIGHBRIDGE converts it. `--pt` is the same
model in OpenAI's form. Sentences are spoken by espeak-ng; a public-domain
recording may be added with its text. Rates are of words in lower case without punctuation.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
import unicodedata
from pathlib import Path

# Scripts beside this one have the names of packages.
sys.path.pop(0)

SENTENCES = {
    "en": [
        "The ship left the harbour early in the morning, and nobody saw it again.",
        "My sister bought seven apples and a loaf of bread at the market.",
        "In the year nineteen sixty nine, two men walked on the moon for the first time.",
        "If you want to go quickly, go alone; if you want to go far, go together.",
    ],
    "de": [
        "Das alte Haus am Ende der Straße steht seit vielen Jahren leer.",
        "Morgen fahren wir mit dem Zug nach Hamburg und besuchen unsere Freunde.",
        "Der kleine Junge spielte den ganzen Tag mit seinem Hund im Garten.",
        "Wer anderen eine Grube gräbt, fällt selbst hinein.",
    ],
    "fr": [
        "Le petit chat dort sur la chaise près de la fenêtre.",
        "Nous avons mangé du pain et du fromage avant de partir.",
        "La semaine prochaine, mon frère va travailler dans une grande ville.",
        "Il fait beau aujourd'hui et les enfants jouent dans le jardin.",
    ],
    "es": [
        "La casa de mi abuela tiene un jardín muy grande con muchas flores.",
        "El tren sale a las ocho de la mañana y llega por la tarde.",
        "Mañana vamos a comprar una mesa nueva para la cocina.",
        "El niño quiere beber un vaso de agua fría.",
    ],
    "it": [
        "Domani mattina andiamo al mercato a comprare il pane e la frutta.",
        "Mio padre lavora in una piccola città vicino al mare.",
        "La ragazza legge un libro interessante sotto il grande albero.",
        "Questa sera mangiamo una pizza con i nostri amici.",
    ],
}
TEMPERATURES = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]


def words(text):
    text = unicodedata.normalize("NFKC", text).lower().replace("'", " ")
    return re.sub(r"[^\w\s]", " ", text).split()


def spoken(directory):
    """Files with a sentence each: (path, language, text)."""
    for language, sentences in SENTENCES.items():
        for n, text in enumerate(sentences):
            path = directory / f"{language}{n}.wav"
            subprocess.run(["espeak-ng", "-v", language, "-s", "140", "-w", path, text], check=True)
            yield path, language, text


class Ours:
    def __init__(self, program, model, threads):
        self.command = [program, "transcribe", model, "--threads", str(threads)]

    def all(self, sounds):
        """Texts of files that are of one language."""
        out = []
        for language in dict.fromkeys(language for _, language, _ in sounds):
            paths = [path for path, of, _ in sounds if of == language]
            done = subprocess.run([*self.command, "-l", language, "--json", *paths], check=True, stdout=subprocess.PIPE)
            out += [transcript["text"] for transcript in json.loads(done.stdout)["transcripts"]]
        return out

    def timed(self, path):
        done = subprocess.run([*self.command, "-l", "en", "--json", path], check=True, stdout=subprocess.PIPE)
        return json.loads(done.stdout)["seconds"]


class Faster:
    def __init__(self, model, threads, kind="float32"):
        from faster_whisper import WhisperModel

        self.model = WhisperModel(model, device="cpu", compute_type=kind, cpu_threads=threads)

    def text(self, path, language):
        segments, _ = self.model.transcribe(str(path), language=language, beam_size=5, temperature=TEMPERATURES)
        return "".join(segment.text for segment in segments).strip()

    def all(self, sounds):
        return [self.text(path, language) for path, language, _ in sounds]

    def timed(self, path):
        start = time.perf_counter()
        self.text(path, "en")
        return time.perf_counter() - start


class Cpp:
    def __init__(self, cli, model, threads):
        self.command = [cli, "-m", str(model), "-t", str(threads), "-bs", "5", "-bo", "5", "-nt", "-np", "-l"]

    def all(self, sounds):
        run = lambda path, language: subprocess.run([*self.command, language, "-f", path], check=True, capture_output=True)
        return [" ".join(run(path, language).stdout.decode(errors="replace").split()) for path, language, _ in sounds]

    def timed(self, path):
        command = [part for part in self.command if part != "-np"]
        done = subprocess.run([*command, "en", "-f", path], check=True, capture_output=True)
        of = {name: float(ms) for name, ms in re.findall(r"(load|total) time =\s*([0-9.]+) ms", done.stderr.decode())}
        return (of["total"] - of["load"]) / 1000


class Openai:
    def __init__(self, model, threads):
        import torch
        import whisper

        torch.set_num_threads(threads)
        self.model = whisper.load_model(model, device="cpu")

    def all(self, sounds):
        import whisper.audio

        # Its reader calls ffmpeg; these files are read as they are, and resampled by sox.
        import numpy as np

        out = []
        for path, language, _ in sounds:
            raw = subprocess.run(
                ["sox", str(path), "-t", "f32", "-r", "16000", "-c", "1", "-"], check=True, stdout=subprocess.PIPE
            ).stdout
            found = self.model.transcribe(
                np.frombuffer(raw, np.float32).copy(),
                language=language,
                beam_size=5,
                best_of=5,
                temperature=tuple(TEMPERATURES),
                fp16=False,
            )
            out.append(found["text"].strip())
        return out


def main():
    import jiwer

    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--pt")
    parser.add_argument("--cpp")
    parser.add_argument("--sound", nargs=2, action="append", default=[])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--speed", action="store_true", help="no rates")
    parser.add_argument("--out")
    args = parser.parse_args()
    systems = {"weighbridge": Ours(args.program, args.model, args.threads), "faster-whisper": Faster(args.model, args.threads)}
    if args.pt:
        systems["openai-whisper"] = Openai(args.pt, args.threads)
    with tempfile.TemporaryDirectory() as directory:
        ggml = {}
        for kind in ["f16", "q8_0"] if args.cpp else []:
            ggml[kind] = Path(directory) / f"ggml-{kind}.bin"
            convert = [args.program, "convert", args.model, ggml[kind], "--preset", kind, "--allow-requantize"]
            subprocess.run(convert, check=True, stdout=subprocess.DEVNULL)
            if kind == "f16":
                systems["whisper.cpp"] = Cpp(args.cpp, ggml[kind], args.threads)
        # Those of a language follow each other: `Ours.all` keeps them so.
        sounds = [(Path(path), "en", Path(text).read_text()) for path, text in args.sound]
        sounds += spoken(Path(directory))
        wanted = [" ".join(words(text)) for _, _, text in sounds]
        texts, report = {}, {"files": len(sounds), "wer": {}, "equal": {}, "seconds": {}}
        for name, system in (systems if not args.speed else {}).items():
            texts[name] = system.all(sounds)
            said = [" ".join(words(text)) for text in texts[name]]
            rates = {}
            for language in SENTENCES:
                of = [n for n, sound in enumerate(sounds) if sound[1] == language]
                rates[language] = round(100 * jiwer.wer([wanted[n] for n in of], [said[n] for n in of]), 2)
            rates["all"] = round(100 * jiwer.wer(wanted, said), 2)
            report["wer"][name] = rates
            print(name, "word error rate in %:", rates, flush=True)
        ours = texts.get("weighbridge", [])
        for name, others in texts.items():
            same = sum(a == b for a, b in zip(ours, others))
            report["equal"][name] = same
            print(f"{same} of {len(ours)} texts are those of {name}")
            for (path, _, _), a, b in zip(sounds, ours, others):
                if a != b:
                    print(f"  {path.name}\n    weighbridge {a}\n    {name} {b}")
        if args.runs:
            long = Path(directory) / "long.wav"
            english = [path for path, language, _ in sounds if language == "en" and path.name.startswith("en")]
            subprocess.run(["sox", *english * 6, "-r", "16000", "-c", "1", long, "trim", "0", "60"], check=True)
            systems["faster-whisper int8"] = Faster(args.model, args.threads, "int8")
            systems["weighbridge q8_0"] = Ours(args.program, args.model, args.threads)
            systems["weighbridge q8_0"].command += ["--preset", "q8_0"]
            if args.cpp:
                systems["whisper.cpp q8_0"] = Cpp(args.cpp, ggml["q8_0"], args.threads)
            times = {name: [] for name in systems if hasattr(systems[name], "timed")}
            for _ in range(args.runs):
                for name, seconds in times.items():
                    seconds.append(systems[name].timed(long))
            report["seconds"] = {name: round(statistics.median(seconds), 3) for name, seconds in times.items()}
            print("60 s of speech, medians in seconds:", report["seconds"])
    if args.out:
        Path(args.out).write_text(json.dumps(report, indent=1) + "\n")
    if args.speed:
        return
    theirs = min(rates["all"] for name, rates in report["wer"].items() if name in ("faster-whisper", "openai-whisper"))
    sys.exit(report["wer"]["weighbridge"]["all"] > theirs + 0.5)


main()
