"""From what YAML, a shell or an argument parser gives to what a field holds: "1e-4" to 0.0001, "True" to True."""

from __future__ import annotations

import contextlib
import json
import math
import numbers
import os
import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn

from burnish.core.errors import SettingError

from .choices import what_exists
from .kinds import Kind
from .old_names import current_value

YES = ("true", "yes", "on", "y", "t", "1")
NO = ("false", "no", "off", "n", "f", "0")
NOTHING = ("none", "null", "")


def convert(kind: Kind, value: Any) -> Any:
    """`value` as the type that the field is annotated with.

    Raises:
        SettingError: naming the field, the value and what is expected.
    """
    if isinstance(value, Enum) and isinstance(value.value, str) and kind.takes(str):
        value = value.value  # an enum of another library, such as transformers.IntervalStrategy
    if kind.choice is not None:
        return _chosen(kind, value)
    if value is None:
        return _nothing(kind)
    converted = _plain(kind, value)
    if kind.choices and isinstance(converted, str) and converted not in kind.choices:
        known = [str(choice) for choice in kind.choices]
        raise SettingError(f"`{kind.name}` has no value {converted!r}.{what_exists(converted, known)}")
    return converted


def _chosen(kind: Kind, value: Any) -> Any:
    assert kind.choice is not None
    if value is None and kind.optional:
        return None
    known = [member.value for member in kind.choice]
    if value is False and "no" in known:
        value = "no"  # YAML reads a bare `no` as False
    value = current_value(kind.name, value)
    if value not in known:
        raise SettingError(f"`{kind.name}` has no value {value!r}.{what_exists(value, known)}")
    return kind.choice(value)


def _nothing(kind: Kind) -> Any:
    if kind.optional or kind.default is None or kind.open or not kind.types:
        return None
    if kind.takes(list):
        return []
    return _refuse(kind, None, f" Leave it out for its default, {kind.default!r}.")


def _plain(kind: Kind, value: Any) -> Any:
    """Converts by what was given: text, a truth value, a number, several values, or anything else."""
    if isinstance(value, str):
        return _from_text(kind, value)
    if isinstance(value, bool):
        return value if kind.takes(bool) or kind.flag else _other(kind, value)
    if isinstance(value, numbers.Real) or _is_zero_dimensional(value):
        return _from_number(kind, value)
    if isinstance(value, Mapping) and kind.takes(dict):
        return value if isinstance(value, dict) else dict(value)
    if isinstance(value, list | tuple | set | frozenset) and kind.takes(list):
        return value if isinstance(value, list) else list(value)
    if isinstance(value, os.PathLike) and kind.takes(str) and not kind.takes(Path):
        return os.fspath(value)
    return _other(kind, value)


def _other(kind: Kind, value: Any) -> Any:
    """A value of no type that is known here: fine where a field may hold objects, and where it is the default."""
    wants_objects = kind.open or kind.takes(dict) or not kind.types
    if value is kind.default or (wants_objects and not isinstance(value, bool | int | float)):
        return value
    if not kind.types and isinstance(value, bool | int | float):
        return value
    return _refuse(kind, value)


def _from_text(kind: Kind, text: str) -> Any:
    word = text.strip().lower()
    if kind.flag and word in ("true", "false"):
        return word == "true"
    if kind.takes(dict) and text.lstrip().startswith("{"):
        return _json(kind, text)
    if kind.takes(str, Path) or not kind.types:
        return text
    if word in NOTHING and kind.optional:
        return None
    if kind.takes(bool) and word in YES + NO:
        return word in YES
    if kind.takes(int, float):
        return _number(kind, text)
    if kind.takes(list):
        return (
            _json(kind, text) if word.startswith("[") else [part for part in re.split(r"[,\s]+", text.strip()) if part]
        )
    return _refuse(kind, text)


def _number(kind: Kind, text: str) -> int | float:
    """Whole numbers stay whole, of any size; "1e3" is whole too."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        _refuse(kind, text)
    return _numeric(kind, number, given=text)


def _numeric(kind: Kind, number: int | float, given: Any) -> int | float:
    """The number as the field counts: 4.0 as 4 where it counts in whole numbers, where 4.5 is refused."""
    is_whole = math.isfinite(number) and number == int(number)
    if math.isnan(number) or not (is_whole or kind.takes(float)):
        _refuse(kind, given)
    return number if kind.takes(float) else int(number)


def _from_number(kind: Kind, value: Any) -> Any:
    """Numbers of numpy and torch become Python's, so that they can be written as JSON."""
    number = value if type(value) in (int, float) else _python_number(value)
    if kind.takes(int, float):
        return _numeric(kind, number, given=value)
    if kind.takes(bool) and number in (0, 1):
        return bool(number)
    if kind.takes(str):
        return str(number)
    return _other(kind, number)


def _is_zero_dimensional(value: Any) -> bool:
    """A tensor or array that holds one number and no list."""
    return getattr(value, "shape", None) == () and callable(getattr(value, "item", None))


def _python_number(value: Any) -> int | float:
    item = value.item() if _is_zero_dimensional(value) else value
    return int(item) if isinstance(item, numbers.Integral) else float(item)


def _json(kind: Kind, text: str) -> Any:
    try:
        return _typed(json.loads(text))
    except json.JSONDecodeError as error:
        raise SettingError(
            f"`{kind.name}` is not valid JSON: {error.msg} at character {error.pos} of {text!r}. Names and texts take "
            "double quotes, and it is true, false and null, as in '{\"name\": true}'."
        ) from error


def _typed(value: Any) -> Any:
    """JSON values whose texts are numbers or truth values, as a shell's quoting leaves them, typed."""
    if isinstance(value, dict):
        return {name: _typed(part) for name, part in value.items()}
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return int(value)
        with contextlib.suppress(ValueError):
            return float(value)
    return value


def _refuse(kind: Kind, value: Any, hint: str = "") -> NoReturn:
    raise SettingError(f"`{kind.name}` = {value!r}: expected {_expected(kind)}.{hint}")


def _expected(kind: Kind) -> str:
    names = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "a dict or JSON",
        Path: "a path",
    }
    found = [text for known, text in names.items() if known in kind.types]
    return " or ".join(found) + (" or nothing" if kind.optional else "")
