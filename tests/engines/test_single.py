"""One device: what goes to it, norms, clipping, and updates that are taken or left out."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import pytest
import torch
from torch import nn

from burnish.core.errors import SettingError, UserError
from burnish.engines.precision import Precision
from burnish.engines.single import SingleEngine, _step_where, device_for

CPU = torch.device("cpu")
Pair = namedtuple("Pair", "x y")


def engine(clip: float = 0.0, device: torch.device = CPU) -> SingleEngine:
    return SingleEngine(device, Precision(), clip)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))


def backward(made: SingleEngine, model: nn.Module, times: float = 1.0) -> None:
    made.backward(model(torch.tensor([[1.0, -2.0, 0.5]])).sum() * times)


def test_whatever_a_collator_returns_goes_to_the_device() -> None:
    made, tensor = engine(device=torch.device("meta")), torch.zeros(2)
    given = {"a": tensor, "b": [tensor, "text"], "c": (tensor, {"d": tensor}), "e": Pair(tensor, 3), "f": None}
    found = made.to_device(given)
    moved = (found["a"], found["b"][0], found["c"][0], found["c"][1]["d"], found["e"].x)
    assert all(value.device.type == "meta" for value in moved)
    assert (found["b"][1], found["e"].y, found["f"]) == ("text", 3, None)
    assert [type(found[name]) for name in "bce"] == [list, tuple, Pair]
    assert given["a"].device.type == "cpu"


def test_the_norm_is_that_of_all_gradients_of_the_step() -> None:
    made, model = engine(), net()
    model[0].bias.requires_grad_(False)
    made.attach(model, torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1.0))
    backward(made, model)
    backward(made, model)
    expected = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).norm()
    torch.testing.assert_close(made.gradient_norm(), expected)
    made.clear_gradients()
    assert all(p.grad is None for p in model.parameters()) and made.gradient_norm() == 0


@pytest.mark.parametrize(("greatest", "clipped"), [(0.5, True), (1e6, False), (0.0, False), (-1.0, False)])
def test_clipping(greatest: float, clipped: bool) -> None:
    made, model = engine(greatest), net()
    made.attach(model, torch.optim.SGD(model.parameters(), lr=1.0))
    backward(made, model, 10.0)
    before = made.gradient_norm()
    made.clip(before)
    assert made.gradient_norm().item() == pytest.approx(greatest if clipped else before.item(), rel=1e-4)


@pytest.mark.parametrize("apply", [True, False])
def test_an_update_is_applied_or_not(apply: bool) -> None:
    made, model = engine(), net()
    made.attach(model, torch.optim.AdamW(model.parameters(), lr=0.1))
    before = [p.detach().clone() for p in model.parameters()]
    backward(made, model)
    made.update(torch.tensor(apply))
    assert [torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True)] == [not apply] * 4


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Weights and all that the optimizer remembers."""
    moments = [value for state in optimizer.state.values() for value in state.values()]
    return [value.detach().clone() for value in (*model.parameters(), *moments)]


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD, torch.optim.Adagrad])
def test_a_fused_optimizer_leaves_a_step_out_by_itself(kind: Any) -> None:
    """The way accelerators take: no read by the host. The moments and the step count stay too."""
    model = net()
    made, optimizer = engine(), kind(model.parameters(), lr=0.1, fused=True)
    made.attach(model, optimizer)
    if not getattr(optimizer, "_step_supports_amp_scaling", False):
        pytest.skip("from torch 2.11 on for Adagrad")
    backward(made, model)
    _step_where(optimizer, torch.tensor(True))
    once = state_of(model, optimizer)
    plain = net()
    reference = kind(plain.parameters(), lr=0.1)
    plain(torch.tensor([[1.0, -2.0, 0.5]])).sum().backward()
    reference.step()
    torch.testing.assert_close(state_of(model, optimizer), state_of(plain, reference))
    backward(made, model, float("nan"))
    _step_where(optimizer, torch.tensor(False))
    assert all(map(torch.equal, state_of(model, optimizer), once))
    assert not hasattr(optimizer, "found_inf") and not hasattr(optimizer, "grad_scale")


def test_nothing_is_left_behind_by_a_step_that_fails() -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    optimizer.register_step_pre_hook(_fail)
    with pytest.raises(KeyError):
        _step_where(optimizer, torch.tensor(True))
    assert not hasattr(optimizer, "found_inf") and not hasattr(optimizer, "grad_scale")


def _fail(*args: Any) -> None:
    raise KeyError


def test_one_process_sums_to_itself() -> None:
    made = engine()
    assert (made.sum_over_processes(7), made.num_processes, made.process_index) == (7, 1, 0)


def test_the_device_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert device_for(use_cpu=True) == device_for(use_cpu=False) == CPU  # tests see no accelerator
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert device_for(use_cpu=False) == CPU
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(SettingError, match="WORLD_SIZE is 'two'"):
        device_for(use_cpu=True)


@pytest.mark.parametrize(("local_rank", "gpus"), [("3", 2), ("0", 0)])
def test_more_processes_than_gpus_are_refused(local_rank: str, gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_RANK", local_rank)
    with pytest.raises(SettingError, match=f"process {local_rank} of its machine.*shows {gpus} GPUs"):
        device_for(use_cpu=False)


@pytest.mark.parametrize("loss", [torch.tensor(3), torch.tensor(1.0), net()(torch.ones(1, 3)).sum().detach()])
def test_a_loss_without_a_gradient_is_refused(loss: torch.Tensor) -> None:
    with pytest.raises(UserError, match="The loss has no gradient"):
        engine().backward(loss)
