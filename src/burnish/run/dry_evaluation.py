"""Before the first step: whether evaluations will have the number that decides which of them is the best."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from burnish.arguments.directions import KNOWN
from burnish.core.errors import SettingError, UserError
from burnish.core.randomness import kept
from burnish.data.batches import OrderedBatches, is_stream
from burnish.evaluation.best import metric_key, metric_value
from burnish.evaluation.names import prefixed
from burnish.loop.evaluating import EvaluationLoop

from .data import assembly_for, pruned
from .evaluation import in_evaluation_mode
from .hooks import overridden
from .judging import Judging
from .loss import counter_for

if TYPE_CHECKING:
    from burnish.trainer import Trainer

logger = logging.getLogger(__name__)

OF_THE_USER = ("evaluate", "evaluation_loop", "prediction_step", "get_eval_dataloader")
"""Methods whose own versions may give metrics that one batch does not show."""


class Silent:
    """Tells nobody of what is only tried."""

    def fire(self, event: str, **more: Any) -> None:
        """Nothing."""


def check_best_metric(trainer: Trainer, args: Any) -> None:
    """Evaluates one batch of each evaluation dataset, and looks for `metric_for_best_model`.

    Nothing is said of data that are read once, of a user's own evaluation, and where a function given as
    `compute_metrics` fails on so few rows, which is told as a warning.

    Raises:
        SettingError: evaluations will not have the metric, or it is no number, or several datasets have one of its
            name, and the message lists what there will be; or it is not known in which direction it gets better.
    """
    name, dataset = args.metric_for_best_model, trainer.eval_dataset
    if name is None or str(args.eval_strategy.value) == "no" or trainer.engine.lockstep:
        return
    if args.greater_is_better is None:
        raise SettingError(
            f"metric_for_best_model={name!r} does not say whether a higher value is better. Set greater_is_better to "
            f"True or False. {KNOWN}"
        )
    parts = dataset if isinstance(dataset, Mapping) else {"": dataset}
    if any(overridden(trainer, method) for method in OF_THE_USER) or getattr(trainer, "generates", False):
        return
    if any(part is None or is_stream(part) or not len(part) for part in parts.values()):
        return
    found: dict[str, Any] = {}
    for key, part in parts.items():
        metrics = _of_one_batch(trainer, args, part, f"eval_{key}" if key else "eval")
        if metrics is None:
            return
        found |= metrics
    metric_value(found, name)


def _of_one_batch(trainer: Trainer, args: Any, dataset: Any, prefix: str) -> dict[str, Any] | None:
    """The metrics of the first rows; None where a function cannot make any of these."""
    if trainer.compute_metrics is None and metric_key(args.metric_for_best_model) in ("eval_loss", f"{prefix}_loss"):
        return {f"{prefix}_loss": 0.0}
    size = min(args.eval_batch_size, len(dataset))
    rows = pruned(trainer, dataset, args, "eval_dataset")
    batches = OrderedBatches(rows, [list(range(size))], assembly_for(trainer, args))
    judging = Judging(trainer, args, keeps=False, loss_only=bool(args.prediction_loss_only), rows=size)
    loop = EvaluationLoop(
        predict=lambda inputs: trainer.prediction_step(
            trainer.model, trainer.engine.to_device(inputs), judging.loss_only, None
        ),
        count=counter_for(trainer),
        mean_over=trainer.objective.mean_over,
        events=Silent(),
        gather={**judging.gather},
        judge=judging.of_batch,
        preprocess=trainer.preprocess_logits_for_metrics,
        main_input=getattr(trainer.model, "main_input_name", "input_ids"),
        terms=trainer.loss_terms,
    )
    with kept(), in_evaluation_mode(trainer):
        loss, _ = loop.run([batches[0]])
        try:
            found = judging.metrics({name: collector.result() for name, collector in judging.gather.items()})
        except UserError as error:
            logger.warning("An evaluation of the first %d rows was tried before training, and failed: %s", size, error)
            return None
    if loss.value is not None:
        found[f"{prefix}_loss"] = loss.value
    found |= {f"{prefix}_{name}": mean.value for name, mean in loop.terms_seen.items()}
    return prefixed(found, prefix)
