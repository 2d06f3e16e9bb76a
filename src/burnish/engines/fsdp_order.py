"""Whether the processes of FSDP computed with the same weights in a step: torch matches what they gather and sum by its
order alone, and never looks which weights it is."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from burnish.core.errors import SettingError
from burnish.core.protocols import Processes


class SameOrder:
    """Refuses a step in which processes called other blocks, or got gradients for other weights.

    One of them would have computed with another block's weights, or summed its gradients with another weight's.

    Args:
        processes: of the run.
        model: divided.
        blocks: the parts of it that are gathered by themselves.
    """

    def __init__(self, processes: Processes, model: nn.Module, blocks: Iterable[nn.Module]) -> None:
        self._processes, self._model = processes, model
        self._called: list[int] = []
        names = {module: name for name, module in model.named_modules()}
        self._blocks = [names[block] for block in blocks]
        self._hooks = [
            model.get_submodule(name).register_forward_pre_hook(partial(self._note, number))
            for number, name in enumerate(self._blocks)
        ]

    def _note(self, number: int, block: nn.Module, inputs: Any) -> None:
        if block.training:
            self._called.append(number)

    def begin(self) -> None:
        self._called.clear()

    def end(self) -> None:
        """The run is over; blocks are no longer watched."""
        for hook in self._hooks:
            hook.remove()

    def check(self) -> None:
        """All processes call it, behind the last backward pass of a step.

        Raises:
            SettingError: they differ.
        """
        without = [number for number, (_, weight) in enumerate(self._trained()) if weight.grad is None]
        found = zlib.crc32(repr((self._called, without)).encode())
        if len({row[0] for row in self._processes.table([found])}) > 1:
            raise SettingError(self._difference(self._processes.all_of({"called": self._called, "without": without})))

    def _trained(self) -> list[tuple[str, torch.Tensor]]:
        return [(name, weight) for name, weight in self._model.named_parameters() if weight.requires_grad]

    def _difference(self, found: list[Mapping[str, Any]]) -> str:
        names = [name for name, _ in self._trained()]
        other = next(index for index, one in enumerate(found) if one != found[0])
        unlike = set(found[0]["without"]) ^ set(found[other]["without"])
        blocks = set(found[0]["called"]) ^ set(found[other]["called"])
        what = [self._blocks[number] for number in sorted(blocks)] or [names[number] for number in sorted(unlike)]
        which = f"{', '.join(what[:5])} on one of them alone" if what else "blocks in another order"
        return (
            f"fsdp: processes 0 and {other} did not compute with the same weights in a step: {which}. What they gather "
            "and sum is matched by its order, so the gradients are wrong, and the step was not applied. Let the model "
            "use the same blocks for every batch (no layer dropout: layerdrop=0), or leave `fsdp` out and set "
            "ddp_find_unused_parameters=True."
        )
