"""A run in which memory runs out comes to the weights of one in which it does not."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from trainer import runs

import burnish
from burnish.core.errors import OutOfMemoryError


def scarce(model: Any, most: int) -> Any:
    """A model for `most` positions at once in training: for more, memory runs out at the end of its backward pass."""

    def watch(module: Any, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        if module.training and kwargs["input_ids"].numel() > most and torch.is_grad_enabled():
            output.logits.register_hook(fail)

    def fail(gradient: torch.Tensor) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    model.register_forward_hook(watch, with_kwargs=True)
    return model


PADDING = [{}, {"padding_free": False, "token_budget": 400}, {"gradient_checkpointing": True}]


@pytest.mark.parametrize("settings", PADDING)
def test_the_weights(settings: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = {"max_steps": 6, "per_device_train_batch_size": 8, **settings}
    run = runs.trainer(tmp_path, parts={"model": scarce(runs.classifier(), 60)}, **settings)
    with caplog.at_level(logging.WARNING, "burnish"):
        run.train()
    plain = runs.trainer(tmp_path, **settings)
    plain.train()
    assert runs.difference(run.model, plain.model) < 1e-6
    assert run.state.num_examples_seen == plain.state.num_examples_seen
    assert runs.logged(run, "loss") == pytest.approx(runs.logged(plain, "loss"), abs=1e-6)
    assert caplog.text.count("Memory ran out in step 1 of pass 1") == 1


def test_a_row_that_does_not_fit(tmp_path: Path) -> None:
    run = runs.trainer(tmp_path, parts={"model": scarce(runs.classifier(), 20)}, max_steps=4)
    with pytest.raises(OutOfMemoryError, match=r"Memory ran out at row \d+ alone, of 2\d tokens"):
        run.train()


class Own(burnish.Trainer):
    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        outputs = model(**inputs)
        return (outputs.loss, outputs) if return_outputs else outputs.loss


def test_a_loss_of_the_users_own_sees_its_batches_whole(tmp_path: Path) -> None:
    run = runs.trainer(tmp_path, Own, parts={"model": scarce(runs.classifier(), 40)}, max_steps=4)
    with pytest.raises(OutOfMemoryError, match=r"batch of 4 rows .* left whole"):
        run.train()


def test_an_evaluation(tmp_path: Path) -> None:
    def fail(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        if len(kwargs["input_ids"]) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    rows = tiny.class_rows(7)
    expected = runs.trainer(tmp_path).predict(rows)
    run = runs.trainer(tmp_path)
    run.model.register_forward_pre_hook(fail, with_kwargs=True)
    found = run.predict(rows)
    assert found.metrics["test_loss"] == pytest.approx(expected.metrics["test_loss"], abs=1e-6)
    assert found.predictions == pytest.approx(expected.predictions, abs=1e-5)
    assert found.label_ids.tolist() == expected.label_ids.tolist()


def test_the_setting_of_transformers_is_nothing_new(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "burnish"):
        burnish.TrainingArguments(str(tmp_path), auto_find_batch_size=True)
    assert caplog.text == ""
