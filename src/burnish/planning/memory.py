"""The arithmetic of memory: what a run holds at each moment, on one process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .activations import Activations
from .live import Peak
from .optimizer_state import optimizer_bytes
from .scenario import Scenario
from .weights import Weight, buffer_bytes, bytes_of, gradient_bytes

UPDATE = "update"
HOLES = 1 / 3
"""Room that the heap of the C library takes beyond the blocks in it: freed blocks that the next ones do not fit into.
Chosen among runs on Linux in which it was from 0.1 to 0.5 of the blocks; docs/planning.md says which. Blocks from 32
MiB on are not in the heap."""


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
    """Saved by the forward pass of a micro-batch."""
    working: int
    """The most that is alive at one moment beside all of the above: logits, intermediate results."""
    framework: int
    """What the process takes before the model is there, libraries and kernels."""
    on_host: int
    """What was put on the host, and so is not counted above."""
    moment: str
    """When the peak is."""
    peak: int


def memory_of(
    weights: Sequence[Weight], activations: Activations, scenario: Scenario, framework: int, workspace: int = 0
) -> Memory:
    """What the settings of a scenario come to.

    Args:
        weights: all parameters of the model.
        framework: bytes that the process takes before the model is there.
        workspace: bytes that layers need for a moment beyond what tensors show, such as weights out of 4 bits.

    ZeRO on n processes (Rajbhandari et al., 2020, §5): stage 1 leaves each 1/n of the optimizer's state, stage 2 of the
    gradients, too, stage 3 of the weights, too.
    """
    held, held_gradients, held_optimizer = shares(scenario)
    state = optimizer_bytes(scenario.optimizer, weights, scenario.momentum)
    sizes = {
        "weights": bytes_of(weights) * held,
        "gradients": gradient_bytes(weights, buffers=False) * held_gradients,
        "tables": buffer_bytes(weights) * held_gradients,
        "optimizer": 0 if scenario.offload else state * held_optimizer,
    }
    peaks = activations.peaks
    heap = max((peak.small for peak in peaks.values()), default=0.0) * (1 + HOLES) if scenario.device == "cpu" else None
    moments = {
        phase: _alive(peak, sizes["gradients"], held_gradients, heap) + workspace for phase, peak in peaks.items()
    }
    moments[UPDATE] = sizes["gradients"] + update_bytes(weights, scenario) * held_optimizer
    moment = max(moments, key=lambda name: moments[name])
    lasting = sizes["weights"] + sizes["tables"] + sizes["optimizer"] + framework
    return Memory(
        **{name: round(size) for name, size in sizes.items()},
        activations=round(activations.saved),
        working=round(max(0, moments[moment] - activations.saved - sizes["gradients"])),
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


def _alive(peak: Peak, gradients: float, held: float, heap: float | None) -> float:
    """Bytes of a moment, gradients included. Where they are shared out, all of this process's part is counted.

    On the CPU the heap does not shrink: small blocks take what they have taken at any moment. The caching allocator of
    CUDA joins its blocks better.
    """
    alive = peak.bytes if held == 1.0 else peak.without_gradients + gradients
    return alive if heap is None else alive - peak.small + heap


def update_bytes(weights: Sequence[Weight], scenario: Scenario) -> float:
    """What the update needs for a moment. A fused one needs nothing; others compute with a copy or two of a tensor on
    the CPU, and of all tensors at once on CUDA."""
    fused = scenario.optimizer in ("adamw_torch_fused", "sgd") or scenario.optimizer.endswith("bit") or scenario.offload
    trained = [weight.bytes for weight in weights if weight.trained]
    if fused or not trained:
        return 0.0
    return sum(trained) if scenario.device == "cuda" else 2 * max(trained)
