"""Optimizers by name: class, arguments, options, and what is said of names that cannot be built."""

from __future__ import annotations

import importlib.util
import logging

import pytest
import tiny
import torch
import transformers
from torch import nn
from transformers.training_args import OptimizerNames

from burnish.core.errors import SettingError
from burnish.optim.catalogue import NOT_YET, OPTIMIZERS
from burnish.optim.optimizers import build_optimizer, optimizer_class_and_kwargs, set_training

BUILT_IN = [name for name, entry in OPTIMIZERS.items() if entry.package in ("torch", "transformers")]


def test_every_name_of_transformers_is_known() -> None:
    assert {name.value for name in OptimizerNames} <= OPTIMIZERS.keys() | NOT_YET.keys()
    assert not OPTIMIZERS.keys() & NOT_YET.keys()
    assert all(near in OPTIMIZERS for names in NOT_YET.values() for near in names)


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("options", [None, "momentum=0.9,nesterov=True"])
def test_class_and_arguments_are_those_of_transformers(name: str, options: str | None, tmp_path) -> None:
    if options and name != "sgd":
        options = None
    args = transformers.TrainingArguments(
        str(tmp_path),
        optim=name,
        optim_args=options,
        learning_rate=0.01,
        adam_beta1=0.8,
        adam_epsilon=1e-6,
        use_cpu=True,
    )
    reference = transformers.Trainer.get_optimizer_cls_and_kwargs(args)
    found_class, found = optimizer_class_and_kwargs(
        name, learning_rate=0.01, betas=(0.8, 0.999), eps=1e-6, optim_args=options
    )
    found = {key: value for key, value in found.items() if key != "warmup_init"}  # False, as by default
    assert (found_class, found) == reference


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_whose_package_is_installed_trains(name: str) -> None:
    package = OPTIMIZERS[name].package
    if importlib.util.find_spec(package) is None:
        with pytest.raises(SettingError, match=f"{name}.*pip install {package}"):
            optimizer_class_and_kwargs(name, learning_rate=0.01)
        return
    if package == "torchao":
        pytest.skip("its step is compiled for minutes")
    model = tiny.bert("SequenceClassification")
    batch = {"input_ids": torch.tensor([[5, 6], [7, 8]]), "labels": torch.tensor([0, 1])}
    optimizer = build_optimizer(name, model, learning_rate=1e-3, weight_decay=0.01)
    set_training(optimizer, True)
    losses = []
    for _ in range(8):  # the rectified optimizers stand still in the first steps
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_state_can_be_exchanged_with_transformers(tmp_path) -> None:
    model = tiny.llama()
    args = transformers.TrainingArguments(str(tmp_path), learning_rate=0.01, weight_decay=0.1, use_cpu=True)
    theirs = transformers.Trainer(model, args).create_optimizer()
    ours = build_optimizer("adamw_torch_fused", model, learning_rate=0.01, weight_decay=0.1)
    model(input_ids=torch.tensor([[5, 6]]), labels=torch.tensor([[5, 6]])).loss.backward()
    theirs.step()
    ours.load_state_dict(theirs.state_dict())
    assert all(torch.equal(ours.state[p]["exp_avg"], theirs.state[p]["exp_avg"]) for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("sgd", "momentum=0.9,dampening=0", {"momentum": 0.9, "dampening": 0}),
        ("rmsprop", {"alpha": 0.95, "centered": "true"}, {"alpha": 0.95, "centered": True}),
        ("adamw_torch", "beta2=0.95,amsgrad=1", {"betas": (0.9, 0.95), "amsgrad": True}),
        ("adafactor", "beta1=0.9,clip_threshold=2", {"beta1": 0.9, "clip_threshold": 2}),
    ],
)
def test_options_reach_the_optimizer(name, options, expected) -> None:
    optimizer_class, kwargs = optimizer_class_and_kwargs(name, learning_rate=0.01, optim_args=options)
    assert {key: kwargs[key] for key in expected} == expected
    optimizer_class([nn.Parameter(torch.zeros(1))], **kwargs)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("sgd", "momentun=0.9", "'momentun'.*'sgd'.*momentum, nesterov.*Did you mean 'momentum'"),
        ("sgd", "nesterov=often", "'nesterov'.*True or False"),
        ("sgd", "weight_decay=0.1", "weight_decay in optim_args would change nothing"),
        ("adafactor", "relative_step=True", "'relative_step'"),
        ("adamw_toch", None, "'adamw_toch' is unknown.*Did you mean 'adamw_torch'"),
        ("galore_adamw_8bit", None, "not available in burnish yet.*'adamw_8bit'"),
        ("lomo", None, "not available in burnish yet.*'adafactor'"),
        ("adamw_hf", None, "not available.*'adamw_torch'"),
    ],
)
def test_what_cannot_be_is_said(name: str, options: str | None, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        optimizer_class_and_kwargs(name, learning_rate=0.01, optim_args=options)


def test_fused_gives_way_where_it_cannot_train(caplog) -> None:
    real, complex_number = (nn.Parameter(torch.zeros(1, dtype=kind)) for kind in (torch.float32, torch.complex64))
    with caplog.at_level(logging.WARNING, logger="burnish"):
        _, kwargs = optimizer_class_and_kwargs("adamw_torch_fused", learning_rate=0.01, parameters=[real])
        assert kwargs["fused"] is True and not caplog.records
        _, kwargs = optimizer_class_and_kwargs(
            "adamw_torch_fused", learning_rate=0.01, parameters=[real, complex_number]
        )
    assert "fused" not in kwargs
    assert "plain AdamW is used" in caplog.text and "complex64" in caplog.text


def test_nothing_to_train_is_refused() -> None:
    model = nn.Linear(2, 2).requires_grad_(False)
    with pytest.raises(SettingError, match="No parameter of Linear is trainable"):
        build_optimizer("adamw_torch", model, learning_rate=0.01)
