"""Mixed precision on the CPU: in training, in evaluation, and the loss scale that goes with float16."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from trainer import runs

from burnish import Trainer
from burnish.core.errors import NonFiniteError


def types_seen(model: Any) -> list[torch.dtype]:
    """The types that the last layer computes in, from now on."""
    seen: list[torch.dtype] = []
    model.classifier.register_forward_hook(lambda part, args, output: seen.append(output.dtype))
    return seen


@pytest.mark.parametrize(("name", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_mixed_precision(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """Layers compute in it; weights and what is returned stay float32; near the plain run."""
    plain = runs.trainer(tmp_path, max_steps=5)
    plain.train()
    run = runs.trainer(tmp_path, parts={"eval_dataset": tiny.class_rows(5)}, max_steps=5, **{name: True})
    run.train()
    seen = types_seen(run.model)
    found = run.predict(tiny.class_rows(5))
    assert set(seen) == {dtype}
    assert all(value.dtype == torch.float32 for value in runs.weights(run.model).values())
    assert 0.0 < runs.difference(plain.model, run.model) < 0.01
    assert found.metrics["test_loss"] == pytest.approx(plain.evaluate(tiny.class_rows(5))["eval_loss"], abs=0.02)


@pytest.mark.parametrize(("name", "dtype"), [("bf16_full_eval", torch.bfloat16), ("fp16_full_eval", torch.float16)])
def test_precision_of_evaluation_alone(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    plain = runs.trainer(tmp_path, max_steps=3)
    plain.train()
    parts = {"eval_dataset": tiny.class_rows(5)}
    run = runs.trainer(tmp_path, parts=parts, max_steps=3, eval_strategy="steps", eval_steps=1, **{name: True})
    seen = types_seen(run.model)
    run.train()
    assert runs.difference(plain.model, run.model) == 0.0
    assert set(seen) == {torch.float32, dtype}
    seen.clear()
    found = run.evaluate()["eval_loss"]
    assert set(seen) == {dtype}
    assert found == pytest.approx(plain.evaluate(tiny.class_rows(5))["eval_loss"], abs=0.02)


def test_gradients_are_clipped_without_their_scale(tmp_path: Path) -> None:
    plain = runs.trainer(tmp_path, max_steps=4, max_grad_norm=0.1)
    plain.train()
    run = runs.trainer(tmp_path, max_steps=4, max_grad_norm=0.1, fp16=True)
    run.train()
    assert runs.logged(run, "grad_norm") == pytest.approx(runs.logged(plain, "grad_norm"), rel=0.05)


class Scaled(Trainer):
    """A loss times a number."""

    factor = 100.0

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        outputs = model(**inputs)
        loss = outputs.loss * self.factor
        return (loss, outputs) if return_outputs else loss


def test_an_overflow_of_the_scale_is_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The first scale is too large for this loss: some steps are left out, and said, until it fits."""
    run = runs.trainer(tmp_path, Scaled, max_steps=12, fp16=True)
    before = runs.weights(run.model)
    run.train()
    assert run.engine.precision.scaler.get_scale() < 65536
    assert runs.difference(before, run.model) > 0.0
    norms = list(runs.logged(run, "grad_norm").values())
    assert norms[0] > 1e38 and norms[-1] < 1e4
    assert caplog.text.count("overflowed in float16 at a loss scale of 65536") == 1
    assert all(torch.isfinite(value).all() for value in runs.weights(run.model).values())


def test_gradients_that_no_scale_helps_are_an_error(tmp_path: Path) -> None:
    class NotFinite(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, loss: torch.Tensor) -> torch.Tensor:
            return loss.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * torch.inf

    class Broken(Trainer):
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
            outputs = model(**inputs)
            loss = NotFinite.apply(outputs.loss)
            return (loss, outputs) if return_outputs else loss

    run = runs.trainer(tmp_path, Broken, max_steps=30, fp16=True, logging_strategy="no")
    before = runs.weights(run.model)
    with pytest.raises(NonFiniteError, match="gradient is not finite"):
        run.train()
    assert 16 <= run.state.global_step <= 20
    assert runs.difference(before, run.model) == 0.0
