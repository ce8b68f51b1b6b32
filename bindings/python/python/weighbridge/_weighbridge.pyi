"""The native half of the package. Import its names from `weighbridge`."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, final

from typing_extensions import Buffer

_Path: TypeAlias = str | os.PathLike[str]
_Encode: TypeAlias = str | Mapping[str, str]
_Lora: TypeAlias = _Path | Sequence[_Path | tuple[_Path, float]]
_Progress: TypeAlias = Callable[[int, int], object]
_Message: TypeAlias = dict[str, str]

__VERSION__: str
__all__ = [
    "Array",
    "CheckReport",
    "Checkpoint",
    "Compared",
    "Compressed",
    "CompressedMatrix",
    "ConvertReport",
    "Converted",
    "DiffReport",
    "Embedder",
    "Entry",
    "Evaluation",
    "Generation",
    "KeyDifference",
    "Loaded",
    "Needs",
    "Param",
    "Plan",
    "Plane",
    "Report",
    "Runtime",
    "Segment",
    "Tensor",
    "Tokenizer",
    "Transcriber",
    "Transcript",
    "Word",
    "__VERSION__",
    "_each",
    "_selection",
    "_vllm_state",
    "check",
    "compress",
    "convert",
    "diff",
    "evaluate",
    "export",
    "open",
    "plan",
]

def open(path: _Path, *, io: Literal["auto", "pread", "direct"] = "auto") -> Checkpoint:
    """Opens the checkpoint at `path`, a file or a directory of any format, or at a URL. Reads headers alone.

    With `io="pread"` files are not mapped; with `"direct"` they are read past the page cache.

    Raises:
        CheckpointError: if it cannot be opened, with all that is wrong.
    """

def plan(
    checkpoint: Checkpoint | _Path,
    *,
    layout: str = "canonical",
    tp: int = 1,
    pp: int = 1,
    ep: int = 1,
    rank: int = 0,
    encode: _Encode | None = None,
    preset: str | None = None,
    rules: _Path | None = None,
    allow_missing: Sequence[str] | None = None,
    lora: _Lora | None = None,
) -> Plan:
    """Plans how a checkpoint becomes what a runtime wants. Only headers are read.

    Args:
        checkpoint: one that is open, or where it is.
        layout: `source` (names and shapes of the file, for any architecture), `canonical`, `in-place`, `gguf`, `hf`, `mlx`,
            `vllm`, `modules` (fused) or `packed` (fused, with interleaved rows).
        tp, pp, ep: ranks that share each layer, stages that the layers are dealt to, groups that the experts are dealt to.
        rank: whose share is planned.
        encode: a scheme for all tensors (`"bf16"`), or a scheme for each pattern of names, where `*` is any run of characters.
            The first pattern that matches wins.
        preset: a scheme for each tensor by its role, as `q4_k_m`.
        rules: a file with rules for names.
        allow_missing: patterns of parameters that may be absent.
        lora: adapters that are merged, each with the factor that it is multiplied by.

    Raises:
        PlanError: everything that does not fit, at once, in `problems`.
    """

def export(ranks: Sequence[tuple[Plan, Loaded]], each: Callable[[Entry, list[bytearray]], object]) -> list[str]:
    """Rebuilds the tensors of a checkpoint from the parameters that ranks hold.

    Args:
        ranks: the plan of each rank, all of one checkpoint, and what it loaded.
        each: is called with one tensor after the other, in the checkpoint's order, and the bytes of its planes.

    Returns:
        The names of parameters whose values were rounded. All others come back bit for bit.

    Raises:
        LoadError: with everything that the ranks do not hold, or hold in different values.
    """

def convert(
    checkpoint: Checkpoint | _Path,
    path: _Path,
    *,
    to: Literal["gguf", "hf", "mlx", "safetensors", "npz", "npy-dir", "onnx", "ctranslate2", "ggml"] | None = None,
    layout: str = "source",
    encode: _Encode | None = None,
    preset: str | None = None,
    imatrix: _Path | None = None,
    lora: _Lora | None = None,
    rules: _Path | None = None,
    allow_missing: Sequence[str] | None = None,
    allow_loss: Sequence[str] | None = None,
    allow_overflow: bool = False,
    allow_requantize: bool = False,
    overwrite: bool = False,
    max_shard: int | None = None,
    tp: int = 1,
    pp: int = 1,
    ep: int = 1,
    threads: int | None = None,
    memory: int | None = None,
    progress: _Progress | None = None,
) -> ConvertReport:
    """Writes a checkpoint in another format or other encodings. Nothing has the name `path` before all of it is there.

    Args:
        checkpoint: one that is open, or where it is.
        path: the file or directory to write.
        to: the format; by default that of the path's extension.
        layout: the names and shapes; by default those of the format, or else of the source.
        encode, preset: as `plan` takes them; names are those of the result.
        imatrix: a file that says how much columns matter.
        lora, rules, allow_missing: as `plan` takes them.
        allow_loss: keys of the configuration that may be lost, where the format cannot say them.
        allow_overflow: finite values may become infinite.
        allow_requantize: quantised weights may be quantised again.
        overwrite: replaces what is at `path`.
        max_shard: bytes of tensors in a file of an HF or MLX directory.
        tp, pp, ep: the ranks that get files of their own (`to="hf"`, `layout="vllm"`).
        memory: limits the bytes of one tensor, in both forms, and of all buffers together.
        progress: is called with the number of parameters that are done, and of all.

    Raises:
        ConvertError: everything that the result could not say, or that is in the way, at once.
    """

def compress(
    checkpoint: Checkpoint | _Path,
    path: _Path | None,
    target: str | float,
    *,
    to: Literal["gguf", "hf", "mlx", "npy-dir"] | None = None,
    text: str | None = None,
    imatrix: _Path | None = None,
    policy: _Path | None = None,
    preset: str | None = None,
    gptq: bool = False,
    awq: bool = False,
    rules: _Path | None = None,
    allow_missing: Sequence[str] | None = None,
    allow_loss: Sequence[str] | None = None,
    allow_requantize: bool = False,
    overwrite: bool = False,
    max_shard: int | None = None,
    threads: int | None = None,
    memory: int | None = None,
    progress: Callable[[str, int, int], object] | None = None,
) -> Compressed:
    """Chooses an encoding for each matrix, so that all fit into `target` and lose as little as they can, and writes that.

    Args:
        checkpoint: one that is open, or where it is.
        path: the file or directory to write; with `None` nothing is written.
        target: a size (`"300MB"`, or bytes), bits for each weight (`4.5`; up to 32), or `"2bit"` to `"8bit"`: as large as if every matrix
            had the smallest encoding of at least that many bits.
        to: the format; by default that of the path's extension.
        text: runs the model. Three quarters say how much predictions depend on each matrix, the last measures the result.
        imatrix: a file that says the first (`weighbridge calibrate`): the text is not calibrated with then.
        policy: a file that limits the encodings of each matrix (`weighbridge compress --print-policy`).
        preset: the encoding of an HF directory, all of whose matrices have the same: `int8`, `gptq-4bit`, `awq-4bit`.
        gptq: codes are chosen so that errors of columns make each other good on the text.
        awq: columns with strong inputs are made larger before they are encoded, and the norm before them smaller.
        rules, allow_missing, allow_loss, allow_requantize, overwrite, max_shard, memory: as `convert` takes them.
        progress: is called with what is done (`"measuring"`, `"writing"`, ...), how much of it is done, and how much there is.

    Raises:
        MisuseError: if no choice is small enough, with the smallest size that there is.
        ConvertError: as `convert`.
    """

def check(
    checkpoint: Checkpoint | _Path,
    *,
    deep: bool = True,
    verify: _Path | None = None,
    threads: int | None = None,
    progress: _Progress | None = None,
) -> CheckReport:
    """Checks the tensors of a checkpoint. What is wrong with one is in the report.

    Args:
        checkpoint: one that is open, or where it is.
        deep: whether every value is looked at: whether it is a number, and whether what quantised ones are made from can be meant.
        verify: a manifest (`weighbridge check --write-manifest`) to hold each byte and key against.
        progress: is called with the number of bytes that are read, and of all.

    Raises:
        CheckpointError: if a file cannot be read.
    """

def diff(
    a: Checkpoint | _Path,
    b: Checkpoint | _Path,
    *,
    layout: Literal["canonical", "source"] | None = None,
    threads: int | None = None,
    progress: _Progress | None = None,
) -> DiffReport:
    """Compares two checkpoints, of any formats.

    Args:
        a, b: checkpoints that are open, or where they are.
        layout: the names to compare by; by default canonical ones if one family claims both, else stored ones.
        progress: is called with the number of parameters that are done, and of all.
    """

def evaluate(
    path: _Path,
    text: str,
    *,
    against: _Path | None = None,
    length: int = 512,
    chunks: int | None = None,
    threads: int | None = None,
    encode: _Encode | None = None,
    preset: str | None = None,
    lora: _Lora | None = None,
    memory: int | None = None,
    progress: _Progress | None = None,
) -> Evaluation:
    """Scores each token of a text by a model, as `weighbridge eval` and llama-perplexity do.

    Args:
        path: the model.
        text: of two chunks at least.
        against: a model whose probabilities its own are compared with.
        length: tokens of a chunk, of which the second half is scored.
        chunks: that are scored at most.
        encode, preset, lora, memory: as `Runtime` takes them; the reference is as it is stored.
        progress: is called with the number of chunks that are done, and of all.

    Raises:
        MisuseError: if the text is too short, or the tokenizer of `against` gives other tokens.
    """

def _each(checkpoint: Checkpoint, dtype: str | None, names: Sequence[str] | None) -> list[Tensor]: ...
def _selection(checkpoint: Checkpoint, dtype: str | None, names: Sequence[str] | None) -> Plan: ...

def _vllm_state(
    checkpoint: Checkpoint,
    *,
    tp: int,
    pp: int,
    rank: int,
    state: Mapping[str, str],
    encode: _Encode | None = None,
    preset: str | None = None,
    rules: _Path | None = None,
    lora: _Lora | None = None,
) -> Plan: ...
@final
class Checkpoint:
    """A checkpoint whose headers have been read and found sound."""

    @property
    def path(self) -> str: ...
    @property
    def format(self) -> str: ...
    @property
    def entries(self) -> list[Entry]: ...
    @property
    def metadata(self) -> dict[str, Any]: ...
    @property
    def config(self) -> dict[str, Any] | None: ...
    @property
    def family(self) -> str: ...
    def keys(self) -> list[str]: ...
    def hf_files(self, *, allow_loss: Sequence[str] | None = None) -> tuple[dict[str, bytes], list[str]]: ...
    def get(self, name: str, dtype: str | None = None) -> Tensor: ...
    def __getitem__(self, key: str, /) -> Tensor: ...
    def __contains__(self, key: str, /) -> bool: ...
    def __iter__(self, /) -> Iterator[str]: ...
    def __len__(self, /) -> int: ...

@final
class Entry:
    """A tensor of a checkpoint."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def scheme(self) -> str: ...
    @property
    def nbytes(self) -> int: ...

