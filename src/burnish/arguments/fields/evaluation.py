"""When to evaluate, on how many examples at once, and what metrics get to see."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..choices import IntervalStrategy
from .declare import about


@dataclass
class EvaluationFields:
    eval_strategy: IntervalStrategy | str = field(
        default="no", metadata=about("Evaluate every `eval_steps`, every epoch, or never.")
    )
    eval_steps: float | None = field(
        default=None,
        metadata=about(
            "Steps between two evaluations, or below 1 a share of the run. Not given: `logging_steps`, or 500 where "
            "that is not given either."
        ),
    )
    eval_delay: float = field(
        default=0, metadata=about("No evaluation before this step or epoch, as `eval_strategy` counts.")
    )
    eval_on_start: bool = field(default=False, metadata=about("Also evaluate before the first step."))
    per_device_eval_batch_size: int = field(
        default=8, metadata=about("Examples per process that are evaluated at once.")
    )
    prediction_loss_only: bool = field(default=False, metadata=about("Compute the loss and keep no predictions."))
    include_for_metrics: list[str] = field(
        default_factory=list, metadata=about("What `compute_metrics` gets besides predictions: inputs, loss.")
    )
    batch_eval_metrics: bool = field(
        default=False,
        metadata=about(
            "Call a function given as `compute_metrics` with each batch, and `compute_result=True` with the last, so "
            "that no predictions are kept. Metrics by name always work so."
        ),
    )
    eval_do_concat_batches: bool = field(
        default=True,
        metadata=about(
            "Join the predictions of all batches into one array. Off: `compute_metrics` and `predict` get a list with "
            "those of each batch as they are, for outputs that cannot be joined, such as boxes."
        ),
    )
    eval_use_gather_object: bool = field(
        default=False, metadata=about("Gather predictions that are Python objects over processes.")
    )
    eval_accumulation_steps: int | None = field(
        default=None,
        metadata=about(
            "Batches of predictions kept on an accelerator before they move to the host together. Not given: each "
            "moves when it is computed. Nothing on a CPU."
        ),
    )
