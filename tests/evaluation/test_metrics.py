"""Metrics by name: the same to the last digit however rows are shared out, and errors that say what to do."""

from __future__ import annotations

import itertools
import math
import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest
import tiny
import torch

from burnish.arguments.directions import direction_of
from burnish.core.errors import SettingError
from burnish.evaluation.metrics import ALSO_CALLED, FORMULAS, Metrics
from burnish.evaluation.reading import Reading

LOGITS = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.randint(4, (30,), generator=torch.Generator().manual_seed(1))
NUMBERS = ("mse", "rmse", "mae", "r2", "pearson", "spearman")
CLASSES = ("accuracy", "f1", "f1_weighted", "mcc", "roc_auc", "perplexity", "confusion_matrix")


@pytest.mark.parametrize("names", [NUMBERS, CLASSES])
def test_every_split_and_order_gives_the_same_digits(names: tuple[str, ...]) -> None:
    predictions, labels = (LOGITS, LABELS) if names is CLASSES else (LOGITS[:, 0] * 1e3, LOGITS[:, 1] * 1e-3)
    whole = Metrics(names)
    whole.update(predictions, labels)
    expected = whole.compute()
    order = torch.randperm(30, generator=torch.Generator().manual_seed(2))
    for processes, size in itertools.product((1, 3), (1, 7)):
        parts = [Metrics(names) for _ in range(processes)]
        for number, rows in enumerate(order.split(size)):
            parts[number % processes].update(predictions[rows], labels[rows])
        states = pickle.loads(pickle.dumps([part.state() for part in parts[1:]]))
        parts[0].merge(states)
        assert parts[0].compute() == expected


def test_a_process_without_rows() -> None:
    ours, theirs = Metrics(["accuracy", "f1"]), Metrics(["accuracy", "f1"])
    assert ours.compute() == {}
    theirs.update(LOGITS, LABELS)
    ours.merge([theirs.state(), Metrics(["accuracy", "f1"]).state()])
    assert ours.compute() == theirs.compute()


def test_merging_leaves_the_other_as_it_was() -> None:
    ours, theirs = Metrics(["roc_auc"]), Metrics(["roc_auc"])
    theirs.update(LOGITS, LABELS)
    ours.merge([theirs.state()])
    ours.update(LOGITS[:5], LABELS[:5])
    assert len(theirs.state()[0]["labels"]) == 1


def test_classes_that_come_later() -> None:
    """Class numbers alone do not say how many there are."""
    metrics = Metrics(["f1_per_class", "confusion_matrix"])
    metrics.update(np.array([0, 1]), np.array([0, 1]))
    metrics.update(np.array([2]), np.array([1]))
    found = metrics.compute()
    assert found["f1_per_class"] == pytest.approx([1.0, 2 / 3, 0.0])
    assert found["confusion_matrix"] == [[1, 0, 0], [0, 1, 1], [0, 0, 0]]


def test_ignored_positions_do_not_count() -> None:
    logits = LOGITS.reshape(6, 5, 4)
    labels = LABELS.reshape(6, 5).clone()
    labels[:, 3:] = -100
    found = Metrics(["accuracy"])
    found.update(logits, labels)
    assert found.compute()["accuracy"] == (logits.argmax(-1) == labels)[:, :3].sum().item() / 18


def test_of_several_outputs_the_first_is_read() -> None:
    metrics, plain = Metrics(["accuracy"]), Metrics(["accuracy"])
    metrics.update((LOGITS, LOGITS[:, :1]), LABELS)
    plain.update(LOGITS, LABELS)
    assert metrics.compute() == plain.compute()


def test_metrics_of_the_same_totals_count_once() -> None:
    metrics = Metrics(["f1", "f1_macro", "precision", "mcc", "accuracy", "token_accuracy"])
    metrics.update(LOGITS, LABELS)
    assert len(metrics.state()) == 2
    assert len(metrics.compute()) == 6


@pytest.mark.parametrize("name", ["f1", "accuracy"])
def test_state_does_not_grow(name: str) -> None:
    metrics, numbers = Metrics([name]), Metrics(["pearson"])

    def size(rows: int) -> int:
        for _ in range(rows):
            metrics.update(LOGITS, LABELS)
            numbers.update(LOGITS[:, 0], LOGITS[:, 1])
        return len(pickle.dumps(metrics.state())) + len(pickle.dumps(numbers.state()))

    first = size(1)
    assert size(50) <= first + 64  # digits of whole numbers


@pytest.mark.parametrize("several", [False, True])
def test_scores_of_half_precision(several: bool) -> None:
    scores, labels = LOGITS.bfloat16(), (LOGITS.flip(0) > 0).float() if several else LABELS
    half, full = Metrics(["f1", "roc_auc"]), Metrics(["f1", "roc_auc"])
    half.update(scores, labels.bfloat16() if several else labels)
    full.update(scores.float(), labels)
    assert half.compute() == full.compute()


