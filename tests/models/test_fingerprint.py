"""Whether two models have the same weights."""

from __future__ import annotations

import tiny
import torch

from burnish.models.fingerprint import fingerprint


def test_it_follows_from_the_weights_alone() -> None:
    first, same = tiny.llama(), tiny.llama()
    before = fingerprint(first)
    assert before is not None and len(before) == 12
    assert fingerprint(same) == before
    with torch.no_grad():
        same.model.layers[1].mlp.up_proj.weight.add_(1e-3)
    assert fingerprint(same) != before
    assert fingerprint(first.to(torch.bfloat16)) != before


def test_it_draws_nothing_and_changes_nothing() -> None:
    model = tiny.llama()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    fingerprint(model)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


def test_weights_that_are_nowhere_have_none() -> None:
    assert fingerprint(torch.nn.Linear(3, 2, device="meta")) is None


def test_all_kinds_of_tensors() -> None:
    class Odd(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scalar", torch.tensor(3))
            self.register_buffer("empty", torch.empty(0))
            self.register_buffer("bytes", torch.arange(20, dtype=torch.uint8))
            self.weight = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4).t())

    assert fingerprint(Odd()) == fingerprint(Odd())
    assert fingerprint(torch.nn.Identity()) is not None
