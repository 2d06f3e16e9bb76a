"""Less memory for more time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .declare import FLAG, about


@dataclass
class MemoryFields:
    """`gradient_checkpointing` and `activation_checkpointing` are two names of one setting and always agree."""

    activation_checkpointing: bool | None = field(
        default=None, metadata=about("Keep few activations and compute the others again in the backward pass.", **FLAG)
    )
    activation_checkpointing_kwargs: dict[str, Any] | str | None = field(
        default=None,
        metadata=about(
            "Arguments of the model's checkpointing, as a dict or JSON: 'every_n_layers' to recompute only each n-th "
            "layer, 'offload' to keep what that needs in the host's memory, and those of torch's checkpoint, such as "
            "'{\"use_reentrant\": false}'."
        ),
    )
    gradient_checkpointing: bool | None = field(
        default=None, metadata=about("The same as `activation_checkpointing`.", **FLAG)
    )
    gradient_checkpointing_kwargs: dict[str, Any] | str | None = field(
        default=None, metadata=about("The same as `activation_checkpointing_kwargs`.")
    )
    optim_in_backward: bool = field(
        default=False,
        metadata=about(
            "Update each weight in the backward pass as soon as its gradient is complete, and free the gradient. Needs "
            "`max_grad_norm=0`."
        ),
    )
    use_cache: bool = field(
        default=False, metadata=about("Let the model keep its key-value cache in training; some adapters need it.")
    )
    torch_empty_cache_steps: int | None = field(
        default=None,
        metadata=about("Steps between two times that unused device memory is given back; not given: never."),
    )
    auto_find_batch_size: bool = field(
        default=False,
        metadata=about(
            "Always so, whatever is set: when memory runs out in a step, the step is computed again in smaller parts, "
            "and stays the same step."
        ),
    )