@final
class Plan:
    """How to fill every slot of a runtime, and the checkpoint to fill it from."""

    @property
    def params(self) -> list[Param]: ...
    @property
    def dropped(self) -> list[tuple[str, str]]: ...
    @property
    def nameless(self) -> list[str]: ...
    @property
    def digest(self) -> str: ...
    def key(self, what: str = "") -> str | None: ...
    def explain(self, name: str | None = None) -> str: ...
    def needs(self, *, owned: bool = False, threads: int | None = None) -> Needs: ...
    def only(self, *patterns: str) -> Plan: ...
    def load(
        self,
        *,
        owned: bool = False,
        threads: int | None = None,
        memory: int | None = None,
        progress: _Progress | None = None,
    ) -> Loaded: ...
    def load_into(
        self,
        places: Mapping[str, Buffer | Sequence[Buffer]],
        *,
        threads: int | None = None,
        memory: int | None = None,
        progress: _Progress | None = None,
    ) -> Report: ...
    def __len__(self, /) -> int: ...

@final
class Param:
    """A parameter as it will be in memory."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def scheme(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def tied_to(self) -> str | None: ...
    @property
    def exact(self) -> bool: ...
    @property
    def tensors(self) -> list[tuple[str, str, list[int]]]: ...

@final
class Needs:
    """The needs of a load."""

    @property
    def threads(self) -> int: ...
    @property
    def borrowed(self) -> int: ...
    @property
    def owned(self) -> int: ...
    @property
    def read(self) -> int: ...
    @property
    def reads(self) -> int: ...
    @property
    def scratch(self) -> int: ...

@final
class Loaded(Mapping[str, Tensor]):
    """Parameters in memory, by name."""

    @property
    def report(self) -> Report: ...
    def update(
        self,
        plan: Plan,
        *patterns: str,
        threads: int | None = None,
        memory: int | None = None,
        progress: _Progress | None = None,
    ) -> Report: ...
    def get(self, key: str, default: Any = None, /) -> Any: ...
    def __getitem__(self, key: str, /) -> Tensor: ...
    def __iter__(self, /) -> Iterator[str]: ...
    def __len__(self, /) -> int: ...

@final
class Report:
    """The cost of a load."""

    @property
    def seconds(self) -> float: ...
    @property
    def threads(self) -> int: ...
    @property
    def read(self) -> int: ...
    @property
    def borrowed(self) -> int: ...
    @property
    def copied(self) -> int: ...
    @property
    def encoded(self) -> int: ...
    @property
    def scratch(self) -> int: ...
    def __add__(self, other: Report, /) -> Report:
        """The cost of two loads, one after the other."""
    def __radd__(self, other: Report, /) -> Report: ...

@final
class Tensor(Buffer):
    """A parameter in memory. Its bytes stay where they are as long as anything refers to them."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def scheme(self) -> str: ...
    @property
    def dtype(self) -> str | None: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def borrowed(self) -> bool: ...
    @property
    def writable(self) -> bool: ...
    @property
    def planes(self) -> list[tuple[str, Plane]]: ...
    def __dlpack__(
        self,
        *,
        stream: Any | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any: ...

@final
class Plane(Buffer):
    """The bytes of one plane of a tensor."""

    @property
    def address(self) -> int: ...
    def __len__(self, /) -> int: ...

@final
class Array(Buffer):
    """Rows of f32. `numpy.asarray` takes it without a copy."""

    @property
    def shape(self) -> tuple[int, int]: ...
    def tolist(self) -> list[list[float]]: ...
    def __len__(self, /) -> int: ...

@final
class Runtime:
    """A model that runs, and its tokenizer."""

    def __new__(
        cls,
        path: _Path,
        *,
        threads: int | None = None,
        context: int | None = None,
        backend: Literal["cpu", "reference"] = "cpu",
        kv: Literal["f32", "f16", "int8", "int4"] | None = None,
        kv_budget: int | None = None,
        encode: _Encode | None = None,
        preset: str | None = None,
        lora: _Lora | None = None,
        memory: int | None = None,
    ) -> Runtime: ...
    @property
    def family(self) -> str: ...
    @property
    def backend(self) -> str: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    def logits(self, tokens: Sequence[int]) -> Array: ...
    def scores(self, tokens: Sequence[int], start: int = 1) -> list[tuple[float, bool]]: ...
    @property
    def context(self) -> int: ...
    def generate(
        self,
        prompt: str | Sequence[int] | Sequence[_Message],
        *,
        max_tokens: int = 256,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        typical_p: float | None = None,
        repeat_penalty: float | None = None,
        presence_penalty: float | None = None,
        frequency_penalty: float | None = None,
        logit_bias: Mapping[int, float] | None = None,
        seed: int | None = None,
        stop: Sequence[str] | None = None,
    ) -> Generation: ...
    def save_session(self, path: _Path) -> int: ...
    def load_session(self, path: _Path) -> list[int]: ...

@final
class Generation(Iterator[str]):
    """An answer as it comes: an iterator over its pieces."""

    @property
    def tokens(self) -> list[int] | None: ...
    @property
    def stop_reason(self) -> Literal["end", "length", "stop", "context", "interrupted"] | None: ...
    @property
    def prompt_tokens(self) -> int | None: ...
    @property
    def decode_rate(self) -> float | None: ...
    def text(self) -> str: ...
    def __iter__(self, /) -> Generation: ...
    def __next__(self, /) -> str: ...

@final
class Tokenizer:
    """Texts to token ids and back, as the model's own tokenizer has them."""

    @property
    def bos(self) -> int | None: ...
    @property
    def eos(self) -> int | None: ...
    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]: ...
    def decode(self, tokens: Sequence[int], *, special: bool = False) -> str: ...
    def token_id(self, token: str) -> int | None: ...
    def __len__(self, /) -> int: ...

