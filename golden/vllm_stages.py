"""What vLLM's loader of sharded files asks for of a family, by one stage and by each of two: vllm_stages.json.

    python vllm_stages.py          (as vllm_check.py, which see)

The models are those of families/*.json, as transformers writes them. Each is built for a stage, and named is what
`ShardedStateLoader` would save of it, and asks for. What vLLM does not run in stages is kept with its reason.
"""

import json
import tempfile
from pathlib import Path

import vllm_check as check
import vllm_names as whole
import vllm_shards as shards

HERE = Path(__file__).parent


def saved(config, stages, stage):
    from vllm.config import set_current_vllm_config
    from vllm.distributed import parallel_state as groups
    from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.model_executor.models.interfaces import supports_pp
    from vllm.utils.torch_utils import set_default_torch_dtype

    check.play(config, 1, 0, None)
    group = groups.get_pp_group()
    group.world_size, group.rank_in_group, group.rank, group.ranks = stages, stage, stage, list(range(stages))
    config.parallel_config.pipeline_parallel_size = stages
    with set_current_vllm_config(config), set_default_torch_dtype(config.model_config.dtype):
        model = initialize_model(config)
    if stages > 1 and not supports_pp(model):
        raise NotImplementedError(f"{type(model).__name__} does not support pipeline parallelism")
    ours = "model-rank-0-part-0.safetensors" if stages == 1 else f"model-pp-{stage}-tp-0-part-0.safetensors"
    assert ShardedStateLoader._render_default_pattern(part=0) == ours
    state = ShardedStateLoader._filter_subtensors(model.state_dict())
    return {name: list(tensor.shape) for name, tensor in state.items()}


def main():
    rows = []
    for file in sorted((HERE / "families").glob("*.json")):
        told = json.loads(file.read_text())
        released = shards.RELEASED if "deepseek" in file.stem else {}
        plain = {"config": dict(told["config"], **released, dtype="float32"), "entries": [], "exceptions": []}
        found = {}
        for stages in (1, 2):
            for stage in range(stages):
                with tempfile.TemporaryDirectory() as directory:
                    try:
                        config = check.engine_config(plain, Path(directory))
                        check.start_once()
                        whole.without_kernels()
                        held = saved(config, stages, stage)
                    except Exception as error:
                        held = f"{type(error).__name__}: {error}".splitlines()[0]
                found.setdefault(str(stages), []).append(held)
        rows.append(f" {json.dumps(file.stem)}: {json.dumps(found)}")
        print(file.stem, *(len(held) if isinstance(held, dict) else held for of in found.values() for held in of),
              sep="  ", flush=True)
    (HERE / "vllm_stages.json").write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
