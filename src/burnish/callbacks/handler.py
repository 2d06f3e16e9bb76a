"""The callbacks of a run, called by the name of the event."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import partial
from typing import Any

from burnish.core.errors import SettingError
from burnish.core.events import EVENTS
from burnish.core.progress import TrainerControl, TrainerState

logger = logging.getLogger(__name__)

_POSITIONAL = {"on_log": "logs", "on_evaluate": "metrics", "on_predict": "metrics"}
"""What transformers' handler takes as a fourth argument without a name."""

_BASES = {("burnish.core.events", "TrainerCallback"), ("transformers.trainer_callback", "TrainerCallback")}
_FLAGS = tuple(flag.name for flag in fields(TrainerControl))


class CallbackInterruption(RuntimeError):
    """Says which callback an exception came from, where Python has no notes (before 3.11)."""


class CallbackHandler:
    """Calls an event on every callback, in the order in which they were added.

    The trainer sets `args`, `state` and `control` before the first event, and the dataloaders when it has them. Takes
    callbacks written for transformers, and objects that define only some of the events. Any name may be fired:
    callbacks without such a method are left out. An event that nobody listens to costs one look-up in a dict.

    Args:
        callbacks: classes (called without arguments) or instances.
        model, processing_class, optimizer, lr_scheduler: passed on with every event.
    """

    def __init__(
        self,
        callbacks: Iterable[Any],
        model: Any = None,
        processing_class: Any = None,
        optimizer: Any = None,
        lr_scheduler: Any = None,
    ) -> None:
        self.args: Any = None
        self.state = TrainerState()
        self.control = TrainerControl()
        self.model = model
        self.processing_class = processing_class
        self.optimizer = optimizer
        self.lr_scheduler = lr_scheduler
        self.train_dataloader: Any = None
        self.eval_dataloader: Any = None
        self.callbacks: list[Any] = []
        self._asked: list[Any] = []
        self._listeners: dict[str, tuple[Any, ...]] = {}
        for callback in callbacks:
            self.add_callback(callback)

    def fire(self, event: str, **details: Any) -> None:
        """Calls `event` on its listeners with (args, state, control, **details).

        A callback that raises: the same exception goes on, with a note naming the callback and the event.
        """
        if self.callbacks != self._asked:  # somebody may have changed the list itself
            self._asked = list(self.callbacks)
            self._listeners.clear()
        listeners = self._listeners.get(event)
        if listeners is None:
            listeners = tuple(callback for callback in self.callbacks if _listens(callback, event))
            self._listeners[event] = listeners
        if listeners:
            self._call(listeners, event, {**self._parts(), **details})

    def listeners(self, event: str) -> list[Any]:
        """The callbacks that do something at `event`."""
        return [callback for callback in self.callbacks if _listens(callback, event)]

    def listens(self, event: str) -> bool:
        """Whether any callback does something at `event`."""
        return bool(self.listeners(event))

    def _parts(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "processing_class": self.processing_class,
            "optimizer": self.optimizer,
            "lr_scheduler": self.lr_scheduler,
            "train_dataloader": self.train_dataloader,
            "eval_dataloader": self.eval_dataloader,
        }

    def _call(self, listeners: tuple[Any, ...], event: str, details: dict[str, Any]) -> None:
        for callback in listeners:
            try:
                answer = getattr(callback, event)(self.args, self.state, self.control, **details)
            except Exception as error:
                _name_the_source(error, callback, event)
                raise
            if answer is not None and answer is not self.control:
                self._take_over(answer, callback, event)

    def _take_over(self, answer: Any, callback: Any, event: str) -> None:
        """A callback may return a control object of its own; the held one stays the one that everybody sees."""
        if not all(hasattr(answer, flag) for flag in _FLAGS):
            logger.warning(
                "%s.%s returned %r, which is no control object; it is not used. Return `control` or nothing.",
                type(callback).__name__, event, answer,
            )  # fmt: skip
            return
        for flag in _FLAGS:
            setattr(self.control, flag, bool(getattr(answer, flag)))

    def add_callback(self, callback: Any) -> None:
        """Adds an instance, or an instance of a class. Raises `SettingError` for what has no event at all."""
        instance = callback() if isinstance(callback, type) else callback
        if not any(callable(getattr(instance, event, None)) for event in EVENTS):
            raise SettingError(
                f"{instance!r} is no callback: it defines none of the events ({', '.join(EVENTS)}). "
                "Derive from `TrainerCallback`, or define at least one of these methods."
            )
        if any(type(held) is type(instance) for held in self.callbacks):
            logger.warning("A second %s was added: both will be called.", type(instance).__name__)
        self.callbacks.append(instance)

    def pop_callback(self, callback: Any) -> Any:
        """Takes out the first instance of a class, or the instance given, and returns it; None where there is none."""
        for held in self.callbacks:
            if isinstance(held, callback) if isinstance(callback, type) else held == callback:
                self.callbacks.remove(held)
                return held
        return None

    def remove_callback(self, callback: Any) -> None:
        """Takes out the first instance of a class, or the instance given; nothing happens where there is none."""
        self.pop_callback(callback)

    def call_event(
        self, event: str, args: Any, state: TrainerState, control: TrainerControl, *values: Any, **details: Any
    ) -> TrainerControl:
        """Fires `event` for code that was written for transformers' handler and hands over the three itself."""
        self.args, self.state, self.control = args, state, control
        named = {_POSITIONAL[event]: values[0]} if values else {}
        self.fire(event, **named, **details)
        return self.control

    def __getattr__(self, name: str) -> Callable[..., TrainerControl]:
        """`on_log(args, state, control, logs)` and the like, which overridden methods of a Trainer may call."""
        if name in EVENTS:
            return partial(self.call_event, name)
        raise AttributeError(f"CallbackHandler has no attribute {name!r}.")


def _listens(callback: Any, event: str) -> bool:
    """Whether a callback does something of its own at `event`: what it has is not the empty method of the base."""
    if not callable(getattr(callback, event, None)):
        return False
    if event in getattr(callback, "__dict__", {}):
        return True
    for kind in type(callback).__mro__:
        if event in vars(kind):
            return (kind.__module__, kind.__name__) not in _BASES
    return True  # found by `__getattr__`


def _name_the_source(error: Exception, callback: Any, event: str) -> None:
    note = f"Raised by the callback {type(callback).__name__} in {event}."
    add_note = getattr(error, "add_note", None)
    if add_note is not None:
        add_note(note)
    elif error.__cause__ is None:
        error.__cause__ = CallbackInterruption(note)
