"""How a metric reads what a model returned for a batch: as classes, scores, values, texts or tags."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from burnish.core.errors import DataError, SettingError
from burnish.core.types import IGNORED_LABEL

from .decoded import decoded

Array = np.ndarray[Any, np.dtype[Any]]
Read = TypeVar("Read")


class Classes(NamedTuple):
    """What was predicted and what is right, on the host."""

    predicted: Array
    """Class numbers (n,), or bool (rows, labels) where a row may have several."""
    labels: Array
    """Of the same shape and type."""
    num: int | None
    """Number of classes; None where only class numbers are known."""

    @property
    def multi_label(self) -> bool:
        return self.predicted.ndim == 2


def _once_a_batch(method: Callable[[Any, Any, Any], Read]) -> Callable[[Any, Any, Any], Read]:
    """Several metrics that read a batch in the same way have it read once."""

    def read(self: Reading, predictions: Any, labels: Any) -> Read:
        known = self._read.get(method.__name__)
        if known is None or known[0] is not predictions or known[1] is not labels:
            self._read[method.__name__] = known = (predictions, labels, method(self, predictions, labels))
        found: Read = known[2]
        return found

    read.__doc__ = method.__doc__
    return read


@dataclass
class Reading:
    """How predictions and labels of batches are to be read.

    Predictions are tensors or arrays, those of models that return several the first one; texts may be given as lists of
    strings. Positions with the label -100 are left out of everything.
    """

    next_token: bool = False
    """Whether position i of the predictions is about label i + 1, as in causal language models."""
    class_names: Sequence[str] | None = None
    processing_class: Any = None
    """What decodes ids: a tokenizer or processor."""
    is_ctc: bool = False
    """Whether each frame of audio is a prediction, and repeats and blanks are taken out in decoding."""
    _read: dict[str, Any] = field(default_factory=dict, repr=False)

    def forget(self) -> None:
        """Lets go of the batch that was read last."""
        self._read.clear()

    @_once_a_batch
    def targets(self, predictions: Any, labels: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores (n, classes) and labels (n,) of all rows or positions that have a label, on their device."""
        scores, labels = self._aligned(predictions, labels)
        if scores.ndim != labels.ndim + 1 or scores.shape[:-1] != labels.shape:
            raise mismatch("one score a class", scores, labels)
        kept = labels != IGNORED_LABEL
        return scores[kept], labels[kept].to(torch.int64)

    @_once_a_batch
    def classes(self, predictions: Any, labels: Any) -> Classes:
        """Classes predicted: by the highest score, a single score by its sign, or as they are where they are whole
        numbers. Where labels have the shape of the scores, a row may have several, each predicted by its sign."""
        scores, truth = self._aligned(predictions, labels)
        known = len(self.class_names) if self.class_names else None
        if scores.is_floating_point() and scores.shape == truth.shape and truth.ndim == 2:
            return Classes(on_host(scores > 0), on_host(truth > 0.5), scores.shape[1])
        if not scores.is_floating_point() and scores.shape == truth.shape:
            if truth.is_floating_point():
                return Classes(on_host(scores > 0), on_host(truth > 0.5), scores.shape[-1])
            kept = truth != IGNORED_LABEL
            return Classes(on_host(scores[kept].to(torch.int64)), on_host(truth[kept].to(torch.int64)), known)
        scores, truth = self.targets(predictions, labels)
        best = (scores[:, 0] > 0).to(torch.int64) if scores.shape[-1] == 1 else scores.argmax(-1)
        return Classes(on_host(best), on_host(truth), max(2, scores.shape[-1]))

    @_once_a_batch
    def rows_of_classes(self, predictions: Any, labels: Any) -> list[tuple[list[int], list[int]]]:
        """For each row the classes predicted and those that are right, at positions with a label."""
        scores, truth = self._aligned(predictions, labels)
        best = scores if scores.shape == truth.shape else scores.argmax(-1)
        if best.shape != truth.shape or truth.ndim != 2:
            raise mismatch("a class for each token", scores, truth)
        rows = zip(on_host(best), on_host(truth), strict=True)
        return [(row[kept].tolist(), true[kept].tolist()) for row, true in rows for kept in (true != IGNORED_LABEL,)]

    @_once_a_batch
    def values(self, predictions: Any, labels: Any) -> tuple[Array, Array]:
        """Numbers predicted and right, both float64 (rows, values a row)."""
        found, truth = as_tensor(first(predictions)), as_tensor(labels)
        if found.ndim == truth.ndim + 1 and found.shape[-1] == 1:
            found = found[..., 0]
        if found.shape != truth.shape or truth.ndim not in (1, 2):
            raise mismatch("a number for each label", found, truth)
        rows = len(truth)
        return on_host(found.to(torch.float64)).reshape(rows, -1), on_host(truth.to(torch.float64)).reshape(rows, -1)

    @_once_a_batch
    def texts(self, predictions: Any, labels: Any) -> tuple[list[str], list[list[str]]]:
        """Texts predicted, and for each the texts that are right, without blanks around them."""
        written = self._texts(first(predictions), generated=True)
        right = self._texts(labels, generated=False)
        truth = [[one] if isinstance(one, str) else list(one) for one in right]
        if len(written) != len(truth):
            raise DataError(f"There are {len(written)} texts predicted and {len(truth)} to compare them with.")
        return [text.strip() for text in written], [[text.strip() for text in texts] for texts in truth]

    def _texts(self, given: Any, generated: bool) -> list[Any]:
        if isinstance(given, list) and all(isinstance(text, (str, list)) for text in given):
            return given
        ids = as_tensor(given)
        if ids.is_floating_point():
            if not (generated and self.is_ctc and ids.ndim == 3):
                raise SettingError(
                    f"Texts are compared, and the predictions are scores of shape {tuple(ids.shape)}, computed with "
                    "the right answer at hand. Set predict_with_generate=True with Seq2SeqTrainer, or choose "
                    "token_accuracy or perplexity."
                )
            ids = ids.argmax(-1)
        if self.processing_class is None:
            raise SettingError("Texts are compared, and nothing decodes them: give Trainer its processing_class.")
        further = {} if generated or not self.is_ctc else {"group_tokens": False}
        return decoded(ids, self.processing_class, **further)

    def _aligned(self, predictions: Any, labels: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Predictions and labels with the same positions; a column of single labels becomes a row of them."""
        scores, truth = as_tensor(first(predictions)), as_tensor(labels)
        if scores.device != truth.device:
            truth = truth.to(scores.device)
        if self.next_token and truth.ndim == 2 and scores.shape[:2] == truth.shape:
            scores, truth = scores[:, :-1], truth[:, 1:]
        if scores.ndim == truth.ndim == 2 and truth.shape[1] == 1 != scores.shape[1]:
            truth = truth[:, 0]
        return scores, truth


def first(predictions: Any) -> Any:
    """The first of several outputs, or the only one."""
    return predictions[0] if isinstance(predictions, tuple) else predictions


def shapes_of(value: Any) -> str:
    """The shapes in a nesting of arrays, as an error shows them."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {shapes_of(part)}" for key, part in value.items()) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(shapes_of, value)) + ")"
    if hasattr(value, "shape"):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    return f"{len(value)} {type(value[0]).__name__}" if isinstance(value, list) and value else type(value).__name__


def mismatch(wanted: str, scores: Any, labels: Any) -> DataError:
    return DataError(f"They are read as {shapes_of(scores)} and {shapes_of(labels)}, and needed is {wanted}.")


def as_tensor(value: Any) -> torch.Tensor:
    return value.detach() if isinstance(value, torch.Tensor) else torch.as_tensor(np.asarray(value))


def on_host(tensor: torch.Tensor) -> Array:
    array: Array = tensor.cpu().numpy()
    return array
