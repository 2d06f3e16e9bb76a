"""Callbacks written for transformers.Trainer see the same run: the same events, in order, with the same state."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest
import tiny
import transformers
from torch.utils.data import DataLoader, Subset
from trainer import runs

import burnish
from burnish.core.events import EVENTS

SETTINGS = {"num_train_epochs": 2, "logging_first_step": False}
RUNS: dict[str, dict[str, Any]] = {
    "steps": {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2},
    "epochs": {"eval_strategy": "epoch", "save_strategy": "epoch", "logging_strategy": "epoch"},
    "last_group_incomplete": {"gradient_accumulation_steps": 3},
    "ends_within_a_pass": {"max_steps": 7, "eval_strategy": "epoch", "save_strategy": "epoch"},
    "last_step_off_the_rhythm": {
        "max_steps": 7, "eval_strategy": "steps", "eval_steps": 3, "save_strategy": "steps", "save_steps": 3,
    },
    "evaluated_first": {"max_steps": 3, "eval_strategy": "steps", "eval_steps": 1, "eval_on_start": True},
    "evaluated_late": {"max_steps": 6, "eval_strategy": "steps", "eval_steps": 1, "eval_delay": 3},
    "evaluated_from_second_pass": {"num_train_epochs": 3, "eval_strategy": "epoch", "eval_delay": 2},
    "pass_and_a_half": {"num_train_epochs": 1.5},
    "half_a_pass": {"num_train_epochs": 0.5},
    "incomplete_batch_dropped": {"dataloader_drop_last": True},
    "first_step_logged": {"logging_first_step": True, "logging_steps": 5},
    "best_kept": {
        "eval_strategy": "epoch", "save_strategy": "best", "metric_for_best_model": "loss",
        "load_best_model_at_end": True,
    },
}  # fmt: skip


class Recorder(transformers.TrainerCallback):
    """Writes down each event with what a callback can see."""

    def __init__(self) -> None:
        self.seen: list[Any] = []


def recording(event: str) -> Any:
    def note(self: Recorder, args: Any, state: Any, control: Any, **details: Any) -> None:
        known = tuple(sorted(details.get("logs") or details.get("metrics") or ()))
        parts = tuple(name for name in ("model", "optimizer", "lr_scheduler") if details.get(name) is not None)
        numbers = (state.global_step, round(state.epoch or 0, 6), state.max_steps, state.num_train_epochs)
        self.seen.append((event, *numbers, known, parts))

    return note


for name in EVENTS:
    setattr(Recorder, name, recording(name))


def watched(library: Any, folder: Path, callbacks: list[Any], **settings: Any) -> Any:
    """A run with these callbacks, and its trainer."""
    args = runs.arguments(folder, library.TrainingArguments, **{**SETTINGS, **settings})
    rows = tiny.class_rows(18)
    run = library.Trainer(
        model=runs.classifier(),
        args=args,
        train_dataset=rows,
        eval_dataset=rows[:6],
        data_collator=runs.collator(),
        callbacks=callbacks,
    )
    with contextlib.redirect_stdout(io.StringIO()):
        run.train()
        if settings.get("eval_strategy") == "epoch":
            run.evaluate()
            run.predict(rows[:3])
    return run


def seen_under(library: Any, folder: Path, **settings: Any) -> tuple[list[Any], Any]:
    recorder = Recorder()
    return recorder.seen, watched(library, folder, [recorder], **settings)


@pytest.mark.parametrize("name", RUNS)
def test_same_events(name: str, tmp_path: Path) -> None:
    settings = RUNS[name]
    theirs, their_run = seen_under(transformers, tmp_path / "theirs", **settings)
    ours, our_run = seen_under(burnish, tmp_path / "ours", **settings)
    # burnish also logs the last step, and cuts a step into micro-batches of its own
    theirs, ours = (without_substeps(events) for events in (theirs, ours))
    ours = without_the_last_log(ours, theirs)
    if settings.get("gradient_accumulation_steps", 1) > 1:  # within a pass the epoch counts steps, not batches
        theirs, ours = ([event[:2] + event[3:] for event in events] for events in (theirs, ours))
    assert ours == theirs
    assert len(theirs) > 15
    for field in ("global_step", "epoch", "max_steps", "num_train_epochs", "best_global_step", "train_batch_size"):
        assert getattr(our_run.state, field) == pytest.approx(getattr(their_run.state, field)), field
    for key in ("loss", "learning_rate", "epoch", "eval_loss"):
        their_log, our_log = runs.logged(their_run, key), runs.logged(our_run, key)
        if key != "loss" and "gradient_accumulation_steps" not in settings:
            assert {step: our_log[step] for step in their_log} == pytest.approx(their_log, abs=0.1), key
        assert their_log.keys() <= our_log.keys()


def without_substeps(events: list[Any]) -> list[Any]:
    return [event for event in events if event[0] != "on_substep_end"]


def without_the_last_log(ours: list[Any], theirs: list[Any]) -> list[Any]:
    """Takes out one log of a loss at the last step, where the other has none."""
    last = [event for event in ours if event[0] == "on_log" and "loss" in event[5]][-1]
    return [event for event in ours if event != last] if last not in theirs else ours


def test_learning_rates_are_the_same(tmp_path: Path) -> None:
    changes = {"warmup_steps": 0.3, "max_steps": 9}
    _, theirs = seen_under(transformers, tmp_path / "theirs", **changes)
    _, ours = seen_under(burnish, tmp_path / "ours", **changes)
    assert runs.logged(ours, "learning_rate") == pytest.approx(runs.logged(theirs, "learning_rate"), rel=1e-9)


def test_substeps_of_batches_that_stay_whole(tmp_path: Path) -> None:
    """With a loss of the user's own, the batches of a step are theirs, and so are the events between them."""

    def loss(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
        return outputs.logits.pow(2).mean()

    def events(library: Any) -> list[str]:
        recorder = Recorder()
        args = runs.arguments(tmp_path, library.TrainingArguments, gradient_accumulation_steps=2, num_train_epochs=1)
        parts = {"train_dataset": tiny.class_rows(18), "data_collator": runs.collator(), "callbacks": [recorder]}
        run = library.Trainer(model=runs.classifier(), args=args, compute_loss_func=loss, **parts)
        with contextlib.redirect_stdout(io.StringIO()):
            run.train()
        return [event[0] for event in recorder.seen]

    ours = events(burnish)
    assert ours == events(transformers)
    assert ours.count("on_substep_end") == 2


# ---------------------------------------------------------------- flags


class Asks(transformers.TrainerCallback):
    """Sets a flag at an event of step 2, the first time."""

    def __init__(self, event: str, flag: str, returns: bool) -> None:
        self.flag, self.returns, self.done = flag, returns, False
        setattr(self, event, self.ask)

    def ask(self, args: Any, state: Any, control: Any, **details: Any) -> Any:
        if state.global_step == 2 and not self.done:
            self.done = True
            setattr(control, self.flag, True)
        return control if self.returns else None


FLAGS = ("should_log", "should_evaluate", "should_save", "should_epoch_stop", "should_training_stop")


@pytest.mark.parametrize("event", ["on_step_begin", "on_pre_optimizer_step", "on_step_end", "on_log", "on_evaluate"])
@pytest.mark.parametrize("flag", FLAGS)
def test_flags_at_each_event(event: str, flag: str, tmp_path: Path) -> None:
    """What a callback asks for is done at the same place as under transformers."""
    settings = {"logging_steps": 2, "max_steps": 6}
    if event == "on_evaluate":
        settings |= {"eval_strategy": "steps", "eval_steps": 2}

    def done(library: Any, folder: Path) -> Any:
        recorder = Recorder()
        run = watched(library, folder, [recorder, Asks(event, flag, returns=True)], **settings)
        acts = ("on_log", "on_evaluate", "on_save", "on_epoch_begin", "on_epoch_end", "on_step_end")
        return [(e[0], e[1]) for e in recorder.seen if e[0] in acts], run.state.global_step

    (ours, our_end), (theirs, their_end) = (
        done(library, tmp_path / library.__name__) for library in (burnish, transformers)
    )
    assert our_end == their_end
    assert [event for event in ours if event[0] != "on_log"] == [event for event in theirs if event[0] != "on_log"]
    assert set(theirs) <= set(ours)


@pytest.mark.parametrize("returns", [True, False])
def test_control_may_be_returned_or_not(returns: bool, tmp_path: Path) -> None:
    run = watched(burnish, tmp_path, [Asks("on_step_end", "should_training_stop", returns)])
    assert run.state.global_step == 2


def test_another_control_may_be_returned(tmp_path: Path) -> None:
    class Another(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **details: Any) -> Any:
            return transformers.TrainerControl(should_training_stop=state.global_step == 3)

    assert watched(burnish, tmp_path, [Another()]).state.global_step == 3


@pytest.mark.parametrize("event", ["on_step_end", "on_epoch_end", "on_log"])
def test_a_callback_may_evaluate_predict_and_save(event: str, tmp_path: Path) -> None:
    """From within a run, which goes on as if nothing had been."""
    done: list[int] = []

    class Works(burnish.TrainerCallback):
        trainer: Any = None

        def work(self, args: Any, state: Any, control: Any, **details: Any) -> None:
            if "loss" in details.get("logs", {"loss": 0}):
                self.trainer.evaluate(tiny.class_rows(3))
                self.trainer.predict(tiny.class_rows(2))
                self.trainer.save_model(str(tmp_path / "model"))
                done.append(state.global_step)

    def trained(callbacks: list[Any]) -> Any:
        parts = {"model": runs.classifier(hidden_dropout_prob=0.2), "callbacks": callbacks}
        run = runs.trainer(tmp_path, parts=parts, max_steps=6)
        for callback in callbacks:
            callback.trainer = run
            setattr(callback, event, callback.work)
        run.train()
        return run

    assert runs.difference(trained([]).model, trained([Works()]).model) == 0.0
    assert len(done) >= 2
    assert (tmp_path / "model" / "config.json").exists()


# ---------------------------------------------------------------- loaders


def test_loaders_that_callbacks_see(tmp_path: Path) -> None:
    """Their lengths, batches and datasets are those of the run."""
    seen: dict[str, Any] = {}

    class Looks(transformers.TrainerCallback):
        def on_train_begin(
            self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **more: Any
        ) -> None:
            seen["steps"], seen["first"] = len(train_dataloader), next(iter(train_dataloader))

        def on_evaluate(self, args: Any, state: Any, control: Any, **details: Any) -> None:
            seen["evaluated"] = len(details["eval_dataloader"])

    run = watched(burnish, tmp_path, [Looks()], eval_strategy="epoch", max_steps=6)
    assert seen["steps"] == 5 and seen["evaluated"] == 2
    assert seen["first"]["input_ids"].shape[0] == 4
    assert run.num_examples(run.get_train_dataloader()) == 18
    part = Subset(run.train_dataset, [3, 4])
    assert run.num_examples(DataLoader(part)) == 2, "a loader of one's own has the rows it holds"


# ---------------------------------------------------------------- known callbacks


class Scripted:
    """Metrics in a given order."""

    def __init__(self, values: list[float]) -> None:
        self.values = iter(values)

    def __call__(self, prediction: Any) -> dict[str, float]:
        return {"score": next(self.values)}


@pytest.mark.parametrize("callback", [transformers.EarlyStoppingCallback, burnish.EarlyStoppingCallback])
def test_early_stopping(callback: Any, tmp_path: Path) -> None:
    """Best at step 2; two worse evaluations later the run ends, with the best weights."""
    kept: dict[int, Any] = {}

    class Keeps(burnish.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **details: Any) -> None:
            kept[state.global_step] = runs.weights(details["model"])

    run = runs.trainer(
        tmp_path,
        parts={
            "eval_dataset": tiny.class_rows(4), "compute_metrics": Scripted([0.0, 0.1, 0.9, 0.3, 0.4, 1.0, 1.0]),
            "callbacks": [callback(early_stopping_patience=2), Keeps()],
        },
        max_steps=6, eval_strategy="steps", eval_steps=1, save_strategy="steps", save_steps=1,
        load_best_model_at_end=True, metric_for_best_model="score", greater_is_better=True,
    )  # fmt: skip
    run.train()
    assert run.state.global_step == 4
    assert run.state.best_global_step == 2
    assert run.state.best_metric == 0.9
    assert runs.difference(kept[2], run.model) == 0.0


def test_printer_callback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It takes `total_flos` out of what it prints, and nothing out of the history."""
    run = runs.trainer(tmp_path, parts={"callbacks": [transformers.PrinterCallback]}, max_steps=2)
    output = run.train()
    printed = capsys.readouterr().out
    assert "'loss': " in printed and "'train_loss': " in printed
    assert any("total_flos" in entry for entry in run.state.log_history)
    assert output.global_step == 2


def test_progress_callback(tmp_path: Path) -> None:
    run = runs.trainer(
        tmp_path, parts={"callbacks": [transformers.ProgressCallback], "eval_dataset": tiny.class_rows(4)}
    )
    run.train()
    assert run.evaluate()["eval_loss"] > 0


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = runs.trainer(tmp_path, max_steps=3, report_to="tensorboard")
    run.train()
    (events,) = {path.parent for path in tmp_path.rglob("events.out.tfevents*")}
    found = EventAccumulator(str(events)).Reload()
    assert [event.step for event in found.Scalars("train/loss")] == [1, 2, 3]


def test_adding_and_taking_out(tmp_path: Path) -> None:
    run = runs.trainer(tmp_path, parts={"callbacks": [Recorder]}, max_steps=1)
    (held,) = [callback for callback in run.callback_handler.callbacks if isinstance(callback, Recorder)]
    assert run.pop_callback(Recorder) is held
    assert run.pop_callback(Recorder) is None
    run.add_callback(held)
    held.seen.clear()
    run.train()
    assert held.seen[0][0] == "on_train_begin"
    run.remove_callback(Recorder)
    held.seen.clear()
    run.train()
    assert held.seen == []
