"""What a model accepts and computes, asked once and passed on as a frozen value."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from torch import nn

SHIFTING_LOSSES = ("ForCausalLM",)
"""Names of transformers' losses in which position i predicts label i + 1."""


@dataclass(frozen=True)
class ModelFacts:
    """What the trainer needs to know of a model. `None` means that the model does not say."""

    name: str
    """Name of the class, adapters taken away."""
    accepts: frozenset[str]
    """Arguments that `forward` names."""
    accepts_any: bool
    """Whether `forward` takes further keywords (`**kwargs`)."""
    label_names: tuple[str, ...]
    """Arguments of `forward` that hold targets, such as ("labels",) or ("start_positions", "end_positions")."""
    is_encoder_decoder: bool
    shifts_labels: bool
    """Whether the model's loss predicts label i + 1 from position i."""
    has_head: bool
    """False for a body such as BertModel, which computes hidden states and no loss; not for such as CLIPModel, which
    returns one where it is given `return_loss`."""
    rows_interact: bool
    """Whether a row's output depends on the other rows of its batch (batch normalisation)."""
    problem_type: str | None
    num_labels: int | None
    vocab_size: int | None
    """Rows of the input embedding."""
    max_positions: int | None
    """Longest row that the position embeddings hold; None for relative or rotary positions."""
    max_target_positions: int | None
    """The same for the decoder of an encoder-decoder model."""
    token_types: int | None
    """Rows of the table of token types (`token_type_ids`)."""
    pad_token_id: int | None

    def takes(self, argument: str) -> bool:
        return argument in self.accepts


def facts_of(model: nn.Module) -> ModelFacts:
    """Asks a model, transformers or plain, adapted or not, what it is."""
    base = without_adapters(model)
    config = getattr(base, "config", None)
    accepts, accepts_any = forward_arguments(base)
    num_labels = getattr(config, "num_labels", None) if config is not None else None
    return ModelFacts(
        name=type(base).__name__,
        accepts=frozenset(accepts),
        accepts_any=accepts_any,
        label_names=_label_names(type(base).__name__, accepts),
        is_encoder_decoder=bool(getattr(config, "is_encoder_decoder", False)),
        shifts_labels=_shifts_labels(base, config),
        has_head="return_loss" in accepts or _has_head(base, config),
        rows_interact=any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in base.modules()),
        problem_type=getattr(config, "problem_type", None),
        num_labels=num_labels if isinstance(num_labels, int) else None,
        vocab_size=_vocab_size(base),
        max_positions=_max_positions(base),
        max_target_positions=_max_target_positions(base, config),
        token_types=_token_types(base),
        pad_token_id=_pad_token_id(config),
    )


def without_adapters(model: nn.Module) -> nn.Module:
    """The model inside a `peft` wrapper, or the model itself. Does not import peft."""
    if any(kind.__module__.startswith("peft.") for kind in type(model).__mro__):
        get_base_model = getattr(model, "get_base_model", None)
        if callable(get_base_model):
            inner = get_base_model()
            assert isinstance(inner, nn.Module)
            return inner
    return model


def forward_arguments(model: nn.Module) -> tuple[list[str], bool]:
    """The named arguments of `forward`, and whether it takes any further keyword."""
    parameters = inspect.signature(model.forward).parameters.values()
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return named, any(p.kind is p.VAR_KEYWORD for p in parameters)


def _label_names(class_name: str, accepts: list[str]) -> tuple[str, ...]:
    """Arguments that hold targets: those that say "label", and the two positions of question answering."""
    found = [name for name in accepts if "label" in name]
    if "QuestionAnswering" in class_name or not found:
        found += [name for name in ("start_positions", "end_positions") if name in accepts]
    return tuple(found)


def _shifts_labels(model: nn.Module, config: Any) -> bool:
    if config is None or getattr(config, "is_encoder_decoder", False):
        return False
    if getattr(model, "loss_type", None) in SHIFTING_LOSSES:
        return True
    # Older heads set no loss type; of those called `…LMHeadModel`, the ones below predict the token in its own place.
    name = type(model).__name__
    in_place = ("XLNetLMHeadModel", "XLMWithLMHeadModel", "FlaubertWithLMHeadModel")
    return name.endswith(("ForCausalLM", "LMHeadModel")) and name not in in_place


def _has_head(model: nn.Module, config: Any) -> bool:
    """A transformers body is the class that the config's type maps to in the mapping of plain models."""
    if config is None:
        return True
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    bodies: set[str] = set()
    for names in MODEL_MAPPING_NAMES.values():
        bodies.update([names] if isinstance(names, str) else names)
    return type(model).__name__ not in bodies


def _vocab_size(model: nn.Module) -> int | None:
    get = getattr(model, "get_input_embeddings", None)
    if not callable(get):
        return None
    try:
        embedding = get()
    except (NotImplementedError, AttributeError):
        return None  # vision and audio models have no table of tokens
    return embedding.num_embeddings if isinstance(embedding, nn.Embedding) else None


def _max_positions(model: nn.Module) -> int | None:
    """The rows of a learned table of absolute positions, less the offset that RoBERTa-like models put before it."""
    for name, part in model.named_modules():
        if isinstance(part, nn.Embedding) and name.rsplit(".", 1)[-1] in _POSITION_TABLES:
            reserved = part.padding_idx + 1 if part.padding_idx is not None else getattr(part, "offset", 0)
            return part.num_embeddings - int(reserved)
    return None


def _max_target_positions(model: nn.Module, config: Any) -> int | None:
    get = getattr(model, "get_decoder", None)
    if not getattr(config, "is_encoder_decoder", False) or not callable(get):
        return None
    decoder = get()
    return _max_positions(decoder) if isinstance(decoder, nn.Module) else None


def _token_types(model: nn.Module) -> int | None:
    for name, part in model.named_modules():
        if isinstance(part, nn.Embedding) and name.rsplit(".", 1)[-1] == "token_type_embeddings":
            return part.num_embeddings
    return None


_POSITION_TABLES = ("position_embeddings", "positions_embed", "wpe", "embed_positions", "embed_position")


def _pad_token_id(config: Any) -> int | None:
    token = getattr(config, "pad_token_id", None)
    return token if isinstance(token, int) and token >= 0 else None
