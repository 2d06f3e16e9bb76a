"""Which parts of a model are gathered together."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import tiny
from torch import nn

from burnish.core.errors import SettingError
from burnish.engines.fsdp_blocks import blocks_of
from burnish.engines.fsdp_settings import BY_SIZE, ROOT_ONLY, Sharding


def names(model: nn.Module, **wanted: Any) -> Counter[str]:
    return Counter(type(block).__name__ for block in blocks_of(model, Sharding(**wanted)))


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (tiny.llama, {"LlamaDecoderLayer": 2}),
        (tiny.t5, {"T5Block": 4}),
        (lambda: tiny.llama(tie_word_embeddings=True), {"LlamaDecoderLayer": 2}),
    ],
)
def test_blocks_that_a_model_names(build: Any, expected: dict[str, int]) -> None:
    assert names(build()) == expected


class Own(nn.Module):
    """A model that names nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Linear(3, 3)
        self.stack = nn.ModuleList(nn.Sequential(nn.Linear(3, 3), nn.ReLU()) for _ in range(3))
        self.small = nn.ModuleList(nn.LayerNorm(1) for _ in range(4))


def test_blocks_that_are_repeated() -> None:
    assert names(Own()) == {"Sequential": 3}


def test_blocks_by_class() -> None:
    assert names(tiny.llama(), block_classes=("LlamaMLP",)) == {"LlamaMLP": 2}
    with pytest.raises(SettingError, match=r"names 'LlamaMPL'.*LlamaDecoderLayer"):
        blocks_of(tiny.llama(), Sharding(block_classes=("LlamaMPL",)))


def test_blocks_by_size() -> None:
    """Inner ones first; what is left of the outer ones is a block where it is large enough."""
    model = tiny.llama()
    found = blocks_of(model, Sharding(wrapping=BY_SIZE, min_num_params=5000))
    assert model.lm_head not in found and model not in found
    for block in found:
        inner = {id(w) for other in found if other in set(block.modules()) - {block} for w in other.parameters()}
        assert sum(w.numel() for w in block.parameters() if id(w) not in inner) >= 5000


def test_no_blocks() -> None:
    assert blocks_of(tiny.llama(), Sharding(wrapping=ROOT_ONLY)) == []
    with pytest.raises(SettingError, match="Linear shows no blocks"):
        blocks_of(nn.Linear(2, 2), Sharding())


def test_what_shares_a_weight_is_no_block() -> None:
    model = Own()
    model.stack[0][0].weight = model.start.weight
    assert blocks_of(model, Sharding()) == [model.stack[2], model.stack[1]]
