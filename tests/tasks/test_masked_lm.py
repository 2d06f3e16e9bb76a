from __future__ import annotations

from pathlib import Path

import pytest
from task_files import model_folder, write_csv

from burnish.core.errors import DataError
from burnish.tasks.recipe import DataRequest, ModelRequest
from burnish.tasks.registry import recipe, recipe_of


def test_a_file_becomes_a_run_and_fills_masks(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "a.csv", [{"text": "w5 w6 w7 " * 6}, {"text": "w8 w9 " * 6}])
    model = ModelRequest(model_folder(tmp_path / "model"))
    run = recipe("fill-mask").prepare(DataRequest(train_file=file), model)
    batch = run.data_collator([run.train_dataset[0], run.train_dataset[1]])
    assert 0 < (batch["labels"] != -100).sum() < batch["labels"].numel()
    assert run.model(**batch).loss.isfinite() and run.metrics_of_loss is not None
    folder = tmp_path / "out"
    run.model.save_pretrained(folder)
    run.processing_class.save_pretrained(folder)
    filler = recipe_of(folder).predictor(folder)
    answer = filler.predict([{"text": "w5 [MASK] w7"}])[0]
    assert answer["prediction"] == max(answer["probabilities"], key=answer["probabilities"].get)
    assert len(answer["probabilities"]) == 5
    with pytest.raises(DataError, match=r"Row 1: the text has 0 mask tokens. Put \[MASK\]"):
        filler.predict([{"text": "w5 w7"}])
