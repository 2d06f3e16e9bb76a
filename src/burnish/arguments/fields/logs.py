"""When numbers are logged, and how much a run says."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..choices import DebugOption, IntervalStrategy
from .declare import about

LOG_LEVELS = ("detail", "debug", "info", "warning", "error", "critical", "passive")
"""Levels by name, the most talkative first; "passive" leaves the level as it is."""


@dataclass
class LogFields:
    logging_strategy: IntervalStrategy | str = field(
        default="steps", metadata=about("Log every `logging_steps`, every epoch, or never.")
    )
    logging_steps: float | None = field(
        default=None,
        metadata=about("Steps between two logs, or below 1 a share of the run. Not given: about 50 logs a run."),
    )
    logging_first_step: bool = field(default=True, metadata=about("Also log the first step."))
    logging_nan_inf_filter: bool = field(
        default=True,
        metadata=about("Has no effect: a loss that is not finite is never hidden. See `nonfinite_policy`."),
    )
    log_on_each_node: bool = field(
        default=True,
        metadata=about(
            "`log_level` holds for the first process of each machine, not of the first one only. Lines about steps "
            "come from the first process of the run."
        ),
    )
    log_level: str = field(
        default="passive", metadata=about("Level of messages on the process that logs.", choices=LOG_LEVELS)
    )
    log_level_replica: str = field(
        default="warning",
        metadata=about(
            "Level of messages on the other processes. warning: what concerns such a process alone.",
            choices=LOG_LEVELS,
        ),
    )
    disable_tqdm: bool | None = field(
        default=None,
        metadata=about("Plain lines instead of a progress bar. Not given: where the output is not a terminal."),
    )
    include_num_input_tokens_seen: str = field(
        default="no",
        metadata=about(
            "Log the number of tokens trained on: all, non_padding, or no; True means all. Padding is not computed, so "
            "neither counts it.",
            nargs="?",
            const="all",
        ),
    )
    measure_peak: bool = field(
        default=False,
        metadata=about(
            "Measure before the first step how fast this device multiplies matrices (0.2 s), where that is not known, "
            "and write the share of it that the model reaches into log.jsonl as `mfu`."
        ),
    )
    skip_memory_metrics: bool = field(default=True, metadata=about("Do not add peak memory to the metrics of a run."))
    debug: str | list[DebugOption] = field(
        default="", metadata=about("Extra checks: underflow_overflow or tpu_metrics_debug.")
    )
