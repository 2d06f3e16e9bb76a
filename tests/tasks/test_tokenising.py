from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pyarrow
import pytest
import tiny

from burnish.core.errors import SettingError
from burnish.tasks.cache import stored
from burnish.tasks.tokenising import Lengths, TextTokeniser, chosen_length, identity_of, tokenised, without_lengths

TEXTS = ["w5 w6 w7", "w8", "w9 w10 w11 w12 w13"]


class Counted(TextTokeniser):
    """Counts the rows that are really tokenised."""

    calls: list[int] = []  # noqa: RUF012

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        self.calls.append(len(batch["text"]))
        return super().__call__(batch)


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    Counted.calls.clear()


def rows(texts: list[str] = TEXTS) -> datasets.Dataset:
    return datasets.Dataset.from_dict({"text": texts, "other": list(range(len(texts)))})


def test_inputs_and_lengths() -> None:
    found = tokenised(rows(), TextTokeniser(tiny.tokenizer(), ("text",), 4), ["text"])
    inputs, lengths = without_lengths(found, 4)
    assert set(inputs.column_names) == set(tiny.tokenizer()(["w5"]))
    assert inputs[2]["input_ids"] == [9, 10, 11, 12] and inputs[1]["input_ids"] == [8]
    assert (lengths.tokens, lengths.num_truncated) == ([3, 1, 4], 1)
    assert lengths.notes() == [
        ("lengths", "1 to 4 tokens, median 3"),
        ("truncated", "1 of 3 rows (33.3 %) cut at 4 tokens"),
    ]


def test_padding_to_the_full_length_does_not_count() -> None:
    found = tokenised(rows(), TextTokeniser(tiny.tokenizer(), ("text",), 4, pad_to_max_length=True), ["text"])
    inputs, lengths = without_lengths(found, 4)
    assert [len(ids) for ids in inputs["input_ids"]] == [4, 4, 4]
    assert lengths.tokens == [3, 1, 4]


def test_the_second_run_does_not_tokenise() -> None:
    first = tokenised(rows(), Counted(tiny.tokenizer(), ("text",), 4), ["text"])
    used = tiny.tokenizer()
    used(["w5"], padding="max_length", truncation=True, max_length=9)  # leaves its settings in the tokenizer
    second = tokenised(rows(), Counted(used, ("text",), 4), ["text"])
    assert Counted.calls == [3]
    assert first.to_list() == second.to_list()


@pytest.mark.parametrize("change", ["text", "length", "padding", "tokenizer", "asked"])
def test_what_changes_the_tokens_is_tokenised_again(change: str) -> None:
    tokenised(rows(), Counted(tiny.tokenizer(), ("text",), 4), ["text"])
    data = rows([*TEXTS[:2], "w9"]) if change == "text" else rows()
    tokenizer = tiny.tokenizer(padding_side="left") if change == "tokenizer" else tiny.tokenizer()
    again = Counted(tokenizer, ("text",), 5 if change == "length" else 4, change == "padding")
    tokenised(data, again, ["text"], overwrite_cache=change == "asked")
    assert Counted.calls == [3, 3]


def test_other_columns_and_files_do_not_matter(tmp_path: Path) -> None:
    tokenised(rows(), Counted(tiny.tokenizer(), ("text",), 4), ["text"])
    moved = rows().rename_column("other", "label").select([0, 1, 2])
    tokenised(moved, Counted(tiny.tokenizer(), ("text",), 4), ["text"])
    assert Counted.calls == [3]


def test_identity_knows_special_tokens() -> None:
    assert identity_of(tiny.tokenizer()) == identity_of(tiny.tokenizer())
    assert identity_of(tiny.tokenizer()) != identity_of(tiny.tokenizer(pad_token="[MASK]"))


def test_the_length_of_rows() -> None:
    assert chosen_length(None, 24) == 24 and chosen_length(8, 24) == 8 and chosen_length(8, None) == 8
    with pytest.raises(SettingError, match=r"max_seq_length=32.*24 or less"):
        chosen_length(32, 24)
    with pytest.raises(SettingError, match=r"1 or more"):
        chosen_length(0, 24)
    with pytest.raises(
        SettingError, match=r"max_seq_length=2 leaves no room for text: 2 tokens .* Set it to 3 or more"
    ):
        chosen_length(2, 24, num_special=2)
    assert chosen_length(3, 24, num_special=2) == 3


def test_lengths_that_fit() -> None:
    assert Lengths([3, 1, 2], 0, None).notes() == [("lengths", "1 to 3 tokens, median 2"), ("truncated", "none")]


def test_a_cache_that_cannot_be_written_is_done_without(cache: Path) -> None:
    cache.parent.mkdir(exist_ok=True)
    cache.write_text("in the way")
    batches = [pyarrow.record_batch({"text": TEXTS})]
    assert stored("key", lambda: batches).to_list() == [{"text": text} for text in TEXTS]
    assert len(tokenised(rows(), Counted(tiny.tokenizer(), ("text",), 4), ["text"])) == 3
