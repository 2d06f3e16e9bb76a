"""Metrics of torchmetrics and modules of `evaluate` as `compute_metrics`. Their imports take seconds."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch

from burnish.core.errors import SettingError
from burnish.evaluation.judge import Judge
from burnish.evaluation.metrics import Metrics
from burnish.evaluation.prediction import EvalPrediction
from burnish.evaluation.reading import Reading

pytestmark = pytest.mark.slow

LOGITS = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.randint(4, (30,), generator=torch.Generator().manual_seed(1))
TOKENS = LOGITS.reshape(6, 5, 4), torch.where(torch.arange(5) > 2, -100, LABELS.reshape(6, 5))
TEXTS = torch.tensor([[5, 6, 7, 8, 9], [7, 8, 9, 3, 0], [9, 8, 7, 6, 3]])
RIGHT = torch.tensor([[5, 6, 7, 8, 3], [7, 8, 9, 10, 11], [9, 8, 7, 6, -100]])


def judged(given: Any, predictions: Any, labels: Any, merged: bool = True, **reading: Any) -> dict[str, Any]:
    """Two batches here and one merged into them."""
    ours, theirs = (Judge(given, Reading(**reading)) for _ in range(2))
    cuts = [0, 1, 2, len(labels)] if merged else [0, 2, len(labels)]
    for part, (start, end) in enumerate(itertools.pairwise(cuts)):
        judge = theirs if part == 2 else ours
        judge.update(EvalPrediction(predictions[start:end], labels[start:end]))
    if merged:
        ours.merge([theirs.state()])
    return ours.compute()


def by_name(name: str, predictions: Any, labels: Any, **reading: Any) -> Any:
    metrics = Metrics([name], Reading(**reading))
    metrics.update(predictions, labels)
    return metrics.compute()[name]


# ---------------------------------------------------------------- torchmetrics


@pytest.fixture(scope="module")
def torchmetrics() -> Any:
    return pytest.importorskip("torchmetrics")


def test_sums_of_torchmetrics_depend_on_the_batches_and_those_of_names_do_not(torchmetrics: Any) -> None:
    x, y = torch.randn(2, 1000, generator=torch.Generator().manual_seed(2)) * torch.tensor([[100.0], [1.0]])
    theirs, ours = set(), set()
    for size in (7, 64, 1000):
        metric, named = torchmetrics.MeanSquaredError(), Metrics(["mse"])
        for found, truth in zip(x.split(size), y.split(size), strict=True):
            metric.update(found, truth)
            named.update(found, truth)
        theirs.add(metric.compute().item())
        ours.add(named.compute()["mse"])
    assert len(ours) == 1 < len(theirs)


def test_of_classes(torchmetrics: Any) -> None:
    metric = torchmetrics.Accuracy(task="multiclass", num_classes=4, average="micro")
    assert judged(metric, LOGITS, LABELS) == {"multiclass_accuracy": pytest.approx(by_name("accuracy", LOGITS, LABELS))}
    assert metric.update_count == 0, "the user's own object stays as it is"
    binary = torchmetrics.AUROC(task="binary")
    two = LABELS % 2
    expected = by_name("roc_auc", LOGITS[:, :2], two)
    assert judged(binary, LOGITS[:, :2], two)["binary_auroc"] == pytest.approx(expected, rel=1e-6)
    several = (LOGITS > 0.3).float()
    f1 = torchmetrics.F1Score(task="multilabel", num_labels=4, average="micro")
    expected = by_name("f1", LOGITS.flip(0), several)
    assert judged(f1, LOGITS.flip(0), several)["multilabel_f1_score"] == pytest.approx(expected, rel=1e-6)


def test_a_collection(torchmetrics: Any) -> None:
    settings = {"task": "multiclass", "num_classes": 4}
    both = torchmetrics.MetricCollection({"f1": torchmetrics.F1Score(**settings, average="macro"),
                                          "by_class": torchmetrics.Recall(**settings, average="none")})  # fmt: skip
    found = judged([both, "accuracy"], *TOKENS)
    assert found["f1"] == pytest.approx(by_name("f1_macro", *TOKENS), rel=1e-6)
    assert found["by_class"] == pytest.approx(by_name("recall_per_class", *TOKENS), rel=1e-6)
    assert found["accuracy"] == by_name("accuracy", *TOKENS)


def test_of_numbers_and_of_scores(torchmetrics: Any) -> None:
    found, truth = LOGITS[:, :1], LOGITS[:, 1]
    assert judged(torchmetrics.MeanSquaredError(), found, truth)["mean_squared_error"] == pytest.approx(
        by_name("mse", found, truth), rel=1e-6
    )
    perplexity = torchmetrics.text.Perplexity()
    assert judged(perplexity, *TOKENS)["perplexity"] == pytest.approx(by_name("perplexity", *TOKENS), rel=1e-5)


def test_of_texts(torchmetrics: Any) -> None:
    tokenizer = tiny.tokenizer()
    found = judged(torchmetrics.text.WordErrorRate(), TEXTS, RIGHT, processing_class=tokenizer)
    assert found["word_error_rate"] == pytest.approx(by_name("wer", TEXTS, RIGHT, processing_class=tokenizer))
    found = judged(torchmetrics.text.BLEUScore(), TEXTS, RIGHT, processing_class=tokenizer)
    assert found["bleu_score"] == pytest.approx(by_name("bleu", TEXTS, RIGHT, processing_class=tokenizer), rel=1e-6)


# ---------------------------------------------------------------- evaluate


MODULE = """
import datasets
import evaluate
import numpy as np


