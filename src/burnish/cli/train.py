"""`burnish train`: from a command line to a trained model in a folder."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from burnish.checkpoint.run_manifest import RunManifest
from burnish.core.errors import SettingError, UnsavedError
from burnish.core.processes import check_meeting_place, launch, scheduler, told_to_all
from burnish.core.secrets import hidden_in_words

from . import generated_texts, going_on, results, run_folder
from .console import print_pairs, print_table, say
from .fingerprints import fingerprints
from .folder_lock import held
from .help import help_text
from .plan import plan
from .quiet import quiet
from .settings import Settings, read_settings, recorded, with_validation
from .threads import load_torch

USAGE = """\
Fine-tunes a pretrained model on your file.

Usage: burnish train --model_name_or_path MODEL --train_file FILE [--validation_file FILE] --output_dir OUT [flags]
       burnish train run.yaml [flags]      settings from a YAML or JSON file; flags go before it
"""
CLOSING = """\
Flags are written --name value or --name=value; yes/no flags --name, --name false or --no_name.
The same command goes on with an interrupted run."""


@dataclass
class Phases:
    """What a run does."""

    train: bool
    evaluate: bool
    predict: bool


def command(words: Sequence[str]) -> int:
    """Runs `burnish train` with the words that follow it."""
    from burnish.arguments.old_names import OLD_NAMES

    from .schema import train_flags

    flags = train_flags()
    if {"-h", "--help", "--help-all", "--help_all"} & set(words):
        every = bool({"--help-all", "--help_all"} & set(words))
        closing = CLOSING if every else f"{CLOSING}\nThese are the flags used most; --help-all lists all of them."
        say(help_text(USAGE, flags.values(), every, closing))
        return 0
    written = shlex.join(["burnish", "train", *hidden_in_words(words)])
    settings = read_settings(words, flags, frozenset(OLD_NAMES), written)
    if starts_processes(settings):
        from burnish.engines.launch import checked_count, run_in_processes

        count = checked_count(settings.run["num_processes"], bool(settings.arguments().use_cpu))
        return run_in_processes(["-m", "burnish", "train", *words], count, settings.run["max_restarts"])
    train(settings)
    return 0


def starts_processes(settings: Settings) -> bool:
    """Whether this process is to start those that train.

    Raises:
        SettingError: a launcher has started another number of them, or they do not know where they meet.
    """
    asked, there = settings.run["num_processes"], launch()
    if settings.run["max_restarts"] and asked is None:
        raise SettingError("--max_restarts needs --num_processes. torchrun has a --max-restarts of its own.")
    is_scheduled = scheduler() is not None
    if is_scheduled:
        check_meeting_place()
    if asked is not None and (is_scheduled or "WORLD_SIZE" in os.environ) and asked != there.count:
        raise SettingError(
            f"--num_processes {asked}, and the launcher has started {there.count}: leave one of them out."
        )
    return asked not in (None, there.count)


def train(settings: Settings) -> dict[str, Any]:
    """Prepares, says the plan, trains, evaluates, predicts and writes what is asked for.

    Returns:
        What was measured, by name. Raises `UserError`.
    """
    chosen = with_validation(settings) if expects_validation(settings) else {}
    arguments = settings.arguments(chosen)
    phases = phases_of(arguments, settings)
    load_torch()
    from burnish.engines.processes import processes_for

    processes = processes_for(arguments)
    with told_to_all(processes):
        record = record_of(settings, arguments, chosen)
        decision = processes.from_first(lambda: decided(settings, arguments, phases, record))
        announce(decision)
        if arguments.push_to_hub and phases.train:
            processes.from_first(lambda: check_hub(arguments))
        return prepared_and_carried_out(settings, chosen, phases, decision, record)


def decided(settings: Settings, arguments: Any, phases: Phases, record: RunManifest) -> run_folder.Decision:
    """What happens with the folder of the run."""
    from burnish.run.resuming import has_begun

    folder, overwrite = settings.output_dir, settings.run["overwrite_output_dir"]
    if not phases.train:
        run_folder.check_only_measured(folder, settings.model.model_name_or_path, overwrite)
        return run_folder.Decision()
    if has_begun(folder):  # and is started again: it goes on, whatever it was asked to begin with
        return run_folder.decide(folder, record, False, None)
    return run_folder.decide(folder, record, overwrite, arguments.resume_from_checkpoint)


def check_hub(arguments: Any) -> None:
    """Before the data are read: whether the model can be uploaded at the end. Raises `HubError`."""
    from burnish.run.hub import check

    check(arguments)


def prepared_and_carried_out(
    settings: Settings, chosen: Mapping[str, Any], phases: Phases, decision: run_folder.Decision, record: RunManifest
) -> dict[str, Any]:
    """The run, from its parts to its results. Of several processes the first to come fills the caches."""
    arguments = settings.arguments(chosen)
    with quiet():
        run = generated_texts.judged(prepare(settings, phases), arguments)
        chosen = with_best_metric(chosen, run, settings)
        if phases.train and run.eval_dataset is None:
            chosen = {}
        arguments = settings.arguments(chosen)
        print_pairs("plan", plan(settings, run, arguments, chosen, phases.train))
        say()
        record.settings = recorded(settings, arguments, chosen)
        return carry_out(settings, run, arguments, phases, decision, record)


def expects_validation(settings: Settings) -> bool:
    """Whether there will be rows to evaluate on, as far as the settings tell."""
    data = settings.data
    return bool(data.validation_file or data.validation_split or data.dataset_name)


def phases_of(arguments: Any, settings: Settings) -> Phases:
    """What was asked for; with nothing said, training, and an evaluation where there are rows for it."""
    given = settings.training
    if not any(given.get(name) for name in ("do_train", "do_eval", "do_predict")):
        said_no = {name for name in ("do_train", "do_eval") if given.get(name) is False}
        phases = Phases("do_train" not in said_no, expects_validation(settings) and "do_eval" not in said_no, False)
    else:
        phases = Phases(bool(arguments.do_train), bool(given.get("do_eval")), bool(arguments.do_predict))
        if phases.train and "do_eval" not in given:
            phases.evaluate = expects_validation(settings)
    data = settings.data
    needs = [(phases.train, "do_train", data.train_file, "train_file"),
             (phases.predict, "do_predict", data.test_file, "test_file")]  # fmt: skip
    for asked, flag, file, name in needs:
        if asked and not file and not data.dataset_name:
            raise SettingError(f"--{flag} needs --{name}.")
    if phases.evaluate and not expects_validation(settings):
        raise SettingError("--do_eval needs --validation_file, or --validation_split.")
    strategy = arguments.eval_strategy.value
    if phases.train and strategy != "no" and not expects_validation(settings):
        raise SettingError(f"--eval_strategy {strategy} needs --validation_file, or --validation_split.")
    if settings.run["metrics"] and not (phases.evaluate or phases.predict or expects_validation(settings)):
        raise SettingError("--metrics needs rows to measure on: --validation_file, or --validation_split.")
    if phases == Phases(False, False, False):
        raise SettingError("Nothing is left to do: give --do_train, --do_eval or --do_predict.")
    return phases


def record_of(settings: Settings, arguments: Any, chosen: Mapping[str, Any]) -> RunManifest:
    return RunManifest(
        task=settings.task,
        settings=recorded(settings, arguments, chosen),
        command=settings.command,
        data=fingerprints(vars(settings.data)),
    )


def announce(decision: run_folder.Decision) -> None:
    """What happens with a folder that is not empty."""
    if decision.note:
        say(decision.note)
    if decision.changes:
        rows = [[change.name, change.was, change.now] for change in decision.changes]
        print_table("with other settings than before", ["setting", "was", "now"], rows)


def prepare(settings: Settings, phases: Phases) -> Any:
    """The parts of the run, from the recipe of the task. Files of phases that are not asked for are not read."""
    from burnish.evaluation.judge import checked
    from burnish.tasks.metrics import best_of
    from burnish.tasks.registry import recipe

    data, asked = settings.data, checked(settings.run["metrics"], "--metrics")
    if not phases.predict:
        data = replace(data, test_file=None)
    run = recipe(settings.task).prepare(data, settings.model)
    if asked:
        run.compute_metrics, run.metric_for_best_model = asked, best_of(asked, run.metric_for_best_model)
    return run


def with_best_metric(chosen: Mapping[str, Any], run: Any, settings: Settings) -> dict[str, Any]:
    """The task's own measure decides which checkpoint is best, unless the user said another."""
    if not run.metric_for_best_model or not chosen.get("load_best_model_at_end"):
        return dict(chosen)
    if "metric_for_best_model" in settings.training:
        return dict(chosen)
    return {**chosen, "metric_for_best_model": run.metric_for_best_model}


