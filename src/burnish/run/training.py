"""One training run: everything that the loop needs, at the place where the run starts or goes on."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.lr_scheduler import LambdaLR

from burnish.callbacks.flow import cadences_of
from burnish.checkpoint import background, find, in_use, restore, run_id, weights
from burnish.core import run_clock
from burnish.core.divided import put_away
from burnish.core.errors import SettingError
from burnish.core.progress import TrainerControl, TrainerState
from burnish.core.protocols import StopRequest
from burnish.core.types import MicroBatch, Step
from burnish.engines import setup
from burnish.loop.agreement import Agreement
from burnish.loop.memory import MemoryLimit
from burnish.loop.nonfinite import NonFiniteWatch, nonfinite_rows
from burnish.loop.step import Backward, StepRunner
from burnish.loop.training import TrainingLoop
from burnish.loop.window import LossWindow
from burnish.models.contract import without_adapters
from burnish.models.flops import flops_per_token
from burnish.optim.coverage import check_moves
from burnish.optim.neftune import noisy_embeddings
from burnish.optim.optimizers import set_training

from . import engine_state, hub
from .actions import RunActions
from .data import Source, length_of_run, position_of, source_for
from .dry_evaluation import check_best_metric
from .evaluation import check_eval_data
from .hooks import overridden, takes, trains_in_lockstep
from .length_order import Tried
from .loss import counter_for, objective_for
from .resuming import EXTRA_STEPS, in_steps_of_now, wanted
from .saving import Saving
from .settling import Settled, settle
from .time_limit import clock_of, put_at_its_place, stop_before_the_first_step

if TYPE_CHECKING:
    from burnish.trainer import Trainer

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def made_ready(trainer: Trainer, args: Any) -> Iterator[contextlib.ExitStack]:
    """The model as the settings want it in training, and a stack for what follows; all of it taken back at the end.

    Raises:
        HubError: what is saved is to be uploaded, and cannot be.
    """
    recomputing = bool(args.gradient_checkpointing)
    with (
        trainer.recording.ending(trainer, args),
        setup.tf32(args.tf32),
        setup.determinism(args.full_determinism),
        setup.gradient_checkpointing(trainer.model, recomputing, args.gradient_checkpointing_kwargs),
        noisy_embeddings(trainer.model, args.neftune_noise_alpha),
        contextlib.ExitStack() as ready,
    ):
        hub.begin(trainer, args, ready)
        yield ready


def prepare(
    trainer: Trainer,
    args: Any,
    resume: str | bool | None,
    ready: contextlib.ExitStack,
    stop: StopRequest,
    ignore_keys: list[str] | None,
) -> TrainingLoop:
    """A loop that is ready to run. What is changed for the run alone is put on `ready`.

    Raises:
        DataError: the data cannot be trained on.
        CheckpointError: the checkpoint is missing, damaged, or of other data.
    """
    begun = run_clock.now()
    background.wait_for_all()
    processes, asked = trainer.engine.processes, args.resume_from_checkpoint if resume is None else resume
    checkpoint = processes.from_first(lambda: find.resolve(wanted(asked, args.output_dir), args.output_dir))
    source = source_for(trainer, args)
    if str(args.eval_strategy.value) != "no" or args.eval_on_start:
        check_eval_data(trainer, trainer.eval_dataset, args)
    _new_state(trainer, checkpoint, source)
    position = position_of(trainer, args, source)
    saved = None if checkpoint is None else restore.read_position(checkpoint)
    source, saved = in_steps_of_now(source, trainer.state, saved, position)
    max_steps, num_epochs = length_of_run(args, source)
    if args.max_steps <= 0:
        max_steps += position.get(EXTRA_STEPS, 0)
    _new_optimizer(trainer, max_steps)
    trainer.state.max_steps, trainer.state.num_train_epochs = max_steps, num_epochs
    trainer.state.train_batch_size = args.train_batch_size
    clock = clock_of(trainer, args, begun)
    cadences = cadences_of(args, max_steps, clock)
    cadences.fill(trainer.state)
    if checkpoint is not None:
        restore.refuse_if_changed(checkpoint, saved, position)
        with in_use.held(checkpoint):
            _restore(trainer, checkpoint)
        engine_state.announce(trainer, args, checkpoint, ready)
        stop_before_the_first_step(clock, trainer.state, trainer.control)
    run = processes.from_first(lambda: run_id.new_run_id() if checkpoint is None else run_id.run_of(checkpoint))
    trainer.recording.begin(trainer, args, run, position, checkpoint)
    check_best_metric(trainer, args)
    settled = _settle(trainer, args, source, ready)
    if checkpoint is not None:
        engine_state.restore_parts(trainer, checkpoint)
    saving = Saving(trainer, args, position, run, clock)
    runner = _runner(trainer, args, settled)
    return TrainingLoop(
        source=settled.source,
        runner=runner,
        window=LossWindow(trainer.engine.device, trainer.state, trainer.engine.processes),
        state=trainer.state,
        control=trainer.control,
        rhythm=cadences,
        events=trainer.callback_handler,
        actions=RunActions(trainer, args, saving, clock, ignore_keys),
        stop=stop,
        agreement=_agreement(trainer, runner, stop),
    )


def _settle(trainer: Trainer, args: Any, source: Source, ready: contextlib.ExitStack) -> Settled:
    """Finds out in which ways the model can be computed, and makes it ready to be computed so."""
    settled = settle(trainer, args, source, objective_for(trainer))
    trainer.objective = settled.objective
    trainer.tried = Tried(trainer.model, settled.padding_free is not None)
    if settled.padding_free is not None:
        ready.enter_context(settled.padding_free.on())
    if not args.torch_compile and not _sees_gradients(trainer):
        ready.enter_context(trainer.engine.touching_few_rows())
    _wrap(trainer, args, ready)
    return settled


def _wrap(trainer: Trainer, args: Any, ready: contextlib.ExitStack) -> None:
    """The model as it is called in training: compiled, and wrapped by the engine.

    Raises:
        SettingError: gradients are asked for in the backward pass and afterwards.
    """
    model = trainer.model
    if args.optim_in_backward and overridden(trainer, "training_step"):
        raise SettingError(
            "optim_in_backward=True, and `training_step` is overridden: after its first backward pass weights are "
            "updated, whatever it has left to do. Set optim_in_backward=False, or override `compute_loss` instead."
        )
    ready.enter_context(trainer.engine.updating())
    if args.torch_compile:
        model = setup.compiled(model, args.torch_compile_backend, args.torch_compile_mode)
    trainer.model_wrapped = trainer.engine.wrapped(model)
    _in_training_mode(trainer)


def _agreement(trainer: Trainer, runner: StepRunner, stop: StopRequest) -> Agreement:
    def free_callbacks() -> bool:
        roots = {type(one).__module__.partition(".")[0] for one in trainer.callback_handler.callbacks}
        return not roots <= {"burnish", "transformers"}

    processes = trainer.engine.processes
    return Agreement(runner.work_of, _flops_of(trainer), stop, processes, runner.watch.seen_bad, free_callbacks)


def _in_training_mode(trainer: Trainer) -> None:
    """An adapter's wrapper is in training mode from the start, the model inside may come in evaluation mode. Parts
    of a model in training mode that a user keeps in evaluation stay there."""
    if not without_adapters(trainer.model).training:
        trainer.model_wrapped.train()


def _sees_gradients(trainer: Trainer) -> bool:
    """Whether code that is not torch's may change gradients before they are applied: a user's, or an optimizer's."""
    if overridden(trainer, "training_step") or not type(trainer.optimizer).__module__.startswith("torch.optim"):
        return True
    return any(map(trainer.callback_handler.listens, ("on_pre_optimizer_step", "on_substep_end")))


