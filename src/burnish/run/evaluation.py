"""What `Trainer.evaluate` and `Trainer.predict` put together: loaders, collectors, metrics."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from burnish.core.errors import SettingError
from burnish.core.loss_terms import take_apart
from burnish.core.modes import in_evaluation
from burnish.core.types import EvalLoopOutput
from burnish.data.batches import OrderedBatches, StreamBatches, in_order, is_stream
from burnish.data.kinds import check_is_dataset
from burnish.data.table import is_at_hand
from burnish.evaluation.language import perplexity_of_loss
from burnish.evaluation.logits import keys_to_ignore, logits_of, without_padding
from burnish.evaluation.names import prefixed
from burnish.loop.evaluating import EvaluationLoop
from burnish.loop.memory import in_parts_that_fit
from burnish.optim.optimizers import set_training

from .data import assembly_for, check_rows, loading_for, pruned, refuse_other_order, row_checks
from .eval_shares import in_lockstep, over_processes, own_batches, terms_over_processes
from .hooks import evaluates_in_lockstep, has_own_loss, overridden, takes
from .judging import Judging, follows_from_loss
from .length_order import ByLength, in_length_order
from .loss import counted, counter_for, native_loss

if TYPE_CHECKING:
    from burnish.trainer import Trainer

logger = logging.getLogger(__name__)

MOST_ROWS_SHOWN = 10


def eval_loader(trainer: Trainer, dataset: Any, args: Any, name: str) -> Any:
    """A loader of a dataset's batches in its own order. Every call makes new workers: they hold the dataset.

    Rows that are at hand are looked through first; those of a run were, before its first step.

    Raises:
        DataError: a row cannot be computed; the message names it.
    """
    return _in_dataset_order(trainer, _looked_through(trainer, dataset, args, name), args, name)


def datasets_of(given: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Names and datasets of a dict of them. Raises `SettingError` where there is none."""
    if not given:
        raise SettingError(
            "eval_dataset is a dict without a dataset, so there is nothing to evaluate. Put one in it, or set "
            "eval_strategy='no'."
        )
    return list(given.items())


def batches_to_evaluate(trainer: Trainer, given: Any, prefix: str = "eval") -> Any:
    """What `evaluate` computes: the batches of `get_eval_dataloader`, or the same rows by length. Raises as it does."""
    if overridden(trainer, "get_eval_dataloader"):
        return trainer.get_eval_dataloader(given)
    name = "eval_dataset" if prefix == "eval" else f"eval_dataset ({prefix})"
    return _batches(trainer, dataset_to_evaluate(trainer, given), name)


def batches_to_predict(trainer: Trainer, dataset: Any) -> Any:
    """What `predict` computes: the batches of `get_test_dataloader`, or the same rows by length. Raises as it does."""
    if overridden(trainer, "get_test_dataloader"):
        return trainer.get_test_dataloader(dataset)
    return _batches(trainer, dataset, "test_dataset")


def _batches(trainer: Trainer, dataset: Any, name: str) -> Any:
    args = trainer.settings
    dataset = _looked_through(trainer, dataset, args, name)
    if is_stream(dataset):
        refuse_other_order(trainer, dataset, name)
    as_it_stands = _in_dataset_order(trainer, dataset, args, name)
    by_length = in_length_order(trainer, dataset, args, as_it_stands)
    return as_it_stands if by_length is None else by_length


def _looked_through(trainer: Trainer, dataset: Any, args: Any, name: str) -> Any:
    check_is_dataset(dataset, name)
    if not trainer.is_in_train and is_at_hand(dataset):
        needed = _needs_labels(trainer, name)
        check_rows(trainer, dataset, name, args.eval_batch_size, labels_required=needed)
    return pruned(trainer, dataset, args, name)


def _needs_labels(trainer: Trainer, name: str) -> bool:
    return name != "test_dataset" and trainer.compute_metrics is not None


def _in_dataset_order(trainer: Trainer, dataset: Any, args: Any, name: str) -> Any:
    look = row_checks(trainer, dataset, name, _needs_labels(trainer, name))
    assembly = replace(assembly_for(trainer, args).for_evaluation(), look=look)
    loading, processes = loading_for(trainer, args), trainer.engine.processes
    if is_stream(dataset):
        of_process = StreamBatches(dataset, args.eval_batch_size, assembly, processes.index, processes.count)
        return loading.loader(of_process, most_workers=1)
    batches = OrderedBatches(dataset, in_order(len(dataset), args.eval_batch_size), assembly)
    return loading.loader(batches, sampler=range(processes.index, len(batches), processes.count))


