from __future__ import annotations

from pathlib import Path

import pyarrow
import pytest
import tiny
from task_files import model_folder, write_csv, write_jsonl

from burnish.core.errors import DataError, SettingError
from burnish.data.arrow_rows import ArrowRows
from burnish.tasks.causal_lm import perplexity_of
from burnish.tasks.language_rows import CompletionTokeniser, blocks
from burnish.tasks.recipe import DataRequest, ModelRequest
from burnish.tasks.registry import recipe, recipe_of

RECIPE = recipe("text-generation")
END = tiny.SEP


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelRequest:
    folder = tmp_path_factory.mktemp("model")
    return ModelRequest(model_folder(folder, tiny.llama(max_position_embeddings=32), eos_token="[SEP]"))


def test_blocks_keep_every_token() -> None:
    rows = ArrowRows(pyarrow.table({"input_ids": [[1, 2, 3], [4], [5, 6, 7]], "other": [0, 0, 0]}))
    assert blocks(rows, 3)["input_ids"][:] == [[1, 2, 3], [4, 5, 6]]  # nothing can be predicted from the last one
    assert blocks(rows, 4)["input_ids"][:] == [[1, 2, 3, 4], [5, 6, 7]]
    assert blocks(rows, 9)["input_ids"][:] == [[1, 2, 3, 4, 5, 6, 7]]


def test_texts_become_blocks_that_know_where_a_text_ends(model: ModelRequest, tmp_path: Path) -> None:
    file = write_csv(tmp_path / "a.csv", [{"text": "w5 w6 w7"}, {"text": "w8 w9"}])
    run = RECIPE.prepare(DataRequest(train_file=file, max_seq_length=4), model)
    assert run.train_dataset["input_ids"][:] == [[5, 6, 7, END], [8, 9, END]]
    assert dict(run.notes)["blocks"] == "2 of 4 tokens"
    batch = run.data_collator([run.train_dataset[0], run.train_dataset[1]])
    assert batch["labels"].tolist() == [[5, 6, 7, END], [8, 9, END, -100]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert run.model(**batch).loss.isfinite() and run.compute_metrics is None and run.metric_for_best_model == "loss"


def test_a_text_file_is_one_text(model: ModelRequest, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("w5 w6\n\nw7\nw8 w9\n")
    run = RECIPE.prepare(DataRequest(train_file=str(tmp_path / "a.txt"), max_seq_length=3), model)
    assert run.train_dataset["input_ids"][:] == [[5, 6, 7], [8, 9]]
    request = DataRequest(train_file=str(tmp_path / "a.txt"), validation_split=0.25)
    assert RECIPE.prepare(request, model).eval_dataset["input_ids"][:] == [[8, 9]]


def test_only_the_completion_carries_loss(model: ModelRequest, tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "a.jsonl", [{"prompt": "w5 w6", "completion": "w7"}])
    run = RECIPE.prepare(DataRequest(train_file=file), model)
    assert run.train_dataset[0] == {"input_ids": [5, 6, 7, END], "labels": [-100, -100, 7, END]}
    assert dict(run.notes)["prompt, completion"] == "prompt, completion"
    told = write_jsonl(tmp_path / "b.jsonl", [{"one": "w5", "two": "w7", "text": "w9"}])
    run = RECIPE.prepare(DataRequest(train_file=told, text_column="one,two"), model)
    assert run.train_dataset["labels"][:] == [[-100, 7, END]]
    batch = run.data_collator([run.train_dataset[0]])
    assert batch["labels"].tolist() == [[-100, 7, END]]


def test_a_long_prompt_loses_its_start() -> None:
    tokenise = CompletionTokeniser(tiny.tokenizer(eos_token="[SEP]"), "prompt", "completion", 4)
    found = tokenise({"prompt": ["w5 w6 w7", "w5"], "completion": ["w8 w9", "w6 w7 w8 w9 w10"]})
    assert found["input_ids"] == [[7, 8, 9, END], [6, 7, 8, 9]]
    assert found["labels"] == [[-100, 8, 9, END], [6, 7, 8, 9]]
    assert found["was_truncated"] == [True, True]


def test_a_missing_completion_is_pointed_at(model: ModelRequest, tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "a.jsonl", [{"prompt": "w5", "completion": "w6"}, {"prompt": "w5", "completion": ""}])
    with pytest.raises(DataError, match=r"row 2 \(line 2\): the text in column 'completion' is missing"):
        RECIPE.prepare(DataRequest(train_file=file), model)


def test_perplexity() -> None:
    assert perplexity_of(0.0) == {"perplexity": 1.0} and perplexity_of(1e6)["perplexity"] == float("inf")


def test_what_is_written_does_not_depend_on_the_batch(model: ModelRequest, tmp_path: Path) -> None:
    file = write_csv(tmp_path / "a.csv", [{"text": "w5 w6 w7"}, {"text": "w8 w9"}])
    run = RECIPE.prepare(DataRequest(train_file=file), model)
    folder = tmp_path / "out"
    run.model.save_pretrained(folder)
    run.processing_class.save_pretrained(folder)
    writer = recipe_of(folder).predictor(folder)
    rows = [{"text": "w5 w6 w7"}, {"text": "w9"}, {"prompt": "w10 w11"}]
    together = [answer["prediction"] for answer in writer.predict(rows)]
    assert together == [writer.predict([row])[0]["prediction"] for row in rows]
    assert all(text and not text.startswith("w5 w6 w7") for text in together)
    with pytest.raises(DataError, match="Row 1: there is no text"):
        writer.predict([{"other": "w5"}])


def test_a_model_that_sees_what_it_is_to_predict_is_refused(tmp_path: Path) -> None:
    encoder = ModelRequest(model_folder(tmp_path / "encoder"))
    file = write_csv(tmp_path / "a.csv", [{"text": "w5 w6 w7"}, {"text": "w8 w9"}])
    with pytest.raises(SettingError, match=r"BertLMHeadModel sees the words that it is to predict.*--task masked-lm"):
        RECIPE.prepare(DataRequest(train_file=file), encoder)
