"""`--predict_with_generate`: evaluations that write texts and compare them."""

from __future__ import annotations

from typing import Any

from burnish.core.errors import SettingError
from burnish.core.importing import importing

METRICS = ["exact_match", "chrf"]
"""Of generated texts, where no --metrics are asked for."""


def judged(run: Any, arguments: Any) -> Any:
    """The parts of a run, whose metrics compare texts where texts are generated.

    Raises:
        SettingError: the rows of the task have no prompts.
    """
    if not arguments.predict_with_generate:
        return run
    if not run.has_prompts:
        raise SettingError(
            "--predict_with_generate needs rows with something to write a text for: a source and a target with --task "
            "seq2seq, or a prompt and its completion with --task causal-lm (--text_column, --label_column)."
        )
    run.compute_metrics = run.compute_metrics or METRICS
    return run


def trainer_class(arguments: Any) -> type:
    """The trainer that the settings need."""
    with importing():
        if arguments.predict_with_generate:
            from burnish.seq2seq import Seq2SeqTrainer

            return Seq2SeqTrainer
        from burnish.trainer import Trainer

        return Trainer
