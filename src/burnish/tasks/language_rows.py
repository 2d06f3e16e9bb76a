"""Texts and prompts with completions as rows of tokens for language models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from burnish.core.types import IGNORED_LABEL
from burnish.data.arrow_arrays import of_numbers
from burnish.data.arrow_rows import ArrowRows
from burnish.generation.prompts import without_end

from .cache import key_of
from .tokenising import LENGTH, TRUNCATED, identity_of


@dataclass(frozen=True)
class DocumentTokeniser:
    """Tokenises whole texts, none of them cut. With `ends` each one is closed by the end-of-text token."""

    tokenizer: Any
    column: str
    ends: bool = True
    max_length: int | None = None
    """Not applied here: blocks are cut later."""

    def key(self) -> str:
        return key_of(identity_of(self.tokenizer), self.column, self.ends, "documents")

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        end = self.tokenizer.eos_token_id
        texts = list(map(str, batch[self.column]))
        # Lines of one document (not `ends`) go on from each other, so nothing is put between them.
        rows = self.tokenizer(texts, add_special_tokens=self.ends, verbose=False)["input_ids"]
        if self.ends and end is not None:
            rows = [ids if ids and ids[-1] == end else [*ids, end] for ids in rows]
        return {"input_ids": rows, LENGTH: list(map(len, rows)), TRUNCATED: [False] * len(rows)}


@dataclass(frozen=True)
class CompletionTokeniser:
    """Tokenises a prompt and its completion, closed by the end-of-text token. The prompt carries no loss.

    A row that is too long loses the start of its prompt; a completion that is too long alone loses its end.
    """

    tokenizer: Any
    prompt: str
    completion: str
    max_length: int | None = None

    def key(self) -> str:
        return key_of(identity_of(self.tokenizer), self.prompt, self.completion, self.max_length, "completions")

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        prompts = prompt_tokens(self.tokenizer, list(map(str, batch[self.prompt])))
        end = [] if self.tokenizer.eos_token_id is None else [self.tokenizer.eos_token_id]
        texts = list(map(str, batch[self.completion]))
        answers = self.tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        found: dict[str, list[Any]] = {"input_ids": [], "labels": [], LENGTH: [], TRUNCATED: []}
        for prompt, answer in zip(prompts, answers, strict=True):
            kept = (answer + end)[: self.max_length]
            room = None if self.max_length is None else self.max_length - len(kept)
            before = prompt if room is None else prompt[len(prompt) - min(room, len(prompt)) :]
            found["input_ids"].append(before + kept)
            found["labels"].append([IGNORED_LABEL] * len(before) + kept)
            found[LENGTH].append(len(before) + len(kept))
            found[TRUNCATED].append(len(before) + len(kept) < len(prompt) + len(answer) + len(end))
        return found


def prompt_tokens(tokenizer: Any, prompts: list[str]) -> list[list[int]]:
    """Prompts with the tokens that a tokenizer puts first, and without those that it would end a text with."""
    return [without_end(ids, tokenizer) for ids in tokenizer(prompts, verbose=False)["input_ids"]]


def blocks(rows: ArrowRows, length: int) -> ArrowRows:
    """All tokens of all rows in a row, cut into blocks of `length`; the last one holds what is left (no token is
    dropped, unless it is a single one, which nothing could be predicted from)."""
    import pyarrow

    flat = rows.table.column("input_ids").combine_chunks().flatten()
    ends = np.append(np.arange(0, len(flat), length, dtype=np.int64), len(flat))
    if len(ends) > 2 and ends[-1] - ends[-2] == 1:
        ends = ends[:-1]
    cut = pyarrow.LargeListArray.from_arrays(of_numbers(ends, np.int64), flat.slice(0, int(ends[-1])))
    return ArrowRows(pyarrow.table({"input_ids": cut}))
