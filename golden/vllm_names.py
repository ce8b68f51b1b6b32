"""What vLLM calls the parameters of a family, and their shapes on a rank: vllm_names.json.

    python vllm_names.py          (as vllm_check.py, which see)

The models are those of families/*.json, as transformers writes them. Each is built for rank 0 of 1 and of 2; no weight is
loaded. What vLLM refuses is kept with its reason.
"""

import json
import tempfile
from pathlib import Path

import vllm_check as check
import vllm_shards as shards

HERE = Path(__file__).parent


def built(config, size):
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype

    check.play(config, size, 0, None)
    with set_current_vllm_config(config), set_default_torch_dtype(config.model_config.dtype):
        model = initialize_model(config)
    return {name: list(parameter.shape) for name, parameter in model.named_parameters()}


def without_kernels():
    """More that this machine lacks and that loading does without."""
    from unittest.mock import MagicMock

    import torch
    from vllm.model_executor.layers.fused_moe import unquantized_fused_moe_method as plain
    from vllm.model_executor.layers.quantization import mxfp4

    torch.ops._C.gelu_new = None
    plain.select_unquantized_moe_backend = mxfp4.select_mxfp4_moe_backend = lambda *_, **__: (MagicMock(), None)


def main():
    rows = []
    for file in sorted((HERE / "families").glob("*.json")):
        told = json.loads(file.read_text())
        released = shards.RELEASED if "deepseek" in file.stem else {}
        plain = {"config": dict(told["config"], **released, dtype="float32"), "entries": [], "exceptions": []}
        found = {}
        for size in (1, 2):
            with tempfile.TemporaryDirectory() as directory:
                try:
                    config = check.engine_config(plain, Path(directory))
                    check.start_once()
                    without_kernels()
                    found[str(size)] = built(config, size)
                except Exception as error:
                    found[str(size)] = f"{type(error).__name__}: {error}".splitlines()[0]
        rows.append(f" {json.dumps(file.stem)}: {json.dumps(found)}")
        print(file.stem, *(len(held) if isinstance(held, dict) else held for held in found.values()), sep="  ", flush=True)
    (HERE / "vllm_names.json").write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
