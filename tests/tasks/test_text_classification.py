from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from task_files import model_folder, reviews, write_csv, write_jsonl

from burnish.core.errors import DataError, SettingError
from burnish.tasks.recipe import DataRequest, ModelRequest, TaskRun
from burnish.tasks.registry import recipe, recipe_of

RECIPE = recipe("sentiment-analysis")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelRequest:
    return ModelRequest(model_folder(tmp_path_factory.mktemp("model")))


def saved(run: TaskRun, folder: Path) -> Path:
    run.model.save_pretrained(folder)
    run.processing_class.save_pretrained(folder)
    return folder


def test_a_file_becomes_a_run(model: ModelRequest, tmp_path: Path) -> None:
    file = write_csv(tmp_path / "a.csv", reviews())
    run = RECIPE.prepare(DataRequest(train_file=file, validation_file=file, test_file=file), model)
    assert run.model.config.id2label == {0: "bad", 1: "good"}
    assert run.model.config.problem_type == "single_label_classification"
    assert (run.train_dataset[1]["input_ids"], run.train_dataset[1]["labels"]) == ([8, 9, 21], 1)
    notes = dict(run.notes)
    assert notes["task"] == "text-classification: binary classification"
    assert (notes["text column"], notes["label column"]) == ("text", "label")
    assert notes["classes"] == "bad 6 (50 %), good 6 (50 %)"
    assert notes["overlap"] == "12 of 12 validation texts are training texts, too"
    batch = run.data_collator([run.train_dataset[row] for row in range(3)])
    assert run.model(**batch).loss.isfinite()
    assert run.compute_metrics is not None and run.metric_for_best_model == "accuracy"
    assert run.predict_dataset is not None and "labels" in run.predict_dataset.column_names


def test_new_weights_follow_the_seed_alone(model: ModelRequest, tmp_path: Path) -> None:
    file = write_csv(tmp_path / "a.csv", reviews())
    before = torch.get_rng_state()
    heads = [
        RECIPE.prepare(DataRequest(train_file=file, seed=seed), model).model.classifier.weight for seed in (1, 1, 2)
    ]
    assert torch.equal(heads[0], heads[1]) and not torch.equal(heads[0], heads[2])
    assert torch.equal(before, torch.get_rng_state())


