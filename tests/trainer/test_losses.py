"""The update of a step does not depend on how its rows are split, whoever computes the loss and in whatever form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import tiny
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset
from trainer import runs

from burnish import Trainer
from burnish.core.errors import UserError

SPLITS = [(8, 1), (4, 2), (3, 3), (1, 8)]
PLAIN_STEP = {"max_steps": 1, "lr_scheduler_type": "constant", "max_grad_norm": 0.0}


def tagger() -> Any:
    return tiny.bert("TokenClassification", num_labels=3, num_hidden_layers=1)


def tag_collator() -> Any:
    import transformers

    return transformers.DataCollatorForTokenClassification(tiny.tokenizer())


def applied(folder: Path, model: nn.Module, split: tuple[int, int], parts: dict[str, Any], cls: Any = Trainer) -> Any:
    """What one step of plain gradient descent at rate 1 took from the weights, and its logged loss."""
    before = runs.weights(model)
    optimizers = (torch.optim.SGD(model.parameters(), 1.0), None)
    batch, accumulation = split
    settings = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation}
    run = runs.trainer(folder, cls, {"model": model, "optimizers": optimizers, **parts}, **PLAIN_STEP, **settings)
    run.train()
    return {name: before[name] - value for name, value in runs.weights(model).items()}, runs.logged(run, "loss")[1]


# ---------------------------------------------------------------- compute_loss_func


def cross_entropy(outputs: Any, labels: torch.Tensor, reduction: str) -> torch.Tensor:
    return functional.cross_entropy(outputs.logits.flatten(0, 1), labels.flatten(), reduction=reduction)


def mean(outputs: Any, labels: torch.Tensor) -> torch.Tensor:
    return cross_entropy(outputs, labels, "mean")


def mean_although_told(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
    return cross_entropy(outputs, labels, "mean")


def divided(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
    if num_items_in_batch is None:
        return cross_entropy(outputs, labels, "mean")
    return cross_entropy(outputs, labels, "sum") / num_items_in_batch


def divided_with_more(outputs: Any, labels: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    return divided(outputs, labels, kwargs.get("num_items_in_batch"))


FUNCTIONS = [mean, mean_although_told, divided, divided_with_more]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_compute_loss_func(function: Any, split: tuple[int, int], tmp_path: Path) -> None:
    """Rows have from 3 to 20 targets: a mean of means would differ by tens of per cent."""
    rows = tiny.tag_rows(8)
    usual, loss = applied(tmp_path, tagger(), (8, 1), {"train_dataset": rows, "data_collator": tag_collator()})
    parts = {"train_dataset": rows, "data_collator": tag_collator(), "compute_loss_func": function}
    own, own_loss = applied(tmp_path, tagger(), split, parts)
    assert runs.difference(usual, own) < 1e-6
    assert own_loss == pytest.approx(loss, abs=1e-5)


class Stream(IterableDataset[Any]):
    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __iter__(self) -> Any:
        return iter(self.rows)


class OwnLoader(Trainer):
    def get_train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.train_dataset, self.args.per_device_train_batch_size, collate_fn=self.data_collator)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("source", ["stream", "loader"])
def test_compute_loss_func_on_streams_and_loaders(
    source: str, function: Any, split: tuple[int, int], tmp_path: Path
) -> None:
    rows = tiny.tag_rows(8)
    usual, _ = applied(tmp_path, tagger(), (8, 1), {"train_dataset": rows, "data_collator": tag_collator()})
    data = Stream(rows) if source == "stream" else rows
    parts = {"train_dataset": data, "data_collator": tag_collator(), "compute_loss_func": function}
    own, _ = applied(tmp_path, tagger(), split, parts, OwnLoader if source == "loader" else Trainer)
    assert runs.difference(usual, own) < 1e-6


def test_compute_loss_func_in_evaluation(tmp_path: Path) -> None:
    """The mean over targets of the user's loss, whatever the batch size, before and after training."""
    rows = tiny.tag_rows(7)
    usual = {"model": tagger(), "data_collator": tag_collator(), "eval_dataset": rows, "train_dataset": rows}
    expected = runs.trainer(tmp_path, parts=usual).evaluate()["eval_loss"]
    for function in FUNCTIONS:
        for size in (1, 3, 7):
            parts = {**usual, "model": tagger(), "compute_loss_func": function}
            run = runs.trainer(tmp_path, parts=parts, per_device_eval_batch_size=size, learning_rate=0.0, max_steps=1)
            assert run.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-5)
            run.train()
            assert run.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-5)


# ---------------------------------------------------------------- plain modules


@dataclass
class AsDataclass:
    loss: torch.Tensor
    logits: torch.Tensor


class AsNamedTuple(NamedTuple):
    loss: torch.Tensor
    logits: torch.Tensor


class NamedTheOtherWay(NamedTuple):
    logits: torch.Tensor
    loss: torch.Tensor


FORMS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "dict": lambda loss, logits: {"loss": loss, "logits": logits},
    "dict_logits_first": lambda loss, logits: {"logits": logits, "loss": loss},
    "tuple": lambda loss, logits: (loss, logits),
    "list": lambda loss, logits: [loss, logits],
    "dataclass": AsDataclass,
    "named_tuple": AsNamedTuple,
    "named_tuple_logits_first": lambda loss, logits: NamedTheOtherWay(logits, loss),
}


