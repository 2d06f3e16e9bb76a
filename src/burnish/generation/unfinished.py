"""A text on its way, from its prompt to its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from burnish.core.errors import DataError, SettingError

from .decoding import Decoding

SLACK = 8
"""Further tokens that are decoded with those that may hold a string: words at the edge may look different."""


@dataclass
class Text:
    """The tokens of a prompt (or the first token of a decoder), and those written so far."""

    row: int
    """Number of the row in its dataset: what is drawn for the text depends on it."""
    tokens: list[int]
    begun: int
    """Tokens that were there before anything was written."""
    most: int
    """Tokens there may be in the end, in all."""
    least: int
    """Tokens written before which the text does not end."""

    @classmethod
    def of(cls, row: int, start: Sequence[int], decoding: Decoding, positions: int | None = None) -> Text:
        """Raises `DataError` where there is no room for a single token, `SettingError` where none is asked for."""
        if decoding.max_new_tokens is not None and decoding.max_new_tokens < 1:
            raise SettingError(f"max_new_tokens={decoding.max_new_tokens}: expected 1 or more.")
        most = decoding.most(len(start), positions)
        if most < 1:
            limit = f"max_length={decoding.max_length}" if decoding.max_new_tokens is None else f"{positions} positions"
            raise DataError(
                f"Row {row}: its prompt has {len(start)} tokens, which leaves nothing to write within {limit}. Shorten "
                "the prompt, or set max_new_tokens, which does not count it."
            )
        return cls(row, list(start), len(start), len(start) + most, decoding.least(len(start)))

    @property
    def written(self) -> list[int]:
        return self.tokens[self.begun :]

    @property
    def num_written(self) -> int:
        return len(self.tokens) - self.begun

    def ended(self, ends: Sequence[int]) -> bool:
        return len(self.tokens) >= self.most or self.tokens[-1] in ends


class Stops:
    """Which texts have come to one of the strings that stop them."""

    def __init__(self, strings: Sequence[str], tokenizer: Any) -> None:
        self._strings, self._tokenizer = strings, tokenizer
        self._tail = max((len(string.encode()) for string in strings), default=0) + SLACK

    def reached(self, text: Text) -> bool:
        """Looks at the last tokens written: a token is a byte at least."""
        if not self._strings:
            return False
        words = self._tokenizer.decode(text.written[-self._tail :])
        return any(string in words for string in self._strings)
