"""Checkpoints of a run: written behind the training, made known at the end of a step."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from burnish.checkpoint import copies, layout, rehearsal, retention, store, together
from burnish.checkpoint.background import BackgroundWriter
from burnish.checkpoint.position import PARTS
from burnish.core.errors import CheckpointError, UnsavedError
from burnish.core.progress import stateful
from burnish.core.run_clock import RunClock
from burnish.data.stream_parts import states_of_all
from burnish.evaluation.best import metric_key

from . import engine_state
from .hooks import overridden, takes

if TYPE_CHECKING:
    from burnish.trainer import Trainer

logger = logging.getLogger(__name__)

T = TypeVar("T")

Best = tuple[float | None, int | None, str | None]
"""Metric, step and checkpoint of the best evaluation."""


@dataclass(frozen=True)
class Pending:
    """A checkpoint that is being written."""

    step: int
    epoch: float
    best: Best | None
    """What is the best once it stands, where it is the best."""


class Saving:
    """Writes the checkpoints of one run of a trainer, on its first process; of a divided model, on all of them.

    With `save_async` the training waits for a copy in the host's memory only, where a checkpoint is not small. One is
    written at a time; how it went is said by `look`, in the thread of the training.

    Args:
        args: the settings as they were when the run began.
        position: what the place in the data depends on, saved with each checkpoint.
        run_id: names the run in its checkpoints.
        clock: is told how long a save takes.
    """

    def __init__(self, trainer: Trainer, args: Any, position: dict[str, Any], run_id: str, clock: RunClock) -> None:
        self.trainer, self.args, self.position, self.run_id = trainer, args, position, run_id
        self.processes = trainer.engine.processes
        self.clock = clock
        self.keeps_best = bool(args.load_best_model_at_end) or str(args.save_strategy.value) == "best"
        """Whether every new best is saved, so that the best is always one that is on the disk."""
        self.output_dir = Path(args.output_dir)
        self.failed: CheckpointError | None = None
        """Why the latest checkpoint is missing; None where it is there."""
        self._memory, self._memory_of_part = copies.HostMemory(), copies.HostMemory()
        self._writer = BackgroundWriter()
        self._not_begun: CheckpointError | None = None
        self._pending: Pending | None = None
        self._begun: together.Begun | None = None
        """The checkpoint that is being written, where it is a work of all processes."""
        self._last: int | None = None
        self._best_on_disk = self._best
        self._streams: dict[str, Any] | None = None

    @property
    def _best(self) -> Best:
        state = self.trainer.state
        return state.best_metric, state.best_global_step, state.best_model_checkpoint

    def try_out(self) -> None:
        """Before the first step, where checkpoints are to be written: finds what could not be saved.

        Raises:
            CheckpointError: a part of the run cannot be saved, or nothing can be written to the folder.
        """
        args = self.args
        if str(args.save_strategy) != "no" or args.save_minutes is not None or args.max_time is not None:
            self.processes.from_first(lambda: rehearsal.rehearse(self.output_dir, self._snapshot(None)))

    def save(self) -> None:
        """Begins to write a checkpoint, once the one before is written. A failure is told, not raised."""
        self.look(wait=True)
        self._writer.take()  # a part of a checkpoint that was given up may still be written
        state = self.trainer.state
        target = self.output_dir / layout.folder_name(state.global_step)
        is_best = state.best_global_step == state.global_step
        if self._last == state.global_step and (not is_best or state.best_model_checkpoint == str(target)):
            return
        best = (state.best_metric, state.best_global_step, str(target)) if is_best else None
        self._last, self._pending = state.global_step, Pending(state.global_step, state.epoch, best)
        self.clock.save_begins()
        self._streams = self._states_of_parts()
        try:
            if engine_state.is_divided(self.trainer.engine):
                is_behind = self._begin_together(target, best)
            else:
                is_behind = self.processes.index > 0 or self._begin(target, best)
        except BaseException:  # an interrupt, or another process is gone: nothing was written
            self._last = self._pending = self._begun = None
            raise
        self.look(wait=any(self.processes.all_of(not is_behind or self._somebody_acts_on_saves())))

    def _begin(self, target: Path, best: Best | None) -> bool:
        """Writes a checkpoint, or begins to; whether it is written behind the training."""
        try:
            with store.told_as(target):
                snapshot = self._snapshot(best)
                held = self._held(snapshot)
            work = partial(self._write, held or snapshot, self._retention(), self._kept(best))
            if held is not None:
                self._writer.start(work)
            else:
                work()
        except CheckpointError as error:
            self._not_begun = error
            return False
        return held is not None

    def _begin_together(self, target: Path, best: Best | None) -> bool:
        """Begins a checkpoint that is a work of all processes, or writes it; whether it is written behind."""
        snapshot = self._snapshot(best)
        begun = together.begin(target, snapshot, self.processes, engine_state.Parts(self.trainer, snapshot))
        if isinstance(begun, CheckpointError):
            self._not_begun = begun
            return False
        held = self._held_part(begun)
        self._begun = held or begun
        seal = partial(self._seal, self._begun, self._retention(), self._kept(best))
        if all(self.processes.all_of(held is not None)):
            self._writer.start(seal)
            return True
        try:
            self._begun.write_part()
            self._begun.tell(wait=True)
            seal()
        except CheckpointError as error:
            self._not_begun = error
        return False

    def _seal(self, begun: together.Begun, stays: retention.Retention, always: set[Path]) -> None:
        """Writes what this process has to write of a checkpoint of all."""
        begun.write_part()
        if self.processes.index == 0:
            store.write(self.output_dir, begun.snapshot.state.global_step, begun.snapshot, begun.folder, begun.of_all)
            retention.prune(self.output_dir, stays, always, self.run_id)

    def look(self, wait: bool = False) -> None:
        """Makes known what has become of the checkpoint that was being written, if it has come to its end. The first
        process knows, and tells the others.

        Args:
            wait: for the end.
        """
        if self._pending is None:
            return
        if self._begun is not None and not self._begun.tell(wait):
            return
        has_ended, error = self.processes.from_first(lambda: self._outcome(wait))
        if has_ended:
            self._ended(error)

    def let_end(self) -> None:
        """The run fails: waits for the checkpoint that this process is writing."""
        if self._pending is not None and self.processes.index == 0:
            self._ended(self._outcome(wait=True)[1])
        self._writer.take()

    def _outcome(self, wait: bool) -> tuple[bool, CheckpointError | None]:
        """Whether the write has ended, and why it failed where it did."""
        if not wait and self._writer.at_work:
            return False, None
        error = self._not_begun or self._writer.take()
        self._not_begun = None
        return True, error if error is None or isinstance(error, CheckpointError) else CheckpointError(str(error))

    def finish(self) -> None:
        """Waits for the end of the write; where the last one failed, the state of now is written once more."""
        self.look(wait=True)
        if self.failed is not None:
            logger.warning("The last checkpoint was not saved; it is tried once more.")
            self.save()
            self.look(wait=True)

    def rotate(self) -> None:
        """Deletes what was to go, and was being read when it was."""
        if self.processes.index == 0:
            retention.prune(self.output_dir, self._retention(), self._kept(None), self.run_id)

    def refuse_unsaved(self) -> None:
        """At the very end.

        Raises:
            UnsavedError: the last checkpoint could not be written, and not when it was tried again either.
        """
        if self.failed is None:
            return
        raise UnsavedError(
            f"The training has ended, and its last state could not be written: {self.failed} The weights are still in "
            "trainer.model: write them elsewhere with trainer.save_model('another/folder'). Or make room and go on "
            f"from the last good checkpoint in {self.output_dir}: trainer.train(resume_from_checkpoint='auto')."
        ) from self.failed

    def _ended(self, error: CheckpointError | None) -> None:
        pending, self._pending, self._begun = self._pending, None, None
        assert pending is not None
        self.clock.save_ended()
        state = self.trainer.state
        if error is not None:
            self.failed = error
            self._last = None
            if pending.best is not None and self.keeps_best:
                state.best_metric, state.best_global_step, state.best_model_checkpoint = self._best_on_disk
            logger.error("checkpoint-%d was not saved: %s Training goes on.", pending.step, error)
            return
        self.failed = None
        if pending.best is not None:
            state.best_model_checkpoint, self._best_on_disk = pending.best[2], pending.best
        with self._as_saved(pending):
            self.trainer.callback_handler.fire("on_save")

    @contextlib.contextmanager
    def _as_saved(self, pending: Pending) -> Iterator[None]:
        """The step of the checkpoint in the state that callbacks see: they make its folder's name of it."""
        state = self.trainer.state
        now = state.global_step, state.epoch
        state.global_step, state.epoch = pending.step, pending.epoch
        try:
            yield
        finally:
            state.global_step, state.epoch = now

    def _somebody_acts_on_saves(self) -> bool:
        """Whether a callback of the user's own hears of saves. It may write the model into the folder, or look at it,
        so it hears of a save before the next step."""
        listeners = self.trainer.callback_handler.listeners("on_save")
        return any(type(one).__module__.partition(".")[0] not in ("burnish", "transformers") for one in listeners)

    def _held(self, snapshot: store.Snapshot) -> store.Snapshot | None:
        """A copy to write behind the training; None where it is to be written before the training goes on."""
        if not self._can_be_held(snapshot) or not copies.is_worth_it(snapshot):
            return None
        return self._copied(lambda: copies.held(snapshot, self._memory))

    def _held_part(self, begun: together.Begun) -> together.Begun | None:
        """The same of a checkpoint of all processes. Of what is not divided the first one has a copy."""
        if not self._can_be_held(begun.snapshot) or begun.bytes < copies.WORTH_A_COPY:
            return None

        def copied() -> together.Begun:
            snapshot = begun.snapshot
            if self.processes.index == 0:
                snapshot = copies.held(snapshot, self._memory)
            return replace(begun.copied(self._memory_of_part), snapshot=snapshot)

        return self._copied(copied)

    def _can_be_held(self, snapshot: store.Snapshot) -> bool:
        return self.args.save_async and copies.can_be_held(snapshot)

    def _copied(self, copy: Callable[[], T]) -> T | None:
        """None where there is no copy, for want of memory above all: what else keeps it from being made is met again,
        and told, when it is written."""
        try:
            return copy()
        except Exception as error:
            self._memory, self._memory_of_part = copies.HostMemory(), copies.HostMemory()
            logger.warning(
                "checkpoint-%d is written before the training goes on: there is no copy of it (%s).",
                *(self.trainer.state.global_step, error),
            )
            return None

    def _write(self, snapshot: store.Snapshot, stays: retention.Retention, always: set[Path]) -> None:
        store.write(self.output_dir, snapshot.state.global_step, snapshot)
        retention.prune(self.output_dir, stays, always, self.run_id)

    def _kept(self, best: Best | None) -> set[Path]:
        """What stays in any case: the checkpoint of the best evaluation, which may be the one that is written."""
        kept = best[2] if best else self.trainer.state.best_model_checkpoint
        return {Path(kept)} if kept else set()

    def _retention(self) -> retention.Retention:
        """What stays, by the evaluations so far."""
        args = self.args
        return retention.Retention(
            total=args.save_total_limit,
            last=args.keep_last,
            best=args.keep_best,
            every_steps=args.keep_every_steps,
            every_minutes=args.keep_every_minutes,
            metrics=self._evaluated() if args.keep_best else {},
            greater_is_better=bool(args.greater_is_better),
        )

    def _evaluated(self) -> dict[int, float]:
        """The metric by which evaluations are compared, by step, from the history of the run."""
        name = metric_key(self.args.metric_for_best_model)
        return {entry["step"]: float(entry[name]) for entry in self.trainer.state.log_history if name in entry}

    def is_among_the_best(self) -> bool:
        """Whether the weights of now are to be kept as one of the `keep_best`, by the evaluation that was just made.
        What they are compared with is on the disk, so that a checkpoint that failed leaves its place to another."""
        if not self.args.keep_best:
            return False
        now = self.output_dir / layout.folder_name(self.trainer.state.global_step)
        others = self.processes.from_first(lambda: retention.of_run(self.output_dir, self.run_id))
        return now in self._retention().by_metric([*others, now])[: self.args.keep_best]

    def _states_of_parts(self) -> dict[str, Any] | None:
        """Of a stream in parts, the states of all: each process knows those of its own."""
        own = self.trainer.state.stream_state
        if self.position.get(PARTS, 1) == 1 or self.processes.count == 1:
            return own  # type: ignore[no-any-return]
        return states_of_all(map(json.loads, self.processes.all_of(json.dumps(own))))

    def _snapshot(self, best: Best | None) -> store.Snapshot:
        trainer = self.trainer
        state = replace(trainer.state, stream_state=self._streams)
        if best:
            state.best_model_checkpoint = best[2]
        trainer.state.stateful_callbacks = state.stateful_callbacks = stateful(
            [*trainer.callback_handler.callbacks, trainer.control]
        )
        return store.Snapshot(
            model=trainer.model,
            processing_class=trainer.processing_class,
            optimizer=None if engine_state.is_divided(trainer.engine) else trainer.optimizer,
            scheduler=trainer.lr_scheduler,
            scaler=trainer.engine.precision.scaler,
            state=state,
            settings=self.args.to_dict(),
            position=self.position,
            run_id=self.run_id,
            only_model=self.args.save_only_model,
            write_model=self._write_model if overridden(trainer, "save_model") else None,
        )

    def _write_model(self, folder: Path) -> None:
        """By the user's own `save_model`."""
        save_model: Callable[..., None] = self.trainer.save_model
        if takes(save_model, "_internal_call"):
            save_model(str(folder), _internal_call=True)
        else:
            save_model(str(folder))
