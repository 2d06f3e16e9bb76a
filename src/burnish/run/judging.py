"""What `compute_metrics` of a trainer is given in an evaluation, and what has to be kept for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from burnish.core.errors import SettingError
from burnish.core.protocols import Processes
from burnish.core.types import Inputs
from burnish.evaluation.apart import BatchesApart
from burnish.evaluation.collect import Collector
from burnish.evaluation.judge import Judge
from burnish.evaluation.judge import checked as checked
from burnish.evaluation.prediction import EvalPrediction
from burnish.evaluation.reading import Reading
from burnish.evaluation.room import Room
from burnish.models.contract import without_adapters
from burnish.objectives.selected import SelectedLoss

from .hooks import overridden

if TYPE_CHECKING:
    from burnish.trainer import Trainer

FURTHER = {"inputs": "inputs", "loss": "losses"}
"""Names in `include_for_metrics`, and those of what is gathered for them."""


@dataclass
class Judging:
    """The metrics of one evaluation, and the collectors of what is needed of all rows.

    Args:
        keeps: whether predictions and labels are wanted for themselves.
        loss_only: whether nothing but the loss is.
        rows: how many there will be; None where it is not known.
    """

    trainer: Trainer
    args: Any
    keeps: bool
    loss_only: bool
    rows: int | None

    def __post_init__(self) -> None:
        args = self.args
        given = None if self.loss_only else self.trainer.compute_metrics
        as_one = self.trainer.engine.num_processes > 1  # each of several sees some of the batches
        self._judge = Judge(given, reading_for(self.trainer), by_batch=args.batch_eval_metrics, as_one=as_one)
        self._further = [FURTHER[name] for name in sorted(set(args.include_for_metrics or ()) & set(FURTHER))]
        names: list[str] = []
        if not self.loss_only and (self.keeps or self._judge.needs_everything):
            names = ["predictions", "labels", *self._further]
        self.gather = {name: self.collector() for name in names}

    def merge(self, processes: Processes) -> None:
        """Adds what the metrics have seen of the batches of the other processes, in the order of the processes."""
        states = processes.all_of(self._judge.state())
        self._judge.merge(states[: processes.index] + states[processes.index + 1 :])

    def collector(self) -> Collector | BatchesApart:
        """An empty one."""
        if not self.args.eval_do_concat_batches:
            return BatchesApart()
        room = Room(self.rows, Path(self.args.output_dir))
        return Collector(self.trainer.output_padding, room, self.args.eval_accumulation_steps or 1)

    @property
    def of_batch(self) -> Callable[[Inputs, Any, Any, torch.Tensor | None], None] | None:
        """What is to be told of each batch; None where nothing is."""
        return None if self.loss_only or self.trainer.compute_metrics is None else self._update

    def _update(self, inputs: Inputs, logits: Any, labels: Any, loss: torch.Tensor | None) -> None:
        if logits is None or labels is None:
            if not self.keeps:
                raise SettingError(_what_is_missing(self.trainer, inputs, logits))
            return
        main = getattr(self.trainer.model, "main_input_name", "input_ids")
        self._judge.update(
            EvalPrediction(
                logits,
                labels,
                inputs=inputs[main] if "inputs" in self._further else None,
                losses=loss if "losses" in self._further else None,
            )
        )

    def metrics(self, results: dict[str, Any]) -> dict[str, Any]:
        """The values, once all batches are through; `results` is what was gathered. None without labels."""
        predictions, labels = results.get("predictions"), results.get("labels")
        everything = None
        if predictions is not None and labels is not None:
            everything = EvalPrediction(predictions, labels, results.get("inputs"), results.get("losses"))
        return self._judge.compute(everything)


def follows_from_loss(trainer: Trainer) -> bool:
    """Whether perplexity is all that is asked for, and the loss is the cross-entropy that it is made of: then no logits
    are needed but those of a chunk of targets."""
    asked = trainer.compute_metrics
    names = list(asked) if isinstance(asked, (list, tuple)) else [asked]
    objective = trainer.objective.compute
    is_plain = isinstance(objective, SelectedLoss) and not objective.label_smoothing
    sees_logits = trainer.preprocess_logits_for_metrics is not None or overridden(trainer, "prediction_step")
    return names == ["perplexity"] and is_plain and not sees_logits


def _what_is_missing(trainer: Trainer, inputs: Inputs, logits: Any) -> str:
    """Why metrics that were asked for cannot be computed of a batch."""
    if logits is None:
        return (
            f"compute_metrics cannot be called: {trainer.facts.name} returns nothing but its loss. Return logits, too, "
            "in a dict or a tuple, or set compute_metrics=None."
        )
    facts, keys = trainer.facts, [key for key in inputs if isinstance(key, str)]
    unused = [] if facts.accepts_any else [repr(key) for key in keys if not facts.takes(key)]
    others = f"; {facts.name} does not take {', '.join(unused)}" if unused else ""
    return (
        "compute_metrics cannot be called: the batches of this evaluation have no labels. label_names is "
        f"{trainer.label_names}, and a batch has {', '.join(map(repr, keys)) or 'nothing'}{others}. Give labels one of "
        "these names, or set label_names in TrainingArguments to the name that they have."
    )


def reading_for(trainer: Trainer) -> Reading:
    """How metrics read what the trainer's model returns."""
    model = without_adapters(trainer.model)
    config = getattr(model, "config", None)
    names = getattr(config, "id2label", None) or {}
    generates = bool(getattr(trainer, "generates", False))
    return Reading(
        next_token=trainer.facts.shifts_labels and not generates,
        class_names=[str(names[number]) for number in sorted(names)] if _is_numbered(names) else None,
        processing_class=trainer.processing_class,
        is_ctc=type(model).__name__.endswith("ForCTC"),
    )


def _is_numbered(names: Any) -> bool:
    return isinstance(names, dict) and sorted(names) == list(range(len(names)))
