"""The manifest of a run: filled in when it begins, completed when it ends."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from burnish.arguments.origins import with_origins
from burnish.callbacks.flow import OUT_OF_TIME
from burnish.checkpoint.manifest import versions
from burnish.checkpoint.process import this_process
from burnish.checkpoint.run_manifest import FAILED, FINISHED, RUNNING, STOPPED, RunManifest, now
from burnish.core.divided import class_of
from burnish.core.processes import launcher
from burnish.core.progress import TrainerState
from burnish.core.secrets import hidden_in_text
from burnish.core.zero_parts import num_elements
from burnish.loop.signals import signal_of
from burnish.models.fingerprint import fingerprint
from burnish.tracking import surroundings
from burnish.tracking.values import record, split_of

from .data import CONTENT, ROWS
from .resuming import LAUNCHER

if TYPE_CHECKING:
    from burnish.trainer import Trainer

logger = logging.getLogger(__name__)

MOST_LETTERS = 500
"""Of the reason why a run failed."""


class Recording:
    """Keeps `run.json` of a trainer's runs, on the first process.

    Args:
        known: what whoever drives the trainer knows of the next run (command, settings and their origins, data files).
            Its ending is then theirs to tell, with `closing`, since more comes after the training.
    """

    def __init__(self, known: RunManifest | None = None) -> None:
        self.known = known
        self._manifest: RunManifest | None = None
        self._folder = Path()
        self._begun = 0.0
        self._seconds_before = 0.0

    def begin(self, trainer: Trainer, args: Any, run_id: str, position: Mapping[str, Any], origin: Path | None) -> None:
        """Writes the manifest of a run that begins, or goes on from the checkpoint `origin`, on the first process.

        Raises:
            OSError: the folder of the run cannot be written to.
        """
        model = _model(trainer)
        if not trainer.is_world_process_zero():
            return
        self._folder, self._begun, self._seconds_before = Path(args.output_dir), time.monotonic(), 0.0
        manifest = self.known or of_script(args)
        manifest.run_id, manifest.state, manifest.reason, manifest.ended = run_id, RUNNING, None, None
        manifest.started, manifest.resumed, manifest.result = now(), [], {}
        manifest.max_steps, manifest.process = trainer.state.max_steps, this_process()
        if launcher() is not None:
            manifest.process[LAUNCHER] = launcher()
        manifest.folder = manifest.folder or os.getcwd()
        manifest.git = surroundings.git_state(Path(manifest.script).parent if manifest.script else Path.cwd())
        manifest.versions, manifest.hardware = versions(), surroundings.hardware()
        manifest.hardware |= {"device": str(trainer.engine.device), "processes": trainer.engine.num_processes}
        manifest.data |= _datasets(trainer, position)
        manifest.model = model
        if origin is not None:
            self._go_on(manifest, trainer.state.global_step, origin)
        self._manifest = manifest
        manifest.write(self._folder)

    def _go_on(self, manifest: RunManifest, step: int, origin: Path) -> None:
        """What the manifest of the same run already says of its begin stays."""
        manifest.resumed = [{"time": now(), "step": step, "from": str(origin)}]
        earlier = _readable(self._folder)
        if earlier is None or earlier.run_id != manifest.run_id:
            return
        manifest.started, manifest.model = earlier.started or manifest.started, earlier.model
        manifest.resumed = [*earlier.resumed, *manifest.resumed]
        self._seconds_before = earlier.result.get("seconds") or 0.0

    @contextlib.contextmanager
    def ending(self, trainer: Trainer, args: Any) -> Iterator[None]:
        """Tells how the training that is inside has ended."""
        try:
            yield
        except BaseException as error:
            self._end(trainer, args, error)
            raise
        self._end(trainer, args, None)

    def _end(self, trainer: Trainer, args: Any, error: BaseException | None) -> None:
        manifest, self._manifest = self._manifest, None
        if manifest is None:  # it came to its end before it began
            return
        seconds = self._seconds_before + time.monotonic() - self._begun
        manifest.result = _result(trainer.state, args.metric_for_best_model, seconds)
        manifest.reason = _early(trainer.state, args)
        if error is None and self.known is not None:
            _write(manifest, self._folder)
        else:
            close(manifest, self._folder, error)


@contextlib.contextmanager
def closing(manifest: RunManifest, folder: Path) -> Iterator[None]:
    """For those who gave a `Recording` what they know: the run has ended with all its results when the block has."""
    try:
        yield
    except BaseException as error:
        if manifest.started:
            close(manifest, folder, error)
        raise
    if manifest.started:
        close(manifest, folder, None)


def close(manifest: RunManifest, folder: Path, error: BaseException | None) -> None:
    """Writes down how a run has ended, once. A file that cannot be written is no reason to fail."""
    if manifest.state != RUNNING:
        return
    manifest.state, manifest.ended = STOPPED if manifest.reason == OUT_OF_TIME else FINISHED, now()
    if error is not None:
        manifest.state, manifest.reason = _state_and_reason(error)
    _write(manifest, folder)


def _write(manifest: RunManifest, folder: Path) -> None:
    try:
        manifest.write(folder)
    except OSError as error:
        logger.warning("How the run ended could not be written into %s: %s", folder, error)


def _state_and_reason(error: BaseException) -> tuple[str, str]:
    if isinstance(error, KeyboardInterrupt):
        return STOPPED, "SIGINT (Ctrl-C)"
    if isinstance(error, SystemExit):
        number = signal_of(error)
        return STOPPED, f"exit code {error.code}" if number is None else number.name
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return FAILED, hidden_in_text(text)[:MOST_LETTERS]


def of_script(args: Any) -> RunManifest:
    """What is known of a run that a script started, or somebody at a prompt."""
    script = surroundings.script()
    return RunManifest(
        command=surroundings.command_line(),
        script=None if script is None else str(script),
        settings=with_origins(args),
    )


def _early(state: TrainerState, args: Any) -> str | None:
    """Why a training came to its end before its last step; None where it did not."""
    if state.global_step >= state.max_steps:
        return None
    if state.stop_reason == OUT_OF_TIME and not args.fit_schedule_to_max_time:
        return OUT_OF_TIME
    return f"ended at step {state.global_step} of {state.max_steps}, as a callback or a setting asked"


def _result(state: TrainerState, metric: str | None, seconds: float) -> dict[str, Any]:
    return record(
        {
            "step": state.global_step,
            "epoch": state.epoch,
            "seconds": round(seconds, 3),
            "train_loss": state.train_loss,
            "best": best_of(state, metric),
            "metrics": _last_metrics(state),
        }
    )


def best_of(state: TrainerState, metric: str | None) -> dict[str, Any] | None:
    """``{"metric", "value", "step"}`` of the best evaluation; where a run compares none, of the lowest loss."""
    evaluations = [entry for entry in state.log_history if (split_of(entry) or "").startswith("eval")]
    if state.best_metric is not None:
        name = f"eval_{(metric or 'loss').removeprefix('eval_')}"
        return {"metric": name, "value": state.best_metric, "step": state.best_global_step}
    found = [(loss, entry["step"]) for entry in evaluations if math.isfinite(loss := entry.get("eval_loss", math.nan))]
    if not found:
        return None
    value, step = min(found)
    return {"metric": "eval_loss", "value": value, "step": step}


def _last_metrics(state: TrainerState) -> dict[str, Any]:
    """The numbers of the last evaluation of each kind, and those of the training."""
    found: dict[str, Any] = {}
    for entry in state.log_history:
        if split_of(entry) is not None:
            found |= {name: value for name, value in entry.items() if name not in ("step", "epoch")}
    return found


def _readable(folder: Path) -> RunManifest | None:
    with contextlib.suppress(ValueError):  # damaged: nothing is known of before
        return RunManifest.read(folder)
    return None


def _datasets(trainer: Trainer, position: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    train = {"rows": position.get(ROWS), "fingerprint": position.get(CONTENT)}
    evaluated = trainer.eval_dataset
    if evaluated is None:
        return {"train_dataset": train}
    parts = evaluated if isinstance(evaluated, Mapping) else {"": evaluated}
    names = {name: f"eval_dataset {name}".strip() for name in parts}
    return {"train_dataset": train, **{names[name]: {"rows": _rows(part)} for name, part in parts.items()}}


def _rows(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except TypeError:  # a stream
        return None


def _model(trainer: Trainer) -> dict[str, Any]:
    model, config = trainer.model, getattr(trainer.model, "config", None)
    parameters = list(model.parameters())
    return {
        "name_or_path": getattr(config, "_name_or_path", None) or None,
        "class": class_of(model).__name__,
        "parameters": sum(map(num_elements, parameters)),
        "trainable": sum(num_elements(part) for part in parameters if part.requires_grad),
        "dtype": str(parameters[0].dtype).removeprefix("torch.") if parameters else None,
        "fingerprint": fingerprint(model, trainer.engine.device),
    }
