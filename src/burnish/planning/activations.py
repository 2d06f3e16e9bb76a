"""What a step keeps in memory beside weights and optimizer, found out by taking it without numbers.

Two micro-batches are computed forward and backward by the objective of the run, on tensors that own no memory; the
bytes that are alive are counted after each operation. So each operation's own rule of what it saves for its backward
applies, as it does in a run. A stack of like layers is computed with two numbers of layers: each number below is linear
in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from burnish.models.contract import facts_of
from burnish.objectives.native import NativeLoss
from burnish.objectives.selected import selected_loss

from .blank import blank_model, shallow, stack_of, weights_of, without_memory
from .heap import Ask
from .live import AsOnAccelerator, LiveBytes, Peak
from .scenario import Scenario
from .weights import Weight

DEPTHS = {"cpu": (3, 6), "cuda": (2, 3)}
"""Numbers of layers that are computed where there are more. The holes in a heap are not as linear as the tensors."""

FORWARD, LOSS, BACKWARD, END = "forward", "loss", "backward", "end of backward"
LATER = "later "
"""Put before the phases of the second micro-batch, in which all gradients are there."""


@dataclass(frozen=True)
class Trace:
    """What a model of so many layers asks for in the micro-batches of a step."""

    depth: int
    asks: tuple[Ask, ...]
    peak: float
    """The most bytes that were alive."""
    weights: tuple[Weight, ...]


@dataclass(frozen=True)
class Activations:
    """Bytes that are alive in a step beside weights, optimizer and lasting buffers."""

    saved: float
    """What the forward pass of a micro-batch keeps for the backward pass, the loss left out."""
    peaks: Mapping[str, Peak]
    """By phase."""
    traces: tuple[Trace, ...] = ()
    """Of the numbers of layers that were computed."""
    depth: int = 0
    """Layers that the model has."""

    def at_depth(self, deeper: Activations, factor: float) -> Activations:
        """Extrapolated: this one with `factor` times the difference to the one with more layers."""

        def line(one: Peak, other: Peak) -> Peak:
            return one.plus(other, factor).plus(one, -factor)

        peaks = {phase: line(peak, deeper.peaks[phase]) for phase, peak in self.peaks.items()}
        saved = self.saved + (deeper.saved - self.saved) * factor
        return Activations(saved, peaks, self.traces + deeper.traces)


def activations_of(auto_class_name: str, config: Any, scenario: Scenario) -> Activations:
    """What a micro-batch of this scenario keeps in memory, for the model of the config."""
    depth = getattr(config, "num_hidden_layers", 0)
    depths = DEPTHS[scenario.device]
    if depth <= depths[1] or getattr(config, "is_encoder_decoder", False):
        return replace(_traced(auto_class_name, config, scenario), depth=depth)
    one, other = (_traced(auto_class_name, shallow(config, number), scenario) for number in depths)
    return replace(one.at_depth(other, (depth - depths[0]) / (depths[1] - depths[0])), depth=depth)


def _traced(auto_class_name: str, config: Any, scenario: Scenario) -> Activations:
    with without_memory():
        model = blank_model(auto_class_name, config, scenario)
        loss_of, num_targets = _objective(model, scenario)
        if scenario.checkpointing:
            enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
            enable({"use_reentrant": False})
        live = LiveBytes(num_targets, [*model.parameters(), *model.buffers()])
        weights = weights_of(model, scenario)
        saved = _watch(model, live, weights, scenario)
        inputs = _inputs(model, scenario)
        kernels = AsOnAccelerator() if scenario.device == "cuda" else contextlib.nullcontext()
        with live, kernels:
            for prefix in ("", LATER)[: min(2, scenario.micro_batches)]:
                live.prefix = prefix
                live.enter_phase(FORWARD)
                with _autocast(scenario):
                    loss = loss_of(model, inputs)
                live.backward = True
                loss.backward()
                del loss
                live.backward = False
                live.forget_graph()
        peak = max(peak.bytes for peak in live.peaks.values())
        trace = Trace(getattr(config, "num_hidden_layers", 0), tuple(live.asks), peak, tuple(weights))
        return Activations(float(max(saved, default=0)), dict(live.peaks), (trace,))


def _objective(model: Any, scenario: Scenario) -> tuple[Any, int]:
    """The loss of the run, and the positions with a target in a micro-batch."""
    facts = facts_of(model)
    native = NativeLoss(facts.takes("use_cache"), facts.shifts_labels, scenario.label_smoothing)
    selected = None
    if scenario.at_targets:
        selected = selected_loss(model, facts.shifts_labels, native.passes_use_cache, scenario.label_smoothing)
    positions = scenario.rows * scenario.length - (scenario.rows if facts.shifts_labels else 0)
    return selected or (lambda model, inputs: native(model, inputs)[0]), max(
        1, round(positions * scenario.share_of_targets)
    )


def _inputs(model: Any, scenario: Scenario) -> dict[str, torch.Tensor]:
    """A micro-batch of rows of one length, on tensors without memory."""
    shape = scenario.rows, scenario.length
    name = type(model).__name__
    ids, mask = torch.zeros(shape, dtype=torch.int64), torch.ones(shape, dtype=torch.int64)
    inputs = {"input_ids": ids, "attention_mask": mask}
    if name.endswith("SequenceClassification"):
        kind = torch.float32 if getattr(model.config, "num_labels", 2) == 1 else torch.int64
        return {**inputs, "labels": torch.zeros(scenario.rows, dtype=kind)}
    return {**inputs, "labels": torch.zeros(shape, dtype=torch.int64)}


def _watch(model: Any, live: LiveBytes, weights: list[Weight], scenario: Scenario) -> list[int]:
    """Has `live` told of phases and gradients. Returns a list to which the bytes after the last layer are added."""
    saved: list[int] = []
    with_buffer = {id(p) for p, weight in zip(model.parameters(), weights, strict=True) if weight.has_buffer}
    for part in model.modules():
        if isinstance(part, torch.nn.Embedding) and id(part.weight) in with_buffer:
            # its rows' gradients go to a buffer that is counted apart
            part.weight.requires_grad_(False)
            part.register_forward_hook(lambda part, args, output: output.requires_grad_(True))
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(partial(_arrived, live, scenario, []))
    stack = stack_of(model)
    if stack is None:
        return saved

    def before_last(layer: Any, args: Any, kwargs: Any) -> None:
        hidden = args[0] if args else kwargs["hidden_states"]
        if hidden.requires_grad and not live.phase.endswith(BACKWARD):
            hidden.register_hook(lambda gradient: live.enter_phase(END))

    def after_last(layer: Any, args: Any, output: Any) -> None:
        if live.phase.endswith(FORWARD):
            saved.append(live.now - live.gradients)
            live.enter_phase(LOSS)
            hidden = output[0] if isinstance(output, tuple) else output
            if hidden.requires_grad:
                hidden.register_hook(lambda gradient: live.enter_phase(BACKWARD))

    stack[-1].register_forward_pre_hook(before_last, with_kwargs=True)
    stack[-1].register_forward_hook(after_last)
    return saved


def _arrived(live: LiveBytes, scenario: Scenario, before: list[str], parameter: torch.Tensor) -> None:
    """A gradient is there. In the last micro-batch, an update within the backward pass frees it."""
    if not before:
        live.gradient_arrived(parameter)
    before.append(live.prefix)
    if scenario.in_backward and (live.prefix == LATER or scenario.micro_batches == 1):
        live.gradient_freed(parameter)


def _autocast(scenario: Scenario) -> contextlib.AbstractContextManager[Any]:
    types = {"bf16": torch.bfloat16, "fp16": torch.float16}
    if scenario.autocast is None:
        return contextlib.nullcontext()
    return torch.autocast("cpu", dtype=types[scenario.autocast])
