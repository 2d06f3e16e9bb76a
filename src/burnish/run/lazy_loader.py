"""A loader for those who look at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any


class LazyLoader:
    """Stands for a loader that is made when somebody uses it. Callbacks are handed one, and few look at it."""

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build

    @cached_property
    def _loader(self) -> Any:
        return self._build()

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)

    def __getattr__(self, name: str) -> Any:
        """Only called for what this class does not have."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._loader, name)
