"""For one seed, any number of processes takes the same steps: examples, loss, gradient norm and weights."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers
from distributed.forked import in_processes, values
from distributed.grid import KINDS, ROWS, WAYS, told_by, two_passes
from torch.utils.data import IterableDataset
from trainer import runs

import burnish

TOLERANCE = 1e-6


def trained(folder: Path, count: int, kind: str, way: str) -> dict[str, Any]:
    run = two_passes(folder, count, kind, WAYS[way])
    return {**told_by(run), "weights": runs.weights(run.model)}


def grid(folder: Path, count: int, kinds: list[str]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(kind, way): trained(folder, count, kind, way) for kind in kinds for way in WAYS}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [2, 4])
def test_any_number_of_processes_takes_the_same_steps(count: int, kind: str, tmp_path: Path) -> None:
    alone = grid(tmp_path / "alone", 1, [kind])
    for found in values(in_processes(count, tmp_path, grid, tmp_path / "together", count, [kind])):
        for way, run in found.items():
            assert run["engine"] == "DDPEngine"
            assert run["counts"] == alone[way]["counts"], way
            for name in ("loss", "grad_norm"):
                assert run[name] == pytest.approx(alone[way][name], rel=2e-5), (way, name)
            assert runs.difference(run["weights"], alone[way]["weights"]) < TOLERANCE, way


def test_processes_end_with_the_same_bits(tmp_path: Path) -> None:
    one, other = values(in_processes(2, tmp_path, trained, tmp_path, 2, "causal lm", "clipped AdamW"))
    assert one["loss"] == other["loss"] and one["grad_norm"] == other["grad_norm"]
    assert all(torch.equal(one["weights"][name], other["weights"][name]) for name in one["weights"])


def with_dropout(folder: Path) -> Any:
    model = runs.classifier(hidden_dropout_prob=0.3)
    run = runs.trainer(folder, parts={"model": model}, max_steps=3, per_device_train_batch_size=2)
    run.train()
    return runs.weights(model)


def test_dropout_is_repeated(tmp_path: Path) -> None:
    once = values(in_processes(2, tmp_path, with_dropout, tmp_path / "once"))
    again = values(in_processes(2, tmp_path, with_dropout, tmp_path / "again"))
    assert runs.difference(once[0], again[0]) == runs.difference(once[0], once[1]) == 0.0


class Stream(IterableDataset[Any]):
    """Rows without numbers."""

    def __iter__(self) -> Iterator[Any]:
        return iter(tiny.text_rows(ROWS))


def of_stream(folder: Path, count: int) -> dict[str, Any]:
    run = two_passes(folder, count, "random masks", {"max_steps": 8}, train_dataset=Stream())
    return {**told_by(run), "weights": runs.weights(run.model)}


def test_random_masks_of_a_stream(tmp_path: Path) -> None:
    alone = of_stream(tmp_path / "alone", 1)
    for found in values(in_processes(2, tmp_path, of_stream, tmp_path / "together", 2)):
        assert found["counts"] == alone["counts"]
        assert found["loss"] == pytest.approx(alone["loss"], rel=2e-5)
        assert runs.difference(found["weights"], alone["weights"]) < TOLERANCE


def gone_on(folder: Path, count: int, resume: Path | None = None) -> dict[str, Any]:
    """The first pass of random masks and its checkpoint, or the second one."""
    way = {"num_train_epochs": 2 if resume else 1, "save_strategy": "epoch", "lr_scheduler_type": "constant"}
    run = two_passes(folder, count, "random masks", way, resume=resume)
    return {**told_by(run), "weights": runs.weights(run.model)}


def test_random_masks_after_a_resume_on_another_number_of_processes(tmp_path: Path) -> None:
    straight = two_passes(tmp_path / "straight", 1, "random masks", {"lr_scheduler_type": "constant"})
    for before, after in ((1, 2), (2, 1)):
        folder = tmp_path / f"from {before}"
        values(in_processes(before, tmp_path, gone_on, folder, before))
        for found in values(in_processes(after, tmp_path, gone_on, tmp_path / "on", after, folder / "checkpoint-4")):
            assert found["loss"] == pytest.approx(told_by(straight)["loss"], rel=2e-5)
            assert runs.difference(found["weights"], runs.weights(straight.model)) < TOLERANCE


class OwnCollator(burnish.DataCollatorForLanguageModeling):
    """A user's own, of which nobody knows what it draws for."""


def masked(folder: Path) -> list[list[int]]:
    """What the model was given in training, of rows that are all the same."""
    rows = [{"input_ids": tiny.words(12, 0), "attention_mask": [1] * 12}] * 8
    collate = OwnCollator(tiny.tokenizer(), mlm_probability=0.5)
    parts = {"model": tiny.bert("MaskedLM"), "train_dataset": rows, "data_collator": collate}
    run = runs.trainer(folder, parts=parts, max_steps=2, per_device_train_batch_size=2)
    given: list[list[int]] = []

    def note(module: Any, ids: Any, output: Any) -> None:
        if run.is_in_train and torch.is_grad_enabled() and run.state.global_step:
            given.append(ids[0].flatten().tolist())

    run.model.get_input_embeddings().register_forward_hook(note)
    run.train()
    return given


def test_a_users_own_collator_draws_for_the_batches_of_its_process(tmp_path: Path) -> None:
    once = values(in_processes(2, tmp_path, masked, tmp_path / "once"))
    assert once == values(in_processes(2, tmp_path, masked, tmp_path / "again"))
    assert once[0] and once[0] != once[1]


def weights_to_begin_with(folder: Path) -> Any:
    """A model that every process has drawn for itself."""
    torch.manual_seed(int(os.environ["RANK"]))
    run = runs.trainer(folder, parts={"model": transformers.BertForSequenceClassification(tiny.bert_config())})
    run.args.max_steps, run.args.learning_rate = 1, 1e-12
    run.train()
    return runs.weights(run.model)


def test_all_processes_begin_with_the_weights_of_the_first(tmp_path: Path) -> None:
    one, other = values(in_processes(2, tmp_path, weights_to_begin_with, tmp_path))
    assert runs.difference(one, other) == 0.0
