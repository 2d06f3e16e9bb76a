"""Weights and optimizer states in parts, read by one process. Several processes are in `tests/distributed`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from burnish.checkpoint import parts
from burnish.checkpoint.weights import load_weights
from burnish.core.errors import CheckpointError


class Tied(nn.Module):
    def __init__(self, width: int = 4, bias: bool = True) -> None:
        super().__init__()
        self.words = nn.Embedding(8, width)
        self.head = nn.Linear(width, 8, bias=bias)
        self.head.weight = self.words.weight


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Tied]:
    model = Tied()
    parts.make_place(tmp_path)
    parts.write(parts.part_of(model, None, weights=True, index=0), tmp_path, 0, 1)
    return tmp_path, model


def test_a_weight_of_two_names_is_found_under_one(saved: tuple[Path, Tied]) -> None:
    folder, model = saved
    again = Tied()
    load_weights(again, folder)
    assert torch.equal(again.head.weight, model.words.weight) and torch.equal(again.head.bias, model.head.bias)
    assert again.head.weight is again.words.weight


@pytest.mark.filterwarnings("ignore::UserWarning:torch")
def test_what_torch_has_written_is_read(tmp_path: Path) -> None:
    """Files of torch.distributed.checkpoint, as earlier checkpoints have them."""
    import torch.distributed.checkpoint as dcp

    model, again = Tied(), Tied()
    writer = dcp.HuggingFaceStorageWriter(path=str(tmp_path / "parts"), save_distributed=True)
    content = {f"model.{name}": value for name, value in model.state_dict().items() if name != "head.weight"}
    dcp.save(content, storage_writer=writer, no_dist=True)
    load_weights(again, tmp_path)
    assert torch.equal(again.head.weight, model.words.weight) and torch.equal(again.head.bias, model.head.bias)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Tied(width=6), r"do not fit Tied. 1 of another shape: words.weight \(\(8, 4\) in the file, \(8, 6\) in the"),
        (Tied(bias=False), "1 not in the model: head.bias"),
        (nn.Linear(4, 8), r"do not fit Linear. 2 not in the file: bias, weight. 2 not in the model: head.bias"),
    ],
)
def test_weights_of_another_model_are_named(saved: tuple[Path, Tied], model: nn.Module, words: str) -> None:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(CheckpointError, match=words):
        load_weights(model, saved[0])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
