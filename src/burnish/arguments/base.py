"""How settings are taken: old names and typing mistakes in the constructor, text for numbers, later assignments.

`Settings` works beneath dataclasses, also those that users derive: the constructor that dataclass writes stays as it
is, and sees only names that exist today.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Any, cast

from burnish.core.errors import SettingError

from .derive import follow
from .fields.every import EveryField
from .kinds import Kind, kinds_of
from .limits import within_limits
from .old_names import OLD_NAMES, SHORT_NAMES, is_old, renewed, translate
from .values import convert
from .without_effect import warn_about_fields_without_effect

logger = logging.getLogger(__name__)

SETTLED = "_settled"
"""Attribute that is True once the constructor is done."""

MEANT = {
    "batch_size": "per_device_train_batch_size",
    "train_batch_size": "per_device_train_batch_size",
    "eval_batch_size": "per_device_eval_batch_size",
    "epochs": "num_train_epochs",
    "num_epochs": "num_train_epochs",
    "steps": "max_steps",
    "optimizer": "optim",
    "scheduler": "lr_scheduler_type",
    "lr_scheduler": "lr_scheduler_type",
    "warmup": "warmup_steps",
    "num_warmup_steps": "warmup_steps",
    "accumulation_steps": "gradient_accumulation_steps",
    "gradient_clipping": "max_grad_norm",
    "clip_grad_norm": "max_grad_norm",
    "num_workers": "dataloader_num_workers",
    "mixed_precision": "bf16",
    "label_smoothing": "label_smoothing_factor",
    "evaluate_during_training": "eval_strategy",
    "save_best": "save_strategy",
    "device": "use_cpu",
}
"""Names of other libraries to what they call. They are suggested, never taken."""


class UnknownSettingError(SettingError, TypeError):
    """An argument that does not exist; also a TypeError, as for any unknown keyword."""


class _SignatureOfFields:
    """What `inspect.signature` and help() show of a class: its constructor's arguments, not those of `__new__`."""

    def __get__(self, instance: object, cls: Any) -> inspect.Signature:
        constructor = inspect.signature(cls.__init__)
        return constructor.replace(parameters=list(constructor.parameters.values())[1:])


class Settings:
    """Base of dataclasses of settings."""

    __signature__ = _SignatureOfFields()

    def __new__(cls, *args: Any, **settings: Any) -> Any:
        # Here and not when the class is made, because dataclass writes the constructor after that.
        for part in cls.__mro__:
            init = vars(part).get("__init__")
            if init is not None and issubclass(part, Settings) and not hasattr(init, "translates"):
                type.__setattr__(part, "__init__", _translating(init))
        return super().__new__(cls)

    def __setattr__(self, name: str, value: Any) -> None:
        kind = _kinds(self).get(name)
        if kind is None:
            self._set_other(name, value)
            return
        super().__setattr__(name, within_limits(name, convert(kind, value)))
        if vars(self).get(SETTLED):
            follow(cast(EveryField, self), name)
            warn_about_fields_without_effect(self, (name,))

    def _set_other(self, name: str, value: Any) -> None:
        """Attributes that are no fields: anyone's own, an old name, or a slip."""
        if not (name.startswith("_") or name in vars(self) or hasattr(type(self), name)):
            if is_old(name):
                for new, meant in renewed(name, value, vars(self)).items():
                    setattr(self, new, meant)
                return
            near = nearest(name, _kinds(self), cutoff=0.8)
            if near is not None:
                logger.warning("`%s` is no field of %s. Did you mean `%s`?", name, type(self).__name__, near)
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        """Only called for what does not exist."""
        if name in SHORT_NAMES:
            return getattr(self, SHORT_NAMES[name])
        hint = f": {OLD_NAMES[name].then}" if name in OLD_NAMES else ""
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}{hint}", name=name, obj=self)


def _kinds(args: Settings) -> dict[str, Kind]:
    cls: type = type(args)
    return kinds_of(cls)


def nearest(name: str, known: Iterable[str], cutoff: float) -> str | None:
    """The field that was probably meant."""
    names = list(known)
    if MEANT.get(name) in names:
        return MEANT[name]
    longer = [one for one in names if one.startswith(f"{name}_")]  # "load_best" for "load_best_model_at_end"
    found = difflib.get_close_matches(name, longer or names, n=1, cutoff=0.0 if longer else cutoff)
    return found[0] if found else None


def _translating(init: Callable[..., None]) -> Callable[..., None]:
    """The same constructor, which is also given old names."""
    parameters = inspect.signature(init).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **settings: Any) -> None:
        if not settings.keys() <= parameters.keys():
            settings = translate(settings, keep=parameters)
            if not takes_any:
                _refuse_unknown(type(self).__name__, settings, parameters)
        init(self, *args, **settings)

    __init__.translates = True  # type: ignore[attr-defined]
    return __init__


def _refuse_unknown(cls: str, settings: Collection[str], known: Collection[str]) -> None:
    for name in settings:
        if name not in known:
            near = nearest(name, [field for field in known if field != "self"], cutoff=0.6)
            hint = f" Did you mean `{near}`?" if near is not None else ""
            raise UnknownSettingError(f"{cls} has no argument `{name}`.{hint}")
