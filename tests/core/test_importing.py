"""Imports without the garbage collector."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from burnish.core.importing import importing


@pytest.fixture(autouse=True)
def _nothing_stays_frozen() -> Iterator[None]:
    yield
    gc.enable()
    gc.unfreeze()


def test_the_collector_pauses_and_goes_on_also_after_an_error() -> None:
    with importing():
        assert not gc.isenabled()
        with importing():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), importing():
        raise ImportError
    assert gc.isenabled()


def test_one_that_the_user_has_switched_off_stays_off() -> None:
    gc.disable()
    with importing():
        pass
    assert not gc.isenabled()


def test_only_many_new_modules_are_taken_out_of_its_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = gc.get_freeze_count()
    with importing():
        import json  # noqa: F401
    assert gc.get_freeze_count() == frozen
    with importing():
        for number in range(60):
            monkeypatch.setitem(sys.modules, f"one_of_many_{number}", ModuleType("one"))
    assert gc.get_freeze_count() > frozen
