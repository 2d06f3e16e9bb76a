"""The optimizer, its learning rate over the run, and what is done to the loss and the gradients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..choices import OptimizerNames, SchedulerType
from .declare import about


@dataclass
class OptimizationFields:
    learning_rate: float = field(default=5e-5, metadata=about("Highest learning rate of the run, after the warmup."))
    lr_scheduler_type: SchedulerType | str = field(
        default="linear", metadata=about("How the learning rate changes after the warmup.")
    )
    lr_scheduler_kwargs: dict[str, Any] | str | None = field(
        default=None,
        metadata=about("Further arguments of the schedule, as a dict or JSON, such as '{\"num_cycles\": 2}'."),
    )
    warmup_steps: float = field(
        default=0,
        metadata=about(
            "Steps over which the learning rate rises from 0: a number of steps, or below 1 a share of the run."
        ),
    )
    optim: OptimizerNames | str = field(default="adamw_torch_fused", metadata=about("Optimizer, by name."))
    optim_args: str | None = field(
        default=None, metadata=about("Further arguments of the optimizer, as 'name=value,name=value'.")
    )
    optim_target_modules: list[str] | str | None = field(
        default=None,
        metadata=about("Modules that GaLore and APOLLO project: names, a regular expression, or 'all-linear'."),
    )
    weight_decay: float = field(
        default=0.0, metadata=about("Decay of weights per step and learning rate; not for biases and norms.")
    )
    adam_beta1: float = field(default=0.9, metadata=about("Decay of Adam's running mean of gradients, per step."))
    adam_beta2: float = field(
        default=0.999, metadata=about("Decay of Adam's running mean of squared gradients, per step.")
    )
    adam_epsilon: float = field(default=1e-8, metadata=about("Added to Adam's denominator."))
    max_grad_norm: float = field(
        default=1.0, metadata=about("Gradients are scaled down to this 2-norm; 0: not at all.")
    )
    label_smoothing_factor: float = field(
        default=0.0, metadata=about("Share of each target spread over all classes, from 0 to 1.")
    )
    average_tokens_across_devices: bool = field(
        default=True, metadata=about("Divide by the targets of all processes. Always so here, whatever is set.")
    )
    neftune_noise_alpha: float | None = field(
        default=None,
        metadata=about("Strength of the uniform noise on input embeddings in training (NEFTune); 5 to 15 are common."),
    )
