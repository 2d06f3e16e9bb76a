"""What each of the two machines runs (see `two_machines.sh`): a run that is long enough to be killed in the middle."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from trainer import runs

import burnish


class Slowly(burnish.TrainerCallback):
    """Steps that take as long as those of a large model."""

    def on_step_end(self, *given: Any, **named: Any) -> None:
        time.sleep(0.1)


def main(folder: Path) -> None:
    (folder / f"pid-{os.environ['MACHINE']}").write_text(str(os.getpid()))
    run = runs.trainer(
        folder / "out",
        parts={"callbacks": [Slowly()]},
        max_steps=30,
        per_device_train_batch_size=2,
        save_strategy="steps",
        save_steps=2,
    )
    run.train()
    if run.is_world_process_zero():
        manifest = json.loads((folder / "out" / "run.json").read_text())
        told = {"steps": run.state.global_step, "processes": run.engine.num_processes, "resumed": manifest["resumed"]}
        (folder / "how-it-went").write_text(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
