"""Words of a command line into settings, each with where it came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from burnish.core.errors import SettingError, did_you_mean

from .flags import Flag


@dataclass
class Given:
    """What a user gave: settings by name, where each came from ("flag" or "file"), and words that are no flags."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)

    def put(self, name: str, value: Any, origin: str) -> None:
        self.values[name] = value
        self.origins[name] = origin

    def over(self, base: Given) -> Given:
        """The settings of `base`, with these in their place where both have one."""
        return Given({**base.values, **self.values}, {**base.origins, **self.origins}, base.words + self.words)


def parse(words: Sequence[str], flags: Mapping[str, Flag], old_names: frozenset[str] = frozenset()) -> Given:
    """Reads a command line. Raises `SettingError` for an unknown flag or a value that cannot be one.

    Args:
        words: what follows the name of the command.
        flags: what can be set, by name.
        old_names: further names that are taken with the value as it stands, for whoever translates them.
    """
    given = Given()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            given.words += rest
            break
        if not word.startswith("--"):
            given.words.append(word)
            continue
        written, has_value, value = word[2:].partition("=")
        name = written.replace("-", "_")
        if name in flags:
            given.put(name, _value(flags[name], value if has_value else None, rest), "flag")
        elif _negates(name, flags) and not has_value:
            given.put(name.removeprefix("no_"), False, "flag")
        elif name in old_names:
            given.put(name, value if has_value else _old_value(rest), "flag")
        else:
            raise SettingError(f"There is no flag --{written}.{_nearest(name, flags)}")
    return given


def _negates(name: str, flags: Mapping[str, Flag]) -> bool:
    positive = flags.get(name.removeprefix("no_"))
    return name.startswith("no_") and positive is not None and positive.kind == "bool"


def _value(flag: Flag, value: str | None, rest: list[str]) -> Any:
    """The value of a flag, taken from the words that follow where it was not joined by "="."""
    if value is not None:
        return flag.convert(value)
    following = rest[0] if rest and not rest[0].startswith("--") else None
    if flag.kind == "bool":
        return flag.convert(rest.pop(0)) if following is not None and flag.understands(following) else True
    if flag.kind == "list" and following is not None:
        return _list(flag, rest)
    if following is not None:
        return flag.convert(rest.pop(0))
    if flag.alone is not None:
        return flag.alone
    raise SettingError(f"--{flag.name} needs a value.")


def _list(flag: Flag, rest: list[str]) -> list[Any]:
    """All words up to the next flag."""
    items: list[Any] = []
    while rest and not rest[0].startswith("--"):
        items += flag.convert(rest.pop(0))
    return items


def _old_value(rest: list[str]) -> Any:
    """The value of a flag whose type is not known any more: the next word, or true where a flag follows."""
    return rest.pop(0) if rest and not rest[0].startswith("--") else True


def _nearest(name: str, flags: Mapping[str, Flag]) -> str:
    hint = did_you_mean(name, flags)
    for known in flags:
        hint = hint.replace(f"'{known}'", f"--{known}")
    return hint or " `--help-all` lists all flags."
