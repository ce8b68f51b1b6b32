"""Whisper base in the forms that people have it: the encoder's vectors and the decoder's logits equal transformers', whoever wrote the form.

    pip install torch==2.15.0 transformers==5.24.0 ctranslate2==4.8.5 openai-whisper==20250625 safetensors==0.8.0
    python whisper_base.py WEIGHBRIDGE HEAR CT2DIR SOUND.wav WHISPER_CPP

CT2DIR is whisper-base as it was published in CTranslate2's form (`cargo xtask models whisper-base`), HEAR is `cargo build --release --example hear`,
WHISPER_CPP the source of whisper.cpp, SOUND a file of 16 kHz. WEIGHBRIDGE makes a directory of transformers of CT2DIR. Transformers reads that, and
is the reference. CTranslate2's converter, OpenAI's classes and whisper.cpp's script make their forms of it, and WEIGHBRIDGE makes all of them too.
Differences are the largest one over the largest value.
"""

import subprocess
import sys
import tempfile
import wave
from pathlib import Path

from whisper_forms import openai  # It takes this folder off the path, where files are called as libraries are.

import numpy as np  # noqa: E402
import torch  # noqa: E402
import whisper  # noqa: E402
from transformers import WhisperForConditionalGeneration  # noqa: E402

IDS = [50258, 50259, 50359, 50363, 400, 370, 452, 7177, 6280, 11, 1029, 406, 437, 428, 1941, 393, 360, 337, 291]


def main():
    program, hear, ct2, sound, cpp = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = lambda *command: subprocess.run([str(part) for part in command], check=True, capture_output=True)  # noqa: E731
        hf = folder / "hf"
        run(program, "convert", ct2, hf, "--to", "hf", "--encode", "*=f32")
        model = WhisperForConditionalGeneration.from_pretrained(hf, dtype=torch.float32, attn_implementation="eager").eval()
        with wave.open(sound) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), np.int16).astype(np.float32) / 32768
        mel = whisper.log_mel_spectrogram(whisper.pad_or_trim(torch.from_numpy(samples)), model.config.num_mel_bins)[None]
        with torch.no_grad():
            encoded = model.model.encoder(mel).last_hidden_state
            logits = model(encoder_outputs=(encoded,), decoder_input_ids=torch.tensor([IDS])).logits
        wanted = encoded[0].numpy(), logits[0].numpy()
        print("the likeliest tokens after each:", logits[0].argmax(-1).tolist())
        np.ascontiguousarray(mel[0].numpy().T).tofile(folder / "mel.bin")

        forms = {"CTranslate2, as published": Path(ct2), "transformers, by weighbridge": hf}
        torch_hf = folder / "hf-saved"
        model.save_pretrained(torch_hf)
        for file in ["tokenizer.json", "tokenizer_config.json", "preprocessor_config.json", "generation_config.json"]:
            if (hf / file).exists():
                (torch_hf / file).write_bytes((hf / file).read_bytes())
        forms["transformers, by itself"] = torch_hf
        theirs = folder / "ct2-theirs"
        converter = [sys.executable, "-m", "ctranslate2.converters.transformers"]
        run(*converter, "--model", torch_hf, "--output_dir", theirs, "--copy_files", "tokenizer.json")
        forms["CTranslate2, by its converter"] = theirs
        pt = folder / "base.pt"
        openai(model, pt)
        forms["OpenAI, by its classes"] = pt
        script = Path(cpp) / "models" / "convert-pt-to-ggml.py"
        package = Path(whisper.__file__).parent.parent
        run(sys.executable, script, pt, package, folder, "use-f32")
        forms["whisper.cpp, by its script"] = folder / "ggml-model-f32.bin"
        ours = folder / "ggml-base.bin"
        run(program, "convert", torch_hf, ours, "--to", "ggml", "--encode", "*=f32")
        forms["whisper.cpp, by weighbridge"] = ours
        ours = folder / "ct2-ours"
        run(program, "convert", torch_hf, ours, "--to", "ctranslate2", "--encode", "*=f32")
        forms["CTranslate2, by weighbridge"] = ours
        wrong = False
        for form, path in forms.items():
            done = subprocess.run([hear, path, folder / "mel.bin", folder / "e.bin", folder / "l.bin", *map(str, IDS)], capture_output=True, text=True)
            if done.returncode:
                print(f"{form}: {done.stderr.strip()}")
                wrong = True
                continue
            found = [np.fromfile(folder / file, np.float32).reshape(want.shape) for file, want in zip(("e.bin", "l.bin"), wanted)]
            far = [float(np.abs(f - w).max() / np.abs(w).max()) for f, w in zip(found, wanted)]
            wrong |= max(far) > 1e-3
            print(f"{form}: encoder {far[0]:.1e}, logits {far[1]:.1e}", flush=True)
        sys.exit(wrong)


main()
