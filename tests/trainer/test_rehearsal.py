"""What could not be saved is said before the first step."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from torch import nn
from trainer import runs

import burnish
from burnish.checkpoint import rehearsal, staging
from burnish.core.errors import CheckpointError
from burnish.core.progress import ExportableState, TrainerState


class Counts(burnish.TrainerCallback, ExportableState):
    """Remembers something, and counts steps."""

    def __init__(self, remembered: Any = None) -> None:
        self.remembered, self.steps = remembered, 0

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **details: Any) -> None:
        self.steps += 1

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"remembered": self.remembered}}


class Refuses(nn.Module):
    """Keeps a state that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = runs.classifier()

    def forward(self, **inputs: Any) -> Any:
        return self.inner(**inputs)

    def get_extra_state(self) -> Any:
        return {"seen": 3}

    def set_extra_state(self, state: Any) -> None:
        pass


class BadTokenizer:
    def save_pretrained(self, folder: Path) -> None:
        raise RuntimeError("the vocabulary is gone")


class Unsafe(torch.optim.SGD):
    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "owner": Counts()}


def odd_config() -> Any:
    model = runs.classifier()
    model.config.note = object()
    return model


def unsafe_optimizer() -> dict[str, Any]:
    model = runs.classifier()
    return {"model": model, "optimizers": (Unsafe(model.parameters(), lr=0.1), None)}


PARTS: dict[str, tuple[Any, str]] = {
    "state of a callback": (
        lambda: {"callbacks": [Counts({"at": Path("x")})]},
        r"state of Counts.*remembered\.at is a",
    ),
    "keys of a callback": (lambda: {"callbacks": [Counts({3: "x"})]}, r"state of Counts.*has the key 3"),
    "model": (lambda: {"model": Refuses()}, r"the model.*_extra_state.*is a dict"),
    "config": (lambda: {"model": odd_config()}, r"the model: .*object.*not JSON serializable"),
    "tokenizer": (
        lambda: {"processing_class": BadTokenizer()},
        r"processing_class \(BadTokenizer\).*vocabulary is gone",
    ),
    "optimizer": (unsafe_optimizer, r"optimizer \(Unsafe\).*read back safely"),
}


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("name", PARTS)
def test_a_part_that_cannot_be_saved_is_named(
    name: str, large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearsal, "WHOLE", 0 if large else rehearsal.WHOLE)
    parts, told = PARTS[name]
    given = parts()
    counts = Counts()
    given["callbacks"] = [*given.get("callbacks", []), counts]
    trainer = runs.trainer(tmp_path, parts=given, max_steps=2, save_strategy="steps", save_steps=1)
    with pytest.raises(CheckpointError, match=f"(?s){told}") as raised:
        trainer.train()
    assert counts.steps == 0 and "save_strategy='no'" in str(raised.value)
    assert not list(tmp_path.glob(".*"))
    trainer.args.save_strategy = "no"
    trainer.train()
    assert counts.steps == 2


def test_all_of_them_are_told_at_once(tmp_path: Path) -> None:
    parts = {"callbacks": [Counts(object())], "processing_class": BadTokenizer(), "data_collator": runs.collator()}
    trainer = runs.trainer(tmp_path, parts=parts, max_steps=2, save_strategy="epoch")
    with pytest.raises(CheckpointError, match=r"(?s)BadTokenizer.*Counts"):
        trainer.train()


def test_room_for_one_checkpoint_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    trainer = runs.trainer(tmp_path, max_steps=2, save_strategy="steps", save_steps=1)
    weights = sum(weight.numel() * 4 for weight in trainer.model.parameters())
    buffers = sum(buffer.numel() * buffer.element_size() for buffer in trainer.model.buffers())
    needed = (16 << 20) + 3 * weights + buffers
    for free, fits in ((needed, True), (needed - weights, False)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: usage._replace(free=free))
        if fits:
            rehearsal.rehearse(tmp_path, snapshot_of(trainer))
        else:
            with pytest.raises(CheckpointError, match=r"takes about \d+ MB.*are free.*output_dir.*save_only_model"):
                rehearsal.rehearse(tmp_path, snapshot_of(trainer))


def snapshot_of(trainer: Any) -> Any:
    from burnish.checkpoint.store import Snapshot

    trainer.create_optimizer_and_scheduler(10)
    return Snapshot(trainer.model, trainer.state, "run-a", optimizer=trainer.optimizer, scheduler=trainer.lr_scheduler)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC, errno.ENOTDIR])
def test_a_folder_that_takes_nothing(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> Path:
        raise OSError(number, os.strerror(number), str(folder))

    monkeypatch.setattr(staging, "trial_folder", refuse)
    trainer = runs.trainer(tmp_path, max_steps=2, save_strategy="steps", save_steps=1)
    with pytest.raises(CheckpointError, match=f"{os.strerror(number)}.*Set output_dir to another folder"):
        trainer.train()


def test_an_error_that_may_pass_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(folder: Path) -> Path:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(folder))

    monkeypatch.setattr(staging, "trial_folder", fail)
    trainer = runs.trainer(tmp_path, max_steps=2, save_strategy="steps", save_steps=1)
    trainer.train()
    assert "A trial of saving" in caplog.text and (tmp_path / "checkpoint-2").is_dir()


def test_nothing_large_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a model above the size, no weights are, and of an optimizer that is gone on with, no moments."""
    monkeypatch.setattr(rehearsal, "WHOLE", 0)
    sizes: dict[str, int] = {}
    rmtree = shutil.rmtree

    def seen(folder: Path, **options: Any) -> None:
        sizes.update({path.name: path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()})
        rmtree(folder, **options)

    model = tiny.llama(hidden_size=128, vocab_size=2000)
    trainer = runs.trainer(tmp_path, parts={"model": model, "processing_class": tiny.tokenizer()})
    made = snapshot_of(trainer)
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    trainer.optimizer.step()
    monkeypatch.setattr(shutil, "rmtree", seen)
    rehearsal.rehearse(tmp_path, made)
    monkeypatch.undo()
    large = {name: size for name, size in sizes.items() if not name.startswith("tokenizer")}
    assert {"config.json", "kinds.safetensors", "optimizer.pt", "scheduler.pt"} <= large.keys()
    assert max(large.values()) < 60_000 < 4 * 2000 * 128
    assert not list(tmp_path.iterdir())


def test_a_save_model_of_the_users_own_is_not_called(tmp_path: Path) -> None:
    called: list[int] = []

    class Own(burnish.Trainer):
        def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
            called.append(self.state.global_step)
            super().save_model(output_dir, _internal_call)

    trainer = runs.trainer(tmp_path, Own, max_steps=2, save_strategy="steps", save_steps=2)
    trainer.train()
    assert called == [2]
