"""The plain path: 20 steps of burnish end with the weights that 20 steps of `transformers.Trainer` end with.

Without dropout and in sequential order both compute the same function; burnish computes it on other micro-batches.
Rows have unequal lengths. The optimizer is the default AdamW of both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tiny
import transformers

import burnish

STEPS = 20
BATCH = 4
TOLERANCE = 1e-5

SETTINGS = {
    "max_steps": STEPS,
    "per_device_train_batch_size": BATCH,
    "learning_rate": 1e-3,
    # Adam divides a gradient by its own size. Some gradients are zero but for rounding, such as those of a key's bias,
    # which softmax cancels: with the usual 1e-8 they would be blown up to steps of full size in any direction. With
    # 1e-5 rounding (about 1e-9) stays small, while real gradients (1e-3 and more) are divided as usual.
    "adam_epsilon": 1e-5,
    "train_sampling_strategy": "sequential",
    "use_cpu": True,
    "report_to": "none",
    "disable_tqdm": True,
    "save_strategy": "no",
    "logging_strategy": "no",
}


@dataclass(frozen=True)
class Task:
    """A kind of model with rows for it."""

    build: Callable[[], Any]
    rows: Callable[[int], list[tiny.Row]]
    collator: Callable[[Any], Any]


def pad_labels(tokenizer: Any) -> Any:
    return transformers.DataCollatorForTokenClassification(tokenizer)


TASKS = {
    "sequence_classification": Task(
        lambda: tiny.bert("SequenceClassification"), tiny.class_rows, transformers.DataCollatorWithPadding
    ),
    "token_classification": Task(lambda: tiny.bert("TokenClassification", num_labels=3), tiny.tag_rows, pad_labels),
    "causal_lm": Task(tiny.llama, tiny.language_rows, pad_labels),
    "seq2seq": Task(tiny.t5, tiny.pair_rows, transformers.DataCollatorForSeq2Seq),
}


def trained(library: Any, task: Task, folder: Path, **changes: Any) -> Any:
    """A model of the task after training with the given library's trainer."""
    model = task.build()
    collator = task.collator(tiny.tokenizer())
    args = library.TrainingArguments(output_dir=str(folder), **{**SETTINGS, **changes})
    rows = task.rows(STEPS * BATCH // 2)  # two passes
    library.Trainer(model=model, args=args, train_dataset=rows, data_collator=collator).train()
    return model


def largest_difference(one: Any, other: Any) -> float:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max((a - b).abs().max().item() for a, b in pairs)


def assert_trains_alike(task: Task, folder: Path, **changes: Any) -> None:
    theirs = trained(transformers, task, folder / "theirs", **changes)
    ours = trained(burnish, task, folder / "ours", **changes)
    assert largest_difference(theirs, task.build()) > 100 * TOLERANCE, "nothing was trained"
    assert largest_difference(ours, theirs) < TOLERANCE


@pytest.mark.parametrize("name", TASKS)
def test_weights_after_20_steps(name: str, tmp_path: Path) -> None:
    assert_trains_alike(TASKS[name], tmp_path)


CHANGES = {
    "warmup_as_steps": {"warmup_steps": 5},
    "warmup_as_share": {"warmup_steps": 0.25},
    "cosine": {"lr_scheduler_type": "cosine", "warmup_steps": 4},
    "cosine_with_restarts": {"lr_scheduler_type": "cosine_with_restarts", "lr_scheduler_kwargs": {"num_cycles": 2}},
    "polynomial": {"lr_scheduler_type": "polynomial", "lr_scheduler_kwargs": {"power": 2.0}},
    "constant_with_warmup": {"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 4},
    "inverse_sqrt": {"lr_scheduler_type": "inverse_sqrt", "warmup_steps": 4},
    "weight_decay": {"weight_decay": 0.5},
    "hard_clipping": {"max_grad_norm": 0.05},
    "no_clipping": {"max_grad_norm": 0.0},
    "betas": {"adam_beta1": 0.8, "adam_beta2": 0.95},
    "adamw_torch": {"optim": "adamw_torch"},
    "label_smoothing": {"label_smoothing_factor": 0.1},
    "last_batch_smaller": {"per_device_train_batch_size": 7},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_settings_act_alike(name: str, tmp_path: Path) -> None:
    assert_trains_alike(TASKS["sequence_classification"], tmp_path, **CHANGES[name])
