"""The length that is said before a run is the length that it has."""

import pytest
import tiny
import transformers

from burnish import Trainer, TrainingArguments
from burnish.cli.plan import Length, _training, batch, device, length_of
from burnish.core.errors import DataError, SettingError
from burnish.run.data import source_for
from burnish.tasks.recipe import TaskRun


def arguments(**settings):
    return TrainingArguments(output_dir="out", per_device_train_batch_size=8, **settings)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"num_train_epochs": 2}, Length(6, 12, 2.0)),
        ({"num_train_epochs": 1.5, "gradient_accumulation_steps": 2}, Length(3, 5, 1.5)),
        ({"max_steps": 3}, Length(6, 3, 0.5)),
        ({"num_train_epochs": 1, "dataloader_drop_last": True}, Length(5, 5, 1.0)),
        # an incomplete batch is dropped, an incomplete step is not
        ({"num_train_epochs": 1, "dataloader_drop_last": True, "gradient_accumulation_steps": 2}, Length(3, 3, 1.0)),
    ],
)
def test_steps_of_forty_five_rows(settings, expected):
    assert length_of(45, arguments(**settings)) == expected


def test_a_run_without_a_step_is_refused():
    with pytest.raises(DataError, match="7 training rows are fewer than a batch of 8"):
        length_of(7, arguments(dataloader_drop_last=True))
    with pytest.raises(SettingError, match="takes no step"):
        length_of(7, arguments(num_train_epochs=0))


def test_the_batch_is_said_with_its_factors():
    assert batch(arguments()) == "8 examples a step"
    assert batch(arguments(gradient_accumulation_steps=4)) == "32 examples a step (8 × 4)"


def test_processes_and_what_divides_the_model_are_said(monkeypatch):
    assert device(arguments(use_cpu=True, bf16=True)) == "cpu (bf16)"
    divided = arguments(use_cpu=True, fsdp=True)
    monkeypatch.setattr(TrainingArguments, "world_size", 4)
    assert device(divided) == "cpu (fp32), 4 processes, FSDP full_shard"


def test_packed_runs_are_as_long_as_their_bins_say(tmp_path):
    """And the plan says how full these are."""
    rows = tiny.class_rows(30)
    run = TaskRun(tiny.bert("SequenceClassification"), None, train_dataset=rows)
    settings = arguments(packing=True, packing_length=40, num_train_epochs=2, use_cpu=True)
    said = dict(_training(run, settings))
    collator = transformers.DataCollatorWithPadding(tiny.tokenizer())
    source = source_for(Trainer(run.model, settings, collator, rows), settings)
    assert said["steps"].startswith(f"{2 * source.steps_per_epoch} (2 epochs")
    assert said["batch"] == "8 bins a step"
    filled = sum(len(row["input_ids"]) for row in rows) / (40 * len(source.plan.bins))
    assert said["packing"] == f"30 rows in {len(source.plan.bins)} bins of 40 tokens, {filled:.1%} filled"
