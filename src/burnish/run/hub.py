"""Uploads of a trainer to the hub: of what is saved while it trains, behind the training, and of the model at the end.

The functions with `self` become methods of the Trainer.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from burnish.arguments.choices import HubStrategy
from burnish.checkpoint import hub_files, layout
from burnish.checkpoint.export import CARD
from burnish.checkpoint.hub import Repository, Upload, is_offline
from burnish.checkpoint.hub_queue import UploadQueue
from burnish.core.errors import CheckpointError, HubError
from burnish.core.events import TrainerCallback
from burnish.core.processes import told_to_all
from burnish.core.protocols import StopRequest

from .export import card_for, export, exported, is_draft

if TYPE_CHECKING:
    from burnish.trainer import Trainer

logger = logging.getLogger(__name__)

SILENCE = 2.0
"""Seconds of waiting after which it is said what is waited for."""
AGAIN = "The training goes on, and the next upload takes it along."


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
        self._missed: tuple[str, Upload, Path] | None = None
        self._waits_at_exit = False

    def begin(
        self, name: str, upload: Upload, then: str | None = None, reads: Path | None = None, must: bool = True
    ) -> Future[Any]:
        """Uploads behind what comes next. How it went is logged.

        Args:
            name: of what is uploaded, for people.
            then: what follows a failure; None where whoever waits for the outcome tells it.
            reads, must: see `UploadQueue.add`.
        """
        assert self.repository is not None
        work = partial(self._upload, self.repository, name, upload, then, reads)
        return self.queue.add(name, work, reads, must)

    def _upload(self, repository: Repository, name: str, upload: Upload, then: str | None, reads: Path | None) -> Any:
        try:
            done = repository.commit(upload)
        except HubError as error:
            self.failed, self._missed = error, (name, upload, reads) if reads else None
            if then is not None:
                logger.warning("%s was not uploaded. %s %s", name, error, then)
            raise
        self.failed = self._missed = None
        logger.info("%s is uploaded: %s", name, done.commit_url)
        return done

    def settle(self, stop: StopRequest | None = None) -> None:
        """Waits for what is being uploaded, and tries the last checkpoint once more where it did not get there."""
        _wait(self.queue, stop)
        if self._missed is not None and self._missed[1].folders and self._missed[2].is_dir():
            name, upload, reads = self._missed
            self.begin(name, upload, "It was tried twice.", reads)
            _wait(self.queue, stop)

    def outlive_the_script(self) -> None:
        """Has a script wait at its end for what is being uploaded then."""
        if not self._waits_at_exit:
            self._waits_at_exit = True
            atexit.register(self.queue.wait)


class UploadCallback(TrainerCallback):
    """Uploads each checkpoint once it stands, as `hub_strategy` says."""

    def __init__(self, trainer: Trainer, args: Any) -> None:
        self.trainer, self.output_dir, self.must = trainer, Path(args.output_dir), bool(args.hub_always_push)
        self.strategy = HubStrategy(args.hub_strategy)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.strategy == HubStrategy.END:
            return
        self.trainer.callback_handler.fire("on_push_begin")
        if self.trainer.is_world_process_zero():
            self._upload(self.output_dir / layout.folder_name(state.global_step), state.global_step)

    def _upload(self, checkpoint: Path, step: int) -> None:
        files: dict[str, Path | str] = {}
        folders: tuple[str, ...] = ()
        if layout.holds_weights(checkpoint):
            files |= {**hub_files.of_model(checkpoint), **self._card()}
        if self.strategy in (HubStrategy.CHECKPOINT, HubStrategy.ALL_CHECKPOINTS):
            is_last = self.strategy == HubStrategy.CHECKPOINT
            folders = (hub_files.LAST_CHECKPOINT if is_last else checkpoint.name,)
            files |= hub_files.of_checkpoint(checkpoint, folders[0])
        if not files:
            logger.warning("%s holds parts of the weights: the model is uploaded at the end.", checkpoint.name)
            return
        upload = Upload(f"Training in progress, step {step}", files, folders)
        try:
            self.trainer.uploads.begin(checkpoint.name, upload, AGAIN, checkpoint, self.must)
        except CheckpointError as error:
            logger.warning("%s was not uploaded. %s", checkpoint.name, error)

    def _card(self) -> dict[str, Path | str]:
        """The card of now; one of somebody's own in the output folder."""
        text = card_for(self.trainer, self.output_dir, self.trainer.settings.to_dict())
        path = self.output_dir / CARD
        return {CARD: text} if text is not None else {CARD: path} if path.is_file() else {}


