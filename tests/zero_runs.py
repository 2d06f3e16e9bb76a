"""What the tests of DeepSpeed run: small models on ragged rows, with a configuration, in a number of processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tiny
import transformers
from distributed.test_checkpoints import Stop
from trainer import runs

import burnish
from burnish.core.zero_parts import lies_in_parts

ROWS = 27
"""Three steps of 8 rows, and one of 3."""
STEP = 8

KINDS: dict[str, tuple[Any, Any]] = {
    "tags": (lambda: tiny.bert("TokenClassification", num_labels=3), tiny.tag_rows),
    "causal lm": (tiny.llama, tiny.language_rows),
}

LOADED_BY = {"tags": "AutoModelForTokenClassification", "causal lm": "AutoModelForCausalLM"}


def stage(number: int, **more: Any) -> dict[str, Any]:
    """A configuration; at stage 3 every weight is divided, however small."""
    always = {"stage3_param_persistence_threshold": 0} if number == 3 else {}
    return {"zero_optimization": {"stage": number, **always, **more}}


CPU = {"device": "cpu"}


def trained(
    folder: Path,
    count: int,
    config: dict[str, Any] | None,
    kind: str = "tags",
    stop: int | None = None,
    resume: Any = None,
    model: Any = None,
    source: Path | None = None,
    callbacks: Any = (),
    trainer: Any = burnish.Trainer,
    **changes: Any,
) -> dict[str, Any]:
    """What a run of one pass logged, its weights, and its evaluation.

    Args:
        source: a folder that the model is loaded from when the arguments are there: at stage 3 in parts.
    """
    build, rows = KINDS[kind]
    accumulation = changes.get("gradient_accumulation_steps", 1)
    settings = {
        "per_device_train_batch_size": STEP // (count * accumulation),
        "num_train_epochs": 1,
        "learning_rate": 1e-3,
        "optim": "adamw_torch",
        "adam_epsilon": 1e-5,
        "weight_decay": 0.1,
        "max_grad_norm": 0.5,
        "deepspeed": config,
        **changes,
    }
    args = runs.arguments(folder, **settings)
    if source is not None:
        model = getattr(transformers, LOADED_BY[kind]).from_pretrained(source)
    run = trainer(
        model=build() if model is None else model,
        args=args,
        train_dataset=rows(ROWS),
        eval_dataset=rows(5),
        data_collator=transformers.DataCollatorForTokenClassification(tiny.tokenizer()),
        processing_class=tiny.tokenizer(),
        callbacks=[*callbacks, Stop(stop)] if stop else list(callbacks),
    )
    run.train(resume_from_checkpoint=resume)
    found = {
        "loss": runs.logged(run, "loss"),
        "grad_norm": runs.logged(run, "grad_norm"),
        "learning_rate": runs.logged(run, "learning_rate"),
        "weights": run.engine.whole_weights() if lies_in_parts(run.model) else runs.weights(run.model),
        "eval_loss": run.evaluate()["eval_loss"],
        "engine": type(run.engine).__name__,
        "step": run.state.global_step,
        "traces": [name for weight in run.model.parameters() for name in vars(weight) if name.startswith("ds_")],
    }
    run.save_model(str(folder / "final"))
    return found
