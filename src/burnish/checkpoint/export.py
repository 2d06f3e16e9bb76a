"""The model folder that a run leaves behind: complete for ``from_pretrained``, and replaced file by file."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import nn

from . import files, layout
from .store import save_processing_class, told_as
from .weights import save_weights

_WEIGHT_FILE = re.compile(r"(model|pytorch_model|adapter_model)(-\d+-of-\d+)?\.(safetensors|bin)(\.index\.json)?")


def export_model(
    model: nn.Module,
    folder: Path | str,
    *,
    processing_class: Any = None,
    settings: dict[str, Any] | None = None,
    state: dict[str, torch.Tensor] | None = None,
) -> Path:
    """Writes weights, config, generation config and tokenizer or processor into `folder`; `settings` as JSON beside.

    The files are prepared in a folder of their own and moved in once all are on the disk: a failure leaves the model
    that was there before. Weight files of an earlier model that the new one does not have are removed; everything else
    in the folder stays.

    Args:
        state: the tensors to write in place of the model's own (see `save_weights`).

    Raises:
        CheckpointError: it could not be written.
    """
    folder = Path(folder)
    draft = folder / f".staging-model-{os.getpid()}"
    with told_as(folder):
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        try:
            save_weights(model, draft, state=state)
            save_processing_class(processing_class, draft)
            if settings is not None:
                (draft / layout.TRAINING_ARGS).write_text(files.as_json(settings), encoding="utf-8")
            files.sync_tree(draft)
            _move_in(draft, folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return folder


def _move_in(draft: Path, folder: Path) -> None:
    names = [path.relative_to(draft) for path in draft.rglob("*") if path.is_file()]
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(draft / name, folder / name)
    for path in folder.iterdir():
        if _WEIGHT_FILE.fullmatch(path.name) and path.relative_to(folder) not in names:
            path.unlink()
    files.sync(folder)
