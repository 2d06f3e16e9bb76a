"""How long a run is, what it starts from, and what stays when it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers
from torch import nn
from trainer import runs

import burnish
from burnish import Trainer
from burnish.core.errors import NonFiniteError, SettingError

# ---------------------------------------------------------------- length

LENGTHS: dict[str, tuple[dict[str, Any], int, float]] = {
    "whole_passes": ({"num_train_epochs": 2}, 10, 2.0),
    "one_and_a_half": ({"num_train_epochs": 1.5}, 8, 1.6),
    "tenth": ({"num_train_epochs": 0.1}, 1, 0.2),
    "steps": ({"max_steps": 7}, 7, 1.4),
    "steps_win": ({"max_steps": 3, "num_train_epochs": 9}, 3, 0.6),
    "dropped_last": ({"num_train_epochs": 2, "dataloader_drop_last": True}, 8, 2.0),
    "accumulated": ({"num_train_epochs": 2, "gradient_accumulation_steps": 2}, 6, 2.0),
    "accumulated_dropped": (
        {"num_train_epochs": 2, "gradient_accumulation_steps": 3, "dataloader_drop_last": True}, 4, 2.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LENGTHS)
def test_length(name: str, tmp_path: Path) -> None:
    """18 rows in batches of 4."""
    settings, steps, epoch = LENGTHS[name]
    run = runs.trainer(tmp_path, **settings)
    output = run.train()
    assert output.global_step == run.state.global_step == run.state.max_steps == steps
    assert run.state.epoch == pytest.approx(epoch)


def test_every_row_once_a_pass(tmp_path: Path) -> None:
    seen: list[list[int]] = []

    class Watch(burnish.TrainerCallback):
        def on_epoch_begin(self, args: Any, state: Any, control: Any, **details: Any) -> None:
            seen.append([])

    rows = tiny.class_rows(18)
    for number, row in enumerate(rows):
        row["input_ids"] = [10 + number] + [6] * (len(row["input_ids"]) - 1)
    model = runs.classifier()
    parts = {"model": model, "train_dataset": rows, "callbacks": [Watch()]}
    run = runs.trainer(tmp_path, parts=parts, num_train_epochs=2)
    table = model.bert.embeddings.word_embeddings
    table.register_forward_hook(lambda part, args, out: seen[-1].extend(marks(args[0])) if seen else None)
    run.train()
    assert [sorted(found) for found in seen] == [list(range(10, 28))] * 2
    assert seen[0] != seen[1]


def marks(ids: torch.Tensor) -> list[int]:
    """The numbers of the rows that go through the model in training."""
    return [token for token in ids.flatten().tolist() if token >= 10]


@pytest.mark.parametrize(("warmup", "expected"), [(2, [0, 0.5, 1, 1]), (0.5, [0, 0.5, 1, 1]), (0, [1, 1, 1, 1])])
def test_warmup_as_number_or_share(warmup: float, expected: list[float], tmp_path: Path) -> None:
    settings = {"lr_scheduler_type": "constant_with_warmup", "learning_rate": 1.0}
    run = runs.trainer(tmp_path, max_steps=4, warmup_steps=warmup, **settings)
    run.train()
    assert list(runs.logged(run, "learning_rate").values()) == expected


# ---------------------------------------------------------------- starting


def test_model_init(tmp_path: Path) -> None:
    """Each train() starts from the model that the seed makes, whatever was drawn before."""
    config = tiny.bert_config(num_hidden_layers=1)

    def fresh() -> Any:
        return transformers.BertForSequenceClassification(config)

    run = runs.trainer(tmp_path, parts={"model_init": fresh}, max_steps=2)
    start = runs.weights(run.model)
    run.train()
    first, trained = run.model, runs.weights(run.model)
    torch.rand(5)
    run.train()
    assert run.model is not first
    assert runs.difference(trained, run.model) == 0.0
    assert runs.difference(start, trained) > 0.0
    other = runs.trainer(tmp_path, parts={"model_init": fresh}, seed=7)
    assert runs.difference(start, other.model) > 0.0


def test_model_init_with_a_trial(tmp_path: Path) -> None:
    """The argument may have any name; one with a default is left alone."""
    trials: list[Any] = []

    def by_another_name(t: Any) -> Any:
        trials.append(t)
        return runs.classifier()

    run = runs.trainer(tmp_path, parts={"model_init": by_another_name}, max_steps=1)
    run.train(trial={"lr": 1})
    assert trials == [None, {"lr": 1}]

    def with_default(layers: int = 1) -> Any:
        return runs.classifier(num_hidden_layers=layers)

    assert runs.trainer(tmp_path, parts={"model_init": with_default}).model.config.num_hidden_layers == 1


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"model": None}, "either `model` or `model_init`"),
        ({"model": nn.Linear(1, 1), "model_init": lambda: nn.Linear(1, 1)}, "exactly one of the two"),
        ({"model_init": lambda: None}, "returned None"),
    ],
)
def test_what_a_trainer_cannot_start_from(parts: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=message):
        Trainer(args=runs.arguments(tmp_path), **parts)


def test_arguments_that_do_not_exist(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"no argument 'train_datasets'. Did you mean 'train_dataset'"):
        Trainer(model=runs.classifier(), args=runs.arguments(tmp_path), train_datasets=[])
    with pytest.warns(FutureWarning, match="processing_class"):
        run = Trainer(model=runs.classifier(), args=runs.arguments(tmp_path), tokenizer=tiny.tokenizer())
    assert run.processing_class is not None
    with pytest.raises(TypeError, match="no argument 'resume'"):
        run.train(resume=True)


def test_settings_of_transformers(tmp_path: Path) -> None:
    """An object made for transformers.Trainer is taken over by name."""
    theirs = runs.arguments(tmp_path, transformers.TrainingArguments, max_steps=3, warmup_steps=0.5)
    before = theirs.to_dict()
    run = Trainer(model=runs.classifier(), args=theirs, train_dataset=tiny.class_rows(8), data_collator=runs.collator())
    run.train()
    assert isinstance(run.args, burnish.TrainingArguments)
    assert run.state.global_step == 3
    assert run.args.warmup_steps == 0.5
    assert theirs.to_dict() == before


def test_no_settings_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = Trainer(model=runs.classifier(), train_dataset=tiny.class_rows(8), data_collator=runs.collator())
    assert run.args.output_dir == "tmp_trainer"
    with pytest.raises(SettingError, match=r"args must be a burnish\.TrainingArguments, not a dict"):
        Trainer(model=runs.classifier(), args={"learning_rate": 1.0})  # type: ignore[arg-type]


def test_without_data(tmp_path: Path) -> None:
    run = runs.trainer(tmp_path, parts={"train_dataset": None})
    with pytest.raises(SettingError, match="requires a train_dataset"):
        run.train()
    with pytest.raises(SettingError, match="requires an eval_dataset"):
        run.evaluate()
    with pytest.raises(SettingError, match="eval_strategy is 'epoch', but Trainer was given no eval_dataset"):
        runs.trainer(tmp_path, eval_strategy="epoch").train()


# ---------------------------------------------------------------- again


def test_a_second_run_goes_on_from_the_weights(tmp_path: Path) -> None:
    """Another train() is another run: its own optimizer, schedule and history, from the weights there are."""
    run = runs.trainer(tmp_path, max_steps=3)
    run.train()
    middle, history = runs.weights(run.model), list(run.state.log_history)
    run.train()
    assert run.state.global_step == 3
    assert [entry["step"] for entry in run.state.log_history] == [entry["step"] for entry in history]
    other = runs.trainer(tmp_path, max_steps=3)
    other.model.load_state_dict(middle, strict=False)
    other.train()
    assert runs.difference(run.model, other.model) == 0.0


def test_evaluating_and_predicting_change_nothing(tmp_path: Path) -> None:
    """With dropout, before a run and between its steps."""
    model = {"hidden_dropout_prob": 0.3}

    def trained(**settings: Any) -> Any:
        parts = {"model": runs.classifier(**model), "eval_dataset": tiny.class_rows(5)}
        run = runs.trainer(tmp_path, parts=parts, max_steps=6, **settings)
        if settings:
            run.evaluate()
            run.predict(tiny.class_rows(3))
        run.train()
        return run

    plain = trained()
    assert runs.difference(plain.model, trained(eval_strategy="steps", eval_steps=1, eval_on_start=True).model) == 0.0


def test_settings_assigned_after_construction(tmp_path: Path) -> None:
    run = runs.trainer(tmp_path)
    run.args.max_steps = 2
    run.args.learning_rate = 0.25
    run.args.lr_scheduler_type = "constant"
    run.args.per_device_train_batch_size = 6
    run.train()
    assert runs.logged(run, "learning_rate") == {1: 0.25, 2: 0.25}
    assert run.state.num_examples_seen == 12
    run.args.per_device_eval_batch_size = 1
    assert len(run.get_eval_dataloader(tiny.class_rows(5))) == 5


def test_given_optimizer_and_schedule(tmp_path: Path) -> None:
    model = runs.classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    run = runs.trainer(tmp_path, parts={"model": model, "optimizers": (optimizer, schedule)}, max_steps=2)
    run.train()
    assert runs.logged(run, "learning_rate") == {1: 0.1, 2: 0.05}
    assert run.optimizer is optimizer


def test_class_of_optimizer(tmp_path: Path) -> None:
    parts = {"optimizer_cls_and_kwargs": (torch.optim.Adagrad, {"lr": 0.3})}
    run = runs.trainer(tmp_path, parts=parts, max_steps=2, lr_scheduler_type="constant")
    run.train()
    assert type(run.optimizer) is torch.optim.Adagrad
    assert runs.logged(run, "learning_rate") == {1: 0.3, 2: 0.3}


# ---------------------------------------------------------------- ways of computing

WAYS: dict[str, dict[str, Any]] = {
    "gradient_checkpointing": {"gradient_checkpointing": True},
    "reentrant_checkpointing": {
        "gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": True},
    },
    "workers": {"dataloader_num_workers": 1},
    "small_budget": {"token_budget": 30},
    "plain_padding": {"padding_free": False, "trim_padding": False},
}  # fmt: skip


@pytest.mark.parametrize("name", WAYS)
def test_same_weights(name: str, tmp_path: Path) -> None:
    plain = runs.trainer(tmp_path, max_steps=6, adam_epsilon=1e-5)
    plain.train()
    other = runs.trainer(tmp_path, max_steps=6, adam_epsilon=1e-5, **WAYS[name])
    other.train()
    assert runs.difference(plain.model, other.model) < 1e-6


@pytest.mark.slow
def test_compiled(tmp_path: Path) -> None:
    """By a backend that makes no code: the same weights, and the model itself stays as it was."""
    plain = runs.trainer(tmp_path, max_steps=3, adam_epsilon=1e-5)
    plain.train()
    run = runs.trainer(
        tmp_path, parts={"eval_dataset": tiny.class_rows(5)}, max_steps=3, adam_epsilon=1e-5, torch_compile=True,
        torch_compile_backend="aot_eager", eval_strategy="steps", eval_steps=1, save_strategy="steps",
    )  # fmt: skip
    run.train()
    assert runs.difference(plain.model, run.model) < 1e-5
    assert run.model_wrapped is run.model
    loaded = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "checkpoint-3")
    assert runs.difference(loaded, run.model) == 0.0


def test_neftune(tmp_path: Path) -> None:
    """Noise in training only, and gone afterwards."""
    rows = tiny.class_rows(6)
    plain, noisy = (
        runs.trainer(tmp_path, parts={"eval_dataset": rows}, max_steps=3, learning_rate=rate, **changes)
        for rate, changes in ((0.0, {}), (0.0, {"neftune_noise_alpha": 5.0}))
    )
    plain.train()
    noisy.train()
    assert runs.logged(noisy, "loss") != runs.logged(plain, "loss")
    assert noisy.evaluate()["eval_loss"] == pytest.approx(plain.evaluate()["eval_loss"])
    assert not noisy.model.get_input_embeddings()._forward_hooks


# ---------------------------------------------------------------- numbers that are not finite


class Spoiled(nn.Module):
    """A loss that is NaN for rows with a mark."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(2, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        loss = (self.layer(x).squeeze(-1) - labels).square()
        return {"loss": (loss * torch.where(x[:, 0] > 50, torch.nan, 1.0)).mean()}


