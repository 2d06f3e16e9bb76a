"""Settings from a YAML or JSON file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from burnish.core.errors import SettingError, did_you_mean

from .flags import Flag
from .parse import Given


def read_config(path: Path, flags: Mapping[str, Flag], old_names: frozenset[str] = frozenset()) -> Given:
    """The settings in a file: one mapping of names to values. Raises `SettingError` naming file, line or key."""
    given = Given()
    for key, value in _mapping(path).items():
        name = str(key).replace("-", "_")
        if name not in flags and name not in old_names:
            hint = did_you_mean(name, flags) or " `burnish train --help-all` lists all settings."
            raise SettingError(f"{path}: there is no setting {str(key)!r}.{hint}")
        try:
            given.put(name, _value(flags[name], value) if name in flags else value, "file")
        except SettingError as error:
            raise SettingError(f"{path}: {str(error).removeprefix('--')}") from None
    return given


def _value(flag: Flag, value: Any) -> Any:
    """YAML reads `1e-4` as a text, so texts are read as on the command line."""
    if isinstance(value, str) and flag.kind != "str":
        return flag.convert(value)
    if flag.kind == "bool" and value is not None and not isinstance(value, bool):
        raise SettingError(f"--{flag.name} {value!r}: true or false was expected.")
    if flag.kind in ("int", "float") and (isinstance(value, (bool, list, dict))):
        raise SettingError(f"--{flag.name} {value!r}: a number was expected.")
    if flag.kind == "int" and isinstance(value, float):
        return flag.convert(str(value))
    if flag.kind == "str" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return flag.checked(value)


def _mapping(path: Path) -> dict[Any, Any]:
    if not path.is_file():
        raise SettingError(
            f"There is no file {path}. `burnish train` takes flags, or a file of settings: `burnish train run.yaml`."
        )
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingError(f"{path}: byte {error.start + 1} of the file is not UTF-8. Save it as UTF-8.") from None
    content = _from_json(path, text) if path.suffix.lower() == ".json" else _from_yaml(path, text)
    if not isinstance(content, dict):
        raise SettingError(f"{path} must hold names and values, such as `learning_rate: 2e-5`, one a line.")
    return content


def _from_json(path: Path, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise SettingError(f"{path}, line {error.lineno}: not JSON ({error.msg}).") from None


def _from_yaml(path: Path, text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise SettingError(f"{path}{line}: not YAML ({problem}).") from None
