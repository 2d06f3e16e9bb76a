"""Options are read from each form, and checked by name and kind."""

from __future__ import annotations

from typing import Any

import pytest

from burnish.core.errors import SettingError
from burnish.optim.options import REQUIRED, checked_options, options_of, parse_options


@pytest.mark.parametrize(
    "given",
    [
        "momentum=0.9, nesterov=True,rank=4,kind=fast,seed=none",
        '{"momentum": 0.9, "nesterov": true, "rank": 4, "kind": "fast", "seed": null}',
        {"momentum": "0.9", "nesterov": "true", "rank": 4, "kind": "fast", "seed": None},
    ],
)
def test_every_form_reads_alike(given: Any) -> None:
    expected = {"momentum": 0.9, "nesterov": True, "rank": 4, "kind": "fast", "seed": None}
    found = parse_options(given, "optim_args")
    assert found == expected
    assert {name: type(value) for name, value in found.items()} == {name: type(v) for name, v in expected.items()}


@pytest.mark.parametrize("given", [None, "", {}])
def test_nothing_given(given: Any) -> None:
    assert parse_options(given, "optim_args") == {}


@pytest.mark.parametrize(("given", "said"), [("momentum", "momentum.*no value"), ('{"a": ', "JSON")])
def test_malformed_text_is_refused(given: str, said: str) -> None:
    with pytest.raises(SettingError, match=f"optim_args.*{said}"):
        parse_options(given, "optim_args")


def function(first: int, *, power: float = 1.0, flag: bool = False, kind: str = "a", pair: tuple[int, int] = (1, 2)):
    """Only its signature counts."""


def test_options_are_those_of_the_signature() -> None:
    assert options_of(function) == {"first": REQUIRED, "power": 1.0, "flag": False, "kind": "a"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"first": 1, "powr": 2}, "'powr'.*It takes: first, flag, kind, power.*Did you mean 'power'"),
        ({}, "the sum needs 'first'"),
        ({"first": 1, "power": "high"}, "'power' of the sum is a number, not 'high'"),
        ({"first": 1, "flag": "maybe"}, "'flag' of the sum is True or False, not 'maybe'"),
        ({"first": 1, "kind": 3}, "'kind' of the sum is a word such as 'a', not 3"),
    ],
)
def test_wrong_options_are_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        checked_options(given, options_of(function), "optim_args", "the sum")
