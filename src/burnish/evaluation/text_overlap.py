"""Metrics of texts that were written, against texts that are right: BLEU, chrF, TER, ROUGE, SQuAD, error rates."""

from __future__ import annotations

import importlib
import re
import string
from collections import Counter
from collections.abc import Mapping
from functools import cache, partial
from typing import Any

from burnish.core.errors import DataError, SettingError

from .classes import accuracy
from .formula import Formula
from .reading import Reading
from .totals import ExactSum, Totals

MAX_ORDER = 4
"""Longest sequences of words that BLEU counts."""
CHARACTERS, BETA = 6, 2
"""chrF: longest sequences of characters, and how much more recall weighs than precision (Popović, 2015)."""
ROUGE_KINDS = ("rouge1", "rouge2", "rougeL", "rougeLsum")


@cache
def installed(module: str, package: str) -> Any:
    """A module of an optional package. Raises `SettingError` that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SettingError(
            f"This metric is computed by {package}, which cannot be imported ({error}). Install it with "
            f"pip install 'burnish[metrics]'."
        ) from error


# ---------------------------------------------------------------- sequences of words and characters


def bleu_counts(reading: Reading, predictions: Any, labels: Any) -> Totals:
    """Sequences of 1 to 4 words found and written, and the lengths of both sides, words cut as in WMT (13a)."""
    bleu = installed("sacrebleu.metrics", "sacrebleu").BLEU(effective_order=True)
    written, right = reading.texts(predictions, labels)
    scores = [bleu.sentence_score(text, texts) for text, texts in zip(written, right, strict=True)]
    return {
        "found": tuple(sum(score.counts[i] for score in scores) for i in range(MAX_ORDER)),
        "written": tuple(sum(score.totals[i] for score in scores) for i in range(MAX_ORDER)),
        "length": sum(score.sys_len for score in scores),
        "right_length": sum(score.ref_len for score in scores),
    }


def bleu(smoothing: str, scale: float, totals: Mapping[str, Any]) -> float:
    """BLEU of all rows together. `scale` 1 is sacrebleu's, from 0 to 100."""
    compute = installed("sacrebleu.metrics", "sacrebleu").BLEU.compute_bleu
    counts = list(totals["found"]), list(totals["written"]), totals["length"], totals["right_length"]
    return float(compute(*counts, smooth_method=smoothing).score) * scale


def chrf_counts(reading: Reading, predictions: Any, labels: Any) -> Totals:
    """For sequences of 1 to 6 characters, blanks left out: how many are written, right, and both."""
    written, right = reading.texts(predictions, labels)
    rows = [
        max((_characters(text, truth) for truth in texts), key=_chrf)
        for text, texts in zip(written, right, strict=True)
    ]
    return {"counts": tuple(tuple(map(sum, zip(*order, strict=True))) for order in zip(*rows, strict=True))}


def _characters(text: str, right: str) -> tuple[tuple[int, int, int], ...]:
    found = []
    for size in range(1, CHARACTERS + 1):
        ours, theirs = (_sequences("".join(one.split()), size) for one in (text, right))
        # as sacrebleu does: where the reference has none, none were written
        found.append((ours.total() if theirs else 0, theirs.total(), (ours & theirs).total()))
    return tuple(found)


def _sequences(text: str, size: int) -> Counter[str]:
    return Counter(text[start : start + size] for start in range(len(text) - size + 1))


def _chrf(counts: tuple[tuple[int, int, int], ...]) -> float:
    """The F-score of mean precision and mean recall over the sizes that both sides have, from 0 to 100."""
    there = [(both / ours, both / theirs) for ours, theirs, both in counts if ours and theirs]
    if not there:
        return 0.0
    precision, recall = (sum(part) / len(there) for part in zip(*there, strict=True))
    weight = BETA**2
    return 100 * (1 + weight) * precision * recall / (weight * precision + recall) if precision + recall else 0.0


# ---------------------------------------------------------------- edits


def ter_edits(reading: Reading, predictions: Any, labels: Any) -> Totals:
    ter = installed("sacrebleu.metrics", "sacrebleu").TER()
    written, right = reading.texts(predictions, labels)
    scores = [ter.sentence_score(text, texts) for text, texts in zip(written, right, strict=True)]
    edits, lengths = (ExactSum.of([getattr(s, name) for s in scores]) for name in ("num_edits", "ref_length"))
    return {"edits": edits, "length": lengths}


