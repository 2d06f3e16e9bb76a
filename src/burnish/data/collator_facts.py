"""What is known of a collator without running it: whether it draws, pads, makes labels, or is a user's own."""

from __future__ import annotations

from typing import Any

_THEIRS = "transformers.data.data_collator"
_OURS = __name__.rpartition(".")[0] + "."

PLAIN = ("default_data_collator", "DefaultDataCollator")
PADDING = (
    "DataCollatorWithPadding",
    "DataCollatorForTokenClassification",
    "DataCollatorForSeq2Seq",
    "DataCollatorForMultipleChoice",
    "DataCollatorWithFlattening",
    "PaddingCollator",
)
MAKES_LABELS = (
    "DataCollatorForLanguageModeling",
    "DataCollatorForWholeWordMask",
    "DataCollatorForPermutationLanguageModeling",
    "DataCollatorForSOP",
    "DataCollatorWithFlattening",
)


def draws_randomness(collator: Any) -> bool:
    """Whether collating the same rows twice may give two results. False only for collators known not to draw."""
    name = _known_name(collator)
    if name == "DataCollatorForLanguageModeling":
        return bool(_inner(collator).mlm)
    return name not in PLAIN + PADDING


def masks_tokens(collator: Any) -> bool:
    """Whether it masks tokens at random, each for itself (not whole words)."""
    inner = _inner(collator)
    if _known_name(collator) != "DataCollatorForLanguageModeling":
        return False
    return bool(inner.mlm) and not getattr(inner, "whole_word_mask", False)


def makes_labels(collator: Any) -> bool:
    """Whether the collator makes the labels of the tokens, so that the rows need none."""
    return _known_name(collator) in MAKES_LABELS


def pads_rows(collator: Any) -> bool:
    """Whether rows of different lengths can be collated. True for a user's own collator, which may do anything."""
    return _known_name(collator) not in PLAIN


def is_known(collator: Any) -> bool:
    """Whether the rows reach the model with their values unchanged, but for padding: True for the collators of burnish
    and transformers, False for a user's own."""
    return _known_name(collator) in PLAIN + PADDING + MAKES_LABELS


def _known_name(collator: Any) -> str | None:
    """The exact class or function, not a subclass, which may do anything."""
    collator = _inner(collator)
    kind = collator if hasattr(collator, "__qualname__") else type(collator)
    module = getattr(kind, "__module__", None) or ""
    return kind.__qualname__ if module == _THEIRS or module.startswith(_OURS) else None


def _inner(collator: Any) -> Any:
    """Without the wrapper that prunes rows."""
    from .columns import KeepColumns

    return _inner(collator.collator) if isinstance(collator, KeepColumns) else collator
