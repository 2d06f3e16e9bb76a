"""A model that sees the words to come is told from one that does not."""

from __future__ import annotations

import pytest
import tiny
import torch
import transformers

from burnish.models.causality import sees_following_tokens


@pytest.mark.parametrize("is_decoder", [True, False])
def test_an_encoder_is_causal_only_as_a_decoder(is_decoder: bool) -> None:
    config = tiny.bert_config(is_decoder=is_decoder)
    model = tiny.seeded(lambda: transformers.BertLMHeadModel(config)).train()
    assert sees_following_tokens(model) is not is_decoder
    assert model.training


def test_decoders_are_causal_in_any_precision() -> None:
    assert not sees_following_tokens(tiny.llama())
    assert not sees_following_tokens(tiny.llama().to(torch.bfloat16))
    gpt2 = transformers.GPT2Config(vocab_size=96, n_embd=32, n_layer=2, n_head=2, n_positions=24)
    assert not sees_following_tokens(tiny.seeded(lambda: transformers.GPT2LMHeadModel(gpt2)))
