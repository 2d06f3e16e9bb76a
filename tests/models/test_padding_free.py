"""Layers that compute real tokens only give what the padded model gives, and leave it as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, LlamaConfig, LlamaForCausalLM

from burnish.models.padding_free import PaddingFree

SIZES = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}


def bert(**more: Any) -> nn.Module:
    torch.manual_seed(0)
    return BertForSequenceClassification(BertConfig(**SIZES, **more)).eval()


def llama() -> nn.Module:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2)).eval()


def batch(*lengths: int, width: int, side: str = "right") -> dict[str, torch.Tensor]:
    """Rows of these lengths, padded to `width`; causal and sequence labels both fit it."""
    ids = torch.randint(3, 50, (len(lengths), width), generator=torch.Generator().manual_seed(1))
    mask = torch.zeros(len(lengths), width, dtype=torch.long)
    for row, length in zip(mask, lengths, strict=True):
        row[slice(0, length) if side == "right" else slice(width - length, None)] = 1
    return {"input_ids": ids, "attention_mask": mask}


def with_labels(model: nn.Module, inputs: dict[str, torch.Tensor]) -> dict[str, Any]:
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    if isinstance(model, LlamaForCausalLM):
        return {**inputs, "labels": ids.masked_fill(mask == 0, -100), "use_cache": False}
    return {**inputs, "labels": torch.arange(len(ids)) % 2}


def loss_and_gradients(model: nn.Module, inputs: dict[str, Any]) -> tuple[float, dict[str, torch.Tensor]]:
    model.zero_grad()
    loss = model(**inputs).loss
    loss.backward()
    return float(loss.detach()), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def agree(model: nn.Module, inputs: dict[str, Any]) -> None:
    loss, gradients = loss_and_gradients(model, inputs)
    free = PaddingFree.of(model)
    assert free is not None
    with free.on():
        found, found_gradients = loss_and_gradients(model, inputs)
    assert free.attentions > 0
    assert found == pytest.approx(loss, abs=1e-6)
    for name, gradient in gradients.items():
        torch.testing.assert_close(found_gradients[name], gradient, atol=1e-6, rtol=1e-4, msg=name)


@pytest.mark.parametrize("build", [bert, llama])
@pytest.mark.parametrize("lengths", [(9, 4, 3), (12, 11, 2, 1), (5, 5), (7,)])
def test_loss_and_gradients_are_those_of_the_padded_model(build: Any, lengths: tuple[int, ...]) -> None:
    model = build()
    agree(model, with_labels(model, batch(*lengths, width=12)))


def test_padding_may_stand_on_the_left() -> None:
    model = llama()
    inputs = with_labels(model, batch(9, 4, 3, width=10, side="left"))
    starts = inputs["attention_mask"].argmax(1)  # nothing real stands before the first token of a row
    inputs["labels"][torch.arange(3), starts] = -100
    agree(model, inputs)


def test_as_many_tokens_as_a_row_is_wide() -> None:
    """Packed hidden states then have the length of a padded row, and must not be packed twice."""
    for model in (bert(), llama()):
        agree(model, with_labels(model, batch(5, 3, width=8)))


@pytest.mark.parametrize("reentrant", [False, True])
def test_activations_that_are_computed_again(reentrant: bool) -> None:
    model = llama().train()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    agree(model, with_labels(model, batch(9, 4, 3, width=12)))
    agree(model, with_labels(model, batch(5, 3, width=8)))


def test_whoever_asks_for_all_hidden_states_gets_them_padded() -> None:
    model, inputs = bert(), batch(5, 3, width=8)
    expected = model(**inputs, output_hidden_states=True).hidden_states
    free = PaddingFree.of(model)
    assert free is not None
    with free.on():
        found = model(**inputs, output_hidden_states=True).hidden_states
        assert [part.shape for part in found] == [part.shape for part in expected]
        assert free.attentions == 0
        model(**inputs)
        assert free.attentions > 0


def test_a_batch_with_little_padding_stays_as_it_is() -> None:
    model = bert()
    free = PaddingFree.of(model)
    assert free is not None
    with free.on():
        model(**batch(8, 8, width=8))
    assert free.attentions == 0


def test_the_model_is_left_as_it_was() -> None:
    model = bert()
    before = model.config.to_dict()
    free = PaddingFree.of(model)
    assert free is not None
    with pytest.raises(RuntimeError, match="in between"), free.on():
        raise RuntimeError("in between")
    assert model.config.to_dict() == before and model.config._attn_implementation == "sdpa"
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def test_models_that_are_not_computed_this_way() -> None:
    assert PaddingFree.of(nn.Linear(2, 2)) is None
    assert PaddingFree.of(bert(attn_implementation="eager")) is None
    skipping = bert()
    skipping.config.layerdrop = 0.1
    assert PaddingFree.of(skipping) is None, "a layer that is left out cannot pack or unpack"
