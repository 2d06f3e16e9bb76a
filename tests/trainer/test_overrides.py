"""A method that a user overrides is used, with old and new signatures, in a subclass and on the object."""

from __future__ import annotations

import functools
from pathlib import Path
from types import MethodType
from typing import Any

import pytest
import tiny
import torch
from torch import nn
from torch.utils.data import DataLoader
from trainer import runs

from burnish import EvalLoopOutput, Trainer
from burnish.core.errors import SettingError
from burnish.run.hooks import overridden

Parts = dict[str, Any]
PLAIN_STEP = {"max_steps": 1, "lr_scheduler_type": "constant", "max_grad_norm": 0.0, "save_strategy": "no"}


def applied(folder: Path, cls: Any, split: tuple[int, int], parts: Parts | None = None) -> dict[str, torch.Tensor]:
    """What one step of plain gradient descent at rate 1 on the same 8 rows took from the weights."""
    model = runs.classifier()
    before = runs.weights(model)
    usual = {
        "model": model,
        "train_dataset": tiny.class_rows(8),
        "optimizers": (torch.optim.SGD(model.parameters(), 1.0), None),
    }
    batch, accumulation = split
    settings = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation}
    runs.trainer(folder, cls, {**usual, **(parts or {})}, **PLAIN_STEP, **settings).train()
    return {name: before[name] - value for name, value in runs.weights(model).items()}


# ---------------------------------------------------------------- compute_loss


class OldLoss(Trainer):
    calls = 0

    def compute_loss(self, model: nn.Module, inputs: Any, return_outputs: bool = False) -> Any:
        type(self).calls += 1
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = 2 * nn.functional.cross_entropy(outputs.logits, labels)
        return (loss, outputs) if return_outputs else loss


