"""Settings in groups."""

import inspect

import pytest
import transformers

from burnish.arguments.setters import Setters
from burnish.arguments.training_arguments import TrainingArguments
from burnish.core.errors import SettingError

NAMES = sorted(name for name in vars(Setters) if name.startswith("set_"))


def test_the_methods_are_those_of_transformers():
    assert sorted(name for name in dir(transformers.TrainingArguments) if name.startswith("set_")) == NAMES


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.newest
def test_the_arguments_are_those_of_transformers(name):
    def parameters(cls):
        return list(inspect.signature(getattr(cls, name)).parameters)

    assert parameters(TrainingArguments) == parameters(transformers.TrainingArguments)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "set_push_to_hub"])
def test_without_arguments_a_group_gets_its_defaults(name):
    args = TrainingArguments("out")
    assert getattr(args, name)() is args
    expected = TrainingArguments(
        "out", do_train=name == "set_training", do_predict=name == "set_testing",
        eval_steps=500 if name == "set_evaluate" else None,
    )  # fmt: skip
    assert args == expected


def test_groups_can_be_chained():
    args = TrainingArguments("out").set_training(learning_rate="1e-3", batch_size=4, gradient_checkpointing=True)
    args = args.set_evaluate("steps", steps=10, batch_size=2).set_save("epoch", total_limit=3).set_logging(steps=5)
    args = args.set_optimizer("sgd", learning_rate=0.1).set_lr_scheduler("cosine", warmup_steps=0.1)
    args = args.set_dataloader(train_batch_size=16, num_workers=2, sampler_seed=7)
    assert (args.learning_rate, args.per_device_train_batch_size, args.activation_checkpointing) == (0.1, 16, True)
    assert (args.eval_strategy, args.eval_steps, args.do_eval) == ("steps", 10, True)
    assert (args.save_strategy, args.save_total_limit, args.logging_steps) == ("epoch", 3, 5)
    assert (args.optim, args.lr_scheduler_type, args.warmup_steps) == ("sgd", "cosine", 0.1)
    assert (args.dataloader_num_workers, args.data_seed) == (2, 7)


def test_an_upload_and_its_token(caplog):
    args = TrainingArguments().set_push_to_hub("me/model", token="hf_secret")
    assert (args.push_to_hub, args.hub_model_id, args.hub_token) == (True, "me/model", "hf_secret")
    assert caplog.text == "" and "hf_secret" not in str(args)


def test_a_group_refuses_what_a_field_refuses():
    with pytest.raises(SettingError, match="`eval_strategy`"):
        TrainingArguments().set_evaluate("stepz")
