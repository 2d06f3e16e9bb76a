"""The package as text: its files, and what each imports. Nothing of the package is imported here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "burnish"


@dataclass(frozen=True)
class Import:
    """One imported module, by its full name."""

    file: Path
    line: int
    module: str
    for_types_only: bool
    """Under `if TYPE_CHECKING`."""

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line} imports {self.module}"


def files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def module_name(file: Path) -> str:
    """ "burnish.core.types" for src/burnish/core/types.py."""
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(file: Path) -> list[Import]:
    """Every import of a file, those inside functions too."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    types_only = {id(inner) for block in ast.walk(tree) if _is_types_only(block) for inner in ast.walk(block)}
    return [
        Import(file, node.lineno, module, id(node) in types_only)
        for node in ast.walk(tree)
        for module in _modules(node, file)
    ]


def _is_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def _modules(node: ast.AST, file: Path) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        origin = _origin(node, file)
        # `from .core import types` imports a module, `from .core.types import Step` a name.
        yield from {_module_or_origin(origin, alias.name) for alias in node.names}


def _origin(node: ast.ImportFrom, file: Path) -> str:
    """The module after `from`, with leading dots resolved."""
    if node.level == 0:
        return node.module or ""
    package = module_name(file).split(".")
    if file.name != "__init__.py":
        package = package[:-1]
    base = package[: len(package) - (node.level - 1)]
    return ".".join([*base, *([node.module] if node.module else [])])


def _module_or_origin(origin: str, name: str) -> str:
    place = PACKAGE.parent.joinpath(*origin.split("."), name)
    return f"{origin}.{name}" if place.is_dir() or place.with_suffix(".py").is_file() else origin
