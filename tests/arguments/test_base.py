"""Names that do not exist, short names, attributes of anyone's own, and classes that users derive."""

import dataclasses
import inspect
import logging
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from burnish.arguments.base import UnknownSettingError
from burnish.arguments.training_arguments import Seq2SeqTrainingArguments, TrainingArguments
from burnish.core.errors import SettingError

if TYPE_CHECKING:
    from somewhere import Unknown


@dataclass
class WithField(TrainingArguments):
    adapter_rank: int = field(default=8, metadata={"help": "Rank of the adapters."})
    batch_size: int = 1


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("learning_rte", "learning_rate"),
        ("eval_step", "eval_steps"),
        ("batch_size", "per_device_train_batch_size"),
        ("epochs", "num_train_epochs"),
        ("optimizer", "optim"),
        ("max_step", "max_steps"),
        ("eval_stratgy", "eval_strategy"),
        ("load_best", "load_best_model_at_end"),
        ("resume", "resume_from_checkpoint"),
        ("metric", "metric_for_best_model"),
        ("evaluate_during_training", "eval_strategy"),
    ],
)
def test_an_unknown_argument_is_refused_with_what_was_meant(name, meant):
    with pytest.raises(
        UnknownSettingError, match=f"TrainingArguments has no argument `{name}`. Did you mean `{meant}`"
    ):
        TrainingArguments("out", **{name: 1})


def test_an_unknown_argument_far_from_all_has_no_suggestion():
    with pytest.raises(UnknownSettingError) as refused:
        TrainingArguments(zzz=1)
    assert str(refused.value) == "TrainingArguments has no argument `zzz`."


@pytest.mark.parametrize("kind", [TypeError, ValueError, SettingError])
def test_an_unknown_argument_is_an_error_of_every_expected_kind(kind):
    with pytest.raises(kind):
        TrainingArguments(zzz=1)


def test_lr_is_taken_as_learning_rate():
    with pytest.warns(UserWarning, match="`lr` is taken as `learning_rate`"):
        args = TrainingArguments(lr="1e-3")
    assert args.learning_rate == 1e-3
    with pytest.warns(UserWarning, match="`lr` is taken as `learning_rate`") as said:
        args.lr = 2e-3
    assert said[0].filename == __file__
    assert args.learning_rate == args.lr == 2e-3
    assert "lr" not in vars(args)


@pytest.mark.parametrize(("name", "meant"), [("learning_rat", "learning_rate"), ("epochs", "num_train_epochs")])
def test_an_attribute_close_to_a_field_is_mentioned(name, meant, caplog):
    args = TrainingArguments()
    with caplog.at_level(logging.WARNING, "burnish"):
        setattr(args, name, 5)
    assert f"`{name}` is no field of TrainingArguments. Did you mean `{meant}`?" in caplog.text
    assert getattr(args, name) == 5


def test_other_attributes_are_anyones_own(caplog):
    args = TrainingArguments()
    with caplog.at_level(logging.WARNING, "burnish"):
        args.teacher_temperature = 2.0
        args._n_gpu = 1
        args.teacher_temperature = 3.0
    assert (args.teacher_temperature, args._n_gpu) == (3.0, 1)
    assert caplog.text == ""


def test_a_derived_dataclass_has_all_of_it():
    with pytest.warns(FutureWarning, match="`no_cuda`") as said:
        args = WithField("out", no_cuda=True, adapter_rank="16", learning_rate="1e-4")
    assert len(said) == 1
    assert (args.use_cpu, args.adapter_rank, args.learning_rate) == (True, 16, 1e-4)
    with pytest.raises(
        UnknownSettingError, match=r"WithField has no argument `adapter_rnk`. Did you mean `adapter_rank`"
    ):
        WithField(adapter_rnk=1)


def test_a_field_of_a_derived_class_is_no_mistake():
    assert WithField(batch_size=3).batch_size == 3


def test_a_derived_class_may_have_a_field_with_an_old_or_short_name():
    @dataclass
    class Own(TrainingArguments):
        lr: float = 0.5
        logging_dir: str = "logs"

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        args = Own("out", lr="0.25", logging_dir="there")
        args.lr = 0.75
    assert (args.lr, args.logging_dir, args.learning_rate) == (0.75, "there", 5e-5)


def test_a_derived_class_may_change_a_default_and_add_what_follows():
    @dataclass
    class Own(TrainingArguments):
        learning_rate: float = 2e-5
        scale: float = 1.0

        def __post_init__(self):
            self.scaled = self.learning_rate * self.scale
            super().__post_init__()

    args = Own(scale="2")
    assert (args.learning_rate, args.scaled) == (2e-5, 4e-5)


def test_a_class_with_a_constructor_of_its_own():
    class Own(TrainingArguments):
        def __init__(self, output_dir, temperature=1.0, **kwargs):
            super().__init__(output_dir, **kwargs)
            self.temperature = temperature

    with pytest.warns(FutureWarning) as said:
        args = Own("out", temperature=3.0, evaluation_strategy="epoch")
    assert len(said) == 1
    assert (args.temperature, args.eval_strategy) == (3.0, "epoch")
    with pytest.raises(UnknownSettingError, match="learning_rate"):
        Own("out", learning_rte=1)


def test_an_abstract_base_beside_it():
    class Named(ABC):
        @abstractmethod
        def name(self): ...

    @dataclass
    class Own(TrainingArguments, Named):
        def name(self):
            return self.output_dir

    assert Own("out").name() == "out"


def test_an_annotation_for_type_checkers_only_leaves_the_other_fields_as_they_are():
    @dataclass
    class Own(TrainingArguments):
        learning_rate: "float" = 1e-3
        helper: "Unknown | None" = None

    helper = object()
    args = Own(learning_rate="1e-4", max_steps="5", helper=helper)
    assert (args.learning_rate, args.max_steps, args.helper) == (1e-4, 5, helper)


@pytest.mark.parametrize("cls", [TrainingArguments, WithField])
def test_the_signature_is_that_of_the_fields(cls):
    names = [f.name for f in dataclasses.fields(cls)]
    assert list(inspect.signature(cls).parameters) == names
    assert list(inspect.signature(cls.__init__).parameters) == ["self", *names]
    assert cls().output_dir == "trainer_output"
    assert list(inspect.signature(cls).parameters) == names


def test_too_many_positional_arguments_are_a_type_error():
    with pytest.raises(TypeError):
        TrainingArguments(*range(200))


def test_seq2seq_arguments_are_training_arguments():
    args = Seq2SeqTrainingArguments("out", predict_with_generate="True", generation_num_beams="4")
    assert isinstance(args, TrainingArguments)
    assert (args.output_dir, args.predict_with_generate, args.generation_num_beams) == ("out", True, 4)