@final
class ConvertReport:
    """The results of a conversion."""

    @property
    def path(self) -> str: ...
    @property
    def params(self) -> list[Converted]: ...
    @property
    def tied(self) -> list[tuple[str, str]]: ...
    @property
    def dropped(self) -> list[tuple[str, str]]: ...
    @property
    def left(self) -> list[tuple[str, str, str]]: ...
    @property
    def lost(self) -> list[tuple[str, str]]: ...
    @property
    def peak_memory(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def nbytes_before(self) -> int: ...
    @property
    def nbytes(self) -> int: ...

@final
class Compressed:
    """An encoding for each matrix, and what it costs."""

    @property
    def matrices(self) -> list[CompressedMatrix]: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def limit(self) -> int: ...
    @property
    def bits(self) -> float: ...
    @property
    def expected_kl(self) -> float | None: ...
    @property
    def kl(self) -> tuple[float, float] | None: ...
    @property
    def top1(self) -> tuple[float, float] | None: ...
    @property
    def ratio(self) -> tuple[float, float] | None: ...
    @property
    def report(self) -> ConvertReport | None: ...

@final
class CompressedMatrix:
    """A matrix, and the encoding that was chosen for it."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> list[int]: ...
    @property
    def before(self) -> str: ...
    @property
    def scheme(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def bits(self) -> float: ...
    @property
    def error(self) -> float: ...
    @property
    def cost(self) -> float: ...

@final
class Converted:
    """A parameter that was converted."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> list[int]: ...
    @property
    def before(self) -> str: ...
    @property
    def scheme(self) -> str: ...
    @property
    def nbytes_before(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def rule(self) -> str: ...
    @property
    def rmse(self) -> float | None: ...
    @property
    def max_error(self) -> float | None: ...
    @property
    def cosine(self) -> float | None: ...
    @property
    def rounded(self) -> str | None: ...

@final
class CheckReport:
    """The results of a check."""

    @property
    def is_good(self) -> bool: ...
    @property
    def findings(self) -> list[tuple[str, str]]: ...
    @property
    def keys(self) -> list[str]: ...
    @property
    def unknown(self) -> list[tuple[str, str]]: ...
    @property
    def tensors(self) -> int: ...
    @property
    def values(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def seconds(self) -> float: ...

@final
class DiffReport:
    """The differences of two checkpoints, A and B."""

    @property
    def is_same(self) -> bool: ...
    @property
    def has_same_params(self) -> bool: ...
    @property
    def family(self) -> str | None: ...
    @property
    def why_stored(self) -> str | None: ...
    @property
    def params(self) -> list[Compared]: ...
    @property
    def only_a(self) -> list[str]: ...
    @property
    def only_b(self) -> list[str]: ...
    @property
    def configuration(self) -> list[tuple[str, str, str]]: ...
    @property
    def keys(self) -> list[KeyDifference]: ...
    @property
    def not_compared(self) -> list[str]: ...
    @property
    def seconds(self) -> float: ...

@final
class KeyDifference:
    """A key or value that differs."""

    @property
    def file(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def a(self) -> str | None: ...
    @property
    def b(self) -> str | None: ...
    @property
    def bookkeeping(self) -> str | None: ...

@final
class Compared:
    """A parameter that both checkpoints have."""

    @property
    def name(self) -> str: ...
    @property
    def a(self) -> str: ...
    @property
    def b(self) -> str: ...
    @property
    def is_same(self) -> bool: ...
    @property
    def outcome(self) -> Literal["identical", "same values", "other values", "other bytes", "other shape"]: ...
    @property
    def unequal(self) -> int | None: ...
    @property
    def rmse(self) -> float | None: ...
    @property
    def max_error(self) -> float | None: ...
    @property
    def cosine(self) -> float | None: ...

@final
class Evaluation:
    """How well a model predicts a text. Each pair is a value and its standard error."""

    @property
    def tokens(self) -> int: ...
    @property
    def chunks(self) -> int: ...
    @property
    def perplexity(self) -> tuple[float, float]: ...
    @property
    def reference(self) -> tuple[float, float] | None: ...
    @property
    def ratio(self) -> tuple[float, float] | None: ...
    @property
    def kl(self) -> tuple[float, float] | None: ...
    @property
    def top1(self) -> tuple[float, float] | None: ...

@final
class Transcriber:
    """A model that transcribes sounds."""

    def __new__(
        cls,
        path: _Path,
        *,
        threads: int | None = None,
        encode: _Encode | None = None,
        preset: str | None = None,
        memory: int | None = None,
    ) -> Transcriber: ...
    @property
    def languages(self) -> list[str]: ...
    def transcribe(
        self,
        sound: _Path | bytes | Buffer,
        *,
        language: str | None = None,
        translate: bool = False,
        words: bool = False,
        prompt: str | None = None,
        context: bool = True,
        times: bool = True,
        beams: int = 5,
        best_of: int = 5,
        temperatures: Sequence[float] | None = None,
        seed: int = 0,
        each: Callable[[Segment], object] | None = None,
    ) -> Transcript:
        """Transcribes a sound.

        Args:
            sound: a file, a file's bytes, or samples of one channel at 16 kHz as a buffer of f32.
            language: its code or English name; by default the likeliest of the first window.
            translate: whether the text is English.
            words: whether each word has its times.
            prompt: a text before the first window: names and words that may come.
            context: whether each window continues the text of those before.
            times: whether the model writes times; without them, each window is one segment.
            beams: texts that are kept at each step of the search, 1 to 32.
            best_of: texts that are sampled at temperatures above 0, 1 to 32.
            temperatures: those that a window is decoded at, until its text looks right.
            seed: of what is sampled.
            each: is called with each segment as soon as it is complete.

        Raises:
            Error: if nothing of the sound can be read, or the model has no such language.
            OSError: if there is no such file.
        """

@final
class Transcript:
    """A whole transcript."""

    @property
    def text(self) -> str: ...
    @property
    def language(self) -> str | None: ...
    @property
    def language_probability(self) -> float | None: ...
    @property
    def duration(self) -> float: ...
    @property
    def damaged(self) -> float: ...
    @property
    def ended(self) -> str | None: ...
    @property
    def segments(self) -> list[Segment]: ...

@final
class Segment:
    """A part of a transcript, named as faster-whisper names it."""

    @property
    def start(self) -> float: ...
    @property
    def end(self) -> float: ...
    @property
    def text(self) -> str: ...
    @property
    def tokens(self) -> list[int]: ...
    @property
    def temperature(self) -> float: ...
    @property
    def avg_logprob(self) -> float: ...
    @property
    def compression_ratio(self) -> float: ...
    @property
    def no_speech_prob(self) -> float: ...
    @property
    def words(self) -> list[Word]: ...

@final
class Word:
    """A word and its times."""

    @property
    def start(self) -> float: ...
    @property
    def end(self) -> float: ...
    @property
    def word(self) -> str: ...
    @property
    def probability(self) -> float: ...

@final
class Embedder:
    """A model that makes vectors of texts, as sentence-transformers does."""

    def __new__(
        cls,
        path: _Path,
        *,
        threads: int | None = None,
        max_tokens: int | None = None,
        encode: _Encode | None = None,
        preset: str | None = None,
        lora: _Lora | None = None,
        memory: int | None = None,
    ) -> Embedder: ...
    @property
    def width(self) -> int: ...
    @property
    def notes(self) -> list[str]: ...
    def embed(
        self,
        texts: Sequence[str],
        *,
        prompt: str | None = None,
        prompt_text: str | None = None,
        normalize: bool | None = None,
    ) -> Array: ...