def ter(totals: Mapping[str, Any]) -> float:
    """Edits, moves of phrases among them, for 100 words of the reference."""
    edits, length = totals["edits"].exact, totals["length"].exact
    return float(100 * edits / length) if length else 100.0 * bool(edits)


def edits_of(unit: str, reading: Reading, predictions: Any, labels: Any) -> Totals:
    """Words or characters to replace, leave out and put in; and the length of what is right."""
    jiwer = installed("jiwer", "jiwer")
    written, right = reading.texts(predictions, labels)
    if any(len(texts) != 1 for texts in right):
        raise DataError("wer and cer compare with one text a row, not with several.")
    truth = [texts[0] for texts in right]
    found = (jiwer.process_words if unit == "words" else jiwer.process_characters)(truth, written)
    edits = found.substitutions + found.deletions + found.insertions
    return {"edits": edits, "length": found.substitutions + found.deletions + found.hits}


def error_rate(totals: Mapping[str, Any]) -> float:
    """Edits over the length of what is right, which may be above 1."""
    return totals["edits"] / totals["length"] if totals["length"] else float(bool(totals["edits"]))


words, characters = partial(edits_of, "words"), partial(edits_of, "characters")

# ---------------------------------------------------------------- rows, each with a score


def rouge_scores(reading: Reading, predictions: Any, labels: Any) -> Totals:
    """Sums of the F-scores of rows, without stemming; of several right texts the best."""
    scorer = _rouge_scorer()
    written, right = reading.texts(predictions, labels)
    scores = [scorer.score_multi(texts, text) for text, texts in zip(written, right, strict=True)]
    return {"rows": len(scores), **{kind: ExactSum.of([s[kind].fmeasure for s in scores]) for kind in ROUGE_KINDS}}


@cache
def _rouge_scorer() -> Any:
    return installed("rouge_score.rouge_scorer", "rouge-score").RougeScorer(ROUGE_KINDS)


def rouge(totals: Mapping[str, Any]) -> dict[str, float]:
    """The means over rows, from 0 to 1. Sentences of rougeLsum are lines."""
    return {kind: totals[kind].over(totals["rows"]) for kind in ROUGE_KINDS}


def same_texts(reading: Reading, predictions: Any, labels: Any) -> Totals:
    written, right = reading.texts(predictions, labels)
    return {"right": sum(text in texts for text, texts in zip(written, right, strict=True)), "counted": len(written)}


def squad_scores(reading: Reading, predictions: Any, labels: Any) -> Totals:
    """Rows that are right, and the sum of F1 over words, after the normalisation of SQuAD; the best of several."""
    written, right = reading.texts(predictions, labels)
    rows = list(zip(written, right, strict=True))
    exact = sum(any(normalised(text) == normalised(one) for one in texts) for text, texts in rows)
    overlaps = [
        max(_overlap(normalised(text).split(), normalised(one).split()) for one in texts) for text, texts in rows
    ]
    return {"exact": exact, "f1": ExactSum.of(overlaps), "rows": len(rows)}


def normalised(text: str) -> str:
    """Small letters; without punctuation, articles and repeated blanks (Rajpurkar et al., 2016)."""
    kept = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def _overlap(written: list[str], right: list[str]) -> float:
    if not written or not right:
        return float(written == right)
    both = (Counter(written) & Counter(right)).total()
    return 2 * both / (len(written) + len(right))


_PER_CENT = 100.0

FORMULAS = {
    "bleu": Formula(bleu_counts, partial(bleu, "none", 0.01), True),
    "sacrebleu": Formula(bleu_counts, partial(bleu, "exp", 1.0), True),
    "chrf": Formula(chrf_counts, lambda totals: _chrf(totals["counts"]), True),
    "ter": Formula(ter_edits, ter, False),
    "wer": Formula(words, error_rate, False),
    "cer": Formula(characters, error_rate, False),
    "rouge": Formula(rouge_scores, rouge, True),
    "exact_match": Formula(same_texts, accuracy, True),
    "squad_f1": Formula(squad_scores, lambda totals: _PER_CENT * totals["f1"].over(totals["rows"]), True),
    "squad_exact_match": Formula(
        squad_scores, lambda totals: _PER_CENT * totals["exact"] / totals["rows"] if totals["rows"] else 0.0, True
    ),
}
