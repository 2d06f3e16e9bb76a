"""From DeepSpeed's ZeRO to FSDP2 and back: a checkpoint of either is gone on from by the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from distributed.forked import in_processes, values
from trainer import runs
from zero_runs import stage, trained

AT = 2
PARTS = {"fsdp": True, "fsdp_config": {"state_dict_type": "SHARDED_STATE_DICT"}}
WAYS: dict[str, tuple[Any, dict[str, Any], Any, dict[str, Any]]] = {
    "ZeRO 2 to FSDP": (stage(2), {}, None, {"fsdp": True}),
    "ZeRO 3 to FSDP": (stage(3), {}, None, {"fsdp": True}),
    "FSDP to ZeRO 3": (None, {"fsdp": True}, stage(3), {}),
    "FSDP in parts to ZeRO 2": (None, PARTS, stage(2), {}),
}


def run(folder: Path, config: Any, changes: dict[str, Any], **more: Any) -> dict[str, Any]:
    found = trained(folder, 2, config, **more, **changes)
    return {**found, "weights": {name: whole_of(value) for name, value in found["weights"].items()}}


def whole_of(value: Any) -> Any:
    return value.full_tensor() if hasattr(value, "full_tensor") else value


@pytest.mark.parametrize("way", WAYS)
def test_going_on_with_the_other(way: str, tmp_path: Path) -> None:
    first, of_first, then, of_then = WAYS[way]
    straight = trained(tmp_path / "straight", 1, None)
    values(in_processes(2, tmp_path, run, tmp_path / "run", first, of_first, stop=AT))
    for found in values(in_processes(2, tmp_path, run, tmp_path / "run", then, of_then, resume=True)):
        assert found["step"] == 4
        assert found["loss"] == pytest.approx(straight["loss"], rel=2e-5)
        assert runs.difference(found["weights"], straight["weights"]) < 2e-6
