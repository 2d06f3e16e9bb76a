"""What users ask a trainer: numbers of weights, rows, tokens and operations, and what the optimizer holds."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from torch import nn

from burnish.core.errors import SettingError
from burnish.core.zero_parts import num_elements
from burnish.data.batches import OrderedBatches, StreamBatches
from burnish.data.counting import num_tokens as tokens_of
from burnish.models.flops import flops_per_token

if TYPE_CHECKING:
    from burnish.trainer import Trainer


def get_num_trainable_parameters(trainer: Trainer) -> int:
    """Weights that training changes."""
    return sum(num_elements(p) for p in trainer.model.parameters() if p.requires_grad)


def get_learning_rates(trainer: Trainer) -> list[float]:
    """The rate of each group of parameters. Raises `SettingError` before there is an optimizer."""
    return [group["lr"] for group in _groups(trainer)]


def get_optimizer_group(trainer: Trainer, param: nn.Parameter | None = None) -> Any:
    """The group of the optimizer that holds a parameter, or None; without one, the parameters of each group.

    Raises:
        SettingError: there is no optimizer yet.
    """
    groups = _groups(trainer)
    if param is None:
        return [group["params"] for group in groups]
    return next((group for group in groups if any(param is one for one in group["params"])), None)


def get_total_train_batch_size(trainer: Trainer, args: Any = None) -> int:
    """Rows of one update: batch, times accumulation, times processes."""
    args = args or trainer.settings
    return int(args.train_batch_size * args.gradient_accumulation_steps * trainer.engine.num_processes)


def floating_point_ops(trainer: Trainer, inputs: dict[str, Any]) -> int:
    """Floating-point operations of forward and backward on a batch: by the model's own estimate where it has one, else
    by its weights."""
    estimate = getattr(trainer.model, "floating_point_ops", None)
    return int(estimate(inputs) if callable(estimate) else flops_per_token(trainer.model) * tokens_of(inputs))


def num_examples(trainer: Trainer, dataloader: Any) -> int:
    """Rows behind a loader; those of ours hold batches of a dataset."""
    rows = dataloader.dataset
    return len(rows.dataset if isinstance(rows, (OrderedBatches, StreamBatches)) else rows)


def num_tokens(train_dl: Any, max_steps: int | None = None) -> int:
    """Tokens in the batches of a loader, padding left out; of `max_steps` batches, where more are needed than it has,
    it is read again."""
    if max_steps is None:
        return sum(tokens_of(batch) for batch in train_dl)
    passes = chain.from_iterable(train_dl for _ in range(max_steps))
    return sum(tokens_of(batch) for batch in islice(passes, max_steps))


def _groups(trainer: Trainer) -> list[dict[str, Any]]:
    if trainer.optimizer is None:
        raise SettingError("There is no optimizer yet: call create_optimizer() or train() first.")
    return trainer.optimizer.param_groups