class NewLoss(Trainer):
    def compute_loss(
        self, model: nn.Module, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        how = "mean" if num_items_in_batch is None else "sum"
        loss = 2 * nn.functional.cross_entropy(outputs.logits, labels, reduction=how)
        loss = loss if num_items_in_batch is None else loss / num_items_in_batch
        return (loss, outputs) if return_outputs else loss


class KeywordLoss(Trainer):
    """Hands everything on, as many do."""

    def compute_loss(
        self, model: nn.Module, inputs: Any, *args: Any, return_outputs: bool = False, **kwargs: Any
    ) -> Any:
        loss, outputs = super().compute_loss(model, inputs, *args, return_outputs=True, **kwargs)
        return (2 * loss, outputs) if return_outputs else 2 * loss


class MeanInSpiteOfTheNumber(Trainer):
    def compute_loss(self, model: nn.Module, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        outputs = model(**inputs)
        return (2 * outputs.loss, outputs) if return_outputs else 2 * outputs.loss


@pytest.mark.parametrize("cls", [OldLoss, NewLoss, KeywordLoss, MeanInSpiteOfTheNumber])
@pytest.mark.parametrize("split", [(8, 1), (4, 2), (3, 3), (1, 8)])
def test_compute_loss(cls: Any, split: tuple[int, int], tmp_path: Path) -> None:
    """Twice the loss is twice the gradient, however a step is split; also where the last batch is smaller."""
    plain = applied(tmp_path, Trainer, (8, 1))
    doubled = applied(tmp_path, cls, split)
    assert runs.difference({name: 2 * value for name, value in plain.items()}, doubled) < 1e-5
    assert max(value.abs().max().item() for value in plain.values()) > 1e-3


@pytest.mark.parametrize("cls", [OldLoss, NewLoss, KeywordLoss, MeanInSpiteOfTheNumber])
def test_compute_loss_in_evaluation(cls: Any, tmp_path: Path) -> None:
    """The loss of an evaluation is the user's, a mean over rows, before and after training."""
    rows = tiny.class_rows(7)
    usual = runs.trainer(tmp_path, parts={"eval_dataset": rows}).evaluate()["eval_loss"]
    run = runs.trainer(tmp_path, cls, {"eval_dataset": rows}, max_steps=1, learning_rate=0.0)
    assert run.evaluate()["eval_loss"] == pytest.approx(2 * usual, rel=1e-5)
    run.train()
    assert run.evaluate()["eval_loss"] == pytest.approx(2 * usual, rel=1e-5)


def test_a_method_exchanged_on_the_object(tmp_path: Path) -> None:
    run = runs.trainer(tmp_path, max_steps=2)
    run.compute_loss = MethodType(OldLoss.compute_loss, run)
    run.calls = 0
    with pytest.raises(AttributeError, match="calls"):  # `type(self)` is Trainer itself, which has no such attribute
        run.train()


def test_a_method_exchanged_on_the_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without `functools.wraps`, which makes a function look like the one it wraps."""
    assert not overridden(runs.trainer(tmp_path), "compute_loss")
    calls = []
    original = Trainer.compute_loss

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append("wrapped")
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Trainer, "compute_loss", wrapper)
    run = runs.trainer(tmp_path, max_steps=1)
    run.train()
    assert calls and overridden(run, "compute_loss")
    monkeypatch.setattr(Trainer, "compute_loss", lambda self, *args, **kwargs: original(self, *args, **kwargs))
    assert overridden(run, "compute_loss")


# ---------------------------------------------------------------- training_step


class NewStep(Trainer):
    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        return super().training_step(model, inputs, num_items_in_batch)


class StepWithAccelerate(Trainer):
    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        model.train()
        inputs = self._prepare_inputs(inputs)
        with self.compute_loss_context_manager():
            loss = self.compute_loss(model, inputs, num_items_in_batch=num_items_in_batch)
        self.accelerator.backward(loss)
        return loss.detach()


class OldStep(Trainer):
    """The signature before 4.46; the mean of a batch is divided by the batches of the step."""

    def training_step(self, model: nn.Module, inputs: Any) -> torch.Tensor:
        return super().training_step(model, inputs)


class OldStepByHand(Trainer):
    def training_step(self, model: nn.Module, inputs: Any) -> torch.Tensor:
        loss = self.compute_loss(model, self._prepare_inputs(inputs)) / self.current_gradient_accumulation_steps
        self.accelerator.backward(loss)
        return loss.detach()


@pytest.mark.parametrize("cls", [OldStep, OldStepByHand])
@pytest.mark.parametrize("split", [(8, 1), (4, 2), (3, 3), (1, 8)])
def test_old_training_step(cls: Any, split: tuple[int, int], tmp_path: Path) -> None:
    plain = applied(tmp_path, Trainer, (8, 1))
    assert runs.difference(plain, applied(tmp_path, cls, split)) < 1e-6


@pytest.mark.parametrize("cls", [NewStep, StepWithAccelerate])
@pytest.mark.parametrize("split", [(8, 1), (4, 2), (3, 3), (1, 8)])
def test_training_step(cls: Any, split: tuple[int, int], tmp_path: Path) -> None:
    plain = applied(tmp_path, Trainer, (8, 1))
    assert runs.difference(plain, applied(tmp_path, cls, split)) < 1e-6


def test_training_step_logs_its_loss(tmp_path: Path) -> None:
    plain, own = (
        runs.trainer(tmp_path, cls, max_steps=4, gradient_accumulation_steps=2) for cls in (Trainer, StepWithAccelerate)
    )
    plain.train()
    own.train()
    assert runs.logged(own, "loss") == pytest.approx(runs.logged(plain, "loss"), abs=1e-5)


def test_prepare_inputs(tmp_path: Path) -> None:
    """Not public, and much overridden: what it returns goes through the model."""
    lengths: list[int] = []

    class Own(Trainer):
        def _prepare_inputs(self, inputs: Any) -> Any:
            lengths.append(inputs["input_ids"].shape[1])
            return super()._prepare_inputs(
                {name: value[:, :3] if value.dim() > 1 else value for name, value in inputs.items()}
            )

    run = runs.trainer(tmp_path, Own, max_steps=3)
    run.train()
    assert len(lengths) == 3
    lengths.clear()
    run.predict(tiny.class_rows(2))
    assert len(lengths) == 1


def test_floating_point_ops(tmp_path: Path) -> None:
    class Own(Trainer):
        def floating_point_ops(self, inputs: Any) -> int:
            return 1000 * len(inputs["input_ids"])

    run = runs.trainer(tmp_path, Own, max_steps=3)
    run.train()
    assert run.state.total_flos == 12_000


def test_methods_that_are_not_called(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Methods of transformers' trainer that burnish does not have are named, with what to do instead."""

    class Own(Trainer):
        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            return None

    runs.trainer(tmp_path, Own)
    assert "Own._get_train_sampler is not called by burnish. Override get_train_dataloader" in caplog.text
    caplog.clear()
    runs.trainer(tmp_path, NewStep)
    assert "is not called" not in caplog.text


# ---------------------------------------------------------------- optimizer and schedule


class Made(Trainer):
    def create_optimizer(self, model: Any = None) -> Any:
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        self.steps = num_training_steps
        self.lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer or self.optimizer, 1, gamma=0.5)
        return self.lr_scheduler


class OnlyReturned(Trainer):
    def create_optimizer(self) -> Any:
        return torch.optim.SGD(self.model.parameters(), lr=0.5)

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        self.steps = num_training_steps
        return torch.optim.lr_scheduler.StepLR(optimizer or self.optimizer, 1, gamma=0.5)


class BothAtOnce(Trainer):
    def create_optimizer_and_scheduler(self, num_training_steps: int) -> None:
        self.steps = num_training_steps
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        self.lr_scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, gamma=0.5)


