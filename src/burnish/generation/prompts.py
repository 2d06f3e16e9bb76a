"""Prompts out of training rows, and what the rows have after them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from burnish.core.errors import DataError
from burnish.core.types import IGNORED_LABEL, Inputs

OF_TEXTS = frozenset({"input_ids", "attention_mask", "labels", "decoder_input_ids", "decoder_attention_mask"})
"""Inputs that say no more than a prompt and its target do."""

FOLLOW_FROM_TEXTS = frozenset({"token_type_ids", "position_ids", "special_tokens_mask"})
"""Inputs that models of texts make themselves."""


class Cut(NamedTuple):
    """A row, cut in two."""

    prompt: list[int]
    """What a decoder-only model reads before its first target; the source of an encoder-decoder."""
    reference: list[int] | None
    """What the row has in the place of what is written; None where there are no labels."""


def are_texts(inputs: Inputs) -> bool:
    """Whether a batch has nothing but texts: no image, sound or vector that would have to be read too."""
    return "input_ids" in inputs and not set(inputs) - OF_TEXTS - FOLLOW_FROM_TEXTS


def cut_rows(inputs: Inputs, is_encoder_decoder: bool) -> list[Cut]:
    """The rows of a batch, each in its own length.

    Of a decoder-only model, the prompt is what stands before the first target: the tokens whose labels are -100 at the
    start. The reference are the targets up to the next -100: what a user says after the first answer of a conversation
    belongs to neither. A row without labels for its tokens is prompt from start to end.

    Args:
        inputs: `input_ids` (batch, length), and `attention_mask` and `labels` if there are any.
    """
    ids = inputs["input_ids"]
    attended = inputs.get("attention_mask", torch.ones_like(ids)).bool()
    labels = inputs.get("labels")
    rows = [row[mask].tolist() for row, mask in zip(ids, attended, strict=True)]
    if not isinstance(labels, torch.Tensor) or labels.dim() != 2:
        return [Cut(row, None) for row in rows]
    if is_encoder_decoder:
        targets = [row[row != IGNORED_LABEL].tolist() for row in labels]
        return [Cut(row, target) for row, target in zip(rows, targets, strict=True)]
    if labels.shape != ids.shape:
        return [Cut(row, None) for row in rows]
    of_tokens = [row[mask].tolist() for row, mask in zip(labels, attended, strict=True)]
    return [_cut(row, row_labels) for row, row_labels in zip(rows, of_tokens, strict=True)]


def _cut(row: list[int], labels: list[int]) -> Cut:
    start = next((i for i, label in enumerate(labels) if label != IGNORED_LABEL), len(row))
    end = next((i for i in range(start, len(row)) if labels[i] == IGNORED_LABEL), len(row))
    return Cut(row[:start], labels[start:end])


def filled_up(rows: Sequence[Sequence[int]], pad_id: int, side: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows in one length, and which of their tokens are real; both int64 (rows, longest)."""
    longest = max(map(len, rows), default=0)
    ids, mask = torch.full((len(rows), longest), pad_id), torch.zeros(len(rows), longest, dtype=torch.int64)
    for i, row in enumerate(rows):
        place = slice(0, len(row)) if side == "right" else slice(longest - len(row), longest)
        ids[i, place] = torch.tensor(row, dtype=torch.int64)
        mask[i, place] = 1
    return ids, mask


def by_length(prompts: Sequence[Sequence[int]], most: int, positions: int) -> Iterator[list[int]]:
    """The places of prompts of like length, the longest first, in batches of at most so many prompts and positions."""
    order = sorted(range(len(prompts)), key=lambda place: (-len(prompts[place]), place))
    while order:
        count = max(1, min(most, positions // max(1, len(prompts[order[0]]))))
        yield order[:count]
        del order[:count]


def inputs_to_read(inputs: Inputs, is_encoder_decoder: bool, pad_id: int) -> Inputs:
    """What is read before the first token is written, of a batch that has more than texts: everything but the targets.
    The prompts of a decoder-only model are padded on the left."""
    read = {name: value for name, value in inputs.items() if name != "labels" and not name.startswith("decoder_")}
    if is_encoder_decoder or "input_ids" not in inputs:
        return read
    ids, mask = filled_up([cut.prompt for cut in cut_rows(inputs, False)], pad_id, "left")
    others = {name: value for name, value in read.items() if name not in FOLLOW_FROM_TEXTS}
    return {**others, "input_ids": ids, "attention_mask": mask}


def with_pads(ids: torch.Tensor, pad_token_id: int) -> torch.Tensor:
    """Ids that a tokenizer can decode: -100 becomes padding."""
    return torch.where(ids == IGNORED_LABEL, torch.full_like(ids, pad_token_id), ids)


def prompt_ids(value: Any, tokenizer: Any, row: int, column: str) -> list[int]:
    """The tokens of a prompt that is given as token ids, a text, or the messages of a chat.

    Raises:
        DataError: it is none of these, or nothing is there that makes tokens of texts.
    """
    if isinstance(value, str) or (isinstance(value, (list, tuple)) and value and isinstance(value[0], Mapping)):
        if tokenizer is None:
            raise DataError(f"Row {row}: column {column!r} holds text, and Trainer has no processing_class to read it.")
        if not isinstance(value, str):
            return list(tokenizer.apply_chat_template(value, add_generation_prompt=True, return_dict=False))
        return without_end(list(tokenizer(value)["input_ids"]), tokenizer)
    ids = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(ids, (list, tuple)) and all(isinstance(token, int) for token in ids):
        return list(ids)
    raise DataError(f"Row {row}: column {column!r} holds {value!r:.60}, which is neither text, token ids nor messages.")


def without_end(ids: list[int], tokenizer: Any) -> list[int]:
    """The tokens of a text that goes on: without the one that a tokenizer ends a text with."""
    ends = {getattr(tokenizer, "eos_token_id", None), getattr(tokenizer, "sep_token_id", None)}
    return ids[:-1] if ids and ids[-1] in ends else ids


def with_prompt(cut: Cut, prompt: list[int]) -> Cut:
    """A row with another prompt. Targets that begin with the prompt go on behind it."""
    reference = cut.reference
    if reference is not None and not cut.prompt and reference[: len(prompt)] == prompt:
        reference = reference[len(prompt) :]
    return Cut(prompt, reference)
