"""Each metric by name gives what its reference library gives, in whatever batches the rows come."""

from __future__ import annotations

import itertools
import math
import random
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from burnish.evaluation.metrics import FORMULAS, Metrics
from burnish.evaluation.reading import Reading

ROWS = 60


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def classes_drawn(*shape: int, count: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(count, shape, generator=torch.Generator().manual_seed(seed))


def value_of(name: str, predictions: Any, labels: Any, cuts: tuple[int, ...] = (7, 40), **reading: Any) -> Any:
    """In three batches, the last two in an object of their own, merged."""
    bounds = [0, *cuts, len(labels)]
    ours, theirs = Metrics([name], Reading(**reading)), Metrics([name], Reading(**reading))
    for part, (start, end) in enumerate(itertools.pairwise(bounds)):
        (ours if part == 0 else theirs).update(predictions[start:end], labels[start:end])
    ours.merge([theirs.state()])
    found = ours.compute()
    return found[name] if list(found) == [name] else found


# ---------------------------------------------------------------- classes, against scikit-learn


@pytest.fixture(scope="module")
def sklearn() -> Any:
    return pytest.importorskip("sklearn.metrics")


MANY = drawn(ROWS, 5), classes_drawn(ROWS, count=4)
"""Five classes, of which the last is never right."""
TWO = drawn(ROWS, 2), classes_drawn(ROWS, count=2)
SEVERAL = drawn(ROWS, 3), (drawn(ROWS, 3, seed=3) > 0).float()
"""Several labels a row, of 3."""


@pytest.mark.parametrize("name", ["precision", "recall", "f1"])
@pytest.mark.parametrize("average", ["micro", "macro", "weighted"])
@pytest.mark.parametrize("case", ["many", "two", "several"])
def test_averages(sklearn: Any, name: str, average: str, case: str) -> None:
    logits, labels = {"many": MANY, "two": TWO, "several": SEVERAL}[case]
    predicted = logits > 0 if case == "several" else logits.argmax(-1)
    reference = getattr(sklearn, f"{name}_score")(labels, predicted, average=average, zero_division=0)
    assert value_of(f"{name}_{average}", logits, labels) == pytest.approx(reference, rel=1e-12)
    usual = {"many": "macro", "two": "binary", "several": "micro"}[case]
    reference = getattr(sklearn, f"{name}_score")(labels, predicted, average=usual, zero_division=0)
    assert value_of(name, logits, labels) == pytest.approx(reference, rel=1e-12)


@pytest.mark.parametrize("name", ["precision", "recall", "f1"])
def test_of_each_class(sklearn: Any, name: str) -> None:
    logits, labels = MANY
    score = getattr(sklearn, f"{name}_score")
    reference = score(labels, logits.argmax(-1), labels=range(5), average=None, zero_division=0)
    assert value_of(f"{name}_per_class", logits, labels) == pytest.approx(list(reference))


@pytest.mark.parametrize("case", ["many", "two"])
def test_further_of_classes(sklearn: Any, case: str) -> None:
    logits, labels = {"many": MANY, "two": TWO}[case]
    predicted = logits.argmax(-1)
    assert value_of("accuracy", logits, labels) == sklearn.accuracy_score(labels, predicted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a class that is predicted and never right
        reference = sklearn.balanced_accuracy_score(labels, predicted)
    assert value_of("balanced_accuracy", logits, labels) == pytest.approx(reference)
    assert value_of("mcc", logits, labels) == pytest.approx(sklearn.matthews_corrcoef(labels, predicted))
    size = logits.shape[1]
    matrix = sklearn.confusion_matrix(labels, predicted, labels=range(size))
    assert value_of("confusion_matrix", logits, labels) == matrix.tolist()


def test_all_labels_of_a_row(sklearn: Any) -> None:
    logits, labels = SEVERAL
    assert value_of("accuracy", logits, labels) == sklearn.accuracy_score(labels, logits > 0)


def test_class_numbers_in_place_of_logits(sklearn: Any) -> None:
    logits, labels = MANY
    reference = sklearn.f1_score(labels, logits.argmax(-1), average="macro")
    assert value_of("f1_macro", logits.argmax(-1).numpy(), labels.numpy()) == pytest.approx(reference)


def test_roc_auc(sklearn: Any) -> None:
    logits, labels = TWO
    ties = (logits * 2).round()
    reference = sklearn.roc_auc_score(labels, ties.double().softmax(1)[:, 1])
    assert value_of("roc_auc", ties, labels) == pytest.approx(reference)
    logits, labels = drawn(ROWS, 4), classes_drawn(ROWS, count=4)
    reference = sklearn.roc_auc_score(labels, logits.double().softmax(1), multi_class="ovr")
    assert value_of("roc_auc", logits, labels) == pytest.approx(reference)
    logits, labels = SEVERAL
    assert value_of("roc_auc", logits, labels) == pytest.approx(sklearn.roc_auc_score(labels, logits))


def test_certain_predictions_are_still_ordered(sklearn: Any) -> None:
    """Probabilities of 1 - 1e-20 and 1 - 1e-30 are equal; the order of their rows is known all the same."""
    assert value_of("roc_auc", torch.tensor([[-46.0], [-69.0], [69.0], [46.0]]), torch.tensor([0, 0, 1, 1])) == 1.0
    logits = torch.tensor([[0.0, 46.0], [0.0, 69.0]])
    assert value_of("roc_auc", logits, torch.tensor([1, 0]), cuts=(1,)) == 0.0


# ---------------------------------------------------------------- numbers, against scikit-learn and scipy


@pytest.mark.parametrize("values", [1, 3])
def test_errors(sklearn: Any, values: int) -> None:
    found, truth = drawn(ROWS, values), drawn(ROWS, values, seed=5)
    for name, reference in (("mse", "mean_squared_error"), ("mae", "mean_absolute_error"), ("r2", "r2_score")):
        expected = getattr(sklearn, reference)(truth.double().numpy(), found.double().numpy())
        assert value_of(name, found, truth) == pytest.approx(expected, rel=1e-6 if name == "r2" else 1e-7)
    assert value_of("rmse", found, truth) == pytest.approx(math.sqrt(value_of("mse", found, truth)))


@pytest.mark.parametrize("far", [0.0, 1e6])
def test_correlations(far: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    truth = (drawn(ROWS, seed=5) * 8).round()  # with ties
    found = truth + drawn(ROWS) + far
    for name in ("pearson", "spearman"):
        expected = getattr(stats, f"{name}r")(found.double().numpy(), truth.double().numpy()).statistic
        assert value_of(name, found[:, None], truth) == pytest.approx(expected, rel=1e-9)


def test_numbers_that_are_far_from_zero() -> None:
    """Sums of squares lose all digits here when they are rounded."""
    truth = torch.tensor([1e7, 1e7 + 1, 1e7 + 2, 1e7 + 3])
    assert value_of("pearson", truth, truth, cuts=(1, 2)) == 1.0
    assert value_of("r2", truth, truth, cuts=(1, 2)) == 1.0


# ---------------------------------------------------------------- tokens


def test_perplexity_of_shifted_and_plain_labels() -> None:
    logits, labels = drawn(4, 6, 9), classes_drawn(4, 6, count=9)
    labels[:, -2:] = -100
    for shift in (False, True):
        scores, right = (logits[:, :-1], labels[:, 1:]) if shift else (logits, labels)
        loss = torch.nn.functional.cross_entropy(scores.transpose(1, 2), right)
        found = value_of("perplexity", logits, labels, cuts=(1, 3), next_token=shift)
        assert found == pytest.approx(loss.exp().item(), rel=1e-6)
        kept = right != -100
        accuracy = (scores.argmax(-1) == right)[kept].float().mean().item()
        assert value_of("token_accuracy", logits, labels, cuts=(1, 3), next_token=shift) == pytest.approx(accuracy)


TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "E-LOC", "S-PER"]


def test_entities() -> None:
    seqeval = pytest.importorskip("seqeval.metrics")
    labels = classes_drawn(40, 12, count=len(TAGS))
    lengths = classes_drawn(40, count=9, seed=4) + 3
    labels[torch.arange(12) >= lengths[:, None]] = -100
    close = torch.nn.functional.one_hot(labels.clamp(min=0), len(TAGS)) * 2.0 + drawn(40, 12, len(TAGS))
    found = value_of("seqeval", close, labels, class_names=TAGS)
    true = [[TAGS[tag] for tag in row if tag >= 0] for row in labels.tolist()]
    said = [
        [TAGS[tag] for tag, right in zip(row, rights, strict=True) if right >= 0]
        for row, rights in zip(close.argmax(-1).tolist(), labels.tolist(), strict=True)
    ]
    for name in ("precision", "recall", "f1", "accuracy"):
        assert found[name] == pytest.approx(getattr(seqeval, f"{name}_score")(true, said))
    assert 0.2 < found["f1"] < 0.9


# ---------------------------------------------------------------- texts


def texts() -> tuple[list[str], list[str]]:
    """Sentences, and the same with words taken out, changed and moved."""
    draw = random.Random(0)
    words = re.findall(r"\S+", "the a cat, dog sat; ran quickly over mat house tree and then it's 3.5 said Hello")
    right = [" ".join(draw.choices(words, k=draw.randint(4, 14))) for _ in range(ROWS)]
    written = []
    for row, text in enumerate(right):
        parts = [word for word in text.split() if draw.random() > 0.1]
        parts = [draw.choice(words) if draw.random() < 0.1 else word for word in parts]
        cut = draw.randint(0, len(parts)) if row % 5 == 0 else 0
        written.append(" ".join(parts[cut:] + parts[:cut]) + ("" if row % 4 else "."))
    written[3], written[10] = "", right[10]
    return written, right


def with_sacrebleu(kind: str, **settings: Any) -> Callable[..., float]:
    def score(written: list[str], right: list[str]) -> float:
        metrics = pytest.importorskip("sacrebleu.metrics")
        return float(getattr(metrics, kind)(**settings).corpus_score(written, [right]).score)

    return score


def bleu(written: list[str], right: list[str]) -> float:
    return with_sacrebleu("BLEU", smooth_method="none")(written, right) / 100


def with_jiwer(kind: str) -> Callable[..., float]:
    return lambda written, right: float(getattr(pytest.importorskip("jiwer"), kind)(right, written))


def rouge(written: list[str], right: list[str]) -> dict[str, float]:
    scoring = pytest.importorskip("rouge_score.rouge_scorer")
    kinds = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
    rows = [scoring.RougeScorer(kinds).score(a, b) for a, b in zip(right, written, strict=True)]
    return {kind: float(np.mean([row[kind].fmeasure for row in rows])) for kind in kinds}


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("bleu", bleu),
        ("sacrebleu", with_sacrebleu("BLEU")),
        ("chrf", with_sacrebleu("CHRF")),
        ("ter", with_sacrebleu("TER")),
        ("wer", with_jiwer("wer")),
        ("cer", with_jiwer("cer")),
        ("rouge", rouge),
        ("exact_match", lambda written, right: np.mean([a == b for a, b in zip(written, right, strict=True)])),
    ],
)
def test_texts(name: str, reference: Callable[..., Any]) -> None:
    written, right = texts()
    expected = reference(written, right)
    assert value_of(name, written, right) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("name", "kind"), [("sacrebleu", "BLEU"), ("chrf", "CHRF"), ("ter", "TER")])
