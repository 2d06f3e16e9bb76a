"""Options of an optimizer or a schedule, as they come from a command line: read, and checked against what is taken."""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from burnish.core.errors import SettingError, did_you_mean

REQUIRED = inspect.Parameter.empty
"""The default of an option that must be given."""


def parse_options(given: str | Mapping[str, Any] | None, setting: str) -> dict[str, Any]:
    """Options by name, from a mapping, a JSON object, or text such as ``"momentum=0.9,nesterov=True"``.

    Text values become numbers, booleans or None where they read like one. `setting` is named in errors.
    Raises `SettingError` for text that is neither form.
    """
    if not given:
        return {}
    if isinstance(given, str):
        given = _from_json(given, setting) if given.lstrip().startswith("{") else _from_pairs(given, setting)
    return {name: read_value(value) for name, value in given.items()}


def read_value(value: Any) -> Any:
    """A number, boolean or None for text that reads like one; anything else as it is."""
    if not isinstance(value, str):
        return value
    words = {"true": True, "false": False, "none": None, "null": None}
    text = value.strip()
    if text.lower() in words:
        return words[text.lower()]
    with contextlib.suppress(ValueError):
        return int(text)
    with contextlib.suppress(ValueError):
        return float(text)
    return text


def options_of(function: Callable[..., Any], without: Collection[str] = ()) -> dict[str, Any]:
    """The options that a function or class names, each with its default (`REQUIRED` where there is none).

    Left out are `without`, and what holds several values: it cannot be written as one option.
    """
    return {
        p.name: p.default
        for p in inspect.signature(function).parameters.values()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        and p.name not in without
        and not isinstance(p.default, tuple)
    }


def checked_options(given: Mapping[str, Any], taken: Mapping[str, Any], setting: str, owner: str) -> dict[str, Any]:
    """The given options, if `owner` takes them all, gets all it needs, and each is of the kind of its default.

    `taken` holds what `options_of` returns. Raises `SettingError` naming the option and what `owner` takes.
    """
    listing = ", ".join(sorted(taken)) or "none"
    for name in given:
        if name not in taken:
            raise SettingError(
                f"{setting} has {name!r}, which {owner} does not take. It takes: {listing}.{did_you_mean(name, taken)}"
            )
    for name, default in taken.items():
        if default is REQUIRED and name not in given:
            raise SettingError(f"{owner} needs {name!r}: set it in {setting}. It takes: {listing}.")
    return {name: _of_kind(taken[name], value, f"{setting}: {name!r} of {owner}") for name, value in given.items()}


def _of_kind(default: Any, value: Any, what: str) -> Any:
    """`value` as the kind that `default` is of; unchanged where the default does not tell."""
    if isinstance(default, bool):
        if value in (0, 1):
            return bool(value)
        raise SettingError(f"{what} is True or False, not {value!r}.")
    if isinstance(default, (int, float)):
        if isinstance(value, bool) or not isinstance(value, (int, float, list, tuple)):
            raise SettingError(f"{what} is a number, not {value!r}.")
    elif default is None and isinstance(value, str):
        raise SettingError(f"{what} is a number, or True or False, not {value!r}.")
    elif isinstance(default, str) and not isinstance(value, str):
        raise SettingError(f"{what} is a word such as {default!r}, not {value!r}.")
    return value


def _from_json(text: str, setting: str) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(text)
    except json.JSONDecodeError as error:
        raise SettingError(f"{setting} is not valid JSON ({error}): {text!r}.") from None
    return content


def _from_pairs(text: str, setting: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    for name, equals, _ in pairs:
        if not equals:
            raise SettingError(f'{setting} is written as "name=value,name=value"; {name.strip()!r} has no value.')
    return {name.strip(): value.strip() for name, _, value in pairs}
