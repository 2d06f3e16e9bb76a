"""A trainer leaves the world as it found it: randomness, settings, configs, loggers, environment."""

from __future__ import annotations

import copy
import logging
import os
import random
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
import transformers
from trainer import runs

from burnish import Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer

Action = Callable[[Any], Any]
ACTIONS: dict[str, Action] = {
    "train": lambda run: run.train(),
    "evaluate": lambda run: run.evaluate(),
    "predict": lambda run: run.predict(tiny.class_rows(3)),
    "save_model": lambda run: run.save_model(),
    "train_loader": lambda run: list(run.get_train_dataloader()),
    "card": lambda run: run.create_model_card(),
}


def draws() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def seed_everything() -> None:
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)


def made(folder: Path, **settings: Any) -> Any:
    parts = {"model": runs.classifier(hidden_dropout_prob=0.2), "eval_dataset": tiny.class_rows(5)}
    return runs.trainer(folder, parts=parts, max_steps=3, **settings)


@pytest.fixture
def seeded() -> tuple[float, float, float]:
    """Seeds everything, and what is drawn next."""
    seed_everything()
    following = draws()
    seed_everything()
    return following


@pytest.mark.parametrize("name", ACTIONS)
def test_random_state_is_kept(name: str, seeded: tuple[float, float, float], tmp_path: Path) -> None:
    run = made(tmp_path, dataloader_num_workers=1)
    seed_everything()
    ACTIONS[name](run)
    assert draws() == seeded


def test_model_init_draws_for_itself(seeded: tuple[float, float, float], tmp_path: Path) -> None:
    config = tiny.bert_config(num_hidden_layers=1)

    def fresh() -> Any:
        return transformers.BertForSequenceClassification(config)

    run = runs.trainer(tmp_path, parts={"model_init": fresh}, max_steps=1)
    assert draws() == seeded
    seed_everything()
    run.train()
    assert draws() == seeded


def test_random_state_is_kept_after_an_error(seeded: tuple[float, float, float], tmp_path: Path) -> None:
    class Fails(Trainer):
        def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
            raise RuntimeError("no log")

    run = runs.trainer(tmp_path, Fails)
    seed_everything()
    with pytest.raises(RuntimeError, match="no log"):
        run.train()
    assert draws() == seeded
    assert not run.is_in_train


def test_settings_are_not_written_to(tmp_path: Path) -> None:
    args = runs.arguments(
        tmp_path, max_steps=3, eval_strategy="steps", save_strategy="steps", load_best_model_at_end=True,
        gradient_checkpointing=True, warmup_steps=0.5, lr_scheduler_kwargs={}, label_names=None,
    )  # fmt: skip
    before, attributes = copy.deepcopy(args.to_dict()), dict(vars(args))
    run = Trainer(
        model=runs.classifier(), args=args, train_dataset=tiny.class_rows(8), eval_dataset=tiny.class_rows(3),
        data_collator=runs.collator(),
    )  # fmt: skip
    run.train()
    run.evaluate()
    run.predict(tiny.class_rows(2))
    assert args.to_dict() == before
    assert vars(args) == attributes
    assert run.args is args


def test_the_config_is_left_alone(tmp_path: Path) -> None:
    """`use_cache` and the like are what the user had, in memory and on disk."""
    model = tiny.llama()
    before = model.config.to_dict()
    assert before["use_cache"] is True
    run = runs.trainer(
        tmp_path, parts={"model": model, "train_dataset": tiny.language_rows(8)}, max_steps=2, bf16=True,
        gradient_checkpointing=True, save_strategy="steps", save_steps=1,
    )  # fmt: skip
    run.data_collator = transformers.DataCollatorForTokenClassification(tiny.tokenizer())
    run.train()
    run.save_model()
    assert model.config.to_dict() == before
    for folder in (tmp_path, tmp_path / "checkpoint-1"):
        saved = transformers.AutoConfig.from_pretrained(folder)
        assert saved.use_cache is True
        assert saved._attn_implementation in (None, "sdpa", "eager")
        assert "burnish" not in (folder / "config.json").read_text()
    assert model.config._attn_implementation == tiny.llama().config._attn_implementation


