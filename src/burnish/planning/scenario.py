"""What is planned: the settings of a run that decide how much memory it takes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from burnish.core.errors import SettingError

GIB = 1 << 30


@dataclass(frozen=True)
class Scenario:
    """How a model is to be trained. Every row has the same length, which is the most that a budget lets through."""

    device: str
    """"cpu" or "cuda"."""
    length: int
    """Tokens of a row."""
    rows: int
    """Rows of a micro-batch."""
    micro_batches: int
    """Micro-batches of an optimizer step, on each process."""
    sequences: int = 1
    """Sequences of so many tokens in a row: 2 for encoder-decoders, whose labels are one."""
    share_of_targets: float = 1.0
    """Share of positions that the output layer of a language model is computed at."""
    optimizer: str = "adamw_torch_fused"
    momentum: float = 0.0
    """Of SGD and RMSprop, which keep one more number a parameter for it."""
    weights: str = "float32"
    """Type of the loaded weights, by its name in torch."""
    autocast: str | None = None
    """"bf16" or "fp16" for mixed precision."""
    checkpointing: bool = False
    in_backward: bool = False
    """Whether each weight is updated in the backward pass of the last micro-batch, and its gradient freed."""
    lora_rank: int | None = None
    """Rank of low-rank adapters on all linear layers; None trains every weight."""
    four_bit: bool = False
    """Whether frozen linear layers hold their weights in 4 bits (QLoRA)."""
    zero_stage: int = 0
    num_processes: int = 1
    offload: bool = False
    """Whether the optimizer's state and update are on the host."""
    at_targets: bool = True
    """Whether the output layer is computed at targets only, in chunks."""
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        if self.zero_stage not in range(4):
            raise SettingError(f"--zero_stage {self.zero_stage}: the stages of ZeRO are 0, 1, 2 and 3.")
        if self.num_processes < 1:
            raise SettingError(f"--num_processes {self.num_processes}: at least one is needed.")
        if self.lora_rank is not None and self.lora_rank < 1:
            raise SettingError(f"--lora_rank {self.lora_rank}: a rank is at least 1.")
        if self.four_bit and self.lora_rank is None:
            raise SettingError("--load_in_4bit freezes the weights: say what is trained instead, with --lora_rank 16.")

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch, as a budget counts them."""
        return self.rows * self.row_tokens

    @property
    def row_tokens(self) -> int:
        return self.length * self.sequences

    def within(self, tokens: int) -> Scenario:
        """The same step in micro-batches of so many tokens at most; a longer row goes alone."""
        rows = max(1, min(tokens // self.row_tokens, self.rows * self.micro_batches))
        return replace(self, rows=rows, micro_batches=math.ceil(self.rows * self.micro_batches / rows))
