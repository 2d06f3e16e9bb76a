"""The arithmetic of memory: what a run holds at each moment, on one process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .activations import LOSS, Activations, Trace
from .heap import heap_peak
from .live import Peak
from .optimizer_state import optimizer_bytes, state_blocks
from .scenario import Scenario
from .weights import Weight, buffer_bytes, bytes_of, gradient_bytes

UPDATE = "update"


@dataclass(frozen=True)
class Memory:
    """Bytes on one process. The parts are each at their largest, and not all at the same moment: `peak` is less than
    their sum, or as much."""

    weights: int
    gradients: int
    """Of the weights that are trained, lasting buffers of tables left out."""
    tables: int
    """Lasting gradient buffers of embedding tables."""
    optimizer: int
    activations: int
    """Saved by the forward pass of a micro-batch, the loss left out."""
    logits: int
    """Of the loss: the most that is alive in it beside all of the above."""
    working: int
    """The same of the passes through the layers and of the update: intermediate results, gradients of activations."""
    holes: int
    """Freed room in the heap of the C library that the next tensors do not fit into, on the CPU."""
    framework: int
    """What the process takes before the model is there, libraries and kernels."""
    on_host: int
    """What was put on the host, and so is not counted above."""
    moment: str
    """When the peak is."""
    peak: int


def memory_of(
    weights: Sequence[Weight],
    activations: Activations,
    scenario: Scenario,
    framework: int,
    workspace: int = 0,
    holes: int = 0,
) -> Memory:
    """What the settings of a scenario come to.

    Args:
        weights: all parameters of the model.
        framework: bytes that the process takes before the model is there.
        workspace: bytes that layers need for a moment beyond what tensors show, such as weights out of 4 bits.
        holes: bytes of freed room that stays unused (`holes_in_heap`).

    ZeRO on n processes (Rajbhandari et al., 2020, §5): stage 1 leaves each 1/n of the optimizer's state, stage 2 of the
    gradients, too, stage 3 of the weights, too.
    """
    held, held_gradients, held_optimizer = shares(scenario)
    gradients = gradient_bytes(weights, buffers=False)
    if scenario.in_backward and scenario.micro_batches == 1:  # one at a time
        gradients = round(max((weight.bytes for weight in weights if weight.trained), default=0))
    state = optimizer_bytes(scenario.optimizer, weights, scenario.momentum)
    sizes = {
        "weights": bytes_of(weights) * held,
        "gradients": gradients * held_gradients,
        "tables": buffer_bytes(weights) * held_gradients,
        "optimizer": 0 if scenario.offload else state * held_optimizer,
    }
    moments = {
        phase: _alive(peak, sizes["gradients"], held_gradients) + workspace for phase, peak in activations.peaks.items()
    }
    left = 0 if scenario.in_backward else sizes["gradients"]
    moments[UPDATE] = left + sum(update_blocks(weights, scenario)) * held_optimizer
    moment = max(moments, key=lambda name: moments[name])
    lasting = sizes["weights"] + sizes["tables"] + sizes["optimizer"] + holes + framework
    return Memory(
        **{name: round(size) for name, size in sizes.items()},
        activations=round(activations.saved),
        logits=round(_beside(activations, [name for name in activations.peaks if name.endswith(LOSS)])),
        working=round(_beside(activations, [name for name in activations.peaks if not name.endswith(LOSS)])),
        holes=holes,
        framework=framework,
        on_host=round(state * held_optimizer) if scenario.offload else 0,
        moment=moment,
        peak=round(lasting + moments[moment]),
    )


def shares(scenario: Scenario) -> tuple[float, float, float]:
    """The parts of weights, gradients and optimizer state that one process holds."""
    part = 1 / scenario.num_processes
    stage = scenario.zero_stage
    return part if stage >= 3 else 1.0, part if stage >= 2 else 1.0, part if stage >= 1 else 1.0


def _beside(activations: Activations, phases: Sequence[str]) -> float:
    """The most bytes in these phases beside gradients and saved activations."""
    most = max((activations.peaks[name].without_gradients for name in phases), default=0.0)
    return max(0.0, most - activations.saved)


def _alive(peak: Peak, gradients: float, held: float) -> float:
    """Bytes of a moment, gradients included. Where they are shared out, all of this process's part is counted, and not
    more than without sharing."""
    return peak.bytes if held == 1.0 else min(peak.bytes, peak.without_gradients + gradients)


def holes_in_heap(activations: Activations, scenario: Scenario) -> int:
    """Bytes that the heap of the C library takes on the CPU beyond the tensors in it: what it takes when the tensors of
    two steps are asked for and given back as in a run. 0 on CUDA, whose allocator caches, and where the C library does
    not tell."""
    found = [_holes(trace, scenario) for trace in activations.traces] if scenario.device == "cpu" else []
    if len(found) < 2:
        return max(0, round(sum(found)))
    few, more = (trace.depth for trace in activations.traces)
    return max(0, round(found[0] + (found[1] - found[0]) * (activations.depth - few) / (more - few)))


def _holes(trace: Trace, scenario: Scenario) -> float:
    """Those of a model of so many layers, with all of the optimizer's states on this process."""
    states = [] if scenario.offload else state_blocks(scenario.optimizer, trace.weights, scenario.momentum)
    update = update_blocks(trace.weights, scenario)
    taken = heap_peak(trace.asks, states, update)
    gradients = 0 if scenario.in_backward else gradient_bytes(trace.weights, buffers=False)
    return 0.0 if taken is None else taken - sum(states) - max(trace.peak, gradients + sum(update))


def update_blocks(weights: Sequence[Weight], scenario: Scenario) -> list[int]:
    """Bytes of tensors that the update needs for a moment. A fused one needs none; others compute with a copy or two of
    a tensor on the CPU, and of all tensors at once on CUDA."""
    fused = scenario.optimizer in ("adamw_torch_fused", "sgd") or scenario.optimizer.endswith("bit") or scenario.offload
    trained = [round(weight.bytes) for weight in weights if weight.trained]
    if fused or not trained:
        return []
    return trained if scenario.device == "cuda" else 2 * [max(trained)]
