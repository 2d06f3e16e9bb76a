"""What can be set on the command line, made from the fields of the dataclasses that hold the settings."""

from __future__ import annotations

import json
import types
import typing
from dataclasses import MISSING, Field, dataclass, fields
from enum import Enum
from typing import Any

from burnish.core.errors import SettingError

TRUE_WORDS = ("true", "yes", "on", "1")
FALSE_WORDS = ("false", "no", "off", "0")
NOTHING_WORDS = ("none", "null")


@dataclass(frozen=True)
class Flag:
    """One setting: `--name value`, or `name: value` in a file."""

    name: str
    kind: str
    """"bool", "int", "float", "str", "list", "json", or "any" where several types may be meant."""
    default: Any
    help: str
    section: str
    owner: str
    """Who is given the value: "task", "data", "model", "training" or "run"."""
    choices: tuple[str, ...] = ()
    common: bool = False
    """Whether the short help shows it."""
    alone: Any = None
    """What `--name` without a value means; None where it needs one."""
    strict: bool = True
    """Whether only the choices are taken; otherwise the owner checks, who may know older names, too."""

    def understands(self, text: str) -> bool:
        """Whether a word can be the value of this yes/no flag, and need not be something else."""
        words = TRUE_WORDS + FALSE_WORDS + (NOTHING_WORDS if self.default is None else ())
        return text.lower() in words

    def convert(self, text: str) -> Any:
        """The value that a word on the command line means. Raises `SettingError`."""
        if text.lower() in NOTHING_WORDS and self.kind != "str" and self.default is None:
            return None
        try:
            value = _CONVERT[self.kind](text)
        except ValueError:
            raise SettingError(f"--{self.name} {text}: {_EXPECTED[self.kind]} was expected.") from None
        return self.checked(value)

    def checked(self, value: Any) -> Any:
        """The same value, if it is one of the choices. Raises `SettingError`."""
        if self.strict and self.choices and isinstance(value, str) and value not in self.choices:
            raise SettingError(f"--{self.name} {value}: choose one of {', '.join(self.choices)}.")
        return value


def boolean(text: str) -> bool:
    """True or false, as people write them. Raises `ValueError`."""
    if text.lower() in TRUE_WORDS:
        return True
    if text.lower() in FALSE_WORDS:
        return False
    raise ValueError(text)


def _anything(text: str) -> Any:
    """A JSON object or list where it looks like one; otherwise the text, which its owner understands."""
    return json.loads(text) if text[:1] in ("{", "[") else text


def _whole(text: str) -> int:
    """A whole number, also written as `1e4` or `1_000`."""
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if number != int(number):
            raise ValueError(text) from None
        return int(number)
    except OverflowError:
        raise ValueError(text) from None


def _items(text: str) -> list[str]:
    return json.loads(text) if text.startswith("[") else [item for item in text.split(",") if item]


_CONVERT: dict[str, Any] = {
    "bool": boolean,
    "int": _whole,
    "float": float,
    "str": str,
    "list": _items,
    "json": _anything,
    "any": _anything,
}
_EXPECTED = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "list": "a list such as a,b",
    "json": 'JSON such as {"name": 1} or the path of a file',
    "any": "a value, or JSON",
}


def flags_of(cls: type, owner: str, section: str, helps: typing.Mapping[str, str] | None = None) -> list[Flag]:
    """The flags of a dataclass. Help, choices and section come from the fields' metadata, or from the arguments."""
    hints = typing.get_type_hints(cls)
    helps = helps or {}
    return [
        Flag(
            name=field.name,
            kind=kind_of(hints[field.name]),
            default=_default(field),
            help=str(field.metadata.get("help") or helps.get(field.name, "")).replace("%%", "%"),
            section=str(field.metadata.get("section") or section),
            owner=owner,
            choices=tuple(str(choice) for choice in field.metadata.get("choices") or _members(hints[field.name])),
            alone=_alone(field, hints[field.name]),
            strict=False,
        )
        for field in fields(cls)
        if field.init
    ]


def kind_of(hint: Any) -> str:
    """What a word on the command line is made into, from the type of the field."""
    members = [hint]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        members = [member for member in typing.get_args(hint) if member is not type(None)]
    kinds = {_kind_of_one(member) for member in members}
    if len(kinds) == 1:
        return kinds.pop()
    if kinds == {"int", "float"}:
        return "any"
    if "json" in kinds and "bool" not in kinds:
        return "json"
    return "any"


def _kind_of_one(hint: Any) -> str:
    origin = typing.get_origin(hint) or hint
    if origin is typing.Literal or (isinstance(origin, type) and issubclass(origin, Enum)):
        return "str"
    known = {bool: "bool", int: "int", float: "float", str: "str", list: "list", tuple: "list", dict: "json"}
    return known.get(origin, "any")


def _members(hint: Any) -> tuple[str, ...]:
    """The choices that the type itself gives."""
    for member in (hint, *typing.get_args(hint)):
        if typing.get_origin(member) is typing.Literal:
            return typing.get_args(member)
        if isinstance(member, type) and issubclass(member, Enum):
            return tuple(choice.value for choice in member)
    return ()


def _alone(field: Field[Any], hint: Any) -> Any:
    if kind_of(hint) == "bool":
        return True
    return field.metadata.get("const") if field.metadata.get("nargs") == "?" else None


def _default(field: Field[Any]) -> Any:
    if field.default is not MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not MISSING else None
