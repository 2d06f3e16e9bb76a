"""`transformers.HfArgumentParser` builds our arguments from a command line, a dict, a YAML and a JSON file."""

import json
import warnings
from dataclasses import dataclass, field

import pytest
from transformers import HfArgumentParser

from burnish.arguments.training_arguments import Seq2SeqTrainingArguments, TrainingArguments


@dataclass
class WithField(TrainingArguments):
    adapter_rank: int = field(default=8, metadata={"help": "Rank of the adapters."})
    adapter_names: list[str] = field(default_factory=list, metadata={"help": "Names of the adapters."})


CLASSES = [TrainingArguments, Seq2SeqTrainingArguments, WithField]


def parse(cls, *words):
    (args,) = HfArgumentParser(cls).parse_args_into_dataclasses(list(words), look_for_args_file=False)
    return args


@pytest.mark.parametrize("cls", CLASSES)
def test_an_empty_command_line_gives_the_defaults_without_a_word(cls, caplog):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        args = parse(cls)
    assert args == cls()
    assert caplog.text == ""


@pytest.mark.parametrize("cls", CLASSES)
def test_the_help_can_be_shown(cls):
    text = HfArgumentParser(cls).format_help()
    assert "--learning_rate" in text
    assert "--nonfinite_policy" in text


COMMAND_LINE = """
    --output_dir out --learning_rate 1e-4 --do_train --fp16 True --max_steps 5 --warmup_steps 0.1 --logging_steps 10
    --eval_strategy steps --lr_scheduler_type cosine --optim sgd --report_to none --label_names a b
    --gradient_checkpointing --adapter_rank 4 --adapter_names x y --save_total_limit 2 --nonfinite_policy skip
    --no_trim_padding --include_num_input_tokens_seen --log_level info
"""


def test_a_command_line():
    args = parse(WithField, *COMMAND_LINE.split(), "--lr_scheduler_kwargs", '{"num_cycles": 2}')
    assert (args.output_dir, args.learning_rate, args.do_train, args.fp16, args.max_steps) == (
        "out",
        1e-4,
        True,
        True,
        5,
    )
    assert (args.warmup_steps, args.logging_steps, args.eval_steps) == (0.1, 10, 10)
    assert isinstance(args.logging_steps, int)
    assert (args.lr_scheduler_type, args.optim, args.report_to) == ("cosine", "sgd", [])
    assert (args.label_names, args.adapter_rank, args.adapter_names) == (["a", "b"], 4, ["x", "y"])
    assert args.activation_checkpointing is True
    assert (args.save_total_limit, args.nonfinite_policy, args.trim_padding) == (2, "skip", False)
    assert (args.include_num_input_tokens_seen, args.log_level) == ("all", "info")
    assert args.lr_scheduler_kwargs == {"num_cycles": 2}


def test_flags_with_and_without_a_value():
    assert parse(TrainingArguments, "--resume_from_checkpoint").resume_from_checkpoint is True
    assert (
        parse(TrainingArguments, "--resume_from_checkpoint", "x/checkpoint-1").resume_from_checkpoint
        == "x/checkpoint-1"
    )
    assert parse(TrainingArguments, "--tf32", "false").tf32 is False
    assert parse(TrainingArguments, "--include_num_input_tokens_seen", "non_padding").include_num_input_tokens_seen == (
        "non_padding"
    )


def test_a_yaml_file_in_which_1e_4_is_text(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text(
        "output_dir: out\nlearning_rate: 1e-4\nuse_cpu: true\nmax_steps: '1'\nreport_to: none\neval_strategy: no\n"
        "save_strategy: epoch\nlr_scheduler_kwargs:\n  num_cycles: 2\nrun_name: 2024\nadapter_rank: '3'\n"
    )
    (args,) = HfArgumentParser(WithField).parse_yaml_file(str(file))
    assert args.learning_rate == pytest.approx(1e-4)
    assert isinstance(args.learning_rate, float)
    assert (args.use_cpu, args.max_steps, args.report_to, args.eval_strategy) == (True, 1, [], "no")
    assert (args.lr_scheduler_kwargs, args.run_name, args.adapter_rank) == ({"num_cycles": 2}, "2024", 3)


def test_a_json_file_and_a_dict(tmp_path):
    settings = {"output_dir": "out", "learning_rate": "1e-4", "fp16": "True", "save_steps": 0.5}
    file = tmp_path / "run.json"
    file.write_text(json.dumps(settings))
    (from_file,) = HfArgumentParser(TrainingArguments).parse_json_file(str(file))
    (from_dict,) = HfArgumentParser(TrainingArguments).parse_dict(settings)
    assert from_file == from_dict == TrainingArguments("out", learning_rate=1e-4, fp16=True, save_steps=0.5)


def test_fields_still_convert_after_a_parser_has_read_them():
    """The parser writes into the fields of the class."""
    HfArgumentParser(WithField)
    assert WithField(adapter_rank="5", max_steps="7", save_total_limit="none").adapter_rank == 5


def test_several_dataclasses_at_once():
    @dataclass
    class Model:
        model_name: str = "tiny"

    parser = HfArgumentParser([Model, TrainingArguments])
    model, args = parser.parse_args_into_dataclasses(["--model_name", "m", "--seed", "3"], look_for_args_file=False)
    assert (model.model_name, args.seed) == ("m", 3)
