from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pytest
import tiny
from task_files import model_folder, write_jsonl

from burnish.core.errors import DataError
from burnish.tasks.recipe import DataRequest, ModelRequest
from burnish.tasks.registry import recipe, recipe_of
from burnish.tasks.token_classification import first_token_labels

RECIPE = recipe("ner")
ROWS = [
    {"tokens": ["w5", "w6", "w7"], "ner_tags": ["B-PER", "I-PER", "O"]},
    {"tokens": ["w8"], "ner_tags": ["O"]},
    {"tokens": ["w9", "w10"], "ner_tags": ["O", "B-PER"]},
]
CONLL = "-DOCSTART- -X- O\n\nw5 NN B-PER\nw6 NN I-PER\nw7 VB O\n\nw8 NN O\n\n\nw9 NN O\nw10 NN B-PER\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelRequest:
    return ModelRequest(model_folder(tmp_path_factory.mktemp("model")))


def test_the_first_token_of_a_word_has_its_label() -> None:
    assert first_token_labels([None, 0, 0, 1, 2, 2, None], [7, 8, 9]) == [-100, 7, -100, 8, 9, -100, -100]


@pytest.mark.parametrize("name", ["a.jsonl", "a.conll", "a.txt", "numbered"])
def test_every_format_gives_the_same_rows(name: str, model: ModelRequest, tmp_path: Path) -> None:
    path = tmp_path / name
    if name == "a.jsonl":
        write_jsonl(path, ROWS)
    elif name == "numbered":
        names = ["B-PER", "I-PER", "O"]
        feature = datasets.List(datasets.ClassLabel(names=names))
        rows = [{**row, "ner_tags": [names.index(tag) for tag in row["ner_tags"]]} for row in ROWS]
        features = datasets.Features(tokens=datasets.List(datasets.Value("string")), ner_tags=feature)
        datasets.Dataset.from_list(rows, features=features).save_to_disk(str(path))
    else:
        path.write_text(CONLL)
    run = RECIPE.prepare(DataRequest(train_file=str(path), validation_file=str(path)), model)
    assert run.model.config.id2label == {0: "B-PER", 1: "I-PER", 2: "O"}
    assert run.train_dataset["labels"][:] == [[0, 1, 2], [2], [2, 0]]
    assert run.metric_for_best_model == "f1"
    batch = run.data_collator([run.train_dataset[row] for row in range(3)])
    assert batch["labels"].tolist()[1] == [2, -100, -100]
    assert run.model(**batch).loss.isfinite()


@pytest.mark.parametrize(
    ("row", "facts"),
    [
        ({"tokens": ["w5"], "ner_tags": ["O", "O"]}, ["1 words and 2 tags"]),
        ({"tokens": [], "ner_tags": []}, ["there are no words"]),
        ({"tokens": ["w5", ""], "ner_tags": ["O", "O"]}, ["word 2 is missing"]),
        ({"tokens": ["w5"], "ner_tags": [None]}, ["tag 'None' of word 1 ('w5')"]),
    ],
)
def test_a_bad_sentence_is_pointed_at(row: Any, facts: list[str], model: ModelRequest, tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "a.jsonl", [*ROWS, row])
    with pytest.raises(DataError) as caught:
        RECIPE.prepare(DataRequest(train_file=file), model)
    assert [fact for fact in [*facts, "row 4 (line 4)"] if fact not in str(caught.value)] == [], caught.value


def test_a_tag_that_training_does_not_know(model: ModelRequest, tmp_path: Path) -> None:
    train = write_jsonl(tmp_path / "a.jsonl", ROWS)
    other = write_jsonl(tmp_path / "b.jsonl", [{"tokens": ["w5"], "ner_tags": ["B-LOC"]}])
    with pytest.raises(DataError, match=r"b.jsonl, row 1.*'B-LOC' of word 1.*B-PER, I-PER, O"):
        RECIPE.prepare(DataRequest(train_file=train, validation_file=other), model)


def test_a_line_without_a_tag(model: ModelRequest, tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("w5 O\nw6\n")
    with pytest.raises(DataError, match=r"a.conll, line 2: 1 fields, expected 2"):
        RECIPE.prepare(DataRequest(train_file=str(tmp_path / "a.conll")), model)


def test_long_sentences_are_tagged_in_pieces(model: ModelRequest, tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "a.jsonl", ROWS)
    run = RECIPE.prepare(DataRequest(train_file=file), model)
    folder = tmp_path / "out"
    run.model.save_pretrained(folder)
    run.processing_class.save_pretrained(folder)
    tagger = recipe_of(folder).predictor(folder)
    words = [f"w{5 + i}" for i in range(2 * tiny.MAX_LENGTH + 3)]
    long, short = tagger.predict([{"tokens": words}, {"text": "w5 w6"}])
    assert long["words"] == words and len(long["prediction"]) == len(words)
    first = tagger.predict([{"tokens": words[: tiny.MAX_LENGTH]}])[0]
    assert long["prediction"][: tiny.MAX_LENGTH] == first["prediction"]
    assert len(short["prediction"]) == 2 and set(short["prediction"]) <= {"B-PER", "I-PER", "O"}
    with pytest.raises(DataError, match="Row 1: there are no words"):
        tagger.predict([{"other": 1}])
