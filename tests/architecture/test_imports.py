"""Imports point one way: cli, tasks, trainer, loop, core; and rooms of one level do not import each other."""

from __future__ import annotations

import sys

import source_tree

ROOMS = (
    "arguments",
    "callbacks",
    "checkpoint",
    "data",
    "engines",
    "evaluation",
    "generation",
    "models",
    "objectives",
    "optim",
    "tracking",
)
"""Folders of one level: each may import itself and `core`."""

TYPES_FOR_ALL = "burnish.models.contract"
"""What a model accepts: a value that rooms are handed, and may name in annotations."""

ONLY_IN_ENGINES = ("accelerate", "deepspeed")


def room(module: str) -> str:
    """The room of one of our modules: a folder, or "trainer" for the files beside the folders."""
    parts = module.split(".")
    if parts[-1] == "__main__":
        return "cli"  # `python -m burnish`
    is_folder = len(parts) > 1 and (source_tree.PACKAGE / parts[1]).is_dir()
    return parts[1] if is_folder else "trainer"


def allowed(importer: str) -> set[str]:
    """The rooms that a room may import."""
    if importer in ROOMS or importer == "loop":
        return {importer, "core"}
    return {
        "core": {"core"},
        "run": {"run", "loop", "core", *ROOMS},
        "trainer": {"trainer", "run", "loop", "core", *ROOMS},
        "planning": {"planning", "core", *ROOMS},
        "tasks": {"tasks", "trainer", "loop", "core", "demo", *ROOMS},
        "cli": {"cli", "tasks", "planning", "trainer", "run", "loop", "core", "demo", *ROOMS},
        "demo": {"demo", "core"},
    }[importer]


def all_imports() -> list[source_tree.Import]:
    found = [one for file in source_tree.files() for one in source_tree.imports_of(file)]
    assert len(found) > 50, "the search for imports finds nothing"
    return found


def test_every_folder_is_a_room_of_the_architecture() -> None:
    plan = (source_tree.ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    folders = {path.parent.name for path in source_tree.PACKAGE.glob("*/__init__.py")}
    assert {name for name in folders if f"{name}/" not in plan} == set()


def test_directions() -> None:
    wrong = []
    for one in all_imports():
        if not one.module.startswith("burnish") or one.file == source_tree.PACKAGE / "__init__.py":
            continue  # the package's own list of public names points everywhere
        importer = room(source_tree.module_name(one.file))
        named_only = {TYPES_FOR_ALL, *(["burnish.trainer"] if importer == "run" else [])}
        if one.module in named_only and one.for_types_only:
            continue
        if room(one.module) not in allowed(importer):
            wrong.append(str(one))
    assert wrong == []


def test_core_needs_torch_numpy_and_the_standard_library_only() -> None:
    known = {*sys.stdlib_module_names, "torch", "numpy", "burnish"}
    outside = [
        str(one) for one in all_imports() if one.file.parent.name == "core" and one.module.split(".")[0] not in known
    ]
    assert outside == []


def test_only_engines_know_accelerate_and_deepspeed() -> None:
    wrong = [
        str(one)
        for one in all_imports()
        if one.module.split(".")[0] in ONLY_IN_ENGINES and room(source_tree.module_name(one.file)) != "engines"
    ]
    assert wrong == []


def test_the_search_sees_every_kind_of_import(tmp_path, monkeypatch) -> None:
    package = tmp_path / "burnish"
    (package / "core").mkdir(parents=True)
    (package / "data").mkdir()
    (package / "core" / "types.py").write_text("")
    file = package / "data" / "plan.py"
    file.write_text(
        "from typing import TYPE_CHECKING\n"
        "import os.path\n"
        "from ..core import types\n"
        "from ..core.types import Step\n"
        "from . import rows\n"
        "def f():\n    from burnish.cli.main import main\n"
        "if TYPE_CHECKING:\n    from ..models.contract import ModelFacts\n"
    )
    monkeypatch.setattr(source_tree, "PACKAGE", package)
    found = {one.module: one.for_types_only for one in source_tree.imports_of(file)}
    assert found == {
        "typing": False,
        "os.path": False,
        "burnish.core.types": False,
        "burnish.data": False,
        "burnish.cli.main": False,
        "burnish.models.contract": True,
    }