@pytest.mark.parametrize("cls", [Made, OnlyReturned, BothAtOnce])
def test_optimizer_and_schedule(cls: Any, tmp_path: Path) -> None:
    run = runs.trainer(tmp_path, cls, max_steps=3)
    run.train()
    assert runs.logged(run, "learning_rate") == {1: 0.5, 2: 0.25, 3: 0.125}
    assert run.steps == 3
    assert run.optimizer.param_groups[0]["lr"] == 0.0625


def test_names_of_decaying_parameters(tmp_path: Path) -> None:
    class DecaysAll(Trainer):
        def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
            return [name for name, _ in model.named_parameters()]

    run = runs.trainer(tmp_path, DecaysAll, weight_decay=0.1)
    decaying, fixed = run.create_optimizer().param_groups
    assert len(decaying["params"]) == len(list(run.model.parameters()))
    assert fixed["params"] == []


# ---------------------------------------------------------------- loaders


class OwnLoaders(Trainer):
    def get_train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.train_dataset[:6], batch_size=3, collate_fn=self.data_collator)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        return DataLoader(tiny.class_rows(5), batch_size=2, collate_fn=self.data_collator)

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader[Any]:
        return DataLoader(test_dataset[:3], batch_size=2, collate_fn=self.data_collator)


def test_loaders(tmp_path: Path) -> None:
    run = runs.trainer(tmp_path, OwnLoaders, num_train_epochs=2, eval_strategy="epoch")
    run.train()
    assert run.state.global_step == 4
    assert run.state.num_examples_seen == 12
    assert list(runs.logged(run, "eval_loss")) == [2, 4]
    found = run.predict(tiny.class_rows(9))
    assert found.predictions.shape == (3, 2)


