"""Arguments as a dict, as JSON, for trackers and for people. Tokens never show."""

from __future__ import annotations

import dataclasses
import json
from enum import Enum
from pathlib import Path
from typing import Any

from .fields.every import EveryField
from .processes import Processes


class Texts(EveryField):
    """The forms in which arguments are written down."""

    def to_dict(self) -> dict[str, Any]:
        """Every field as a value that JSON can hold, as far as it can be; a token as its name in capitals.

        ``TrainingArguments(**args.to_dict())`` gives equal arguments (without the token).
        """
        return {f.name: _simple(f.name, getattr(self, f.name)) for f in dataclasses.fields(self) if f.init}

    def to_json_string(self) -> str:
        return json.dumps(self.to_dict(), indent=2, default=str)

    def to_sanitized_dict(self) -> dict[str, Any]:
        """Plain values for trackers: truth values, numbers and texts; anything else as its text."""
        values = self.to_dict()
        if isinstance(self, Processes):
            values |= {"train_batch_size": self.train_batch_size, "eval_batch_size": self.eval_batch_size}
        return {
            name: value if isinstance(value, bool | int | float | str) else str(value) for name, value in values.items()
        }

    def __repr__(self) -> str:
        lines = [f"    {name}={value!r}," for name, value in self.to_dict().items()]
        return "\n".join([f"{type(self).__name__}(", *lines, ")"])

    __str__ = __repr__


def mask(name: str) -> str:
    """What stands for a token: its name, never its value."""
    return f"<{name.upper()}>"


def _simple(name: str, value: Any) -> Any:
    if name.endswith("_token") and value is not None:
        return mask(name)
    return _value(value)


def _value(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {key: _value(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_value(part) for part in value]
    if isinstance(value, Path):
        return str(value)
    if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        return str(value).removeprefix("torch.")
    as_dict = getattr(value, "to_dict", None)
    return as_dict() if callable(as_dict) and not isinstance(value, type) else value
