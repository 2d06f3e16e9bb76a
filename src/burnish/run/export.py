"""The model of a trainer into a folder: complete for `from_pretrained`, with a card."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from burnish.checkpoint import staging
from burnish.checkpoint.export import CARD, draft_for, export_model, take_in
from burnish.checkpoint.manifest import versions
from burnish.checkpoint.pretrained import is_pretrained
from burnish.checkpoint.tensors import unwrapped
from burnish.core.divided import class_of
from burnish.models.contract import without_adapters
from burnish.tracking.model_card import CardFacts, may_replace, model_card
from burnish.tracking.values import split_of

from .engine_state import is_divided
from .hooks import takes

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
    export_model(
        trainer.model,
        folder,
        processing_class=trainer.processing_class,
        settings=settings,
        state=weights,
        card=card_for(trainer, folder, settings),
    )


def card_for(trainer: Trainer, folder: Path, settings: dict[str, Any]) -> str | None:
    """The card of the model in a folder; None where there is one of somebody's own, or nothing to say."""
    has_card = is_pretrained(without_adapters(unwrapped(trainer.model))) and may_replace(folder / CARD)
    return model_card(facts_of(trainer, folder, settings)) if has_card else None


def exported(trainer: Trainer) -> list[str]:
    """Writes the model into the output folder, by the user's own `save_model` where there is one. All processes call
    it where they hold parts of the weights.

    Returns:
        The names of its files, card included, on the first process.

    Raises:
        CheckpointError: it could not be written; a model that was in the folder before is still there.
    """
    folder, is_first = Path(str(trainer.settings.output_dir)), trainer.is_world_process_zero()
    if is_divided(trainer.engine):
        draft = trainer.engine.processes.from_first(lambda: draft_for(folder))
    else:
        draft = draft_for(folder) if is_first else folder
    told = {"_internal_call": True} if takes(trainer.save_model, "_internal_call") else {}
    trainer.save_model(str(draft), **told)
    if not is_first:
        return []
    if not may_replace(folder / CARD):
        (draft / CARD).unlink(missing_ok=True)
    names = take_in(draft, folder)
    return sorted({*names, CARD}) if (folder / CARD).is_file() else names


def is_draft(folder: Path) -> bool:
    """Whether a folder is one in which something is prepared, a checkpoint or a model."""
    return folder.name.startswith(staging.STAGING)


def facts_of(trainer: Trainer, folder: Path, settings: dict[str, Any]) -> CardFacts:
    """What a trainer knows of its model."""
    model = unwrapped(trainer.model)
    inner = without_adapters(model)
    is_adapter = bool(getattr(model, "peft_config", None))
    task = next((name for end, name in TASKS.items() if type(inner).__name__.endswith(f"For{end}")), "")
    repository = trainer.uploads.name or ""
    here = (folder.parent if is_draft(folder) else folder).resolve()
    return CardFacts(
        name=repository.rpartition("/")[2] or here.name,
        source=repository or here.name,
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
