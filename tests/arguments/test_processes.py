"""Device, processes and what follows from them."""

import logging
from datetime import timedelta

import pytest
import torch

from burnish.arguments.choices import ParallelMode
from burnish.arguments.training_arguments import TrainingArguments


@pytest.fixture
def rank_3_of_4(monkeypatch):
    """The second process of the second machine, as a launcher says it."""
    for name, value in {"WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def alone(monkeypatch):
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)


def test_the_device_is_the_cpu_where_asked():
    args = TrainingArguments(use_cpu=True)
    assert args.device == torch.device("cpu")
    assert args.n_gpu == 0


def test_the_gpu_has_the_number_of_the_process(monkeypatch, rank_3_of_4):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert TrainingArguments().device == torch.device("cuda", 1)
    assert TrainingArguments().n_gpu == 1


@pytest.mark.usefixtures("alone")
def test_one_process():
    args = TrainingArguments(per_device_train_batch_size=4, per_device_eval_batch_size=6)
    assert (args.world_size, args.process_index, args.local_process_index) == (1, 0, 0)
    assert args.parallel_mode is ParallelMode.NOT_PARALLEL
    assert args.should_log
    assert args.should_save
    assert (args.train_batch_size, args.eval_batch_size) == (4, 6)
    with args.main_process_first():
        pass


@pytest.mark.usefixtures("rank_3_of_4")
def test_one_of_several_processes():
    args = TrainingArguments()
    assert (args.world_size, args.process_index, args.local_process_index) == (4, 3, 1)
    assert args.parallel_mode is ParallelMode.DISTRIBUTED
    assert not args.should_log
    assert not args.should_save


def test_the_first_process_of_another_machine(monkeypatch, rank_3_of_4):
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert TrainingArguments().should_log
    assert not TrainingArguments(log_on_each_node=False).should_log
    assert not TrainingArguments().should_save
    assert TrainingArguments(save_on_each_node=True).should_save


@pytest.mark.parametrize(
    ("warmup", "steps"), [(0, 0), (100, 100), ("0.1", 10), (0.101, 11), (0.999, 100), (1, 1), (1.0, 1)]
)
def test_warmup_steps_of_a_run_of_100(warmup, steps):
    assert TrainingArguments(warmup_steps=warmup).get_warmup_steps(100) == steps


@pytest.mark.parametrize(("settings", "precision"), [({}, "no"), ({"fp16": True}, "fp16"), ({"bf16": True}, "bf16")])
def test_mixed_precision(settings, precision):
    assert TrainingArguments(**settings).mixed_precision == precision


@pytest.mark.usefixtures("alone")
def test_log_levels(monkeypatch):
    assert TrainingArguments(log_level="error").get_process_log_level() == logging.ERROR
    assert TrainingArguments().get_process_log_level() == logging.getLogger("burnish").getEffectiveLevel()
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert TrainingArguments(log_level="debug").get_process_log_level() == logging.WARNING


def test_small_answers():
    args = TrainingArguments()
    assert args.ddp_timeout_delta == timedelta(minutes=30)
    assert args.place_model_on_device is True