class Own(evaluate.Metric):
    def _info(self):
        features = datasets.Features({FEATURES})
        return evaluate.MetricInfo(description="", citation="", inputs_description="", features=features)

    def _compute(self, predictions, references):
        {BODY}
"""
INT, FLOAT, TEXT = ('datasets.Value("int32")', 'datasets.Value("float32")', 'datasets.Value("string")')


def module(folder: Path, predictions: str, references: str, body: str) -> Any:
    """A module that is loaded from a local path."""
    evaluate = pytest.importorskip("evaluate")
    (folder / "own").mkdir()
    features = f'{{"predictions": {predictions}, "references": {references}}}'
    text = MODULE.replace("{FEATURES}", features).replace("{BODY}", body)
    (folder / "own" / "own.py").write_text(text, encoding="utf-8")
    return evaluate.load(str(folder / "own"), cache_dir=str(folder))


def test_module_of_classes(tmp_path: Path) -> None:
    body = 'return {"share": float(np.mean(np.equal(predictions, references)))}'
    found = judged(module(tmp_path, INT, INT, body), *TOKENS)
    assert found == {"share": pytest.approx(by_name("accuracy", *TOKENS))}


def test_module_of_numbers(tmp_path: Path) -> None:
    body = 'return {"gap": float(np.mean(np.square(np.subtract(predictions, references))))}'
    found = judged(module(tmp_path, FLOAT, FLOAT, body), LOGITS[:, :1], LOGITS[:, 1])
    assert found == {"gap": pytest.approx(by_name("mse", LOGITS[:, :1], LOGITS[:, 1]), rel=1e-6)}


@pytest.mark.parametrize("listed", [False, True])
def test_module_of_texts(tmp_path: Path, listed: bool) -> None:
    body = 'return {"said": list(predictions), "right": list(references)}'
    references = f"datasets.Sequence({TEXT})" if listed else TEXT
    found = judged(module(tmp_path, TEXT, references, body), TEXTS, RIGHT, processing_class=tiny.tokenizer())
    assert found["said"] == ["w5 w6 w7 w8 w9", "w7 w8 w9", "w9 w8 w7 w6"]
    assert found["right"][0] == (["w5 w6 w7 w8"] if listed else "w5 w6 w7 w8")


def test_module_of_tags(tmp_path: Path) -> None:
    of = f"datasets.Sequence({TEXT})"
    body = 'return {"first": predictions[0], "length": len(references[0])}'
    found = judged(module(tmp_path, of, of, body), *TOKENS, class_names=["O", "B-A", "I-A", "B-B"])
    assert len(found["first"]) == found["length"] == 3 and set(found["first"]) <= {"O", "B-A", "I-A", "B-B"}


def test_module_that_asks_for_more(tmp_path: Path) -> None:
    own = module(tmp_path, f'{{"id": {TEXT}}}', TEXT, "return {}")
    with pytest.raises(SettingError, match="a form of its own"):
        judged(own, TEXTS, RIGHT, processing_class=tiny.tokenizer())


def test_arrays_become_lists(tmp_path: Path) -> None:
    found = judged(module(tmp_path, INT, INT, 'return {"by_class": np.ones(2)}'), *TOKENS)
    assert found == {"by_class": [1.0, 1.0]} and not isinstance(found["by_class"], np.ndarray)
