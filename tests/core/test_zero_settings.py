"""The configuration of DeepSpeed as it is given: what is malformed, a slip, or not driven by burnish is refused."""

from __future__ import annotations

from typing import Any

import pytest

from burnish.core.errors import SettingError
from burnish.core.zero_settings import KNOWN, ONLY, REFUSED, SECTIONS, read, stage_of


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"zero_optimization": {"stage": 4}}, "stages 0, 1, 2 and 3"),
        ({"zero_optimization": {"stage": "auto"}}, "stages 0, 1, 2 and 3"),
        ({"zero_optimization": {"stage": True}}, "stages 0, 1, 2 and 3"),
        ({"zero_optimization": 3}, "zero_optimization is 3; an object"),
        ({"zero_optimization": {"offload_optimizer": "cpu"}}, 'offload_optimizer is "cpu"; an object'),
        ({"bf16": "auto"}, 'bf16 is "auto"; an object'),
        ({"elasticity": True}, "elasticity is true; an object"),
        ({"optimizer": {"params": {}}}, "optimizer.type is null; a name"),
        ({"zero_optimisation": {"stage": 3}}, "Did you mean 'zero_optimization'?"),
        ({"tensor_parallel": {"autotp_size": 2}}, "tensor parallelism"),
        ({"elasticity": {"enabled": True}}, "elastic"),
        ({"elasticity": {"enabled": 1}}, "elastic"),
        ({"checkpoint": {"writer": {"decoupled": True}}}, "sealed before its files are complete"),
        ({"torch_autocast": {"enabled": True}}, "bf16 and fp16 say the precision"),
        ({"gradient_allreduce_op": "sum"}, 'gradient_allreduce_op is "sum": gradients would be'),
        ({"managed_gradient_accumulation": False}, "which micro-batch is the last one"),
        ("{not json", "is no JSON"),
        ("[1]", "cannot be read"),
    ],
)
def test_what_cannot_be_driven_is_refused(config: Any, words: str) -> None:
    with pytest.raises(SettingError) as caught:
        read(config)
    assert words in str(caught.value)


def test_what_is_off_or_usual_is_taken() -> None:
    config = {
        "tensor_parallel": {"autotp_size": 1},
        "sequence_parallel_size": 1,
        "elasticity": {"enabled": False},
        "checkpoint": {"writer": None},
        "gradient_allreduce_op": "mean",
        "_comment": "a name like no other",
    }
    assert read(config) == config and stage_of(read(config)) == 0


def test_null_is_nothing_and_an_old_name_the_new_one() -> None:
    found = read({"optimizer": None, "zero_optimization": {"stage": 2}, "bfloat16": {"enabled": True}})
    assert found == {"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}} and stage_of(found) == 2


def test_every_name_that_is_looked_for_is_a_known_one() -> None:
    assert {path.split(".")[0] for path in (*SECTIONS, *REFUSED, *ONLY)} <= set(KNOWN)
