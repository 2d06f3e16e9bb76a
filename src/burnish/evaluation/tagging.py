"""Metrics of tagged sentences: entities, spans of words that are found if type and both ends are right.

Spans are read as seqeval reads them by default, which is how the CoNLL-2000 evaluation does: tags begin with B-, I-,
E- (end) or S- (single), and an I- that goes on from nothing begins a span.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from burnish.core.errors import SettingError

from .classes import precision_recall_f1
from .formula import Formula
from .reading import Reading
from .totals import Totals

Span = tuple[int, int, str]
"""First word, word after the last, type."""


def spans_of(tags: Sequence[str]) -> set[Span]:
    """The spans of a sentence."""
    spans: set[Span] = set()
    start, before, kind = 0, "O", ""
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, of = ("O", "", "") if tag == "O" else tag.partition("-")
        ends = before in ("E", "S") or prefix in ("B", "S", "O") or of != kind
        if before != "O" and ends:
            spans.add((start, place, kind))
        if prefix != "O" and (before == "O" or ends):
            start = place
        before, kind = prefix, of
    return spans


def entities(reading: Reading, predictions: Any, labels: Any) -> Totals:
    """Spans predicted, present and both; positions counted, and right."""
    names = reading.class_names
    if not names:
        raise SettingError("seqeval needs the names of the tags: set id2label in the model's config.")
    totals = dict.fromkeys(("both", "predicted", "present", "right", "counted"), 0)
    for found, truth in reading.rows_of_classes(predictions, labels):
        spans, true_spans = (spans_of([names[number] for number in tags]) for tags in (found, truth))
        totals["both"] += len(spans & true_spans)
        totals["predicted"] += len(spans)
        totals["present"] += len(true_spans)
        totals["right"] += sum(a == b for a, b in zip(found, truth, strict=True))
        totals["counted"] += len(truth)
    return totals


def seqeval(totals: Mapping[str, Any]) -> dict[str, float]:
    """Precision, recall and F1 over all entities, and the accuracy of the tags."""
    return {
        **precision_recall_f1(totals["both"], totals["predicted"], totals["present"]),
        "accuracy": totals["right"] / totals["counted"] if totals["counted"] else 0.0,
    }


def entity_table(sentences: Iterable[tuple[Sequence[str], Sequence[str]]]) -> list[dict[str, Any]]:
    """For each type of entity, the most frequent first: type, entities (that are there), predicted, found (of both),
    precision, recall, f1.

    Args:
        sentences: tags predicted and tags that are right, of the same words.
    """
    counts: dict[str, list[int]] = {}
    for found, truth in sentences:
        spans, true_spans = spans_of(found), spans_of(truth)
        for place, part in enumerate((true_spans, spans, spans & true_spans)):
            for *_, kind in part:
                counts.setdefault(kind, [0, 0, 0])[place] += 1
    rows = []
    for kind, (present, predicted, both) in sorted(counts.items(), key=lambda item: (-item[1][0], item[0])):
        scores = precision_recall_f1(both, predicted, present)
        rows.append({"type": kind, "entities": present, "predicted": predicted, "found": both, **scores})
    return rows


FORMULAS = {"seqeval": Formula(entities, seqeval, True)}
