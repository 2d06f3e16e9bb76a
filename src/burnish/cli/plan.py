"""What a run is about to do, said before its first step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from burnish.core.errors import DataError, SettingError, UserError

if TYPE_CHECKING:
    from burnish.data.packing import Bins

Pair = tuple[str, str]


@dataclass(frozen=True)
class Length:
    """How long a run is, in optimizer steps."""

    steps_per_epoch: int
    num_steps: int
    num_epochs: float


def length_of(num_rows: int, arguments: Any) -> Length:
    """Raises `DataError` or `SettingError` where not one step can be made."""
    from burnish.data.order import Sequential
    from burnish.data.plan import Plan

    batch_size, drop_last = arguments.train_batch_size * arguments.world_size, arguments.dataloader_drop_last
    steps = Plan(num_rows, batch_size, arguments.gradient_accumulation_steps, Sequential(num_rows), drop_last)
    if steps.steps_per_epoch == 0:
        rows = "bins of training rows" if arguments.packing else "training rows"
        raise DataError(
            f"{num_rows} {rows} are fewer than a batch of {batch_size}, and dataloader_drop_last drops what is "
            "no whole batch. Set a smaller per_device_train_batch_size, or leave dataloader_drop_last out."
        )
    if arguments.max_steps > 0:
        return Length(steps.steps_per_epoch, arguments.max_steps, arguments.max_steps / steps.steps_per_epoch)
    num_steps = math.ceil(arguments.num_train_epochs * steps.steps_per_epoch)
    if num_steps == 0:
        raise SettingError("--num_train_epochs 0 takes no step. Set it above 0; to evaluate only, give --do_eval.")
    return Length(steps.steps_per_epoch, num_steps, float(arguments.num_train_epochs))


def plan(settings: Any, run: Any, arguments: Any, chosen: Mapping[str, Any], trains: bool) -> list[Pair]:
    """(what, value) pairs: the task, the data, the steps, the model.

    Args:
        settings: the `Settings` of the command.
        run: the `TaskRun` that the recipe made.
        arguments: the training arguments.
        chosen: settings that the command chose, to be said.
        trains: False for a run that only evaluates or predicts.
    """
    pairs = _about_task(settings, run)
    if trains:
        pairs += _training(run, arguments)
    pairs += [("parameters", parameters(run.model)), ("device", device(arguments))]
    if trains and chosen:
        pairs.append(("evaluation", _chosen(chosen)))
    return [*pairs, ("output", str(settings.output_dir))]


def _about_task(settings: Any, run: Any) -> list[Pair]:
    """What the recipe found out, with model and rows after the task."""
    said = {what.lower() for what, _ in run.notes}
    notes = list(run.notes) if "task" in said else [("task", settings.task), *run.notes]
    ours = [("model", settings.model.model_name_or_path), ("examples", examples(run))]
    return [notes[0], *(pair for pair in ours if pair[0] not in said and pair[1]), *notes[1:]]


def examples(run: Any) -> str:
    """How many rows there are for what."""
    rows = ((run.train_dataset, "train"), (run.eval_dataset, "evaluate"), (run.predict_dataset, "predict"))
    return ", ".join(f"{len(dataset):,} to {verb}" for dataset, verb in rows if dataset is not None)


def _chosen(chosen: Mapping[str, Any]) -> str:
    """The settings that the command chose, a few to a line."""
    said = [f"{name} {_plain(value)}" for name, value in chosen.items()]
    lines = [", ".join(said[i : i + 3]) for i in range(0, len(said), 3)]
    return ",\n".join(lines)


def _training(run: Any, arguments: Any) -> list[Pair]:
    bins = _bins(run, arguments)
    length = length_of(len(run.train_dataset if bins is None else bins), arguments)
    epochs = f"{length.num_epochs:.3g} epoch{'s' if length.num_epochs != 1 else ''}"
    return [
        ("steps", f"{length.num_steps:,} ({epochs} of {length.steps_per_epoch:,})"),
        ("batch", batch(arguments)),
        *([] if bins is None else [("packing", _packing(bins))]),
        ("learning rate", learning_rate(arguments, length.num_steps)),
    ]


def _bins(run: Any, arguments: Any) -> Bins | None:
    from burnish.data.packing import bins_of

    if not arguments.packing:
        return None
    reads_labels = bool(getattr(run.model.config, "is_encoder_decoder", False))
    return bins_of(run.train_dataset, arguments.packing_length, reads_labels, arguments.length_column_name)


def _packing(bins: Bins) -> str:
    return f"{len(bins.lengths):,} rows in {len(bins):,} bins of {bins.size:,} tokens, {bins.filled:.1%} filled"


def batch(arguments: Any) -> str:
    """Examples or bins of a step, and how they come together where that is more than one number."""
    parts = [arguments.train_batch_size, arguments.gradient_accumulation_steps, arguments.world_size]
    product = " × ".join(str(part) for part in parts if part > 1)
    each = "bins" if arguments.packing else "examples"
    return f"{math.prod(parts)} {each} a step" + (f" ({product})" if "×" in product else "")


def learning_rate(arguments: Any, num_steps: int) -> str:
    """The rate, its schedule and the optimizer."""
    schedule, optimizer = _plain(arguments.lr_scheduler_type), _plain(arguments.optim)
    warmup = f", {arguments.get_warmup_steps(num_steps)} steps of warm-up" if arguments.warmup_steps else ""
    return f"{arguments.learning_rate:g} ({schedule}{warmup}; {optimizer})"


def parameters(model: Any) -> str:
    """How many are trained, of how many. Raises `UserError` for none."""
    from burnish.core.zero_parts import num_elements

    total = sum(num_elements(p) for p in model.parameters())
    trained = sum(num_elements(p) for p in model.parameters() if p.requires_grad)
    if not trained:
        raise UserError("No parameter of the model is trainable: every one has requires_grad False.")
    return f"{trained:,}" if trained == total else f"{trained:,} trained of {total:,} ({trained / total:.2%})"


def device(arguments: Any) -> str:
    """Where and in which precision it is computed, by how many processes, and what divides the model among them."""
    from burnish.core.zero_settings import read, stage_of

    precision = "bf16" if arguments.bf16 else "fp16" if arguments.fp16 else "fp32"
    count = arguments.world_size
    said = [f"{arguments.device} ({precision})", *([f"{count} processes"] if count > 1 else [])]
    if arguments.fsdp:
        said.append(f"FSDP {arguments.fsdp}")
    if arguments.deepspeed:
        said.append(f"DeepSpeed ZeRO {stage_of(read(arguments.deepspeed))}")
    return ", ".join(said)


def _plain(value: Any) -> str:
    return str(getattr(value, "value", value))
