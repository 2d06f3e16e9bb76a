"""The next token: the likeliest, or one drawn with the probabilities that transformers would draw with."""

from __future__ import annotations

import pytest
import torch
from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from burnish.generation.choosing import Choice, drawn, likeliest
from burnish.generation.decoding import Decoding, Sampling
from burnish.generation.unfinished import Text

EVERYTHING = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


def test_the_likeliest_is_that_of_argmax() -> None:
    logits = torch.randn(50, 300, generator=torch.Generator().manual_seed(0)).mul(3).round()
    assert logits.eq(logits.amax(-1, keepdim=True)).sum() > 60  # ties
    assert torch.equal(likeliest(logits), logits.argmax(-1))
    logits[3] = torch.nan
    assert torch.equal(likeliest(logits), logits.argmax(-1))
    assert likeliest(torch.full((2, 4), -torch.inf)).tolist() == [0, 0]


@pytest.mark.parametrize(
    "sampling",
    [
        EVERYTHING,
        Sampling(0.7, 5, 1.0, 0.0),
        Sampling(1.3, 0, 0.8, 0.0),
        Sampling(1.0, 0, 1.0, 0.2),
        Sampling(2.0, 9, 0.9, 0.05),
        Sampling(1.0, 1000, 1e-9, 0.0),
    ],
)
def test_what_may_be_drawn_and_how_often(sampling: Sampling) -> None:
    logits = torch.randn(1, 20, generator=torch.Generator().manual_seed(1)) * 2
    scores = TemperatureLogitsWarper(sampling.temperature)(None, logits)
    if sampling.top_k:
        scores = TopKLogitsWarper(min(20, sampling.top_k))(None, scores)
    if sampling.top_p < 1:
        scores = TopPLogitsWarper(sampling.top_p)(None, scores)
    if sampling.min_p:
        scores = MinPLogitsWarper(sampling.min_p)(None, scores)
    expected = scores.softmax(-1)[0]
    count = 20_000
    uniform = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    found = torch.bincount(drawn(logits.expand(count, -1), sampling, uniform), minlength=20) / count
    assert torch.allclose(found, expected, atol=2 / count + 1e-6)


def test_the_ends_of_the_unit_interval() -> None:
    uniform = torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)
    logits = torch.tensor([[0.0, 1.0, -torch.inf]]).expand(2, -1)
    assert drawn(logits, EVERYTHING, uniform).tolist() == [1, 0]


def test_a_text_does_not_end_before_its_least_length() -> None:
    decoding = Decoding(None, None, 2, 0, (0, 3), (), None)
    texts = [Text.of(row, [5] * (1 + row), decoding) for row in range(2)]
    texts[1].tokens += [5, 5]
    logits = torch.tensor([[9.0, 1.0, 2.0, 8.0]] * 2)
    assert Choice(decoding, 0).next_tokens(logits, texts) == [2, 0]
    assert logits[0, 0] == 9.0  # the model's own
