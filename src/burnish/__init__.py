"""burnish: fine-tunes pretrained transformer models, with the names of `transformers.Trainer`.

Every public name is loaded when it is first asked for, so importing burnish loads neither torch nor transformers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .arguments.choices import (
        HubStrategy,
        IntervalStrategy,
        OptimizerNames,
        SaveStrategy,
        SchedulerType,
    )
    from .arguments.parser import HfArgumentParser
    from .arguments.training_arguments import Seq2SeqTrainingArguments, TrainingArguments
    from .callbacks.early_stopping import EarlyStoppingCallback
    from .core.events import TrainerCallback
    from .core.progress import ExportableState, TrainerControl, TrainerState
    from .core.randomness import seed_all as set_seed
    from .core.types import EvalLoopOutput, PredictionOutput, TrainOutput
    from .data.collators import (
        DataCollatorForMultipleChoice,
        DataCollatorForSeq2Seq,
        DataCollatorForTokenClassification,
        DataCollatorWithPadding,
        DefaultDataCollator,
        default_data_collator,
    )
    from .data.language_modeling import DataCollatorForLanguageModeling
    from .evaluation.metrics import Metrics
    from .evaluation.prediction import EvalPrediction
    from .parts import StepLoss, TrainingSteps, load_checkpoint, save_checkpoint
    from .seq2seq import Seq2SeqTrainer
    from .trainer import Trainer

__version__ = "0.1.0"

_HOMES = {
    ".trainer": ("Trainer",),
    ".seq2seq": ("Seq2SeqTrainer",),
    ".arguments.training_arguments": ("TrainingArguments", "Seq2SeqTrainingArguments"),
    ".arguments.parser": ("HfArgumentParser",),
    ".arguments.choices": ("IntervalStrategy", "SaveStrategy", "HubStrategy", "OptimizerNames", "SchedulerType"),
    ".core.events": ("TrainerCallback",),
    ".core.progress": ("TrainerState", "TrainerControl", "ExportableState"),
    ".core.types": ("TrainOutput", "PredictionOutput", "EvalLoopOutput"),
    ".callbacks.early_stopping": ("EarlyStoppingCallback",),
    ".evaluation.prediction": ("EvalPrediction",),
    ".evaluation.metrics": ("Metrics",),
    ".parts": ("StepLoss", "TrainingSteps", "load_checkpoint", "save_checkpoint"),
    ".data.language_modeling": ("DataCollatorForLanguageModeling",),
    ".data.collators": (
        "DataCollatorForMultipleChoice",
        "DataCollatorForSeq2Seq",
        "DataCollatorForTokenClassification",
        "DataCollatorWithPadding",
        "DefaultDataCollator",
        "default_data_collator",
    ),
}
"""The module in which each public name lives."""

_HOME_OF = {name: (module, name) for module, names in _HOMES.items() for name in names}
_HOME_OF["set_seed"] = (".core.randomness", "seed_all")

__all__ = [
    "DataCollatorForLanguageModeling",
    "DataCollatorForMultipleChoice",
    "DataCollatorForSeq2Seq",
    "DataCollatorForTokenClassification",
    "DataCollatorWithPadding",
    "DefaultDataCollator",
    "EarlyStoppingCallback",
    "EvalLoopOutput",
    "EvalPrediction",
    "ExportableState",
    "HfArgumentParser",
    "HubStrategy",
    "IntervalStrategy",
    "Metrics",
    "OptimizerNames",
    "PredictionOutput",
    "SaveStrategy",
    "SchedulerType",
    "Seq2SeqTrainer",
    "Seq2SeqTrainingArguments",
    "StepLoss",
    "TrainOutput",
    "Trainer",
    "TrainerCallback",
    "TrainerControl",
    "TrainerState",
    "TrainingArguments",
    "TrainingSteps",
    "__version__",
    "default_data_collator",
    "load_checkpoint",
    "save_checkpoint",
    "set_seed",
]


def __getattr__(name: str) -> Any:
    """Loads a public name from its home, once."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, name_there = _HOME_OF[name]
    value = getattr(importlib.import_module(module, __name__), name_there)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
