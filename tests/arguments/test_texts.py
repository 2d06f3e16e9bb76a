"""Arguments as dict, JSON and text; tokens never show."""

import json
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from transformers import GenerationConfig

from burnish.arguments.training_arguments import Seq2SeqTrainingArguments, TrainingArguments

RICH = {
    "output_dir": "out",
    "eval_strategy": "steps",
    "eval_steps": 5,
    "save_steps": 5,
    "load_best_model_at_end": True,
    "metric_for_best_model": "f1",
    "optim": "sgd",
    "warmup_steps": 0.1,
    "report_to": ["wandb"],
    "lr_scheduler_kwargs": {"num_cycles": 2},
    "gradient_checkpointing": True,
    "torch_compile_backend": "eager",
    "label_names": ["labels"],
    "include_num_input_tokens_seen": True,
    "resume_from_checkpoint": True,
    "trackio_static_space_id": False,
    "nonfinite_policy": "skip",
    "token_budget": 1000,
}


@pytest.mark.parametrize("cls", [TrainingArguments, Seq2SeqTrainingArguments])
@pytest.mark.parametrize("settings", [{}, RICH], ids=["defaults", "rich"])
def test_to_dict_and_back_gives_equal_arguments_without_a_word(cls, settings, caplog):
    args = cls(**settings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = cls(**args.to_dict())
    assert again == args
    assert again.to_dict() == args.to_dict()
    assert caplog.text == ""


def test_json_and_back_gives_equal_arguments():
    args = TrainingArguments(**RICH)
    assert TrainingArguments(**json.loads(args.to_json_string())) == args


def test_values_are_plain():
    values = TrainingArguments(eval_strategy="steps", debug="underflow_overflow").to_dict()
    assert type(values["eval_strategy"]) is str
    assert values["debug"] == ["underflow_overflow"]
    assert type(values["debug"][0]) is str


def test_objects_are_written_as_their_content():
    @dataclass
    class Own(Seq2SeqTrainingArguments):
        model_init_kwargs: dict | None = None

    config = GenerationConfig(max_length=7)
    args = Own(generation_config=config, model_init_kwargs={"dtype": torch.bfloat16})
    assert args.generation_config is config
    values = args.to_dict()
    assert values["generation_config"]["max_length"] == 7
    assert values["model_init_kwargs"] == {"dtype": "bfloat16"}
    assert Own(generation_config=Path("folder")).to_dict()["generation_config"] == "folder"
    json.loads(args.to_json_string())


def test_a_sanitized_dict_has_only_plain_values():
    values = TrainingArguments(**RICH).to_sanitized_dict()
    assert {type(value) for value in values.values()} <= {bool, int, float, str}
    assert values["train_batch_size"] == 8
    assert values["lr_scheduler_kwargs"] == "{'num_cycles': 2}"


def test_tokens_never_show():
    @dataclass
    class Own(TrainingArguments):
        note: str = ""

    for args in (TrainingArguments(hub_token="hf_secret"), Own(hub_token="hf_secret")):
        texts = [repr(args), str(args), f"{args}", args.to_json_string(), str(args.to_sanitized_dict())]
        assert not any("hf_secret" in text for text in texts)
        assert args.to_dict()["hub_token"] == "<HUB_TOKEN>"
        assert args.hub_token == "hf_secret"


def test_a_mask_is_no_token():
    assert TrainingArguments(hub_token="<HUB_TOKEN>").hub_token is None
    assert TrainingArguments().to_dict()["hub_token"] is None


def test_the_repr_is_one_setting_a_line():
    lines = repr(TrainingArguments("out", eval_strategy="epoch")).splitlines()
    assert lines[0] == "TrainingArguments("
    assert "    output_dir='out'," in lines
    assert "    eval_strategy='epoch'," in lines
    assert lines[-1] == ")"