def carry_out(
    settings: Settings, run: Any, arguments: Any, phases: Phases, decision: run_folder.Decision, record: RunManifest
) -> dict[str, Any]:
    """The phases in their order. The manifest of a training says that it is finished once all results are there."""
    from burnish.run.recording import closing

    folder = settings.output_dir
    if decision.move_aside and arguments.process_index == 0:
        say(f"{folder} was moved to {run_folder.move_aside(folder)}")
    with held(folder):
        with going_on.told_when_stopped(settings), closing(record, folder):
            metrics = measure(settings, run, arguments, phases, decision.resume_from, record)
        if phases.train:
            results.print_next(folder, settings.data.validation_file)
        if phases.train and not record.finished:
            going_on.say_how_after(settings, record.reason)
    return metrics


def measure(
    settings: Settings, run: Any, arguments: Any, phases: Phases, resume_from: str | None, record: RunManifest
) -> dict[str, Any]:
    """Trains, evaluates and predicts. Returns what was measured, by name."""
    from burnish.run.recording import Recording
    from burnish.run.uploads import Uploads
    from burnish.tracking.values import record as as_json

    trainer = generated_texts.trainer_class(arguments)(
        model=run.model,
        args=arguments,
        data_collator=run.data_collator,
        train_dataset=run.train_dataset if phases.train else None,
        eval_dataset=run.eval_dataset,
        processing_class=run.processing_class,
        compute_metrics=run.compute_metrics,
    )
    trainer.recording, trainer.uploads = Recording(record), Uploads(at_end=False)
    metrics: dict[str, Any] = {}
    if phases.train:
        try:
            trained = trainer.train(resume_from_checkpoint=resume_from)
        except UnsavedError as error:
            raise going_on.with_model_rescued(error, trainer, settings) from error
        metrics |= measured(trainer, "train", trained.metrics)
        trainer.save_state()
    if phases.evaluate and run.eval_dataset is not None:
        known = results.evaluation_at_the_end(trainer.state, arguments) if phases.train else None
        metrics |= measured(trainer, "eval", known or trainer.evaluate())
    if phases.train:
        upload(trainer, leave(settings, run, arguments, trainer, metrics))
    if phases.predict:
        metrics |= predict_test_file(settings, run, trainer, phases.train)
    record.result["metrics"] = as_json(metrics)
    results.print_results(metrics)
    results.print_best(trainer.state, arguments)
    if trainer.uploads.failed is not None:
        raise trainer.uploads.failed
    return metrics


