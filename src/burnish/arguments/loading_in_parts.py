"""Models that no process holds whole: with ZeRO-3 asked for, `from_pretrained` loads them in parts.

transformers looks for a configuration of DeepSpeed that somebody holds, wherever it builds a model. Arguments that ask
for ZeRO-3 hold one, so that models that are loaded after them come in parts, for as long as they (or a copy) are there.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import weakref
from typing import Any

from burnish.core.processes import default_backend, join, launch
from burnish.core.zero_settings import read, stage_of

from .processes import Processes

HELD = "hf_deepspeed_config"
"""The attribute of the arguments, as in transformers."""

SECTIONS = ("zero_optimization", "aio", "tensor_parallel")
"""Of the configuration, what says how a model is loaded."""

_held: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
"""By what they hold: arguments that say the same share one, since transformers knows only the latest."""


def hold_configuration(args: Processes) -> None:
    """Lets transformers load models in parts, where several processes are to divide weights among them; those are
    brought together for it. Doing it twice changes nothing."""
    vars(args).pop(HELD, None)
    if not args.deepspeed or importlib.util.find_spec("deepspeed") is None or launch().count == 1:
        return
    given = read(args.deepspeed)
    if stage_of(given) != 3:
        _forget_others()
        return
    join(args.ddp_backend or default_backend(args.use_cpu), args.ddp_timeout_delta)
    found = {name: _without_auto(given[name]) for name in SECTIONS if isinstance(given.get(name), dict)}
    found |= {name: {"enabled": bool(getattr(args, name))} for name in ("bf16", "fp16")}
    vars(args)[HELD] = _configuration({**found, "train_micro_batch_size_per_gpu": 1})


def _forget_others() -> None:
    """Those who have asked last say how models are loaded."""
    theirs: Any = sys.modules.get("transformers.integrations.deepspeed")
    if theirs is not None:
        theirs.unset_hf_deepspeed_config()


def _without_auto(section: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in section.items() if value != "auto"}


def _configuration(content: dict[str, Any]) -> Any:
    import torch._dynamo  # noqa: F401  # would be loaded within DeepSpeed's context otherwise, which it does not survive
    from transformers.integrations.deepspeed import HfDeepSpeedConfig, set_hf_deepspeed_config

    key = json.dumps(content, sort_keys=True)
    found = _held.get(key)
    if found is None:
        _held[key] = found = HfDeepSpeedConfig(content)
    set_hf_deepspeed_config(found)
    return found