def repository_of(args: Any, token: str | None = None, private: bool | None = None) -> Repository:
    """The repository that the settings name: by default it is called like the output folder."""
    return Repository(
        name=args.hub_model_id or Path(args.output_dir).absolute().name,
        revision=args.hub_revision,
        token=token or args.hub_token,
        private=args.hub_private_repo if private is None else private,
    )


def check(args: Any) -> None:
    """Makes the repository, where a run with these settings will upload to it.

    Raises:
        HubError: it could not be uploaded to.
    """
    if args.push_to_hub and not is_offline():
        repository_of(args).ready()


def init_hf_repo(self: Trainer, token: str | None = None, private: bool | None = None) -> None:
    """Makes the repository `hub_model_id` where it is not there, on the first process.

    Args:
        token: one that may write; `hub_token`, or that of this machine, by default.
        private: whether a new repository is private; `hub_private_repo` by default.

    Raises:
        HubError: it could not be made, or cannot be written to.
    """
    if self.is_world_process_zero():
        self.uploads.repository = repository_of(self.settings, token, private).ready()
        self.uploads.name = self.uploads.repository.name


@property  # type: ignore[misc]
def hub_model_id(self: Trainer) -> str | None:
    """The full name of the repository, once `init_hf_repo` or `train` has found it; None before."""
    return self.uploads.name


def begin(trainer: Trainer, args: Any, ready: contextlib.ExitStack) -> None:
    """Before anything else of a training: finds out whether what it saves can be uploaded, and has it uploaded.

    Raises:
        HubError: it could not be uploaded.
    """
    if not args.push_to_hub:
        return
    trainer.uploads.name = trainer.engine.processes.from_first(lambda: _opened(trainer))
    if trainer.uploads.name is None:
        logger.warning("HF_HUB_OFFLINE is set: nothing is uploaded.")
        return
    callback = UploadCallback(trainer, args)
    trainer.callback_handler.add_callback(callback)
    ready.callback(trainer.callback_handler.remove_callback, callback)
    ready.push(partial(_left, trainer.uploads, args))


def _opened(trainer: Trainer) -> str | None:
    if is_offline():
        return None
    trainer.init_hf_repo()
    return trainer.uploads.name


def _left(
    uploads: Uploads, args: Any, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
) -> None:
    """A training that fails, or that a scheduler ends, waits for its last upload; one that Ctrl-C ends does not."""
    if kind is None or not uploads.queue.names:
        return
    if not issubclass(kind, KeyboardInterrupt):
        logger.warning("Waiting for the upload of %s; it may be broken off.", " and ".join(uploads.queue.names))
        uploads.queue.wait()
        return
    name = " and ".join(uploads.queue.leave())
    logger.warning("The upload of %s to %s is broken off: it is not there.", name, uploads.name)


def finish(trainer: Trainer, args: Any, stop: StopRequest) -> None:
    """After a training: waits for its uploads, and uploads the model that it ends with. A failure is told, and is no
    error: the model is on the disk."""
    if not args.push_to_hub:
        return
    trainer.uploads.settle(stop)
    if trainer.uploads.at_end:
        _save_and_upload(trainer, "End of training", stop)


def save_model(trainer: Trainer, folder: Path, internal: bool) -> None:
    """What `Trainer.save_model` does."""
    args = trainer.settings
    uploads = args.push_to_hub and not (internal or trainer.is_in_train or is_draft(folder))
    if not uploads or folder != Path(str(args.output_dir)):
        export(trainer, folder, args.to_dict())
    if uploads:
        _save_and_upload(trainer, "Model save")