def test_an_own_loader_is_asked_for_each_pass(tmp_path: Path) -> None:
    """Its batches are used as they are, those of a step together; a sampler is told the pass."""
    seen: list[list[int]] = []

    class Sampler(torch.utils.data.Sampler[int]):
        epoch = -1

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __iter__(self) -> Any:
            return iter(range(4) if self.epoch == 0 else range(3, -1, -1))

        def __len__(self) -> int:
            return 4

    rows = [
        {**row, "token_type_ids": [number % 2] * len(row["input_ids"])} for number, row in enumerate(tiny.class_rows(4))
    ]

    class OwnLoader(Trainer):
        def get_train_dataloader(self) -> DataLoader[Any]:
            return DataLoader(rows, batch_size=1, sampler=Sampler(), collate_fn=self.data_collator)

        def compute_loss(self, model: nn.Module, inputs: Any, **kwargs: Any) -> Any:
            if torch.is_grad_enabled():
                seen.append(inputs["input_ids"].flatten().tolist()[0])
            return super().compute_loss(model, inputs, **kwargs)

    runs.trainer(tmp_path, OwnLoader, num_train_epochs=2).train()
    order = [row["input_ids"][0] for row in rows]
    assert seen[-8:] == order + order[::-1]


# ---------------------------------------------------------------- evaluation


