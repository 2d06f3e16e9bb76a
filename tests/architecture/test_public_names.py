"""Every public name resolves, and the lists of them agree."""

from __future__ import annotations

import ast

import pytest
import source_tree

import burnish


@pytest.mark.parametrize("name", burnish.__all__)
def test_name_resolves(name: str) -> None:
    assert getattr(burnish, name) is not None
    assert name in dir(burnish)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'burnish'.*'Traner'"):
        _ = burnish.Traner  # type: ignore[attr-defined]


def test_type_checkers_see_the_same_names() -> None:
    """The imports under TYPE_CHECKING, which nobody runs, are those of `__all__`."""
    tree = ast.parse((source_tree.PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.asname or alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert seen | {"__version__"} == set(burnish.__all__)
    assert len(burnish.__all__) == len(set(burnish.__all__))
