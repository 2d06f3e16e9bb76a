"""What is said of a field besides its type and default."""

from __future__ import annotations

from typing import Any

FLAG = {"nargs": "?", "const": True}
"""For fields that are more than a boolean: ``--name`` alone means True, and True and False are values."""


def about(help: str, **argparse_options: Any) -> dict[str, Any]:
    """The metadata of a field: the help of the command line, with units, and what ``ArgumentParser.add_argument`` is
    to know (choices, nargs, const). Argument parsers hand the whole of it on, so nothing else may be in it."""
    return {"help": help.replace("%", "%%"), **argparse_options}