def spoiled_rows(bad: int = 5) -> list[dict[str, Any]]:
    return [{"x": [99.0 if number == bad else 1.0, float(number)], "labels": 1.0} for number in range(8)]


def spoiled(folder: Path, policy: str, bad: int = 5) -> Any:
    return runs.trainer(
        folder, parts={"model": Spoiled(), "train_dataset": spoiled_rows(bad), "data_collator": None},
        nonfinite_policy=policy, num_train_epochs=1, per_device_train_batch_size=2,
        train_sampling_strategy="sequential",
    )  # fmt: skip


def test_stop_at_a_loss_that_is_not_finite(tmp_path: Path) -> None:
    run = spoiled(tmp_path, "stop")
    with pytest.raises(NonFiniteError, match=r"step 3.*row 5"):
        run.train()
    kept: dict[int, Any] = {}

    class Keeps(burnish.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **details: Any) -> None:
            kept[state.global_step] = runs.weights(details["model"])

    again = spoiled(tmp_path, "skip")
    again.add_callback(Keeps())
    again.train()
    assert runs.difference(run.model, kept[2]) == 0.0


def test_skip_a_loss_that_is_not_finite(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = spoiled(tmp_path, "skip")
    run.train()
    assert run.state.global_step == 4
    assert all(torch.isfinite(value).all() for value in runs.weights(run.model).values())
    assert "step 3" in caplog.text and "row 5" in caplog.text and "was left out" in caplog.text
    assert 3 not in runs.logged(run, "loss")


def test_skip_the_first_step(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """Without a warning of torch, which would take it for a mistake."""
    run = spoiled(tmp_path, "skip", bad=0)
    run.train()
    assert list(runs.logged(run, "loss")) == [2, 3, 4]
    assert not [warning for warning in recwarn if "lr_scheduler" in str(warning.message)]


def test_ignore_a_loss_that_is_not_finite(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = spoiled(tmp_path, "ignore")
    run.train()
    assert any(torch.isnan(value).any() for value in runs.weights(run.model).values())
    assert "was applied" in caplog.text


# ---------------------------------------------------------------- checkpoints


def test_best_and_newest_are_kept(tmp_path: Path) -> None:
    scores = iter([0.0, 0.1, 0.9, 0.3, 0.4, 0.5, 0.6])  # tried once before the first step
    run = runs.trainer(
        tmp_path, parts={"eval_dataset": tiny.class_rows(2), "compute_metrics": lambda _: {"score": next(scores)}},
        max_steps=6, eval_strategy="steps", eval_steps=1, save_strategy="steps", save_steps=1, save_total_limit=1,
        load_best_model_at_end=True, metric_for_best_model="score", greater_is_better=True,
    )  # fmt: skip
    run.train()
    assert {path.name for path in tmp_path.glob("checkpoint-*")} == {"checkpoint-2", "checkpoint-6"}


def test_a_saved_model_is_whole(tmp_path: Path) -> None:
    """With its tokenizer, and nothing that only this run can read."""
    run = runs.trainer(tmp_path, parts={"processing_class": tiny.tokenizer()}, max_steps=1)
    run.train()
    run.save_model(str(tmp_path / "model"))
    loaded = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    assert runs.difference(loaded, run.model) == 0.0
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    assert tokenizer("w5 w6")["input_ids"] == [5, 6]


# ---------------------------------------------------------------- what is not there


def test_a_search_says_what_to_do(tmp_path: Path) -> None:
    run = runs.trainer(tmp_path)
    with pytest.raises(NotImplementedError, match="model_init"):
        run.hyperparameter_search()


def test_model_card(tmp_path: Path) -> None:
    """As example scripts end, with or without what they know."""
    run = runs.trainer(tmp_path, parts={"eval_dataset": tiny.class_rows(4)}, max_steps=2, eval_strategy="epoch")
    run.train()
    run.create_model_card(finetuned_from="tiny-bert", tasks="text-classification", license="mit", tags="small")
    text = (tmp_path / "README.md").read_text()
    for part in ("tiny-bert", "mit", "small", "learning_rate: 0.001", "training_steps: 2"):
        assert part in text
    assert "distributed_type" not in text
    run.create_model_card()
    plain = runs.trainer(tmp_path, parts={"model": Spoiled(), "train_dataset": spoiled_rows(), "data_collator": None})
    with pytest.raises(SettingError, match="Spoiled has no config"):
        plain.create_model_card()


def test_all_of_an_adapted_model_is_in_training_mode(tmp_path: Path) -> None:
    """A model from `from_pretrained` is in evaluation mode inside its adapter's wrapper, which is in training mode."""
    peft = pytest.importorskip("peft")
    base = tiny.llama(attention_dropout=0.5).eval()
    model = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["q_proj"], lora_dropout=0.5))
    assert model.training and not base.training
    modes: list[bool] = []
    base.model.layers[0].register_forward_hook(lambda module, args, output: modes.append(module.training))
    parts = {"model": model, "train_dataset": tiny.language_rows(8), "data_collator": None}
    run = runs.trainer(tmp_path, max_steps=1, parts=parts)
    modes.clear()
    run.train()
    assert modes[-1]
