"""What a second run in a folder may do."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from burnish.arguments.training_arguments import Seq2SeqTrainingArguments
from burnish.checkpoint.run_manifest import FINISHED, RunManifest, now
from burnish.cli.fingerprints import DATA_FILES, fingerprints
from burnish.cli.folder_lock import held
from burnish.cli.run_changes import differences
from burnish.cli.run_folder import check_only_measured, decide, move_aside
from burnish.core.errors import CheckpointError, SettingError, UserError
from burnish.tasks.recipe import DataRequest, ModelRequest


def record(**settings: Any) -> RunManifest:
    values = {"learning_rate": 1e-4, "num_train_epochs": 2.0, "logging_steps": 10, **settings}
    told = {name: {"value": value, "origin": "flag"} for name, value in values.items()}
    return RunManifest(task="text-classification", settings=told, command="burnish train")


def finished(folder: Path) -> None:
    """A run that has come to its end there."""
    run = record()
    run.state, run.ended = FINISHED, now()
    run.write(folder)


def decided(folder: Path, run: RunManifest, overwrite: bool = False, resume: Any = None) -> Any:
    return decide(folder, run, overwrite, resume)


def test_a_new_folder_is_used(tmp_path):
    decision = decided(tmp_path / "out", record())
    assert decision.resume_from is None
    assert not decision.move_aside
    assert not (tmp_path / "out").exists()


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(UserError, match=r"holds no run of burnish.*--overwrite_output_dir"):
        decided(tmp_path, record())
    assert decided(tmp_path, record(), overwrite=True).move_aside


def test_a_finished_run_is_refused_with_the_ways_out(tmp_path):
    finished(tmp_path)
    with pytest.raises(UserError) as error:
        decided(tmp_path, record(logging_steps=3))
    said = str(error.value)
    assert "finished" in said and "burnish predict" in said
    assert "--output_dir" in said and "--overwrite_output_dir" in said and "--num_train_epochs" in said


def test_more_epochs_of_a_finished_run_are_told_to_resume(tmp_path):
    finished(tmp_path)
    with pytest.raises(UserError) as error:
        decided(tmp_path, record(num_train_epochs=4.0))
    assert "num_train_epochs  2.0  4.0" in str(error.value)
    assert "for more epochs:      --resume_from_checkpoint" in str(error.value)


def test_another_finished_run_shows_what_differs(tmp_path):
    finished(tmp_path)
    with pytest.raises(UserError) as error:
        decided(tmp_path, record(learning_rate=2e-4, logging_steps=3))
    assert "learning_rate  0.0001  0.0002" in str(error.value)
    assert "logging_steps" not in str(error.value)


def test_a_run_that_never_saved_anything_is_started_anew(tmp_path):
    record().write(tmp_path)
    decision = decided(tmp_path, record(learning_rate=1.0))
    assert decision.resume_from is None
    assert "starting anew" in decision.note


def test_resuming_without_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(CheckpointError):
        decided(tmp_path, record(), resume=True)


def test_overwriting_and_resuming_exclude_each_other(tmp_path):
    with pytest.raises(SettingError):
        decided(tmp_path, record(), overwrite=True, resume=True)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(UserError, match="is a file"):
        decided(tmp_path / "out" / "run", record())


CHANGE_THE_NUMBERS = {
    # which rows there are, and what a model sees of them
    *("train_file", "validation_file", "dataset_name", "dataset_config_name", "text_column", "label_column"),
    *("problem_type", "max_train_samples", "max_seq_length", "validation_split", "remove_unused_columns"),
    *("label_names",),
    # the model
    *("model_name_or_path", "config_name", "tokenizer_name", "model_revision", "trust_remote_code", "torch_dtype"),
    *("ignore_mismatched_sizes",),
    # which rows a step has, and how many steps there are
    *("per_device_train_batch_size", "gradient_accumulation_steps", "num_train_epochs", "max_steps", "seed"),
    *("data_seed", "train_sampling_strategy", "length_column_name", "dataloader_drop_last", "packing"),
    *("packing_length", "split_stream"),
    # what an update is
    *("learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "fit_schedule_to_max_time"),
    *("optim", "optim_args", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm"),
    *("label_smoothing_factor", "neftune_noise_alpha", "nonfinite_policy", "ddp_broadcast_buffers"),
    # precision, and engines whose own configurations may say all of the above
    *("bf16", "fp16", "tf32", "full_determinism", "fsdp", "fsdp_config", "deepspeed"),
}
SETTINGS = {
    *(field.name for kind in (Seq2SeqTrainingArguments, DataRequest, ModelRequest) for field in fields(kind)),
} - {"token", "hub_token"}  # never recorded


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_only_settings_that_change_the_numbers_make_another_run(tmp_path, name):
    assert CHANGE_THE_NUMBERS <= SETTINGS
    one, two = record(**{name: "as it was"}), record(**{name: "as it is now"})
    for number, run in enumerate((one, two)):
        run.data = {name: {"path": f"{number}.csv", "sha256": f"{number}"}} if name in DATA_FILES else {}
    assert [change.name for change in differences(one, two)] == ([name] if name in CHANGE_THE_NUMBERS else [])


def test_moving_aside_takes_the_first_free_name(tmp_path):
    for content in ("one", "two"):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / content).write_text("")
        move_aside(tmp_path / "out")
    assert (tmp_path / "out.1" / "one").exists()
    assert (tmp_path / "out.2" / "two").exists()
    assert not (tmp_path / "out").exists()


def test_a_data_file_is_known_by_its_content(tmp_path):
    one, two = record(), record()
    for run, name, content in ((one, "a.csv", "text\nx\n"), (two, "b.csv", "text\nx\n")):
        (tmp_path / name).write_text(content)
        run.data = fingerprints({"train_file": str(tmp_path / name)})
    assert differences(one, two) == []
    (tmp_path / "b.csv").write_text("text\ny\n")
    two.data = fingerprints({"train_file": str(tmp_path / "b.csv")})
    assert [change.name for change in differences(one, two)] == ["train_file"]


def test_a_missing_data_file_names_what_is_there(tmp_path):
    (tmp_path / "train.csv").write_text("")
    with pytest.raises(UserError, match=r"--train_file .*trian\.csv: there is no such file.*train\.csv"):
        fingerprints({"train_file": str(tmp_path / "trian.csv")})


def test_a_damaged_record_is_said(tmp_path):
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        decided(tmp_path, record())


def test_numbers_of_one_model_are_not_written_over_those_of_another(tmp_path):
    finished(tmp_path)
    with pytest.raises(UserError, match="results of another model"):
        check_only_measured(tmp_path, "someone/model", overwrite=False)
    check_only_measured(tmp_path, str(tmp_path), overwrite=False)
    check_only_measured(tmp_path, str(tmp_path / "checkpoint-3"), overwrite=False)
    check_only_measured(tmp_path / "new", "someone/model", overwrite=False)
    with pytest.raises(SettingError, match="overwrite_output_dir"):
        check_only_measured(tmp_path, str(tmp_path), overwrite=True)


def test_two_runs_at_once_in_a_folder_are_refused(tmp_path):
    with held(tmp_path), pytest.raises(UserError, match="Another run is under way"):
        decided(tmp_path, record())
    assert decided(tmp_path, record()).resume_from is None


def test_what_a_run_reads_is_not_moved_aside(tmp_path, monkeypatch):
    (tmp_path / "train.csv").write_text("text,label")
    for setting in ("train_file", "model_name_or_path", "deepspeed", "generation_config"):
        with pytest.raises(UserError, match=f"would move .* aside, and with it --{setting}"):
            decided(tmp_path, record(**{setting: str(tmp_path / "train.csv")}), overwrite=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="the folder you are in"):
        decided(Path("."), record(), overwrite=True)