def _save_and_upload(trainer: Trainer, message: str, stop: StopRequest | None = None) -> None:
    with contextlib.suppress(HubError):  # told below; the name is known to the card where it can be
        _open(trainer)
    try:
        names = exported(trainer)
    except CheckpointError as error:
        trainer.uploads.failed = HubError(f"The model is not on the hub, since it could not be saved: {error}")
    else:
        upload_model(trainer, names, message, stop)
    if trainer.uploads.failed is not None:
        logger.error("%s", trainer.uploads.failed)


def upload_model(trainer: Trainer, names: Sequence[str], message: str, stop: StopRequest | None = None) -> None:
    """Uploads files of the output folder from the first process, and waits until they are there. A failure is kept in
    `trainer.uploads.failed`, with the command that uploads them.

    Args:
        names: of the files.
        stop: a signal ends the wait, and the run.
    """
    if not trainer.is_world_process_zero():
        return
    args, uploads = trainer.settings, trainer.uploads
    trainer.callback_handler.fire("on_push_begin")
    trainer.engine.processes.at("uploading the model")
    try:
        _open(trainer)
        outcome = _begin_model(trainer, names, message)
        _wait(uploads.queue, stop)
        outcome.result()
    except HubError as error:
        command = hub_files.command(_name(trainer), str(args.output_dir), args.hub_revision)
        uploads.failed = HubError(
            f"The model is in {args.output_dir}, and not on the hub. {error} This uploads it:\n  {command}"
        )


def _open(trainer: Trainer) -> None:
    """Has the repository known to the process that uploads. Raises `HubError`."""
    if not trainer.is_world_process_zero() or trainer.uploads.repository is not None:
        return
    if is_offline():
        raise HubError("HF_HUB_OFFLINE is set, so nothing is uploaded.")
    trainer.init_hf_repo()


def _name(trainer: Trainer) -> str:
    return trainer.uploads.name or repository_of(trainer.settings).name


def _begin_model(trainer: Trainer, names: Sequence[str], message: str, then: str | None = None) -> Future[Any]:
    folder = Path(str(trainer.settings.output_dir))
    files = {name: folder / name for name in names if (folder / name).is_file()}
    return trainer.uploads.begin("The model", Upload(message, files), then)


def _wait(queue: UploadQueue, stop: StopRequest | None) -> None:
    """Until the uploads have ended; a signal ends the wait, and the run."""
    if queue.wait(stop, SILENCE):
        return
    if stop is None or stop.requested is None:
        logger.warning("Waiting for the upload of %s. Ctrl-C leaves without it.", " and ".join(queue.names))
        queue.wait(stop)
    if stop is not None and stop.requested is not None:
        stop.raise_for(stop.requested)


def push_to_hub(
    self: Trainer,
    commit_message: str = "End of training",
    blocking: bool = True,
    token: str | None = None,
    revision: str | None = None,
    private: bool | None = None,
    **details: Any,
) -> Any:
    """Saves the model in the output folder, and uploads it with tokenizer and card. All processes may call it; the
    first one uploads.

    Args:
        blocking: wait until it is there. Otherwise a script that ends waits for it.
        token, private: as `init_hf_repo`.
        revision: a branch; `hub_revision` by default.
        details: for a card by `create_model_card`: language, license, tags, dataset … Without any, the card is the one
            that `save_model` writes.

    Returns:
        What `huggingface_hub` tells of the commit, or without `blocking` a future of it; None on other processes.

    Raises:
        HubError: it could not be uploaded.
        CheckpointError: it could not be saved.
    """
    is_first = self.is_world_process_zero()
    if token is not None or private is not None:
        self.init_hf_repo(token, private)
    _open(self)
    self.callback_handler.fire("on_push_begin")
    with told_to_all(self.engine.processes):
        names = exported(self)
    if not is_first:
        return None
    if details:
        self.create_model_card(**{"model_name": _name(self).rpartition("/")[2], **details})
        names = sorted({*names, CARD})
    if revision is not None and self.uploads.repository is not None:
        self.uploads.repository = replace(self.uploads.repository, revision=revision).ready()
    outcome = _begin_model(self, names, commit_message, None if blocking else "")
    if blocking:
        return outcome.result()
    self.uploads.outlive_the_script()
    return outcome
