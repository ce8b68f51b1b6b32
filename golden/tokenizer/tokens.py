"""Writes the tokens that llama.cpp gives to a list of texts: NAME.json beside this script.

    python tokens.py LLAMA_TOKENIZE MODEL.gguf CASES.gguf.inp NAME

LLAMA_TOKENIZE is the tool `llama-tokenize` built from llama.cpp 0c1e57098; CASES.gguf.inp is one of
`models/ggml-vocab-*.gguf.inp` there (they hold the same texts). Each case holds `text`, `plain` (no BOS,
special tokens are text) and `prompt` (BOS as the model says, special tokens are recognised).
"""

import json
import pathlib
import subprocess
import sys
import tempfile

HARD = [
    "",
    " a",
    "a ",
    "  two  spaces   three    four ",
    "\ttab\t\ttabs \t mixed\r\nwindows\r\n\r\nlines\n\n\n\n",
    "trailing newline\n",
    "\n\n\n\n\n\n",
    "e\u0301 combining, caf\u00e9 and cafe\u0301, \u1e9b\u0323, \u0928\u0940",
    "\u00a0non\u00a0breaking\u2003em\u3000ideographic\u0085next\u2028line",
    "\u200bzero\u200dwidth\ufeffbom \u202eright-to-left\u202c",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1eb\U0001f1f7 \U0001f44d\U0001f3fd \u2764\ufe0f",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01\u6771\u4eac\u306f\u65e5\u672c\u306e\u9996\u90fd\u3067\u3059\u3002 \uc548\ub155\ud558\uc138\uc694",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd \u0928\u092e\u0938\u094d\u0924\u0947 \u0f56\u0f7c\u0f51",
    "\U0002070e\U00020731 \ue000 \U0010ffff \u0378",
    "def f(x: int) -> str:\n    return f\"{x:>08b}\"  # don't\n\n\nclass A_B2:\n\tpass\n",
    "{\"a\": [1, 2.50, -3e-10, true, null], \"b\\n\": \"\\u00e9\"}",
    "for(int i=0;i<n;++i){a[i]+=b[i]<<2;}//!!??;;",
    "I'LL we'Ve DON'T it's 's 'd 'x '' ''' y'all\u2019s",
    "1234567890 12 345 6,789.01 0x1F \u0661\u0662\u0663 \u00bd \u2167 \u4e00\u4e8c",
    "a" * 1500,
    "ab" * 700 + " " + "xyz" * 300,
    "Donaudampfschifffahrtselektrizit\u00e4tenhauptbetriebswerkbauunterbeamtengesellschaft",
    "!" * 65 + "=" * 64 + "-" * 63 + "_" * 62 + "." * 61,
    " " * 70 + "x" + "\n" * 40 + "y" + "\t" * 33,
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    " <|im_end|> <|endoftext|><|endoftext|>  <|im_start|",
    "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n",
    "<bos><eos> <pad><unk> <s></s> <unused5><b>bold</b><table><tr>",
    "<reponame>x<file_sep>y<jupyter_code>z<repo_name>",
    "\u2581under\u2581\u2581score \u2581 x",
    "<0x41><0x0A> <0xFF>",
    "\u0000nul\u0001\u001b[0m\u007f",
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):",
]


def ids(tool, model, text, *flags):
    with tempfile.NamedTemporaryFile() as file:
        file.write(text.encode())
        file.flush()
        command = [tool, "-m", model, "-f", file.name, "--ids", "--no-escape", "--log-disable", *flags]
        done = subprocess.run(command, capture_output=True, check=True)
    return json.loads(done.stdout)


def main():
    tool, model, cases, name = sys.argv[1:]
    texts = pathlib.Path(cases).read_bytes().decode().split("\n__ggml_vocab_test__\n")
    lines = []
    for text in dict.fromkeys(texts + HARD):
        plain = ids(tool, model, text, "--no-bos", "--no-parse-special")
        prompt = ids(tool, model, text)
        case = {"text": text, "plain": plain, "prompt": prompt}
        lines.append(json.dumps(case, ensure_ascii=True, separators=(",", ":")))
    out = pathlib.Path(__file__).with_name(f"{name}.json")
    out.write_text("[\n" + ",\n".join(lines) + "\n]\n")


main()
