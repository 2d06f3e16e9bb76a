"""Preflight: a model that cannot be trained, and a folder that cannot be written."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from burnish.core.errors import SettingError

if TYPE_CHECKING:
    from burnish.models.contract import ModelFacts


def check_is_module(model: object) -> None:
    """Raises a `SettingError` for the name of a model, or its class."""
    if not isinstance(model, nn.Module):
        shown = f"the class {model.__name__}" if isinstance(model, type) else f"{model!r:.60}"
        raise SettingError(
            f"`model` must be an nn.Module, not {shown}. Load it first, for example with "
            "AutoModelForSequenceClassification.from_pretrained(…)."
        )


def check_model(model: nn.Module, facts: ModelFacts, has_own_loss: bool = False, gets_weights: bool = False) -> None:
    """Refuses a model that cannot be trained.

    Args:
        model: as it will be trained, adapters included.
        facts: what it takes.
        has_own_loss: whether the user computes the loss, so that a model without a head is fine.
        gets_weights: whether another process gives it its weights, so that it may have none yet.

    Raises:
        SettingError: weights that were never loaded, no trainable parameter, or a body without a head.
    """
    absent = [name for name, parameter in model.named_parameters() if parameter.is_meta]
    if absent and not gets_weights:
        raise SettingError(
            f"{facts.name} has {len(absent)} weights on the meta device, the first is `{absent[0]}`: they were never "
            "loaded, or are offloaded. Load the model with from_pretrained without device_map, or call "
            'model.to_empty(device="cpu") and initialise it.'
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise SettingError(f"{facts.name} has no trainable parameter. {_how_to_unfreeze(model)}")
    if not facts.has_head and not has_own_loss:
        raise SettingError(
            f"{facts.name} is a base model without a head: it computes hidden states and no loss. Load the weights "
            f"with a head instead, such as {_auto_classes(facts)}, or pass compute_loss_func."
        )


def check_output_dir(path: str | Path) -> None:
    """Refuses an output folder that cannot be written. Nothing is left behind, and the folder is not made yet.

    Raises:
        SettingError: the path or a part of it is a file, or the system refuses to write there.
    """
    folder = Path(path)
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    if not existing.is_dir():
        raise SettingError(f"output_dir={str(folder)!r} cannot be a folder: {existing} is a file. Choose another path.")
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise SettingError(
            f"output_dir={str(folder)!r} cannot be written: {error.strerror} in {existing}. Choose another path, or "
            f"change its permissions (ls -ld {existing})."
        ) from None


def _how_to_unfreeze(model: nn.Module) -> str:
    if getattr(model, "peft_config", None):
        return "Load adapters for training with PeftModel.from_pretrained(…, is_trainable=True)."
    if getattr(model, "is_quantized", False):
        return "Quantised weights cannot be trained: add adapters, for example with peft.get_peft_model."
    return "Unfreeze it with model.requires_grad_(True), or only the part to train."


def _auto_classes(facts: ModelFacts) -> str:
    if facts.is_encoder_decoder:
        return "AutoModelForSeq2SeqLM"
    if facts.takes("pixel_values") and not facts.takes("input_ids"):
        return "AutoModelForImageClassification"
    if facts.takes("input_values") or facts.takes("input_features"):
        return "AutoModelForAudioClassification"
    return "AutoModelForSequenceClassification, AutoModelForTokenClassification or AutoModelForCausalLM"
