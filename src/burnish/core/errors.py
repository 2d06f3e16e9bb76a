"""Errors that end a run with one message: what is wrong, where, and what to set.

All of them are ``ValueError`` or ``RuntimeError`` for a caller who knows nothing of burnish. The command line prints
them without a traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Something that the user gave cannot work. The message says what, where and what to do."""

    def __init__(self, *words: object) -> None:
        super().__init__(*(self._own(word) for word in words))

    def _own(self, word: object) -> object:
        """The words of an error in a worker of a loader, which torch puts at the end of a stack trace."""
        if not isinstance(word, str) or "in DataLoader worker process" not in word.partition("\n")[0]:
            return word
        return word.rpartition(f"{type(self).__name__}: ")[2].strip() or word


class DataError(UserError):
    """A row, a column or a file cannot be trained on."""


class SettingError(UserError):
    """A setting is unknown, contradicts another, or does nothing here."""


class CheckpointError(UserError):
    """A checkpoint is missing, damaged, or of another run."""


class UnsavedError(CheckpointError):
    """A run is over, and its last state could not be written. The weights are still in memory."""


class HubError(UserError):
    """Something could not be uploaded to the hub. What was to be uploaded is on the disk."""


class NonFiniteError(RuntimeError):
    """A loss or a gradient became NaN or infinite; the update was not applied."""


class OutOfMemoryError(RuntimeError):
    """Something does not fit into memory, and cannot be cut smaller."""


class ProcessError(RuntimeError):
    """Another process of the run has failed, and with it the run. The message is that of the other one, where known."""


def mark_said(error: BaseException) -> None:
    """Another process of the run says the words of this error."""
    error.is_said = True  # type: ignore[attr-defined]


def is_said(error: BaseException) -> bool:
    """Whether this process need not say what the error says."""
    return bool(getattr(error, "is_said", False))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A closing sentence that names the nearest known words, or an empty string."""
    near = difflib.get_close_matches(word, list(known), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
