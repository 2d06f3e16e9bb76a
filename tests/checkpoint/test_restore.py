"""A run goes on with the state it had and the settings it has now, or says what does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from checkpoint import snapshots
from torch import nn

from burnish.checkpoint import store
from burnish.checkpoint.restore import (
    compare_positions,
    read_position,
    read_state,
    refuse_if_changed,
    restore_optimizer,
)
from burnish.checkpoint.weights import load_weights
from burnish.core.errors import CheckpointError
from burnish.core.progress import TrainerState


def test_progress_returns_with_the_fields_that_only_burnish_knows(tmp_path: Path) -> None:
    state = TrainerState(global_step=2, best_metric=0.5, num_examples_seen=8, total_loss=1.25, num_loss_steps=2)
    (checkpoint,) = snapshots.write(tmp_path, 2, state=state)
    assert read_state(checkpoint) == state
    assert read_position(checkpoint) == snapshots.POSITION


def test_progress_of_transformers_is_read(tmp_path: Path) -> None:
    checkpoint = snapshots.without_manifest(snapshots.write(tmp_path, 2)[0])
    assert read_state(checkpoint).global_step == 2
    assert read_position(checkpoint) is None


def test_progress_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (checkpoint,) = snapshots.write(tmp_path, 2)
    (checkpoint / "trainer_state.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"trainer_state\.json cannot be read"):
        read_state(checkpoint)


# ---------------------------------------------------------------- optimizer


def test_a_restored_run_is_the_same_run(tmp_path: Path) -> None:
    straight = snapshots.plain()
    optimizer = snapshots.adamw(straight)
    snapshots.trained(straight, optimizer, steps=2)
    checkpoint = store.write(tmp_path, 2, snapshots.snapshot(model=straight, optimizer=optimizer))
    snapshots.trained(straight, optimizer, steps=2, seed=20)

    resumed = snapshots.plain(seed=5)
    optimizer = snapshots.adamw(resumed)
    load_weights(resumed, checkpoint)
    assert restore_optimizer(checkpoint, optimizer) == []
    snapshots.trained(resumed, optimizer, steps=2, seed=20)
    assert snapshots.differences(straight, resumed) == []


def test_settings_of_now_stay(tmp_path: Path) -> None:
    (checkpoint,) = snapshots.write(tmp_path, 2)
    optimizer = snapshots.adamw(snapshots.plain(), lr=5e-4, betas=(0.5, 0.6), weight_decay=0.3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5)
    restore_optimizer(checkpoint, optimizer)
    (group,) = optimizer.param_groups
    assert (group["lr"], group["initial_lr"]) == (2.5e-4, 5e-4)
    assert (group["betas"], group["weight_decay"]) == ((0.5, 0.6), 0.3)
    assert all(optimizer.state[weight]["step"] == 2 for weight in group["params"])
    assert scheduler.optimizer.param_groups[0] is group


def test_moments_keep_the_type_they_were_saved_in(tmp_path: Path) -> None:
    """Weights in bfloat16 with moments in float32, as some optimizers keep them."""
    model = nn.Linear(3, 3).to(torch.bfloat16)
    optimizer = snapshots.adamw(model)
    snapshots.trained(model, optimizer)
    for state in optimizer.state.values():
        state["exp_avg"] = state["exp_avg"].float() + 1e-6
    checkpoint = store.write(tmp_path, 2, snapshots.snapshot(model=model, optimizer=optimizer))
    other = snapshots.adamw(nn.Linear(3, 3).to(torch.bfloat16))
    restore_optimizer(checkpoint, other)
    for saved, found in zip(optimizer.state.values(), other.state.values(), strict=True):
        assert found["exp_avg"].dtype == torch.float32
        assert torch.equal(saved["exp_avg"], found["exp_avg"])


def test_optimizer_state_of_transformers_is_read(tmp_path: Path) -> None:
    model = snapshots.plain()
    optimizer = snapshots.adamw(model)
    snapshots.trained(model, optimizer)
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    other = snapshots.adamw(snapshots.plain())
    assert restore_optimizer(tmp_path, other) == []
    saved, found = optimizer.state_dict()["state"], other.state_dict()["state"]
    assert all(torch.equal(saved[i]["exp_avg_sq"], found[i]["exp_avg_sq"]) for i in saved)


def test_a_missing_optimizer_is_said_aloud(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (checkpoint,) = snapshots.write(tmp_path, 2, only_model=True)
    optimizer = snapshots.adamw(snapshots.plain())
    assert restore_optimizer(checkpoint, optimizer, scaler=torch.amp.GradScaler("cpu")) == ["optimizer", "scaler"]
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "no state of the optimizer" in caplog.text


def test_scheduler_with_a_memory_and_scaler_are_filled(tmp_path: Path) -> None:
    optimizer = snapshots.adamw(snapshots.plain())
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    scheduler.step(3.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    (checkpoint,) = snapshots.write(tmp_path, 2, scheduler=scheduler, scaler=scaler)
    fresh = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    fresh_scaler = torch.amp.GradScaler("cpu")
    assert restore_optimizer(checkpoint, None, fresh, fresh_scaler) == []
    assert fresh.best == 3.0
    assert fresh_scaler.get_scale() == 8.0


def test_the_rate_that_a_scheduler_with_a_memory_has_come_to_returns(tmp_path: Path) -> None:
    optimizer = snapshots.adamw(snapshots.plain(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    for _ in range(3):
        scheduler.step(1.0)
    (checkpoint,) = snapshots.write(tmp_path, 2, optimizer=optimizer, scheduler=scheduler)
    fresh = snapshots.adamw(snapshots.plain(), lr=1.0)
    restore_optimizer(checkpoint, fresh, torch.optim.lr_scheduler.ReduceLROnPlateau(fresh))
    assert fresh.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"] == 0.25


def test_another_optimizer_is_refused(tmp_path: Path) -> None:
    (checkpoint,) = snapshots.write(tmp_path, 2)
    with pytest.raises(CheckpointError, match="AdamW, and this run uses SGD"):
        restore_optimizer(checkpoint, torch.optim.SGD(snapshots.plain().parameters(), lr=0.1))


def test_another_number_of_parameters_is_refused(tmp_path: Path) -> None:
    (checkpoint,) = snapshots.write(tmp_path, 2)
    model = snapshots.plain()
    model.body.bias.requires_grad_(False)
    with pytest.raises(CheckpointError, match=r"has 5 parameters .* has 4"):
        restore_optimizer(checkpoint, snapshots.adamw(model))


def test_another_shape_is_refused(tmp_path: Path) -> None:
    (checkpoint,) = snapshots.write(tmp_path, 2)
    with pytest.raises(CheckpointError, match=r"\(12, 8\).*\(12, 4\)"):
        restore_optimizer(checkpoint, snapshots.adamw(snapshots.plain(width=4)))


def test_a_state_that_could_run_code_is_not_loaded(tmp_path: Path) -> None:
    torch.save({"state": TrainerState(), "param_groups": []}, tmp_path / "optimizer.pt")
    with pytest.raises(CheckpointError, match=r"optimizer\.pt cannot be read"):
        restore_optimizer(tmp_path, snapshots.adamw(snapshots.plain()))


# ---------------------------------------------------------------- position


def test_a_changed_batch_size_is_refused_with_a_table(tmp_path: Path) -> None:
    now = {**snapshots.POSITION, "per_device_train_batch_size": 4, "global_batch_size": 8}
    with pytest.raises(CheckpointError) as refusal:
        refuse_if_changed(tmp_path / "checkpoint-2", snapshots.POSITION, now)
    lines = [[cell.strip() for cell in line.split("|")] for line in str(refusal.value).splitlines() if "|" in line]
    assert lines == [
        ["setting", "checkpoint", "now"],
        ["global_batch_size", "4", "8"],
        ["per_device_train_batch_size", "2", "4"],
    ]
    assert "checkpoint-2" in str(refusal.value)


def test_what_has_not_changed_or_is_not_known_is_no_change(tmp_path: Path) -> None:
    refuse_if_changed(tmp_path, snapshots.POSITION, dict(snapshots.POSITION))
    refuse_if_changed(tmp_path, None, snapshots.POSITION)
    assert compare_positions({"rows": 3}, {"rows": 3, "sampling": "random"}) == []
    assert compare_positions({"shape": [1, 2]}, {"shape": (1, 2)}) == []
    assert compare_positions({"rows": 3}, {"rows": 4}) == [("rows", 3, 4)]