def test_values_that_do_not_exist() -> None:
    constant = torch.ones(4)
    metrics = Metrics(["pearson", "spearman", "r2"])
    metrics.update(torch.arange(4.0), constant)
    assert all(math.isnan(value) for value in metrics.compute().values())
    one_class = Metrics(["roc_auc"])
    one_class.update(torch.randn(4, 2), torch.zeros(4, dtype=torch.long))
    assert math.isnan(one_class.compute()["roc_auc"])


def test_numbers_that_are_not_finite() -> None:
    metrics = Metrics(["mse", "mae", "pearson"])
    metrics.update(torch.tensor([1.0, math.nan]), torch.tensor([1.0, 2.0]))
    assert all(math.isnan(value) for value in metrics.compute().values())
    infinite = Metrics(["mae"])
    infinite.update(torch.tensor([1.0, math.inf]), torch.tensor([1.0, 2.0]))
    assert infinite.compute()["mae"] == math.inf
    ranked = Metrics(["spearman"])
    ranked.update(torch.tensor([1.0, math.nan]), torch.tensor([1.0, 2.0]))
    assert math.isnan(ranked.compute()["spearman"])
    curve = Metrics(["roc_auc"])
    curve.update(torch.tensor([[1.0], [math.nan]]), torch.tensor([0, 1]))
    assert math.isnan(curve.compute()["roc_auc"])


# ---------------------------------------------------------------- what is said


def test_an_unknown_name() -> None:
    with pytest.raises(
        SettingError, match=r"compute_metrics='acuracy'.*Did you mean 'accuracy'.*Known: accuracy, .*wer"
    ):
        Metrics(["acuracy"])


@pytest.mark.parametrize(
    ("name", "predictions", "labels", "said"),
    [
        ("accuracy", LOGITS, LABELS[:5], r"'accuracy' cannot be.*float32 \(30, 4\) and labels int64 \(5,\)"),
        ("mse", LOGITS, LABELS, r"'mse'.*needed is a number for each label"),
        ("roc_auc", LOGITS.argmax(-1), LABELS, "needed is a score for each class"),
        ("mcc", LOGITS, (LOGITS > 0).float(), "mcc is of single labels"),
        ("confusion_matrix", LOGITS, (LOGITS > 0).float(), "confusion_matrix is of single labels"),
        ("bleu", LOGITS[None], LABELS[None], "predict_with_generate=True"),
        ("bleu", LABELS[None], LABELS[None], "give Trainer its processing_class"),
        ("seqeval", LOGITS[None], LABELS[None], "set id2label"),
        ("wer", ["a"], [["a", "b"]], "one text a row"),
        ("wer", ["a"], ["a", "b"], "1 texts predicted and 2 to compare"),
    ],
)
def test_what_cannot_be_computed(name: str, predictions: Any, labels: Any, said: str) -> None:
    if name == "bleu":
        pytest.importorskip("sacrebleu")
    if name == "wer":
        pytest.importorskip("jiwer")
    metrics = Metrics([name])
    with pytest.raises(SettingError, match=said):  # noqa: PT012
        metrics.update(predictions, labels)
        metrics.compute()  # the one or the other says it


def test_two_values_of_one_name() -> None:
    metrics = Metrics(["seqeval", "f1"], Reading(class_names=["O", "B-A", "I-A", "B-B"]))
    metrics.update(LOGITS.reshape(6, 5, 4), LABELS.reshape(6, 5))
    with pytest.raises(SettingError, match="'f1'"):
        metrics.compute()


# ---------------------------------------------------------------- the table of names


def test_directions_are_those_of_the_arguments() -> None:
    """The best model and early stopping know the direction of every metric, under each of its names."""
    with_parts = {"seqeval": ("precision", "recall", "f1", "accuracy"), "rouge": ("rouge1", "rougeL", "rougeLsum")}
    for name in (*FORMULAS, *ALSO_CALLED):
        formula = FORMULAS[ALSO_CALLED.get(name, name)]
        for value in with_parts.get(name, (name,)):
            if formula.greater_is_better is not None:
                assert direction_of(f"eval_{value}") is formula.greater_is_better, value


def test_texts_come_out_of_ids() -> None:
    pytest.importorskip("jiwer")
    metrics = Metrics(["exact_match", "wer"], Reading(processing_class=tiny.tokenizer()))
    metrics.update(torch.tensor([[5, 6, 3, 0], [7, 8, 9, 3]]), torch.tensor([[5, 6, 3, -100], [7, 8, 3, -100]]))
    assert metrics.compute() == {"exact_match": 0.5, "wer": 0.25}


def test_large_scores_are_not_copied_whole() -> None:
    logits, labels = torch.zeros(4, 64, 5000), torch.zeros(4, 64, dtype=torch.long)
    metrics = Metrics(["token_accuracy"])
    tracemalloc.start()
    metrics.update(logits, labels)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000
