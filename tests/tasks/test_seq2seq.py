from __future__ import annotations

from pathlib import Path

import pytest
import tiny
from task_files import model_folder, write_csv

from burnish.core.errors import DataError
from burnish.tasks.recipe import DataRequest, ModelRequest
from burnish.tasks.registry import recipe, recipe_of

RECIPE = recipe("summarization")
ROWS = [{"document": "w5 w6 w7", "summary": "w5"}, {"document": "w8 w9", "summary": "w8 w9"}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelRequest:
    folder = tmp_path_factory.mktemp("model")
    return ModelRequest(model_folder(folder, tiny.t5(), model_max_length=24, eos_token="[SEP]"))


def test_a_file_becomes_a_run_and_answers(model: ModelRequest, tmp_path: Path) -> None:
    file = write_csv(tmp_path / "a.csv", ROWS)
    sources = write_csv(tmp_path / "b.csv", [{"document": "w5"}])
    run = RECIPE.prepare(DataRequest(train_file=file, test_file=sources), model)
    assert run.train_dataset[0] == {"input_ids": [5, 6, 7], "attention_mask": [1, 1, 1], "labels": [5]}
    assert run.predict_dataset.column_names == ["input_ids", "attention_mask"]
    batch = run.data_collator([run.train_dataset[0], run.train_dataset[1]])
    assert batch["labels"].tolist() == [[5, -100], [8, 9]]
    assert run.model(**batch).loss.isfinite()
    folder = tmp_path / "out"
    run.model.save_pretrained(folder)
    run.processing_class.save_pretrained(folder)
    writer = recipe_of(folder).predictor(folder)
    answers = writer.predict([{"document": "w5 w6 w7 w8"}, {"document": "w9"}])
    assert answers == [writer.predict([{"document": text}])[0] for text in ("w5 w6 w7 w8", "w9")]


def test_columns(model: ModelRequest, tmp_path: Path) -> None:
    three = write_csv(tmp_path / "a.csv", [{"one": "w5", "two": "w6", "three": "w7"}])
    with pytest.raises(DataError, match=r"which columns are source and target.*'one', 'two', 'three'"):
        RECIPE.prepare(DataRequest(train_file=three), model)
    run = RECIPE.prepare(DataRequest(train_file=three, text_column="three", label_column="one"), model)
    assert (run.train_dataset[0]["input_ids"], run.train_dataset[0]["labels"]) == ([7], [5])
    two = write_csv(tmp_path / "b.csv", [{"en": "w5", "fr": ""}])
    with pytest.raises(DataError, match=r"row 1 \(line 2\): the text in column 'fr' is missing"):
        RECIPE.prepare(DataRequest(train_file=two), model)