def evaluated(
    trainer: Trainer, loader: Any, description: str, loss_only: bool, ignore_keys: list[str] | None, prefix: str
) -> EvalLoopOutput:
    """Puts a loader's batches through the model, and what comes out through the metrics.

    Args:
        description: "Evaluation" where metrics are all that is wanted: those by name then keep no predictions.
    """
    args, keeps = trainer.settings, description != "Evaluation" or trainer.compute_metrics is None
    of_loss = not keeps and not loss_only and follows_from_loss(trainer)
    loss_only = loss_only or of_loss
    judging = Judging(trainer, args, keeps, loss_only, rows_behind(trainer, loader))
    objective, by_length = trainer.objective, loader if isinstance(loader, ByLength) else None
    trainer.engine.divide(trainer.model, trainer.given_optimizers[0])
    model = trainer.engine.unwrapped(trainer.model_wrapped)
    lockstep = evaluates_in_lockstep(trainer)  # a row alone, or half a batch, is computed by this process alone
    loop = EvaluationLoop(
        predict=lambda inputs: trainer.prediction_step(model, trainer.engine.to_device(inputs), loss_only, ignore_keys),
        count=counter_for(trainer),
        mean_over=objective.mean_over,
        events=trainer.callback_handler,
        gather={**judging.gather},
        judge=judging.of_batch,
        rows_apart=not (lockstep or objective.rows_interact),
        preprocess=trainer.preprocess_logits_for_metrics,
        main_input=getattr(trainer.model, "main_input_name", "input_ids"),
        rows_an_event=args.eval_batch_size if by_length is not None else None,
        terms=trainer.loss_terms,
        parts=partial(
            in_parts_that_fit, trainer.engine, not (lockstep or has_own_loss(trainer) or objective.rows_interact)
        ),
    )
    with in_evaluation_mode(trainer), contextlib.nullcontext() if by_length is None else by_length.computed_so():
        batches = own_batches(loader, trainer.engine.processes)
        if lockstep:
            batches = in_lockstep(batches, loader, trainer.engine.processes)
        of_process = loop.run(batches)
    loss, rows, gathered = over_processes(*of_process, judging, trainer.engine.processes)
    terms = terms_over_processes(loop.terms_seen, trainer.engine.processes)
    results = {name: collector.result() for name, collector in gathered.items()}
    own = judging.metrics(results)  # one that draws at random is another on each process
    metrics = trainer.engine.processes.from_first(lambda: own)
    if loss.value is not None:
        metrics |= {"perplexity": perplexity_of_loss(loss.value)} if of_loss else {}
        metrics[f"{prefix}_loss"] = loss.value
    metrics |= {f"{prefix}_{name}": mean for name, mean in terms.items()}
    metrics |= said_nonfinite(trainer.engine.processes.all_of(loop.nonfinite_rows), rows, description)
    metrics = prefixed(metrics, prefix)
    return EvalLoopOutput(results.get("predictions"), results.get("labels"), metrics, rows)


def said_nonfinite(found: list[list[int]], rows: int, description: str) -> dict[str, int]:
    """Says which rows give numbers that are not finite; their count, to stand beside the metrics, if there are any."""
    bad = sorted({row for of_process in found for row in of_process})
    if not bad:
        return {}
    shown = ", ".join(map(str, bad[:MOST_ROWS_SHOWN])) + (", …" if len(bad) > MOST_ROWS_SHOWN else "")
    logger.warning("%s: %d of %d rows give numbers that are not finite: row %s.", description, len(bad), rows, shown)
    return {"nonfinite_rows": len(bad)}


@contextlib.contextmanager
def in_evaluation_mode(trainer: Trainer) -> Iterator[None]:
    """The model, and an optimizer that keeps weights of its own, in evaluation; as they were afterwards."""
    optimizer = trainer.optimizer if trainer.is_in_train else None
    if optimizer is not None:
        set_training(optimizer, False)
    try:
        with in_evaluation(trainer.engine.unwrapped(trainer.model_wrapped)), torch.no_grad():
            yield
    finally:
        if optimizer is not None:
            set_training(optimizer, True)


