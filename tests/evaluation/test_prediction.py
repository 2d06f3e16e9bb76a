"""Predictions are taken apart as users of transformers do."""

from __future__ import annotations

import numpy as np
import pytest

from burnish.evaluation.prediction import EvalPrediction


def test_by_name_and_by_position() -> None:
    prediction = EvalPrediction(predictions=np.ones(2), label_ids=np.zeros(2))
    predictions, labels = prediction
    assert predictions is prediction.predictions is prediction[0]
    assert labels is prediction.label_ids is prediction[1]
    assert len(prediction) == 2
    with pytest.raises(IndexError):
        prediction[2]


def test_what_was_asked_for_follows() -> None:
    inputs, losses = np.ones((2, 3)), np.ones(2)
    assert EvalPrediction(np.ones(2), None, inputs=inputs, losses=losses)[2:] == (inputs, losses)
    assert EvalPrediction(np.ones(2), None, losses=losses)[2] is losses
