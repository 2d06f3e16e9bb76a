"""Datasets and collators that draw at random, and what a step holds, for the tests of where steps come from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset

from burnish.core.types import Step
from burnish.data.assembly import Assembly
from burnish.data.counting import LabelCounter
from burnish.data.microbatches import Budget
from burnish.data.padding import PaddingCollator


def row(number: int) -> dict[str, Any]:
    """Row `number`: as many tokens as its number says, 2 to 6, all of them the number itself."""
    length = 2 + number % 5
    return {"input_ids": [number] * length, "attention_mask": [1] * length, "labels": number % 2}


def rows(count: int) -> list[dict[str, Any]]:
    return [row(number) for number in range(count)]


def noise() -> list[float]:
    """A draw from each global generator."""
    return [random.random(), float(np.random.rand()), float(torch.rand(()))]


class NoisyRows(Dataset[Any]):
    """Rows that are augmented at random whenever they are read."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> dict[str, Any]:
        return {**row(number), "noise": noise()}


class NoisyStream(IterableDataset[Any]):
    """The same without numbers. Holds the passes it was told of."""

    def __init__(self, count: int) -> None:
        self.count, self.epoch = count, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for number in range(self.count):
            yield {**row(number), "noise": noise(), "epoch": self.epoch}


def noisy_collator(examples: list[Any]) -> dict[str, Any]:
    """Masks at random, and takes a column out of its rows, as some collators do."""
    for example in examples:
        example.pop("attention_mask")
    batch = PaddingCollator()(examples)
    return {**batch, "drawn": torch.tensor([noise() for _ in examples])}


def assembly(budget: Budget | None = None, noisy: bool = False, **further: Any) -> Assembly:
    collate = noisy_collator if noisy else PaddingCollator()
    return Assembly(collate, LabelCounter(), budget, seed=5, collation_draws=noisy, **further)


def same(one: list[Step], other: list[Step]) -> bool:
    """Whether two lists of steps are equal to the last bit."""
    return [_plain(step) for step in one] == [_plain(step) for step in other]


def _plain(step: Step) -> Any:
    batches = [
        (batch.rows, batch.counts, {name: value.tolist() for name, value in batch.inputs.items()})
        for batch in step.micro_batches
    ]
    return step.epoch, step.index, step.num_positions_plain, batches
