"""Settings given as a dict, as JSON, or as the path of a JSON file."""

from __future__ import annotations

from pathlib import Path

import pytest

from burnish.core.errors import SettingError
from burnish.core.json_settings import json_object


def test_all_forms_give_the_same(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(' {"a": {"b": 1}}')
    given = {"a": {"b": 1}}
    for form in (given, ' {"a": {"b": 1}}', str(path), path):
        assert json_object("deepspeed", form) == given
    json_object("deepspeed", given)["a"]["b"] = 2
    assert given == {"a": {"b": 1}}, "the user's own stays as it is"


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot be read: No such file"), ('{"a": ', "is no JSON"), ("[1]", "holds a list; a JSON object")],
)
def test_what_cannot_be_read_is_named(content: str | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SettingError, match=f"^fsdp_config='.*settings.json' {words}"):
        json_object("fsdp_config", str(path))
