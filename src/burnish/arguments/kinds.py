"""What a field holds, read once from its annotation."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .choices import Choice

PLAIN = (bool, int, float, str, list, dict, Path)
"""Types whose values are converted. A field of any other type takes what it is given."""


@dataclass(frozen=True)
class Kind:
    """The values that a field takes."""

    name: str
    types: frozenset[type]
    choice: type[Choice] | None
    choices: tuple[Any, ...]
    """All values that exist, where the annotation or the declaration lists them; otherwise empty."""
    default: Any
    optional: bool
    flag: bool
    """Whether True and False are values although the type is text."""
    open: bool
    """Whether the annotation also names types that are not known here."""

    def takes(self, *wanted: type) -> bool:
        return not self.types.isdisjoint(wanted)


@functools.cache
def kinds_of(cls: type) -> dict[str, Kind]:
    """The kind of each field of a dataclass, by name. Fields whose annotation cannot be resolved are left out."""
    hints = _hints(cls)
    return {f.name: kind_of(f, hints[f.name]) for f in dataclasses.fields(cls) if f.name in hints}


def kind_of(declared: dataclasses.Field[Any], hint: Any) -> Kind:
    """Reads one annotation, such as ``int | None`` or ``SchedulerType | str``."""
    members = _members(hint)
    literals = [
        value for member in members if typing.get_origin(member) is Literal for value in typing.get_args(member)
    ]
    bare = [typing.get_origin(member) or member for member in members]
    choice = next((kind for kind in bare if isinstance(kind, type) and issubclass(kind, Choice)), None)
    known = frozenset(kind for kind in bare if kind in PLAIN)
    texts = tuple(value for value in literals if isinstance(value, str))
    return Kind(
        name=declared.name,
        types=known | ({str} if texts else frozenset()),
        choice=choice,
        choices=tuple(declared.metadata.get("choices", texts)),
        default=_default(declared),
        optional=type(None) in members,
        flag="const" in declared.metadata or False in literals,
        open=any(kind not in (*PLAIN, type(None), Literal, choice) for kind in bare),
    )


def _default(declared: dataclasses.Field[Any]) -> Any:
    if declared.default_factory is not dataclasses.MISSING:
        return declared.default_factory()
    return declared.default


def _members(hint: Any) -> list[Any]:
    """The types of a union, or the one type."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return list(typing.get_args(hint))
    return [hint]


def _hints(cls: type) -> dict[str, Any]:
    """Resolved annotations. A subclass may name types that are imported for type checkers only; such a field is left
    out, and the others still resolve."""
    try:
        return typing.get_type_hints(cls)
    except (NameError, AttributeError, TypeError):
        found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        names = vars(sys.modules.get(base.__module__, typing))
        for name, annotation in getattr(base, "__annotations__", {}).items():
            alone = types.SimpleNamespace(__annotations__={name: annotation})
            with contextlib.suppress(NameError, AttributeError, TypeError):
                found[name] = typing.get_type_hints(alone, names, dict(vars(base)))[name]
    return found
