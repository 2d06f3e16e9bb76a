"""Autocast, and the loss scale that float16 needs, on the CPU."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from burnish.engines.precision import Precision
from burnish.engines.single import SingleEngine

CPU = torch.device("cpu")
YES, NO = torch.tensor(True), torch.tensor(False)


@pytest.mark.parametrize(("name", "kind"), [("no", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_the_type_in_which_is_computed(name: str, kind: torch.dtype) -> None:
    layer = nn.Linear(4, 4)
    with Precision(name).autocast(CPU):
        assert layer(torch.ones(1, 4)).dtype == kind
    assert layer(torch.ones(1, 4)).dtype == torch.float32
    assert (Precision(name).scaler is not None) == (name == "fp16")


def engine(name: str, rate: float = 0.1, clip: float = 0.0) -> tuple[SingleEngine, nn.Linear]:
    torch.manual_seed(0)
    layer = nn.Linear(3, 1)
    made = SingleEngine(CPU, Precision(name), clip)
    made.attach(layer, torch.optim.SGD(layer.parameters(), lr=rate))
    return made, layer


def loss_of(layer: nn.Linear) -> torch.Tensor:
    return layer(torch.tensor([[1.0, -2.0, 0.5]])).square().sum()


def test_the_scale_is_in_no_gradient_norm_and_no_update() -> None:
    scaled, plain = engine("fp16", clip=0.5), engine("no", clip=0.5)
    for made, layer in (scaled, plain):
        made.backward(loss_of(layer))
    assert scaled[1].weight.grad is not None and plain[1].weight.grad is not None
    assert (scaled[1].weight.grad / plain[1].weight.grad).mean().item() == pytest.approx(65536)
    norms = [made.gradient_norm() for made, _ in (scaled, plain)]
    torch.testing.assert_close(norms[0], norms[1])
    for (made, _), norm in zip((scaled, plain), norms, strict=True):
        made.clip(norm)
        made.update(YES)
    torch.testing.assert_close(scaled[1].weight, plain[1].weight)


@pytest.mark.parametrize("why", ["overflow", "not asked for"])
def test_a_step_left_out_leaves_the_weights_and_only_an_overflow_lowers_the_scale(why: str) -> None:
    made, layer = engine("fp16")
    scaler = made.precision.scaler
    assert scaler is not None
    before, scale = layer.weight.detach().clone(), scaler.get_scale()
    made.backward(loss_of(layer) * (float("inf") if why == "overflow" else 1.0))
    made.gradient_norm()
    made.update(NO if why == "not asked for" else YES)
    made.clear_gradients()
    assert torch.equal(layer.weight, before)
    assert scaler.get_scale() == (scale / 2 if why == "overflow" else scale)
    made.backward(loss_of(layer))  # and the next step is taken
    made.gradient_norm()
    made.update(YES)
    assert not torch.equal(layer.weight, before)
