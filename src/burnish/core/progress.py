"""What a run has done, and what is asked of it next: the two objects that callbacks see."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

OURS = (
    "num_examples_seen",
    "num_positions",
    "num_positions_plain",
    "total_loss",
    "num_loss_steps",
    "unlogged_loss",
    "unlogged_steps",
    "unlogged_terms",
    "passes",
    "steps_in_pass",
    "stream_state",
    "stop_reason",
    "seconds_used",
    "schedule_step",
)
"""Fields that transformers does not know; they are kept apart so that its trainer can read our checkpoints."""


@dataclass
class TrainerState:
    """The progress of a run. The fields of transformers keep their names; ours follow.

    `log_history` holds every log as a dict with its `step`. Counts are of the whole run, over all processes.
    """

    epoch: float = 0
    global_step: int = 0
    max_steps: int = 0
    logging_steps: int = 500
    eval_steps: int = 500
    save_steps: int = 500
    train_batch_size: int | None = None
    num_train_epochs: int = 0
    num_input_tokens_seen: int = 0
    total_flos: float = 0
    log_history: list[dict[str, Any]] = field(default_factory=list)
    best_metric: float | None = None
    best_global_step: int | None = None
    best_model_checkpoint: str | None = None
    is_local_process_zero: bool = True
    is_world_process_zero: bool = True
    is_hyper_param_search: bool = False
    trial_name: str | None = None
    trial_params: dict[str, Any] | None = None
    stateful_callbacks: dict[str, Any] = field(default_factory=dict)

    num_examples_seen: int = 0
    num_positions: int = 0
    """Positions computed, padding included."""
    num_positions_plain: int = 0
    """Positions that plain padded batches of the same examples would have computed."""
    total_loss: float = 0.0
    """Sum of the losses of the steps that were logged and had targets."""
    num_loss_steps: int = 0
    """Number of steps summed in `total_loss`."""
    unlogged_loss: float = 0.0
    """Sum of the losses of the steps since the last log."""
    unlogged_steps: int = 0
    """Number of steps summed in `unlogged_loss`."""
    unlogged_terms: dict[str, list[float]] = field(default_factory=dict)
    """By name of a term of the loss: its sum over these steps, and how many of them had it."""
    passes: int = 0
    """Passes over the data that are complete."""
    steps_in_pass: int = 0
    """Steps done in the pass that is not. The next step is (passes, steps_in_pass)."""
    stream_state: Any = None
    """Of the stream that is trained on, before that step; None where the data are no stream, or one that does not say
    its place. Of a stream in parts, the states of those that this process reads, by number; in a checkpoint, of all."""
    stop_reason: str | None = None
    """What ended this start of the run before its last step: "max_time" or the name of a signal."""
    seconds_used: float = 0.0
    """Of `max_time`, over all starts of the run; 0 where none is set."""
    schedule_step: float | None = None
    """Where the learning rate stands in its schedule, where that is fitted to `max_time`; None: at `global_step`."""

    @property
    def train_loss(self) -> float:
        """Mean loss of all steps with targets so far; NaN before the first."""
        steps = self.num_loss_steps + self.unlogged_steps
        return (self.total_loss + self.unlogged_loss) / steps if steps else math.nan

    def on(self, processes: Any) -> TrainerState:
        """The same object, marked as that of this one of the processes."""
        self.is_world_process_zero, self.is_local_process_zero = processes.index == 0, processes.local_index == 0
        return self

    def familiar(self) -> dict[str, Any]:
        """The fields that transformers knows, as JSON values."""
        return {name: value for name, value in asdict(self).items() if name not in OURS}

    def ours(self) -> dict[str, Any]:
        """The fields that only burnish knows."""
        return {name: getattr(self, name) for name in OURS}

    def save_to_json(self, json_path: str | Path) -> None:
        """Writes the fields that transformers knows, so that its trainer can read the file."""
        text = json.dumps(self.familiar(), indent=2, sort_keys=True) + "\n"
        Path(json_path).write_text(text, encoding="utf-8")

    @classmethod
    def load_from_json(cls, json_path: str | Path) -> TrainerState:
        """Reads a state, ours or of transformers; fields that are unknown here are left out."""
        content = json.loads(Path(json_path).read_text(encoding="utf-8"))
        known = {f.name for f in fields(cls)}
        return cls(**{name: value for name, value in content.items() if name in known and value is not None})


class ExportableState:
    """Something whose state is saved with a checkpoint and restored from it, as JSON.

    `state()` returns ``{"args": constructor arguments, "attributes": what to set afterwards}``.
    """

    def state(self) -> dict[str, Any]:
        raise NotImplementedError(f"{type(self).__name__} must define `state()` to be saved with a checkpoint.")

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Any:
        instance = cls(**state["args"])
        for name, value in state["attributes"].items():
            setattr(instance, name, value)
        return instance


@dataclass
class TrainerControl(ExportableState):
    """What the loop is asked to do next. Callbacks set the flags; the loop takes them back once it has acted."""

    should_training_stop: bool = False
    should_epoch_stop: bool = False
    should_save: bool = False
    should_evaluate: bool = False
    should_log: bool = False

    def new_step(self) -> None:
        """Forgets what was asked for the step before."""
        self.should_save = self.should_evaluate = self.should_log = False

    def state(self) -> dict[str, Any]:
        return {"args": asdict(self), "attributes": {}}


def stateful(parts: list[Any]) -> dict[str, Any]:
    """The states of those parts that are `ExportableState`s (ours or of transformers), by class name; a list of
    states where several parts share a class."""
    found: dict[str, Any] = {}
    for part in parts:
        state: Callable[[], Any] | None = getattr(part, "state", None)
        if not callable(state) or not _is_exportable(part):
            continue
        name = type(part).__name__
        if name not in found:
            found[name] = state()
        elif isinstance(found[name], list):
            found[name].append(state())
        else:
            found[name] = [found[name], state()]
    return found


def _is_exportable(part: Any) -> bool:
    """By name, since the class of transformers is not imported here."""
    return any(base.__name__ == "ExportableState" for base in type(part).__mro__)
