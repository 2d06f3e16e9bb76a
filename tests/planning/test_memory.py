"""The arithmetic of weights, optimizer states, ZeRO and the verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from burnish.core.errors import SettingError
from burnish.optim.catalogue import OPTIMIZERS
from burnish.planning.activations import Activations
from burnish.planning.live import Peak
from burnish.planning.memory import Memory, memory_of
from burnish.planning.optimizer_state import optimizer_bytes
from burnish.planning.scenario import Scenario
from burnish.planning.verdict import judge
from burnish.planning.weights import NF4_BYTES, Weight, buffer_bytes, gradient_bytes

MATRIX = Weight((1024, 500), 4)
SCENARIO = Scenario("cuda", length=128, rows=8, micro_batches=1)
NOTHING = Activations(0.0, {})


@pytest.mark.parametrize(
    ("name", "a_parameter"),
    [("adamw_torch_fused", 8), ("sgd", 0), ("adagrad", 4), ("adamw_8bit", 2 + 8 / 256), ("lion_32bit", 4),
     ("ademamix", 12), ("adamw_torch_4bit", 1 + 8 / 256)],
)  # fmt: skip
def test_bytes_a_parameter(name, a_parameter) -> None:
    assert optimizer_bytes(name, [MATRIX]) == MATRIX.elements * a_parameter


@pytest.mark.parametrize("name", ["adamw_torch", "sgd", "adagrad", "rmsprop", "adafactor"])
def test_states_are_those_of_the_optimizers_themselves(name) -> None:
    import importlib

    entry = OPTIMIZERS[name]
    parameters = [torch.nn.Parameter(torch.ones(30, 20)), torch.nn.Parameter(torch.ones(7))]
    kwargs = {"momentum": 0.9} if name == "sgd" else {}
    optimizer = getattr(importlib.import_module(entry.module), entry.class_name)(
        parameters, lr=1e-3, **entry.fixed, **kwargs
    )
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    state = sum(v.nbytes for s in optimizer.state.values() for v in s.values() if torch.is_tensor(v) and v.dim() > 0)
    planned = optimizer_bytes(name, [Weight(tuple(p.shape), 4) for p in parameters], kwargs.get("momentum", 0.0))
    assert planned == state


def test_every_optimizer_of_the_catalogue_can_be_planned() -> None:
    assert all(optimizer_bytes(name, [MATRIX]) >= 0 for name in OPTIMIZERS)
    with pytest.raises(SettingError, match="adamw_torch"):
        optimizer_bytes("adamw_torchh", [MATRIX])


def test_small_tensors_and_tables_stay_in_32_bits() -> None:
    assert optimizer_bytes("adamw_8bit", [Weight((4095,), 4)]) == 4095 * 8
    assert optimizer_bytes("adamw_8bit", [replace(MATRIX, is_table=True)]) == MATRIX.elements * 8


def test_zero_stages_share_what_rajbhandari_says() -> None:
    """16 bytes a parameter in all: with n processes 4 + 4 + 8/n, 4 + 12/n, 16/n."""
    elements = MATRIX.elements

    def held(stage: int) -> int:
        return memory_of([MATRIX], NOTHING, replace(SCENARIO, zero_stage=stage, num_processes=4), 0).peak

    assert [held(stage) / elements for stage in range(4)] == [16, 10, 7, 4]


def test_offloaded_states_are_on_the_host() -> None:
    memory = memory_of([MATRIX], NOTHING, replace(SCENARIO, offload=True), 0)
    assert memory.optimizer == 0 and memory.on_host == MATRIX.elements * 8


def test_frozen_weights_have_neither_gradient_nor_state() -> None:
    frozen = Weight((1000, 500), NF4_BYTES, trained=False)
    memory = memory_of([frozen], NOTHING, SCENARIO, 0)
    assert memory.weights == frozen.elements * 0.5625 and memory.gradients == memory.optimizer == 0


def test_buffers_of_tables_are_counted_once() -> None:
    table = Weight((2000, 600), 4, is_table=True, has_buffer=True)
    assert gradient_bytes([table, MATRIX], buffers=False) == MATRIX.bytes
    assert buffer_bytes([table, MATRIX]) == table.bytes


def test_the_peak_is_at_one_moment() -> None:
    activations = Activations(50.0, {"forward": Peak(50, 0, 50), "loss": Peak(90, 0, 90), "backward": Peak(80, 40, 40)})
    memory = memory_of([], activations, SCENARIO, framework=1000)
    assert (memory.moment, memory.peak) == ("loss", 1090)


def test_a_budget_cuts_the_step_into_more_micro_batches() -> None:
    cut = replace(SCENARIO, micro_batches=2).within(512)
    assert (cut.rows, cut.micro_batches) == (4, 4)
    assert SCENARIO.within(10).rows == 1
    assert replace(SCENARIO, sequences=2).within(512).rows == 2  # the labels of an encoder-decoder count, too


def _plan(scenario: Scenario) -> Memory:
    """A run in which only some settings count."""
    peak = 100 - 30 * scenario.checkpointing - 20 * (scenario.optimizer == "adamw_8bit")
    peak -= 50 * (scenario.lora_rank is not None)
    return Memory(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, "loss", peak)


def test_the_cheapest_change_that_fits_is_proposed() -> None:
    assert judge(SCENARIO, _plan, 100).fits
    assert judge(SCENARIO, _plan, 75).cheapest.flags == "--gradient_checkpointing"
    alone = judge(SCENARIO, _plan, 60)
    assert alone.missing == 40 and alone.cheapest.flags == "--lora_rank 16"
    together = judge(SCENARIO, _plan, 10).cheapest
    assert together.flags.startswith("--gradient_checkpointing") and "--lora_rank 16" in together.flags


def test_what_never_fits_is_said_and_an_unknown_limit_is_no_verdict() -> None:
    verdict = judge(SCENARIO, _plan, -1)
    assert verdict.cheapest is None and verdict.changes
    assert judge(SCENARIO, _plan, None).fits is None


@pytest.mark.parametrize("change", [{"zero_stage": 4}, {"num_processes": 0}, {"lora_rank": 0}, {"four_bit": True}])
def test_settings_without_meaning_are_refused(change) -> None:
    with pytest.raises(SettingError, match="--"):
        replace(SCENARIO, **change)
