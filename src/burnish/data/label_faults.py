"""What can be wrong with a column of labels, each as a check with its message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from burnish.core.types import IGNORED_LABEL

from .blocks import Block
from .checks_tokens import same_length
from .findings import Check, Found, faulty_sequences, faulty_values, missing_rows, of_column
from .table import Chunk

if TYPE_CHECKING:
    from burnish.models.contract import ModelFacts


WAYS_OUT = {
    "num_labels": ", or load the model with a larger num_labels",
    "vocab_size": ", or make the labels with the model's own tokenizer",
}
"""By what limits the labels, what may be done beside correcting them."""


@dataclass(frozen=True)
class LabelFaults:
    """The checks of one column of labels, each with its message."""

    name: str
    column: str
    facts: ModelFacts

    def not_text(self, meaning: str = "classes") -> Check:
        """Numbers; `meaning` says what they stand for: "classes", "numbers" or "words"."""

        def find(block: Block) -> Found | None:
            if block.kind != "text":
                return None
            return faulty_values(block, np.array([isinstance(value, str) for value in block.values]))

        def say(found: Found) -> str:
            where = f"the labels are text (row {found.row}: {found.value!r:.60})"
            if meaning == "words":
                return (
                    f"{where}, and the model learns token ids. Tokenise them too, for example dataset.map(lambda row: "
                    f'{{"{self.column}": tokenizer(text_target=row["{self.column}"], truncation=True)["input_ids"]}}).'
                )
            if meaning == "numbers":
                return (
                    f"{where}, and the model predicts numbers. Read them as such, for example dataset.map(lambda row: "
                    f'{{"{self.column}": float(row["{self.column}"])}}).'
                )
            values = sorted(found.values)
            numbers = {value: number for number, value in enumerate(values)}
            return (
                f"the labels are text: {', '.join(map(repr, values))} (row {found.row}: {found.value!r}). The model "
                f"learns from numbers: map them, for example with ids = {numbers} and dataset.map(lambda row: "
                f'{{"labels": ids[row["{self.column}"]]}}), and give the model the same label2id.'
            )

        return self._check(find, say)

    def present(self) -> Check:
        return self._check(
            missing_rows,
            lambda found: (
                f"{found.where} has no label (None). Remove such rows, or give them a label; -100 carries no loss."
                f"{found.more}"
            ),
        )

    def finite(self) -> Check:
        def find(block: Block) -> Found | None:
            return faulty_values(block, ~np.isfinite(block.values)) if block.kind == "float" else None

        return self._check(
            find, lambda found: f"{found.where} has the label {found.value}. Remove or correct such rows.{found.more}"
        )

    def whole(self, what: str) -> Check:
        return self._check(
            _floats,
            lambda found: (
                f"{found.where} has the label {found.value}, a float, but labels are {what} here: make them "
                f"int.{found.more}"
            ),
        )

    def from_zero(self) -> Check:
        def find(block: Block) -> Found | None:
            return faulty_values(block, block.values < 0) if block.kind == "int" else None

        return self._check(
            find,
            lambda found: (
                f"{found.where} is {found.value}, but positions are counted from 0. For an answer that is not in the "
                f"text, use 0 (the first token).{found.more}"
            ),
        )

    def below(self, limit: int | None, of: str = "num_labels") -> Check:
        """In 0..limit-1, or -100."""

        def find(block: Block) -> Found | None:
            if block.kind != "int" or limit is None:
                return None
            values = block.values
            return faulty_values(block, ((values < 0) | (values >= limit)) & (values != IGNORED_LABEL))

        def say(found: Found) -> str:
            assert limit is not None
            more = " If the labels are counted from 1, subtract 1." if found.value == limit else ""
            way_out = WAYS_OUT.get(of, "")
            what = f"{of}={limit}; " if way_out else ""
            return (
                f"{found.where} has label {found.value}, outside 0 to {limit - 1} ({what}-100 carries no loss)."
                f" Correct it{way_out}.{more}{found.more}"
            )

        return self._check(find, say)

    def not_multi_hot(self) -> Check:
        def find(block: Block) -> Found | None:
            if block.kind != "int" or block.lengths is None:
                return None
            return faulty_sequences(block.owners, block.lengths, block.lengths != 1)

        return self._check(
            find,
            lambda found: (
                f"row {found.row} has {found.value} labels, but the model learns one class a row. For several classes "
                'a row, load it with problem_type="multi_label_classification" and make each label a list of '
                f"{self.facts.num_labels} floats, 0.0 or 1.0; for a class a token, use AutoModelForTokenClassification."
                f"{found.more}"
            ),
        )

    def not_single_fractions(self) -> Check:
        """Fractions of single values, or any where the problem is set to be one class a row."""

        def find(block: Block) -> Found | None:
            return _floats(block) if block.lengths is None or self.facts.problem_type is not None else None

        return self._check(
            find,
            lambda found: (
                f"{found.where} has the label {found.value}, a float, but the model chooses among "
                f"{self.facts.num_labels} classes: make the labels int. To predict a number instead, load the model "
                f"with num_labels=1.{found.more}"
            ),
        )

    def fractions(self) -> Check:
        def find(block: Block) -> Found | None:
            return faulty_values(block, np.ones(len(block.values), dtype=bool)) if block.kind == "int" else None

        return self._check(
            find,
            lambda found: (
                f"{found.where} has the label {found.value}, an int, but the loss of problem_type="
                '"multi_label_classification" needs floats: make each label a list of '
                f"{self.facts.num_labels} floats, 0.0 or 1.0.{found.more}"
            ),
        )

    def shares(self) -> Check:
        """From 0 to 1."""

        def find(block: Block) -> Found | None:
            return faulty_values(block, (block.values < 0) | (block.values > 1)) if block.kind == "float" else None

        return self._check(
            find,
            lambda found: (
                f"{found.where} has the label {found.value}, outside 0 to 1: each class of a row is 0.0 (it does not "
                f"apply) or 1.0 (it applies), or a share between them. Correct it.{found.more}"
            ),
        )

    def width(self, width: int | None, of: str = "") -> Check:
        """Lists of `width` values a row; single values if it is 1. Only of one type, if `of` names it."""

        def find(block: Block) -> Found | None:
            if width is None or (of and block.kind != of) or not len(block.owners):
                return None
            sizes = np.ones_like(block.owners) if block.lengths is None else block.lengths
            return faulty_sequences(block.owners, sizes, sizes != width)

        return self._check(
            find,
            lambda found: (
                f"row {found.row} has {found.value} label value{'s' * (found.value != 1)}, but the model has "
                f"num_labels={width}: give each row a list of {width}, or load the model with another num_labels."
                f"{found.more}"
            ),
        )

    def sequences(self, hint: str = "") -> Check:
        """Lists, not single values."""

        def find(block: Block) -> Found | None:
            if block.kind != "int" or block.lengths is not None:
                return None
            return faulty_values(block, np.ones(len(block.values), dtype=bool))

        return self._check(
            find,
            lambda found: (
                f"row {found.row} has the single label {found.value}, but {self.facts.name} learns one a token, so "
                f"each row needs a list.{hint}{found.more}"
            ),
        )

    def one_a_token(self) -> Check:
        return same_length(self.name, self.column, "input_ids")

    def a_choice(self) -> Check:
        """Labels below the number of sequences of their row."""

        def find(chunk: Chunk) -> Found | None:
            labels, ids = chunk.get(self.column), chunk.get("input_ids")
            if labels is None or ids is None or labels.kind != "int" or labels.lengths is not None:
                return None
            rows, num_choices = np.unique(ids.owners, return_counts=True)
            if not np.array_equal(rows, labels.owners):
                return None
            values = labels.values
            faulty = ((values < 0) | (values >= num_choices)) & (values != IGNORED_LABEL)
            found = faulty_values(labels, faulty)
            return found and replace(found, value=(found.value, int(num_choices[np.flatnonzero(faulty)[0]])))

        return Check(
            find,
            lambda found: (
                f"{self.name}, `{self.column}`: {found.where} has label {found.value[0]}, but {found.value[1]} "
                f"choices, counted from 0: 0 to {found.value[1] - 1}. Correct it.{found.more}"
            ),
        )

    def _check(self, find: Callable[[Block], Found | None], say: Callable[[Found], str]) -> Check:
        return Check(of_column(self.column, find), lambda found: f"{self.name}, `{self.column}`: {say(found)}")


def _floats(block: Block) -> Found | None:
    """Values of a column of floats; those that are not whole, where there are any."""
    if block.kind != "float":
        return None
    broken = block.values != np.round(block.values)
    return faulty_values(block, broken if broken.any() else np.ones(len(broken), dtype=bool))
