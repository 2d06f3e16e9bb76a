"""The pretrained model and tokenizer of a run, fitted to each other and to the task."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from burnish.checkpoint import in_use

from .recipe import TASK_KEY, DataRequest, ModelRequest
from .tokenising import chosen_length


@dataclass(frozen=True)
class Pretrained:
    """What a recipe starts from."""

    model: Any
    tokenizer: Any
    max_length: int | None
    """Tokens at which rows are cut; None if nothing limits them."""
    notes: list[tuple[str, str]] = field(default_factory=list)


def load_config(request: ModelRequest) -> Any:
    """The config of the model, before anything is changed for the task."""
    from burnish.models import loading

    return loading.load_config(request.model_name_or_path, config_name=request.config_name, **_hub(request))


def load_pretrained(
    request: ModelRequest,
    data: DataRequest,
    auto_class_name: str,
    task: dict[str, Any],
    needs_padding: bool = True,
    tokenizer_settings: dict[str, Any] | None = None,
    **config_changes: Any,
) -> Pretrained:
    """Loads both, lets the tokenizer pad, and settles the length of rows.

    Args:
        task: kept in the model's config under `burnish_task`, with the length; `Predictor`s read it.
        needs_padding: whether rows of different lengths share a batch.

    Raises:
        SettingError: one cannot be loaded, there is nothing to pad with, or rows would be too long for the model.
    """
    from burnish.models import loading
    from burnish.models.contract import facts_of

    name = request.model_name_or_path
    settings = tokenizer_settings or {}
    with in_use.held(name):
        tokenizer = loading.load_tokenizer(name, tokenizer_name=request.tokenizer_name, **_hub(request), **settings)
        model: Any = loading.load_model(
            auto_class_name,
            name,
            config_name=request.config_name,
            torch_dtype=request.torch_dtype,
            ignore_mismatched_sizes=request.ignore_mismatched_sizes,
            seed=data.seed,
            trained=data.train_file is None and data.dataset_name is None,  # without training new weights stay random
            **_hub(request),
            **config_changes,
        )
    said = loading.ensure_pad_token(tokenizer, model) if needs_padding else None
    limit = loading.longest_input(tokenizer, model, facts_of(model).max_positions)
    length = chosen_length(data.max_seq_length, limit, tokenizer.num_special_tokens_to_add(pair=False))
    setattr(model.config, TASK_KEY, {**task, "max_seq_length": length})
    return Pretrained(model, tokenizer, length, [("padding", said)] if said else [])


def load_trained(folder: Path, auto_class_name: str) -> tuple[Any, Any]:
    """The model and the tokenizer of a folder that training has written, every weight of it.

    Raises:
        SettingError: it holds no model, no tokenizer, or not all weights.
    """
    from burnish.models import loading

    with in_use.held(folder):
        model = loading.load_model(auto_class_name, str(folder), trained=True)
        return model, loading.load_tokenizer(str(folder))


def _hub(request: ModelRequest) -> dict[str, Any]:
    return {
        "cache_dir": request.cache_dir,
        "model_revision": request.model_revision,
        "token": request.token,
        "trust_remote_code": request.trust_remote_code,
    }
