"""The place of a stream in itself, for streams that can say it and go back to it, such as those of `datasets`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from burnish.core.errors import CheckpointError

from .arrow_rows import is_of_datasets

BUFFER = "BufferShuffledExamplesIterable"
"""Part of a stream of `datasets` (``shuffle(buffer_size=...)``) whose state lacks the rows in its buffer."""
WRAPPERS = {"RebatchedArrowExamplesIterable", "FormattedExamplesIterable"}
"""Put around the parts of a stream when it is read."""
NEVER = -1
"""A pass. A stream of `datasets` goes on from a state in the pass that the state is of, and no other."""


def state_of(stream: Any) -> Any:
    """The state after the last row that was read, as JSON values; None for a stream whose place cannot be gone back to
    by its state alone: rows before it are then read again."""
    if not _has_state(stream) or _holds_rows_back(stream):
        return None
    try:
        state = stream.state_dict()
        return state if json.loads(json.dumps(state)) == state else None
    except (TypeError, ValueError, NotImplementedError, AttributeError):
        return None


@contextlib.contextmanager
def placed(stream: Any, state: Any) -> Iterator[None]:
    """Within, the stream is read from a state on; afterwards it begins again where it would have begun.

    Raises:
        CheckpointError: the state is of another stream.
    """
    if not _has_state(stream):
        raise CheckpointError(_unfit(stream, "it has no `load_state_dict`"))
    if is_of_datasets(stream, "IterableDataset"):
        if not _alike(stream.state_dict(), state):
            raise CheckpointError(_unfit(stream, "its parts are others"))
        after: Any = {"epoch": NEVER, "examples_iterable": None}
    else:
        after = stream.state_dict()
    stream.load_state_dict(state)
    try:
        yield
    finally:
        stream.load_state_dict(after)


def has_buffer(stream: Any) -> bool:
    """Whether a stream of `datasets` holds rows in a buffer, to shuffle them."""
    return any(type(part).__name__ == BUFFER for part in layers_of(stream))


def _has_state(stream: Any) -> bool:
    return all(callable(getattr(stream, method, None)) for method in ("state_dict", "load_state_dict"))


def layers_of(stream: Any) -> Iterator[Any]:
    """What a stream of `datasets` is made of: it has no public list of that. None for a part that is made otherwise
    than in the releases known here. Nothing of other streams."""
    waiting = [getattr(stream, "_ex_iterable", None)] if is_of_datasets(stream, "IterableDataset") else []
    while waiting:
        part = waiting.pop()
        yield part
        waiting += [getattr(part, "ex_iterable", None), *getattr(part, "ex_iterables", ())]
        waiting = [part for part in waiting if part is not None]


def _holds_rows_back(stream: Any) -> bool:
    return has_buffer(stream) or None in layers_of(stream)


def _alike(now: Any, saved: Any) -> bool:
    """Whether two states of `datasets` are of streams that are made alike, whatever they are wrapped in for reading."""
    now, saved = _unwrapped(now), _unwrapped(saved)
    if isinstance(now, dict) and isinstance(saved, dict):
        same = now.keys() == saved.keys() and now.get("type") == saved.get("type")
        return same and all(_alike(part, saved[name]) for name, part in now.items())
    if isinstance(now, list) and isinstance(saved, list):
        return len(now) == len(saved) and all(map(_alike, now, saved))
    return True


def _unwrapped(state: Any) -> Any:
    while isinstance(state, dict) and state.get("type") in WRAPPERS:
        state = state["examples_iterable"]
    return state


def _unfit(stream: Any, reason: str) -> str:
    return (
        f"train_dataset (a {type(stream).__name__}) is another stream than that of the checkpoint: {reason}. Give the "
        "same one, or start a new run from the weights of the checkpoint."
    )
