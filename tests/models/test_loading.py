from __future__ import annotations

import logging
from pathlib import Path

import pytest
import tiny
import torch
from transformers.utils import logging as theirs

from burnish.core.errors import SettingError
from burnish.models.loading import ensure_pad_token, load_config, load_model, load_tokenizer, longest_input

CLASSIFIER = "AutoModelForSequenceClassification"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny.bert("MaskedLM").save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def said(action: str, name: Path | str, **options: object) -> str:
    with pytest.raises(SettingError) as caught:
        load_model(action, str(name), **options)  # type: ignore[arg-type]
    return str(caught.value)


def test_a_new_head_is_told_in_one_line(
    folder: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    level = theirs.get_verbosity()
    logging.getLogger("burnish").propagate = True
    model = load_model(CLASSIFIER, str(folder), id2label={0: "a", 1: "b", 2: "c"}, label2id={"a": 0, "b": 1, "c": 2})
    assert (model.config.num_labels, model.dtype) == (3, torch.float32)
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("burnish")]
    assert len(lines) == 1 and "classifier.weight" in lines[0] and str(folder) in lines[0]
    assert capfd.readouterr().out == "" and "Loading" not in capfd.readouterr().err
    assert theirs.get_verbosity() == level and theirs.is_progress_bar_enabled()


def test_the_weights_are_those_of_the_folder(folder: Path) -> None:
    model = load_model("AutoModelForMaskedLM", str(folder))
    expected = tiny.bert("MaskedLM").state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())


def test_changes_of_the_config_are_saved(folder: Path, tmp_path: Path) -> None:
    load_model(CLASSIFIER, str(folder), burnish_task={"task": "x"}).save_pretrained(tmp_path / "out")
    assert load_config(str(tmp_path / "out")).burnish_task == {"task": "x"}


def test_16_bit_weights_are_trained_in_32(folder: Path, tmp_path: Path) -> None:
    tiny.bert("MaskedLM").half().save_pretrained(tmp_path / "half")
    assert load_model("AutoModelForMaskedLM", str(tmp_path / "half")).dtype == torch.float32
    assert load_model("AutoModelForMaskedLM", str(tmp_path / "half"), torch_dtype="auto").dtype == torch.float16
    assert "float32, bfloat16" in said(CLASSIFIER, folder, torch_dtype="half-ish")


def test_a_head_of_another_size(tmp_path: Path) -> None:
    tiny.bert("SequenceClassification", num_labels=3).save_pretrained(tmp_path)
    two = {"id2label": {0: "a", 1: "b"}, "label2id": {"a": 0, "b": 1}}
    message = said(CLASSIFIER, tmp_path, **two)
    assert "(3, 32)" in message and "(2, 32)" in message and "--ignore_mismatched_sizes" in message
    model = load_model(CLASSIFIER, str(tmp_path), ignore_mismatched_sizes=True, **two)
    assert model.classifier.out_features == 2


def test_folders_that_hold_no_model(folder: Path, tmp_path: Path) -> None:
    assert "no config.json" in said(CLASSIFIER, tmp_path) and f"Did you mean {folder}?" in said(CLASSIFIER, tmp_path)
    (folder / "model.safetensors").unlink()
    assert "no weights" in said(CLASSIFIER, folder)
    assert "Did you mean 'model'?" in said(CLASSIFIER, tmp_path / "modell")
    (tmp_path / "file").write_text("x")
    assert "is a file" in said(CLASSIFIER, tmp_path / "file")
    (folder / "model.safetensors").write_bytes(b"damaged")
    assert str(folder) in said(CLASSIFIER, folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SettingError, match=r"The tokenizer in .*empty could not be loaded"):
        load_tokenizer(str(tmp_path / "empty"))


def test_a_model_of_another_kind(folder: Path, tmp_path: Path) -> None:
    assert "BertConfig" in said("AutoModelForSeq2SeqLM", folder)
    tiny.t5().save_pretrained(tmp_path / "t5")
    (tmp_path / "t5" / "config.json").write_text((folder / "config.json").read_text())
    assert "No weight" in said(CLASSIFIER, tmp_path / "t5")


def test_a_name_that_the_hub_cannot_give() -> None:
    message = said(CLASSIFIER, "nobody/nothing")
    assert "'nobody/nothing'" in message and "hub" in message and "local folder" in message


def test_padding_with_the_end_of_text() -> None:
    model = tiny.llama(pad_token_id=None)
    tokenizer = tiny.tokenizer(pad_token=None, eos_token="[SEP]")
    assert "[SEP]" in str(ensure_pad_token(tokenizer, model))
    assert (tokenizer.pad_token_id, model.config.pad_token_id) == (tiny.SEP, tiny.SEP)
    assert ensure_pad_token(tokenizer, model) is None
    with pytest.raises(SettingError, match=r"pad_token"):
        ensure_pad_token(tiny.tokenizer(pad_token=None), model)


def test_the_longest_input() -> None:
    assert longest_input(tiny.tokenizer(), tiny.bert("MaskedLM"), 20) == 20
    assert longest_input(tiny.tokenizer(model_max_length=7), tiny.bert("MaskedLM"), 20) == 7
    assert longest_input(tiny.tokenizer(), tiny.llama(max_position_embeddings=99)) == 99
    assert longest_input(tiny.tokenizer(), torch.nn.Linear(1, 1)) is None
