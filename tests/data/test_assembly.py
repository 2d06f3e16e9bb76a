"""From rows to a step: whole or cut, draws that are counted, and rows that stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import datasets
import numpy as np
import pytest
import tiny
import torch
from stepping import NoisyRows, assembly, noise, rows, same
from torch.utils.data import Subset
from transformers import BatchEncoding

from burnish.core.errors import DataError
from burnish.core.types import Counts
from burnish.data.assembly import Assembly, Rows, as_inputs, reading_draws
from burnish.data.counting import LabelCounter
from burnish.data.language_modeling import DataCollatorForLanguageModeling
from burnish.data.microbatches import Budget
from burnish.data.padding import PaddingCollator
from burnish.data.row_draws import by_row

SMALL = Budget(tokens=12, call_cost=0)


def numbered(count: int) -> Rows:
    return list(enumerate(rows(count)))


def test_a_step_without_a_budget_keeps_its_batches() -> None:
    step = assembly().step(2, 7, [numbered(7)[:4], numbered(7)[4:]])
    assert [batch.rows for batch in step.micro_batches] == [(0, 1, 2, 3), (4, 5, 6)]
    assert (step.epoch, step.index, step.num_examples) == (2, 7, 7)
    assert step.num_tokens == sum(2 + number % 5 for number in range(7))
    assert step.num_positions == step.num_positions_plain == 4 * 5 + 3 * 6


def test_a_budget_cuts_across_batches() -> None:
    batches = [numbered(7)[:4], numbered(7)[4:]]
    whole, cut = assembly().step(0, 0, batches), assembly(SMALL).step(0, 0, batches)
    assert sorted(cut.rows) == sorted(whole.rows) == list(range(7))
    assert cut.num_positions < whole.num_positions == cut.num_positions_plain
    assert all(batch.num_positions <= 12 for batch in cut.micro_batches)
    assert sum(batch.counts.labels for batch in cut.micro_batches) == 7
    for batch in cut.micro_batches:
        assert batch.inputs["input_ids"][:, 0].tolist() == list(batch.rows)  # a row's tokens are its number


def test_rows_without_tokens_keep_their_batches() -> None:
    pictures = [(number, {"pixel_values": np.zeros((1, 2, 2)), "labels": 0}) for number in range(5)]
    step = assembly(SMALL).step(0, 0, [pictures[:3], pictures[3:]])
    assert [batch.rows for batch in step.micro_batches] == [(0, 1, 2), (3, 4)]
    assert (step.num_positions, step.num_positions_plain) == (5, 5)


def test_padding_that_the_data_brought_goes() -> None:
    padded = [(i, {"input_ids": [7, 7, 0, 0, 0], "attention_mask": [1, 1, 0, 0, 0], "labels": 0}) for i in range(3)]
    assert assembly(SMALL).step(0, 0, [padded]).num_positions == 6
    assert assembly(SMALL, trim=False).step(0, 0, [padded]).num_positions == 15
    assert assembly(SMALL).step(0, 0, [padded]).num_positions_plain == 15


def test_whole_takes_the_budget_away() -> None:
    assert len(assembly(SMALL).whole().step(0, 0, [numbered(7)]).micro_batches) == 1


def test_equal_places_draw_equally_whatever_was_drawn_before() -> None:
    def step(place: tuple[int, int]) -> Any:
        return assembly(SMALL, noisy=True).step(*place, [numbered(6)])

    first = step((1, 2))
    noise()
    assert same([step((1, 2))], [first])
    drawn = {
        float(value)
        for place in ((1, 2), (1, 3), (2, 2))
        for batch in step(place).micro_batches
        for value in batch.inputs["drawn"].flatten()
    }
    assert len(drawn) == 3 * 6 * 3  # other passes, steps and micro-batches draw otherwise


def masked_rows(step: Any) -> dict[int, list[int]]:
    """The labels of each row without its padding."""
    return {
        row: labels[mask.bool()].tolist()
        for batch in step.micro_batches
        for row, labels, mask in zip(batch.rows, batch.inputs["labels"], batch.inputs["attention_mask"], strict=True)
    }


def test_masks_follow_from_pass_and_row_however_a_step_is_cut() -> None:
    collator = DataCollatorForLanguageModeling(tiny.tokenizer(), mlm_probability=0.4)
    texts = list(enumerate(tiny.text_rows(9)))

    def masks(batches: list[Rows], epoch: int = 1, index: int = 0, **further: Any) -> dict[int, list[int]]:
        further = {"budget": None, "seed": 5, **further}
        assembly = Assembly(collator, LabelCounter(), collate_rows=by_row(collator), **further)
        return masked_rows(assembly.step(epoch, index, batches))

    whole = masks([texts])
    assert sorted(whole) == list(range(9)) and any(label != -100 for label in whole[0])
    assert masks([texts[4:], texts[:4]], index=3, process=1) == masks([texts], budget=Budget(40, 0)) == whole
    assert masks([texts], epoch=2) != whole != masks([texts], seed=6)
    assembly = Assembly(collator, LabelCounter(), None, seed=5, collate_rows=by_row(collator))
    assert masked_rows(assembly.for_evaluation().step(0, 0, [texts])) != masks([texts], epoch=0)


def test_a_row_draws_by_pass_and_number() -> None:
    reader = assembly(examples_draw=True)
    together = reader.read(NoisyRows(6), [4, 1, 5], epoch=1)
    assert [number for number, _ in together] == [4, 1, 5]
    noise()
    assert reader.read(NoisyRows(6), [5], epoch=1)[0] == together[2]
    assert reader.read(NoisyRows(6), [5], epoch=2)[0] != together[2]


def test_rows_that_draw_nothing_leave_the_generators_alone() -> None:
    before = torch.get_rng_state()
    reader = assembly(SMALL)
    reader.step(0, 0, [reader.read(rows(6), [3, 1], 0)])
    assert torch.equal(torch.get_rng_state(), before)


def test_many_rows_are_read_at_once_where_that_is_possible() -> None:
    class Table(list[Any]):
        asked: list[Any]

        def __getitems__(self, numbers: list[int]) -> list[Any]:
            self.asked = numbers
            return [self[number] for number in numbers]

    table = Table(rows(6))
    assert assembly().read(table, [4, 2], 0) == [(4, rows(6)[4]), (2, rows(6)[2])]
    assert table.asked == [4, 2]


@pytest.mark.parametrize("kind", [dict, BatchEncoding])
def test_a_collator_that_takes_things_out_does_not_change_the_dataset(kind: Any) -> None:
    data = [kind(row) for row in rows(4)]
    for _ in range(2):
        assembly(noisy=True).step(0, 0, [list(enumerate(data))])
    assert all("attention_mask" in row for row in data)


def test_what_a_collator_raises_names_the_rows() -> None:
    def fails(examples: Sequence[Any]) -> Any:
        raise KeyError("labels")

    with pytest.raises(DataError, match=r"rows \[0, 1, 2\]: KeyError: 'labels'.*data_collator"):
        Assembly(fails, LabelCounter(), None).step(0, 0, [numbered(3)])
    ragged = [(i, {"pixels": np.zeros(i + 1)}) for i in range(2)]
    with pytest.raises(DataError, match="ragged"):
        Assembly(PaddingCollator(), LabelCounter(), None).step(0, 0, [ragged])
    with pytest.raises(DataError, match=r"no tensor, only \['text'\]"):
        Assembly(lambda rows: {"text": rows}, LabelCounter(), None).step(0, 0, [numbered(1)])


def test_batches_of_a_shape_of_their_own_pass() -> None:
    pair = (torch.zeros(3, 2), torch.zeros(3))
    batch = Assembly(lambda rows: pair, LabelCounter(), SMALL).step(0, 0, [numbered(3)]).micro_batches[0]
    assert batch.inputs is pair and batch.counts == Counts(3, 3, 3)
    assert as_inputs(BatchEncoding({"a": torch.zeros(2)}), [0, 1]).keys() == {"a"}
    assert type(as_inputs(BatchEncoding({"a": torch.zeros(2)}), [0, 1])) is dict


def test_which_datasets_may_draw() -> None:
    table = datasets.Dataset.from_list(rows(3))
    drawing = (NoisyRows(3), Subset(rows(3), [0]), table.with_transform(lambda batch: batch))
    assert all(map(reading_draws, drawing))
    assert not any(map(reading_draws, (rows(3), tuple(rows(3)), table, table.with_format("torch"))))
