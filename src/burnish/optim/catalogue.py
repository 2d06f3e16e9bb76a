"""The optimizers by the names of transformers: where each class is, and what it is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Entry:
    """An optimizer that can be built."""

    module: str
    """Where the class is imported from; its first part is the package that must be installed."""
    class_name: str
    takes: tuple[str, ...] = ()
    """Settings of the run that it is given besides the learning rate: betas, eps, weight_decay, warmup_steps."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that the name itself decides; no option can change them."""
    usual: Mapping[str, Any] = field(default_factory=dict)
    """Defaults that differ from those of the class; options can change them."""
    more_betas: tuple[float, ...] = ()
    """Betas after the two of the settings."""

    @property
    def package(self) -> str:
        return self.module.partition(".")[0]


_ADAM = ("betas", "eps")


def _bitsandbytes(class_name: str, bits: int, paged: bool | None = False, **more: Any) -> Entry:
    """`paged` None: the class has no paged states."""
    fixed = {"optim_bits": bits} if paged is None else {"optim_bits": bits, "is_paged": paged}
    return Entry("bitsandbytes.optim", class_name, fixed=fixed, **more)


def _adamw(bits: int, paged: bool) -> Entry:
    return _bitsandbytes("AdamW", bits, paged, takes=_ADAM)


def _lion(bits: int, paged: bool) -> Entry:
    return _bitsandbytes("Lion", bits, paged, takes=("betas",))


def _ademamix(bits: int, paged: bool) -> Entry:
    return _bitsandbytes("AdEMAMix", bits, paged, takes=_ADAM, more_betas=(0.9999,))


OPTIMIZERS: dict[str, Entry] = {
    "adamw_torch_fused": Entry("torch.optim", "AdamW", _ADAM, fixed={"fused": True}),
    "adamw_torch": Entry("torch.optim", "AdamW", _ADAM),
    "sgd": Entry("torch.optim", "SGD"),
    "adagrad": Entry("torch.optim", "Adagrad"),
    "rmsprop": Entry("torch.optim", "RMSprop"),
    # The schedule sets the rate, so Adafactor's own rate is switched off.
    "adafactor": Entry(
        "transformers", "Adafactor", fixed={"scale_parameter": False, "relative_step": False, "warmup_init": False}
    ),
    "adamw_8bit": _adamw(8, paged=False),
    "adamw_bnb_8bit": _adamw(8, paged=False),
    "paged_adamw_8bit": _adamw(8, paged=True),
    "paged_adamw_32bit": _adamw(32, paged=True),
    "lion_8bit": _lion(8, paged=False),
    "lion_32bit": _lion(32, paged=False),
    "paged_lion_8bit": _lion(8, paged=True),
    "paged_lion_32bit": _lion(32, paged=True),
    "ademamix": _ademamix(32, paged=False),
    "ademamix_8bit": _ademamix(8, paged=False),
    "paged_ademamix_8bit": _ademamix(8, paged=True),
    "paged_ademamix_32bit": _ademamix(32, paged=True),
    "rmsprop_bnb": _bitsandbytes("RMSprop", 32, None),
    "rmsprop_bnb_8bit": _bitsandbytes("RMSprop", 8, None),
    "rmsprop_bnb_32bit": _bitsandbytes("RMSprop", 32, None),
    "adamw_torch_8bit": Entry("torchao.optim", "AdamW8bit", _ADAM, usual={"block_size": 256}),
    "adamw_torch_4bit": Entry("torchao.optim", "AdamW4bit", _ADAM, usual={"block_size": 256}),
    "schedule_free_adamw": Entry("schedulefree", "AdamWScheduleFree", (*_ADAM, "weight_decay", "warmup_steps")),
    "schedule_free_radam": Entry("schedulefree", "RAdamScheduleFree", (*_ADAM, "weight_decay")),
    "schedule_free_sgd": Entry("schedulefree", "SGDScheduleFree", ("weight_decay", "warmup_steps")),
}

_SMALL_STATE = ("adamw_8bit", "paged_adamw_8bit", "adafactor")
_LOW_RANK = ("galore_adamw", "galore_adamw_8bit", "galore_adafactor", "apollo_adamw")
_LAYERWISE = tuple(
    f"{name}_layerwise" for name in ("galore_adamw", "galore_adamw_8bit", "galore_adafactor", "apollo_adamw")
)

NOT_YET: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((*_LOW_RANK, *_LAYERWISE), _SMALL_STATE),
    **dict.fromkeys(("lomo", "adalomo"), _SMALL_STATE),
    "grokadamw": ("adamw_torch_fused",),
    "stable_adamw": ("adamw_torch_fused", "adafactor"),
    "adamw_anyprecision": ("adamw_torch_8bit", "adamw_8bit"),
    "adamw_torch_xla": ("adamw_torch",),
    "adamw_torch_npu_fused": ("adamw_torch",),
    "adamw_hf": ("adamw_torch",),
    "adamw_apex_fused": ("adamw_torch_fused",),
}
"""Names that transformers has or had and that cannot be built here, each with those that come near."""
