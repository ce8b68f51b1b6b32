"""Writes `<model>/config.v4.json`: the config.json of the same model as transformers 4 writes it.

Keys moved in transformers 5 (`rope_theta` and `rope_scaling` went into `rope_parameters`), and most
checkpoints in the world have the old ones. Needs `pip install "transformers==4.57.6"`, no torch.
"""

from pathlib import Path

import transformers

from specs import SPECS

HERE = Path(__file__).parent

for name, spec in SPECS.items():
    config = getattr(transformers, spec["config"])(**spec["arguments"])
    config.architectures = [spec["architecture"]]
    config.dtype = "float32"
    (HERE / name / "config.v4.json").write_text(config.to_json_string(use_diff=True))
    print(name, "config.v4.json", transformers.__version__)
