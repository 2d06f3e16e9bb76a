"""The predictions among what a model returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tiny
import torch
from transformers.modeling_outputs import Seq2SeqLMOutput

from burnish.evaluation.logits import keys_to_ignore, logits_of, without_padding

LOSS, LOGITS, FEATURES = torch.tensor(0.5), torch.ones(2, 3), torch.zeros(2, 4)


@dataclass
class Returned:
    loss: Any
    logits: Any
    features: Any = None


def test_one_tensor_comes_by_itself() -> None:
    for outputs in ({"loss": LOSS, "logits": LOGITS}, Returned(LOSS, LOGITS), (LOSS, LOGITS)):
        assert torch.equal(logits_of(outputs, labels_given=True), LOGITS)
    assert torch.equal(logits_of(LOGITS, labels_given=False), LOGITS)
    assert torch.equal(logits_of((LOGITS,), labels_given=False), LOGITS)


def test_several_come_as_a_tuple() -> None:
    for outputs in (
        {"loss": LOSS, "logits": LOGITS, "features": FEATURES},
        Returned(LOSS, LOGITS, FEATURES),
        (LOSS, LOGITS, FEATURES),
    ):
        logits, features = logits_of(outputs, labels_given=True)
        assert torch.equal(logits, LOGITS) and torch.equal(features, FEATURES)


def test_a_tuple_without_a_loss_is_kept_whole() -> None:
    assert len(logits_of((LOGITS, FEATURES), labels_given=False)) == 2
    assert len(logits_of((LOGITS, FEATURES), labels_given=True)) == 2


def test_nothing_predicted() -> None:
    assert logits_of({"loss": LOSS}, labels_given=True) is None
    assert logits_of((LOSS,), labels_given=True) is None
    assert logits_of({"logits": None, "cache": object()}, labels_given=True) is None


def test_large_outputs_are_left_out_unless_asked_for() -> None:
    outputs = Seq2SeqLMOutput(
        loss=LOSS, logits=LOGITS, encoder_last_hidden_state=FEATURES, encoder_attentions=(FEATURES,)
    )
    config = tiny.t5().config
    assert torch.equal(logits_of(outputs, True, keys_to_ignore(config)), LOGITS)
    logits, _, (attentions,) = logits_of(outputs, True, keys_to_ignore(config, asked=[]))
    assert torch.equal(logits, LOGITS) and torch.equal(attentions, FEATURES)
    logits, (attentions,) = logits_of(outputs, True, ["encoder_last_hidden_state"])
    assert torch.equal(logits, LOGITS) and torch.equal(attentions, FEATURES)


def test_keys_of_the_config_are_ignored() -> None:
    class Config:
        keys_to_ignore_at_inference = ("own",)

    assert "own" in keys_to_ignore(Config()) and "hidden_states" in keys_to_ignore(Config())
    assert "own" not in keys_to_ignore(None)


def test_a_real_model_with_a_cache() -> None:
    model = tiny.llama().eval()
    ids = torch.tensor([[5, 6, 7]])
    found = logits_of(model(input_ids=ids, labels=ids, use_cache=True), True, keys_to_ignore(model.config))
    assert found.shape == (1, 3, tiny.NUM_WORDS) and not found.requires_grad


def test_outputs_at_padding_do_not_depend_on_the_batch() -> None:
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    tokens, pooled, starts = torch.zeros(2, 3, 4), torch.zeros(2, 3), torch.zeros(2, 3)
    found, same = without_padding((tokens, pooled), mask, -100)
    assert (found[1, 1:] == -100).all() and (found[0] == 0).all() and (found[1, 0] == 0).all()
    assert torch.equal(same, pooled)
    assert without_padding(starts, mask, -100, spans=True).tolist() == [[0, 0, 0], [0, -100, -100]]
    assert without_padding(tokens, None, -100) is tokens
