"""What a run does to a model and to torch is there while it runs, and gone afterwards."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import pytest
import tiny
import torch
from torch import nn

from burnish.core.errors import SettingError
from burnish.engines.setup import compiled, determinism, gradient_checkpointing, tf32

IDS = torch.tensor([[5, 6, 7, 8]])


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    model.zero_grad()
    model(input_ids=IDS, labels=IDS).loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def hooks(model: nn.Module) -> int:
    return sum(len(part._forward_hooks) for part in model.modules())


def calls_of_a_layer(model: Any) -> int:
    calls: list[int] = []
    handle = model.model.layers[0].self_attn.register_forward_hook(lambda *_: calls.append(1))
    gradients(model)
    handle.remove()
    return len(calls)


def test_checkpointing_recomputes_and_is_undone() -> None:
    model = tiny.llama().train()
    plain = gradients(model)
    assert calls_of_a_layer(model) == 1
    with gradient_checkpointing(model, True, None):
        assert model.is_gradient_checkpointing and calls_of_a_layer(model) == 2
        found = gradients(model)
    assert not model.is_gradient_checkpointing and calls_of_a_layer(model) == 1
    assert found.keys() == plain.keys()
    for name in plain:
        torch.testing.assert_close(found[name], plain[name])


@pytest.mark.newest
def test_checkpointing_is_undone_after_a_failure_and_kept_where_it_was_on() -> None:
    model = tiny.llama()
    with pytest.raises(KeyError), gradient_checkpointing(model, True, None):
        raise KeyError
    assert not model.is_gradient_checkpointing and hooks(model) == 0
    model.activation_checkpointing_enable()
    before = hooks(model)
    with gradient_checkpointing(model, True, None):
        pass
    assert model.is_gradient_checkpointing and hooks(model) == before
    with gradient_checkpointing(model, False, None):
        assert model.is_gradient_checkpointing


def recomputed(model: Any) -> list[int]:
    """Calls of each layer in a step: 2 where it is computed again."""
    calls = [0] * len(model.model.layers)
    handles = []
    for number, layer in enumerate(model.model.layers):

        def count(*_: Any, number: int = number) -> None:
            calls[number] += 1

        handles.append(layer.self_attn.register_forward_hook(count))
    gradients(model)
    for handle in handles:
        handle.remove()
    return calls


@pytest.mark.parametrize(
    ("options", "calls"),
    [
        ({"every_n_layers": 2}, [2, 1, 2, 1]),
        ({"every_n_layers": 3, "use_reentrant": True}, [2, 1, 1, 2]),
        ({"offload": True}, [2, 2, 2, 2]),
        ({"offload": True, "every_n_layers": 4}, [2, 1, 1, 1]),
    ],
)
@pytest.mark.newest
def test_what_is_for_the_model_and_not_for_torch(
    options: dict[str, Any], calls: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny.llama(num_hidden_layers=4).train()
    plain = gradients(model)
    with gradient_checkpointing(model, True, options):
        assert recomputed(model) == calls
        found = gradients(model)
    assert recomputed(model) == [1, 1, 1, 1]
    assert found.keys() == plain.keys() and all(torch.equal(found[name], plain[name]) for name in plain)
    assert ("'offload' has no effect on the CPU" in caplog.text) == ("offload" in options)


class Older(nn.Module):
    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: Any = None) -> None: ...


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (Older(), {"offload": True}, "Older does not know 'offload'"),
        pytest.param(
            *(tiny.llama(), {"every_n_layers": 0}, "'every_n_layers' = 0; it must be 1 or more"),
            marks=pytest.mark.newest,
        ),
    ],
)
def test_what_a_model_cannot_do(model: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message), gradient_checkpointing(model, True, options):
        pass


def test_no_deprecated_method_is_called() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with gradient_checkpointing(tiny.llama(), True, None):
            pass


def test_a_model_with_methods_of_its_own() -> None:
    class Own(nn.Module):
        calls: ClassVar[list[Any]] = []

        def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: Any = None) -> None:
            self.calls.append(gradient_checkpointing_kwargs)

        def gradient_checkpointing_disable(self) -> None:
            self.calls.append("off")

    with gradient_checkpointing(Own(), True, {"preserve_rng_state": False}):
        assert Own.calls == [{"use_reentrant": False, "preserve_rng_state": False}]
    assert Own.calls[1:] == ["off"]


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointing_with_frozen_embeddings(use_reentrant: bool) -> None:
    """Adapters behind frozen layers get the gradients they get without recomputation."""
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    torch.manual_seed(1)
    model = peft.get_peft_model(tiny.llama(), config).train()
    plain, before = gradients(model), hooks(model)
    with gradient_checkpointing(model, True, {"use_reentrant": use_reentrant}):
        found = gradients(model)
    assert plain and found.keys() == plain.keys()
    for name in plain:
        torch.testing.assert_close(found[name], plain[name])
    assert hooks(model) == before
    assert not model.get_input_embeddings()(IDS).requires_grad


def test_a_model_that_cannot_recompute() -> None:
    with (
        pytest.raises(SettingError, match="Linear has no `gradient_checkpointing_enable`"),
        gradient_checkpointing(nn.Linear(1, 1), True, None),
    ):
        pass
    with gradient_checkpointing(nn.Linear(1, 1), False, None):
        pass


def deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def matmul() -> bool:
    return torch.backends.cuda.matmul.allow_tf32


@pytest.mark.parametrize(
    ("context", "state", "inside"),
    [(determinism(True), deterministic, (True, True)), (tf32(True), matmul, True), (tf32(False), matmul, False)],
)
def test_globals_are_left_as_they_were(context: AbstractContextManager[None], state: Any, inside: Any) -> None:
    before = state()
    with context:
        assert state() == inside
    assert state() == before


def test_settings_that_are_off_touch_nothing() -> None:
    before = deterministic(), matmul()
    with determinism(False), tf32(None):
        assert (deterministic(), matmul()) == before


def test_a_compiled_model_shares_its_weights_and_has_the_same_loss() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    wrapped = compiled(model, "aot_eager", None)
    assert type(wrapped) is not type(model)
    x = torch.randn(4, 3)
    torch.testing.assert_close(wrapped(x), model(x))
    wrapped(x).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    assert all(name.startswith("_orig_mod.") for name in wrapped.state_dict())
    assert [p.data_ptr() for p in wrapped.parameters()] == [p.data_ptr() for p in model.parameters()]
