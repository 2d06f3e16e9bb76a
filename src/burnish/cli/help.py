"""The help of a command, from its flags."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable

from .flags import Flag

FLAG_COLUMN = 34


def help_text(usage: str, flags: Iterable[Flag], every: bool = True, closing: str = "") -> str:
    """Usage, then the flags by section; only the common ones where not `every`."""
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    sections: dict[str, list[Flag]] = {}
    for flag in flags:
        if every or flag.common:
            sections.setdefault(flag.section, []).append(flag)
    parts = [usage.strip()]
    for title, members in sections.items():
        parts.append("\n".join([f"{title}:", *(_entry(flag, width) for flag in members)]))
    if closing:
        parts.append(closing.strip())
    return "\n\n".join(parts)


def _entry(flag: Flag, width: int) -> str:
    left = f"  --{flag.name}{_value_name(flag)}"
    lines = textwrap.wrap(_explanation(flag), max(width - FLAG_COLUMN, 30)) or [""]
    if len(left) > FLAG_COLUMN - 2:
        return "\n".join([left, *(" " * FLAG_COLUMN + line for line in lines)])
    return "\n".join([left.ljust(FLAG_COLUMN) + lines[0], *(" " * FLAG_COLUMN + line for line in lines[1:])]).rstrip()


def _value_name(flag: Flag) -> str:
    names = {"bool": "", "int": " N", "float": " X", "list": " A B …", "json": " JSON", "any": " VALUE"}
    if flag.kind == "str":
        return " PATH" if flag.name.endswith(("_file", "_dir")) else " NAME"
    return names[flag.kind]


def _explanation(flag: Flag) -> str:
    text = " ".join(flag.help.split())
    if flag.choices and len(flag.choices) <= 12:
        text += f" One of: {', '.join(flag.choices)}."
    if flag.default not in (None, "", [], {}) and flag.kind != "bool":
        text += f" [{flag.default}]"
    elif flag.kind == "bool" and flag.default is True:
        text += f" [on; --no_{flag.name} turns it off]"
    return text.strip()
