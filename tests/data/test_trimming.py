"""Trimming takes padding, and never a label, an attended token, or what it does not know."""

from __future__ import annotations

from typing import Any

import pytest
import tiny
import torch

from burnish.core.types import Inputs
from burnish.data.trimming import trimmed

LENGTH = 12


def batch(spans: list[tuple[int, int]], **further: Any) -> Inputs:
    """Rows of LENGTH whose tokens stand at [first, last) of each span, padding around them."""
    mask = torch.zeros(len(spans), LENGTH, dtype=torch.long)
    for row, (first, last) in zip(mask, spans, strict=True):
        row[first:last] = 1
    ids = torch.arange(1, LENGTH + 1).repeat(len(spans), 1) * mask
    return {"input_ids": ids, "attention_mask": mask, **further}


def test_padding_on_the_right_and_on_the_left() -> None:
    assert trimmed(batch([(0, 5), (0, 7)]))["input_ids"].tolist()[0] == [1, 2, 3, 4, 5, 0, 0]
    assert trimmed(batch([(8, 12), (6, 12)]))["attention_mask"].tolist()[0] == [0, 0, 1, 1, 1, 1]
    both = trimmed(batch([(3, 6), (4, 9)]))
    assert both["input_ids"].tolist() == [[4, 5, 6, 0, 0, 0], [0, 5, 6, 7, 8, 9]]


@pytest.mark.parametrize("seed", range(20))
def test_no_attended_token_and_no_label_is_lost(seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, LENGTH + 1, (3, 2), generator=draw).sort().values.tolist()
    given = batch([(first, last) for first, last in edges])
    label = torch.randint(0, LENGTH, (3,), generator=draw)
    labels = torch.full((3, LENGTH), -100)
    labels[torch.arange(3), label] = 7  # anywhere, on padding too
    given["labels"] = labels
    found = trimmed(given)
    for name in ("input_ids", "attention_mask"):
        assert [row[row != 0].tolist() for row in found[name]] == [row[row != 0].tolist() for row in given[name]]
    assert int((found["labels"] == 7).sum()) == 3
    assert {value.shape for value in found.values()} == {found["labels"].shape}
    at = (found["labels"] == 7).nonzero()[:, 1]  # a label stays with its token
    assert torch.equal(found["input_ids"][torch.arange(3), at], given["input_ids"][torch.arange(3), label])


def test_all_that_goes_with_the_tokens_is_cut_with_them() -> None:
    names = ("token_type_ids", "position_ids", "special_tokens_mask", "global_attention_mask")
    beside = {name: torch.arange(2 * LENGTH).reshape(2, LENGTH) for name in names}
    found = trimmed(batch([(2, 5), (3, 6)], **beside))
    for name in names:
        assert torch.equal(found[name], beside[name][:, 2:6])


@pytest.mark.parametrize("kind", [torch.float, torch.long])
def test_as_many_classes_as_positions(kind: torch.dtype) -> None:
    """Multi-label: a value for each class is none for each token."""
    labels = torch.eye(LENGTH)[:2].to(kind)
    assert torch.equal(trimmed(batch([(0, 5), (0, 6)], labels=labels))["labels"], labels)


def test_other_labels_stay_and_the_tokens_are_cut() -> None:
    for labels in (torch.tensor([0, 1]), torch.rand(2, 3), torch.rand(2)):
        found = trimmed(batch([(0, 5), (0, 6)], labels=labels))
        assert found["input_ids"].shape == (2, 6) and torch.equal(found["labels"], labels)


def test_multiple_choice() -> None:
    two = batch([(0, 4), (0, 6), (0, 2), (0, 3)])
    given = {name: value.reshape(2, 2, LENGTH) for name, value in two.items()} | {"labels": torch.tensor([0, 1])}
    found = trimmed(given)
    assert found["input_ids"].shape == found["attention_mask"].shape == (2, 2, 6)
    assert torch.equal(found["input_ids"], given["input_ids"][..., :6])


@pytest.mark.parametrize(
    "further",
    [
        {"bbox": torch.zeros(2, LENGTH, 4)},
        {"token_type_ids": torch.zeros(2, LENGTH, 7)},
        {"weights": torch.ones(2, LENGTH)},
        {"teacher_logits": torch.ones(2, LENGTH, 3)},
    ],
)
def test_a_batch_with_something_unknown_of_this_length_is_left_alone(further: dict[str, torch.Tensor]) -> None:
    given = batch([(0, 5), (0, 6)], **further)
    assert trimmed(given) is given


def test_positions_of_answers_keep_pointing_at_their_tokens() -> None:
    where = {"start_positions": torch.tensor([5, 8]), "end_positions": torch.tensor([6, 8])}
    found = trimmed(batch([(4, 7), (6, 9)], **where))
    assert found["input_ids"].shape == (2, 9)  # the right end goes, the left end stays
    assert found["input_ids"][torch.arange(2), found["start_positions"]].tolist() == [6, 9]


def test_masks_that_do_not_go_with_the_tokens() -> None:
    ids = torch.ones(2, LENGTH, dtype=torch.long)
    for mask in (torch.zeros(2, LENGTH, LENGTH), torch.zeros(2, 1, LENGTH, LENGTH), torch.zeros(2, LENGTH + 3)):
        given = {"input_ids": ids, "attention_mask": mask}
        assert trimmed(given) is given
    for given in ({"input_ids": ids}, {"attention_mask": ids * 0}, {"inputs_embeds": torch.rand(2, LENGTH, 4)}, {}):
        assert trimmed(given) is given


def test_nothing_to_cut_and_nothing_attended() -> None:
    full = batch([(0, LENGTH), (0, 3)])
    assert trimmed(full) is full
    none = batch([(0, 0), (0, 0)])
    assert trimmed(none) is none


def test_an_encoder_decoder_has_two_lengths() -> None:
    labels = torch.full((2, LENGTH), -100)
    labels[0, :3], labels[1, :4] = 8, 9
    given = batch([(0, 5), (0, 7)], labels=labels, decoder_attention_mask=torch.ones(2, LENGTH, dtype=torch.long))
    found = trimmed(given, is_encoder_decoder=True)
    assert found["input_ids"].shape == (2, 7)
    assert found["labels"].shape == found["decoder_attention_mask"].shape == (2, 4)
    assert torch.equal(found["labels"], labels[:, :4])


def test_the_start_of_a_decoder_stays() -> None:
    labels = torch.tensor([[-100, 5, -100], [-100, 6, -100]])
    assert trimmed(batch([(0, 5), (0, 7)], labels=labels), True)["labels"].tolist() == [[-100, 5], [-100, 6]]


@pytest.mark.parametrize(("model", "is_pair"), [("bert", False), ("t5", True)])
def test_the_loss_of_a_model_is_the_same(model: str, is_pair: bool) -> None:
    net = tiny.t5() if is_pair else tiny.bert("TokenClassification", num_labels=3)
    given = batch([(0, 5), (0, 8)])
    labels = torch.full((2, LENGTH), -100)
    labels[:, 1:4] = 2
    given["labels"] = labels
    found = trimmed(given, is_pair)
    assert found["input_ids"].shape[1] == 8
    torch.testing.assert_close(net(**found).loss, net(**given).loss)
