"""Operations of a token: by the weights that are multiplied with."""

from __future__ import annotations

import tiny
from torch import nn

from burnish.models.flops import flops_per_token


def test_a_table_that_is_looked_up_multiplies_nothing() -> None:
    model = tiny.bert("SequenceClassification")
    tables = sum(part.weight.numel() for part in model.modules() if isinstance(part, nn.Embedding))
    assert tables > 0
    assert flops_per_token(model) == 6 * (sum(p.numel() for p in model.parameters()) - tables)


def test_a_table_that_is_the_output_layer_does() -> None:
    model = tiny.llama(tie_word_embeddings=True)
    assert flops_per_token(model) == 6 * sum(p.numel() for p in model.parameters())


def test_a_frozen_weight_has_no_gradient() -> None:
    model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(4, 5, bias=False))
    model[0].requires_grad_(False)
    assert flops_per_token(model) == 4 * 12 + 6 * 20
