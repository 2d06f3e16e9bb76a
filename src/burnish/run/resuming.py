"""Going on in steps of another size: a pass is gone on with at the row where the checkpoint stands."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from burnish.checkpoint.process import this_process
from burnish.checkpoint.run_manifest import FINISHED, RunManifest
from burnish.core.errors import CheckpointError, UserError
from burnish.core.processes import launcher
from burnish.core.progress import TrainerState
from burnish.data.order import Sequential, Shuffled
from burnish.data.plan import Plan
from burnish.data.sources import PlannedSource, StreamSource
from burnish.data.stream_parts import can_be_read, own_parts, refuse_uneven
from burnish.data.stream_state import has_buffer

from .data import PARTS, STEP_SIZE, Source

logger = logging.getLogger(__name__)

LAUNCHER = "launcher"
"""In the process of a manifest: who started it, where it may start it again."""

EXTRA_STEPS = "steps more than steps of this size would have been"
"""In a position: how many more steps (or fewer, below 0) the run has, since some of them had another size."""


def wanted(asked: Any, output_dir: str | Path) -> Any:
    """What `resume_from_checkpoint` means: as asked, but that a run which its launcher starts again goes on."""
    return "auto" if has_begun(Path(output_dir)) else asked


def has_begun(output_dir: Path) -> bool:
    """Whether this is a later start of the run of this folder, by the launcher that started it (torchrun with
    --max-restarts, a job that is queued again). How often it has started processes says nothing: of several machines
    only that of the failed process counts."""
    name, manifest = launcher(), None
    with contextlib.suppress(UserError):  # damaged: nothing is known of before
        manifest = RunManifest.read(output_dir)
    if name is None or manifest is None or manifest.state == FINISHED or manifest.process.get(LAUNCHER) != name:
        return False
    return {**manifest.process, LAUNCHER: name} != {**this_process(), LAUNCHER: name}


def in_steps_of_now(
    source: Source, state: TrainerState, saved: dict[str, Any] | None, position: dict[str, Any]
) -> tuple[Source, dict[str, Any] | None]:
    """The source and the saved position of a run that goes on, in steps of the size that is set now.

    Where that has changed, and the order of the rows does not depend on it, the pass goes on at the row where the
    checkpoint stands. Its next step ends where a step of the new size would end, so that every row comes once in the
    pass and all later steps are whole. `state` is brought to the place in steps of the new size, and `position` says
    how many steps the run has more or fewer for it.
    """
    if isinstance(source, StreamSource):
        return _at_its_place(source, state, saved, position), saved
    if saved is None or not isinstance(source, PlannedSource):
        return source, saved
    if saved.get(EXTRA_STEPS):
        position[EXTRA_STEPS] = saved[EXTRA_STEPS]
    plan, before, now = source.plan, saved.get(STEP_SIZE), position[STEP_SIZE]
    if before in (None, now) or not isinstance(plan, Plan) or not _order_is_free(plan):
        return source, saved
    row = state.steps_in_pass * before
    if row >= plan.num_rows:
        state.passes, row = state.passes + 1, 0
    state.steps_in_pass = row // plan.step_size
    position[EXTRA_STEPS] = state.global_step - state.passes * plan.steps_per_epoch - state.steps_in_pass
    logger.info(
        "Going on in steps of %d examples, where the checkpoint has steps of %d: from row %d of the order of pass %d.",
        *(now, before, row, state.passes + 1),
    )
    plan = replace(plan, origin=(state.passes, row))
    accepted = {name: position[name] for name in (STEP_SIZE, EXTRA_STEPS)}
    return source.changed(plan=plan), {**saved, **accepted}


def _at_its_place(
    source: StreamSource, state: TrainerState, saved: dict[str, Any] | None, position: dict[str, Any]
) -> StreamSource:
    """A stream that goes on from its own state; one that has none is read from its begin. It is read in as many parts
    as when the run began."""
    parts = (saved or {}).get(PARTS, source.parts)
    if parts != source.parts:
        _refuse_other_parts(source, parts)
        source, position[PARTS] = replace(source, parts=parts), parts
    refuse_uneven(source.dataset, parts)
    if parts > 1 and state.stream_state is not None:
        own = {str(number): state.stream_state.get(str(number)) for number in own_parts(source.share, parts)}
        state.stream_state = own
    if not state.steps_in_pass:
        return source
    states = [state.stream_state] if parts == 1 else list((state.stream_state or {"": None}).values())
    if None in states:
        why = " (the rows in the buffer of a shuffle are in no state)" if has_buffer(source.dataset) else ""
        logger.warning("The stream does not say its place%s: the rows of the %d steps before are read again and left "
                       "out.", why, state.steps_in_pass)  # fmt: skip
    return replace(source, saved=((state.passes, state.steps_in_pass), state.stream_state))


def _refuse_other_parts(source: StreamSource, parts: int) -> None:
    """
    Raises:
        CheckpointError: so many parts cannot be read by the processes of now in the steps of before.
    """
    count = source.share.count
    if not can_be_read(parts, count):
        raise CheckpointError(
            f"The checkpoint is of a stream in {parts} parts, each read by one process (split_stream), and there are "
            f"{count} processes. Start {parts}, or a number that divides it or is a multiple of it, with the same "
            "examples a step; or start a new run from the weights of the checkpoint."
        )
    if source.drop_last and parts > 1:
        raise CheckpointError(
            f"The checkpoint is of a stream in {parts} parts, each read by one process (split_stream), and there are "
            f"{count} processes: with dataloader_drop_last=True other rows would be left out. Start {parts}."
        )


def _order_is_free(plan: Plan) -> bool:
    """Whether the order of the rows of a pass, and which of them are in it, does not depend on the size of steps."""
    return isinstance(plan.order, (Sequential, Shuffled)) and not plan.drop_last