def test_pairs_multi_label_and_regression(model: ModelRequest, tmp_path: Path) -> None:
    rows = [{"sentence1": "w5", "sentence2": "w6 w7", "score": i / 7} for i in range(6)]
    run = RECIPE.prepare(DataRequest(train_file=write_jsonl(tmp_path / "a.jsonl", rows)), model)
    assert run.train_dataset[0]["input_ids"] == [5, 6, 7] and run.train_dataset[3]["labels"] == pytest.approx(3 / 7)
    assert run.model.config.num_labels == 1 and run.metric_for_best_model == "loss"
    several: list[dict[str, Any]] = [{"text": "w5", "labels": ["a", "b"]}, {"text": "w6", "labels": ["c"]}]
    run = RECIPE.prepare(DataRequest(train_file=write_jsonl(tmp_path / "b.jsonl", several)), model)
    batch = run.data_collator([run.train_dataset[row] for row in range(2)])
    assert batch["labels"].tolist() == [[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    assert run.model(**batch).loss.isfinite()


def test_rows_set_aside(model: ModelRequest, tmp_path: Path) -> None:
    file = write_csv(tmp_path / "a.csv", reviews())
    run = RECIPE.prepare(DataRequest(train_file=file, validation_split=0.5), model)
    assert (len(run.train_dataset), len(run.eval_dataset)) == (6, 6)
    assert sum(run.eval_dataset["labels"]) == 3
    assert dict(run.notes)["validation"] == "6 of 12 training rows set aside"


@pytest.mark.parametrize(
    ("training", "validation", "facts"),
    [
        ([{"text": "w5"}, {"text": "w6"}], None, ["no column looks like a label", "'text'", "--label_column"]),
        ([{"text": "", "label": 1}, {"text": "w5", "label": 0}], None, ["row 1 (line 2)", "'text'", "empty"]),
        ([{"text": "w5", "label": 1}, {"text": "w5", "label": ""}], None, ["row 2 (line 3)", "'label'", "empty"]),
        (reviews(4), [{"text": "w5", "label": "fine"}], ["row 1 (line 2)", "'fine'", "'bad', 'good'"]),
        (reviews(4), [{"txt": "w5", "label": "bad"}], ["no column 'text'", "'txt'"]),
    ],
)
def test_bad_rows_are_pointed_at(
    training: list[Any], validation: list[Any] | None, facts: list[str], model: ModelRequest, tmp_path: Path
) -> None:
    files = {"train_file": write_csv(tmp_path / "train.csv", training)}
    if validation:
        files["validation_file"] = write_csv(tmp_path / "validation.csv", validation)
    with pytest.raises(DataError) as caught:
        RECIPE.prepare(DataRequest(**files), model)  # type: ignore[arg-type]
    facts = [*facts, files.get("validation_file", files["train_file"])]
    assert [fact for fact in facts if fact not in str(caught.value)] == [], caught.value


def test_rows_longer_than_the_model(model: ModelRequest, tmp_path: Path) -> None:
    file = write_csv(tmp_path / "a.csv", [{"text": "w5 " * 40, "label": 0}, {"text": "w5", "label": 1}])
    run = RECIPE.prepare(DataRequest(train_file=file), model)
    assert len(run.train_dataset[0]["input_ids"]) == tiny.MAX_LENGTH
    assert dict(run.notes)["truncated"] == f"1 of 2 rows (50.0 %) cut at {tiny.MAX_LENGTH} tokens"
    with pytest.raises(SettingError, match=f"{tiny.MAX_LENGTH} or less"):
        RECIPE.prepare(DataRequest(train_file=file, max_seq_length=tiny.MAX_LENGTH + 1), model)


def test_a_tokenizer_without_a_pad_token(tmp_path: Path) -> None:
    network = tiny.llama(pad_token_id=None)
    folder = model_folder(tmp_path / "model", network, pad_token=None, eos_token="[SEP]")
    file = write_csv(tmp_path / "a.csv", reviews())
    run = RECIPE.prepare(DataRequest(train_file=file), ModelRequest(folder))
    assert "[SEP]" in dict(run.notes)["padding"]
    assert run.model.config.pad_token_id == tiny.SEP
    assert run.model(**run.data_collator([run.train_dataset[0], run.train_dataset[2]])).loss.isfinite()


def test_predictions_are_those_of_single_rows(model: ModelRequest, tmp_path: Path) -> None:
    file = write_csv(tmp_path / "a.csv", reviews())
    folder = saved(RECIPE.prepare(DataRequest(train_file=file), model), tmp_path / "out")
    predictor = recipe_of(folder).predictor(folder)
    rows = [{"text": f"w{5 + i} " * (1 + i * 7 % 5), "id": i} for i in range(9)]
    together = predictor.predict(rows)
    alone = [predictor.predict([row])[0] for row in rows]
    for one, other in zip(together, alone, strict=True):
        assert one["prediction"] == other["prediction"]
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)
        assert sum(one["probabilities"].values()) == pytest.approx(1)
        assert one["prediction"] == max(one["probabilities"], key=one["probabilities"].get)
    assert predictor.predict([]) == []


def test_predictions_of_numbers_and_several_labels(model: ModelRequest, tmp_path: Path) -> None:
    rows = [{"text": "w5 w6", "score": i / 7} for i in range(6)]
    run = RECIPE.prepare(DataRequest(train_file=write_jsonl(tmp_path / "a.jsonl", rows)), model)
    answer = RECIPE.predictor(saved(run, tmp_path / "one")).predict([{"text": "w5"}])[0]
    assert set(answer) == {"prediction"} and isinstance(answer["prediction"], float)
    several: list[dict[str, Any]] = [{"text": "w5", "labels": ["a", "b"]}, {"text": "w6", "labels": ["c"]}]
    run = RECIPE.prepare(DataRequest(train_file=write_jsonl(tmp_path / "b.jsonl", several)), model)
    answer = RECIPE.predictor(saved(run, tmp_path / "two")).predict([{"text": "w5"}])[0]
    assert answer["prediction"] == [name for name, share in answer["probabilities"].items() if share > 0.5]
    assert set(answer["probabilities"]) == {"a", "b", "c"}


def test_rows_that_cannot_be_predicted(model: ModelRequest, tmp_path: Path) -> None:
    rows = [{"words": row["text"], "label": row["label"]} for row in reviews()]
    file = write_csv(tmp_path / "a.csv", rows)
    folder = saved(RECIPE.prepare(DataRequest(train_file=file, text_column="words"), model), tmp_path / "out")
    predictor = RECIPE.predictor(folder)
    assert predictor.predict([{"text": "w5"}])  # a column of a usual name will do
    with pytest.raises(DataError, match=r"reads 'words', but the rows have 'a', 'b'.*--text_column"):
        predictor.predict([{"a": "w5", "b": "w6"}])
    with pytest.raises(DataError, match=r"Row 2: the text in column 'words' is missing"):
        predictor.predict([{"words": "w5"}, {"words": " "}])


def test_evaluation_of_a_trained_folder(model: ModelRequest, tmp_path: Path) -> None:
    file = write_csv(tmp_path / "a.csv", reviews())
    folder = saved(RECIPE.prepare(DataRequest(train_file=file), model), tmp_path / "out")
    run = RECIPE.prepare(DataRequest(validation_file=file), ModelRequest(str(folder)))
    assert run.train_dataset is None and run.eval_dataset["labels"][:4] == [0, 1, 0, 1]
    unlabelled = write_csv(tmp_path / "b.csv", [{"text": "w5"}, {"text": "w6"}])
    run = RECIPE.prepare(DataRequest(train_file=file, test_file=unlabelled), ModelRequest(str(folder)))
    assert "labels" not in run.predict_dataset.column_names


def test_a_file_without_a_header(model: ModelRequest, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("w5 w6,1\nw7 w8,0\nw9 w10,1\n")
    with pytest.raises(DataError, match=r"no line with names\. Put one above the rows"):
        RECIPE.prepare(DataRequest(train_file=str(tmp_path / "a.csv")), model)