def computed(
    trainer: Trainer, model: nn.Module, inputs: Any, loss_only: bool, ignore_keys: list[str] | None
) -> tuple[torch.Tensor | None, Any, Any]:
    """Mean loss, logits and labels of a batch, on the device; None for what there is not."""
    labels = tuple(inputs[name] for name in trainer.label_names if inputs.get(name) is not None)
    has_labels = bool(labels) or not trainer.label_names
    inputs = trainer._prepare_inputs(inputs)
    trainer.loss_terms.forget()
    with torch.no_grad(), trainer.compute_loss_context_manager():
        if loss_only and has_labels and not has_own_loss(trainer):
            loss = trainer.engine.compute(model, lambda inner: trainer.objective.compute(inner, dict(inputs), None))
            return loss.detach(), None, None
        loss, outputs = _loss_and_outputs(trainer, model, inputs, has_labels, loss_only)
    if loss_only:
        return loss, None, None
    logits = logits_of(outputs, has_labels, keys_to_ignore(getattr(trainer.model, "config", None), ignore_keys))
    if not trainer.facts.is_encoder_decoder:  # outputs of a decoder go with its labels, not with the mask
        spans = "start_positions" in trainer.label_names
        logits = without_padding(logits, inputs.get("attention_mask"), trainer.output_padding, spans)
    return loss, logits, labels[0] if len(labels) == 1 else labels or None


def _loss_and_outputs(
    trainer: Trainer, model: nn.Module, inputs: Any, has_labels: bool, loss_only: bool
) -> tuple[Any, Any]:
    """Rows without labels have outputs alone.

    Raises:
        SettingError: outputs are asked for, and the user's `compute_loss` has none.
    """
    if not has_labels:
        return None, trainer.engine.compute(model, lambda inner: native_loss(trainer).forward(inner, inputs))
    more: dict[str, Any] = {"return_outputs": True}
    if not takes(trainer.compute_loss, "return_outputs"):
        if not loss_only:
            raise SettingError(
                f"{type(trainer).__name__}.compute_loss takes no `return_outputs`, so there are no predictions to "
                "return or to compute metrics of. Write it as compute_loss(self, model, inputs, return_outputs=False, "
                "**kwargs), and return (loss, outputs) where return_outputs is True."
            )
        more = {}
    if trainer.objective.divided:  # a function that divides by the number it is told gets that of the batch
        more["num_items_in_batch"] = torch.tensor(max(1, trainer.objective.weight(counted(trainer, inputs))))
    found = trainer.engine.compute(model, lambda inner: trainer.compute_loss(inner, dict(inputs), **more))
    loss, outputs, terms = take_apart(found)
    trainer.loss_terms.note(terms)
    return loss.detach().mean(), outputs


def check_eval_data(trainer: Trainer, dataset: Any, args: Any) -> None:
    """Looks through evaluation data before the first step, so that an error does not come after hours.

    Raises:
        DataError: a row cannot be evaluated.
        SettingError: there are none, though evaluations are asked for.
    """
    if dataset is None and not overridden(trainer, "get_eval_dataloader"):
        raise SettingError(
            f"eval_strategy is {str(args.eval_strategy.value)!r}, but Trainer was given no eval_dataset. Pass one, or "
            "set eval_strategy='no'."
        )
    for key, part in datasets_of(dataset) if isinstance(dataset, Mapping) else [("", dataset)]:
        shown = f"eval_dataset[{key!r}]" if key else "eval_dataset"
        if part is not None:
            check_is_dataset(part, shown)
        if part is not None and not is_stream(part):
            check_rows(trainer, part, shown, args.eval_batch_size)


def dataset_to_evaluate(trainer: Trainer, given: Any) -> Any:
    """The dataset that an evaluation is asked for: one, the name of one, or None for the trainer's own.

    Raises:
        SettingError: there is none.
    """
    dataset = trainer.eval_dataset if given is None else given
    if isinstance(dataset, str):
        dataset = named_dataset(trainer.eval_dataset, dataset)
    if dataset is None:
        raise SettingError("Trainer: evaluation requires an eval_dataset. Pass eval_dataset=... to Trainer.")
    return dataset


def named_dataset(datasets: Any, name: str) -> Any:
    """The one of a dict of evaluation datasets that has this name. Raises `SettingError`."""
    known = list(datasets) if isinstance(datasets, Mapping) else []
    if name not in known:
        there = f"eval_dataset has {', '.join(map(repr, known))}" if known else "eval_dataset is no dict of datasets"
        raise SettingError(f"There is no evaluation dataset {name!r}: {there}.")
    return datasets[name]


def rows_behind(trainer: Trainer, loader: Any) -> int | None:
    """Rows that a loader will give; None where it does not know."""
    try:
        return trainer.num_examples(loader)
    except (TypeError, AttributeError):
        return None


def length_of(loader: Any) -> int | None:
    """Batches of a loader; None where it does not know."""
    try:
        return len(loader)
    except TypeError:
        return None