def measured(trainer: Any, split: str, metrics: dict[str, Any]) -> dict[str, Any]:
    """Writes the metrics of a split to its file, and to `all_results.json`."""
    trainer.save_metrics(split, metrics)
    return metrics


def leave(settings: Settings, run: Any, arguments: Any, trainer: Any, metrics: Mapping[str, Any]) -> list[str]:
    """Model and tokenizer, the picture of the loss, the card. The names of their files, on the first process."""
    from burnish.run.export import exported

    names = exported(trainer)
    if not trainer.is_world_process_zero():
        return names
    has_curve = results.draw_loss(trainer.state.log_history, settings.output_dir)
    results.write_card(settings, run, arguments, metrics, has_curve, trainer.hub_model_id)
    return [*names, results.CARD, *([results.CURVE] if has_curve else [])]


def upload(trainer: Any, names: Sequence[str]) -> None:
    """The model to the hub, where that is asked for. A failure ends the command, once all else is done."""
    from burnish.run.hub import upload_model

    if not trainer.args.push_to_hub:
        return
    repository = trainer.uploads.repository
    say(f"\nuploading the model to {repository.url if repository else 'the hub'}")
    upload_model(trainer, names, "End of training")


def predict_test_file(settings: Settings, run: Any, trainer: Any, trained: bool) -> dict[str, Any]:
    """Writes `predictions.csv` for the test file; its metrics where the file has labels."""
    from .predict import predictions_for_file

    assert settings.data.test_file is not None
    model = settings.output_dir if trained else settings.model.model_name_or_path
    path = settings.output_dir / "predictions.csv"
    if trainer.is_world_process_zero():
        predictions_for_file(model, settings.task, settings.data.test_file, path, settings.data.max_predict_samples)
    say(f"predictions: {path}")
    if "labels" not in (getattr(run.predict_dataset, "column_names", None) or ()):
        return {}
    return measured(trainer, "predict", trainer.evaluate(run.predict_dataset, metric_key_prefix="predict"))
