"""How fast a device multiplies matrices at its best: what the speed of a run is a share of (MFU).

Model FLOPs utilisation is the floating-point operations that the model needs, whatever else is computed, over what the
device could do in the same time (Chowdhery et al., 2022, PaLM, §4.1 and appendix B).
"""

from __future__ import annotations

import re
import time
from functools import cache
from typing import Any, NamedTuple

SECONDS_TO_MEASURE = 0.2


class Peak(NamedTuple):
    """TFLOP/s of dense matrix products (without 2:4 sparsity)."""

    half: float
    """bfloat16 or float16, accumulated in float32."""
    tf32: float
    single: float


KNOWN = {
    r"B200": Peak(2250, 1125, 75),
    r"H200 NVL": Peak(835.5, 417.5, 60),
    r"H200": Peak(989.4, 494.7, 66.9),
    r"H100 PCIe": Peak(756, 378, 51),
    r"H100 NVL": Peak(835.5, 417.5, 60),
    r"H100": Peak(989.4, 494.7, 66.9),
    r"A100": Peak(312, 156, 19.5),
    r"L40S": Peak(362, 183, 91.6),
    r"L4": Peak(121, 60, 30.3),
    r"A10": Peak(125, 62.5, 31.2),
    r"T4": Peak(65, 8.1, 8.1),
    r"V100": Peak(125, 15.7, 15.7),
    r"RTX 4090(?! (?:D|Laptop))": Peak(165.2, 82.6, 82.6),
    r"RTX 3090(?! Ti)": Peak(71, 35.6, 35.6),
}
"""Words in the name of a GPU, the longer before the shorter, to its peaks: NVIDIA's data sheets of the products, and
its whitepapers of the Ada (2022) and GA102 (2020) architectures. Numbers with sparsity are halved."""


def peak_flops(model: Any, args: Any) -> float | None:
    """FLOP/s that the device of a model reaches at its best in the type in which the run computes. From the table, or
    measured where `args.measure_peak` asks for it; None where neither is there."""
    weight = next((p for p in model.parameters() if p.is_floating_point()), None)
    if weight is None:
        return None
    kind = "half" if args.bf16 or args.fp16 or weight.element_size() == 2 else "single"
    if weight.device.type == "cuda":
        import torch

        if kind == "single" and torch.backends.cuda.matmul.allow_tf32:
            kind = "tf32"
        known = known_peak(torch.cuda.get_device_name(weight.device))
        if known is not None:
            return float(getattr(known, kind)) * 1e12
    if not getattr(args, "measure_peak", False):
        return None
    mixed = "bfloat16" if args.bf16 else "float16" if args.fp16 else str(weight.dtype).removeprefix("torch.")
    return measured_peak(str(weight.device), mixed)


def known_peak(name: str) -> Peak | None:
    """The peaks of a GPU by its name; None for one that is not in the table, and for a part of one."""
    if "MIG" in name:
        return None
    words = (words for words in KNOWN if re.search(rf"\b{words}\b", name))
    found = next(words, None)
    return None if found is None else KNOWN[found]


@cache
def measured_peak(device: str, kind: str) -> float:
    """FLOP/s of square matrix products of a type on a device."""
    import torch

    size = 1024 if device == "cpu" else 8192
    factor = torch.linspace(-1, 1, size * size, device=device).to(getattr(torch, kind)).reshape(size, size)
    product = factor @ factor  # the first one also starts the library
    float(product[0, 0])
    begun, products, seconds = time.perf_counter(), 0, 0.0
    while seconds < SECONDS_TO_MEASURE:
        torch.mm(factor, factor, out=product)
        products += 1
        float(product[0, 0])  # waits for the device
        seconds = time.perf_counter() - begun
    return 2.0 * size**3 * products / seconds