def _flops_of(trainer: Trainer) -> Callable[[Step], float]:
    """Floating-point operations of a step: by the user's estimate where there is one."""
    if overridden(trainer, "floating_point_ops"):
        return lambda step: sum(trainer.floating_point_ops(batch.inputs) for batch in step.micro_batches)
    per_token = flops_per_token(trainer.model)
    return lambda step: per_token * step.num_tokens


def _new_optimizer(trainer: Trainer, max_steps: int) -> None:
    """A fresh optimizer and schedule, but for those that the user gave."""
    put_away(trainer.model)  # an optimizer of weights that an evaluation has left gathered would move copies alone
    trainer.optimizer, trainer.lr_scheduler = trainer.given_optimizers
    trainer.create_optimizer_and_scheduler(max_steps)
    assert trainer.optimizer is not None, "create_optimizer must set self.optimizer"
    check_moves(trainer.optimizer, trainer.model, trainer.engine.precision.scaler is not None)
    set_training(trainer.optimizer, True)
    trainer.engine.attach(trainer.model, trainer.optimizer)
    trainer.callback_handler.optimizer = trainer.optimizer
    trainer.callback_handler.lr_scheduler = trainer.lr_scheduler


def _new_state(trainer: Trainer, checkpoint: Path | None, source: Source) -> None:
    state = TrainerState() if checkpoint is None else restore.read_state(checkpoint)
    if source.steps_per_epoch and not state.passes and not state.steps_in_pass:
        # a checkpoint of another trainer knows the step alone
        state.passes, state.steps_in_pass = divmod(state.global_step, source.steps_per_epoch)
    trainer.state, trainer.control = state.on(trainer.engine.processes), TrainerControl()
    trainer.callback_handler.state, trainer.callback_handler.control = trainer.state, trainer.control


