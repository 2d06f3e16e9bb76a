"""The model folder that a run leaves behind: complete for ``from_pretrained``."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from torch import nn

from . import files, handover, layout, staging
from .store import save_processing_class, told_as
from .weights import save_weights

CARD = "README.md"


def export_model(
    model: nn.Module,
    folder: Path | str,
    *,
    processing_class: Any = None,
    settings: dict[str, Any] | None = None,
    state: dict[str, torch.Tensor] | None = None,
    card: str | None = None,
) -> Path:
    """Writes weights, config, generation config and tokenizer or processor into `folder`; `settings` as JSON beside.

    The files are prepared in a folder of their own and moved in once all are on the disk: a failure leaves the model
    that was there before (see `handover`). Weight files of an earlier model that the new one does not have are removed;
    everything else in the folder stays.

    Args:
        state: the tensors to write in place of the model's own (see `save_weights`).
        card: the text of `README.md`; one that is there stays where None is given.

    Raises:
        CheckpointError: it could not be written.
    """
    folder = Path(folder)
    draft = draft_for(folder)
    with told_as(folder):
        try:
            save_weights(model, draft, state=state)
            save_processing_class(processing_class, draft)
            if settings is not None:
                (draft / layout.TRAINING_ARGS).write_text(files.as_json(settings), encoding="utf-8")
            _put_card(draft, card)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    take_in(draft, folder)
    return folder


def draft_for(folder: Path) -> Path:
    """An empty folder to write a model in, for `take_in`. Raises `CheckpointError`."""
    with told_as(folder):
        folder.mkdir(parents=True, exist_ok=True)
        staging.finish_models(folder, ours=True)
        return staging.model_folder(folder)


def take_in(draft: Path, folder: Path) -> list[str]:
    """Moves the files of a draft into `folder`, as `export_model` does, and returns their names.

    Raises:
        CheckpointError: they could not be written.
    """
    with told_as(folder):
        try:
            names = handover.seal(draft)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        handover.move_in(draft, folder)
    return names


def _put_card(draft: Path, card: str | None) -> None:
    """The card, in place of the empty form that `peft` leaves."""
    (draft / CARD).unlink(missing_ok=True)
    if card is not None:
        (draft / CARD).write_text(card, encoding="utf-8")
