"""A folder that a run or a prediction starts from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from task_files import model_folder

from burnish.checkpoint import in_use
from burnish.models import loading
from burnish.tasks.pretrained import load_pretrained, load_trained
from burnish.tasks.recipe import DataRequest, ModelRequest

AUTO_CLASS = "AutoModelForMaskedLM"


@pytest.mark.parametrize("to_train", [True, False])
def test_a_folder_is_not_deleted_while_it_is_loaded(
    to_train: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(model_folder(tmp_path / "checkpoint-4"))
    free: list[bool] = []

    def watched(load: Any) -> Any:
        def loads(*args: Any, **options: Any) -> Any:
            with in_use.claimed(folder) as nobody_reads_it:
                free.append(nobody_reads_it)
            return load(*args, **options)

        return loads

    monkeypatch.setattr(loading, "load_model", watched(loading.load_model))
    monkeypatch.setattr(loading, "load_tokenizer", watched(loading.load_tokenizer))
    if to_train:
        load_pretrained(ModelRequest(str(folder)), DataRequest(train_file="a.csv"), AUTO_CLASS, {})
    else:
        load_trained(folder, AUTO_CLASS)
    assert free == [False, False]
    with in_use.claimed(folder) as nobody_reads_it:
        assert nobody_reads_it
