"""In which numbers a model computes."""

from __future__ import annotations

from dataclasses import dataclass, field

from .declare import about


@dataclass
class PrecisionFields:
    bf16: bool = field(default=False, metadata=about("Train in mixed precision with bfloat16. Needs no loss scaling."))
    fp16: bool = field(default=False, metadata=about("Train in mixed precision with float16 and a scaled loss."))
    bf16_full_eval: bool = field(default=False, metadata=about("Evaluate in mixed precision with bfloat16."))
    fp16_full_eval: bool = field(default=False, metadata=about("Evaluate in mixed precision with float16."))
    tf32: bool | None = field(
        default=None,
        metadata=about(
            "Round float32 matrix products to TF32 on NVIDIA GPUs from Ampere on. Not given: as torch is set."
        ),
    )
