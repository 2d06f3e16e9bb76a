from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from burnish.core.errors import SettingError
from burnish.tasks.registry import ALIASES, RECIPES, recipe, recipe_of


def test_every_name_and_alias_has_a_recipe() -> None:
    for name in RECIPES:
        assert recipe(name).name == name
    for alias, name in ALIASES.items():
        assert recipe(alias).name == name


def test_an_unknown_task_lists_those_that_exist() -> None:
    with pytest.raises(SettingError, match=r"no task 'text-clasification'.*Did you mean 'text-classification'"):
        recipe("text-clasification")


def test_a_folder_that_names_no_task(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"no config.json"):
        recipe_of(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["BertModel"]}))
    with pytest.raises(SettingError, match=r"names no task"):
        recipe_of(tmp_path)


def test_loading_the_registry_is_cheap() -> None:
    check = "import sys, burnish.tasks.registry; assert not {'torch', 'transformers', 'datasets'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)