@pytest.mark.parametrize("settings", [{}, {"gradient_checkpointing": True}, {"neftune_noise_alpha": 5.0}])
def test_the_model_has_no_hooks_left(settings: dict[str, Any], tmp_path: Path) -> None:
    def hooks(model: torch.nn.Module) -> list[int]:
        kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
        return [len(getattr(part, kind)) for part in model.modules() for kind in kinds]

    run = made(tmp_path, **settings)
    before, forwards = hooks(run.model), {part: vars(part).get("forward") for part in run.model.modules()}
    run.train()
    assert hooks(run.model) == before
    assert {part: vars(part).get("forward") for part in run.model.modules()} == forwards
    assert not run.model.is_gradient_checkpointing
    assert all(not parameter.grad.any() for parameter in run.model.parameters() if parameter.grad is not None)


def surroundings() -> Iterator[Any]:
    yield dict(os.environ)
    yield {name: logging.getLogger(name).level for name in ("", "burnish", "transformers", "torch", "accelerate")}
    yield {name: list(logging.getLogger(name).handlers) for name in ("burnish", "transformers")}
    yield [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)]
    yield torch.get_num_threads(), torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
    yield torch.backends.cuda.matmul.allow_tf32, torch.is_grad_enabled()
    yield list(warnings.filters)
    yield os.getcwd()


def test_surroundings_are_kept(tmp_path: Path) -> None:
    made(tmp_path / "first").train()  # imports what is imported once
    before = list(surroundings())
    run = made(
        tmp_path, full_determinism=True, tf32=False, bf16=True, eval_strategy="steps", save_strategy="steps",
        log_level="debug", dataloader_num_workers=1, torch_compile=False,
    )  # fmt: skip
    run.train()
    run.evaluate()
    run.predict(tiny.class_rows(2))
    assert run.accelerator is not None
    for was, now in zip(before, surroundings(), strict=True):
        assert now == was


def test_rows_are_left_alone(tmp_path: Path) -> None:
    """Collators that take things out of rows work on copies, in training and in evaluation."""

    def greedy(rows: list[dict[str, Any]]) -> Any:
        labels = [row.pop("labels") for row in rows]
        return {**runs.collator()(rows), "labels": torch.tensor(labels)}

    rows = tiny.class_rows(8)
    before = copy.deepcopy(rows)
    run = runs.trainer(tmp_path, parts={"train_dataset": rows, "data_collator": greedy}, num_train_epochs=2)
    run.train()
    run.evaluate(rows)
    assert rows == before


def test_the_model_keeps_what_was_frozen(tmp_path: Path) -> None:
    model = runs.classifier()
    for parameter in model.bert.parameters():
        parameter.requires_grad = False
    before = runs.weights(model)
    run = runs.trainer(tmp_path, parts={"model": model}, max_steps=3, weight_decay=0.1)
    run.train()
    changed = {name for name, value in runs.weights(model).items() if not torch.equal(value, before[name])}
    assert changed == {"classifier.weight", "classifier.bias"}
    assert run.get_num_trainable_parameters() == 66


def test_generation_settings_are_left_alone(tmp_path: Path) -> None:
    model = tiny.t5()
    before = model.generation_config.to_dict()
    args = runs.arguments(tmp_path, Seq2SeqTrainingArguments, predict_with_generate=True, generation_num_beams=2)
    collator = transformers.DataCollatorForSeq2Seq(tiny.tokenizer())
    run = Seq2SeqTrainer(model=model, args=args, data_collator=collator, eval_dataset=tiny.pair_rows(3))
    run.evaluate(max_length=6)
    assert model.generation_config.to_dict() == before
