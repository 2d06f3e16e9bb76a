"""Small runs that the tests of the trainer share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tiny
import torch
import transformers

import burnish

SETTINGS = {
    "per_device_train_batch_size": 4,
    "per_device_eval_batch_size": 4,
    "learning_rate": 1e-3,
    "logging_steps": 1,
    "save_strategy": "no",
    "use_cpu": True,
    "report_to": "none",
    "disable_tqdm": True,
}


def arguments(folder: Path, cls: Any = burnish.TrainingArguments, **changes: Any) -> Any:
    return cls(output_dir=str(folder), **{**SETTINGS, **changes})


def classifier(**changes: Any) -> Any:
    return tiny.bert("SequenceClassification", **{"num_hidden_layers": 1, **changes})


def collator() -> Any:
    return transformers.DataCollatorWithPadding(tiny.tokenizer())


def trainer(folder: Path, cls: Any = burnish.Trainer, parts: dict[str, Any] | None = None, **settings: Any) -> Any:
    """A trainer of a classifier on 18 rows; `parts` are arguments of the constructor."""
    given = parts or {}
    usual = {"train_dataset": tiny.class_rows(18), "data_collator": collator()}
    if "model_init" not in given:
        usual["model"] = classifier()
    return cls(args=arguments(folder, **settings), **{**usual, **given})


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def difference(one: Any, other: Any) -> float:
    """The largest difference of two models' weights, or of two dicts of weights."""
    a, b = (part if isinstance(part, dict) else weights(part) for part in (one, other))
    assert a.keys() == b.keys()
    return max((a[name] - b[name]).abs().max().item() for name in a)


def logged(run: Any, key: str) -> dict[int, float]:
    """What was logged under a key, by step."""
    return {entry["step"]: entry[key] for entry in run.state.log_history if key in entry}


def without_times(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A history without what depends on the clock."""
    clocks = ("_runtime", "_per_second")
    return [{key: value for key, value in entry.items() if not key.endswith(clocks)} for entry in history]
