"""Faster kernels: compiled models and fused layers."""

from __future__ import annotations

from dataclasses import dataclass, field

from .declare import about


@dataclass
class CompilationFields:
    torch_compile: bool = field(default=False, metadata=about("Compile the model with torch.compile."))
    torch_compile_backend: str | None = field(
        default=None,
        metadata=about("Backend of torch.compile, such as inductor; setting it switches `torch_compile` on."),
    )
    torch_compile_mode: str | None = field(
        default=None,
        metadata=about("Mode of torch.compile, such as reduce-overhead; setting it switches `torch_compile` on."),
    )
    use_liger_kernel: bool = field(
        default=False, metadata=about("Replace layers of the model by those of the package liger-kernel.")
    )
    liger_kernel_config: dict[str, bool] | str | None = field(
        default=None,
        metadata=about("Which layers liger-kernel replaces, as a dict or JSON, such as '{\"rms_norm\": true}'."),
    )
