"""What is known of a collator."""

from __future__ import annotations

import pickle
from typing import Any

import tiny
import transformers

from burnish.data import collators
from burnish.data.collator_facts import draws_randomness, is_known, makes_labels, pads_rows
from burnish.data.columns import KeepColumns
from burnish.data.language_modeling import DataCollatorForLanguageModeling
from burnish.data.padding import PaddingCollator


class OwnCollator(collators.DataCollatorWithPadding):
    """A subclass may do anything."""


def own_function(rows: list[Any]) -> dict[str, Any]:
    return {}


def test_draws_randomness() -> None:
    tokenizer = tiny.tokenizer()
    for package in (collators, transformers):
        assert not draws_randomness(package.DataCollatorWithPadding(tokenizer))
        assert not draws_randomness(package.DataCollatorForSeq2Seq(tokenizer))
        assert not draws_randomness(package.default_data_collator)
        assert not draws_randomness(package.DefaultDataCollator())
    assert not draws_randomness(PaddingCollator())
    for kind in (DataCollatorForLanguageModeling, transformers.DataCollatorForLanguageModeling):
        assert draws_randomness(kind(tokenizer))
        assert not draws_randomness(kind(tokenizer, mlm=False))
    assert draws_randomness(OwnCollator(tokenizer))
    assert draws_randomness(own_function)
    assert draws_randomness(lambda rows: {})


def test_a_wrapped_collator_is_known_for_what_it_wraps() -> None:
    wrapped = KeepColumns(DataCollatorForLanguageModeling(tiny.tokenizer()), frozenset({"input_ids"}))
    assert draws_randomness(wrapped) and makes_labels(wrapped) and pads_rows(wrapped) and is_known(wrapped)
    assert not is_known(KeepColumns(own_function, frozenset()))
    assert makes_labels(pickle.loads(pickle.dumps(wrapped)))


def test_padding_and_labels() -> None:
    assert not pads_rows(collators.default_data_collator)
    assert not pads_rows(transformers.DefaultDataCollator())
    assert pads_rows(PaddingCollator()) and pads_rows(own_function)
    assert makes_labels(transformers.DataCollatorForLanguageModeling(tiny.tokenizer(), mlm=False))
    assert not makes_labels(collators.DataCollatorWithPadding(tiny.tokenizer()))
    assert not is_known(OwnCollator(tiny.tokenizer()))
