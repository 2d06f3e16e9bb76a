"""From a config and a scenario to the memory of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .activations import Activations, activations_of
from .blank import blank_model, largest_linear, weights_of, without_memory
from .memory import Memory, holes_in_heap, memory_of
from .scenario import Scenario
from .weights import Weight

MIB = 1 << 20
IMPORTS, KERNELS = 375 * MIB, 115 * MIB
"""Of a process on the CPU: with torch, transformers and burnish loaded; and what comes with the first step whatever the
model, code and buffers of kernels. Measured on Linux."""
FRAMEWORK = {"cpu": IMPORTS + KERNELS, "cuda": 512 * MIB}
"""What a process takes without any model. CUDA: the context of the device, as a usual value, not measured here."""


class Planner:
    """Plans runs of one model. What does not depend on a changed setting is not found out again.

    Args:
        auto_class_name: class of transformers such as "AutoModelForCausalLM".
        config: of the model; no weights are read.
    """

    def __init__(self, auto_class_name: str, config: Any) -> None:
        self.auto_class_name, self.config = auto_class_name, config
        self._activations: dict[Scenario, Activations] = {}
        self._weights: dict[Scenario, tuple[list[Weight], int]] = {}

    def memory(self, scenario: Scenario) -> Memory:
        """What a run of this scenario takes on one process."""
        weights, largest = self.weights(scenario)
        # a layer's weights are made out of 4 bits for its product, and one layer's are gathered under ZeRO 3
        workspace = largest * (2 if scenario.autocast else 4) if scenario.four_bit else 0
        if scenario.zero_stage == 3 and scenario.num_processes > 1:
            workspace += round(max(weight.bytes for weight in weights))
        activations = self.activations(scenario)
        holes = holes_in_heap(activations, scenario)
        return memory_of(weights, activations, scenario, FRAMEWORK[scenario.device], workspace, holes)

    def weights(self, scenario: Scenario) -> tuple[list[Weight], int]:
        """All parameters, and the elements of the largest frozen linear layer."""
        key = replace(_like(scenario), rows=1, micro_batches=1, checkpointing=False)
        if key not in self._weights:
            with without_memory():
                model = blank_model(self.auto_class_name, self.config, scenario)
                self._weights[key] = weights_of(model, scenario), largest_linear(model)
        return self._weights[key]

    def activations(self, scenario: Scenario) -> Activations:
        key = replace(_like(scenario), four_bit=False)
        if key not in self._activations:
            self._activations[key] = activations_of(self.auto_class_name, self.config, key)
        return self._activations[key]


def _like(scenario: Scenario) -> Scenario:
    """A scenario with the same tensors: without what only shares them out, or what follows the backward pass."""
    batches = min(2, scenario.micro_batches)
    return replace(
        scenario, micro_batches=batches, optimizer="sgd", momentum=0.0, zero_stage=0, num_processes=1, offload=False
    )
