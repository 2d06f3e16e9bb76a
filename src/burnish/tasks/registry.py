"""The tasks by name. Loading this module loads neither torch nor transformers."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

from burnish.core.errors import SettingError, did_you_mean

from .recipe import TASK_KEY, Recipe

RECIPES = {
    "text-classification": ("text_classification", "TextClassification"),
    "token-classification": ("token_classification", "TokenClassification"),
    "causal-lm": ("causal_lm", "CausalLM"),
    "masked-lm": ("masked_lm", "MaskedLM"),
    "seq2seq": ("seq2seq", "Seq2Seq"),
}
"""Name of the task: the module beside this one, and its class."""

ALIASES = {
    "sentiment-analysis": "text-classification",
    "sequence-classification": "text-classification",
    "classification": "text-classification",
    "regression": "text-classification",
    "ner": "token-classification",
    "named-entity-recognition": "token-classification",
    "pos-tagging": "token-classification",
    "text-generation": "causal-lm",
    "language-modeling": "causal-lm",
    "clm": "causal-lm",
    "fill-mask": "masked-lm",
    "mlm": "masked-lm",
    "translation": "seq2seq",
    "summarization": "seq2seq",
    "text2text-generation": "seq2seq",
}


def recipe(name: str) -> Recipe:
    """The recipe of a task.

    Raises:
        SettingError: there is no task of this name; the message lists those that exist.
    """
    known = ALIASES.get(name.lower().replace("_", "-"), name.lower().replace("_", "-"))
    if known not in RECIPES:
        near = did_you_mean(known, [*RECIPES, *ALIASES])
        raise SettingError(f"There is no task {name!r}.{near} Tasks are {', '.join(RECIPES)}.")
    module, class_name = RECIPES[known]
    found: Recipe = getattr(importlib.import_module(f"{__package__}.{module}"), class_name)()
    return found


def recipe_of(folder: Path) -> Recipe:
    """The recipe that a trained model folder was made with.

    Raises:
        SettingError: it is no folder of a model, or its config does not say which task it was trained for.
    """
    config = folder / "config.json"
    if not config.is_file():
        raise SettingError(f"{folder}: there is no config.json, so no trained model is here.")
    try:
        content = json.loads(config.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SettingError(f"{config} is damaged: {error}.") from None
    task = (content.get(TASK_KEY) or {}).get("task")
    if task:
        return recipe(task)
    if any(name.endswith("ForSequenceClassification") for name in content.get("architectures") or []):
        return recipe("text-classification")
    raise SettingError(f"{folder}: its config.json names no task. Set --task to one of {', '.join(RECIPES)}.")