def _restore(trainer: Trainer, checkpoint: Path) -> None:
    """Weights, optimizer, schedule and callbacks as they were at the checkpoint."""
    weights.load_weights(trainer.model, checkpoint)
    restore.find_best(trainer.state, checkpoint)
    scheduler, state = trainer.lr_scheduler, trainer.state
    follows_step = isinstance(scheduler, LambdaLR)
    optimizer = trainer.optimizer if trainer.engine.state_folder is None else None
    undivided = None if optimizer is None else engine_state.undivided(trainer, checkpoint)
    restore.restore_optimizer(
        checkpoint, optimizer, None if follows_step else scheduler, trainer.engine.precision.scaler, undivided
    )
    if follows_step:
        put_at_its_place(scheduler, state)
    _restore_callbacks(trainer.callback_handler.callbacks, state.stateful_callbacks)
    logger.info("Going on from %s, step %d of %d.", checkpoint, state.global_step, state.max_steps)
    if state.global_step >= state.max_steps:
        logger.warning(
            "Nothing is left to train: %s is at step %d, and this run has %d. Set num_train_epochs or max_steps "
            "higher to train on.",
            checkpoint,
            state.global_step,
            state.max_steps,
        )


def _restore_callbacks(callbacks: list[Any], states: dict[str, Any]) -> None:
    """Gives callbacks what they remembered. What they were built with stays that of now."""
    seen: dict[str, int] = {}
    for callback in callbacks:
        name = type(callback).__name__
        saved = states.get(name)
        if isinstance(saved, list):
            seen[name] = seen.get(name, -1) + 1
            saved = saved[seen[name]] if seen[name] < len(saved) else None
        for attribute, value in (saved or {}).get("attributes", {}).items():
            setattr(callback, attribute, value)


def _runner(trainer: Trainer, args: Any, settled: Settled) -> StepRunner:
    objective, engine, assembly = trainer.objective, trainer.engine, settled.assembly
    watch = NonFiniteWatch(
        str(args.nonfinite_policy.value),
        engine.device,
        lambda step: _nonfinite_rows(trainer, step),
        engine.processes,
        bool(args.optim_in_backward),
    )
    backward = (
        _users_backward(trainer)
        if any(overridden(trainer, method) for method in ("training_step", "_prepare_inputs"))
        else _backward(trainer)
    )
    limit = MemoryLimit(None if assembly.budget is None else assembly.counted)
    model, events = engine.unwrapped(trainer.model_wrapped), trainer.callback_handler
    own: dict[str, Any] = {"limit": limit, "terms": trainer.loss_terms, "spare": settled.spare}
    own["lockstep"] = trains_in_lockstep(trainer)
    return StepRunner(model, objective, engine, events, watch, backward, args.seed, **own)


def _nonfinite_rows(trainer: Trainer, step: Step) -> list[int] | None:
    if trainer.engine.lockstep:
        return None  # a row alone is a forward pass in which all processes would have to take part
    with trainer.compute_loss_context_manager():  # what overflows in half precision may be finite in full
        together = trainer.engine.processes if trains_in_lockstep(trainer) else None
        return nonfinite_rows(trainer.model, trainer.objective, trainer.engine, step, counter_for(trainer), together)


def _backward(trainer: Trainer) -> Backward:
    """Loss and gradient of a micro-batch by the objective."""
    model, objective, engine = trainer.model_wrapped, trainer.objective, trainer.engine

    def backward(batch: MicroBatch, num_targets: float) -> torch.Tensor:
        with trainer.compute_loss_context_manager():
            loss = engine.compute(model, lambda inner: objective.step_loss(inner, batch, num_targets))
        trainer.loss_terms.add(objective.weight(batch) / num_targets)
        engine.backward(loss)
        return loss.detach().float()

    return backward


def _users_backward(trainer: Trainer) -> Backward:
    """Loss and gradient of a batch by an overridden `training_step`."""
    gives_number = takes(trainer.training_step, "num_items_in_batch")
    in_vain = _backward(trainer)

    def backward(batch: MicroBatch, num_targets: float) -> torch.Tensor:
        if math.isinf(num_targets) and not trainer.engine.lockstep:  # a user's step may divide by something else
            return in_vain(replace(batch, inputs=trainer._prepare_inputs(batch.inputs)), num_targets)
        trainer.current_gradient_accumulation_steps = num_targets / trainer.objective.weight(batch)
        number = (_as_number(num_targets, trainer.engine.device),) if gives_number else ()
        trainer.loss_terms.forget()
        loss = trainer.training_step(trainer.model_wrapped, batch.inputs, *number)
        trainer.loss_terms.add(trainer.objective.weight(batch) / num_targets)
        return loss.detach().float()

    return backward


def _as_number(num_targets: float, device: torch.device) -> torch.Tensor:
    """A whole number on the device, where it is one."""
    return torch.tensor(num_targets if math.isinf(num_targets) else int(num_targets), device=device)
