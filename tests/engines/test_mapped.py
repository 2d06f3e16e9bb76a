"""Tensors that lie in a file: the same numbers, each in memory of its own, gone with the last of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from burnish.checkpoint import tensors
from burnish.engines.mapped import MappedTensors

VALUES = {
    "matrix": torch.arange(6.0).view(2, 3),
    "half": torch.linspace(-1, 1, 5).bfloat16(),
    "transposed": torch.arange(6.0).view(2, 3).t(),
    "number": torch.tensor(3),
    "nothing": torch.empty(0, 4),
}


def test_copies_are_written_and_read_as_they_are(tmp_path: Path) -> None:
    mapped = MappedTensors(tmp_path / "new")
    found = {name: mapped.copy(value) for name, value in VALUES.items()}
    del mapped
    assert list((tmp_path / "new").iterdir()) == [], "the file has no name"
    for name, value in VALUES.items():
        assert torch.equal(found[name], value) and found[name].dtype == value.dtype
    tensors.write(found, tmp_path / "all.safetensors")
    again = tensors.read_file(tmp_path / "all.safetensors")
    assert all(torch.equal(again[name], value) for name, value in VALUES.items())
    found["matrix"].add_(1)
    assert torch.equal(found["half"], VALUES["half"]), "they do not lie in one another"


def test_a_disk_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        MappedTensors(tmp_path / "file")
