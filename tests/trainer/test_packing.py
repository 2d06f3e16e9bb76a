"""`packing=True`: a step holds as many examples as fill its bins, and computes what these examples come to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pytest
import tiny
import torch
import transformers
from trainer import runs

from burnish import Trainer
from burnish.core.errors import CheckpointError, SettingError
from burnish.run.data import source_for

ROWS = 30
KINDS: dict[str, tuple[Any, Any, Any]] = {
    "classes": (
        lambda: tiny.bert("SequenceClassification"), tiny.class_rows, transformers.DataCollatorWithPadding,
    ),
    "language": (tiny.llama, tiny.language_rows, transformers.DataCollatorForTokenClassification),
    "pairs": (tiny.t5, tiny.pair_rows, transformers.DataCollatorForSeq2Seq),
}  # fmt: skip


def made(folder: Path, kind: str = "language", cls: Any = Trainer, rows: Any = None, **settings: Any) -> Any:
    build, make_rows, collator = KINDS[kind]
    parts = {"model": build(), "data_collator": collator(tiny.tokenizer())}
    parts["train_dataset"] = make_rows(ROWS) if rows is None else rows
    usual = {"packing": True, "packing_length": 40, "per_device_train_batch_size": 2}
    return runs.trainer(folder, cls, parts, **{**usual, **settings})


def plan_of(run: Any) -> Any:
    return source_for(run, run.args).plan  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", KINDS)
def test_the_step_of_the_same_examples_unpacked(kind: str, tmp_path: Path) -> None:
    """Plain gradient descent on all examples of a bin, each alone through the model: the same weights."""
    run = made(
        tmp_path, kind, max_steps=3, optim="sgd", learning_rate=0.5, lr_scheduler_type="constant", max_grad_norm=0
    )
    plan, rows = plan_of(run), KINDS[kind][1](ROWS)
    run.train()
    model = KINDS[kind][0]()
    for step in range(3):
        model.zero_grad()
        taken = [rows[row] for row in plan.rows(0, step)]
        assert len(taken) > 2
        targets = [1 if kind == "classes" else labels_with_loss(row, shifted=kind == "language") for row in taken]
        for row, number in zip(taken, targets, strict=True):
            loss = model(**{name: torch.tensor([value]) for name, value in row.items()}).loss
            (loss * number / sum(targets)).backward()
        with torch.no_grad():
            for weight in model.parameters():
                weight -= 0.5 * weight.grad if weight.grad is not None else 0
    assert runs.difference(model, run.model) < 2e-6


def labels_with_loss(row: tiny.Row, shifted: bool) -> int:
    return sum(label != -100 for label in row["labels"][int(shifted) :])


def test_steps_and_examples_of_a_pass(tmp_path: Path) -> None:
    run = made(tmp_path, num_train_epochs=2, gradient_accumulation_steps=2)
    plan = plan_of(run)
    run.train()
    assert run.state.max_steps == run.state.global_step == 2 * plan.steps_per_epoch
    assert plan.steps_per_epoch == -(-len(plan.bins) // 4)
    assert run.state.num_examples_seen == 2 * ROWS
    tokens = sum(tiny.length_of(row) for row in range(ROWS))
    assert run.state.num_input_tokens_seen == 2 * tokens


def test_batch_and_accumulation_make_the_same_steps(tmp_path: Path) -> None:
    losses = []
    for batch, accumulation in ((4, 1), (2, 2), (1, 4)):
        run = made(tmp_path, per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation, max_steps=3)
        run.train()
        losses.append(runs.logged(run, "loss"))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5) and losses[0] == pytest.approx(losses[2], rel=1e-5)


def test_own_losses_see_batches_of_bins(tmp_path: Path) -> None:
    sizes: list[int] = []

    class Own(Trainer):
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
            sizes.append(len(inputs["input_ids"]))
            return super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)

    run, usual = made(tmp_path, cls=Own, max_steps=2), made(tmp_path, max_steps=2)
    run.train()
    usual.train()
    assert sizes[-2:] == [len(plan_of(run).rows(0, step)) for step in range(2)]
    assert runs.logged(run, "loss") == pytest.approx(runs.logged(usual, "loss"), rel=1e-5)


def test_a_resumed_run(tmp_path: Path) -> None:
    """Within the second pass, with workers."""
    settings: dict[str, Any] = {"num_train_epochs": 3, "save_strategy": "steps", "packing_length": 60}
    straight = made(tmp_path / "straight", **settings, save_steps=100)
    straight.train()
    per_pass = plan_of(straight).steps_per_epoch
    made(tmp_path / "broken", **settings, save_steps=per_pass + 1).train()
    resumed = made(tmp_path / "broken", **settings, save_steps=100, dataloader_num_workers=1)
    resumed.train(resume_from_checkpoint=str(tmp_path / "broken" / f"checkpoint-{per_pass + 1}"))
    assert runs.difference(straight.model, resumed.model) == 0.0
    for changed in ({"packing_length": 50}, {"packing": False, "packing_length": None}):
        with pytest.raises(CheckpointError, match="packing_length"):
            made(tmp_path / "broken", **{**settings, **changed}).train(
                resume_from_checkpoint=str(tmp_path / "broken" / f"checkpoint-{per_pass + 1}")
            )


def test_the_public_loader_has_batches_of_bins(tmp_path: Path) -> None:
    run = made(tmp_path)
    batches = list(run.get_train_dataloader())
    assert sum(len(batch["input_ids"]) for batch in batches) == ROWS
    assert len(batches) == plan_of(run).steps_per_epoch


def test_what_cannot_be_packed(tmp_path: Path) -> None:
    class OwnLoader(Trainer):
        def get_train_dataloader(self) -> Any:
            return super().get_train_dataloader()

    stream = datasets.Dataset.from_list(tiny.language_rows(4)).to_iterable_dataset()
    with pytest.raises(SettingError, match=r"packing=True.*stream"):
        made(tmp_path, rows=stream, max_steps=1).train()
    with pytest.raises(SettingError, match=r"packing=True.*get_train_dataloader"):
        made(tmp_path, cls=OwnLoader, max_steps=1).train()


def test_how_full_the_bins_are_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = made(tmp_path, max_steps=1)
    with caplog.at_level("INFO", "burnish"):
        run.train()
    filled = plan_of(run).bins.filled
    assert f"of which {100 * filled:.1f} % are filled" in caplog.text
