"""`fsdp` and `fsdp_config` in all the forms that people write, brought into one."""

from __future__ import annotations

import re
from typing import Any

from burnish.core.errors import SettingError
from burnish.core.json_settings import json_object

from .choices import what_exists
from .fields.every import EveryField

STRATEGIES = ("full_shard", "shard_grad_op", "hybrid_shard", "hybrid_shard_zero2")
"""What the processes divide among them, and for how long; see `docs/scale.md`."""
OTHERS = ("auto_wrap", "offload")

_PREFIX = "fsdp_"


def words(given: Any) -> str | None:
    """`fsdp` as words, the strategy first, such as "full_shard offload"; None where nothing is divided.

    Raises:
        SettingError: for a word that does not exist, and for two strategies.
    """
    if given is True:
        return STRATEGIES[0]
    if not given:
        return None
    parts = re.split(r"[,\s]+", given.strip().lower()) if isinstance(given, str) else given
    found = [str(getattr(part, "value", part)).lower() for part in parts if part]
    if found in (["true"], ["1"]):
        return STRATEGIES[0]
    if found in (["false"], ["0"], ["none"], []):
        return None
    return " ".join(_checked(found))


def _checked(found: list[str]) -> list[str]:
    if "no_shard" in found:
        raise SettingError("`fsdp='no_shard'` divides nothing: leave `fsdp` out, and each process has a whole model.")
    known = [*STRATEGIES, *OTHERS]
    unknown = next((word for word in found if word not in known), None)
    if unknown is not None:
        raise SettingError(f"`fsdp` has no value {unknown!r}.{what_exists(unknown, known)} True means full_shard.")
    strategies = [word for word in found if word in STRATEGIES] or [STRATEGIES[0]]
    if len(set(strategies)) > 1:
        raise SettingError(f"`fsdp={' '.join(found)!r}` names {len(strategies)} strategies. Choose one of them.")
    return [strategies[0], *(word for word in OTHERS if word in found)]


def config(given: Any) -> dict[str, Any] | None:
    """`fsdp_config` as a dict: of a dict, JSON, or the path of a JSON file. Names lose "fsdp_" at their beginning.

    Raises:
        SettingError: it cannot be read.
    """
    if not given:
        return None
    content = json_object("fsdp_config", given)
    return {str(name).removeprefix(_PREFIX): value for name, value in content.items()}


def derive_sharding(args: EveryField) -> None:
    """Settings that `fsdp_config` gives another name. Doing it twice changes nothing."""
    found = args.fsdp_config
    if args.fsdp and isinstance(found, dict) and found.get("activation_checkpointing") in (True, "true", "True"):
        vars(args)["gradient_checkpointing"] = vars(args)["activation_checkpointing"] = True
