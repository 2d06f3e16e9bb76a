"""How a step is computed: the settings that only burnish has."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..choices import NonFinitePolicy
from .declare import about


@dataclass
class StepFields:
    nonfinite_policy: NonFinitePolicy | str = field(
        default="stop",
        metadata=about(
            "When a loss or gradient is NaN or infinite: stop the run, skip the update, or ignore it and update anyway."
        ),
    )
    token_budget: int | None = field(
        default=None,
        metadata=about(
            "Tokens that go through the model at once, padding included where it is computed. Not given: chosen for "
            "the device."
        ),
    )
    trim_padding: bool = field(default=True, metadata=about("Cut away padding that the data brought along."))
    padding_free: bool | None = field(
        default=None,
        metadata=about(
            "Let the layers of the model compute real tokens only, where two examples show that the loss stays the "
            "same. Not given: on the CPU. On other devices the host reads the attention mask of each micro-batch."
        ),
    )
    logits_at_targets: bool = field(
        default=True,
        metadata=about(
            "Compute the output layer of a language model at positions with a target only, in chunks, where two "
            "examples show that the loss stays the same."
        ),
    )
    packing: bool = field(
        default=False,
        metadata=about(
            "Count bins in place of rows: a row of a batch is a bin of `packing_length` tokens, filled with examples. "
            "These stay examples of their own for loss and attention; a step has as many as fill its bins."
        ),
    )
    packing_length: int | None = field(
        default=None,
        metadata=about(
            "Tokens of a bin, for `packing`; a longer row is a bin alone. Not given: those of the longest row, at most "
            "4,096."
        ),
    )
