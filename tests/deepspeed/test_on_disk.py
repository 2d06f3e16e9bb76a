"""Optimizer states on a disk (ZeRO-Infinity): back out of a checkpoint as they were, or refused.

What swaps is compiled for minutes; where that was not done (`async_io`), only the refusals are tried.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import zero_runs
from distributed.forked import in_processes, values
from trainer import runs
from zero_runs import stage, trained

from burnish.core.errors import CheckpointError
from burnish.engines import deepspeed_ops, deepspeed_universal

IS_BUILT = any(file for root in deepspeed_ops._roots() for file in root.glob("**/async_io/*.so"))
AT = 2


def large() -> Any:
    """Of which most, but not all, is larger than what is swapped."""
    shape = {"hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 2048}
    return tiny.llama(**shape, vocab_size=4096)


@pytest.fixture(autouse=True)
def _large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(zero_runs.KINDS, "large", (large, tiny.language_rows))
    monkeypatch.setitem(zero_runs.LOADED_BY, "large", "AutoModelForCausalLM")


def on_disk(folder: Path, **more: Any) -> dict[str, Any]:
    disk = {"device": "nvme", "nvme_path": str(folder), "pin_memory": False}
    folder.mkdir(exist_ok=True)
    weights = {"offload_param": {**disk, "buffer_size": 3_000_000, "buffer_count": 8}} if more.pop("weights", 0) else {}
    return {**stage(3, offload_optimizer=disk, **weights, **more), "aio": {"block_size": 1 << 20}}


WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "groups": ({"sub_group_size": 300_000}, {}),
    "weights too, bf16": ({"weights": True}, {"bf16": True}),
}


@pytest.mark.skipif(not IS_BUILT, reason="async_io is not compiled")
@pytest.mark.parametrize("in_parts", [False, True], ids=["whole", "in parts"])
@pytest.mark.parametrize("way", WAYS)
def test_a_resumed_run_ends_with_the_same_bits(way: str, in_parts: bool, tmp_path: Path) -> None:
    given, changes = WAYS[way]
    config = on_disk(tmp_path / "disk", **given)
    if in_parts:
        large().save_pretrained(tmp_path / "model")
        changes = {**changes, "source": tmp_path / "model"}

    def run(folder: Path, **more: Any) -> dict[str, Any]:
        return values(in_processes(2, folder, trained, folder, 2, config, "large", **changes, **more))[0]

    straight = run(tmp_path / "straight")
    run(tmp_path / "run", stop=AT)
    assert list((tmp_path / "run" / f"checkpoint-{AT}").glob("deepspeed/state/offloaded_tensors/rank01/exp_avg*"))
    found = run(tmp_path / "run", resume=True)
    assert found["step"] == straight["step"] == 4
    assert found["loss"] == straight["loss"] and found["grad_norm"] == straight["grad_norm"]
    assert runs.difference(found["weights"], straight["weights"]) == 0.0


def test_states_that_were_in_memory_are_refused(tmp_path: Path) -> None:
    values(in_processes(2, tmp_path, trained, tmp_path / "run", 2, stage(3), stop=AT))
    config = on_disk(tmp_path / "disk")
    ended = in_processes(2, tmp_path, trained, tmp_path / "run", 2, config, resume=True)
    assert ended[0].error == "CheckpointError"
    assert "on a disk True" in ended[0].words and "model_name_or_path" in ended[0].words


def test_states_on_a_disk_are_not_converted(tmp_path: Path) -> None:
    (tmp_path / deepspeed_universal.TOPOLOGY).write_text(json.dumps({"stage": 3, deepspeed_universal.ON_DISK: True}))
    model = torch.nn.Linear(2, 2)
    with pytest.raises(CheckpointError, match="nvme"):
        deepspeed_universal.whole_state(tmp_path, tmp_path, model, torch.optim.AdamW(model.parameters()))
