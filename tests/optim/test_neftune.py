"""Noise on the input embeddings: how large, when, where, and gone afterwards."""

from __future__ import annotations

import math

import pytest
import tiny
import torch
from torch import nn

from burnish.core.errors import SettingError
from burnish.optim.neftune import noisy_embeddings

ALPHA = 5.0


def noise_of(model: nn.Module, table: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """What is added to the embeddings of these ids (batch, length, dim)."""
    with noisy_embeddings(model, ALPHA):
        return (table(ids) - table.weight[ids]).detach()


@pytest.mark.parametrize("length", [4, 64])
def test_size_of_the_noise(length: int) -> None:
    model = tiny.llama().train()
    noise = noise_of(model, model.get_input_embeddings(), torch.full((8, length), 7))
    bound = ALPHA / math.sqrt(length * model.config.hidden_size)
    assert noise.abs().max() <= bound * 1.0001
    assert noise.abs().max() > 0.95 * bound
    assert noise.mean().abs() < 0.1 * bound  # both signs
    assert noise.std() == pytest.approx(bound / math.sqrt(3), rel=0.1)  # uniform


def test_padding_does_not_make_the_noise_smaller() -> None:
    model = tiny.llama().train()
    ids = torch.full((2, 64), 7)
    ids[0, 4:] = tiny.PAD
    noise = noise_of(model, model.get_input_embeddings(), ids).abs().amax(dim=(1, 2))
    assert noise[0] / noise[1] == pytest.approx(4, rel=0.1)  # sqrt(64 / 4)


def test_no_noise_in_evaluation_nor_afterwards() -> None:
    model = tiny.llama()
    table = model.get_input_embeddings()
    ids = torch.full((1, 4), 7)
    assert noise_of(model.eval(), table, ids).abs().max() == 0
    model.train()
    assert noise_of(model, table, ids).abs().max() > 0
    assert torch.equal(table(ids), table.weight[ids])
    with pytest.raises(KeyError), noisy_embeddings(model, ALPHA):
        raise KeyError
    assert torch.equal(table(ids), table.weight[ids])


def test_alpha_none_does_nothing() -> None:
    model = tiny.llama().train()
    table, ids = model.get_input_embeddings(), torch.full((1, 4), 7)
    with noisy_embeddings(model, None):
        assert torch.equal(table(ids), table.weight[ids])


def test_an_encoder_decoder_looks_tokens_up_in_noisy_tables() -> None:
    model = tiny.t5().train()
    batch = {"input_ids": torch.full((1, 4), 7), "labels": torch.full((1, 3), 8)}
    plain = model(**batch).loss
    with noisy_embeddings(model, ALPHA):
        assert model(**batch).loss != plain
    assert model(**batch).loss == plain


@pytest.mark.parametrize("target", [["q_proj"], ["embed_tokens"]])
def test_a_model_with_adapters(target: list[str]) -> None:
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(tiny.llama(), peft.LoraConfig(r=2, target_modules=target)).train()
    ids = torch.full((8, 64), 7)
    table = model.get_input_embeddings()
    noise = noise_of(model, table, ids).abs().max()
    assert noise == pytest.approx(ALPHA / math.sqrt(64 * 32), rel=0.05)


@pytest.mark.parametrize(
    ("model", "alpha", "said"), [(nn.Linear(2, 2), 5.0, "Linear names none"), (nn.Linear(2, 2), -1.0, "alpha=-1.0")]
)
def test_what_cannot_be_is_said(model: nn.Module, alpha: float, said: str) -> None:
    with pytest.raises(SettingError, match=said), noisy_embeddings(model, alpha):
        pass
