"""What a trainer uploads while it trains, and how it went."""

from __future__ import annotations

import atexit
import logging
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from burnish.arguments.choices import HubStrategy
from burnish.checkpoint import hub_files, layout
from burnish.checkpoint.export import CARD
from burnish.checkpoint.hub import Repository, Upload
from burnish.checkpoint.hub_queue import UploadQueue
from burnish.core.errors import CheckpointError, HubError
from burnish.core.events import TrainerCallback
from burnish.core.protocols import StopRequest
from burnish.tracking.model_card import is_somebodys_own

from .export import card_for

if TYPE_CHECKING:
    from burnish.trainer import Trainer

logger = logging.getLogger(__name__)

SILENCE = 2.0
"""Seconds of waiting after which it is said what is waited for."""
AGAIN = "The training goes on, and it is tried again."


class Uploads:
    """What a trainer uploads, and where to.

    Args:
        at_end: whether `train()` uploads the model that it ends with; else whoever drives the trainer does.
    """

    def __init__(self, at_end: bool = True) -> None:
        self.at_end = at_end
        self.name: str | None = None
        """Of the repository, on all processes; None before it is known, and offline."""
        self.repository: Repository | None = None
        """The same on the process that uploads."""
        self.failed: HubError | None = None
        """Why the last upload is not on the hub."""
        self.queue = UploadQueue()
        self._missed: dict[tuple[str, ...], tuple[str, Upload, Path]] = {}
        """Checkpoints that did not get there, by the folders of the repository that they belong in."""
        self._waits_at_exit = False

    def begin(
        self,
        name: str,
        upload: Upload,
        then: str | None = None,
        reads: Path | None = None,
        must: bool = True,
        repository: Repository | None = None,
    ) -> Future[Any]:
        """Uploads behind what comes next. How it went is logged.

        Args:
            name: of what is uploaded, for people.
            then: what follows a failure; None where whoever waits for the outcome tells it.
            reads, must: see `UploadQueue.add`.
            repository: another one than that of the run.
        """
        repository = repository or self.repository
        assert repository is not None, "it is made ready first"
        work = partial(self._upload, repository, name, upload, then, reads)
        return self.queue.add(name, work, reads, must)

    def _upload(self, repository: Repository, name: str, upload: Upload, then: str | None, reads: Path | None) -> Any:
        try:
            done = repository.commit(upload)
        except HubError as error:
            self.failed = error
            if reads is not None and upload.folders:
                self._missed[upload.folders] = (name, upload, reads)
            if then is not None:
                logger.warning("%s was not uploaded. %s %s", name, error, then)
            raise
        self.failed = None
        self._missed.pop(upload.folders, None)
        logger.info("%s is uploaded: %s", name, done.commit_url)
        return done

    def settle(self, stop: StopRequest | None = None) -> None:
        """Waits for what is being uploaded, and tries checkpoints that did not get there once more."""
        self.wait(stop)
        for name, upload, checkpoint in [one for one in self._missed.values() if one[2].is_dir()]:
            self.begin(name, upload, "It was tried twice.", checkpoint)
        self.wait(stop)

    def wait(self, stop: StopRequest | None = None) -> None:
        """Until the uploads have ended; a signal ends the wait, and the run."""
        if self.queue.wait(stop, SILENCE):
            return
        if stop is None or stop.requested is None:
            logger.warning("Waiting for the upload of %s. Ctrl-C leaves without it.", " and ".join(self.queue.names))
            self.queue.wait(stop)
        if stop is not None and stop.requested is not None:
            stop.raise_for(stop.requested)

    def outlive_the_script(self) -> None:
        """Has a script wait at its end for what is being uploaded then."""
        if not self._waits_at_exit:
            self._waits_at_exit = True
            atexit.register(self.queue.wait)


class UploadCallback(TrainerCallback):
    """Uploads each checkpoint once it stands, as `hub_strategy` says."""

    def __init__(self, trainer: Trainer, args: Any) -> None:
        self.trainer, self.output_dir, self.must = trainer, Path(args.output_dir), bool(args.hub_always_push)
        self.strategy, self._has_said = HubStrategy(args.hub_strategy), False
        self.uploads_checkpoints = self.strategy in (HubStrategy.CHECKPOINT, HubStrategy.ALL_CHECKPOINTS)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The checkpoint that a run goes on from may not have got there; what has is not sent again."""
        checkpoint = self.output_dir / layout.folder_name(state.global_step)
        if self.uploads_checkpoints and state.global_step and checkpoint.is_dir():
            self._begin(state.global_step)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.strategy != HubStrategy.END:
            self._begin(state.global_step)

    def _begin(self, step: int) -> None:
        self.trainer.callback_handler.fire("on_push_begin")
        if self.trainer.is_world_process_zero():
            self._upload(self.output_dir / layout.folder_name(step), step)

    def _upload(self, checkpoint: Path, step: int) -> None:
        files: dict[str, Path | str] = {}
        folders: tuple[str, ...] = ()
        if layout.holds_weights(checkpoint):
            files |= {**hub_files.of_model(checkpoint), **self._card()}
        if self.uploads_checkpoints:
            is_last = self.strategy == HubStrategy.CHECKPOINT
            folders = (hub_files.LAST_CHECKPOINT if is_last else checkpoint.name,)
            files |= hub_files.of_checkpoint(checkpoint, folders[0])
        if not files:
            self._say_once("Checkpoints hold parts of the weights: the model is uploaded at the end of the training.")
            return
        keeps = is_somebodys_own if isinstance(files.get(CARD), str) else None
        upload = Upload(f"Training in progress, step {step}", files, folders, keeps)
        try:
            self.trainer.uploads.begin(checkpoint.name, upload, AGAIN, checkpoint, self.must)
        except CheckpointError as error:
            logger.warning("%s was not uploaded. %s", checkpoint.name, error)

    def _say_once(self, words: str) -> None:
        if not self._has_said:
            self._has_said = True
            logger.warning("%s", words)

    def _card(self) -> dict[str, Path | str]:
        """The card of now; one of somebody's own in the output folder."""
        text = card_for(self.trainer, self.output_dir, self.trainer.settings.to_dict())
        path = self.output_dir / CARD
        return {CARD: text} if text is not None else {CARD: path} if path.is_file() else {}