def test_several_right_texts(name: str, kind: str) -> None:
    metrics = pytest.importorskip("sacrebleu.metrics")
    written, right = texts()
    other = right[1:] + right[:1]
    expected = getattr(metrics, kind)().corpus_score(written, [right, other]).score
    assert value_of(name, written, [list(pair) for pair in zip(right, other, strict=True)]) == pytest.approx(expected)


def test_squad() -> None:
    """Against the numbers of the official script (Rajpurkar et al., 2016), computed by hand."""
    written = ["The Cat!", "a dog ran", "nothing", ""]
    right = [["cat"], ["dog", "the dog ran away"], ["something else"], [""]]
    assert value_of("squad_exact_match", written, right, cuts=(1, 2)) == 50.0
    assert value_of("squad_f1", written, right, cuts=(1, 2)) == pytest.approx(100 * (1 + 0.8 + 0 + 1) / 4)


@pytest.mark.slow
def test_squad_against_torchmetrics() -> None:
    functional = pytest.importorskip("torchmetrics.functional.text")
    written, right = texts()
    predicted = [{"prediction_text": text, "id": str(row)} for row, text in enumerate(written)]
    truth = [{"answers": {"answer_start": [0], "text": [text]}, "id": str(row)} for row, text in enumerate(right)]
    expected = functional.squad(predicted, truth)
    assert value_of("squad_f1", written, right) == pytest.approx(expected["f1"].item(), rel=1e-6)
    assert value_of("squad_exact_match", written, right) == pytest.approx(expected["exact_match"].item(), rel=1e-6)


def test_every_name_is_compared_here() -> None:
    """A metric that is added gets its comparison, too."""
    averages = {f"{n}{a}" for n in ("precision", "recall", "f1") for a in ("", "_micro", "_macro", "_weighted")}
    compared = {
        *averages, *(f"{name}_per_class" for name in ("precision", "recall", "f1")),
        *("accuracy", "balanced_accuracy", "mcc", "confusion_matrix", "roc_auc", "mse", "mae", "r2", "rmse"),
        *("pearson", "spearman", "perplexity", "token_accuracy", "seqeval", "bleu", "sacrebleu", "chrf", "ter", "wer"),
        *("cer", "rouge", "exact_match", "squad_f1", "squad_exact_match"),
    }  # fmt: skip
    assert set(FORMULAS) == compared
