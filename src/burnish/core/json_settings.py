"""Settings that hold settings of their own: a dict, JSON, or the path of a JSON file."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import SettingError


def json_object(name: str, given: Any) -> dict[str, Any]:
    """What the setting `name` gives, as a dict. A copy.

    Raises:
        SettingError: the file cannot be read, or there is no JSON object.
    """
    if isinstance(given, Mapping):
        return copy.deepcopy(dict(given))
    text, shown = str(given), name
    if not text.lstrip().startswith("{"):
        shown = f"{name}={text!r}"
        try:
            text = Path(text).expanduser().read_text(encoding="utf-8")
        except OSError as error:
            raise SettingError(
                f"{shown} cannot be read: {error.strerror or error}. Give the path of a JSON file."
            ) from error
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise SettingError(f"{shown} is no JSON: {error}.") from error
    if not isinstance(content, dict):
        raise SettingError(f"{shown} holds a {type(content).__name__}; a JSON object with settings was expected.")
    return content
