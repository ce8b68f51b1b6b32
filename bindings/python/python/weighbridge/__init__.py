"""Opens any checkpoint, proves that it fits the model, moves exactly the bytes needed, and runs it.

>>> import weighbridge
>>> checkpoint = weighbridge.open("model.gguf")                     # headers only
>>> plan = weighbridge.plan(checkpoint, layout="hf", encode={"*": "bf16"})   # every problem at once, no reads
>>> weights = plan.load()                                           # every slot filled once
>>> weights["model.norm.weight"].shape
(576,)

`weighbridge.torch` and `weighbridge.numpy` make tensors and arrays of it without a copy, `weighbridge.transformers` fills models of
transformers, and `Runtime`, `Embedder` and `Transcriber` run the model, `convert`, `compress`, `check` and `diff` work on whole files.
"""

from __future__ import annotations

from collections.abc import Mapping as _Mapping

from ._errors import (
    CheckpointError,
    ConvertError,
    Error,
    LoadError,
    MisuseError,
    PlanError,
    Problem,
    RunError,
    UnknownModelError,
)
from ._weighbridge import (
    Array,
    CheckReport,
    Checkpoint,
    Compared,
    Compressed,
    CompressedMatrix,
    ConvertReport,
    Converted,
    DiffReport,
    Embedder,
    Entry,
    Evaluation,
    Generation,
    KeyDifference,
    Loaded,
    Needs,
    Param,
    Plan,
    Plane,
    Report,
    Runtime,
    Segment,
    Tensor,
    Tokenizer,
    Transcriber,
    Transcript,
    Word,
    check,
    compress,
    convert,
    diff,
    evaluate,
    export,
    open,
    plan,
)
from ._weighbridge import __VERSION__ as __version__

_Mapping.register(Loaded)

__all__ = [
    "Array",
    "CheckReport",
    "Checkpoint",
    "CheckpointError",
    "Compared",
    "Compressed",
    "CompressedMatrix",
    "ConvertError",
    "ConvertReport",
    "Converted",
    "DiffReport",
    "Embedder",
    "Entry",
    "Error",
    "Evaluation",
    "Generation",
    "KeyDifference",
    "LoadError",
    "Loaded",
    "MisuseError",
    "Needs",
    "Param",
    "Plan",
    "PlanError",
    "Plane",
    "Problem",
    "Report",
    "RunError",
    "Runtime",
    "Segment",
    "Tensor",
    "Tokenizer",
    "Transcriber",
    "Transcript",
    "UnknownModelError",
    "Word",
    "__version__",
    "check",
    "compress",
    "convert",
    "diff",
    "evaluate",
    "export",
    "open",
    "plan",
]
