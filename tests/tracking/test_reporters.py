"""Integrations of transformers by name, with our handler."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from burnish.callbacks.handler import CallbackHandler
from burnish.core.errors import SettingError
from burnish.core.progress import TrainerControl, TrainerState
from burnish.tracking.reporters import PACKAGES, installed_reporters, reporter_callbacks, with_scalars_alone


def installed(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """As if of the modules that integrations import only these were there."""
    known = {module for needed in PACKAGES.values() for module in needed} | {"tensorboardX"}
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: ("spec" if name in modules else None) if name in known else found(name, *rest),
    )


@pytest.mark.parametrize("nothing", [None, "none", [], ["none"]])
def test_nothing_is_nothing(nothing: Any) -> None:
    assert reporter_callbacks(nothing) == []


def test_an_unknown_name_is_refused_with_the_nearest_known() -> None:
    with pytest.raises(SettingError, match=r"'tensorbord'.*mlflow.*Did you mean 'tensorboard'"):
        reporter_callbacks(["tensorbord"])


def test_a_package_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch)
    with pytest.raises(SettingError, match="pip install wandb"):
        reporter_callbacks("wandb")
    with pytest.raises(SettingError, match="dagshub and mlflow"):
        reporter_callbacks(["dagshub"])


def test_all_are_those_that_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBEFLOW_TRAINER_SERVER_URL", raising=False)
    installed(monkeypatch)
    assert reporter_callbacks("all") == []
    installed(monkeypatch, "tensorboardX", "mlflow")
    assert installed_reporters() == ["mlflow", "tensorboard"]


def test_the_names_are_those_of_transformers() -> None:
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    assert set(INTEGRATION_TO_CALLBACK) <= set(PACKAGES)


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_tensorboard_gets_what_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path))
    handler = CallbackHandler(reporter_callbacks("tensorboard"), SimpleNamespace(config=None))
    handler.args = SimpleNamespace(output_dir=str(tmp_path), to_json_string=lambda: "{}")
    handler.state, handler.control = TrainerState(max_steps=2), TrainerControl()
    handler.fire("on_init_end")
    handler.fire("on_train_begin")
    for step, loss in ((1, 0.75), (2, 0.5)):
        handler.state.global_step = step
        handler.fire("on_step_end")
        handler.fire("on_log", logs={"loss": loss})
    handler.fire("on_log", logs={"eval_loss": 0.25})
    handler.fire("on_train_end")
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [(e.step, e.value) for e in events.Scalars("train/loss")] == [(1, 0.75), (2, 0.5)]
    assert [(e.step, e.value) for e in events.Scalars("eval/loss")] == [(2, 0.25)]


def test_lists_are_not_reported() -> None:
    heard: list[Any] = []
    callback = with_scalars_alone(SimpleNamespace(on_log=lambda *parts, **rest: heard.append(rest)))
    callback.on_log(None, None, None, logs={"f1": 0.5, "f1_per_class": [0.4, 0.6], "note": "x"}, model=1)
    callback.on_log(None, None, None)
    assert heard == [{"logs": {"f1": 0.5, "note": "x"}, "model": 1}, {"logs": {}}]
