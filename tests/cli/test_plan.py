"""The length that is said before a run is the length that it has."""

import pytest

from burnish import TrainingArguments
from burnish.cli.plan import Length, batch, length_of
from burnish.core.errors import DataError, SettingError


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