def test_evaluate_and_log(tmp_path: Path) -> None:
    class Own(Trainer):
        said: list[dict[str, float]]

        def evaluate(self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval") -> Any:
            return {"eval_score": float(self.state.global_step)}

        def log(self, logs: dict[str, float]) -> None:
            self.said = [*getattr(self, "said", []), dict(logs)]
            super().log({**logs, "extra": 1.0})

    run = runs.trainer(
        tmp_path, Own, {"eval_dataset": tiny.class_rows(2)},
        max_steps=3, eval_strategy="steps", eval_steps=1, save_strategy="best", metric_for_best_model="score",
        greater_is_better=True,
    )  # fmt: skip
    run.train()
    assert run.state.best_metric == 3.0
    assert [entry["loss"] for entry in run.said if "loss" in entry] == list(runs.logged(run, "loss").values())
    assert all(entry["extra"] == 1.0 for entry in run.state.log_history)


def test_prediction_step(tmp_path: Path) -> None:
    class Own(Trainer):
        def prediction_step(
            self, model: nn.Module, inputs: Any, prediction_loss_only: bool, ignore_keys: Any = None
        ) -> Any:
            loss, _, labels = super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
            return loss * 0 + 3.0, torch.ones(len(inputs["input_ids"]), 5), labels

    run = runs.trainer(tmp_path, Own)
    found = run.predict(tiny.class_rows(6))
    assert found.metrics["test_loss"] == 3.0
    assert found.predictions.shape == (6, 5)


def test_batches_that_are_no_dict(tmp_path: Path) -> None:
    """Tuples of tensors reach the methods of a user who takes them apart."""

    class Own(Trainer):
        def compute_loss(self, model: nn.Module, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
            x, y = inputs
            loss = (model(x).squeeze(-1) - y).square().mean()
            return (loss, model(x)) if return_outputs else loss

        def prediction_step(self, model: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            loss, outputs = self.compute_loss(model, self._prepare_inputs(inputs), return_outputs=True)
            return loss, outputs.squeeze(-1), inputs[1]

    drawn = torch.Generator().manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(10, 3, generator=drawn), torch.randn(10, generator=drawn))
    parts = {"train_dataset": data, "data_collator": torch.utils.data.default_collate, "model": nn.Linear(3, 1)}
    run = runs.trainer(tmp_path, Own, parts, num_train_epochs=1, gradient_accumulation_steps=2)
    run.train()
    assert run.state.global_step == 2
    expected = (run.model(data.tensors[0]).squeeze(-1) - data.tensors[1]).square().mean().item()
    assert run.evaluate(data)["eval_loss"] == pytest.approx(expected, rel=1e-5)
    assert run.predict(data).label_ids.tolist() == data.tensors[1].tolist()


def test_evaluation_loop_and_predict(tmp_path: Path) -> None:
    class Own(Trainer):
        def evaluation_loop(
            self,
            dataloader: Any,
            description: str,
            prediction_loss_only: bool | None = None,
            ignore_keys: Any = None,
            metric_key_prefix: str = "eval",
        ) -> Any:
            self.described = description
            return EvalLoopOutput(None, None, {f"{metric_key_prefix}_loss": 7.0}, 10)

        def predict(self, test_dataset: Any, **kwargs: Any) -> Any:
            return "own", super().predict(test_dataset, **kwargs)

    run = runs.trainer(tmp_path, Own, {"eval_dataset": tiny.class_rows(2)})
    assert run.evaluate()["eval_loss"] == 7.0
    assert run.described == "Evaluation"
    word, found = run.predict(tiny.class_rows(2))
    assert word == "own" and found.metrics["test_loss"] == 7.0 and run.described == "Prediction"


# ---------------------------------------------------------------- saving


class SavesMore(Trainer):
    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        super().save_model(output_dir, _internal_call)
        (Path(output_dir or self.args.output_dir) / "more.txt").write_text("more")


class SavesOnlyItsOwn(Trainer):
    def save_model(self, output_dir: str | None = None) -> None:
        (Path(output_dir or self.args.output_dir) / "more.txt").write_text("more")


@pytest.mark.parametrize("cls", [SavesMore, SavesOnlyItsOwn])
def test_save_model_is_used_for_checkpoints(cls: Any, tmp_path: Path) -> None:
    """What a user writes is in the checkpoint, and the run can go on from it all the same."""
    run = runs.trainer(tmp_path, cls, max_steps=2, save_strategy="steps", save_steps=1)
    run.train()
    assert (tmp_path / "checkpoint-1" / "more.txt").read_text() == "more"
    resumed = runs.trainer(tmp_path, cls, max_steps=2)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    assert runs.difference(run.model, resumed.model) == 0.0


# ---------------------------------------------------------------- accelerate


def test_accelerator(tmp_path: Path) -> None:
    """It is on the trainer's device. Its state is one for the process, so a second precision must not be an error."""
    for number, changes in enumerate(({}, {"bf16": True}, {"fp16": True}, {})):
        run = runs.trainer(tmp_path / str(number), StepWithAccelerate, max_steps=1, **changes)
        plain = runs.trainer(tmp_path / str(number), max_steps=1, **changes)
        run.train()
        plain.train()
        assert run.accelerator.device.type == "cpu"
        assert run.accelerator.unwrap_model(run.model) is run.model
        assert runs.logged(run, "grad_norm") == pytest.approx(runs.logged(plain, "grad_norm"), rel=1e-4)


def test_a_loss_that_takes_model_and_inputs_alone(tmp_path: Path) -> None:
    """It trains and evaluates; predictions it has none, which is said."""

    class Plain(Trainer):
        def compute_loss(self, model: Any, inputs: Any) -> Any:
            return model(**inputs).loss

    parts = {"eval_dataset": tiny.class_rows(6)}
    run = runs.trainer(tmp_path, Plain, parts, max_steps=1)
    run.train()
    assert run.evaluate()["eval_loss"] == pytest.approx(
        runs.trainer(tmp_path, parts={**parts, "model": run.model}).evaluate()["eval_loss"], abs=1e-6
    )
    with pytest.raises(SettingError, match=r"Plain.compute_loss takes no `return_outputs`.*return \(loss, outputs\)"):
        run.predict(tiny.class_rows(6))


def test_a_loss_that_must_be_told_whether_outputs_are_wanted(tmp_path: Path) -> None:
    class Asks(Trainer):
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool) -> Any:
            outputs = model(**inputs)
            return (outputs.loss, outputs) if return_outputs else outputs.loss

    run = runs.trainer(tmp_path, Asks, max_steps=1)
    run.train()
    assert run.predict(tiny.class_rows(6)).predictions.shape == (6, 2)
