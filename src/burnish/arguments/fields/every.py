"""All groups of fields together, for the code that reads them."""

from __future__ import annotations

from dataclasses import dataclass

from .compilation import CompilationFields
from .data import DataFields
from .distributed import DistributedFields
from .evaluation import EvaluationFields
from .hub import HubFields
from .logs import LogFields
from .memory import MemoryFields
from .optimization import OptimizationFields
from .precision import PrecisionFields
from .saving import SavingFields
from .step import StepFields
from .trackers import TrackerFields
from .training import TrainingFields


# dataclass takes the fields of the last base first: `output_dir` is the first positional argument.
@dataclass
class EveryField(
    HubFields,
    DistributedFields,
    CompilationFields,
    MemoryFields,
    PrecisionFields,
    TrackerFields,
    LogFields,
    SavingFields,
    EvaluationFields,
    DataFields,
    StepFields,
    OptimizationFields,
    TrainingFields,
):
    """Holds what was set; `TrainingArguments` adds everything that is done with it."""
