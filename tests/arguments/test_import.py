"""Making arguments loads neither torch nor transformers."""

import subprocess
import sys

PROGRAM = """
import sys
from burnish.arguments.training_arguments import TrainingArguments, snapshot
args = snapshot(TrainingArguments("out", learning_rate="1e-4", eval_strategy="steps"))
args.to_json_string(), repr(args), args.world_size, args.should_save, args.train_batch_size
print([name for name in ("torch", "transformers", "numpy", "accelerate") if name in sys.modules])
"""


def test_making_arguments_loads_no_heavy_package():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
