"""What a collator draws for a row follows from the seed of the row: not from its batch, and not from padding."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tiny
import torch
import transformers

from burnish.data.collators import DataCollatorWithPadding
from burnish.data.columns import KeepColumns
from burnish.data.language_modeling import DataCollatorForLanguageModeling
from burnish.data.row_draws import CollateRows, by_row

SIDES = ("right", "left")
KINDS = (DataCollatorForLanguageModeling, transformers.DataCollatorForLanguageModeling)
ROWS = tiny.text_rows(9)
SEEDS = [2**62 + 17 * number for number in range(len(ROWS))]


def masking(kind: Any = DataCollatorForLanguageModeling, side: str = "right", **settings: Any) -> CollateRows:
    collate = by_row(kind(tiny.tokenizer(padding_side=side), **{"mlm_probability": 0.4, **settings}))
    assert collate is not None
    return collate


def rows_of(batch: Any) -> list[tuple[list[int], list[int]]]:
    """Inputs and labels of each row without its padding."""
    found = []
    for ids, labels, mask in zip(batch["input_ids"], batch["labels"], batch["attention_mask"], strict=True):
        real = torch.as_tensor(mask).bool()
        assert (torch.as_tensor(labels)[~real] == -100).all()
        found.append((torch.as_tensor(ids)[real].tolist(), torch.as_tensor(labels)[real].tolist()))
    return found


def one_by_one(collate: CollateRows, rows: Sequence[Any] = ROWS) -> list[Any]:
    return [rows_of(collate([dict(row)], [seed]))[0] for row, seed in zip(rows, SEEDS, strict=True)]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("kind", KINDS)
def test_masks_of_a_row_are_its_own(kind: Any, side: str) -> None:
    collate = masking(kind, side)
    alone = one_by_one(collate)
    assert rows_of(collate([dict(row) for row in ROWS], SEEDS)) == alone
    backwards = rows_of(collate([dict(row) for row in ROWS[::-1]], SEEDS[::-1]))
    assert backwards[::-1] == alone
    assert one_by_one(masking(kind, SIDES[1 - SIDES.index(side)])) == alone
    assert one_by_one(masking(kind, side, pad_to_multiple_of=16)) == alone
    drawn = [[label != -100 for label in labels] for _, labels in alone]
    assert sum(map(sum, drawn)) > 10 and len({tuple(row[:4]) for row in drawn}) > 3


def test_padding_that_the_rows_brought_along_changes_nothing() -> None:
    alone = one_by_one(masking())
    for side in SIDES:
        padded = [tiny.tokenizer(padding_side=side).pad(dict(row), "max_length", max_length=30) for row in ROWS]
        assert one_by_one(masking(side=side), padded) == alone


def test_both_libraries_collators_draw_alike() -> None:
    ours, theirs = (one_by_one(masking(kind, seed=3, random_replace_prob=0.15)) for kind in KINDS)
    assert ours == theirs != one_by_one(masking(seed=4, random_replace_prob=0.15))


def test_other_seeds_draw_otherwise_and_no_generator_is_touched() -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()
    row = {"input_ids": tiny.words(200, 0), "attention_mask": [1] * 200}
    shares = []
    found = set()
    for seed in range(20):
        ((ids, labels),) = rows_of(masking(mlm_probability=0.3)([dict(row)], [seed]))
        found.add(tuple(labels))
        chosen = [place for place, label in enumerate(labels) if label != -100]
        assert all(labels[place] == row["input_ids"][place] for place in chosen)
        shares.append((len(chosen), sum(ids[place] == tiny.MASK for place in chosen)))
    assert len(found) == 20
    num_chosen, num_masked = map(sum, zip(*shares, strict=True))
    assert num_chosen / 4000 == pytest.approx(0.3, abs=0.02)
    assert num_masked / num_chosen == pytest.approx(0.8, abs=0.03)
    assert torch.equal(torch.get_rng_state(), before[0]) and np.random.get_state()[1].tolist() == before[1]


def test_numpy_and_bare_rows() -> None:
    batch = masking(return_tensors="np")([row["input_ids"] for row in ROWS], SEEDS)
    assert isinstance(batch["labels"], np.ndarray)
    assert rows_of(batch) == one_by_one(masking())


def test_a_wrapped_collator_prunes_and_can_be_sent_to_a_worker() -> None:
    for kind in KINDS:
        wrapped = KeepColumns(kind(tiny.tokenizer(), mlm_probability=0.4), frozenset({"input_ids", "attention_mask"}))
        collate = by_row(wrapped)
        assert collate is not None
        collate = pickle.loads(pickle.dumps(collate))
        batch = collate([{**row, "text": "left out", "class": 3} for row in ROWS], SEEDS)
        assert set(batch) == {"input_ids", "attention_mask", "labels"}
        assert rows_of(batch) == one_by_one(masking())


def test_settings_are_read_when_rows_are_collated() -> None:
    for kind in KINDS:
        collator = kind(tiny.tokenizer())
        collate = by_row(collator)
        collator.mlm_probability = 0.0
        assert collate is not None and (collate([dict(row) for row in ROWS], SEEDS)["labels"] == -100).all()


class OwnCollator(DataCollatorForLanguageModeling):
    """May draw for a batch as a whole."""


def test_collators_that_draw_for_a_batch_or_not_at_all() -> None:
    tokenizer = tiny.tokenizer()
    for kind in KINDS:
        assert by_row(kind(tokenizer, mlm=False)) is None
    with pytest.warns(UserWarning, match="whole word"):
        assert by_row(transformers.DataCollatorForLanguageModeling(tokenizer, whole_word_mask=True)) is None
    assert by_row(OwnCollator(tokenizer)) is None
    assert by_row(KeepColumns(OwnCollator(tokenizer), frozenset())) is None
    assert by_row(DataCollatorWithPadding(tokenizer)) is None
    assert by_row(lambda rows: {}) is None
