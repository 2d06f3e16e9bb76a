"""The model of a trainer into a folder: complete for `from_pretrained`, with a card."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from burnish.checkpoint.export import CARD, export_model
from burnish.checkpoint.manifest import versions
from burnish.checkpoint.pretrained import is_pretrained
from burnish.checkpoint.tensors import unwrapped
from burnish.core.divided import class_of
from burnish.models.contract import without_adapters
from burnish.tracking.model_card import CardFacts, may_replace, model_card
from burnish.tracking.values import split_of

if TYPE_CHECKING:
    from burnish.trainer import Trainer

TASKS = {
    "SequenceClassification": "text-classification",
    "TokenClassification": "token-classification",
    "QuestionAnswering": "question-answering",
    "MaskedLM": "fill-mask",
    "CausalLM": "text-generation",
}
"""Ends of the names of classes to what pipelines of transformers call the task."""


def export(trainer: Trainer, folder: Path, settings: dict[str, Any]) -> None:
    """Writes weights, config, tokenizer or processor, settings and card, on the first process; a card of somebody's own
    stays. Where the processes hold parts of the weights, all of them take part.

    Raises:
        CheckpointError: it could not be written; a model that was in the folder before is still there.
    """
    weights = trainer.engine.whole_weights()
    if not trainer.is_world_process_zero():
        return
    has_card = is_pretrained(without_adapters(unwrapped(trainer.model))) and may_replace(folder / CARD)
    export_model(
        trainer.model,
        folder,
        processing_class=trainer.processing_class,
        settings=settings,
        state=weights,
        card=model_card(facts_of(trainer, folder, settings)) if has_card else None,
    )


def facts_of(trainer: Trainer, folder: Path, settings: dict[str, Any]) -> CardFacts:
    """What a trainer knows of its model."""
    model = unwrapped(trainer.model)
    inner = without_adapters(model)
    is_adapter = bool(getattr(model, "peft_config", None))
    task = next((name for end, name in TASKS.items() if type(inner).__name__.endswith(f"For{end}")), "")
    return CardFacts(
        name=folder.resolve().name,
        task=task,
        base_model=getattr(getattr(inner, "config", None), "_name_or_path", None) or "",
        data={},
        results=_results(trainer),
        settings=settings,
        versions=versions(),
        folder=folder,
        is_adapter=is_adapter,
        loaded_by=_loaded_by(model, inner),
    )


def _loaded_by(model: Any, inner: Any) -> str:
    """The class that reads the folder: of adapters the one of `peft` that also finds the model below them. "" for a
    class of somebody's own."""
    kind, outer = (class_of(part) for part in (inner, model))
    if not kind.__module__.startswith("transformers."):
        return ""
    return kind.__name__ if model is inner else "AutoPeftModel" + outer.__name__.removeprefix("PeftModel")


def _results(trainer: Trainer) -> dict[str, float]:
    """The last evaluation."""
    for entry in reversed(trainer.state.log_history):
        if split_of(entry) == "eval":
            names = (
                name for name in entry if name.startswith("eval_") and not name.endswith(("runtime", "per_second"))
            )
            return {name.removeprefix("eval_"): entry[name] for name in names if isinstance(entry[name], (int, float))}
    return {}