class Regressor(nn.Module):
    """Knows nothing of transformers. Its loss is a mean over rows."""

    def __init__(self, form: str = "dict") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.form = nn.Linear(3, 1), form

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        logits = self.layer(x).squeeze(-1)
        if labels is None:
            return {"logits": logits}
        return FORMS[self.form](functional.mse_loss(logits, labels), logits)


def number_rows(count: int) -> list[dict[str, Any]]:
    drawn = torch.randn(count, 4, generator=torch.Generator().manual_seed(1)).tolist()
    return [{"x": row[:3], "labels": row[3]} for row in drawn]


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_outputs(form: str, tmp_path: Path) -> None:
    """Training, evaluation and prediction read loss and logits out of all of them."""
    rows = number_rows(8)
    reference = Regressor()
    x, labels = (torch.tensor([row[name] for row in rows]) for name in ("x", "labels"))
    loss = reference(x, labels)["loss"]
    loss.backward()
    model = Regressor(form)
    parts = {"train_dataset": rows, "data_collator": None}
    change, logged = applied(tmp_path, model, (2, 4), parts)
    assert logged == pytest.approx(loss.item(), abs=1e-6)
    assert runs.difference(change, {name: p.grad for name, p in reference.named_parameters()}) < 1e-6
    run = runs.trainer(tmp_path, parts={"model": Regressor(form), "data_collator": None, "eval_dataset": rows})
    assert run.evaluate()["eval_loss"] == pytest.approx(loss.item(), abs=1e-6)
    found = run.predict(rows)
    assert torch.allclose(torch.as_tensor(found.predictions), reference(x)["logits"].detach(), atol=1e-6)


class OnlyLoss(Regressor):
    """Returns one tensor."""

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.mse_loss(self.layer(x).squeeze(-1), labels)


class LossOfEachRow(Regressor):
    """Returns a loss for each row: their mean is taken."""

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": functional.mse_loss(self.layer(x).squeeze(-1), labels, reduction="none")}


class SumOfLosses(Regressor):
    """A sum instead of a mean: no count explains it, so the batches are left whole and averaged."""

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": functional.mse_loss(self.layer(x).squeeze(-1), labels, reduction="sum")}


@pytest.mark.parametrize("kind", [OnlyLoss, LossOfEachRow])
def test_loss_alone(kind: Any, tmp_path: Path) -> None:
    parts = {"train_dataset": number_rows(8), "data_collator": None}
    usual, _ = applied(tmp_path, Regressor(), (8, 1), parts)
    own, _ = applied(tmp_path, kind(), (2, 4), parts)
    assert runs.difference(usual, own) < 1e-6


def test_a_sum_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    applied(tmp_path, SumOfLosses(), (2, 4), {"train_dataset": number_rows(8), "data_collator": None})
    assert "The loss of SumOfLosses is no mean over rows or labels" in caplog.text


def test_no_loss_is_an_error(tmp_path: Path) -> None:
    class NoLoss(Regressor):
        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"logits": self.layer(x)}

    run = runs.trainer(tmp_path, parts={"model": NoLoss(), "train_dataset": number_rows(8), "data_collator": None})
    with pytest.raises(UserError, match=r"returned no loss, only \['logits'\].*compute_loss_func"):
        run.train()


@pytest.mark.parametrize("split", SPLITS)
def test_masked_mean_of_a_plain_module(split: tuple[int, int], tmp_path: Path) -> None:
    """A mean over targets is found to be one, though nothing says so; on a stream too."""

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.table = nn.Embedding(tiny.NUM_WORDS, 3)

        def forward(self, input_ids: torch.Tensor, labels: Any, attention_mask: Any = None) -> dict[str, torch.Tensor]:
            logits = self.table(input_ids)
            return {"loss": functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}

    rows = tiny.tag_rows(8)
    parts = {"data_collator": tag_collator()}
    usual, _ = applied(tmp_path, Tagger(), (8, 1), {**parts, "train_dataset": rows})
    own, _ = applied(tmp_path, Tagger(), split, {**parts, "train_dataset": rows})
    streamed, _ = applied(tmp_path, Tagger(), split, {**parts, "train_dataset": Stream(rows)})
    assert runs.difference(usual, own) < 1e-6
    assert runs.difference(usual, streamed) < 1e-6


# ---------------------------------------------------------------- label smoothing


@pytest.mark.parametrize("split", SPLITS)
def test_label_smoothing(split: tuple[int, int], tmp_path: Path) -> None:
    """Against torch's own smoothed cross-entropy over all targets at once."""
    rows = tiny.tag_rows(8)
    reference = tagger()
    batch = tag_collator()([dict(row) for row in rows])
    labels = batch.pop("labels")
    logits = reference(**batch).logits
    loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=0.2)
    loss.backward()
    model = tagger()
    before = runs.weights(model)
    size, accumulation = split
    run = runs.trainer(
        tmp_path,
        parts={
            "model": model, "train_dataset": rows, "data_collator": tag_collator(),
            "optimizers": (torch.optim.SGD(model.parameters(), 1.0), None),
        },
        **PLAIN_STEP, label_smoothing_factor=0.2, per_device_train_batch_size=size,
        gradient_accumulation_steps=accumulation,
    )  # fmt: skip
    run.train()
    change = {name: before[name] - value for name, value in runs.weights(model).items()}
    assert runs.logged(run, "loss")[1] == pytest.approx(loss.item(), abs=1e-5)
    gradients = {
        name: p.grad if p.grad is not None else torch.zeros_like(p) for name, p in reference.named_parameters()
    }
    assert runs.difference(change, gradients) < 1e-6
