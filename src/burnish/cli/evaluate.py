"""`burnish evaluate`: measures a trained model on a file with labels, and shows where it is wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from burnish.checkpoint.layout import RUN
from burnish.core.errors import DataError, SettingError, UserError, did_you_mean
from burnish.tasks.recipe import DataRequest, ModelRequest

from . import generated_texts
from .console import say
from .evaluation_report import Report, print_report, write_report
from .flags import Flag
from .help import help_text
from .parse import Given, parse
from .quiet import quiet
from .rows import Row, columns_of, read_rows
from .schema import data_flags, model_flags, training_flags
from .threads import load_torch
from .trained import check_model, run_settings, trained_task

USAGE = """\
Measures a trained model on a file of rows with labels: the loss, the metrics of its task, and where it is wrong
(the rows of highest loss; for classes the confusion matrix, a table of the classes and the calibration).

Usage: burnish evaluate MODEL FILE [flags]     MODEL: the folder of a run, a model or a checkpoint
                                               FILE: CSV, TSV, JSON, JSONL or Parquet, with labels
"""
OWN_FLAGS = (
    Flag("metrics", "list", None, "What to measure, such as accuracy f1_macro roc_auc; docs/metrics.md has all names. "
         "Default: those of the run, else what is usual for the task.", "Flags", "run"),
    Flag("output_dir", "str", None, "Folder for the results. Default: evaluation/ in the folder of the run.",
         "Flags", "run"),
    Flag("worst_rows", "int", 50, "Rows of highest loss to write to worst_rows.csv.", "Flags", "run"),
    Flag("json", "bool", False, "Print one JSON object, for other programs, in place of tables.", "Flags", "run",
         alone=True),
    Flag("task", "str", None, "Task of a model that burnish did not train.", "Flags", "run"),
    Flag("debug", "bool", False, "Show where in the code an error arose.", "Flags", "run", alone=True),
)  # fmt: skip
OF_DATA = ("text_column", "label_column", "problem_type", "max_eval_samples", "max_seq_length")
OF_MODEL = ("tokenizer_name", "trust_remote_code", "torch_dtype")
OF_TRAINING = (
    *("per_device_eval_batch_size", "use_cpu", "bf16", "fp16", "bf16_full_eval", "fp16_full_eval", "seed"),
    *("label_smoothing_factor", "dataloader_num_workers", "predict_with_generate", "generation_max_length"),
    *("generation_num_beams", "generation_config", "generation_max_rows"),
)
AS_IN_THE_RUN = (
    *("per_device_eval_batch_size", "seed", "bf16", "fp16", "bf16_full_eval", "fp16_full_eval"),
    "label_smoothing_factor",
)
"""Settings of the run that an evaluation takes over, so that its numbers are those that the run would have found."""
FOLDER, PREFIX = "evaluation", "eval"


def evaluate_flags() -> dict[str, Flag]:
    """All that the command can be told, by name."""
    asked = {*OF_DATA, *OF_MODEL, *OF_TRAINING}
    others = [flag for flag in (*data_flags(), *model_flags(), *training_flags()) if flag.name in asked]
    found = {flag.name: flag for flag in OWN_FLAGS}
    return {**{flag.name: replace(flag, section="Flags") for flag in others}, **found}


def command(words: Sequence[str]) -> int:
    """Runs `burnish evaluate` with the words that follow it."""
    flags = evaluate_flags()
    if {"-h", "--help", "--help-all"} & set(words):
        say(help_text(USAGE, flags.values()))
        return 0
    given = parse(words, flags)
    model, file = _model_and_file(given)
    folder = Path(given.values.get("output_dir") or _folder_beside(model))
    _check_folder(folder)
    report = evaluate(model, file, folder, given.values)
    written = write_report(report, folder)
    if given.values.get("json"):
        say(json.dumps(report.as_json(written), ensure_ascii=False))
    else:
        print_report(report, folder, written)
    return 0


def evaluate(model: Path, file: str, folder: Path, given: dict[str, Any]) -> Report:
    """What an evaluation of the rows of a file finds. Raises `UserError`.

    Args:
        folder: for the texts that are generated.
        given: flags by name.
    """
    rows = read_rows(file)
    data = _data(model, file, rows, given)
    load_torch()
    with quiet():
        from burnish.evaluation.judge import checked
        from burnish.tasks.registry import recipe, recipe_of

        of_model = {name: given[name] for name in OF_MODEL if name in given}
        asked = recipe(given["task"]) if given.get("task") else recipe_of(model)
        metrics = checked(given.get("metrics") or _metrics_of_run(model, given), "--metrics")
        run = asked.prepare(data, ModelRequest(str(model), **of_model))
        run.compute_metrics = metrics or run.compute_metrics
        arguments = _arguments(model, folder, given)
        run = generated_texts.judged(run, arguments)
        return _measured(asked.name, run, arguments, rows, given.get("worst_rows", 50), file)


def _model_and_file(given: Given) -> tuple[Path, str]:
    if len(given.words) != 2:
        raise SettingError("Give a model and a file with labels. For example: burnish evaluate out data.csv")
    model, file = Path(given.words[0]), given.words[1]
    check_model(model, "evaluate")
    if given.values.get("worst_rows", 50) < 0:
        raise SettingError(f"--worst_rows {given.values['worst_rows']}: set it to 0 or more.")
    return model, file


def _folder_beside(model: Path) -> Path:
    """Where results go; a checkpoint stays as it was saved."""
    of_run = model.resolve().parent
    is_checkpoint = model.resolve().name.startswith("checkpoint-") and (of_run / RUN).is_file()
    return model.parent / FOLDER / model.name if is_checkpoint else model / FOLDER


def _check_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be made ({error.strerror}). Choose another --output_dir.") from None
    if not os.access(folder, os.W_OK):
        raise UserError(f"{folder} is not writable. Choose another --output_dir.")


def _data(model: Path, file: str, rows: list[Row], given: dict[str, Any]) -> DataRequest:
    """The request of the rows, with the columns and the length that the model was trained with. Raises `DataError`."""
    trained, run = trained_task(model), run_settings(model)
    asked = {name: given[name] for name in OF_DATA if name in given}
    for flag, key in (("text_column", "text_columns"), ("label_column", "label_columns")):
        if flag not in asked and trained.get(key):
            asked[flag] = ",".join(trained[key])
    if asked.get("label_column"):
        _check_label(file, columns_of(rows), asked["label_column"], "label_column" in given)
    length = run["max_seq_length"] if "max_seq_length" in run else trained.get("max_seq_length")
    return DataRequest(validation_file=file, **{"max_seq_length": length, **asked})


def _check_label(file: str, there: list[str], label: str, told: bool) -> None:
    """A file without labels is for `burnish predict`."""
    missing = [] if label in there else [name.strip() for name in label.split(",") if name.strip() not in there]
    if missing:
        why = "as --label_column says" if told else "which the model was trained on"
        raise DataError(
            f"{file}: there is no column {missing[0]!r} with the labels, {why}.{did_you_mean(missing[0], there)} The "
            f"columns are {', '.join(map(repr, there))}. Set --label_column; rows without labels are for "
            "`burnish predict`."
        )


def _metrics_of_run(model: Path, given: dict[str, Any]) -> list[str] | None:
    """What `--metrics` of the run asked for, where they are of the same: of texts that are generated, or of logits."""
    run = run_settings(model)
    is_alike = bool(run.get("predict_with_generate")) == bool(given.get("predict_with_generate"))
    return run.get("metrics") if is_alike else None


def _arguments(model: Path, folder: Path, given: dict[str, Any]) -> Any:
    from burnish.arguments.training_arguments import Seq2SeqTrainingArguments

    of_run = {name: value for name, value in run_settings(model).items() if name in AS_IN_THE_RUN}
    if given.get("use_cpu"):
        of_run = {name: value for name, value in of_run.items() if "16" not in name}
    asked = {name: given[name] for name in OF_TRAINING if name in given}
    fixed = {"output_dir": str(folder), "report_to": [], "disable_tqdm": True}
    return Seq2SeqTrainingArguments(**{**of_run, **asked, **fixed})


def _measured(task: str, run: Any, arguments: Any, rows: list[Row], most_rows: int, file: str) -> Report:
    """Metrics, and what is said of single rows."""
    from burnish.evaluation.row_losses import token_losses
    from burnish.tracking.console import ConsoleCallback
    from burnish.tracking.jsonl import JsonLinesCallback
    from burnish.trainer import Trainer

    from .evaluation_report import of_classes, of_numbers, of_tokens

    def trainer_of(kind: type, **more: Any) -> Any:
        trainer = kind(
            model=run.model, args=arguments, data_collator=run.data_collator, eval_dataset=run.eval_dataset,
            processing_class=run.processing_class, **more,
        )  # fmt: skip
        for callback in (ConsoleCallback, JsonLinesCallback):
            trainer.remove_callback(callback)
        return trainer

    report = Report(task, file, rows, run, texts_file=None)
    if task in ("text-classification", "token-classification"):
        trainer = trainer_of(Trainer, compute_metrics=run.compute_metrics)
        found = trainer.predict(run.eval_dataset, metric_key_prefix=PREFIX)
        report.metrics = dict(found.metrics or {})
        is_regression = getattr(run.model.config, "problem_type", None) == "regression"
        (of_numbers if is_regression else of_classes)(report, found, most_rows)
        return report
    if run.compute_metrics:
        report.metrics = trainer_of(
            generated_texts.trainer_class(arguments), compute_metrics=run.compute_metrics
        ).evaluate()
        report.texts_file = next(iter(sorted(Path(str(arguments.output_dir)).glob(f"texts/{PREFIX}-*.jsonl"))), None)
    trainer = trainer_of(Trainer)
    shifts = trainer.facts.shifts_labels
    trainer.preprocess_logits_for_metrics = lambda logits, labels: token_losses(logits, labels, shifts)
    found = trainer.predict(run.eval_dataset, metric_key_prefix=PREFIX)
    report.metrics = report.metrics or dict(found.metrics or {})
    if run.metrics_of_loss is not None:
        further = run.metrics_of_loss(report.metrics[f"{PREFIX}_loss"])
        report.metrics |= {f"{PREFIX}_{name}": value for name, value in further.items()}
    of_tokens(report, found.predictions, most_rows)
    return report
