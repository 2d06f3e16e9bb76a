"""What `fsdp` and `fsdp_config` ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from burnish import TrainingArguments
from burnish.core.errors import SettingError
from burnish.engines.fsdp_mesh import mesh_for
from burnish.engines.fsdp_settings import BY_SIZE, NO_EFFECT, REFUSED, ROOT_ONLY, Sharding


def sharding(folder: Path, fsdp: Any = True, **config: Any) -> Sharding:
    of_run = {name: config.pop(name) for name in ("bf16", "fp16") if name in config}
    return Sharding.of(TrainingArguments(str(folder), fsdp=fsdp, fsdp_config=config, **of_run))


@pytest.mark.parametrize(
    ("fsdp", "config", "expected"),
    [
        (True, {}, Sharding()),
        ("shard_grad_op", {}, Sharding(reshard_after_forward=False)),
        (True, {"reshard_after_forward": "SHARD_GRAD_OP"}, Sharding(reshard_after_forward=False)),
        (True, {"reshard_after_forward": "true"}, Sharding()),
        ("hybrid_shard", {"dp_shard_size": 4}, Sharding(is_hybrid=True, shard_size=4)),
        ("hybrid_shard_zero2", {}, Sharding(is_hybrid=True, reshard_after_forward=False)),
        ("offload", {}, Sharding(offload=True, syncs_each_batch=True)),
        (True, {"cpu_offload": True, "sync_each_batch": False}, Sharding(offload=True)),
        (True, {"offload_params": "true"}, Sharding(offload=True, syncs_each_batch=True)),
        (True, {"state_dict_type": "SHARDED_STATE_DICT"}, Sharding(writes_parts=True)),
        (True, {"transformer_layer_cls_to_wrap": "A, B"}, Sharding(block_classes=("A", "B"))),
        (True, {"transformer_layer_cls_to_wrap": ["A"]}, Sharding(block_classes=("A",))),
        (True, {"min_num_params": 10}, Sharding(wrapping=BY_SIZE, min_num_params=10)),
        (True, {"min_num_params": 0}, Sharding()),
        (True, {"auto_wrap_policy": "NO_WRAP"}, Sharding(wrapping=ROOT_ONLY)),
        (True, {"bf16": True}, Sharding(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)),
        (
            True,
            {"mixed_precision": "bf16"},
            Sharding(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=True),
        ),
        (
            True,
            {"bf16": True, "mixed_precision_policy": {"reduce_dtype": "bfloat16", "cast_forward_inputs": True}},
            Sharding(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, cast_forward_inputs=True),
        ),
    ],
)
def test_what_is_asked_for(fsdp: Any, config: dict[str, Any], expected: Sharding, tmp_path: Path) -> None:
    assert sharding(tmp_path, fsdp, **config) == expected


@pytest.mark.parametrize(
    ("fsdp", "config", "words"),
    [
        (True, {"min_num_param": 10}, "Did you mean 'min_num_params'"),
        (True, {"reshard_after_forward": "often"}, "true, false or a number"),
        ("shard_grad_op", {"reshard_after_forward": True}, "Change one of the two"),
        (True, {"dp_shard_size": 2}, "hybrid_shard"),
        (True, {"state_dict_type": "LOCAL_STATE_DICT"}, "SHARDED_STATE_DICT"),
        (True, {"auto_wrap_policy": "ALWAYS"}, "TRANSFORMER_BASED_WRAP"),
        (True, {"min_num_params": 5, "transformer_layer_cls_to_wrap": "A"}, "Leave one of the two out"),
        (True, {"auto_wrap_policy": "SIZE_BASED_WRAP"}, "min_num_params"),
        (True, {"mixed_precision_policy": {"buffer_dtype": "bf16"}}, "no 'buffer_dtype'"),
        (True, {"mixed_precision": "fp8"}, "there is no type 'fp8'"),
        (True, {"cpu_offload": "perhaps"}, "it is true or false"),
        (True, {"min_num_params": "many"}, "'many'; it is a number"),
        (True, {"transformer_layer_cls_to_wrap": [5]}, "names of classes"),
        *((True, {name: True}, "Leave it out") for name in REFUSED),
    ],
)
def test_what_is_refused(fsdp: Any, config: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=words):
        sharding(tmp_path, fsdp, **config)


@pytest.mark.parametrize("name", sorted(NO_EFFECT))
def test_what_belongs_to_fsdp_1_is_said(name: str, tmp_path: Path) -> None:
    found = sharding(tmp_path, **{name: "another"})
    assert found == Sharding()
    assert found.remarks == (f"`fsdp_config`: {name!r} = 'another' has no effect: {NO_EFFECT[name]}.",)


def test_usual_settings_need_no_word(tmp_path: Path) -> None:
    usual = {"version": 2, "sync_module_states": True, "use_orig_params": True, "xla": False}
    found = sharding(tmp_path, **usual, cpu_ram_efficient_loading=False)
    assert found == Sharding() and found.remarks == ()


def test_loading_on_the_first_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "the model is loaded already" in sharding(tmp_path, cpu_ram_efficient_loading=True).remarks[0]
    monkeypatch.setenv("FSDP_CPU_RAM_EFFICIENT_LOADING", "true")
    assert sharding(tmp_path, cpu_ram_efficient_loading=True).remarks == ()


@pytest.mark.parametrize(("size", "words"), [(None, "LOCAL_WORLD_SIZE"), (3, "groups of 3")])
def test_groups_that_do_not_come_out(size: int | None, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    with pytest.raises(SettingError, match=words):
        mesh_for("cpu", 4, Sharding(is_hybrid=True, shard_size=size))
