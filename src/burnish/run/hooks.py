"""What a user has replaced, seen from the trainer."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from burnish.trainer import Trainer

logger = logging.getLogger(__name__)


def overridden(trainer: Trainer, method: str) -> bool:
    """Whether a user has replaced a method of the trainer, in a subclass or on the object."""
    if method in vars(trainer):
        return True
    owner = next(kind for kind in type(trainer).__mro__ if method in vars(kind))
    found = vars(owner)[method]  # a method of ours may have been exchanged on our own class
    return not (_is_ours(owner) and _is_ours(found)) or hasattr(found, "__wrapped__")


def _is_ours(definition: Any) -> bool:
    return str(getattr(definition, "__module__", "")).partition(".")[0] == "burnish"


def takes(function: Callable[..., Any], argument: str) -> bool:
    """Whether a user's function can be given this keyword."""
    parameters = inspect.signature(function).parameters
    return argument in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def names(function: Callable[..., Any], argument: str) -> bool:
    """Whether a user's function has an argument of this name."""
    return argument in inspect.signature(function).parameters


def has_own_loss(trainer: Trainer) -> bool:
    """Whether the user says how the loss of a batch is computed."""
    own = ("compute_loss", "training_step")
    return trainer.compute_loss_func is not None or any(overridden(trainer, method) for method in own)


def trains_in_lockstep(trainer: Trainer) -> bool:
    """Whether every process must compute as many micro-batches of a step as the one that has most: where a forward pass
    is a work of all, and where a loss of the user's own is computed, which may gather what the processes have."""
    own = trainer.compute_loss_func is not None or overridden(trainer, "compute_loss")
    return bool(trainer.engine.lockstep or (own and trainer.engine.num_processes > 1))


def evaluates_in_lockstep(trainer: Trainer) -> bool:
    """The same for the batches of an evaluation."""
    own = overridden(trainer, "prediction_step") and trainer.engine.num_processes > 1
    return own or trains_in_lockstep(trainer)


def needs_argument(function: Callable[..., Any]) -> bool:
    """Whether a user's function cannot be called without an argument."""
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return any(p.kind in by_position and p.default is p.empty for p in parameters)


def must_be_told(function: Callable[..., Any], argument: str) -> bool:
    """Whether a user's function has an argument of this name, and no default for it."""
    parameter = inspect.signature(function).parameters.get(argument)
    return parameter is not None and parameter.default is parameter.empty


NOT_CALLED = {
    "_get_train_sampler": "Override get_train_dataloader, or set train_sampling_strategy.",
    "_get_eval_sampler": "Override get_eval_dataloader.",
    "_remove_unused_columns": "Prune the dataset, and set remove_unused_columns=False.",
    "get_batch_samples": "Override get_train_dataloader.",
    "_inner_training_loop": "Override training_step, or use a callback.",
    "_maybe_log_save_evaluate": "Override log, evaluate or save_model, or use a callback.",
    "prediction_loop": "Override evaluation_loop.",
    "_save_checkpoint": "Override save_model, or use a callback's on_save.",
    "_save": "Override save_model.",
    "_load_from_checkpoint": "Load the weights into the model before train().",
    "_load_best_model": "Load state.best_model_checkpoint after train().",
    "_determine_best_metric": "Use a callback's on_evaluate.",
}
"""Methods of transformers' trainer that burnish does not have, and what to do instead of overriding them."""


def warn_of_what_is_not_used(trainer: Trainer) -> None:
    """Says of each method that a user defines for transformers' trainer that nothing calls it here, and of smoothing
    that the user's function computes the loss."""
    smoothing = trainer.args.label_smoothing_factor
    if smoothing and trainer.compute_loss_func is not None and not overridden(trainer, "compute_loss"):
        logger.warning(
            "label_smoothing_factor=%s has no effect: compute_loss_func computes the loss. Smooth in it, with "
            "cross_entropy(…, label_smoothing=…).",
            smoothing,
        )
    for method, instead in NOT_CALLED.items():
        if callable(getattr(trainer, method, None)):
            logger.warning("%s.%s is not called by burnish. %s", type(trainer).__name__, method, instead)
