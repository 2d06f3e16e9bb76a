"""What is trained, for how long, and from which seed."""

from __future__ import annotations

from dataclasses import dataclass, field

from .declare import about


@dataclass
class TrainingFields:
    output_dir: str | None = field(
        default=None,
        metadata=about(
            "Folder for checkpoints, the final model and all numbers. `trainer_output` where it is not given."
        ),
    )
    per_device_train_batch_size: int = field(
        default=8,
        metadata=about(
            "Examples per process and accumulation step. A step has this many examples x "
            "`gradient_accumulation_steps` x processes; how they are cut to fit into memory is not set here."
        ),
    )
    num_train_epochs: float = field(
        default=3.0, metadata=about("Passes over the training data; a fraction ends within a pass.")
    )
    max_steps: int = field(
        default=-1, metadata=about("Optimizer steps of the whole run, instead of `num_train_epochs`; -1: by epochs.")
    )
    max_time: float | str | None = field(
        default=None,
        metadata=about(
            "Time after which training has stopped, saved and evaluated, such as 2h, 90m, 1d6h, or seconds; the time "
            "that the last evaluation and save take is kept in reserve. It counts from the start or the resume, and "
            "with `fit_schedule_to_max_time` over all of them."
        ),
    )
    fit_schedule_to_max_time: bool = field(
        default=False,
        metadata=about(
            "Let the learning rate come to the end of its schedule when `max_time` ends, rather than at the last step."
        ),
    )
    gradient_accumulation_steps: int = field(
        default=1, metadata=about("Batches whose gradients make one optimizer step.")
    )
    do_train: bool = field(
        default=False, metadata=about("Train. Read by scripts and the command line, not by the trainer.")
    )
    do_eval: bool = field(
        default=False, metadata=about("Evaluate after training. True by itself once `eval_strategy` is not `no`.")
    )
    do_predict: bool = field(
        default=False, metadata=about("Predict on the test data. Read by scripts and the command line.")
    )
    seed: int = field(default=42, metadata=about("Seed of everything random in a run."))
    data_seed: int | None = field(
        default=None, metadata=about("Seed of the order of the examples; `seed` where it is not given.")
    )
    full_determinism: bool = field(
        default=False,
        metadata=about(
            "Only algorithms that give the same bits every time; slower, and a warning where there is none."
        ),
    )
