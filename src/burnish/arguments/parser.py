"""A command line, a dict, a YAML or a JSON file as settings, in which names of earlier releases are understood."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import transformers

from .base import Settings, UnknownSettingError, nearest
from .old_names import is_old, translate


class HfArgumentParser(transformers.HfArgumentParser):  # type: ignore[misc]
    """`transformers.HfArgumentParser` that translates old names for `TrainingArguments`, with a warning, as its
    constructor does, and says of an unknown name which one was probably meant."""

    def parse_args_into_dataclasses(
        self,
        args: Sequence[str] | None = None,
        return_remaining_strings: bool = False,
        look_for_args_file: bool = True,
        args_filename: str | None = None,
        args_file_flag: str | None = None,
    ) -> tuple[Any, ...]:
        """As in transformers.

        Raises:
            UnknownSettingError: there is an argument of an unknown name.
        """
        if args is None:
            beside = Path(sys.argv[0]).with_suffix(".args")
            args = sys.argv[1:]
            if look_for_args_file and args_filename is None and sys.argv[0] and beside.exists():
                args_filename = str(beside)  # found by name here, since it is looked for only without arguments
        words = list(args) if not self._translates else self._renewed(list(args))
        *found, rest = super().parse_args_into_dataclasses(
            words,
            return_remaining_strings=True,
            look_for_args_file=look_for_args_file,
            args_filename=args_filename,
            args_file_flag=args_file_flag,
        )
        if return_remaining_strings:
            return (*found, rest)
        self._refuse(word[2:].partition("=")[0] for word in rest if word.startswith("--"))
        if rest:
            raise UnknownSettingError(f"The command line has values that belong to no argument: {' '.join(rest)}.")
        return tuple(found)

    def parse_dict(self, args: Mapping[str, Any], allow_extra_keys: bool = False) -> tuple[Any, ...]:
        """As in transformers; files are read by it too.

        Raises:
            UnknownSettingError: there is a key of an unknown name.
        """
        settings = translate(args, keep=self._known) if self._translates else dict(args)
        if not allow_extra_keys:
            self._refuse(settings)
        return tuple(super().parse_dict(settings, allow_extra_keys=True))

    @property
    def _translates(self) -> bool:
        return any(isinstance(kind, type) and issubclass(kind, Settings) for kind in self.dataclass_types)

    @property
    def _known(self) -> list[str]:
        return [field.name for kind in self.dataclass_types for field in fields(kind) if field.init]

    def _refuse(self, names: Iterable[str]) -> None:
        known = self._known
        for name in names:
            if name not in known:
                near = nearest(name, known, cutoff=0.6)
                hint = f" Did you mean `{near}`?" if near is not None else ""
                raise UnknownSettingError(f"There is no argument `{name}`.{hint}")

    def _renewed(self, words: list[str]) -> list[str]:
        """The same command line under today's names."""
        options = _options(words)
        known = self._known
        old = {name for name, _, _ in options if name is not None and name not in known and is_old(name)}
        if not old:
            return words
        given = {name: values for name, values, _ in options if name is not None}
        kept = [word for name, _, written in options if name not in old for word in written]
        renewed = translate({name: _value(values) for name, values in given.items()}, keep=known)
        for name, value in renewed.items():
            if name not in given:
                kept += [f"--{name}", *_words(value)]
        return kept


def _options(words: Sequence[str]) -> list[tuple[str | None, list[str], list[str]]]:
    """Name, values and words of each option; the name is None for what stands before the first one."""
    found: list[tuple[str | None, list[str], list[str]]] = [(None, [], [])]
    for word in words:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            found.append((name.replace("-", "_"), [value] if equals else [], [word]))
        else:
            found[-1][1].append(word)
            found[-1][2].append(word)
    return found


def _value(values: list[str]) -> Any:
    """What an option was given: nothing means that it is switched on."""
    return True if not values else values[0] if len(values) == 1 else values


def _words(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [json.dumps(value)]
    return [str(part) for part in value] if isinstance(value, list) else [str(value)]
