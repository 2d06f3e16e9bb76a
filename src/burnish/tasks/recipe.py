"""What a task is made of: the request of a user, and the parts of a run that a recipe makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

TASK_KEY = "burnish_task"
"""Attribute of a model's config that says what the model was trained for, and on which columns."""


@dataclass(frozen=True)
class DataRequest:
    """Where the data are and which part of them to take. Files are CSV, TSV, JSON, JSONL, Parquet or text (`.txt`,
    `.conll`), or a folder saved by `datasets`; `dataset_name` is a name on the hub."""

    train_file: str | None = None
    validation_file: str | None = None
    test_file: str | None = None
    dataset_name: str | None = None
    dataset_config_name: str | None = None
    text_column: str | None = None
    """Column of the text, or two names separated by a comma: a pair of texts, or a prompt and its completion. The
    words of a tagged sentence; the source of a target."""
    label_column: str | None = None
    """Column of the label, or several names separated by commas, each with 0 or 1. The tags of words; the target of a
    source."""
    problem_type: str | None = None
    """regression, single_label_classification or multi_label_classification; inferred from the labels if None."""
    max_train_samples: int | None = None
    max_eval_samples: int | None = None
    max_predict_samples: int | None = None
    max_seq_length: int | None = None
    pad_to_max_length: bool = False
    validation_split: float | None = None
    """Share of the training rows set aside when there is no validation file."""
    preprocessing_num_workers: int | None = None
    overwrite_cache: bool = False
    seed: int = 42


@dataclass(frozen=True)
class ModelRequest:
    """Which pretrained model to start from, and how to load it."""

    model_name_or_path: str
    config_name: str | None = None
    tokenizer_name: str | None = None
    cache_dir: str | None = None
    model_revision: str = "main"
    token: str | None = None
    trust_remote_code: bool = False
    torch_dtype: str | None = None
    ignore_mismatched_sizes: bool = False


@dataclass
class TaskRun:
    """The parts of a run, ready for `Trainer`."""

    model: Any
    processing_class: Any
    train_dataset: Any = None
    eval_dataset: Any = None
    predict_dataset: Any = None
    data_collator: Any = None
    compute_metrics: list[str] | None = None
    """Names of metrics."""
    has_prompts: bool = False
    """Whether rows have a prompt, or a source, that a text can be generated for."""
    metrics_of_loss: Callable[[float], dict[str, float]] | None = None
    """Further metrics that follow from the mean evaluation loss alone, such as the perplexity."""
    metric_for_best_model: str | None = None
    notes: list[tuple[str, str]] = field(default_factory=list)
    """What was inferred, as (what, value) pairs to show before the first step: the task, text and label columns, kind
    of problem, class balance, lengths (shortest, median, longest), share of truncated rows…"""


class Predictor(Protocol):
    """A trained model folder, ready to be asked."""

    def predict(self, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """One dict a row, in order: the prediction, and the probability of each class where there are classes."""
        ...


class Recipe(Protocol):
    """A task: data columns + model class + metrics + defaults."""

    name: str
    """As given to `--task`, such as "text-classification"."""

    def prepare(self, data: DataRequest, model: ModelRequest) -> TaskRun:
        """Reads, checks, infers, loads and tokenises. Raises `DataError` naming file, row and value."""
        ...

    def predictor(self, folder: Path) -> Predictor:
        """Loads a folder that training has written."""
        ...
