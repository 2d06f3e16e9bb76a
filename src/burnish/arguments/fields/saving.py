"""When checkpoints are written, which are kept, which is the best, and where a run goes on."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..choices import SaveStrategy
from .declare import FLAG, about


@dataclass
class SavingFields:
    save_strategy: SaveStrategy | str = field(
        default="steps",
        metadata=about("Save every `save_steps`, every epoch, whenever an evaluation is the best so far, or never."),
    )
    save_steps: float = field(
        default=500, metadata=about("Steps between two checkpoints, or below 1 a share of the run.")
    )
    save_minutes: float | None = field(
        default=None,
        metadata=about(
            "Also save once this many minutes have passed since the last checkpoint, and at the end, whatever "
            "`save_strategy` says."
        ),
    )
    save_total_limit: int | None = field(
        default=None,
        metadata=about(
            "Checkpoints to keep, the newest and the best among them; milestones (`keep_every_...`) come on top. Not "
            "given, 0 or less: no limit."
        ),
    )
    keep_last: int | None = field(
        default=None,
        metadata=about(
            "Keep the newest so many checkpoints. Once any `keep_...` is set, what none of them keeps is deleted, "
            "unless `save_total_limit` has room for it."
        ),
    )
    keep_best: int | None = field(
        default=None,
        metadata=about(
            "Keep the checkpoints of the best so many evaluations by `metric_for_best_model`. An evaluation that is "
            "among them is saved at once."
        ),
    )
    keep_every_steps: int | None = field(
        default=None,
        metadata=about("Keep for ever the first checkpoint at or after each multiple of this number of steps."),
    )
    keep_every_minutes: float | None = field(
        default=None,
        metadata=about("Keep for ever the first checkpoint written in each so many minutes of the clock."),
    )
    save_only_model: bool = field(
        default=False, metadata=about("Save no optimizer and no progress: smaller, and cannot be resumed.")
    )
    save_async: bool = field(
        default=True,
        metadata=about(
            "Write checkpoints behind the training, which waits for a copy in host memory only. The copy takes as "
            "much memory as a checkpoint takes on the disk. --no_save_async: wait until it is written, without a copy."
        ),
    )
    save_on_each_node: bool = field(
        default=False, metadata=about("Save on the first process of each machine, not of the first one only.")
    )
    enable_jit_checkpoint: bool = field(
        default=False, metadata=about("Save when the run is told to terminate. Always so here.")
    )
    load_best_model_at_end: bool = field(
        default=False, metadata=about("End the run with the weights of its best evaluation.")
    )
    metric_for_best_model: str | None = field(
        default=None,
        metadata=about(
            "Metric by which evaluations are compared, with or without eval_. Not given: loss, where one is needed."
        ),
    )
    greater_is_better: bool | None = field(
        default=None,
        metadata=about(
            "Whether a higher value of `metric_for_best_model` is better. Not given: known from common names."
        ),
    )
    resume_from_checkpoint: str | None = field(
        default=None,
        metadata=about("Checkpoint folder to go on from; without a value: the newest one in `output_dir`.", **FLAG),
    )
    ignore_data_skip: bool = field(
        default=False, metadata=about("Do not skip data on resuming. Nothing is ever skipped here.")
    )
    restore_callback_states_from_checkpoint: bool = field(
        default=False, metadata=about("On resuming, also restore callbacks that are saved with the checkpoint.")
    )
