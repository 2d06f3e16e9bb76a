"""Models and folders that cannot work are refused before the first step."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers

from burnish.core.errors import SettingError
from burnish.data.checks_model import check_model, check_output_dir
from burnish.models.contract import facts_of


def test_a_model_with_a_head_passes() -> None:
    for model in (tiny.bert("SequenceClassification"), tiny.llama(), tiny.t5()):
        check_model(model, facts_of(model))


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: transformers.BertModel(tiny.bert_config()), "AutoModelForSequenceClassification"),
        (lambda: transformers.T5Model(tiny.t5().config), "AutoModelForSeq2SeqLM"),
    ],
)
def test_a_base_model_is_refused_unless_the_user_has_a_loss(build: Callable[[], Any], said: str) -> None:
    model = build()
    with pytest.raises(SettingError, match=f"without a head.*{said}"):
        check_model(model, facts_of(model))
    check_model(model, facts_of(model), has_own_loss=True)


def test_no_trainable_parameter() -> None:
    model = tiny.bert("SequenceClassification").requires_grad_(False)
    with pytest.raises(SettingError, match=r"no trainable parameter.*requires_grad_\(True\)"):
        check_model(model, facts_of(model))


def test_weights_on_the_meta_device() -> None:
    with torch.device("meta"):
        model = transformers.BertForMaskedLM(tiny.bert_config())
    with pytest.raises(SettingError, match="meta device"):
        check_model(model, facts_of(model))


def test_a_folder_that_can_be_written_is_not_made(tmp_path: Path) -> None:
    check_output_dir(tmp_path / "new" / "run")
    check_output_dir(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for path in (file, file / "run"):
        with pytest.raises(SettingError, match=f"{file} is a file"):
            check_output_dir(path)


def test_a_relative_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check_output_dir("out")


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a folder that even root cannot write to")
def test_a_folder_that_cannot_be_written() -> None:
    with pytest.raises(SettingError, match=r"'/proc/run' cannot be written.*Choose another path"):
        check_output_dir("/proc/run")
