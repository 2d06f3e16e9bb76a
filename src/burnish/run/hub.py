"""The hub as a trainer knows it: the repository, the model at the end, uploads by hand.

The functions with `self` become methods of the Trainer.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from burnish.checkpoint import hub_files
from burnish.checkpoint.export import CARD
from burnish.checkpoint.hub import Repository, Upload, is_offline
from burnish.core.errors import CheckpointError, HubError
from burnish.core.processes import told_to_all, turns
from burnish.core.protocols import StopRequest
from burnish.tracking.model_card import is_somebodys_own, may_replace

from .export import export, exported, is_draft
from .uploads import UploadCallback, Uploads

if TYPE_CHECKING:
    from burnish.trainer import Trainer

logger = logging.getLogger(__name__)


def repository_of(args: Any, token: str | None = None, private: bool | None = None) -> Repository:
    """The repository that the settings name: by default it is called like the output folder."""
    return Repository(
        name=args.hub_model_id or Path(args.output_dir).absolute().name,
        revision=args.hub_revision or None,
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


@hub_model_id.setter
def hub_model_id(self: Trainer, name: str | None) -> None:
    """Uploads from now on go there; None finds the repository of the settings anew."""
    if name is not None:
        self.args.hub_model_id = name
    self.uploads.name, self.uploads.repository = name, None


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
    _on_first(trainer, lambda: trainer.uploads.settle(stop))
    if trainer.uploads.at_end:
        _know_the_name(trainer)
        names: list[str] | HubError
        try:
            names = exported(trainer)
        except CheckpointError as error:  # of the first process; the others wait for its upload all the same
            names = HubError(f"The model is not on the hub, since it could not be saved: {error}")
        upload_model(trainer, names, "End of training", stop)
        _tell_failure(trainer)


def save_model(trainer: Trainer, folder: Path, internal: bool) -> None:
    """What `Trainer.save_model` does. An upload that fails is told.

    Raises:
        CheckpointError: the model could not be written.
    """
    args = trainer.settings
    uploads = args.push_to_hub and not (internal or trainer.is_in_train or is_draft(folder))
    if not uploads or folder != Path(str(args.output_dir)):
        export(trainer, folder, args.to_dict())
    if uploads:
        _know_the_name(trainer)
        names = exported(trainer)
        trainer.callback_handler.fire("on_push_begin")
        if trainer.is_world_process_zero():
            _upload_model(trainer, names, "Model save")
        _tell_failure(trainer)


def _know_the_name(trainer: Trainer) -> None:
    """The card of a model has the name of its repository. Why there is none is told when it is to be uploaded."""
    with contextlib.suppress(HubError):
        _open(trainer)


def _tell_failure(trainer: Trainer) -> None:
    if trainer.uploads.failed is not None:
        logger.error("%s", trainer.uploads.failed)


def upload_model(
    trainer: Trainer, names: Sequence[str] | HubError, message: str, stop: StopRequest | None = None
) -> None:
    """Uploads files of the output folder from the first process, and waits until they are there. All processes call it,
    and wait as long. A failure is kept in `trainer.uploads.failed`, with the command that uploads them.

    Args:
        names: of the files, or why they are not there.
        stop: a signal ends the wait, and the run.
    """
    trainer.callback_handler.fire("on_push_begin")
    _on_first(trainer, lambda: _upload_model(trainer, names, message, stop))


def _on_first(trainer: Trainer, work: Callable[[], None]) -> None:
    """Done by the first process, for which the others wait without a limit."""
    if trainer.engine.num_processes == 1:
        work()
        return
    wait, is_done = turns("uploads")
    if trainer.is_world_process_zero():
        try:
            work()
        finally:
            is_done()
    else:
        wait()
    trainer.engine.processes.table([0.0])  # the first process keeps what the others look at, and may end after this


def _upload_model(
    trainer: Trainer, names: Sequence[str] | HubError, message: str, stop: StopRequest | None = None
) -> None:
    args, uploads = trainer.settings, trainer.uploads
    if isinstance(names, HubError):
        uploads.failed = names
        return
    trainer.engine.processes.at("uploading the model")
    try:
        _open(trainer)
        outcome = uploads.begin("The model", _of_model(trainer, names, message))
        uploads.wait(stop)
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


def _of_model(trainer: Trainer, names: Sequence[str], message: str) -> Upload:
    """Files of the output folder."""
    folder = Path(str(trainer.settings.output_dir))
    files = {name: folder / name for name in names if (folder / name).is_file()}
    keeps = is_somebodys_own if may_replace(folder / CARD) else None
    return Upload(message, files, keeps_card=keeps)


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
    upload, branch = _of_model(self, names, commit_message), None
    if revision is not None and self.uploads.repository is not None:
        branch = replace(self.uploads.repository, revision=revision).ready()
    outcome = self.uploads.begin("The model", upload, None if blocking else "", repository=branch)
    if blocking:
        return outcome.result()
    self.uploads.outlive_the_script()
    return outcome
