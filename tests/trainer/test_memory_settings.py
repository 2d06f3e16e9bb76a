"""Settings that trade time for memory leave the weights what they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
import transformers
from trainer import runs

CHECKPOINTING: list[Any] = [
    None,
    *(
        pytest.param(options, marks=pytest.mark.newest)
        for options in ({"every_n_layers": 2}, {"offload": True}, '{"every_n_layers": 3, "offload": true}')
    ),
]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return trained(tmp_path_factory.mktemp("plain"))


def trained(folder: Path, **settings: Any) -> Any:
    parts = {
        "model": tiny.llama(num_hidden_layers=4), "train_dataset": tiny.language_rows(18),
        "data_collator": transformers.DataCollatorForSeq2Seq(tiny.tokenizer()),
    }  # fmt: skip
    run = runs.trainer(folder, parts=parts, max_steps=4, gradient_accumulation_steps=2, **settings)
    run.train()
    return run


@pytest.mark.parametrize("options", CHECKPOINTING)
def test_gradient_checkpointing(options: Any, plain: Any, tmp_path: Path) -> None:
    run = trained(tmp_path, gradient_checkpointing=True, gradient_checkpointing_kwargs=options)
    assert runs.difference(run.model, plain.model) < 1e-7
    assert runs.logged(run, "loss") == pytest.approx(runs.logged(plain, "loss"), abs=1e-7)
