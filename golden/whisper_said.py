"""What OpenAI's own whisper makes of spoken sentences: whisper/said.json, and the sound, whisper/said-*.flac.

    pip install openai-whisper==20250625 torch==2.15.0
    apt install espeak-ng sox flac
    python whisper_said.py MODEL.pt

MODEL.pt is whisper-base in OpenAI's form, which `weighbridge convert` does not write: its tensors are those of `cargo xtask models
whisper-base`. It runs in f32.
"""

import json
import subprocess
import sys
from pathlib import Path

# Scripts beside this one have the names of packages.
sys.path.pop(0)
import numpy as np  # noqa: E402
import torch  # noqa: E402
import whisper  # noqa: E402

OUT = Path(__file__).parent / "whisper"
SENTENCES = {
    "en": "The quick brown fox jumps over the lazy dog. It was a bright cold day in April, and the clocks were striking thirteen.",
}

# `alignment_heads` of whisper-base, as the config.json of its CTranslate2 form has them: a file alone has none.
HEADS = [(3, 1), (4, 2), (4, 3), (4, 7), (5, 1), (5, 2), (5, 4), (5, 6)]


def main():
    torch.set_num_threads(2)
    model = whisper.load_model(sys.argv[1], device="cpu")
    heads = torch.zeros(model.dims.n_text_layer, model.dims.n_text_head, dtype=torch.bool)
    for layer, head in HEADS:
        heads[layer, head] = True
    model.register_buffer("alignment_heads", heads.to_sparse(), persistent=False)
    facts = {"source": f"openai-whisper {whisper.version.__version__}, torch {torch.__version__}", "sounds": []}
    for language, text in SENTENCES.items():
        file = OUT / f"said-{language}.flac"
        if not file.exists():
            wav = OUT / "said.wav"
            subprocess.run(["espeak-ng", "-v", language, "-s", "140", "-w", wav, text], check=True)
            subprocess.run(["sox", wav, "-r", "16000", "-b", "16", "-c", "1", OUT / "said16.wav"], check=True)
            subprocess.run(["flac", "-s", "-8", "-f", "-o", file, OUT / "said16.wav"], check=True)
            wav.unlink()
            (OUT / "said16.wav").unlink()
        raw = subprocess.run(["sox", file, "-t", "f32", "-"], check=True, stdout=subprocess.PIPE).stdout
        sound = np.frombuffer(raw, np.float32).copy()
        mel = whisper.log_mel_spectrogram(whisper.pad_or_trim(sound)).to(model.device)
        _, languages = model.detect_language(mel)
        of_task = {}
        for task in ["transcribe", "translate"]:
            for beams in [1, 5]:
                found = model.transcribe(
                    sound,
                    task=task,
                    language=language,
                    beam_size=beams if beams > 1 else None,
                    best_of=5,
                    fp16=False,
                    word_timestamps=task == "transcribe",
                )
                keys = ["start", "end", "text", "tokens", "temperature", "avg_logprob", "compression_ratio", "no_speech_prob"]
                of_task[f"{task}-{beams}"] = [
                    {
                        **{key: segment[key] for key in keys},
                        "words": [[w["word"], float(w["start"]), float(w["end"]), float(w["probability"])] for w in segment.get("words", [])],
                    }
                    for segment in found["segments"]
                ]
        facts["sounds"].append(
            {"file": file.name, "language": language, "probability": languages[language], "transcripts": of_task}
        )
    (OUT / "said.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


main()
