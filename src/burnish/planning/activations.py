"""What a step keeps in memory beside weights and optimizer, found out by taking it without numbers.

Two micro-batches are computed forward and backward by the objective of the run, on tensors that own no memory; the
bytes that are alive are counted after each operation. So each operation's own rule of what it saves for its backward
applies, as it does in a run. A stack of like layers is computed with 2 and with 3 layers: each number below is linear
in their number.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from burnish.models.contract import facts_of
from burnish.objectives.native import NativeLoss
from burnish.objectives.selected import selected_loss

from .blank import blank_model, shallow, stack_of, without_memory
from .live import AsOnAccelerator, LiveBytes, Peak
from .scenario import Scenario

DEPTHS = 2, 3
"""Numbers of layers that are computed where there are more."""

FORWARD, LOSS, BACKWARD, END = "forward", "loss", "backward", "end of backward"
LATER = "later "
"""Put before the phases of the second micro-batch, in which all gradients are there."""


@dataclass(frozen=True)
class Activations:
    """Bytes that are alive in a step beside weights, optimizer and lasting buffers."""

    saved: float
    """What the forward pass of a micro-batch keeps for the backward pass, the loss left out."""
    peaks: Mapping[str, Peak]
    """By phase."""

    def at_depth(self, deeper: Activations, factor: float) -> Activations:
        """Extrapolated: this one with `factor` times the difference to the one with more layers."""

        def line(one: Peak, other: Peak) -> Peak:
            return one.plus(other, factor).plus(one, -factor)

        peaks = {phase: line(peak, deeper.peaks[phase]) for phase, peak in self.peaks.items()}
        return Activations(self.saved + (deeper.saved - self.saved) * factor, peaks)


def activations_of(auto_class_name: str, config: Any, scenario: Scenario) -> Activations:
    """What a micro-batch of this scenario keeps in memory, for the model of the config."""
    depth = getattr(config, "num_hidden_layers", 0)
    if depth <= DEPTHS[1] or getattr(config, "is_encoder_decoder", False):
        return _traced(auto_class_name, config, scenario)
    one, other = (_traced(auto_class_name, shallow(config, number), scenario) for number in DEPTHS)
    return one.at_depth(other, (depth - DEPTHS[0]) / (DEPTHS[1] - DEPTHS[0]))


def _traced(auto_class_name: str, config: Any, scenario: Scenario) -> Activations:
    with without_memory():
        model = blank_model(auto_class_name, config, scenario)
        loss_of, num_targets = _objective(model, scenario)
        if scenario.checkpointing:
            enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
            enable({"use_reentrant": False})
        live = LiveBytes(num_targets, [*model.parameters(), *model.buffers()])
        saved = _watch(model, live, scenario)
        inputs = _inputs(model, scenario)
        kernels = AsOnAccelerator() if scenario.device == "cuda" else contextlib.nullcontext()
        with live, kernels:
            for prefix in ("", LATER)[: min(2, scenario.micro_batches)]:
                live.prefix = prefix
                live.enter_phase(FORWARD)
                with _autocast(scenario):
                    loss = loss_of(model, inputs)
                loss.backward()
                del loss
        return Activations(float(max(saved, default=0)), dict(live.peaks))


def _objective(model: Any, scenario: Scenario) -> tuple[Any, int]:
    """The loss of the run, and the positions with a target in a micro-batch."""
    facts = facts_of(model)
    native = NativeLoss(facts.takes("use_cache"), facts.shifts_labels, scenario.label_smoothing)
    selected = None
    if scenario.at_targets:
        selected = selected_loss(model, facts.shifts_labels, native.passes_use_cache, scenario.label_smoothing)
    positions = scenario.tokens - (scenario.rows if facts.shifts_labels else 0)
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


def _watch(model: Any, live: LiveBytes, scenario: Scenario) -> list[int]:
    """Has `live` told of phases and gradients. Returns a list to which the bytes after the last layer are added."""
    saved: list[int] = []
    for part in model.modules():
        if isinstance(part, torch.nn.Embedding) and _has_buffer(model, part, scenario):
            # its rows' gradients go to a buffer that is counted apart
            part.weight.requires_grad_(False)
            part.register_forward_hook(lambda part, args, output: output.requires_grad_(True))
    for parameter in model.parameters():
        if parameter.requires_grad:
            first: list[bool] = []

            def arrived(parameter: torch.Tensor, first: list[bool] = first) -> None:
                if not first:
                    first.append(True)
                    live.gradient_arrived(parameter)

            parameter.register_post_accumulate_grad_hook(arrived)
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


def _has_buffer(model: Any, table: torch.nn.Embedding, scenario: Scenario) -> bool:
    from .blank import weights_of

    sizes = dict(zip((id(p) for p in model.parameters()), weights_of(model, scenario), strict=True))
    return sizes[id(table.weight)].has_buffer


def _autocast(scenario: Scenario) -> contextlib.AbstractContextManager[Any]:
    types = {"bf16": torch.bfloat16, "fp16": torch.float16}
    if scenario.autocast is None:
        return contextlib.nullcontext()
    return torch.autocast("cpu", dtype=types[scenario.autocast])
